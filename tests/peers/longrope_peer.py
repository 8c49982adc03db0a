# SPDX-License-Identifier: Apache-2.0
"""LongRoPE in ttrun generate and serve against transformers' generate of Phi-3, float32, eager: greedy ids and their
log-probabilities of prompts below original_max_position_embeddings, beyond it, at it and of texts that grow past it; each alone
and all side by side.

usage: longrope_peer.py [build folder]"""
import concurrent.futures
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request

import torch
import transformers

import checks
from checks import check

BUILD = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else "build/release")
ORIGINAL, NEW, EOS = 32, 16, 257  # the byte tokenizer's end of text, which ends one of ours
# below the border for good, up to it and past it as they grow, at it, beyond it
LENGTHS = 5, 16, 17, 24, 31, 32, 33, 70
TOLERANCE = 1e-4  # of a log-probability; the factors of the wrong length change them by 1


def model_of():
    torch.manual_seed(5)
    half = 6
    rope = {"rope_type": "longrope", "rope_theta": 10000.0, "original_max_position_embeddings": ORIGINAL, "factor": 8.0,
            "short_factor": [1 + 0.15 * i for i in range(half)], "long_factor": [1.5 + 2.5 * i for i in range(half)]}
    m = transformers.Phi3ForCausalLM(transformers.Phi3Config(
        vocab_size=262, hidden_size=48, intermediate_size=80, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
        max_position_embeddings=8 * ORIGINAL, original_max_position_embeddings=ORIGINAL, rope_parameters=rope, initializer_range=0.25,
        pad_token_id=None, bos_token_id=None, eos_token_id=None, tie_word_embeddings=False, attn_implementation="eager"))
    return m.float().eval()


def theirs(m, prompt):
    """The ids, and their log-probabilities."""
    with torch.no_grad():
        r = m.generate(torch.tensor([prompt]), do_sample=False, max_new_tokens=NEW, output_logits=True, return_dict_in_generate=True)
    ids = r.sequences[0, len(prompt):].tolist()
    return ids, [torch.log_softmax(x[0].double(), -1)[i].item() for x, i in zip(r.logits, ids)]


def generated(folder, prompts, *options):
    with open(f"{folder}/prompts.jsonl", "w") as f:
        f.writelines(json.dumps({"ids": p}) + "\n" for p in prompts)
    r = subprocess.run([f"{BUILD}/ttrun", "generate", "--plugin-dir", f"{BUILD}/plugins", "--checkpoint", f"{folder}/hf", "--prompts",
                        f"{folder}/prompts.jsonl", "--temperature", "0", "--max-tokens", str(NEW), "--json", *options],
                       capture_output=True, text=True, timeout=100)
    return [json.loads(line)["ids"] for line in r.stdout.splitlines()] if not r.returncode else r.stderr


def served(url, prompt):
    """The log-probabilities of a greedy text."""
    body = {"prompt": prompt, "max_tokens": NEW, "temperature": 0, "logprobs": 1, "ignore_eos": True}
    with urllib.request.urlopen(urllib.request.Request(url + "/v1/completions", json.dumps(body).encode(),
                                                       {"Content-Type": "application/json"}), timeout=60) as r:
        return json.load(r)["choices"][0]["logprobs"]["token_logprobs"]


def serve(folder):
    log = open(f"{folder}/log", "w")
    p = subprocess.Popen([f"{BUILD}/ttrun", "serve", "--plugin-dir", f"{BUILD}/plugins", "--checkpoint", f"{folder}/hf", "--port", "0",
                          "--context", "128", "--template", "chatml"], stderr=log)
    for _ in range(100):
        time.sleep(0.1)
        text = open(f"{folder}/log").read()
        if " at http" in text:
            return p, text.split(" at ")[1].split("/v1")[0]
    p.terminate()
    sys.exit(f"ttrun serve does not start: {text}")


def near(ours, want):
    return len(ours) == len(want) and max(abs(a - b) for a, b in zip(ours, want)) < TOLERANCE


def main():
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
    torch.set_num_threads(1)
    m = model_of()
    prompts = [[(7 * i * i + 3 * n + i) % 256 for i in range(n)] for n in LENGTHS]
    want = [theirs(m, p) for p in prompts]
    with tempfile.TemporaryDirectory() as folder:
        m.save_pretrained(f"{folder}/hf")
        together = generated(folder, prompts)
        for n, p, (ids, _), ours in zip(LENGTHS, prompts, want, together if isinstance(together, list) else [together] * len(prompts)):
            ids = ids[:ids.index(EOS)] if EOS in ids else ids
            check(ours == ids, f"generate, {n} ids, all together" + ("" if ours == ids else f": {ours}, not {ids}"))
            check(generated(folder, [p], "--batch", "1") == [ours], f"generate, {n} ids, alone")
        p, url = serve(folder)
        try:
            for n, prompt, (_, logs) in zip(LENGTHS, prompts, want):
                ours = served(url, prompt)
                check(near(ours, logs), f"serve, {n} ids, alone: log-probabilities " +
                      f"at most {max(abs(a - b) for a, b in zip(ours, logs)):.1e} apart")
            with concurrent.futures.ThreadPoolExecutor(len(prompts)) as pool:
                for n, (_, logs), ours in zip(LENGTHS, want, pool.map(lambda x: served(url, x), prompts)):
                    check(near(ours, logs), f"serve, {n} ids, side by side")
        finally:
            p.terminate()
            p.wait(10)
    sys.exit(checks.failed > 0)


main()
