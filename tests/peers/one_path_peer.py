# SPDX-License-Identifier: Apache-2.0
"""A folder that transformers wrote is the whole fine-tuning job; the export is opened by transformers.

For each model family: a small random model and a BPE tokenizer, saved by save_pretrained; three steps from the job
{"model": {"hf": DIR}} plus data and steps; hf/latest opened by AutoModelForCausalLM and AutoTokenizer. config.json's keys
and the dtype are the source's, the weights have changed, and the greedy ids of transformers on the export are those of
`ttrun generate` on the export and on the run, after run and source folder have moved.

usage: one_path_peer.py [build folder]"""
import json
import os
import shutil
import subprocess
import sys
import tempfile

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerFast

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else f"{ROOT}/build/release")
NEW, PROMPT = 24, "int main(void)"
TEXT = [f"int f{i}(int x) {{ return x * {i} + {i * i}; }}\nint main(void) {{ return f{i}({i % 7}); }}" for i in range(200)]
# model_type, dtype, whether the tokenizer itself puts bos before a text, arguments besides the common ones
FAMILIES = [
    ("llama", "float32", True, {}),
    ("llama", "bfloat16", False, {"rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4}}),
    ("mistral", "float32", True, {"sliding_window": 16}),
    ("qwen2", "bfloat16", False, {}),
    ("qwen3", "float16", False, {"head_dim": 16}),
    ("gpt2", "float32", False, None),
    ("llama", "float32", True, {"attention_bias": True, "mlp_bias": True}),
    ("gemma", "float32", True, {"head_dim": 16}),
    ("gemma2", "bfloat16", True, {"head_dim": 16, "sliding_window": 16, "query_pre_attn_scalar": 16}),
    ("gemma3_text", "float32", True, {"head_dim": 16, "sliding_window": 16, "query_pre_attn_scalar": 16}),
    ("phi3", "float32", False, {"original_max_position_embeddings": 512}),
    ("olmo2", "float32", False, {}),
    ("olmo3", "float32", False, {"sliding_window": 16}),
    ("smollm3", "bfloat16", False, {}),
]
failed = 0


def check(ok, what):
    global failed
    failed += not ok
    print(("ok    " if ok else "WRONG ") + what, flush=True)


def tokenizer(gpt2, bos):
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.decoder = decoders.ByteLevel()
    special = ["<|endoftext|>"] if gpt2 else ["<s>", "</s>", "<pad>"]
    t.train_from_iterator(TEXT, trainers.BpeTrainer(vocab_size=350, special_tokens=special,
                                                    initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    if bos:
        t.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    return PreTrainedTokenizerFast(tokenizer_object=t, bos_token=special[0], eos_token=special[0] if gpt2 else special[1],
                                   **({} if gpt2 else {"pad_token": "<pad>"}), chat_template="{{ messages }}")


def source(folder, kind, dtype, bos, more):
    tok = tokenizer(kind == "gpt2", bos)
    common = dict(vocab_size=len(tok), bos_token_id=0, eos_token_id=0 if kind == "gpt2" else 1)
    sizes = dict(n_embd=48, n_layer=2, n_head=4, n_positions=256, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0) \
        if more is None else dict(hidden_size=48, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
                                  num_key_value_heads=2, max_position_embeddings=512, pad_token_id=2,
                                  tie_word_embeddings=False, **more)
    torch.manual_seed(3)
    m = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **common, **sizes))
    with torch.no_grad():
        for p in m.parameters():
            p.copy_(p + 0.1 * torch.randn_like(p))
    m.generation_config.max_new_tokens = 77
    m.to(getattr(torch, dtype)).save_pretrained(folder)
    tok.save_pretrained(folder)


def ttrun(*args):
    r = subprocess.run([f"{BUILD}/ttrun", *args, "--plugin-dir", f"{BUILD}/plugins"], capture_output=True, text=True, cwd="/")
    if r.returncode:
        print(r.stderr, file=sys.stderr)
    return r


def greedy(checkpoint):
    r = ttrun("generate", "--checkpoint", checkpoint, "--prompt", PROMPT, "--temperature", "0", "--max-tokens", str(NEW), "--json")
    return json.loads(r.stdout.splitlines()[-1])["ids"] if r.returncode == 0 else None


def family(where, kind, dtype, bos, more):
    name = f"{kind} {dtype}{' ' + next(iter(more)) if more else ''}"
    hf, run = f"{where}/hf", f"{where}/run"
    source(hf, kind, dtype, bos, more)
    with open(f"{where}/text.txt", "w") as f:
        f.write("\n".join(TEXT))
    with open(f"{where}/job.json", "w") as f:
        json.dump({"model": {"hf": "hf"}, "dataloader": {"path": "text.txt"}, "dump_folder": "run",
                   "training": {"steps": 3, "seq_len": 64, "local_batch_size": 2}, "lr_scheduler": {"warmup_steps": 0},
                   "checkpoint": {"last_save_in_hf": True}}, f)
    r = ttrun(f"{where}/job.json", "-q")
    check(r.returncode == 0, f"{name}: trains from its folder alone")
    if r.returncode:
        return
    a, b = (json.load(open(f"{d}/config.json")) for d in (hf, f"{run}/hf/latest"))
    check(a == b, f"{name}: config.json is the source's" + ("" if a == b else f": {a} {b}"))
    gone = f"{where}/elsewhere"
    shutil.move(run, gone)
    before = AutoModelForCausalLM.from_pretrained(hf).float().state_dict()
    shutil.rmtree(hf)
    out = os.path.realpath(f"{gone}/hf/latest")
    m, t = AutoModelForCausalLM.from_pretrained(out), AutoTokenizer.from_pretrained(out)
    check(m.dtype == getattr(torch, dtype) and m.generation_config.max_new_tokens == 77 and bool(t.chat_template),
          f"{name}: dtype, generation config and chat template are the source's")
    m = m.float()
    check(any(not torch.equal(v, before[k]) for k, v in m.state_dict().items()), f"{name}: the weights have changed")
    ids = t(PROMPT, return_tensors="pt", return_token_type_ids=False)
    text = m.generate(**ids, do_sample=False, max_new_tokens=NEW)[0].tolist()[ids["input_ids"].shape[1]:]
    ours = greedy(out)
    stop = text[:-1] if text and text[-1] == m.generation_config.eos_token_id else text
    check(ours in (text, stop), f"{name}: greedy ids of the export" + ("" if ours in (text, stop) else f": {ours} {text}"))
    if dtype == "float32":
        check(greedy(gone) == ours, f"{name}: greedy ids of the moved run, its source gone")


with tempfile.TemporaryDirectory() as top:
    for i, f in enumerate(FAMILIES):
        os.mkdir(f"{top}/{i}")
        family(f"{top}/{i}", *f)
sys.exit(failed > 0)
