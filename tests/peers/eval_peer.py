# SPDX-License-Identifier: Apache-2.0
"""ttrun eval against transformers: loss, perplexity and bits per byte of a text, every token once, on a Hugging Face
folder, for window lengths that do and do not divide it.

usage: eval_peer.py [build folder]"""
import json
import math
import os
import subprocess
import sys
import tempfile

import torch
import transformers
from transformers import LlamaConfig, LlamaForCausalLM

BUILD = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else "build/release")
failed = 0


@torch.no_grad()
def scores(model, ids, seq):
    nll, n_bytes = 0.0, sum(i < 256 for i in ids[1:])
    for at in range(0, len(ids) - 1, seq):
        window = torch.tensor([ids[at:at + seq + 1]])
        logits = model(window[:, :-1]).logits[0].double()
        nll += torch.nn.functional.cross_entropy(logits, window[0, 1:], reduction="sum").item()
    loss = nll / (len(ids) - 1)
    return {"tokens": len(ids) - 1, "loss": loss, "perplexity": math.exp(loss), "bits_per_byte": nll / math.log(2) / n_bytes}


def ttrun(folder, text, seq):
    r = subprocess.run([f"{BUILD}/ttrun", "eval", "--plugin-dir", f"{BUILD}/plugins", "--checkpoint", folder, "--data", text,
                        "--seq_len", str(seq), "--tokenizer.name", "byte", "--json", "-q"], capture_output=True, text=True,
                       timeout=300)
    if r.returncode:
        raise SystemExit(f"ttrun: {r.stderr}")
    return json.loads(r.stdout)


def main():
    global failed
    transformers.utils.logging.disable_progress_bar()
    torch.manual_seed(3)
    model = LlamaForCausalLM(LlamaConfig(hidden_size=48, num_hidden_layers=2, num_attention_heads=6, num_key_value_heads=2,
                                         intermediate_size=70, vocab_size=262, initializer_range=0.3,
                                         max_position_embeddings=4096, attn_implementation="eager")).eval()
    text = "".join(f"line {i}: {i * i} é\n" for i in range(150)).encode()
    ids = [256, *text, 257]
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        with open(f"{folder}/text.txt", "wb") as f:
            f.write(text)
        for seq in 32, 100, len(ids) - 1, 3000:
            want, ours = scores(model, ids, seq), ttrun(folder, f"{folder}/text.txt", seq)
            ok = want["tokens"] == ours["tokens"] and all(abs(ours[k] / want[k] - 1) <= 1e-5 for k in want)
            failed += not ok
            print(("ok    " if ok else "WRONG ") + f"windows of {seq}: {want} {ours}", flush=True)
    sys.exit(failed > 0)


main()
