#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/ops/delayed_golden.def: scales of delayed scaling, step by step.

Needs torch. The two functions are TransformerEngine's formulas, written out with torch in f32
(transformer_engine/pytorch/quantization.py: _default_get_amax_and_update_history and
_default_sf_compute, margin 0): the history's first entry is the running step's maximum.

  python3 tests/ops/make_delayed_golden.py > tests/ops/delayed_golden.def
"""
import torch

inf, nan = float("inf"), float("nan")
AMAX = [0.0, 0.5, 2.0, 0.25, 0.25, 3.0e-41, inf, 1.0, nan, 0.125, 0.3, 448.0, 0.1, 0.1, 0.1, 0.1,
        1e-38, 3.4e38, 0.7, 0.0, 0.0, 0.0, 0.0, 1.7]


def update(history, algo):
    amax = torch.max(history, dim=0).values if algo == "max" else history[0].clone()
    if history.shape[0] > 1:
        history = torch.roll(history, -1, 0)
    history[0] = 0.0
    return history, amax


def scale_of(amax, scale, fp8_max):
    sf = fp8_max / amax
    sf = torch.where(amax > 0.0, sf, scale)
    sf = torch.where(torch.isfinite(amax), sf, scale)
    return torch.where(torch.isinf(sf), torch.full_like(sf, torch.finfo(amax.dtype).max), sf)


print("/* SPDX-License-Identifier: Apache-2.0")
print(" * Made by make_delayed_golden.py: LENGTH, MOST_RECENT, LARGEST, bits of the maxima and scales */")
for length in (1, 2, 3, 16):
    for algo in ("max", "most_recent"):
        for largest in (448.0, 57344.0):
            history, scale = torch.zeros(length, 1), torch.ones(1)
            print(f"DELAYED({length}, {int(algo != 'max')}, {largest}", end="")
            for a in AMAX:
                history[0] = a
                bits_in = history[0].view(torch.int32).item() & 0xffffffff
                history, amax = update(history, algo)
                scale = scale_of(amax, scale, torch.tensor(largest))
                bits = scale.view(torch.int32).item() & 0xffffffff
                print(f",\n        {{0x{bits_in:08x}u, 0x{bits:08x}u}}", end="")
            print(")")
