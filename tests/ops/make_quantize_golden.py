#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/ops/quantize_golden.def: hashes of quantized numbers and scales.

Needs torch and torchao (pip install torchao). The rules are written out below with torch's float8
dtypes and compared with torchao's functions on every bf16 number and on 2^24 f32 numbers; the lines
printed say how many scales differ and why. Then the hashes are of the rules as written here.

  python3 tests/ops/make_quantize_golden.py > tests/ops/quantize_golden.def
"""
import sys

import numpy as np
import torch
from torchao.float8.float8_utils import amax_to_scale, to_fp8_saturated
from torchao.prototype.mx_formats.mx_tensor import ScaleCalculationMode, to_mx
from torchao.prototype.mx_formats.nvfp4_tensor import nvfp4_quantize, per_tensor_amax_to_scale

N = 1 << 24
FORMATS = {"E4M3": (torch.float8_e4m3fn, 448.0, 8), "E5M2": (torch.float8_e5m2, 57344.0, 15),
           "E2M1": (torch.float8_e4m3fn, 6.0, 2)}
E2M1 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])
np.seterr(all="ignore")


def mix(i):
    h = i.astype(np.uint32) * np.uint32(0x9E3779B1)
    h = (h ^ h >> np.uint32(15)) * np.uint32(0x85EBCA77)
    h = (h ^ h >> np.uint32(13)) * np.uint32(0xC2B2AE3D)
    return h ^ h >> np.uint32(16)


def numbers(kind, n):
    """wide: exponents of all sizes, near each other in runs of 2048; narrow: 2^-15 to 2^11;
    near: those of float8, 2^-26 to 2^17; bf16: all of them."""
    i = np.arange(n, dtype=np.uint32)
    if kind == "BF16":
        bits = i << np.uint32(16)
    elif kind == "BF16_NARROW":  # the same with 32 exponents
        bits = (i << np.uint32(16)) & np.uint32(0x8fff0000) | np.uint32(0x38000000)
    else:
        h, base = mix(i), mix(np.uint32(0x10000000) + (i >> np.uint32(11)))
        base = (base % np.uint32(255) if kind == "WIDE" else
                np.uint32(126) + base % np.uint32(12) if kind == "NARROW" else
                np.uint32(114) + base % np.uint32(31))
        down = (h >> np.uint32(23) & np.uint32(255)) % np.uint32(14)
        e = np.maximum(base, down) - down
        bits = (h & np.uint32(0x807fffff)) | e << np.uint32(23)
    return torch.from_numpy(bits.view(np.float32).copy())


def floor_pow2(x):
    """The largest power of 2 not above x >= 0, by frexp in f64, which is exact."""
    m, e = np.frexp(x.double().numpy())
    y = torch.from_numpy(np.where(m == 0, 0, np.ldexp(0.5, e)))
    return torch.where(torch.isfinite(x), y, x.double()).float()


def scales(rule, fmt, amax):
    dtype, largest, exp = FORMATS[fmt]
    one = torch.tensor(1.0)
    if rule in ("F32", "POW2"):
        m = (largest / amax.double().clamp(min=1e-12)).float()
        m = torch.where(amax.isnan(), amax, m)
        m = floor_pow2(m) if rule == "POW2" else m
        return one / m, m
    if rule == "MX_FLOOR":
        p = torch.where(amax.isinf(), torch.tensor(2.0 ** (128 - exp)), floor_pow2(amax) * 2.0**-exp)
        p = torch.where(p.isnan(), p, p.clamp(min=2.0**-126))
        return p, one / p
    if rule == "MX_RCEIL":
        d = amax * torch.tensor(np.float32(1) / np.float32(largest))
        p = floor_pow2(d)
        p = torch.where(p < d, p * 2, p)
        p = torch.where(p.isnan(), p, p.clamp(min=2.0**-126, max=2.0**127))
        return p, torch.where(d <= 2.0**-127, one, one / p)
    whole = amax.max() / torch.tensor(448.0 * largest)
    s = ((amax / torch.tensor(largest)) / whole).clamp(2.0**-6, 448.0).to(torch.float8_e4m3fn).float()
    return s * whole, (one / whole) / s


def round_e2m1(y):
    """To nearest, ties to the even code, by comparing with the midpoints."""
    a, code = y.abs(), torch.zeros_like(y, dtype=torch.long)
    for k in range(7):
        middle = (E2M1[k] + E2M1[k + 1]) / 2
        code += (a > middle) | ((a == middle) & (k % 2 == 1))
    return torch.where(y.isnan(), y, torch.copysign(E2M1[code], y))


def blocks(n, size):
    return 1 if size == 0 else -(-n // size)


def quantize(x, fmt, rule, rows, cols):
    dtype, largest, _ = FORMATS[fmt]
    r, c = x.shape
    br, bc = rows or r, cols or c
    nr, nc = blocks(r, rows), blocks(c, cols)
    p = torch.zeros(nr * br, nc * bc)
    p[:r, :c] = x
    p = p.view(nr, br, nc, bc)
    amax = p.abs().amax(dim=(1, 3), keepdim=True)
    s, times = scales(rule, fmt, amax)
    y = (p * times).view(nr * br, nc * bc)[:r, :c]
    y = round_e2m1(y) if fmt == "E2M1" else y.clamp(-largest, largest)
    return y.to(dtype), s.view(nr, nc)


def total(v):
    """Σ (v[i] + 1) (i · golden ratio | 1) modulo 2^64"""
    i = np.arange(v.size, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15) | np.uint64(1)
    return int(((v.astype(np.uint64) + np.uint64(1)) * i).sum(dtype=np.uint64))


def q_bytes(q, fmt):
    v = q.contiguous().view(torch.uint8).numpy().reshape(-1).copy()
    v[q.float().isnan().numpy().reshape(-1)] = 0x7f
    if fmt == "E2M1":
        v[v == 0x80] = 0
    return v


def s_bits(s):
    v = s.contiguous().numpy().reshape(-1).view(np.uint32).copy()
    v[s.isnan().numpy().reshape(-1)] = 0x7fc00000
    return v


# ---- torchao's own ----

def say(*what):
    print(*what, file=sys.stderr, flush=True)


def compare_with_torchao():
    for kind, n in (("BF16", 1 << 16), ("WIDE", N)):
        x = numbers(kind, n)
        amax = x.abs()
        for fmt in ("E4M3", "E5M2"):
            dtype = FORMATS[fmt][0]
            for rule in ("F32", "POW2"):
                theirs = amax_to_scale(amax, dtype, rule == "POW2")
                ours = scales(rule, fmt, amax)[1]
                q = to_fp8_saturated(x * ours, dtype)
                mine = quantize(x.view(-1, 1), fmt, rule, 1, 0)[0].view(-1)
                say(kind, fmt, rule, "scales that differ:", int((s_bits(theirs) != s_bits(ours)).sum()),
                    "numbers:", int((q_bytes(q, fmt) != q_bytes(mine, fmt)).sum()))
        for mode in (ScaleCalculationMode.FLOOR, ScaleCalculationMode.RCEIL):
            v = x.view(-1, 32)
            fine = v.isfinite().all(1)  # torchao has 255 as the scale of a NaN
            s, q = to_mx(v, torch.float8_e4m3fn, 32, mode)
            e = s.view(torch.uint8).view(-1)
            ours, scale = quantize(v, "E4M3", "MX_" + mode.name, 1, 32)
            mine = torch.from_numpy(np.ldexp(1.0, e.numpy().astype(int) - 127)).float()
            mine = mine.clamp(min=2.0**-126)
            say(kind, "E4M3", "MX_" + mode.name, "scales that differ:",
                int((mine != scale.view(-1))[fine].sum()), "numbers:",
                int((q.view(torch.uint8) != ours.view(torch.uint8))[fine].sum()))
    for kind, n in (("BF16_NARROW", 1 << 16), ("NARROW", N)):
        v = numbers(kind, n).view(-1, 16)
        pts = per_tensor_amax_to_scale(v.abs().max())
        s, q = nvfp4_quantize(v, 16, pts)
        codes = torch.stack((q & 15, q >> 4), -1).view(-1).long()
        theirs = torch.where(codes > 7, -E2M1[codes & 7], E2M1[codes & 7])
        ours, scale = quantize(v, "E2M1", "NV", 1, 16)
        say(kind, "E2M1 NV", "scales that differ:", int((s.float().view(-1) * pts != scale.view(-1)).sum()),
            "numbers:", int((theirs != ours.float().view(-1)).sum()))


CASES = [(data, fmt, rule, c, 1, bc)
         for data in ("BF16", "WIDE")
         for fmt, rule, c, bc in (("E4M3", "F32", 1, 0), ("E5M2", "F32", 1, 0), ("E4M3", "POW2", 1, 0),
                                  ("E4M3", "MX_FLOOR", 1, 1), ("E4M3", "MX_RCEIL", 1, 1),
                                  ("E5M2", "MX_FLOOR", 1, 1), ("E2M1", "MX_RCEIL", 1, 1),
                                  ("E4M3", "MX_FLOOR", 32, 32), ("E4M3", "MX_RCEIL", 32, 32),
                                  ("E4M3", "F32", 128, 128))]
WHOLE = [("BF16_NARROW", "E2M1", "NV", 64, 1, 16), ("NARROW", "E2M1", "NV", 1024, 1, 16),
         ("NARROW", "E2M1", "NV", 1024, 16, 16), ("NARROW", "E4M3", "F32", 1024, 0, 0),
         ("NARROW", "E5M2", "F32", 1024, 0, 0), ("NARROW", "E4M3", "POW2", 1024, 0, 1),
         ("NARROW", "E4M3", "F32", 1024, 128, 128), ("NARROW", "E4M3", "MX_RCEIL", 1000, 32, 1),
         ("NARROW", "E4M3", "F32", 777, 128, 128), ("NARROW", "E2M1", "NV", 777, 16, 16)]


def main():
    compare_with_torchao()
    print("/* SPDX-License-Identifier: Apache-2.0 */\n/* clang-format off */\n"
          "/* Made by make_quantize_golden.py: numbers, rows, columns, format, rule, block, hashes of q and scale. */")
    for data, fmt, rule, c, br, bc in CASES + WHOLE:
        n = 1 << 16 if data.startswith("BF16") else N if data == "WIDE" else 512 * 1024
        r = n // c
        x = numbers(data, n)[: r * c].view(r, c)
        q, s = quantize(x, fmt, rule, br, bc)
        print(f"GOLDEN({data}, {r}, {c}, {fmt}, {rule}, {br}, {bc}, 0x{total(q_bytes(q, fmt)):016x}, "
              f"0x{total(s_bits(s)):016x})")
    for fmt in ("E4M3", "E5M2"):
        dtype, largest, _ = FORMATS[fmt]
        for data, n in (("BF16", 1 << 16), ("NEAR", N)):
            x = numbers(data, n)
            q = x.clamp(-largest, largest).to(dtype)
            print(f"CAST({data}, {n}, F8{fmt}, 0x{total(q_bytes(q, fmt)):016x})")
        back = torch.arange(256, dtype=torch.uint8).view(dtype).float()
        print(f"BACK(F8{fmt}, 0x{total(s_bits(back)):016x})")


if __name__ == "__main__":
    main()
