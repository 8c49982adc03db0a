# SPDX-License-Identifier: Apache-2.0
"""Writes tests/golden/oracle/: what a PyTorch Llama says about small ttrun jobs. Run from the root after `make`:

    python tests/golden/oracle.py [--ttrun ./ttrun] [--only CASE]

  corpus_{1,2,3}.txt   the text; ids are the byte tokenizer's: bos, bytes, eos of each file, one stream, not shuffled
  CASE.json            "job": the job as tests run it (dump_folder and backend are theirs)
                       "steps": loss, grad_norm, lr of each step
                       where there is one step also
                       "init": CRC-32 of every parameter's initial bytes: ttrun's own, from its checkpoint
                       "gradients": rms, 64 elements, 4 sums with random signs of each

Jobs in bf16 follow the policy of FSDP2's MixedPrecisionPolicy(param_dtype=bfloat16, reduce_dtype=float32): weights and
activations bf16, PyTorch's own kernels (rms_norm, scaled_dot_product_attention, silu), rotary positions and the loss in
f32, f32 masters, gradients and optimizer. "float64" is what that run differs from one in float64 by.

Initial values come from a checkpoint that ttrun wrote before its first update (sgd, lr 0). The model is written out
here, in float64; transformers' LlamaForCausalLM must agree with it. "float32" holds what PyTorch in float32 differs by,
in units of the tolerance the tests use."""
import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import zlib

import numpy as np
import safetensors.torch
import torch
import torch.nn.functional as F

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
HERE = os.path.join(ROOT, "tests", "golden", "oracle")
BOS, EOS = 256, 257
SAMPLES, SIGNS = 64, 4

