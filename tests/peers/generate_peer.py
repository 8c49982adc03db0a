# SPDX-License-Identifier: Apache-2.0
"""ttrun generate against transformers' generate, float32, eager: 64 greedy tokens after prompts of 1, 2, 17 and 31 ids,
which make a ragged batch on both sides, for every model of generate_golden.py, whose weights these are: from the folder
that save_pretrained writes, and from the native checkpoint that a step at rate 0 makes of that folder.

usage: generate_peer.py [build folder [model...]]"""
import json
import os
import subprocess
import sys
import tempfile

import torch
import transformers

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "golden"))
import generate_golden as golden  # noqa: E402
import oracle  # noqa: E402
import checks
from checks import check

BUILD = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else "build/release")


def ttrun_generate(checkpoint, prompts, folder, *options):
    path = os.path.join(folder, "prompts.jsonl")
    with open(path, "w") as f:
        f.writelines(json.dumps({"ids": p}) + "\n" for p in prompts)
    r = subprocess.run([f"{BUILD}/ttrun", "generate", "--plugin-dir", f"{BUILD}/plugins", "--checkpoint", checkpoint, "--prompts",
                        path, "--temperature", "0", "--max-tokens", str(golden.NEW), "--json", *options],
                       capture_output=True, text=True, timeout=300)
    if r.returncode:
        return r.stderr.strip()
    return [json.loads(line)["ids"] for line in r.stdout.splitlines()]


def ended(ids):
    """The byte tokenizer's end of text ends one."""
    return ids[:ids.index(oracle.EOS)] if oracle.EOS in ids else ids


def main():
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(1)
    with open(golden.PATH) as f:
        seeds = {m["spec"]: m["seed"] for m in json.load(f)["models"]}
    prompts = golden.prompts()
    for spec, seed in seeds.items():
        if len(sys.argv) > 2 and spec not in sys.argv[2:]:
            continue
        with tempfile.TemporaryDirectory() as folder:
            m = golden.model_of(spec, golden.lively(golden.initial_values(f"{BUILD}/ttrun", golden.job(spec, seed))))
            want, nearest = golden.generate_all(spec, m)
            m.save_pretrained(f"{folder}/hf")
            for options in ("--batch", "4"), ("--batch", "1"), ("--batch", "3", "--backend.blas", "own"):
                ours = ttrun_generate(f"{folder}/hf", prompts, folder, *options)
                check(ours == want, f"{spec}: Hugging Face's folder, {' '.join(options)}, nearest call {nearest:.1e}"
                      + (f": {ours}" if isinstance(ours, str) else ""))
            j = golden.job(spec, seed, checkpoint={"interval": 1, "initial_load_path": f"{folder}/hf", "initial_load_in_hf": True})
            if spec in ("deepseek_v3", "glm4_moe"):  # the balancing bias changes by the loads, whatever the rate
                j["model"]["args"]["bias_update_rate"] = 0
            oracle.run_ttrun(f"{BUILD}/ttrun", j, "cpu", folder)
            ours = ttrun_generate(f"{folder}/checkpoint/step-1", prompts, folder)
            check(ours == [ended(t) for t in want], f"{spec}: native checkpoint"
                  + (f": {ours}" if isinstance(ours, str) else ""))
    sys.exit(checks.failed > 0)


if __name__ == "__main__":
    main()
