#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes quantized.json beside itself: quantized safetensors files as hex, and what transformers (MXFP4) and torch's product of value and
   scale in f32 (float8) make of them, in f32 and bf16.
   python3 tests/golden/quantized_golden.py      (torch 2.15, transformers 5)"""
import json, os

import torch
from safetensors.torch import save
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

HERE = os.path.dirname(os.path.abspath(__file__))
g = torch.Generator().manual_seed(2)


def float8(shape, kind=torch.float8_e4m3fn):
    return (torch.randn(*shape, generator=g) * 40).to(kind)


def spread(scale, block, shape):
    """Every element's scale."""
    return scale.repeat_interleave(block[0], 0).repeat_interleave(block[1], 1)[:shape[0], :shape[1]]


def hex_of(t):
    return bytes(t.contiguous().reshape(-1).view(torch.uint8).tolist()).hex()


def want(name, f32):
    return dict(name=name, shape=list(f32.shape), f32=hex_of(f32.float()), bf16=hex_of(f32.bfloat16()))


files = []
w, s = float8((5, 7)), torch.rand(2, 3, generator=g)
files.append(dict(name="blocks of 4 x 3", config={"quantization_config": {"quant_method": "fp8", "weight_block_size": [4, 3]}},
                  file=save({"a.weight": w, "a.weight_scale_inv": s}).hex(), tensors=[want("a.weight", w.float() * spread(s, (4, 3), w.shape))]))
w, s = float8((130, 3)), torch.rand(2, 1, generator=g)
files.append(dict(name="blocks of 128 x 128", config={}, file=save({"a.weight": w, "a.weight_scale_inv": s}).hex(),
                  tensors=[want("a.weight", w.float() * spread(s, (128, 128), w.shape))]))
w, rows, one = float8((4, 6)), torch.rand(4, 1, generator=g).bfloat16(), torch.tensor(0.125)
v = float8((3,), torch.float8_e5m2)
files.append(dict(name="per row, per tensor", config={}, tensors=[want("r.weight", w.float() * rows.float()), want("t.weight", w.float() * one), want("v", v.float() * 0.125)],
                  file=save({"r.weight": w, "r.weight_scale": rows, "t.weight": w.clone(), "t.weight_scale": one, "v": v, "v_scale": one.clone()}).hex()))
blocks = torch.randint(0, 256, (2, 3, 2, 16), generator=g, dtype=torch.uint8)
scales = torch.randint(118, 134, (2, 3, 2), generator=g, dtype=torch.uint8)
files.append(dict(name="mxfp4", config={}, file=save({"e.gate_blocks": blocks, "e.gate_scales": scales}).hex(),
                  tensors=[want("e.gate", convert_moe_packed_tensors(blocks, scales, dtype=torch.bfloat16).float())]))
with open(os.path.join(HERE, "quantized.json"), "w") as f:
    json.dump(dict(torch=torch.__version__, files=files), f, indent=0)
    f.write("\n")