LLAMA3 = {"rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 64}
YARN = {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 16, "beta_fast": 32.0, "beta_slow": 1.0}
ODD = {"dim": 96, "n_layers": 3, "n_heads": 6, "n_kv_heads": 2, "head_dim": 16, "hidden_dim": 211, "vocab_size": 777,
       "norm_eps": 1e-5, "rope_theta": 10000.0}
SMALL = {"dim": 40, "n_layers": 2, "n_heads": 5, "n_kv_heads": 1, "head_dim": 6, "hidden_dim": 17, "vocab_size": 263,
         "norm_eps": 1e-3, "rope_theta": 500.0}
GRADIENT = {"optimizer": {"name": "sgd", "lr": 0.0, "momentum": 0.5}, "lr_scheduler": {"name": "constant"}}
ADAMW = {"optimizer": {"name": "adamw", "lr": 1e-3, "beta1": 0.9, "beta2": 0.95, "eps": 1e-8, "weight_decay": 0.1,
                       "param_groups": [{"match": "tag:norm", "weight_decay": 0.0}]},
         "lr_scheduler": {"name": "wsd", "warmup_steps": 3, "decay_ratio": 0.4, "decay_type": "cosine", "min_lr_factor": 0.1}}
SGD = {"optimizer": {"name": "sgd", "lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01,
                     "param_groups": [{"match": "embed", "lr_factor": 0.5}]},
       "lr_scheduler": {"name": "wsd", "warmup_steps": 2, "decay_type": "sqrt", "min_lr_factor": 0.0}}


CONSTANT = {"name": "constant", "warmup_steps": 3}
ADAM = {"optimizer": {"name": "adam", "lr": 1e-3, "beta1": 0.9, "beta2": 0.98, "eps": 1e-8, "weight_decay": 0.01}, "lr_scheduler": CONSTANT}
LION = {"optimizer": {"name": "lion", "lr": 2e-4, "beta1": 0.9, "beta2": 0.95, "weight_decay": 0.1}, "lr_scheduler": CONSTANT}
FREE = {"optimizer": {"name": "schedule_free", "lr": 2e-3, "beta1": 0.9, "beta2": 0.98, "eps": 1e-8, "weight_decay": 0.05},
        "lr_scheduler": CONSTANT}
MIXED = {"optimizer": {**ADAM["optimizer"], "name": "adamw", "weight_decay": 0.1,
                       "param_groups": [{"match": "tag:norm", "name": "sgd", "lr": 1e-2, "momentum": 0.5},
                                        {"match": "mlp", "name": "lion", "lr": 5e-4, "weight_decay": 0.2}]}, "lr_scheduler": CONSTANT}


EIGHT = {"optimizer": {"name": "adamw8bit", "lr": 1e-3, "beta1": 0.9, "beta2": 0.95, "eps": 1e-8, "weight_decay": 0.1}, "lr_scheduler": CONSTANT}
# Sides that gradients of a step do not fill are left out: eigenvectors of an eigenvalue of 0 are not defined.
SOAP = {"optimizer": {"name": "soap", "lr": 5e-4, "beta1": 0.95, "beta2": 0.95, "eps": 1e-6, "weight_decay": 0.01, "precondition_frequency": 3,
                      "max_precond_dim": 40}, "lr_scheduler": CONSTANT}


def muon(**more):
    return {"optimizer": {"name": "muon", "lr": 2e-2, "momentum": 0.9, "weight_decay": 0.1, "adamw_lr": 1e-3, **more},
            "lr_scheduler": {"name": "wsd", "warmup_steps": 2, "decay_type": "sqrt", "min_lr_factor": 0.0}}


def job(args, parts, seq=37, local=3, accumulate=1, steps=1, max_norm=0.0, documents=False, **more):
    return {"spec": "llama3", "model": {"args": args}, "tokenizer": {"name": "byte"},
            "dataloader": {"name": "text", "path": ["corpus_*.txt"], "shuffle": False, "document_mask": documents},
            **parts, "training": {"local_batch_size": local, "global_batch_size": local * accumulate, "seq_len": seq,
                                  "steps": steps, "max_norm": max_norm, "seed": 7},
            "metrics": {"log_freq": 1, "enable_tensorboard": False}, "checkpoint": {"interval": 1000000}, **more}


def clipped(args, parts, order, most):
    j = job(args, parts, seq=19, local=2, accumulate=3, steps=10, max_norm=most)
    j["training"]["clip_norm_type"] = order
    return j


def bf16(j):
    j["training"]["mixed_precision_param"] = "bfloat16"
    return j


UNTIED = {**ODD, "tie_embeddings": False, "rope_scaling": LLAMA3}
TIED = {**ODD, "tie_embeddings": True, "rope_scaling": None}
CASES = {
    "untied_gradient": job(UNTIED, GRADIENT),
    "tied_gradient": job(TIED, GRADIENT, accumulate=2, documents=True),
    "small_gradient": job({**SMALL, "tie_embeddings": False, "rope_scaling": YARN}, GRADIENT, seq=19, local=2),
    "z_loss_gradient": job(UNTIED, {**GRADIENT, "loss": {"z_loss": 0.05}}, accumulate=2, documents=True),
    "untied_adamw": job(UNTIED, ADAMW, accumulate=2, steps=10, max_norm=1.0),
    "tied_adamw": job({**TIED, "rope_scaling": LLAMA3}, ADAMW, accumulate=2, steps=10, max_norm=1.0, documents=True),
    "small_sgd": job({**SMALL, "tie_embeddings": True, "rope_scaling": None}, SGD, seq=19, local=2, accumulate=3, steps=10,
                     max_norm=1.0),
    **{f"muon_{a}": job(UNTIED,
                        muon(adjust_lr_fn=a, lr=2e-3 if a == "match_rms_adamw" else 4e-3, nesterov=a != "spectral_unclamped"),
                        seq=19, local=2, accumulate=3, steps=10, max_norm=1.0)
       for a in ("original", "match_rms_adamw", "spectral_unclamped")},
    "muon_polar_express": job({**SMALL, "tie_embeddings": True, "rope_scaling": None},
                              muon(polynomial="polar_express", dtype="float32", split_heads=True), seq=19, local=2, accumulate=3,
                              steps=10, max_norm=1.0),
    "adam": job(UNTIED, ADAM, steps=10, max_norm=1.0),
    "lion": job({**SMALL, "tie_embeddings": True, "rope_scaling": None}, LION, seq=19, local=2, accumulate=3, steps=10, max_norm=1.0),
    "adamw8bit": job({**UNTIED, "hidden_dim": 330}, EIGHT, steps=10, max_norm=1.0),
    "adamw8bit_torchao": job({**UNTIED, "dim": 256, "hidden_dim": 512, "n_layers": 2, "head_dim": 64, "n_heads": 4}, EIGHT, steps=10, max_norm=1.0),
    "soap": job({**UNTIED, "dim": 40, "n_heads": 5, "n_kv_heads": 5, "head_dim": 8}, SOAP, accumulate=2, steps=10, max_norm=1.0),
    "soap_normalized": job({**UNTIED, "dim": 40, "n_heads": 5, "n_kv_heads": 5, "head_dim": 8},
                           {**SOAP, "optimizer": {**SOAP["optimizer"], "normalize_grads": True, "correct_bias": False, "shampoo_beta": 0.9}},
                           accumulate=2, steps=10, max_norm=1.0),
    "schedule_free": job(UNTIED, FREE, steps=10, max_norm=1.0),
    "mixed_groups": job(UNTIED, MIXED, steps=10, max_norm=1.0),
    **{f"norm_{p}": clipped({**SMALL, "tie_embeddings": True, "rope_scaling": None}, SGD, p, most)
       for p, most in ((1, 10.0), ("inf", 0.05), (3, 0.1), (0.5, 1e5))},
    "norm_of_groups": clipped(UNTIED, {**SGD, "optimizer": {**SGD["optimizer"], "param_groups": [
        {"match": "embed", "clip_grad": False}, {"match": "tag:norm", "lr_factor": 0.5}]}}, 2, 0.5),
    "bf16_gradient": bf16(job(UNTIED, GRADIENT)),
    "bf16_adamw": bf16(job(TIED, ADAMW, accumulate=2, steps=10, max_norm=1.0, documents=True)),
}


# ---- the text ----

def corpus():
    """Three documents: 60 bytes, 5 bytes, the rest. Sentences of a little grammar; nobody's text but ours."""
    who = ["The miller", "A heron", "Our neighbour", "The quiet engine", "Some rain", "Zoë", "The second clerk"]
    does = ["counts", "carries", "forgets", "paints", "follows", "measures", "returns"]
    what = ["seven lamps", "the long river", "a tin of nails", "every open door", "π to 4 digits", "its own shadow"]
    when = ["at noon", "before the tide", "without a word", "twice a year", "under the bridge", "—slowly"]
    state, text = 12345, []
    for _ in range(150):
        pick = []
        for words in (who, does, what, when):
            state = (state * 1103515245 + 12345) % 2 ** 31
            pick.append(words[(state >> 16) % len(words)])
        text.append(" ".join(pick) + (".\n" if state >> 20 & 1 else ", and\n"))
    return ["Documents end here and there; a sample may hold two of them.", "Five!", "".join(text)]


def write_corpus():
    os.makedirs(HERE, exist_ok=True)
    for i, text in enumerate(corpus()):
        with open(os.path.join(HERE, f"corpus_{i + 1}.txt"), "w", encoding="utf-8", newline="") as f:
            f.write(text)


def batch(j, first, n):
    """Samples first … first+n-1: ids, labels, positions, segments [n, seq]."""
    ids, starts = [], []
    for text in corpus():
        starts.append(len(ids))
        ids += [BOS, *text.encode(), EOS]
    seq = j["training"]["seq_len"]
    assert (first + n) * seq < len(ids), "the corpus is too short: samples would repeat"
    out = [[], [], [], []]
    for g in range(first, first + n):
        at = range(g * seq, (g + 1) * seq)
        seg = [sum(s <= i for s in starts) for i in at]
        out[0].append([ids[i] for i in at])
        out[1].append([ids[i + 1] for i in at])
        if j["dataloader"]["document_mask"]:
            out[2].append([i - max([s for s in starts if s <= i] + [at[0]]) for i in at])
            out[3].append(seg)
            out[1][-1] = [-100 if i + 1 in starts else ids[i + 1] for i in at]  # no label in another document
        else:
            out[2].append([i - at[0] for i in at])
            out[3].append([0] * seq)
    return [torch.tensor(x) for x in out]


# ---- the model ----

def frequencies(a):
    """Angle of one position, [head_dim/2], and the factor on sin and cos. Llama 3.1's scaling; YaRN: arXiv:2309.00071."""
    d, base, s = a["head_dim"], a["rope_theta"], a["rope_scaling"]
    f = base ** -(torch.arange(0, d, 2, dtype=torch.float64) / d)
    if s is None:
        return f, 1.0
    factor, old = s["factor"], s["original_max_position_embeddings"]
    if s["rope_type"] == "llama3":
        low, high = s["low_freq_factor"], s["high_freq_factor"]
        share = ((old * f / (2 * math.pi) - low) / (high - low)).clamp(0, 1)
        return (1 - share) * f / factor + share * f, 1.0
    turns = lambda n: d * math.log(old / (n * 2 * math.pi)) / (2 * math.log(base))
    first, last = max(math.floor(turns(s["beta_fast"])), 0), min(math.ceil(turns(s["beta_slow"])), d - 1)
    ramp = ((torch.arange(d // 2, dtype=torch.float64) - first) / max(last - first, 0.001)).clamp(0, 1)
    return f / factor * ramp + f * (1 - ramp), 0.1 * math.log(factor) + 1.0


def rope(x, pos, a):
    """x [B,T,H,hd]: element i turns with element i + hd/2."""
    if x.dtype == torch.bfloat16:
        return rope(x.float(), pos, a).bfloat16()
    f, scale = frequencies(a)
    angle = pos[..., None].double() * f
    cos, sin = (t[:, :, None].to(x.dtype) for t in (angle.cos() * scale, angle.sin() * scale))
    p, q = x.chunk(2, -1)
    return torch.cat([p * cos - q * sin, q * cos + p * sin], -1)


def norm(x, w, eps):
    if x.dtype == torch.bfloat16:
        return F.rms_norm(x, w.shape, w, eps)
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * w


def logits(w, a, ids, pos, seg):
    B, T = ids.shape
    H, K, hd, eps = a["n_heads"], a["n_kv_heads"], a["head_dim"], a["norm_eps"]
    allowed = torch.ones(T, T, dtype=torch.bool).tril() & (seg[:, :, None] == seg[:, None, :])[:, None]
    x = w["model.embed_tokens.weight"][ids]
    for i in range(a["n_layers"]):
        p = lambda name: w[f"model.layers.{i}.{name}.weight"]
        h = norm(x, p("input_layernorm"), eps)
        q = rope((h @ p("self_attn.q_proj").T).view(B, T, H, hd), pos, a)
        k = rope((h @ p("self_attn.k_proj").T).view(B, T, K, hd), pos, a)
        v = (h @ p("self_attn.v_proj").T).view(B, T, K, hd)
        k, v = (t.repeat_interleave(H // K, 2) for t in (k, v))
        if x.dtype == torch.bfloat16:
            y = F.scaled_dot_product_attention(*(t.transpose(1, 2) for t in (q, k, v)), attn_mask=allowed).transpose(1, 2)
        else:
            score = torch.einsum("bthd,bshd->bhts", q, k) / math.sqrt(hd)
            y = torch.einsum("bhts,bshd->bthd", score.masked_fill(~allowed, -math.inf).softmax(-1), v)
        x = x + y.reshape(B, T, H * hd) @ p("self_attn.o_proj").T
        h = norm(x, p("post_attention_layernorm"), eps)
        x = x + (F.silu(h @ p("mlp.gate_proj").T) * (h @ p("mlp.up_proj").T)) @ p("mlp.down_proj").T
    x = norm(x, w["model.norm.weight"], eps)
    return x @ w["model.embed_tokens.weight" if a["tie_embeddings"] else "lm_head.weight"].T


def backward(w, j, step):
    """Mean loss over the global batch of a step (from 0), and further terms of it; gradients are left in w."""
    t = j["training"]
    z_total, total, tokens = 0.0, 0.0, (batch(j, step * t["global_batch_size"], t["global_batch_size"])[1] >= 0).sum().item()
    for p in w.values():
        p.grad = None
    half = "mixed_precision_param" in t and next(iter(w.values())).dtype == torch.float32
    for m in range(0, t["global_batch_size"], t["local_batch_size"]):
        ids, labels, pos, seg = batch(j, step * t["global_batch_size"] + m, t["local_batch_size"])
        y = logits({n: p.bfloat16() for n, p in w.items()}, j["model"]["args"], ids, pos, seg).float() if half else \
            logits(w, j["model"]["args"], ids, pos, seg)
        loss = F.cross_entropy(y.flatten(0, 1), labels.flatten(), reduction="sum")
        weight, counted = j.get("loss", {}).get("z_loss", 0.0), labels.flatten() >= 0
        z = y.flatten(0, 1)[counted].logsumexp(-1).square().sum()
        ((loss + weight * z) / tokens).backward()
        total += loss.item()
        z_total += z.item()
    return total / tokens, {"losses": {"z_loss": z_total / tokens}} if weight else {}


# ---- training ----

def rate(s, i, total):
    """Factor of step i (from 0): research/torchtitan.md §2."""
    if s["name"] == "constant":
        return min(1.0, (i + 1) / max(1, s.get("warmup_steps", 0)))
    warm = s["warmup_steps"]
    decay = total - warm if s.get("decay_ratio") is None else round(total * s["decay_ratio"])
    flat = total + 1 - decay
    if i < warm:
        return (i + 1) / warm
    if i < flat:
        return 1.0
    p = (i + 1 - flat) / decay
    g = {"linear": 1 - p, "sqrt": 1 - math.sqrt(p), "cosine": (1 + math.cos(math.pi * p)) / 2}[s["decay_type"]]
    return s["min_lr_factor"] + (1 - s["min_lr_factor"]) * g


POLAR_EXPRESS = ((8.156554524902461, -22.48329292557795, 15.878769915207462), (4.042929935166739, -2.808917465908714, 0.5000178451051316),
                 (3.8916678022926607, -2.772484153217685, 0.5060648178503393), (3.285753657755655, -2.3681294933425376, 0.46449024233003106),
                 (2.3465413258596377, -1.7097828382687081, 0.42323551169305323))


class Muon(torch.optim.Muon):
    """torch.optim.Muon for hidden matrices, AdamW for the rest. polynomial, split_heads and float32 are written out here."""

    def __init__(self, w, o):
        hidden = {n: p for n, p in w.items() if p.dim() > 1 and "embed" not in n and "lm_head" not in n}
        self.heads = {id(p): SMALL["head_dim"] for n, p in hidden.items() if n.split(".")[-2] in ("q_proj", "k_proj", "v_proj")}
        if not o.get("split_heads"):
            self.heads = {}
        super().__init__([*hidden.values()], lr=1.0, weight_decay=o["weight_decay"], momentum=o["momentum"], nesterov=o.get("nesterov", True),
                         adjust_lr_fn=o.get("adjust_lr_fn"))
        self.rest = torch.optim.AdamW([p for n, p in w.items() if n not in hidden], lr=1.0, betas=(0.9, 0.95), eps=1e-8,
                                      weight_decay=o["weight_decay"], foreach=False)
        self.polar = o.get("polynomial") == "polar_express"
        for g in self.param_groups:
            g["factor"] = 1.0
        self.ratio = o["adamw_lr"] / o["lr"]

    @torch.no_grad()
    def step(self):
        for g in self.rest.param_groups:
            g["lr"] = self.param_groups[0]["lr"] * self.ratio
        self.rest.step()
        if not self.polar:
            return super().step()
        for g in self.param_groups:
            for p in g["params"]:
                buf = self.state[p].setdefault("buf", torch.zeros_like(p))
                buf.lerp_(p.grad, 1 - g["momentum"])
                m = p.grad.lerp(buf, g["momentum"])
                parts = m.split(self.heads.get(id(p), len(m)))
                p.mul_(1 - g["lr"] * g["weight_decay"])
                p.sub_(torch.cat([self.orthogonal(x) * max(1, len(x) / x.shape[1]) ** 0.5 for x in parts]), alpha=g["lr"])

    @staticmethod
    def orthogonal(x):
        x = x / (x.norm() * 1.01 + 1e-6)
        for a, b, c in POLAR_EXPRESS:
            gram = x @ x.T
            x = a * x + (b * gram + c * gram @ gram) @ x
        return x


class Lion(torch.optim.Optimizer):
    """Chen et al. 2023, algorithm 2."""

    def __init__(self, groups, betas):
        super().__init__(groups, {"lr": 1.0, "betas": betas})

    @torch.no_grad()
    def step(self):
        for g in self.param_groups:
            b1, b2 = g["betas"]
            for p in g["params"]:
                m = self.state[p].setdefault("m", torch.zeros_like(p))
                p.mul_(1 - g["lr"] * g["weight_decay"])
                p.sub_((b1 * m + (1 - b1) * p.grad).sign(), alpha=g["lr"])
                m.copy_(b2 * m + (1 - b2) * p.grad)


class ScheduleFree(torch.optim.Optimizer):
    """AdamWScheduleFree of Defazio et al. 2024, with the steps of their code: y and z are kept, x is not."""

    def __init__(self, groups, betas, eps):
        super().__init__(groups, {"lr": 1.0, "betas": betas, "eps": eps, "k": 0, "lr_max": 0.0, "sum": 0.0})

    @torch.no_grad()
    def step(self):
        for g in self.param_groups:
            b1, b2 = g["betas"]
            g["k"] += 1
            g["lr_max"] = max(g["lr_max"], g["lr"])
            g["sum"] += g["lr_max"] ** 2
            c = g["lr_max"] ** 2 / g["sum"]
            for y in g["params"]:
                s = self.state[y]
                if not s:
                    s["z"], s["v"] = y.clone(), torch.zeros_like(y)
                s["v"].mul_(b2).addcmul_(y.grad, y.grad, value=1 - b2)
                d = y.grad / ((s["v"] / (1 - b2 ** g["k"])).sqrt() + g["eps"]) + g["weight_decay"] * y
                y.lerp_(s["z"], c)
                y.add_(d, alpha=g["lr"] * (b1 * (1 - c) - 1))
                s["z"].sub_(d, alpha=g["lr"])


def dynamic_map(signed):
    """The 256 numbers of bitsandbytes' create_dynamic_map, sorted, in f32."""
    data = [0.0, 1.0]
    for i in range(7):
        n = 2 ** i if signed else 2 ** (i + 1)
        data += [10.0 ** (i - 6) * (0.1 + 0.9 * (k + 0.5) / n) for k in range(n)]
    if signed:
        data += [-x for x in data if 0 < x < 1]
    return torch.tensor(sorted(data), dtype=torch.float32)


class AdamW8bit(torch.optim.Optimizer):
    """torchao's AdamW8bit (torchao/optim, nearest rounding), with blocks of 256 elements along rows, in any precision."""
    MAPS = {True: dynamic_map(True), False: dynamic_map(False)}

    def __init__(self, groups, betas, eps):
        super().__init__(groups, {"lr": 1.0, "betas": betas, "eps": eps})

    @staticmethod
    def rounded(x, signed):
        if x.numel() < 4096:
            return x
        rows = x.float().reshape(-1, x.shape[-1])
        blocks = F.pad(rows, (0, -x.shape[-1] % 256)).reshape(-1, 256)
        scale = blocks.abs().amax(-1, keepdim=True).clip(1e-12)
        y, table = blocks / scale, AdamW8bit.MAPS[signed]
        down = (torch.searchsorted(table, y.contiguous(), right=True) - 1).clip(0, 255)
        up = (down + 1).clip(max=255)
        codes = torch.where(y - table[down] >= (table[up] - table[down]) * 0.5, up, down)
        return (table[codes] * scale).reshape(len(rows), -1)[:, :x.shape[-1]].reshape(x.shape).to(x.dtype)

    @torch.no_grad()
    def step(self):
        for g in self.param_groups:
            b1, b2 = g["betas"]
            for p in g["params"]:
                s = self.state[p]
                if not s:
                    s["k"], s["m"], s["v"] = 0, torch.zeros_like(p), torch.zeros_like(p)
                s["k"] += 1
                p.mul_(1 - g["lr"] * g["weight_decay"])
                m, v = s["m"].lerp(p.grad, 1 - b1), s["v"].lerp(p.grad.square(), 1 - b2)
                s["m"], s["v"] = self.rounded(m, True), self.rounded(v, False)
                p.sub_(g["lr"] * (m / (1 - b1 ** s["k"])) / ((v.sqrt() / (1 - b2 ** s["k"]) ** 0.5) + g["eps"]))


def torchao_adamw8bit(groups, betas, eps):
    """torchao's own class, without torch.compile. It takes no rate as a number, and computes in f32 whatever the parameters are in."""
    import torchao.optim

    class Theirs(torchao.optim.AdamW8bit):
        def step(self):
            for g in self.param_groups:
                g["lr"] = torch.as_tensor(g["lr"], dtype=torch.float32)
            super().step()

    torch.compiler.set_stance("force_eager")
    return Theirs(groups, lr=1.0, betas=betas, eps=eps)


def blocks_are_torchaos(shape):
    """Blocks of torchao pass over the ends of rows; of a tensor that is no multiple of 256 it keeps f32."""
    return math.prod(shape) < 4096 or shape[-1] % 256 == 0


class Soap(torch.optim.Optimizer):
    """Vyas et al. 2024, with the steps of the authors' code: exp_avg is kept in the eigenbases, and sorted as they are."""

    def __init__(self, groups, o):
        super().__init__(groups, {"lr": 1.0})
        self.o = o

    def project(self, x, s, back=False):
        for side, q in enumerate(s["Q"]):
            if q is not None:
                q = q if back else q.T
                x = q @ x if side == 0 else x @ q.T
        return x

    def precondition(self, s, grad, beta):
        o = self.o
        if s["Q"] and s["step"]:
            s["m"] = self.project(s["m"], s, True)
        for side, gg in enumerate(s["GG"]):
            if gg is not None:
                gg.lerp_(grad @ grad.T if side == 0 else grad.T @ grad, 1 - beta)
        if not s["Q"]:
            s["Q"] = [None if gg is None else torch.linalg.eigh(gg + 1e-30 * torch.eye(len(gg), dtype=gg.dtype))[1].flip(1) for gg in s["GG"]]
        if s["step"] and s["step"] % o["precondition_frequency"] == 0:
            for side, (gg, q) in enumerate(zip(s["GG"], s["Q"])):
                if gg is not None:
                    order = torch.argsort(torch.diag(q.T @ gg @ q), descending=True)
                    s["v"] = s["v"].index_select(side, order)
                    s["Q"][side] = torch.linalg.qr(gg @ q[:, order])[0]
        if s["step"]:
            s["m"] = self.project(s["m"], s)

    @torch.no_grad()
    def step(self):
        o, b1, b2 = self.o, self.o["beta1"], self.o["beta2"]
        for g in self.param_groups:
            for p in g["params"]:
                s = self.state[p]
                if not s:
                    sides = p.shape if p.dim() == 2 else ()
                    s.update(step=0, m=torch.zeros_like(p), v=torch.zeros_like(p), Q=[],
                             GG=[torch.zeros(n, n, dtype=p.dtype) if n <= o["max_precond_dim"] else None for n in sides])
                    self.precondition(s, p.grad, o.get("shampoo_beta", b2))
                    continue
                x = self.project(p.grad, s)
                s["step"] += 1
                s["m"].mul_(b1).add_(x, alpha=1 - b1)
                s["v"].mul_(b2).add_(x.square(), alpha=1 - b2)
                size = g["lr"]
                if o.get("correct_bias", True):
                    size *= (1 - b2 ** s["step"]) ** 0.5 / (1 - b1 ** s["step"])
                n = self.project(s["m"] / (s["v"].sqrt() + o["eps"]), s, True)
                if o.get("normalize_grads"):
                    n = n / (1e-30 + n.square().mean() ** 0.5)
                p.add_(n, alpha=-size)
                p.add_(p, alpha=-g["lr"] * g["weight_decay"])
                self.precondition(s, p.grad, o.get("shampoo_beta", b2))


class Several:
    """One optimizer for each group."""

    def __init__(self, optimizers):
        self.optimizers = optimizers
        self.param_groups = [g for o in optimizers for g in o.param_groups]

    def step(self):
        for o in self.optimizers:
            o.step()


def mixed(w, o):
    rest, made = dict(w), []
    for g in o["param_groups"]:
        hit = [n for n in rest if ("norm" in n.rsplit(".", 2)[-2] if g["match"] == "tag:norm" else g["match"] in n)]
        own = {**g, "param_groups": []}
        if g["name"] == "lion":
            own = {"beta1": 0.9, "beta2": 0.99, **own}
        made.append(optimizer({n: rest.pop(n) for n in hit}, own))
        for x in made[-1].param_groups:
            x["factor"] *= g["lr"] / o["lr"]
    made.append(optimizer(rest, {**o, "param_groups": []}))
    return Several(made)


def optimizer(w, o):
    if o["name"] == "muon":
        return Muon(w, o)
    if any("name" in g for g in o.get("param_groups", [])):
        return mixed(w, o)
    groups, rest = [], dict(w)
    for g in o.get("param_groups", []):
        hit = [n for n in rest if ("norm" in n.rsplit(".", 2)[-2] if g["match"] == "tag:norm" else g["match"] in n)]
        assert hit
        groups.append({"params": [rest.pop(n) for n in hit], "factor": g.get("lr_factor", 1.0),
                       "weight_decay": g.get("weight_decay", o["weight_decay"])})
    groups.append({"params": list(rest.values()), "factor": 1.0, "weight_decay": o.get("weight_decay", 0.0)})
    if o["name"] == "sgd":
        return torch.optim.SGD(groups, lr=1.0, momentum=o["momentum"], nesterov=o.get("nesterov", False))
    if o["name"] == "adam":
        return torch.optim.Adam(groups, lr=1.0, betas=(o["beta1"], o["beta2"]), eps=o["eps"], foreach=False)
    if o["name"] == "lion":
        return Lion(groups, (o["beta1"], o["beta2"]))
    if o["name"] == "adamw8bit":
        make = torchao_adamw8bit if all(blocks_are_torchaos(p.shape) for p in w.values()) else AdamW8bit
        return make(groups, (o["beta1"], o["beta2"]), o["eps"])
    if o["name"] == "soap":
        return Soap(groups, o)
    if o["name"] == "schedule_free":
        return ScheduleFree(groups, (o["beta1"], o["beta2"]), o["eps"])
    return torch.optim.AdamW(groups, lr=1.0, betas=(o["beta1"], o["beta2"]), eps=o["eps"], foreach=False)


def train(init, j, dtype):
    """[{loss, grad_norm, lr}], the gradients of the first step, and the parameters after the last."""
    return train_values({n: p.to(dtype, copy=True).requires_grad_() for n, p in init.items()}, j, backward)


def train_values(w, j, compute):
    """compute(w, j, step) is backward() or another's."""
    o, t = j["optimizer"], j["training"]
    opt, steps, first = optimizer(w, o), [], None
    for i in range(t["steps"]):
        loss, terms = compute(w, j, i)
        if first is None:
            first = {n: p.grad.clone() for n, p in w.items()}
        free = [g["match"] for g in o.get("param_groups", []) if not g.get("clip_grad", True)]
        n = torch.nn.utils.clip_grad_norm_([p for k, p in w.items() if not any(m in k for m in free)], t["max_norm"] or math.inf,
                                           norm_type=float(t.get("clip_norm_type", 2)), foreach=False).item()
        lr = o["lr"] * rate(j["lr_scheduler"], i, t["steps"])
        for g in opt.param_groups:
            g["lr"] = lr * g["factor"]
        opt.step()
        steps.append({"loss": loss, "grad_norm": n, "lr": lr, **terms})
    return steps, first, {n: p.detach() for n, p in w.items()}


# ---- ttrun ----

def run_ttrun(ttrun, j, backend, folder, **sections):
    """Run a job in a folder; returns (metrics lines, tensors of the last checkpoint)."""
    j = {**j, **sections, "dump_folder": folder, "backend": {"name": backend}}
    j["dataloader"] = {**j["dataloader"], "path": [os.path.join(HERE, "corpus_*.txt")]}
    path = os.path.join(folder, "job.json")
    with open(path, "w") as f:
        json.dump(j, f)
    p = subprocess.run([ttrun, "-q", "--spec", j["spec"], "--plugin-dir", os.path.join(ROOT, "plugins"), path],
                       capture_output=True, text=True)
    if p.returncode:
        sys.exit(f"ttrun: status {p.returncode}: {p.stderr}")
    with open(os.path.join(folder, "metrics.jsonl")) as f:
        lines = [json.loads(line) for line in f]
    tensors = {}
    step = os.path.join(folder, "checkpoint", f"step-{j['training']['steps']}")
    for name in sorted(os.listdir(step)):
        if name.endswith(".safetensors"):
            tensors.update(safetensors.torch.load_file(os.path.join(step, name)))
    return lines, tensors


def initial_values(ttrun, j):
    """ttrun's, from the checkpoint of one step at rate 0."""
    with tempfile.TemporaryDirectory() as d:
        training = {**j["training"], "steps": 1}
        _, t = run_ttrun(ttrun, j, "reference", d, training=training, **GRADIENT)
    return {n: v for n, v in t.items() if not n.startswith("optimizer.")}


# ---- what is kept ----

def indices(n):
    return np.arange(n) if n <= SAMPLES else (np.arange(SAMPLES, dtype=np.uint64) * 2654435761 + 97) % n


def signs(n, k):
    """±1 of element i: a bit of a hash of i and k."""
    h = (np.arange(n, dtype=np.uint64) * 2654435761 + k * 0x9E3779B9) % 2 ** 32
    h ^= h >> 15
    h = h * 0x85EBCA6B % 2 ** 32
    h ^= h >> 13
    return 1.0 - 2.0 * ((h >> 16) & 1)


def rms_of(gradients):
    n = sum(g.numel() for g in gradients.values())
    return math.sqrt(sum(g.double().pow(2).sum().item() for g in gradients.values()) / n)


def tolerance(g, rms_all):
    return 1e-5 * max(g.double().pow(2).mean().sqrt().item(), 1e-3 * rms_all)


def summary(gradients):
    out = {}
    for name, g in sorted(gradients.items()):
        x = g.double().flatten().numpy()
        out[name] = {"rms": float(np.sqrt(np.mean(x * x))), "samples": [float(v) for v in x[indices(x.size)]],
                     "sums": [float(np.sum(x * signs(x.size, k))) for k in range(SIGNS)]}
    return out


def deviation(a, b):
    """Largest difference of two sets of gradients in units of the tolerance, and where."""
    all_ = rms_of(b)
    return max(((a[n].double() - b[n].double()).abs().max().item() / tolerance(b[n], all_), n) for n in b)


def check_with_transformers(init, j):
    """LlamaForCausalLM has no segments that restart positions here: only cases without document_mask."""
    from transformers import LlamaConfig, LlamaForCausalLM
    a = j["model"]["args"]
    c = LlamaConfig(hidden_size=a["dim"], num_hidden_layers=a["n_layers"], num_attention_heads=a["n_heads"],
                    num_key_value_heads=a["n_kv_heads"], head_dim=a["head_dim"], intermediate_size=a["hidden_dim"],
                    vocab_size=a["vocab_size"], rms_norm_eps=a["norm_eps"], tie_word_embeddings=a["tie_embeddings"],
                    rope_parameters={"rope_theta": a["rope_theta"], **(a["rope_scaling"] or {"rope_type": "default"})},
                    max_position_embeddings=256, attn_implementation="eager")
    m = LlamaForCausalLM(c)
    missing, unexpected = m.load_state_dict(init, strict=False)
    assert not unexpected and set(missing) <= {"lm_head.weight"}, (missing, unexpected)
    m.tie_weights()
    ids, _, pos, seg = batch(j, 0, 2)
    with torch.no_grad():
        theirs = m(input_ids=ids, position_ids=pos).logits
        ours = logits({n: p.double() for n, p in init.items()}, a, ids, pos, seg)
    worst = (theirs - ours).abs().max().item() / ours.abs().max().item()
    assert worst < 2e-6, f"transformers differs by {worst}"
    return worst


def golden_bf16(name, j, ttrun):
    init = initial_values(ttrun, j)
    steps, gradients, _ = train(init, j, torch.float32)
    steps64, gradients64, _ = train(init, j, torch.float64)
    norm_of = lambda g: g.double().norm().item()
    f64 = {"gradient": max(norm_of(gradients[n].double() - g) / norm_of(g) for n, g in gradients64.items()),
           "loss": max(abs(a["loss"] - b["loss"]) for a, b in zip(steps, steps64)),
           "grad_norm": max(abs(a["grad_norm"] / b["grad_norm"] - 1) for a, b in zip(steps, steps64))}
    out = {"made_by": f"tests/golden/oracle.py, PyTorch {torch.__version__.split('+')[0]}, bfloat16", "job": j,
           "float64": f64, "steps": steps}
    if j["training"]["steps"] == 1:
        out.update(rms_all=rms_of(gradients), gradients=summary(gradients))
    write(name, out)
    print(f"{name}: float64 {f64}; loss {steps[0]['loss']:.6f} -> {steps[-1]['loss']:.6f}")


def write(name, out):
    with open(os.path.join(HERE, name + ".json"), "w") as f:
        json.dump(out, f, indent=None, separators=(",", ":"))
        f.write("\n")


def golden(name, j, ttrun):
    if "mixed_precision_param" in j["training"]:
        return golden_bf16(name, j, ttrun)
    init = initial_values(ttrun, j)
    note = "" if j["dataloader"]["document_mask"] else f"transformers {check_with_transformers(init, j):.1e}, "
    steps, gradients, _ = train(init, j, torch.float64)
    steps32, gradients32, _ = train(init, j, torch.float32)
    one = j["training"]["steps"] == 1
    f32 = {"gradient": deviation(gradients32, gradients)[0],
           "loss": max(abs(a["loss"] - b["loss"]) for a, b in zip(steps32, steps)),
           "grad_norm": max(abs(a["grad_norm"] / b["grad_norm"] - 1) for a, b in zip(steps32, steps))}
    out = {"made_by": f"tests/golden/oracle.py, PyTorch {torch.__version__.split('+')[0]}, float64", "job": j, "float32": f32,
           "steps": steps}
    if one:
        out.update(init={n: zlib.crc32(p.numpy().tobytes()) for n, p in sorted(init.items())}, rms_all=rms_of(gradients),
                   gradients=summary(gradients))
    write(name, out)
    print(f"{name}: {note}float32 {f32['gradient']:.3f} of the gradients' tolerance, loss {f32['loss']:.1e}, "
          f"norm {f32['grad_norm']:.1e}; loss {steps[0]['loss']:.6f} -> {steps[-1]['loss']:.6f}")


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--ttrun", default=os.path.join(ROOT, "ttrun"))
    ap.add_argument("--only")
    o = ap.parse_args()
    write_corpus()
    for name, j in CASES.items():
        if o.only in (None, name):
            golden(name, j, o.ttrun)


if __name__ == "__main__":
    main()
