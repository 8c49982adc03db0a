# SPDX-License-Identifier: Apache-2.0
"""Hugging Face folders of llama against transformers, both ways.

  ours → theirs  hf/step-N opens with LlamaForCausalLM.from_pretrained; its loss on our batch is ours
  theirs → ours  save_pretrained (f32, bf16, sharded); ttrun's loss with its weights and config.json is theirs

usage: hf_peer.py [build folder]"""
import json
import os
import subprocess
import sys
import tempfile

import torch
import transformers
from transformers import LlamaConfig, LlamaForCausalLM

BUILD = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else "build/release")
SEQ, BATCH, TOLERANCE = 32, 4, 1e-5
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 16}
SHAPES = {
    "untied": dict(dim=32, n_layers=2, n_heads=4, n_kv_heads=4, hidden_dim=48, vocab_size=262, rope_scaling=None),
    "gqa": dict(dim=32, n_layers=2, n_heads=4, n_kv_heads=2, hidden_dim=48, vocab_size=270, rope_scaling=LLAMA3),
    "tied": dict(dim=32, n_layers=3, n_heads=4, n_kv_heads=1, hidden_dim=64, vocab_size=262, tie_embeddings=True,
                 rope_theta=10000.0, rope_scaling=None),
    "wide_heads": dict(dim=32, n_layers=1, n_heads=4, n_kv_heads=2, head_dim=16, hidden_dim=40, vocab_size=262,
                       norm_eps=1e-6, rope_scaling={"rope_type": "linear", "factor": 2.0}),
}
failed = 0


def check(ok, what):
    global failed
    failed += not ok
    print(("ok    " if ok else "WRONG ") + what, flush=True)


def job(folder, args, **more):
    j = {"spec": "llama3", "model": {"flavor": "debugmodel", "args": args},
         "dataloader": {"name": "text", "path": ["text.txt"], "shuffle": False},
         "optimizer": {"lr": 0.01}, "lr_scheduler": {"name": "constant", "warmup_steps": 0},
         "training": {"local_batch_size": BATCH, "seq_len": SEQ, "steps": 3},
         "metrics": {"log_freq": 1, "enable_tensorboard": False}, "backend": {"threads": 1}}
    for key, value in more.items():
        j[key] = {**j.get(key, {}), **value}
    path = os.path.join(folder, "job.json")
    with open(path, "w") as f:
        json.dump(j, f)
    return path


def ttrun(path, dump, *options):
    r = subprocess.run([f"{BUILD}/ttrun", path, "--plugin-dir", f"{BUILD}/plugins", "--dump_folder", dump, *options],
                       capture_output=True, text=True, timeout=120)
    if r.returncode:
        raise SystemExit(f"ttrun failed: {r.stderr[-600:]}")
    with open(f"{dump}/metrics.jsonl") as f:
        return [x["loss"] for x in map(json.loads, f) if "loss" in x]


def batch(text):
    ids = torch.tensor([256, *text.encode(), 257])
    return torch.stack([ids[i * SEQ:i * SEQ + SEQ + 1] for i in range(BATCH)])


def loss_of(model, tokens):
    with torch.no_grad():
        logits = model(tokens[:, :-1]).logits.float()
    return torch.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), tokens[:, 1:].reshape(-1)).item()


def from_hf(folder, hf, dump, *options):
    """ttrun's loss on the first batch with the weights and sizes of a Hugging Face folder."""
    path = job(folder, {}, model={"flavor": "hf", "hf_assets_path": hf, "args": {}}, optimizer={"lr": 0.0},
               checkpoint={"initial_load_path": hf, "initial_load_in_hf": True, "enable": False},
               training={"local_batch_size": BATCH, "seq_len": SEQ, "steps": 1})
    return ttrun(path, dump, *options)[0]


