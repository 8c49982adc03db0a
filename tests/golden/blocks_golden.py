#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Golden values of blocks that have no kernels of their own (tests/passes/test_blocks.c), by PyTorch's autograd in float64.

    python3 tests/golden/blocks_golden.py

Writes blocks.json beside this file: per block its inputs, parameters, logits and gradients. Needs torch. Each model is
embedding -> x + block(rms_norm(x)) -> head -> cross-entropy, summed over counted tokens, divided by the number of tokens.
"""
import json, math, os
import torch

torch.set_default_dtype(torch.float64)
T, D, V, HEADS = 14, 12, 17, 4  # two lines of 7 tokens


def rms(x, w):
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-5) * w


def rope(x, pos, interleaved=False):  # [T, heads, d]
    d = x.shape[-1]
    angle = pos[:, None] * 100.0 ** (-torch.arange(d // 2) * 2.0 / d)[None]
    cos, sin = angle.cos()[:, None], angle.sin()[:, None]
    a, b = (x[..., 0::2], x[..., 1::2]) if interleaved else (x[..., : d // 2], x[..., d // 2:])
    p, q = a * cos - b * sin, a * sin + b * cos
    return torch.stack((p, q), -1).flatten(-2) if interleaved else torch.cat((p, q), -1)


def attention(q, k, v, pos, seg, window=0, sinks=None):  # [T, heads, d] each, k and v repeated already
    see = (seg[:, None] == seg[None]) & (pos[None] <= pos[:, None])
    if window:
        see &= pos[:, None] - pos[None] < window
    s = torch.einsum("thd,shd->hts", q, k) / math.sqrt(q.shape[-1])
    s = s.masked_fill(~see[None], -math.inf)
    if sinks is not None:
        s = torch.cat((s, sinks[:, None, None].expand(-1, s.shape[1], 1)), -1)
    p = s.softmax(-1)[..., : k.shape[0]]
    return torch.einsum("hts,shd->thd", p, v)


# ---- blocks: shapes of the parameters, and the function ----
NOPE, ROT, RANK, DV = 4, 2, 6, 3


def mla(p, x, pos, seg):
    """DeepSeek-V2, arXiv:2405.04434: keys and values from a latent of RANK; one rotated key for all heads."""
    q = (x @ p["wq"].T).view(T, HEADS, NOPE + ROT)
    q = torch.cat((q[..., :NOPE], rope(q[..., NOPE:], pos, True)), -1)
    a = x @ p["wkv_a"].T
    kv = (rms(a[:, :RANK], p["kv_norm"]) @ p["wkv_b"].T).view(T, HEADS, NOPE + DV)
    k_rot = rope(a[:, None, RANK:], pos, True).expand(T, HEADS, ROT)
    k = torch.cat((kv[..., :NOPE], k_rot), -1)
    return attention(q, k, kv[..., NOPE:], pos, seg).reshape(T, HEADS * DV) @ p["wo"].T


MLA = {"wq": (HEADS * (NOPE + ROT), D), "wkv_a": (RANK + ROT, D), "kv_norm": (RANK,), "wkv_b": (HEADS * (NOPE + DV), RANK),
       "wo": (D, HEADS * DV)}
EXPERTS, FFN = 5, 6


def moe(p, x, pos, seg):
    """Top 2 of EXPERTS, weights renormalised over the two."""
    w, index = (x @ p["gate"].T).softmax(-1).topk(2, -1)
    w = w / w.sum(-1, keepdim=True)
    rows = []
    for t in range(T):
        y = 0
        for j in range(2):
            e = index[t, j]
            h = torch.nn.functional.silu(p["w1"][e] @ x[t]) * (p["w3"][e] @ x[t])
            y = y + w[t, j] * (p["w2"][e] @ h)
        rows.append(y)
    return torch.stack(rows)


MOE = {"gate": (EXPERTS, D), "w1": (EXPERTS, FFN, D), "w3": (EXPERTS, FFN, D), "w2": (EXPERTS, D, FFN)}
HD, KV = 4, 2


def window(p, x, pos, seg):
    """Grouped queries, a window of 3 tokens, learned sinks."""
    q = rope((x @ p["wq"].T).view(T, HEADS, HD), pos)
    k = rope((x @ p["wk"].T).view(T, KV, HD), pos).repeat_interleave(HEADS // KV, 1)
    v = (x @ p["wv"].T).view(T, KV, HD).repeat_interleave(HEADS // KV, 1)
    return attention(q, k, v, pos, seg, 3, p["sinks"]).reshape(T, HEADS * HD) @ p["wo"].T


WINDOW = {"wq": (HEADS * HD, D), "wk": (KV * HD, D), "wv": (KV * HD, D), "sinks": (HEADS,), "wo": (D, HEADS * HD)}


def lora(p, x, pos, seg):
    """Hu et al. 2021, arXiv:2106.09685: W frozen, rank 3, alpha / r = 2."""
    return x @ p["w"].T + 2.0 * (x @ p["lora_a"].T) @ p["lora_b"].T


LORA = {"w": (D, D), "lora_a": (3, D), "lora_b": (D, 3)}


def run(name, fn, shapes, frozen=()):
    g = torch.Generator().manual_seed(len(name))
    shapes = {"embed": (V, D), "norm": (D,), **shapes, "head": (V, D)}
    p = {}
    for k, s in shapes.items():
        v = torch.randn(s, generator=g) * 0.5 + (1 if k.endswith("norm") else 0)
        p[k] = torch.tensor([float(f"{e:.5g}") for e in v.flatten()]).view(s).requires_grad_(k not in frozen)
    ids = torch.randint(0, V, (T,), generator=g)
    labels = torch.randint(0, V, (T,), generator=g)
    labels[3] = -100
    pos = torch.tensor([0, 1, 2, 3, 4, 0, 1, 0, 1, 0, 1, 2, 3, 4])
    seg = torch.tensor([0] * 5 + [1] * 2 + [2] * 2 + [3] * 5)
    x = p["embed"][ids]
    x = x + fn(p, rms(x, p["norm"]), pos, seg)
    logits = x @ p["head"].T
    loss = torch.nn.functional.cross_entropy(logits, labels, reduction="sum", ignore_index=-100)
    (loss / T).backward()
    flat = lambda v: [float(f"{e:.12g}") for e in v.detach().flatten().tolist()]
    ints = {"ids": ids, "labels": labels, "pos": pos, "seg": seg}
    return {"name": name, "inputs": {k: v.tolist() for k, v in ints.items()},
            "params": {k: {"shape": list(v.shape), "value": flat(v), **({"grad": flat(v.grad)} if v.grad is not None else {})}
                       for k, v in p.items()},
            "logits": flat(logits), "loss": loss.item()}


def main():
    blocks = [run("mla", mla, MLA), run("moe", moe, MOE), run("window", window, WINDOW), run("lora", lora, LORA, ("w",))]
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "blocks.json")
    with open(path, "w") as f:
        f.write("[\n" + ",\n".join(json.dumps(b, separators=(",", ":")) for b in blocks) + "\n]\n")
    print(path, os.path.getsize(path), "bytes")


if __name__ == "__main__":
    main()
