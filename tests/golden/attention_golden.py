#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes attention.json beside itself: attention with a bias by distance, values and gradients by PyTorch's
   scaled_dot_product_attention with attn_mask (f64, CPU); prefix-LM and cross attention; the tables of ALiBi and T5.
   python3 tests/golden/attention_golden.py      (torch)"""
import json, math, os
import torch
import torch.nn.functional as F

torch.manual_seed(0)
flat = lambda t: [float(f"{v:.17g}") for v in t.detach().reshape(-1).tolist()]


def slopes(n):  # Press et al.: github.com/ofirpress/attention_with_linear_biases
    def of_power(n):
        start = 2 ** (-2 ** -(math.log2(n) - 3))
        return [start * start ** i for i in range(n)]
    if math.log2(n).is_integer(): return of_power(n)
    closest = 2 ** math.floor(math.log2(n))
    return of_power(closest) + slopes(2 * closest)[0::2][:n - closest]


def alibi(heads, n, bidirectional=0):
    distance = torch.arange(n) - (n // 2 if bidirectional else 0)
    return -torch.tensor(slopes(heads), dtype=torch.float64)[:, None] * distance.abs()


def t5_bucket(relative_position, bidirectional, num_buckets, max_distance):  # transformers' T5Attention; key - query
    relative_buckets = 0
    if bidirectional:
        num_buckets //= 2
        relative_buckets += (relative_position > 0).to(torch.long) * num_buckets
        relative_position = torch.abs(relative_position)
    else:
        relative_position = -torch.min(relative_position, torch.zeros_like(relative_position))
    max_exact = num_buckets // 2
    is_small = relative_position < max_exact
    relative_position_if_large = max_exact + (
        torch.log(relative_position.float() / max_exact) / math.log(max_distance / max_exact) * (num_buckets - max_exact)
    ).to(torch.long)
    relative_position_if_large = torch.min(
        relative_position_if_large, torch.full_like(relative_position_if_large, num_buckets - 1))
    return relative_buckets + torch.where(is_small, relative_position, relative_position_if_large)


def t5_table(n, bidirectional, buckets, far):
    return t5_bucket((n // 2 if bidirectional else 0) - torch.arange(n), bidirectional, buckets, far)


def attention(name, H, K, hd, dv, bias, window=0, softcap=0.0, scale=0.0, bidirectional=0, sinks=None):
    r = lambda *s: (torch.rand(*s, dtype=torch.float64) * 4 - 2).requires_grad_()
    pos, seg = torch.tensor([0, 1, 2, 3, 0, 1, 2]), torch.tensor([0, 0, 0, 0, 1, 1, 1])
    T, n = len(pos), bias.shape[1]
    q, k, v, bias = r(T, H * hd), r(T, K * hd), r(T, K * dv), bias.clone().requires_grad_()
    heads = lambda x, d, times: x.view(T, -1, d).repeat_interleave(times, 1).transpose(0, 1)[None]
    Q, Kt, V = heads(q, hd, 1), heads(k, hd, H // K), heads(v, dv, H // K)
    back = pos[:, None] - pos[None]
    ok = seg[:, None] == seg[None]
    if not bidirectional: ok &= back >= 0
    if window: ok &= back < window
    at = (back + (n // 2 if bidirectional else 0)).clamp(0, n - 1)
    mask = bias[:, at].masked_fill(~ok[None], -math.inf)[None]
    if sinks is not None:  # a key of zeros, whose score is the sink and whose value is 0
        Kt, V = (torch.cat([x, torch.zeros_like(x[:, :, :1])], 2) for x in (Kt, V))
        mask = torch.cat([mask, sinks.view(1, H, 1, 1).expand(1, H, T, 1)], 3)
    scale = scale or 1 / math.sqrt(hd)
    s = Q @ Kt.transpose(-1, -2) * scale
    if softcap:
        assert sinks is None
        s = softcap * torch.tanh(s / softcap) + mask
        out = s.softmax(-1) @ V
    else:
        s = s + mask
        out = F.scaled_dot_product_attention(Q, Kt, V, attn_mask=mask, scale=scale)
    out = out[0].transpose(0, 1).reshape(T, H * dv)
    dout = torch.rand_like(out) * 2 - 1
    out.backward(dout)
    return dict(name=name, tokens=T, heads=H, kv_heads=K, head_dim=hd, v_head_dim=dv, window=window, softcap=softcap, scale=scale,
                bidirectional=bidirectional, distances=n, pos=pos.tolist(), seg=seg.tolist(), q=flat(q), k=flat(k), v=flat(v),
                sinks=flat(sinks) if sinks is not None else None, bias=flat(bias), dout=flat(dout), out=flat(out),
                lse=flat(s[0].logsumexp(-1).T), grads=[flat(t.grad) for t in (q, k, v, bias)])


def masked(name, keys, sees, **more):  # 10 queries at the positions of tests/ops/eval.h, 4 heads of 3, 2 kv heads
    r = lambda *s: torch.rand(*s, dtype=torch.float64) * 4 - 2
    q, k, v = r(10, 12), r(keys, 6), r(keys, 6)
    heads = lambda x, times: x.view(len(x), -1, 3).repeat_interleave(times, 1).transpose(0, 1)[None]
    out = F.scaled_dot_product_attention(heads(q, 1), heads(k, 2), heads(v, 2), attn_mask=sees[None, None])
    return dict(name=name, keys=keys, q=flat(q), k=flat(k), v=flat(v), out=flat(out[0].transpose(0, 1)), **more)


def prefix_and_cross():
    pos, seg = torch.tensor([0, 1, 2, 0, 1, 0, 1, 0, 1, 2]), torch.tensor([0, 0, 0, 1, 1, 2, 2, 3, 3, 3])
    prefix = torch.tensor([2, 0, 2, 9])[seg]
    one = seg[:, None] == seg[None]
    sees = one & ((pos[None] <= pos[:, None]) | (pos[None] < prefix[:, None]))
    pos_k, seg_k = torch.tensor([0, 1, 0, 0, 1, 2]), torch.tensor([0, 0, 1, 2, 2, 3])
    return [masked("prefix", 10, sees, prefix=prefix.tolist()),
            masked("cross", 6, seg[:, None] == seg_k[None], pos_k=pos_k.tolist(), seg_k=seg_k.tolist(), bidirectional=1),
            masked("cross, causal", 6, (seg[:, None] == seg_k[None]) & (pos_k[None] <= pos[:, None]), pos_k=pos_k.tolist(),
                   seg_k=seg_k.tolist(), bidirectional=0)]


def main():
    learned = lambda n, bidirectional, buckets, far, heads: torch.randn(buckets, heads, dtype=torch.float64)[
        t5_table(n, bidirectional, buckets, far)].T
    cases = [attention("alibi", 4, 4, 4, 4, alibi(4, 7)),
             attention("alibi of six grouped heads", 6, 2, 4, 4, alibi(6, 7)),
             attention("alibi, bidirectional", 2, 1, 4, 6, alibi(2, 13, 1), bidirectional=1),
             attention("t5", 4, 4, 4, 4, learned(7, 0, 4, 6, 4), scale=1.0),
             attention("t5 grouped, bidirectional", 4, 2, 4, 4, learned(13, 1, 8, 6, 4), scale=1.0, bidirectional=1),
             attention("fewer distances than positions", 4, 2, 4, 4, torch.randn(4, 2, dtype=torch.float64)),
             attention("few distances, bidirectional", 2, 2, 4, 4, torch.randn(2, 4, dtype=torch.float64), bidirectional=1),
             attention("window", 4, 2, 4, 4, torch.randn(4, 5, dtype=torch.float64), window=3),
             attention("softcap", 4, 2, 4, 4, torch.randn(4, 5, dtype=torch.float64), softcap=1.5),
             attention("sinks", 4, 2, 4, 4, torch.randn(4, 7, dtype=torch.float64), window=3, sinks=torch.randn(4, dtype=torch.float64))]
    tables = [dict(heads=h, distances=9, bidirectional=b, values=flat(alibi(h, 9, b))) for h, b in
              [(1, 0), (2, 0), (6, 0), (8, 0), (12, 1), (16, 0), (20, 1)]]
    buckets = [dict(distances=n, bidirectional=b, buckets=k, max_distance=far, values=t5_table(n, b, k, far).tolist())
               for n, b, k, far in [(300, 0, 32, 128), (599, 1, 32, 128), (50, 0, 8, 20), (40, 1, 10, 7), (9, 0, 2, 2)]]
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "attention.json"), "w") as f:
        f.write('{"masked": [\n' + ",\n".join(map(json.dumps, prefix_and_cross())) + '],\n"bias": [\n' + ",\n".join(map(json.dumps, cases)) + '],\n"alibi": [\n' + ",\n".join(map(json.dumps, tables))
                + '],\n"t5": [\n' + ",\n".join(map(json.dumps, buckets)) + "]}\n")


if __name__ == "__main__":
    main()