def ours_to_theirs(folder, name, args, tokens):
    ttrun(job(folder, args, checkpoint={"last_save_in_hf": True}), f"{folder}/a")
    hf = f"{folder}/a/hf/latest"
    model, info = LlamaForCausalLM.from_pretrained(hf, dtype=torch.float32, output_loading_info=True)
    model.eval()
    lost = info["missing_keys"] or info["unexpected_keys"] or info["mismatched_keys"]
    ours, theirs = from_hf(folder, hf, f"{folder}/b"), loss_of(model, tokens)
    check(not lost, f"{name}: every tensor is taken")
    check(abs(ours - theirs) <= TOLERANCE, f"{name}: ours → theirs, loss {ours:.7f} and {theirs:.7f}")
    check(model.config.vocab_size == args["vocab_size"] and model.config.eos_token_id == 257, f"{name}: config.json")


def theirs_to_ours(folder, name, args, tokens):
    torch.manual_seed(5)
    rope = {"rope_theta": args.get("rope_theta", 500000.0), "rope_type": "default", **(args["rope_scaling"] or {})}
    c = LlamaConfig(hidden_size=args["dim"], num_hidden_layers=args["n_layers"], num_attention_heads=args["n_heads"],
                    num_key_value_heads=args["n_kv_heads"], intermediate_size=args["hidden_dim"],
                    vocab_size=args["vocab_size"], head_dim=args.get("head_dim"), max_position_embeddings=128,
                    tie_word_embeddings=args.get("tie_embeddings", False), rms_norm_eps=args.get("norm_eps", 1e-5),
                    rope_parameters=rope, initializer_range=0.2)
    model = LlamaForCausalLM(c).eval()
    for kind, size in ("f32", None), ("f32 sharded", "20KB"), ("bf16", None):
        hf = f"{folder}/{kind.replace(' ', '-')}"
        m = model.bfloat16() if kind == "bf16" else model
        m.save_pretrained(hf, **({"max_shard_size": size} if size else {}))
        if size:
            check(os.path.exists(f"{hf}/model.safetensors.index.json"), f"{name}: {kind} is")
        theirs = loss_of(LlamaForCausalLM.from_pretrained(hf, dtype=torch.float32).eval(), tokens)
        for ranks, options in ("1 rank", ()), ("tp 2", ("--nproc", "2", "--parallelism.tensor_parallel_degree", "2")):
            if args["n_kv_heads"] == 1 and ranks == "tp 2":
                continue
            ours = from_hf(folder, hf, f"{hf}-{ranks[0:2].strip()}", *options)
            check(abs(ours - theirs) <= TOLERANCE, f"{name}: {kind} → ours, {ranks}, loss {theirs:.7f} and {ours:.7f}")
    v4 = json.load(open(f"{folder}/f32/config.json"))
    v4["rope_theta"] = v4["rope_parameters"].pop("rope_theta")
    p = v4.pop("rope_parameters")
    v4["rope_scaling"] = None if p["rope_type"] == "default" else p
    v4["torch_dtype"] = v4.pop("dtype")
    json.dump(v4, open(f"{folder}/f32/config.json", "w"))
    ours = from_hf(folder, f"{folder}/f32", f"{folder}/v4")
    theirs = loss_of(LlamaForCausalLM.from_pretrained(f"{folder}/f32", dtype=torch.float32).eval(), tokens)
    check(abs(ours - theirs) <= TOLERANCE, f"{name}: config.json of version 4, loss {theirs:.7f} and {ours:.7f}")


def main():
    transformers.utils.logging.disable_progress_bar()
    text = "".join(f"line {i} of a text, {i * i} and {i * 7 % 13} times.\n" for i in range(200))
    tokens = batch(text)
    for name, args in SHAPES.items():
        with tempfile.TemporaryDirectory() as folder:
            with open(f"{folder}/text.txt", "w") as f:
                f.write(text)
            ours_to_theirs(folder, name, args, tokens)
            theirs_to_ours(folder, name, args, tokens)
    sys.exit(failed > 0)


main()
