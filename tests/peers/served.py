# SPDX-License-Identifier: Apache-2.0
"""Small models with a tokenizer of their own, as Hugging Face folders, and `ttrun serve` of them."""
import json
import os
import subprocess
import sys
import time

DOCS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "docs")


def trained(build, folder, spec="llama3", ends=False):
    """Trains on two of our own pages; the model is folder/run/hf/latest. ends: each line is a document, so that the model learns to end texts."""
    ttrun = [f"{build}/ttrun", "--plugin-dir", f"{build}/plugins", "-q"]
    pages = [f"{DOCS}/glossary.md", f"{DOCS}/tour.md"]
    subprocess.run([ttrun[0], "tokenizer", "train", "-q", "--data", *pages, "--vocab-size", "1200", "--eos", "<|im_end|>",
                    "--special", "<|im_start|>", "--out", f"{folder}/tokenizer"], check=True)
    with open(f"{folder}/lines.jsonl", "w") as f:
        f.writelines(json.dumps({"text": line.strip()}) + "\n" for page in pages for line in open(page, encoding="utf-8") if len(line) > 60)
    data = {"name": "jsonl", "path": [f"{folder}/lines.jsonl"]} if ends else {"name": "text", "path": pages}
    job = {"spec": spec, "model": {"args": {"dim": 128, "n_layers": 3, "n_heads": 4, "n_kv_heads": 2, "hidden_dim": 344, "vocab_size": 1200}},
           "tokenizer": {"name": "hf", "path": f"{folder}/tokenizer"}, "dataloader": data,
           "optimizer": {"lr": 4e-3}, "lr_scheduler": {"warmup_steps": 20}, "training": {"local_batch_size": 8, "seq_len": 128, "steps": 150}, "checkpoint": {"last_save_in_hf": True},
           "dump_folder": f"{folder}/run"}
    json.dump(job, open(f"{folder}/job.json", "w"))
    subprocess.run([*ttrun, f"{folder}/job.json"], check=True)


def serve(build, folder, *options):
    """The process, and its address."""
    log = open(f"{folder}/log", "w+")
    p = subprocess.Popen([f"{build}/ttrun", "serve", "--plugin-dir", f"{build}/plugins", "--checkpoint", f"{folder}/run/hf/latest", "--port", "0",
                          "--context", "512", "--name", "ours", "--template", "chatml", *options], stderr=log)
    for _ in range(100):
        time.sleep(0.1)
        text = open(f"{folder}/log").read()
        if " at http" in text:
            return p, text.split(" at ")[1].split("/v1")[0]
    sys.exit(f"ttrun serve does not start: {text}")
