# SPDX-License-Identifier: Apache-2.0
"""Writes tests/golden/schedules.json: factors on the learning rate by transformers' and PyTorch's schedules, for
tests/plugins/test_schedules.c. Needs torch and transformers: python tests/golden/schedules_golden.py"""
import json, math, os, warnings
import torch
from torch.optim.lr_scheduler import CosineAnnealingWarmRestarts
from transformers import optimization as hf

warnings.filterwarnings("ignore")


def factors(make, steps):
    p = torch.nn.Parameter(torch.zeros(1))
    o = torch.optim.SGD([p], lr=1.0)
    s = make(o)
    out = []
    for _ in range(steps):
        out.append(o.param_groups[0]["lr"])
        o.step()
        s.step()
    return out


cases = []


def case(name, steps, total, options, make):
    cases.append({"name": name, "total": total, "options": options, "factors": factors(make, steps)})


for warm, total in ((0, 7), (3, 10), (5, 29), (40, 101)):
    w = {"warmup_steps": warm, "warmup_from_zero": True}
    case("inverse_sqrt", total + 3, total, w, lambda o: hf.get_inverse_sqrt_schedule(o, warm))
    case("inverse_sqrt", total + 3, total, {**w, "timescale": 17}, lambda o: hf.get_inverse_sqrt_schedule(o, warm, timescale=17))
    for power, end in ((1.0, 0.0), (2.0, 0.1), (0.5, 0.25)):
        case("polynomial", total + 3, total, {**w, "power": power, "min_lr_factor": end},
             lambda o: hf.get_polynomial_decay_schedule_with_warmup(o, warm, total, lr_end=end, power=power))
    for cycles in (1, 3):
        case("cosine_restarts", total + 3, total, {**w, "cycles": cycles},
             lambda o: hf.get_cosine_with_hard_restarts_schedule_with_warmup(o, warm, total, cycles))
for first, factor, end in ((5, 1, 0.0), (4, 2, 0.1), (3, 3, 0.0), (1, 2, 0.0)):
    case("cosine_restarts", 130, 130, {"warmup_steps": 0, "first_cycle_steps": first, "cycle_factor": factor, "min_lr_factor": end},
         lambda o: CosineAnnealingWarmRestarts(o, first, factor, eta_min=end))
with open(os.path.join(os.path.dirname(__file__), "schedules.json"), "w") as f:
    f.write("{\"cases\":[\n" + ",\n".join(json.dumps(c, separators=(",", ":")) for c in cases) + "\n]}\n")
print(len(cases), "cases")
