# SPDX-License-Identifier: Apache-2.0
"""Ten steps of AdamW of mixtures of experts beside transformers in float32, live: the jobs of tests/golden/models_golden.py, on both backends.

  models_peer.py [--ttrun ./ttrun] [--only WORD]

Losses, norms and rates of each step; and, to see how far AdamW carries rounding, the parameter that moved furthest from transformers', in
units of the learning rate."""
import argparse
import os
import sys
import tempfile

import torch

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests", "golden"))
import models_golden
import oracle
import checks
from checks import check


def compare(name, j, ttrun):
    init = {n: x for n, x in oracle.initial_values(ttrun, j).items() if not n.endswith(models_golden.BUFFER)}
    steps, final = models_golden.train(init, j, torch.float32)
    for backend in ("reference", "cpu"):
        with tempfile.TemporaryDirectory() as d:
            lines, tensors = oracle.run_ttrun(ttrun, j, backend, d)
        loss = max(abs(a["loss"] - b["loss"]) for a, b in zip(lines, steps))
        norm = max(abs(a["grad_norm"] / b["grad_norm"] - 1) for a, b in zip(lines, steps))
        rate = max(abs(a["lr"] - b["lr"]) for a, b in zip(lines, steps))
        more = max((abs(a["losses"][n] - v) for a, b in zip(lines, steps) for n, v in b.get("losses", {}).items()), default=0.0)
        far, where = max(((tensors[n] - p).abs().max().item() / j["optimizer"]["lr"], n) for n, p in final.items())
        check(len(lines) == len(steps) and max(loss, norm, more) <= 1e-4 and rate <= 1e-14,
              f"{name}, {backend}: loss {loss:.1e}, further losses {more:.1e}, norm {norm:.1e}; furthest parameter {where}, {far:.4f} of lr")


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--ttrun", default=os.path.join(ROOT, "ttrun"))
    ap.add_argument("--only", default="")
    o = ap.parse_args()
    for name, j in models_golden.TEN.items():
        if o.only in name:
            compare(name, j, o.ttrun)
    print(f"transformers {models_golden.transformers.__version__}, torch {torch.__version__}: {checks.failed} wrong")
    return 1 if checks.failed else 0


if __name__ == "__main__":
    sys.exit(main())
