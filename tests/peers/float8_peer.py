# SPDX-License-Identifier: Apache-2.0
"""Products of the low-precision converters against torch._scaled_mm and torchao's numbers.

  one scale per tensor or row   torch._scaled_mm of the numbers that torch casts, within f32 rounding
  one scale per block           the sum of the dequantized numbers in f64, within f32 rounding
  three roles each, sizes that divide by 16 (torch._scaled_mm wants that) and sizes that do not

usage: float8_peer.py [build folder]"""
import os
import subprocess
import sys
import tempfile

import numpy as np
import torch

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, f"{ROOT}/tests/ops")
import make_quantize_golden as golden  # noqa: E402

BUILD = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else f"{ROOT}/build/release")
FORMAT = {"E4M3": 0, "E5M2": 1, "E2M1": 2}
RULE = {"F32": 0, "POW2": 1, "MX_FLOOR": 2, "MX_RCEIL": 3, "NV": 4}
RECIPES = [("tensorwise", "E4M3", "F32", 0, 0, 0), ("rowwise", "E4M3", "POW2", 0, 1, 1),
           ("mxfp8", "E4M3", "MX_RCEIL", 32, 1, 1), ("mxfp8 floor", "E4M3", "MX_FLOOR", 32, 1, 1),
           ("blockwise", "E4M3", "F32", 128, 1, 128), ("nvfp4", "E2M1", "NV", 16, 1, 16)]


def build():
    out = os.path.join(tempfile.mkdtemp(prefix="product_tool."), "product_tool")
    libs = ("jansson", "ltdl", "zstd", "z", "pcre2-8", "utf8proc", "cmocka", "m", "dl", "pthread")
    subprocess.run(["gcc", "-std=c11", "-D_GNU_SOURCE", "-O1", "-rdynamic", *(f"-I{ROOT}/{d}" for d in ("include", "core", "lib", "tools", ".")), f"-I{ROOT}/tests",
                    "-o", out, f"{ROOT}/tests/peers/product_tool.c", f"{BUILD}/libttrun_core.a", *(f"-l{x}" for x in libs)], check=True)
    return out


def along(role, side):  # the dim of the sum
    return 0 if role == 2 or (role == 1 and side == 1) else 1


def ours(tool, recipe, role, a, b):
    _, fmt, rule, length, across_a, across_b = recipe
    args = [FORMAT[fmt], RULE[rule], length, across_a, across_b, role, *a.shape, *b.shape]
    p = subprocess.run([tool, *map(str, args)], input=a.numpy().tobytes() + b.numpy().tobytes(), capture_output=True, check=True,
                       env=dict(os.environ, PLUGINS=f"{BUILD}/plugins"))
    return torch.from_numpy(np.frombuffer(p.stdout, np.float32).copy())


def theirs(recipe, role, a, b):
    """The product in f64, the sum of the absolute values of its terms, which rounding is relative to, and
    torch._scaled_mm's product or None."""
    _, fmt, rule, length, across_a, across_b = recipe
    q = []
    for side, (x, across) in enumerate(((a, across_a), (b, across_b))):
        blocks = (length, across) if along(role, side) == 0 else (across, length)
        n, s = golden.quantize(x, fmt, rule, *blocks)
        wide = s
        for d in range(2):
            wide = wide.repeat_interleave(blocks[d] or x.shape[d], d)[: x.shape[0] if d == 0 else None]
        wide = wide[:, : x.shape[1]]
        if along(role, side) == 0:
            n, s, wide = n.t(), s.t(), wide.t()
        q.append((n.contiguous(), s.contiguous(), n.double() * wide.double()))
    (qa, sa, da), (qb, sb, db) = q
    size = da.abs() @ db.abs().t()
    exact = da @ db.t()
    if length or qa.shape[1] % 16 or qb.shape[0] % 16:
        return exact, size, None
    sa, sb = sa.reshape(-1).clone(), sb.reshape(-1).clone()
    sa, sb = (sa[0], sb[0]) if sa.numel() == 1 and sb.numel() == 1 else (sa.view(-1, 1), sb.view(1, -1))
    y = torch._scaled_mm(qa, qb.t(), scale_a=sa, scale_b=sb, out_dtype=torch.float32)
    return exact, size, y.double()


def main():
    tool = build()
    torch.manual_seed(1)
    failed = 0
    for tokens, n_in, n_out in ((96, 64, 160), (45, 37, 50)):
        shapes = {0: ((tokens, n_in), (n_out, n_in)), 1: ((tokens, n_out), (n_out, n_in)), 2: ((tokens, n_out), (tokens, n_in))}
        for recipe in RECIPES:
            for role in range(3):
                a, b = (torch.randn(s) * torch.exp(torch.randn(s)) for s in shapes[role])
                want, size, scaled_mm = theirs(recipe, role, a, b)
                y = ours(tool, recipe, role, a, b).double().view_as(want)
                worst = ((y - want).abs() / size).max().item()
                good = worst <= 2**-22
                said = f"from f64 {worst:.2g}"
                if scaled_mm is not None:
                    apart = ((y - scaled_mm).abs() / size).max().item()
                    good = good and apart <= 2**-20
                    said += f", from torch._scaled_mm {apart:.2g}, and that from f64 {((scaled_mm - want).abs() / size).max().item():.2g}"
                failed += not good
                print(f"{'ok' if good else 'not ok'} {recipe[0]} role {role} {tokens}x{n_in}x{n_out}: {said}", flush=True)
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
