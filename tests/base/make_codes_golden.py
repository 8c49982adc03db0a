#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/base/codes_golden.def: rows of f32 as bits, and the codes and scales that bitsandbytes makes of them on the CPU.

Needs torch and bitsandbytes (pip install bitsandbytes). A row is quantized by itself, so that its blocks begin with it. bitsandbytes'
functions are also compared with the definitions written out here, on 2^22 random numbers and on every mean of two levels (ties).

  python3 tests/base/make_codes_golden.py > tests/base/codes_golden.def
"""
import sys

import bitsandbytes.functional as F
import torch


def nf4(row):
    """Codes (two per byte, whole blocks) and absmax of one row by bitsandbytes; its short last block is filled with zeros."""
    padded = torch.cat([row, torch.zeros(-len(row) % 64)])
    q, s = F.quantize_4bit(padded, blocksize=64, quant_type="nf4")
    return q.reshape(-1), s.absmax


def int8(row):
    """The definition of LLM.int8, as torch ops; bitsandbytes' own function takes f16 alone on some backends."""
    most = row.abs().max()
    q = torch.round(row * (127.0 / most)).nan_to_num(0).to(torch.int8)
    return q.view(torch.uint8), most.reshape(1)

def bits(t):
    return ", ".join(f"0x{v & 0xffffffff:08x}" for v in t.float().view(torch.int32).tolist())


def main():
    g = torch.Generator().manual_seed(7)
    q, s = F.quantize_4bit(torch.cat([torch.ones(1), torch.zeros(63)]), blocksize=64, quant_type="nf4")
    code = s.code
    means = (code[1:] + code[:-1]) / 2
    x = torch.randn(1 << 22, generator=g)
    q, _ = F.quantize_4bit(x, blocksize=64, quant_type="nf4")
    q = q.reshape(-1)
    got = torch.stack([q >> 4, q & 15], 1).reshape(-1).long()
    blocks = x.reshape(-1, 64)
    scaled = (blocks * (1.0 / blocks.abs().amax(1, keepdim=True))).reshape(-1)
    want = torch.bucketize(scaled, means)
    print(f"nf4 of 2^22 numbers: {(got != want).sum().item()} codes differ from the nearest level", file=sys.stderr)
    assert (got == want).all()
    h = torch.randn(64, 4096, generator=g).half()
    theirs, stats, _ = F.int8_vectorwise_quant(h.clone())
    ours = torch.stack([int8(r.float())[0] for r in h]).view(torch.int8)
    print(f"int8 of 2^18 numbers: {(theirs != ours).sum().item()} codes differ from bitsandbytes' of f16", file=sys.stderr)

    ties = torch.zeros(128)
    ties[0], ties[64] = 1, -4
    ties[1:16] = means
    ties[17:32] = -means
    ties[65:80] = means * 4
    ties[80:95] = torch.nextafter(means, torch.tensor(2.0)) * 4
    rows = [torch.randn(96, generator=g), ties, torch.zeros(70), torch.randn(65, generator=g) * 1e-20,
            torch.tensor([0.5, -0.25, 0.125]), (torch.arange(130) - 64) / 127.0, torch.randn(1, generator=g),
            torch.cat([torch.randn(30, generator=g) * 1e30, torch.full((5,), -0.0)])]
    out = ["/* SPDX-License-Identifier: Apache-2.0 */", "/* clang-format off */",
           "/* Made by make_codes_golden.py: format, columns, the row, codes, absmax, the numbers that the codes stand for. */"]
    for row in rows:
        q, s = nf4(row)
        n = torch.stack([q >> 4, q & 15], 1).reshape(-1).long()
        value = (code[n].reshape(-1, 64) * s.reshape(-1, 1)).reshape(-1)[:len(row)]
        out.append(f"GOLDEN(NF4, {len(row)}, A({bits(row)}), A({', '.join(map(str, q.tolist()))}), A({bits(s)}), A({bits(value)}))")
        q, s = int8(row)
        value = q.view(torch.int8).float() * s * 7.874015718698502e-3
        out.append(f"GOLDEN(INT8, {len(row)}, A({bits(row)}), A({', '.join(map(str, q.tolist()))}), A({bits(s)}), A({bits(value)}))")
    print("\n".join(out))


main()
