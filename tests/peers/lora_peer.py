# SPDX-License-Identifier: Apache-2.0
"""LoRA beside PEFT: ten steps from one adapter, exports and imports both ways.

For each case a small random Hugging Face folder and a PEFT adapter with random A and B (PEFT's save_pretrained). ttrun
trains `model.hf` with the converter lora from that adapter; PEFT trains the same batches with torch.optim.AdamW. The losses
of ten steps differ by at most 1e-4. `ttrun ckpt export --adapter` is opened by PeftModel, whose logits are those of PEFT's
own trained model; the merged export is opened by transformers and has the logits of the base with the adapter. Epsilon is 1e-5, because
AdamW with a smaller one makes whole steps of gradients that are zero up to rounding.

The cases of qlora do the same with the converter qlora: there PEFT's base holds the numbers that bitsandbytes' codes of its linear
layers stand for, and ttrun gets the base as it was.

usage: lora_peer.py [build folder]"""
import json
import os
import shutil
import subprocess
import sys
import tempfile

import bitsandbytes.functional as bnb
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModelForCausalLM

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else f"{ROOT}/build/release")
STEPS, BATCH, LENGTH, VOCAB = 10, 4, 32, 262
ALL = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
# name, model_type, PEFT's options, options of the converter besides rank and alpha, of the mesh
CASES = [
    ("all_linear", "llama", dict(r=4, lora_alpha=8, target_modules=ALL), {}, []),
    ("two_targets", "qwen2", dict(r=3, lora_alpha=5, target_modules=["q_proj", "v_proj"]), {"targets": ["q_proj", "v_proj"]}, []),
    ("rslora", "llama", dict(r=4, lora_alpha=6, use_rslora=True, target_modules=ALL), {"rslora": True}, []),
    ("fsdp2", "llama", dict(r=5, lora_alpha=8, target_modules=ALL), {}, ["--parallelism.data_parallel_shard_degree", "2"]),
    ("tp2", "mistral", dict(r=5, lora_alpha=8, target_modules=ALL), {}, ["--parallelism.tensor_parallel_degree", "2"]),
    ("dora", "llama", dict(r=4, lora_alpha=8, use_dora=True, target_modules=ALL), {"use_dora": True}, []),
    ("dora_tp2", "mistral", dict(r=4, lora_alpha=8, use_dora=True, target_modules=ALL), {"use_dora": True}, ["--parallelism.tensor_parallel_degree", "2"]),
    ("dora_fsdp2", "qwen2", dict(r=4, lora_alpha=8, use_dora=True, target_modules=ALL), {"use_dora": True}, ["--parallelism.data_parallel_shard_degree", "2"]),
    ("head_too", "llama", dict(r=4, lora_alpha=8, target_modules=ALL + ["lm_head"]), {"targets": ALL + ["lm_head"]}, []),
]
QLORA = [
    ("nf4", "llama", dict(r=4, lora_alpha=8, target_modules=ALL), {"base": "nf4"}, []),
    ("int8", "qwen2", dict(r=4, lora_alpha=8, target_modules=ALL), {"base": "int8"}, []),
    ("nf4_fsdp2", "mistral", dict(r=5, lora_alpha=8, target_modules=ALL), {"base": "nf4"}, ["--parallelism.data_parallel_shard_degree", "2"]),
    ("nf4_tp2", "llama", dict(r=5, lora_alpha=8, target_modules=ALL), {"base": "nf4"}, ["--parallelism.tensor_parallel_degree", "2"]),
    ("int8_tp2", "llama", dict(r=5, lora_alpha=8, target_modules=ALL), {"base": "int8"}, ["--parallelism.tensor_parallel_degree", "2"]),
]
failed = 0


def check(ok, what):
    global failed
    failed += not ok
    print(("ok    " if ok else "WRONG ") + what, flush=True)


def ttrun(*args):
    r = subprocess.run([f"{BUILD}/ttrun", *args, "--plugin-dir", f"{BUILD}/plugins"], capture_output=True, text=True, timeout=300)
    if r.returncode:
        print(r.stderr)
    return r


def losses_of(run):
    rows = [json.loads(line) for line in open(f"{run}/metrics.jsonl")]
    return [r["loss"] for r in rows if "loss" in r]


def decoded(w, how):
    """The numbers that bitsandbytes' codes of w [out, in] stand for. NF4: each row begins a block, a short last one is filled with zeros."""
    if how == "int8":
        most = w.abs().amax(1, keepdim=True)
        return torch.round(w * (127.0 / most)).to(torch.int8).float() * most * 7.874015718698502e-3
    rows = torch.nn.functional.pad(w, (0, -w.shape[1] % 64))
    q, state = bnb.quantize_4bit(rows.contiguous(), blocksize=64, quant_type="nf4")
    return bnb.dequantize_4bit(q, state).reshape(rows.shape)[:, :w.shape[1]]


