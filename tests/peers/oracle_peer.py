# SPDX-License-Identifier: Apache-2.0
"""ttrun beside a PyTorch Llama in float64 (bf16 jobs: in bf16), live: the jobs of tests/golden/oracle.py and random shapes, on both backends.

  oracle_peer.py [--ttrun ./ttrun] [--seed 0] [--random 4] [--only WORD]

One-step jobs: the loss and every element of every gradient, in units of the tolerance. Ten-step jobs: losses, norms, rates,
and, to see how far AdamW carries rounding, the parameter that moved furthest from PyTorch's, in units of the learning rate."""
import argparse
import os
import random
import sys
import tempfile

import torch

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests", "golden"))
import oracle
import checks
from checks import check


def random_job(rng):
    kv = rng.randint(1, 3)
    hd = 2 * rng.randint(1, 12)
    args = {"dim": rng.randint(8, 120), "n_layers": rng.randint(1, 4), "n_heads": kv * rng.randint(1, 4), "n_kv_heads": kv,
            "head_dim": hd, "hidden_dim": rng.randint(3, 250), "vocab_size": rng.randint(262, 900), "norm_eps": 1e-5,
            "rope_theta": rng.choice([100.0, 10000.0, 500000.0]), "tie_embeddings": rng.random() < 0.5,
            "rope_scaling": rng.choice([None, oracle.LLAMA3])}
    return oracle.job(args, oracle.GRADIENT, seq=rng.randint(2, 70), local=rng.randint(1, 4), accumulate=rng.randint(1, 3),
                      documents=rng.random() < 0.5)


def one_step_bf16(what, gradients, steps, lines, tensors):
    """Under one policy, each rounded to bf16 where it likes: the limits of tests/oracle/test_precision.c."""
    far, name = max(((tensors[f"optimizer.state.{n}.momentum_buffer"] - g).norm().item() / g.norm().item(), n)
                    for n, g in gradients.items())
    loss = abs(lines[0]["loss"] - steps[0]["loss"])
    check(far <= 0.02 and loss <= 1e-3, f"{what}: gradients within {far:.4f} of their size ({name}), loss {loss:.1e}")


def one_step(what, j, gradients, steps, lines, tensors):
    worst, name = oracle.deviation({n: tensors[f"optimizer.state.{n}.momentum_buffer"] for n in gradients}, gradients)
    loss = abs(lines[0]["loss"] - steps[0]["loss"])
    check(worst <= 1 and loss <= 1e-5, f"{what}: gradients {worst:.3f} of the tolerance ({name}), loss {loss:.1e}")


def many_steps(what, j, steps, final, lines, tensors, losses=1e-4, norms=1e-4):
    loss = max(abs(a["loss"] - b["loss"]) for a, b in zip(lines, steps))
    norm = max(abs(a["grad_norm"] / b["grad_norm"] - 1) for a, b in zip(lines, steps))
    rate = max(abs(a["lr"] - b["lr"]) for a, b in zip(lines, steps))
    far, name = max(((tensors[n].double() - p).abs().max().item() / j["optimizer"]["lr"], n) for n, p in final.items())
    check(len(lines) == len(steps) and loss <= losses and norm <= norms and rate <= 1e-14,
          f"{what}: loss {loss:.1e}, norm {norm:.1e}; furthest parameter {name}, {far:.4f} of lr")


def compare(name, j, ttrun):
    init = oracle.initial_values(ttrun, j)
    args = j["model"]["args"]
    if not j["dataloader"]["document_mask"] and args["dim"] % args["n_heads"] == 0: # theirs knows no other
        check(True, f"{name}: transformers' logits differ by {oracle.check_with_transformers(init, j):.1e} from ours in PyTorch")
    half = "mixed_precision_param" in j["training"]
    steps, gradients, final = oracle.train(init, j, torch.float32 if half else torch.float64)
    for backend in ("reference", "cpu"):
        with tempfile.TemporaryDirectory() as d:
            lines, tensors = oracle.run_ttrun(ttrun, j, backend, d)
        what = f"{name}, {backend}"
        if half and len(steps) == 1:
            one_step_bf16(what, gradients, steps, lines, tensors)
        elif half:
            many_steps(what, j, steps, final, lines, tensors, 5e-3, 1e-2)
        elif len(steps) == 1:
            one_step(what, j, gradients, steps, lines, tensors)
        else:
            many_steps(what, j, steps, final, lines, tensors)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--ttrun", default=os.path.join(ROOT, "ttrun"))
    ap.add_argument("--seed", type=int, default=0)
    ap.add_argument("--random", type=int, default=4)
    ap.add_argument("--only", default="")
    o = ap.parse_args()
    rng = random.Random(o.seed)
    jobs = {**oracle.CASES, **{f"random {o.seed}.{i}": random_job(rng) for i in range(o.random)}}
    for name, j in jobs.items():
        if o.only in name:
            compare(name, j, o.ttrun)
    print(f"torch {torch.__version__}: {checks.failed} wrong")
    return 1 if checks.failed else 0


if __name__ == "__main__":
    sys.exit(main())
