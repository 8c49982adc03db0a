#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes array.json beside itself: results of PyTorch (f64 and i32, CPU) for erf, sin, cos, floor division, remainders, indices, order and shapes.
   python3 tests/golden/array_golden.py      (torch)
Numbers that JSON lacks are strings: "nan", "inf", "-inf", "-0"."""
import json, math, os
import torch
import torch.nn.functional as F

torch.manual_seed(0)
nan, inf = math.nan, math.inf


def number(v):
    if isinstance(v, int): return v
    return str(v) if math.isnan(v) or math.isinf(v) else "-0" if v == 0 and math.copysign(1, v) < 0 else float(f"{v:.17g}")


def flat(t):
    t = t.reshape(-1)
    return [number(v) for v in (t.double() if t.is_floating_point() else t.int()).tolist()]


cases = []


def case(name, x, *ys, y=None, **args):
    cases.append(dict(name=name, shape=list(x.shape), x=flat(x), **({} if y is None else {"y": flat(y)}), want=[flat(v) for v in ys],
                      ints=int(not x.is_floating_point()), **args))


def pairs(values, dtype):
    v = torch.tensor(values, dtype=dtype)
    return v.repeat_interleave(len(v)), v.repeat(len(v))


def main():
    f64 = torch.float64
    points = torch.tensor([0.0, -0.0, 1e-300, 1e-9, 0.3, -0.7, 0.999, 1.0, 1.5, -2.5, 3.7, 5.9, -6.1, 10.0, 100.0, -1e3, 123456.789, 1e8, -1e15, 1e22,
                           inf, -inf, nan], dtype=f64)
    for fn in ("erf", "sin", "cos"):
        case(fn, points, getattr(torch, fn)(points))
    a, b = pairs([0.0, -0.0, 1.0, -1.0, 0.1, -0.1, 0.7, 2.0, -2.5, 7.0, -7.5, 1e-20, 1e10, -1e16, inf, -inf, nan], f64)
    case("floor_div", a, torch.div(a, b, rounding_mode="floor"), y=b)
    case("mod", a, torch.remainder(a, b), y=b)
    a, b = pairs([1, -1, 2, -2, 3, -3, 7, -7, 10, 1000003, 2**31 - 1, -2**31 + 1], torch.int32)
    case("floor_div", a, torch.div(a, b, rounding_mode="floor"), y=b)
    case("mod", a, torch.remainder(a, b), y=b)
    x = torch.randint(-3, 4, (3, 5, 4), dtype=f64) / 2  # many ties
    holes = x.clone()
    holes[0, 2], holes[1, 1, 3], holes[1, 4, 3] = nan, nan, nan
    for v in (x, holes, torch.tensor([[inf, nan, -inf, nan], [-inf] * 4, [inf, 1, inf, 0]], dtype=f64)):
        for dim in range(v.dim()):
            for keep in (0, 1):
                case("argmax", v, torch.argmax(v, dim, bool(keep)), dim=dim, keep=keep)
                case("argmin", v, torch.argmin(v, dim, bool(keep)), dim=dim, keep=keep)
    for v in (x, holes):
        s, i = torch.sort(v, dim=-1, stable=True)
        case("sort", v, s, i, descending=0)
    wide = torch.randint(-40, 40, (3, 200), dtype=f64)
    for v, d in ((x, 1), (wide, 0), (wide, 1)):
        s, i = torch.sort(v, dim=-1, descending=bool(d), stable=True)
        case("sort", v, s, i, descending=d)
    r = torch.rand(2, 3, 4, dtype=f64)
    case("pad", r, F.pad(r, (0, 0, 2, 1), value=-1.5), dim=1, before=2, after=1, value=-1.5)
    case("pad", r, F.pad(r, (1, 0), value=0.25), dim=-1, before=1, after=0, value=0.25)
    case("pad", r, r, dim=0, before=0, after=0, value=9.0)
    for dim, shift in ((0, 1), (1, -1), (2, 7), (-1, -9), (1, 0), (1, 3)):
        case("roll", r, torch.roll(r, shift, dim), dim=dim, n=shift)
    for dim, n in ((0, 2), (1, 3), (-1, 1)):
        case("repeat", r, r.repeat(*[n if d == dim % 3 else 1 for d in range(3)]), dim=dim, n=n)
        case("repeat_interleave", r, r.repeat_interleave(n, dim), dim=dim, n=n)
    idx = torch.tensor([[0, 4, 2], [3, 3, 1]], dtype=torch.int32)
    case("one_hot", idx, F.one_hot(idx.long(), 5).double(), n=5)
    case("iota", r, torch.arange(4, dtype=f64).expand(2, 3, 4), dim=2)
    case("iota", r, torch.arange(2, dtype=f64)[:, None, None].expand(2, 3, 4), dim=0)
    case("cast", torch.tensor([0.0, -0.9, 0.9, 1.5, -1.5, 2.5, 1e9, -1e9, 2147483646.7, -2147483647.9], dtype=f64), torch.tensor(
        [0.0, -0.9, 0.9, 1.5, -1.5, 2.5, 1e9, -1e9, 2147483646.7, -2147483647.9], dtype=f64).int())
    out = os.path.join(os.path.dirname(os.path.abspath(__file__)), "array.json")
    with open(out, "w") as f:
        f.write("[\n" + ",\n".join(map(json.dumps, cases)) + "\n]\n")


if __name__ == "__main__":
    main()
