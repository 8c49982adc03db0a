#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes ops.json beside itself: values and gradients of ops by PyTorch (f64, CPU) and rope frequencies by transformers.
   python3 tests/golden/ops_golden.py      (torch, transformers)"""
import json, math, os
import torch
import torch.nn.functional as F
from transformers import PretrainedConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

torch.manual_seed(0)
torch.set_default_dtype(torch.float64)
flat = lambda t: [float(f"{v:.17g}") for v in t.detach().reshape(-1).tolist()]


def rope_case(name, head_dim, theta, scaling):
    kind = {0: "default", 1: "linear", 2: "llama3", 3: "yarn"}[scaling["scaling"]]
    rope = {"rope_type": kind, "rope_theta": theta}
    if kind != "default": rope["factor"] = scaling["factor"]
    if kind == "llama3":
        rope.update(low_freq_factor=scaling["low"], high_freq_factor=scaling["high"],
                    original_max_position_embeddings=scaling["original"])
    if kind == "yarn":
        rope.update(beta_fast=scaling.get("beta_fast", 32), beta_slow=scaling.get("beta_slow", 1),
                    original_max_position_embeddings=scaling["original"], truncate=not scaling.get("no_truncate", 0))
    config = PretrainedConfig(hidden_size=head_dim, num_attention_heads=1, head_dim=head_dim,
                              max_position_embeddings=int(scaling.get("original", 8192) * scaling.get("factor", 1)),
                              rope_theta=theta, rope_parameters=rope)
    config.rope_parameters = rope
    if kind == "default":
        inv = 1.0 / theta ** (torch.arange(0, head_dim, 2) / head_dim)
        factor = 1.0
    else:
        inv, factor = ROPE_INIT_FUNCTIONS[kind](config, "cpu")
    return dict(name=name, head_dim=head_dim, theta=theta, inv=flat(inv.double()), attention_factor=factor, **scaling)


def attention(name, q, k, v, pos, seg, hd, dv, window=0, softcap=0.0, scale=0.0, bidirectional=0, sinks=None):
    T, H, K = len(q), q.shape[1] // hd, k.shape[1] // hd
    leaves = [t.clone().requires_grad_() for t in (q, k, v)] + ([sinks.clone().requires_grad_()] if sinks is not None else [])
    Q = leaves[0].view(T, H, hd)
    Kt = leaves[1].view(T, K, hd).repeat_interleave(H // K, 1)
    V = leaves[2].view(T, K, dv).repeat_interleave(H // K, 1)
    s = torch.einsum("thd,shd->hts", Q, Kt) * (scale or 1 / math.sqrt(hd))
    if softcap: s = softcap * torch.tanh(s / softcap)
    back = pos[:, None] - pos[None]
    ok = seg[:, None] == seg[None]
    if not bidirectional: ok &= back >= 0
    if window: ok &= back < window
    s = s.masked_fill(~ok[None], -math.inf)
    if sinks is not None:
        s = torch.cat([s, leaves[3].view(H, 1, 1).expand(H, T, 1)], 2)
    p = s.softmax(-1)[..., :T]
    out = torch.einsum("hts,shd->thd", p, V).reshape(T, H * dv)
    dout = torch.rand_like(out) * 2 - 1
    out.backward(dout)
    return dict(name=name, tokens=T, heads=H, kv_heads=K, head_dim=hd, v_head_dim=dv, window=window, softcap=softcap, scale=scale,
                bidirectional=bidirectional, pos=pos.tolist(), seg=seg.tolist(), q=flat(q), k=flat(k), v=flat(v),
                sinks=flat(sinks) if sinks is not None else None, dout=flat(dout), out=flat(out),
                lse=flat(s.logsumexp(-1).T), grads=[flat(t.grad) for t in leaves])


def layer(name, fn, *xs, **attrs):
    leaves = [x.clone().requires_grad_() for x in xs]
    y = fn(*leaves)
    dy = torch.rand_like(y) * 2 - 1
    y.backward(dy)
    return dict(name=name, shapes=[list(x.shape) for x in xs], inputs=[flat(x) for x in xs], y=flat(y), dy=flat(dy),
                grads=[flat(x.grad) for x in leaves], **attrs)


def main():
    r = lambda *s: torch.rand(*s) * 4 - 2
    llama3 = dict(scaling=2, factor=8.0, low=1.0, high=4.0, original=8192.0)
    rope = [rope_case("default", 128, 5e5, dict(scaling=0)), rope_case("linear", 64, 1e4, dict(scaling=1, factor=4.0)),
            rope_case("llama3.1", 128, 5e5, llama3), rope_case("llama3.2", 64, 5e5, dict(llama3, factor=32.0)),
            rope_case("llama4_scout", 128, 5e5, dict(llama3, factor=16.0, low=1.0, high=1.0)),
            rope_case("yarn", 64, 1e4, dict(scaling=3, factor=40.0, original=4096.0)),
            rope_case("yarn_gpt_oss", 64, 1.5e5, dict(scaling=3, factor=32.0, original=4096.0, no_truncate=1)),
            rope_case("yarn_qwen3", 128, 1e6, dict(scaling=3, factor=4.0, original=32768.0))]
    pos, seg = torch.tensor([0, 1, 2, 3, 0, 1, 2]), torch.tensor([0, 0, 0, 0, 1, 1, 1])
    att = lambda name, H, K, hd, dv, **kw: attention(name, r(7, H * hd), r(7, K * hd), r(7, K * dv), pos, seg, hd, dv, **kw)
    attentions = [att("causal", 2, 2, 4, 4), att("grouped", 6, 2, 4, 4), att("window", 4, 2, 4, 4, window=2),
                  att("softcap", 4, 1, 4, 4, softcap=1.5, scale=0.9), att("sinks", 4, 2, 4, 4, sinks=r(4), window=3),
                  att("wide_values", 2, 1, 4, 6, bidirectional=1)]
    labels = torch.tensor([3, 0, -100, 4, 1])
    layers = [layer("rms_norm", lambda x, w: F.rms_norm(x, (5,), w, 1e-5), r(6, 5), r(5), eps=1e-5),
              layer("layer_norm", lambda x, w, b: F.layer_norm(x, (5,), w, b, 1e-5), r(6, 5), r(5), r(5), eps=1e-5),
              layer("softmax", lambda x: x.softmax(-1), r(6, 5)), layer("silu", F.silu, r(6, 5)), layer("gelu", F.gelu, r(6, 5)),
              layer("gelu_tanh", lambda x: F.gelu(x, approximate="tanh"), r(6, 5)), layer("sigmoid", torch.sigmoid, r(6, 5)),
              layer("tanh", torch.tanh, r(6, 5)), layer("relu", F.relu, r(6, 5)),
              layer("linear", lambda x, w: F.linear(x, w), r(6, 5), r(3, 5)),
              layer("cross_entropy", lambda x: F.cross_entropy(x, labels, reduction="none", ignore_index=-100), r(5, 6), labels=labels.tolist()),
              layer("conv1d", lambda x, w: F.conv1d(x.T[None], w[:, None], padding=2, groups=4)[0, :, :6].T, r(6, 4), r(4, 3))]
    out = os.path.join(os.path.dirname(os.path.abspath(__file__)), "ops.json")
    with open(out, "w") as f:
        f.write('{"rope": [\n' + ",\n".join(map(json.dumps, rope)) + '],\n"attention": [\n' + ",\n".join(map(json.dumps, attentions))
                + '],\n"layers": [\n' + ",\n".join(map(json.dumps, layers)) + "]}\n")


if __name__ == "__main__":
    main()
