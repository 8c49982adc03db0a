# SPDX-License-Identifier: Apache-2.0
"""The JSON schema beside the program: what `ttrun config` accepts is valid for jsonschema, and what it refuses is not."""
import glob
import json
import os
import subprocess
import sys
import tempfile

import jsonschema

root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
ttrun = os.environ.get("TTRUN", os.path.join(root, "ttrun"))

# accepted: every spelling that the reference promises
ACCEPTED = [
    {},
    {"$schema": "x.json"},
    {"spec": "gpt2"},
    {"validation": {"enable": True, "dataloader": {"path": "x.txt"}}},
    {"validation": {"dataloader": {"name": "jsonl", "path": ["x.jsonl"], "shuffle": False}}},
    {"validator": {"freq": 3}, "profiler": {"enable_profiling": False}},
    {"training": {"max_context_length": 64, "num_tokens_per_train_step": 8192, "local_batch_size": 1}},
    {"training": {"mixed_precision_param": "bf16", "gc_freq": 50, "compile": True}},
    {"compile": {"enable": True, "components": ["model", "loss"]}},
    {"job": {"dump_folder": "x", "description": "d"}},
    {"hf_assets_path": "x"},
    {"debug": {"seed": 3, "deterministic": True}},
    {"optimizer": {"name": "AdamW", "implementation": "fused"}},
    {"optimizer": {"name": "sgd", "lr": 0.1, "momentum": 0.5}},
    {"optimizer": {"lr": 1e-3, "param_groups": [{"match": "tag:norm", "weight_decay": 0.0}]}},
    {"lr_scheduler": {"name": "cosine", "warmup_steps": 5}},
    {"lr_scheduler": {"decay_ratio": None}},
    {"parallelism": {"pipeline_parallel_layers_per_stage": None, "fsdp_reshard_after_forward": "never"}},
    {"metrics": {"sinks": [{"name": "jsonl"}], "enable_wandb": False}},
    {"comm": {"backend": "local", "trace_buf_size": 20000}},
    {"backend": {"name": "cpu", "threads": 2}},
    {"model": {"args": {"n_layers": 2, "rope_scaling": None}}},
    {"log": {"ranks": "all"}},
    {"activation_checkpoint": {"mode": "budget"}},
]
REFUSED = [
    {"trainin": {"steps": 3}},
    {"training": {"stepz": 3}},
    {"training": {"steps": "many"}},
    {"training": {"steps": -1}},
    {"training": {"dtype": "int8"}},
    {"metrics": {"enable_wandb": True}},
    {"metrics": {"sinks": [{"name": "jsonl", "pathh": 1}]}},
    {"optimizer": {"name": "adamw", "lrr": 1}},
    {"optimizer": {"implementation": "slow"}},
    {"activation_checkpoint": {"mode": "bugdet"}},
    {"float8": {"recipe_name": "rowwise"}},
    {"job": {"folder": "x"}},
    {"validation": {"dataloaders": {}}},
    {"model": {"args": {"n_layerz": 2}}},
]


def accepts(path):
    done = subprocess.run([ttrun, "config", path], capture_output=True, text=True)
    return done.returncode == 0, done.stderr.strip()


def main():
    schema = json.loads(subprocess.run([ttrun, "config", "--schema"], capture_output=True, text=True, check=True).stdout)
    jsonschema.Draft202012Validator.check_schema(schema)
    valid = jsonschema.Draft202012Validator(schema)
    faults = []
    with tempfile.TemporaryDirectory() as folder:
        text = os.path.join(folder, "x.txt")
        with open(text, "w") as f:
            f.write("a text of some words\n" * 1000)
        for want, jobs in ((True, ACCEPTED), (False, REFUSED)):
            for job in jobs:
                full = json.loads(json.dumps(job))
                full.setdefault("dataloader", {"path": "x.txt"})
                path = os.path.join(folder, "job.json")
                with open(path, "w") as f:
                    json.dump(full, f)
                took, why = accepts(path)
                ok = valid.is_valid(full)
                if took != want or ok != want:
                    faults.append(f"{json.dumps(job)}: ttrun {'takes' if took else 'refuses'} it ({why}), the schema "
                                  f"{'takes' if ok else 'refuses'} it")
    for path in sorted(glob.glob(os.path.join(root, "configs", "*.json"))):
        resolved = subprocess.run([ttrun, "config", path, "--json"], capture_output=True, text=True)
        if resolved.returncode:
            continue  # it needs data that is not here
        for error in valid.iter_errors(json.loads(resolved.stdout)):
            faults.append(f"{path}, resolved: {error.json_path}: {error.message[:200]}")
    for fault in faults:
        print("FAIL", fault)
    print(f"{len(ACCEPTED)} accepted jobs, {len(REFUSED)} refused ones: {len(faults)} disagreements")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