def case(folder, name, kind, options, more, mesh):
    torch.manual_seed(5)
    base, how = f"{folder}/base", more.get("base")
    sizes = dict(vocab_size=VOCAB, hidden_size=48, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
                 num_key_value_heads=2, max_position_embeddings=128, tie_word_embeddings=False, bos_token_id=0, eos_token_id=1)
    m = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **sizes))
    with torch.no_grad():
        for p in m.parameters():
            p.copy_(p + 0.1 * torch.randn_like(p))
    m.save_pretrained(base)
    theirs_base = base
    if how:  # PEFT's base holds what the codes stand for
        theirs_base = f"{folder}/decoded"
        with torch.no_grad():
            for n, p in m.named_parameters():
                if n.split(".")[-2] in options["target_modules"] and n.endswith(".weight"):
                    p.copy_(decoded(p, how))
        m.save_pretrained(theirs_base)
    peft = get_peft_model(AutoModelForCausalLM.from_pretrained(theirs_base, dtype=torch.float32), LoraConfig(task_type="CAUSAL_LM", **options))
    with torch.no_grad():
        for n, p in peft.named_parameters():
            if "lora_magnitude" in n:
                p.copy_(p * (1 + 0.1 * torch.randn_like(p)))
            elif "lora_" in n:
                p.copy_(0.05 * torch.randn_like(p))
    peft.save_pretrained(f"{folder}/start")

    # tokens as a file of ids that ttrun's loader bin reads in order
    n = BATCH * (LENGTH + 1) * STEPS
    ids = torch.randint(3, VOCAB, (n + 1,), dtype=torch.int32)
    with open(f"{folder}/ids.bin", "wb") as f:
        f.write(ids.to(torch.uint16 if hasattr(torch, "uint16") else torch.int16).numpy().tobytes())
    job = {"dump_folder": f"{folder}/run", "model": {"hf": base},
           "dataloader": {"name": "bin", "path": [f"{folder}/ids.bin"], "format": "uint16", "shuffle": False},
           "converters": [{"name": "qlora" if how else "lora", "rank": options["r"], "alpha": options["lora_alpha"], **more}],
           "optimizer": {"lr": 3e-3, "weight_decay": 0.01, "beta1": 0.9, "beta2": 0.95, "eps": 1e-5}, "lr_scheduler": {"name": "constant", "warmup_steps": 0},
           "training": {"local_batch_size": BATCH, "global_batch_size": BATCH, "seq_len": LENGTH, "steps": STEPS, "max_norm": 1.0},
           "checkpoint": {"initial_load_path": f"{folder}/start", "interval": STEPS}, "metrics": {"log_freq": 1, "enable_tensorboard": False},
           "comm": {"backend": "local"}, "backend": {"threads": 1}}
    if mesh:
        job["training"]["local_batch_size"] = BATCH // 2 if "shard" in mesh[0] else BATCH
    json.dump(job, open(f"{folder}/job.json", "w"))
    r = ttrun(f"{folder}/job.json", *mesh)
    check(r.returncode == 0 and "adapters: " in r.stderr, f"{name}: ttrun trains from PEFT's adapter")
    if r.returncode:
        return
    ours = losses_of(f"{folder}/run")

    params = [p for p in peft.parameters() if p.requires_grad]
    opt = torch.optim.AdamW(params, lr=3e-3, weight_decay=0.01, betas=(0.9, 0.95), eps=1e-5)
    theirs = []
    for step in range(STEPS):
        x = torch.stack([ids[(step * BATCH + i) * LENGTH:(step * BATCH + i) * LENGTH + LENGTH + 1] for i in range(BATCH)]).long()
        logits = peft(input_ids=x[:, :-1]).logits
        loss = torch.nn.functional.cross_entropy(logits.reshape(-1, VOCAB), x[:, 1:].reshape(-1))
        opt.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(params, 1.0)
        opt.step()
        theirs.append(loss.item())
    worst = max(abs(a - b) for a, b in zip(ours, theirs)) if len(ours) == STEPS else float("inf")
    if worst > 1e-4:
        print("      by step: " + " ".join(f"{a - b:.1g}" for a, b in zip(ours, theirs)))
    check(worst <= 1e-4, f"{name}: losses of ten steps, {theirs[0]:.4f} to {theirs[-1]:.4f}: largest difference {worst:.2g}")

    r = ttrun("ckpt", "export", "--to", "hf", "--adapter", f"{folder}/run", f"{folder}/adapter")
    check(r.returncode == 0, f"{name}: the adapter is exported")
    x = ids[:64].long().reshape(2, 32)
    with torch.no_grad():
        want = peft(input_ids=x).logits
        opened = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(theirs_base, dtype=torch.float32), f"{folder}/adapter")
        a, b = load_file(f"{folder}/adapter/adapter_model.safetensors"), load_file(f"{folder}/start/adapter_model.safetensors")
        b = {k: v for k, v in b.items() if "lora_" in k}  # PEFT adds the whole head where it is a target
        check(a.keys() == b.keys() and all(a[k].shape == b[k].shape for k in a), f"{name}: PEFT's {len(b)} keys and shapes")
        got = opened(input_ids=x).logits
        check((got - want).abs().max() < 2e-3, f"{name}: PEFT opens it: logits differ by {(got - want).abs().max():.2g}")
        r = ttrun("ckpt", "export", "--to", "hf", f"{folder}/run", f"{folder}/merged")
        check(r.returncode == 0, f"{name}: the merged model is exported")
        merged = AutoModelForCausalLM.from_pretrained(f"{folder}/merged", dtype=torch.float32)(input_ids=x).logits
        check((merged - got).abs().max() < 1e-4, f"{name}: merged = adapter: logits differ by {(merged - got).abs().max():.2g}")


with tempfile.TemporaryDirectory() as top:
    for c in CASES + QLORA:
        os.mkdir(f"{top}/{c[0]}")
        case(f"{top}/{c[0]}", *c)
    if os.environ.get("KEEP"):
        shutil.copytree(top, os.environ["KEEP"])
print(f"{failed} WRONG" if failed else "all ok")
sys.exit(failed > 0)
