#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes scan.json beside itself: values and gradients of scan, conv1d over segments and cumsum by PyTorch's autograd (f64, CPU).
   python3 tests/golden/scan_golden.py      (torch)"""
import json, os
import torch
import torch.nn.functional as F

torch.manual_seed(1)
torch.set_default_dtype(torch.float64)
flat = lambda t: [float(f"{v:.17g}") for v in t.detach().reshape(-1).tolist()]
rand = lambda *s: torch.rand(*s) * 2 - 1

SEG = [4, 4, 4, 7, 7, 7, 7, 2, 5]
POS = [0, 1, 2, 0, 1, 2, 3, 0, 0]  # four documents
INSIDE = [3, 4, 5, 0, 1, 3, 4, 0, 7]  # the first and the last begin inside; position 2 of the second is missing


def follows(seg, pos, t):
    return t > 0 and seg[t - 1] == seg[t] and pos[t - 1] == pos[t] - 1


def scan(x, a, seg, pos):
    h = []
    for t in range(len(x)):
        h.append(x[t] + a[t] * h[-1] if follows(seg, pos, t) else x[t])
    return torch.stack(h)


def conv1d(x, w, seg, pos):
    y, begin = [], 0
    for t in range(1, len(x) + 1):
        if t == len(x) or not follows(seg, pos, t):
            part, taps = x[begin:t], w.shape[1]
            y.append(F.conv1d(part.T[None], w[:, None], padding=taps - 1, groups=x.shape[1])[0, :, :t - begin].T)
            begin = t
    return torch.cat(y)


def case(op, fn, x, other, **attrs):
    leaves = [t.clone().requires_grad_() for t in (x, other) if t is not None]
    y = fn(*leaves)
    dy = rand(*y.shape)
    y.backward(dy)
    return dict(op=op, shapes=[list(t.shape) for t in leaves], inputs=[flat(t) for t in leaves], y=flat(y), dy=flat(dy),
                grads=[flat(t.grad) for t in leaves], **attrs)


def tokens(op, fn, shape, other, pos, one_decay=False):
    """one_decay: the kernel gets the first row of the decay alone; its gradient still has a row for each token"""
    b = rand(*other)
    if one_decay:
        b = b[:1].expand(9, *other[1:]).clone()
    return case(op, lambda x, a: fn(x, a, SEG, pos), rand(9, *shape), b, seg=SEG, pos=pos, one_decay=one_decay)


def main():
    cases = [tokens("scan", scan, (5,), (9, 5), POS), tokens("scan", scan, (5,), (9, 5), INSIDE),
             tokens("scan", scan, (3, 2), (9, 3, 1), POS), tokens("scan", scan, (2, 3, 7), (9, 2, 1, 1), INSIDE),
             tokens("scan", scan, (2, 3, 2), (9, 2, 1, 1), POS, True),
             tokens("conv1d", conv1d, (4,), (4, 3), POS), tokens("conv1d", conv1d, (4,), (4, 1), POS),
             tokens("conv1d", conv1d, (4,), (4, 5), INSIDE)]
    for dim in (0, 1, 2):
        for reverse in (0, 1):
            for exclusive in (0, 1):
                def cumsum(x):
                    s = x.flip(dim) if reverse else x
                    s = s.cumsum(dim) - (s if exclusive else 0)
                    return s.flip(dim) if reverse else s
                cases.append(case("cumsum", cumsum, rand(3, 18, 2), None, dim=dim, reverse=reverse, exclusive=exclusive))
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "scan.json"), "w") as f:
        f.write("[\n" + ",\n".join(map(json.dumps, cases)) + "]\n")


if __name__ == "__main__":
    main()
