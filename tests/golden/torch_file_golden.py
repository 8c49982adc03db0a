#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes torch_file.json beside itself: files of torch.save as hex, and the bytes of their tensors in order.
   python3 tests/golden/torch_file_golden.py      (torch 2.15)"""
import io, json, os
from collections import OrderedDict

import torch

torch.manual_seed(0)
g = torch.arange(24.0).reshape(4, 6)
NAMES = {torch.float32: "F32", torch.bfloat16: "BF16", torch.float16: "F16", torch.float64: "F64", torch.int64: "I64", torch.int32: "I32",
         torch.int16: "I16", torch.int8: "I8", torch.uint8: "U8", torch.bool: "BOOL", torch.uint16: "U16", torch.float8_e4m3fn: "F8_E4M3",
         torch.complex64: "C64"}


def saved(x, **more):
    f = io.BytesIO()
    torch.save(x, f, **more)
    return f.getvalue().hex()


def hex_of(t):
    t = t.detach().contiguous()
    return bytes(t.reshape(-1).view(torch.uint8).tolist()).hex() if t.numel() else ""


def case(name, tensors, **more):
    return dict(name=name, file=saved(tensors, **more),
                tensors=[dict(name=k, dtype=NAMES[v.dtype], shape=list(v.shape), hex=hex_of(v)) for k, v in tensors.items()])


class Runs:
    def __reduce__(self):
        return print, ("the pickle was run",)


dtypes = OrderedDict((f"{d}"[6:], torch.tensor([1, 0, 1]).to(d)) for d in NAMES)
dtypes._metadata = OrderedDict({"": {"version": 1}})
views = {"transposed": g.t(), "view": g[1:3, 2:5], "whole": g, "tied": g, "scalar": torch.tensor(3.5), "empty": torch.zeros(0, 3),
         "parameter": torch.nn.Parameter(torch.ones(2, 3)), "column": g[:, 1:2], "expanded": torch.tensor([1.0, 2.0]).expand(3, 2),
         "steps": g[::2, ::3], "three": g.reshape(2, 2, 6).permute(2, 0, 1)}
refused = {"collections of others": saved({"a": {"b": g}}), "a module": saved(torch.nn.Linear(2, 2)), "a list": saved([g]),
           "a call": saved({"x": Runs()}), "before 1.6": saved({"g": g}, _use_new_zipfile_serialization=False)}
out = dict(torch=torch.__version__, files=[case("dtypes", dtypes), case("views", views), case("protocol 4", views, pickle_protocol=4)],
           refused=[dict(name=k, file=v) for k, v in refused.items()])
with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "torch_file.json"), "w") as f:
    json.dump(out, f, indent=0)
    f.write("\n")
