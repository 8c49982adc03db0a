#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Read a run's tb/ with TensorBoard's own EventAccumulator and compare it with metrics.jsonl.

usage: tensorboard_peer.py [RUN_DIR]      needs the packages tensorboard and numpy; ends 1 on a difference
Without RUN_DIR: a run of five steps of ./ttrun on its own sources, of a model with experts in two of its three layers.
"""
import json
import os
import subprocess
import sys
import tempfile

import numpy as np
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

TAGS = {
    "loss": ("loss_metrics/global_avg_loss", 1),
    "loss_max": ("loss_metrics/global_max_loss", 1),
    "grad_norm": ("grad_norm", 1),
    "lr": ("lr", 1),
    "n_tokens_seen": ("n_tokens_seen", 1),
    "tps": ("throughput(tps)", 1),
    "tflops": ("tflops", 1),
    "mfu": ("mfu(%)", 100),
    "mem_gib": ("memory/max_active(GiB)", 1),
    "time_s": ("time_metrics/end_to_end(s)", 1),
    "time/data": ("time_metrics/data_loading(s)", 1),
    "time/optimizer": ("time_metrics/optimizer(s)", 1),
    "validation/loss": ("validation_metrics/loss", 1),
}


def flat(line):
    for key, value in line.items():
        if isinstance(value, dict):
            for inner, x in value.items():
                yield f"{key}/{inner}", x
        else:
            yield key, value


def main(run):
    events = EventAccumulator(f"{run}/tb", size_guidance={"scalars": 0})
    events.Reload()
    have = {tag: {e.step: e.value for e in events.Scalars(tag)} for tag in events.Tags()["scalars"]}
    want = {}
    for line in map(json.loads, open(f"{run}/metrics.jsonl")):
        for key, x in flat(line):
            if (key in TAGS or key.startswith("experts/")) and x is not None:
                tag, factor = TAGS.get(key, (key, 1))
                want.setdefault(tag, {})[line["step"]] = float(np.float32(x * factor))
    bad = 0
    for tag, points in want.items():
        got = have.get(tag, {})
        if got.keys() != points.keys() or any(not np.isclose(got[s], x, rtol=1e-6) for s, x in points.items()):
            print(f"{tag}: TensorBoard has {got}, metrics.jsonl has {points}")
            bad += 1
    print(f"{len(want)} tags compared, {bad} differ")
    layers = {tag.split("/")[1] for tag in want if tag.count("/") == 2}
    print(f"experts of {sorted(layers)}")
    return 1 if bad or not want else 0


def own_run():
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    with tempfile.TemporaryDirectory() as run:
        job = {"dump_folder": run, "spec": "qwen3_moe",
               "model": {"args": {"dim": 32, "n_layers": 3, "n_heads": 2, "n_kv_heads": 2, "head_dim": 16, "vocab_size": 262, "num_experts": 6,
                                  "num_experts_per_tok": 2, "moe_intermediate_size": 16, "mlp_only_layers": [1]}},
               "dataloader": {"path": [os.path.join(root, "core", "train", "*.c")]}, "checkpoint": {"enable": False},
               "training": {"steps": 5, "seq_len": 64, "local_batch_size": 2}, "metrics": {"log_freq": 1},
               "validation": {"enable": True, "freq": 2, "steps": 1,
                              "dataloader": {"path": [os.path.join(root, "core", "data", "*.c")]}}}
        with open(f"{run}/job.json", "w") as f:
            json.dump(job, f)
        subprocess.run([f"{root}/ttrun", "-q", "--plugin-dir", f"{root}/plugins", f"{run}/job.json"], check=True)
        bad = main(run)
        experts = [json.loads(line).get("experts", {}) for line in open(f"{run}/metrics.jsonl")]
        if not any("layers.2/entropy" in e for e in experts) or any("layers.1/entropy" in e for e in experts):
            print(f"metrics.jsonl: the layers with experts are 0 and 2, not those of {experts[:1]}")
            return 1
        return bad


if __name__ == "__main__":
    sys.exit(own_run() if len(sys.argv) == 1 else main(sys.argv[1]) if len(sys.argv) == 2 else __doc__)
