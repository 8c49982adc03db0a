#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes quantized.json beside itself: quantized safetensors files as hex, and what transformers (MXFP4) and torch's product of value and
   scale in f32 (float8) make of them, in f32 and bf16; of NVFP4 compressed-tensors.
   python3 tests/golden/quantized_golden.py      (torch 2.15, transformers 5, compressed-tensors 0.20)"""
import json, os

import torch
from compressed_tensors.compressors.nvfp4 import NVFP4PackedCompressor
from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
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
packed = torch.randint(0, 256, (5, 24), generator=g, dtype=torch.uint8)
scales, whole = (torch.rand(5, 3, generator=g) * 440 + 2**-6).to(torch.float8_e4m3fn), torch.tensor([2688 / 0.7])
state = {"weight_packed": packed, "weight_scale": scales.float(), "weight_global_scale": whole}
scheme = QuantizationScheme(targets=["Linear"], weights=QuantizationArgs(num_bits=4, type="float", strategy="tensor_group", group_size=16, symmetric=True))
scale = scales.float() / whole
values = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])
codes = torch.stack((packed & 15, packed >> 4), 2).flatten(1).long()
number = values[codes & 7] * torch.where(codes > 7, -1.0, 1.0) * scale.repeat_interleave(16, 1)
theirs = NVFP4PackedCompressor.decompress(dict(state), scheme)["weight"]
assert theirs.dtype == torch.bfloat16 and torch.equal(theirs, number.bfloat16())
files.append(dict(name="nvfp4", config={}, tensors=[want("l.weight", number)],
                  file=save({"l.weight_packed": packed, "l.weight_scale": scales, "l.weight_global_scale": whole}).hex()))
with open(os.path.join(HERE, "quantized.json"), "w") as f:
    json.dump(dict(torch=torch.__version__, files=files), f, indent=0)
    f.write("\n")
