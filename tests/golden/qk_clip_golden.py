# SPDX-License-Identifier: Apache-2.0
"""Writes tests/golden/oracle/qk_clip_{llama3,llama3_mha,qwen2,gpt2,deepseek,deepseek_q,muon}.json: ten steps with QK-clip, in float64. Run from
the root after `make`:

    python tests/golden/qk_clip_golden.py [--ttrun ./ttrun] [--only CASE]

The models are transformers'; their attention is written out here, so that it notes the largest logit of each head, and so is QK-clip
(arXiv:2507.20534, section 2.1). "clipped" counts the heads above tau of each step; "final" has the parameters of queries and keys after
the last one as oracle.py writes gradients. The script fails if no head is above tau, if all always are, or if a logit is too near to tau to
say in float32 on which side it is."""
import argparse
import math
import os

import torch
from transformers import AttentionInterface, AttentionMaskInterface, LlamaConfig, LlamaForCausalLM

import models_golden
import oracle

LLAMA3 = {"dim": 48, "n_layers": 3, "n_heads": 6, "n_kv_heads": 2, "head_dim": 10, "hidden_dim": 111, "vocab_size": 277, "norm_eps": 1e-5,
          "rope_theta": 1e4, "rope_scaling": None}
QWEN2 = {**models_golden.QWEN2, "dim": 48, "hidden_dim": 111, "vocab_size": 277, "tie_embeddings": False}
GPT2 = {**models_golden.GPT2, "dim": 48, "hidden_dim": 111, "vocab_size": 277, "tie_embeddings": False}
# eps is large beside the gradients of keys' biases, which are 0 but for rounding: without it AdamW makes steps of lr of their signs
ADAMW = {"optimizer": {"name": "adamw", "lr": 1e-2, "beta1": 0.9, "beta2": 0.95, "eps": 1e-6, "weight_decay": 0.1},
         "lr_scheduler": {"name": "constant", "warmup_steps": 2}}
LARGE_EPS = {**ADAMW, "optimizer": {**ADAMW["optimizer"], "lr": 2e-2, "eps": 1e-4}}
MUON = {"optimizer": {"name": "muon", "lr": 1e-2, "momentum": 0.9, "weight_decay": 0.1, "adamw_lr": 2e-3, "polynomial": "polar_express", "dtype": "float32"},
        "lr_scheduler": {"name": "constant", "warmup_steps": 2}}
models_golden.FAMILY["llama3"] = (models_golden.llama_like(LlamaConfig, LlamaForCausalLM, "head_dim"), models_golden.same, models_golden.same)


def case(spec, args, tau, parts=ADAMW):
    j = oracle.job(args, parts, local=2, accumulate=2, steps=10, max_norm=1.0)
    return {**j, "spec": spec, "optimizer": {**j["optimizer"], "qk_clip": tau}}


CASES = {"llama3": case("llama3", LLAMA3, 0.2), "llama3_mha": case("llama3", {**LLAMA3, "n_kv_heads": 6}, 0.2),
         "qwen2": case("qwen2", QWEN2, 0.07, LARGE_EPS), "gpt2": case("gpt2", GPT2, 0.07), "deepseek": case("deepseek_v3", models_golden.DEEPSEEK, 0.04, LARGE_EPS),
         "deepseek_q": case("deepseek_v3", models_golden.DEEPSEEK_Q, 0.05, LARGE_EPS), "muon": case("llama3", {**LLAMA3, "n_kv_heads": 6}, 0.08, MUON)}


