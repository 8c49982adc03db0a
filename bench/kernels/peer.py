# SPDX-License-Identifier: Apache-2.0
"""PyTorch's times for the kernels on stdin, lines of "op shape …" as kernels.c prints them: "op shape ms".

    kernels … | python peer.py THREADS

Best of nine calls, as there. Backwards are the derivatives alone; where PyTorch fuses more or less than the op (rms_norm_bwd
gives dx and dw, as here), the op is left out."""
import sys
import time

import torch
import torch.nn.functional as F


def grads(out, wanted, dout):
    return lambda: torch.autograd.grad(out, wanted, dout, retain_graph=True)


def rope(x, cos, sin):
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


def make(op, dims):
    r = torch.randn
    if op.startswith("linear"):
        m, k, n = dims
        x, w, y = r(m, k), r(n, k), r(m, n)
        return {"linear": lambda: F.linear(x, w), "linear_dx": lambda: y @ w, "linear_dw": lambda: y.t() @ x}[op]
    if op.startswith("attention"):
        b, h, kv, t, d = dims
        q, k, v = r(b, h, t, d, requires_grad=True), r(b, kv, t, d, requires_grad=True), r(b, kv, t, d, requires_grad=True)
        go = lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=h != kv)
        return go if op == "attention" else grads(go(), (q, k, v), r(b, h, t, d))
    t, d = dims
    x, y, w, b = r(t, d, requires_grad=op.endswith("_bwd")), r(t, d), r(d, requires_grad=True), r(d, requires_grad=True)
    labels = torch.zeros(t, dtype=torch.long)
    if op == "rope":
        angle = torch.arange(t)[:, None] * 10000.0 ** (-torch.arange(0, 64, 2) / 64)[None]
        cos, sin, x = angle.cos()[:, None], angle.sin()[:, None], x.view(t, d // 64, 64)
    return {
        "add": lambda: x + y,
        "silu": lambda: F.silu(x),
        "silu_bwd": lambda: grads(F.silu(x), (x,), y),
        "gelu_tanh": lambda: F.gelu(x, approximate="tanh"),
        "rms_norm": lambda: F.rms_norm(x, (d,), w, 1e-5),
        "rms_norm_bwd": lambda: grads(F.rms_norm(x, (d,), w, 1e-5), (x, w), y),
        "layer_norm": lambda: F.layer_norm(x, (d,), w, b, 1e-5),
        "layer_norm_bwd": lambda: grads(F.layer_norm(x, (d,), w, b, 1e-5), (x, w, b), y),
        "softmax": lambda: F.softmax(x, -1),
        "cross_entropy": lambda: F.cross_entropy(x, labels, reduction="none"),
        "cross_entropy_bwd": lambda: grads(F.cross_entropy(x, labels, reduction="none"), (x,), y[:, 0]),
        "rope": lambda: rope(x, cos, sin),
        "sum_squares": lambda: (x * x).sum(),
    }[op]


def best(go):
    go()
    times, start = [], time.perf_counter()
    while len(times) < 9 and (len(times) < 3 or time.perf_counter() - start < 1):
        begin = time.perf_counter()
        go()
        times.append(time.perf_counter() - begin)
    return min(times)


def main():
    torch.set_num_threads(int(sys.argv[1]))
    for line in sys.stdin:
        words = line.split()
        if not words or words[0] == "#":
            continue
        op, shape = words[:2]
        dims = [int(n) for part in shape.split("x") for n in part.split("/")]
        go = make(op, dims)
        if op in ("silu_bwd", "rms_norm_bwd", "layer_norm_bwd", "cross_entropy_bwd"):
            go = go()  # the forward is made once; what is timed is its derivative
        with torch.set_grad_enabled(op.endswith("_bwd")):
            print(op, shape, f"{1e3 * best(go):.4f}", flush=True)


main()