def noted_attention(module, query, key, value, attention_mask, scaling=None, **_):
    """Causal attention of [B,H,T,hd], written out; module.largest [H]: the largest logits of the step."""
    heads, keys, width = query.shape[1], key.shape[1], query.shape[-1]
    key, value = (x.repeat_interleave(heads // keys, 1) for x in (key, value))
    scores = query @ key.transpose(2, 3) * (width ** -0.5 if scaling is None else scaling)
    scores = scores.masked_fill(torch.ones_like(scores[0, 0], dtype=torch.bool).triu(1), -torch.inf)
    largest = scores.detach().amax((0, 2, 3))
    module.largest = torch.maximum(module.largest, largest) if hasattr(module, "largest") else largest
    return (scores.softmax(-1) @ value).transpose(1, 2).contiguous(), None


AttentionInterface.register("noted", noted_attention)
AttentionMaskInterface.register("noted", lambda *_, **__: None)


def rows(linear, first, n, heads, powers):
    """The views of a layer's weight and bias of `heads` heads from row `first` on: [(part [heads, width, …], power of gamma)]."""
    out = []
    for p in (linear.weight, linear.bias):
        if p is None:
            continue
        x, at = p.data[first:first + n].view(heads, n // heads, *p.shape[1:]), 0
        for width, power in powers:
            out.append((x[:, at:at + width], power))
            at += width
    return out


def parts_of(spec, args, attention):
    """What QK-clip multiplies in an attention layer, by head. Where heads share a key, the queries have the whole factor."""
    heads = args["n_heads"]
    if spec == "gpt2":  # Conv1D: weights are [in, out], of queries, keys and values
        class T:
            weight, bias = attention.c_attn.weight.data.t(), attention.c_attn.bias.data
        d = args["dim"]
        out = []
        for first in (0, d):
            for p in (T.weight, T.bias):
                out.append((p[first:first + d].unflatten(0, (heads, d // heads)), 0.5))
        return out
    if spec == "deepseek_v3":
        n, r, v = args["qk_nope_head_dim"], args["qk_rope_head_dim"], args["v_head_dim"]
        q = attention.q_proj if args.get("q_lora_rank") is None else attention.q_b_proj
        return (rows(q, 0, heads * (n + r), heads, [(n, 0.5), (r, 1.0)]) +
                rows(attention.kv_b_proj, 0, heads * (n + v), heads, [(n, 0.5)]))
    keys, hd = args["n_kv_heads"], attention.q_proj.weight.shape[0] // heads
    own = keys == heads
    return (rows(attention.q_proj, 0, heads * hd, heads, [(hd, 0.5 if own else 1.0)]) +
            (rows(attention.k_proj, 0, heads * hd, heads, [(hd, 0.5)]) if own else []))


@torch.no_grad()
def clip(m, j):
    """After an update: (heads above tau, the smallest relative distance of a logit to tau)."""
    tau, n, near = j["optimizer"]["qk_clip"], 0, math.inf
    args = models_golden.all_args(j["spec"], j["model"]["args"])
    for attention in [x for x in m.modules() if hasattr(x, "largest")]:
        gamma = (tau / attention.largest.clamp(min=tau))
        n += int((attention.largest > tau).sum())
        near = min(near, float((attention.largest / tau - 1).abs().min()))
        for part, power in parts_of(j["spec"], args, attention):
            part.mul_(gamma.pow(power).view(-1, *[1] * (part.dim() - 1)))
        del attention.largest
    return n, near


def train(init, j, dtype):
    m = models_golden.module(init, j, dtype)
    m.set_attn_implementation("noted")
    clips = []

    def compute(_, j, step):
        if step:  # after the update of the step before
            clips.append(clip(m, j))
        return models_golden.backward(m, j, step)[0], {}

    steps, _, final = oracle.train_values(dict(m.named_parameters()), j, compute)
    clips.append(clip(m, j))
    final = {n: p.detach() for n, p in m.named_parameters()}
    return steps, models_golden.FAMILY[j["spec"]][2](final), clips


def golden(name, j, ttrun):
    init = {n: x for n, x in oracle.initial_values(ttrun, j).items() if not n.endswith(models_golden.BUFFER)}
    (steps, final, clips), steps32 = train(init, j, torch.float64), train(init, j, torch.float32)[0]
    counts, heads = [n for n, _ in clips], j["model"]["args"]["n_heads"] * j["model"]["args"]["n_layers"]
    assert any(0 < n < heads for n in counts) and max(counts) > heads // 2, counts
    assert min(near for _, near in clips) > 1e-4, clips
    f32 = {"loss": max(abs(a["loss"] - b["loss"]) for a, b in zip(steps32, steps)),
           "grad_norm": max(abs(a["grad_norm"] / b["grad_norm"] - 1) for a, b in zip(steps32, steps))}
    kept = {n: x for n, x in final.items() if any(p in n for p in ("q_proj", "q_b_proj", "k_proj", "kv_b_proj", "attn.q.", "attn.k."))}
    oracle.write(f"qk_clip_{name}", {"made_by": models_golden.made_by().replace("models_golden", "qk_clip_golden"), "job": j, "float32": f32,
                                     "steps": steps, "clipped": counts, "final": oracle.summary(kept)})
    print(f"{name}: float32 loss {f32['loss']:.1e}, norm {f32['grad_norm']:.1e}; loss {steps[0]['loss']:.6f} -> {steps[-1]['loss']:.6f}; "
          f"of {heads} heads clipped {counts}")


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--ttrun", default=os.path.join(oracle.ROOT, "ttrun"))
    ap.add_argument("--only")
    o = ap.parse_args()
    for name, j in CASES.items():
        if o.only in (None, name):
            golden(name, j, o.ttrun)


if __name__ == "__main__":
    main()
