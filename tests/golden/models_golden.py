# SPDX-License-Identifier: Apache-2.0
"""Writes tests/golden/oracle/{gpt2,qwen2,qwen3,mistral,gemma,phi3,olmo3,smollm3,…}….json: the first step of small random models, or
ten steps of AdamW (NAME_adamw), as transformers' own GPT2LMHeadModel, Qwen2ForCausalLM … have them, in float64. Run from the root
after `make`:

    python tests/golden/models_golden.py [--ttrun ./ttrun] [--only CASE]

The files are those of oracle.py's cases, which says what is in them; the text, the samples and the initial
values come as there. gpt2's c_attn is put together from q, k and v, and its gradient taken apart."""
import argparse
import math
import os
import zlib

import torch
import torch.nn.functional as F
import transformers
from transformers import (DeepseekV2Config, DeepseekV2ForCausalLM, DeepseekV3Config, DeepseekV3ForCausalLM, Gemma2Config, Gemma2ForCausalLM, Gemma3ForCausalLM, Gemma3TextConfig, GemmaConfig, GemmaForCausalLM,
                          Glm4MoeConfig, Glm4MoeForCausalLM,
                          GptOssConfig, GptOssForCausalLM, GPT2Config, GPT2LMHeadModel, MistralConfig, MistralForCausalLM, MixtralConfig, Llama4ForCausalLM, Llama4TextConfig,
                          MixtralForCausalLM, Olmo2Config, Olmo2ForCausalLM,
                          Olmo3Config, Olmo3ForCausalLM, Phi3Config, Phi3ForCausalLM, Qwen2Config, Qwen2ForCausalLM,
                          Qwen3Config, Qwen3ForCausalLM, Qwen3MoeConfig, Qwen3MoeForCausalLM, Qwen3NextConfig, Qwen3NextForCausalLM, SmolLM3Config, SmolLM3ForCausalLM)

from transformers.models.qwen3_next import modeling_qwen3_next

import oracle

GPT2 = {"dim": 96, "n_layers": 3, "n_heads": 6, "hidden_dim": 211, "vocab_size": 777, "n_positions": 41, "norm_eps": 1e-5,
        "tie_embeddings": True}
QWEN3 = {"dim": 72, "n_layers": 3, "n_heads": 6, "n_kv_heads": 2, "head_dim": 16, "hidden_dim": 211, "vocab_size": 777,
         "norm_eps": 1e-6, "rope_theta": 1e6, "tie_embeddings": True}
QWEN2 = {"dim": 84, "n_layers": 3, "n_heads": 6, "n_kv_heads": 2, "hidden_dim": 211, "vocab_size": 777, "norm_eps": 1e-6,
         "rope_theta": 1e6, "tie_embeddings": True}
QWEN2_WINDOW = {**QWEN2, "tie_embeddings": False, "use_sliding_window": True, "sliding_window": 11, "max_window_layers": 1}
MISTRAL = {"dim": 72, "n_layers": 3, "n_heads": 6, "n_kv_heads": 2, "head_dim": 16, "hidden_dim": 211, "vocab_size": 777,
           "norm_eps": 1e-5, "rope_theta": 1e4, "sliding_window": 9}
GEMMA = {"dim": 48, "n_layers": 3, "n_heads": 6, "n_kv_heads": 1, "head_dim": 12, "hidden_dim": 111, "vocab_size": 277}
GEMMA2 = {"dim": 48, "n_layers": 3, "n_heads": 6, "n_kv_heads": 2, "head_dim": 12, "hidden_dim": 111, "vocab_size": 277,
          "sliding_window": 9, "query_pre_attn_scalar": 20, "attn_logit_softcapping": 2.5, "final_logit_softcapping": 3.5}
GEMMA3 = {**{k: v for k, v in GEMMA2.items() if "softcapping" not in k}, "rope_local_base_freq": 5e3,
          "sliding_window_pattern": 3, "rope_scaling": {"rope_type": "linear", "factor": 8.0}}
PHI3 = {"dim": 72, "n_layers": 3, "n_heads": 6, "n_kv_heads": 2, "hidden_dim": 111, "vocab_size": 277, "sliding_window": 13,
        "partial_rotary_factor": 0.67, "rope_scaling": {
            "rope_type": "longrope", "factor": 4.0, "original_max_position_embeddings": 16,
            "short_factor": [1.0, 1.1, 1.2, 1.3], "long_factor": [1.5, 2.5, 5.0, 11.0]}}
OLMO2 = {"dim": 48, "n_layers": 3, "n_heads": 6, "n_kv_heads": 2, "hidden_dim": 111, "vocab_size": 277}
LAYERS = ["sliding_attention", "full_attention", "sliding_attention"]
OLMO3 = {**OLMO2, "sliding_window": 9, "sliding_window_pattern": 2, "rope_scaling": oracle.YARN}
SMOLLM3 = {**OLMO2, "no_rope_layer_interval": 2, "use_sliding_window": True, "sliding_window": 7, "layer_types": LAYERS,
           "attention_bias": True, "mlp_bias": True}
# 5 experts and 7, so that no mesh divides them; a layer without experts; the loss of transformers over all layers
MIXTRAL = {"dim": 48, "n_layers": 3, "n_heads": 6, "n_kv_heads": 2, "hidden_dim": 37, "vocab_size": 277, "num_experts": 5,
           "num_experts_per_tok": 2}
QWEN3_MOE = {"dim": 48, "n_layers": 3, "n_heads": 6, "n_kv_heads": 2, "head_dim": 12, "hidden_dim": 61, "vocab_size": 277,
             "num_experts": 7, "num_experts_per_tok": 3, "moe_intermediate_size": 29, "norm_topk_prob": False,
             "mlp_only_layers": [1]}
QWEN3_MOE_AUX = {**QWEN3_MOE, "norm_topk_prob": True, "mlp_only_layers": [], "output_router_logits": True,
                 "router_aux_loss_coef": 0.5, "layer_balance_loss_coef": 0.3, "sequence_balance_loss_coef": 0.7,
                 "router_z_loss_coef": 0.01}
# losses that do not depend on how a step is cut into micro-batches
QWEN3_MOE_EACH = {**QWEN3_MOE, "router_z_loss_coef": 0.02, "sequence_balance_loss_coef": 0.4}

# delta nets of 2 groups of 3 heads around a layer of attention; a layer without experts
QWEN3_NEXT = {**QWEN3_MOE, "num_experts": 6, "partial_rotary_factor": 0.5, "norm_topk_prob": True, "mlp_only_layers": [2], "full_attention_interval": 2,
              "linear_num_key_heads": 2, "linear_num_value_heads": 6, "linear_key_head_dim": 10, "linear_value_head_dim": 7,
              "linear_conv_kernel_dim": 3, "shared_expert_intermediate_size": 19}
QWEN3_NEXT_AUX = {**QWEN3_NEXT, "mlp_only_layers": [], "output_router_logits": True, "router_aux_loss_coef": 0.5}

# heads of 12 + 6 and 10, of which nothing divides anything; layers without experts
DEEPSEEK = {"dim": 48, "n_layers": 3, "n_heads": 6, "hidden_dim": 111, "vocab_size": 277, "q_lora_rank": 21, "kv_lora_rank": 19,
            "qk_nope_head_dim": 12, "qk_rope_head_dim": 6, "v_head_dim": 10, "first_k_dense_replace": 3, "attention_bias": True,
            "rope_scaling": {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 16, "mscale": 0.707,
                             "mscale_all_dim": 1.3}}
DEEPSEEK_Q = {**{k: v for k, v in DEEPSEEK.items() if k not in ("q_lora_rank", "attention_bias")}, "rope_interleave": False,
              "rope_scaling": None}
# 7 experts of 17; the second layer sees all tokens
GPT_OSS = {"dim": 48, "n_layers": 3, "n_heads": 6, "n_kv_heads": 2, "head_dim": 12, "hidden_dim": 17, "vocab_size": 277,
           "num_experts": 7, "num_experts_per_tok": 3, "sliding_window": 9,
           "rope_scaling": {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 16, "truncate": False}}
# V3's routers, and V2's; 6 groups of 2 experts. The counts of experts take no part in the gradients.
DEEPSEEK_MOE = {**DEEPSEEK_Q, "rope_interleave": True, "first_k_dense_replace": 1, "num_experts": 12, "num_experts_per_tok": 3,
                "moe_intermediate_size": 23, "n_shared_experts": 1, "n_group": 6, "topk_group": 2, "norm_topk_prob": True,
                "routed_scaling_factor": 2.5}
DEEPSEEK_V2 = {**DEEPSEEK_MOE, "kv_lora_rank": 20, "topk_method": "group_limited_greedy", "norm_topk_prob": False, "routed_scaling_factor": 1.7,
               "n_shared_experts": 2}
# Kimi-K2's positions: scaled without a ramp; one group
KIMI_K2 = {**DEEPSEEK_MOE, "q_lora_rank": 21, "n_group": 1, "topk_group": 1, "routed_scaling_factor": 2.827, "rope_theta": 50.0,
           "rope_scaling": {"rope_type": "yarn", "factor": 32.0, "beta_fast": 1.0, "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0,
                            "original_max_position_embeddings": 16}}
# heads of 14, of which 6 elements are rotated; 6 groups of 2 experts; Air's have no norms of heads
GLM4_MOE = {"dim": 48, "n_layers": 3, "n_heads": 6, "n_kv_heads": 2, "head_dim": 14, "hidden_dim": 61, "vocab_size": 277,
            "partial_rotary_factor": 0.43, "num_experts": 12, "num_experts_per_tok": 3, "moe_intermediate_size": 23, "n_group": 6,
            "topk_group": 2, "routed_scaling_factor": 2.5, "num_nextn_predict_layers": 1}
GLM4_AIR = {**GLM4_MOE, "use_qk_norm": False, "attention_bias": False, "n_group": 1, "topk_group": 1, "n_shared_experts": 2,
            "norm_topk_prob": False, "num_nextn_predict_layers": 0, "partial_rotary_factor": 0.5, "head_dim": 12}

# chunks of 11 of the 37 tokens, no positions in the third layer; every second layer has experts
LLAMA4 = {"dim": 48, "n_layers": 4, "n_heads": 6, "n_kv_heads": 2, "head_dim": 12, "hidden_dim": 61, "moe_intermediate_size": 23,
          "vocab_size": 277, "num_experts": 6, "no_rope_layer_interval": 3, "attention_chunk_size": 11, "floor_scale": 5, "attn_scale": 0.7,
          "interleave_moe_layer_step": 2, "rope_scaling": {**oracle.LLAMA3, "original_max_position_embeddings": 16}}
LLAMA4_TWO = {**LLAMA4, "n_layers": 3, "num_experts_per_tok": 2, "use_qk_norm": False, "attention_chunk_size": None, "attention_bias": True,
              "interleave_moe_layer_step": 1, "rope_scaling": None}
# more choices than an op has operands
LLAMA4_MANY = {**LLAMA4_TWO, "num_experts": 20, "num_experts_per_tok": 18, "moe_intermediate_size": 7}


def job(spec, args, accumulate=2):
    return {**oracle.job(args, oracle.GRADIENT, local=4 // accumulate, accumulate=accumulate), "spec": spec}


CASES = {"gpt2": job("gpt2", GPT2), "gpt2_untied": job("gpt2", {**GPT2, "tie_embeddings": False}),
         "qwen3": job("qwen3", QWEN3), "qwen3_untied": job("qwen3", {**QWEN3, "tie_embeddings": False}),
         "qwen2": job("qwen2", QWEN2), "qwen2_window": job("qwen2", QWEN2_WINDOW), "mistral": job("mistral", MISTRAL),
         "gemma": job("gemma", GEMMA), "olmo3": job("olmo3", OLMO3), "smollm3": job("smollm3", SMOLLM3),
         "gemma2": job("gemma2", GEMMA2), "gemma3": job("gemma3", GEMMA3), "phi3": job("phi3", PHI3), "olmo2": job("olmo2", OLMO2),
         "deepseek": job("deepseek_v3", DEEPSEEK), "deepseek_q": job("deepseek_v3", DEEPSEEK_Q),
         "deepseek_v3": job("deepseek_v3", DEEPSEEK_MOE), "deepseek_mtp": job("deepseek_v3", {**DEEPSEEK_MOE, "num_nextn_predict_layers": 2}), "deepseek_v2": job("deepseek_v3", DEEPSEEK_V2),
         "kimi_k2": job("deepseek_v3", KIMI_K2), "glm4_moe": job("glm4_moe", GLM4_MOE), "glm4_air": job("glm4_moe", GLM4_AIR),
         "llama4": job("llama4", LLAMA4), "llama4_two": job("llama4", LLAMA4_TWO),
         "gpt_oss": job("gpt_oss", GPT_OSS),
         "mixtral": job("mixtral", MIXTRAL), "qwen3_moe": job("qwen3_moe", QWEN3_MOE),
         "qwen3_moe_aux": job("qwen3_moe", QWEN3_MOE_AUX, accumulate=1),
         "qwen3_moe_each": job("qwen3_moe", QWEN3_MOE_EACH),
         "qwen3_next": job("qwen3_next", QWEN3_NEXT), "qwen3_next_aux": job("qwen3_next", QWEN3_NEXT_AUX, accumulate=1)}


def ten_steps(spec, args):
    return {**oracle.job(args, oracle.ADAMW, local=2, accumulate=2, steps=10, max_norm=1.0), "spec": spec}


TEN = {name + "_adamw": ten_steps(*case) for name, case in {
    "mixtral": ("mixtral", MIXTRAL), "qwen3_moe": ("qwen3_moe", QWEN3_MOE), "gpt_oss": ("gpt_oss", GPT_OSS),
    "deepseek_v3": ("deepseek_v3", DEEPSEEK_MOE), "kimi_k2": ("deepseek_v3", KIMI_K2), "glm4_moe": ("glm4_moe", GLM4_MOE),
    "llama4": ("llama4", LLAMA4), "llama4_many": ("llama4", LLAMA4_MANY), "qwen3_next": ("qwen3_next", QWEN3_NEXT)}.items()}


def gpt2_model(a):
    return GPT2LMHeadModel(GPT2Config(n_embd=a["dim"], n_layer=a["n_layers"], n_head=a["n_heads"], n_inner=a["hidden_dim"],
                                      vocab_size=a["vocab_size"], n_positions=a["n_positions"],
                                      layer_norm_epsilon=a["norm_eps"], bos_token_id=None, eos_token_id=None,
                                      tie_word_embeddings=a["tie_embeddings"],
                                      attn_implementation="eager"))


# the defaults of our models, and what they make of their arguments
DEFAULTS = {"gpt_oss": dict(norm_eps=1e-5, rope_theta=1.5e5, num_local_experts=7),
            "deepseek_v3": dict(norm_eps=1e-6, rope_theta=1e4, q_lora_rank=None, n_kv_heads=None, num_experts=8),
            "glm4_moe": dict(norm_eps=1e-5, rope_theta=1e6, use_qk_norm=True, attention_bias=True, n_shared_experts=1,
                             norm_topk_prob=True, first_k_dense_replace=1),
            "llama4": dict(norm_eps=1e-5, rope_theta=5e5, num_experts_per_tok=1, use_qk_norm=True, attention_bias=False),
            "gemma": dict(norm_eps=1e-6, rope_theta=1e4, tie_embeddings=True),
            "olmo3": dict(norm_eps=1e-6, rope_theta=5e5, rope_local_base_freq=5e5, layer_types=LAYERS),
            "smollm3": dict(norm_eps=1e-6, rope_theta=5e6, tie_embeddings=True),
            "gemma2": dict(norm_eps=1e-6, rope_theta=1e4, tie_embeddings=True), "gemma3": dict(norm_eps=1e-6, rope_theta=1e6,
            tie_embeddings=True), "phi3": dict(norm_eps=1e-5, rope_theta=1e4), "olmo2": dict(norm_eps=1e-6, rope_theta=5e5),
            "mixtral": dict(norm_eps=1e-5, rope_theta=1e6), "qwen3_moe": dict(norm_eps=1e-6, rope_theta=1e6),
            "qwen3_next": dict(norm_eps=1e-6, rope_theta=1e7)}


def all_args(spec, args):
    return {**DEFAULTS.get(spec, {}), **args}


def rope_of(a):
    rope = {"rope_theta": a["rope_theta"], "rope_type": "default", **(a.get("rope_scaling") or {})}
    if "partial_rotary_factor" in a:
        rope["partial_rotary_factor"] = a["partial_rotary_factor"]
    if "rope_local_base_freq" in a:
        return {"full_attention": rope, "sliding_attention": {"rope_type": "default", "rope_theta": a["rope_local_base_freq"]}}
    return rope


def llama_like(config, model, *more):
    """A builder of models that share Llama's arguments; more: arguments that only this one has, under transformers' names."""
    def build(a):
        return model(config(hidden_size=a["dim"], num_hidden_layers=a["n_layers"], num_attention_heads=a["n_heads"],
                            num_key_value_heads=a["n_kv_heads"], intermediate_size=a["hidden_dim"],
                            vocab_size=a["vocab_size"], rms_norm_eps=a["norm_eps"],
                            tie_word_embeddings=a.get("tie_embeddings", False),
                            rope_parameters=rope_of(a), pad_token_id=None,
                            max_position_embeddings=256, attn_implementation="eager", experts_implementation="eager",
                            **{k: a["rope_scaling"][k] for k in ("original_max_position_embeddings",)
                               if k in (a.get("rope_scaling") or {})},
                            **{key: a[key] for key in more if key in a}))
    return build


def gpt2_to_file(t):
    """ttrun's tensors under the names and in the shapes of a file: R14's storage map, written out a second time."""
    out = {}
    for name, x in t.items():
        if ".attn.q." in name:
            parts = [t[name.replace(".attn.q.", f".attn.{p}.")] for p in "qkv"]
            out[name.replace(".attn.q.", ".attn.c_attn.")] = torch.cat(parts).t()
        elif ".attn.k." not in name and ".attn.v." not in name:
            out[name] = x.t() if ".c_" in name else x
    return out


def gpt2_from_file(t):
    out = {}
    for name, x in t.items():
        if ".c_attn." in name:
            for p, part in zip("qkv", x.t().chunk(3)):
                out[name.replace("c_attn", p)] = part
        else:
            out[name] = x.t() if ".c_" in name else x
    return out


PHI3_PARTS = {"qkv_proj": ("q_proj", "k_proj", "v_proj"), "gate_up_proj": ("gate_proj", "up_proj")}


def phi3_to_file(t):
    out = dict(t)
    for whole, parts in PHI3_PARTS.items():
        for name in [n for n in t if parts[0] in n]:
            out[name.replace(parts[0], whole)] = torch.cat([out.pop(name.replace(parts[0], p)) for p in parts])
    return out


def phi3_from_file(t):
    out = dict(t)
    for name in t:
        for whole, parts in PHI3_PARTS.items():
            if whole in name:
                x = out.pop(name)
                sizes = [len(x) // 2] * 2 if whole == "gate_up_proj" else [PHI3["dim"]] + [(len(x) - PHI3["dim"]) // 2] * 2
                out |= {name.replace(whole, p): part for p, part in zip(parts, x.split(sizes))}
    return out


def same(t):
    return t


# ttrun's names of an expert's gate, up and down
EXPERTS = {"glm4_moe": tuple(f"mlp.experts.{p}_proj" for p in ("gate", "up", "down")),
           "deepseek_v3": tuple(f"mlp.experts.{p}_proj" for p in ("gate", "up", "down")),
           "mixtral": ("block_sparse_moe.experts.w1", "block_sparse_moe.experts.w3", "block_sparse_moe.experts.w2"),
           "qwen3_moe": tuple(f"mlp.experts.{p}_proj" for p in ("gate", "up", "down")),
           "qwen3_next": tuple(f"mlp.experts.{p}_proj" for p in ("gate", "up", "down"))}


def moe_maps(spec):
    """gate and up [E,F,D] are gate_up_proj [E,2F,D] in transformers' modules."""
    gate, up, down = EXPERTS[spec]

    def to_module(t):
        out = {}
        for name, x in t.items():
            if gate in name:
                both = torch.cat([x, t[name.replace(gate, up)]], 1)
                out[name.replace(gate + ".weight", "mlp.experts.gate_up_proj")] = both
            elif up not in name:
                name = name.replace(down + ".weight", "mlp.experts.down_proj")
                out[name.replace("block_sparse_moe.gate", "mlp.gate")] = x
        return out

    def from_module(t):
        out = {}
        for name, x in t.items():
            if "gate_up_proj" in name:
                for p, part in zip((gate, up), x.chunk(2, 1)):
                    out[name.replace("mlp.experts.gate_up_proj", p + ".weight")] = part
            else:
                name = name.replace("mlp.experts.down_proj", down + ".weight")
                out[name.replace("mlp.gate.", down.split(".")[0] + ".gate.") if "mlp.gate." in name else name] = x
        return out

    return to_module, from_module


QWEN3_NEXT_KEYS = ("head_dim", "num_experts", "num_experts_per_tok", "moe_intermediate_size", "norm_topk_prob", "mlp_only_layers",
                   "output_router_logits", "router_aux_loss_coef", "full_attention_interval", "linear_num_key_heads",
                   "linear_num_value_heads", "linear_key_head_dim", "linear_value_head_dim", "linear_conv_kernel_dim",
                   "shared_expert_intermediate_size")
CHUNKED = modeling_qwen3_next.torch_chunk_gated_delta_rule
CONVOLVED = [f"conv1d.{p}_weight" for p in "qkv"]


def next_to_module(t):
    """The weights of the convolution of queries, keys and values are one tensor."""
    out = moe_maps("qwen3_next")[0](t)
    for name in [n for n in out if n.endswith(CONVOLVED[0])]:
        parts = [out.pop(name.replace(CONVOLVED[0], p)) for p in CONVOLVED]
        out[name.replace("q_weight", "weight")] = torch.cat(parts)
    return out


def next_from_module(t):
    out = moe_maps("qwen3_next")[1](t)
    for name in [n for n in out if n.endswith("conv1d.weight")]:
        keys = QWEN3_NEXT["linear_num_key_heads"] * QWEN3_NEXT["linear_key_head_dim"]
        values = QWEN3_NEXT["linear_num_value_heads"] * QWEN3_NEXT["linear_value_head_dim"]
        for p, part in zip(CONVOLVED, out.pop(name).split([keys, keys, values])):
            out[name.replace("conv1d.weight", p)] = part
    return out


def gated_delta_rule(query, key, value, g, beta, **_):
    """The recurrence token by token in the dtype of its operands; transformers' computes in float32 whatever they are."""
    length = lambda x: x * torch.rsqrt((x * x).sum(-1, keepdim=True) + 1e-6)
    repeat = value.shape[2] // key.shape[2]
    q, k = (length(x).repeat_interleave(repeat, 2) for x in (query, key))
    state, out = torch.zeros(*value.shape[:1], value.shape[2], key.shape[3], value.shape[3], dtype=value.dtype), []
    for t in range(value.shape[1]):
        state = state * g[:, t].exp()[..., None, None]
        delta = (value[:, t] - torch.einsum("bhkv,bhk->bhv", state, k[:, t])) * beta[:, t][..., None]
        state = state + torch.einsum("bhk,bhv->bhkv", k[:, t], delta)
        out.append(torch.einsum("bhkv,bhk->bhv", state, q[:, t]) / key.shape[3]**0.5)
    return torch.stack(out, 1), state


DEEPSEEK_KEYS = ("q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim", "first_k_dense_replace",
                 "attention_bias", "num_experts_per_tok", "moe_intermediate_size", "n_shared_experts", "n_group", "topk_group",
                 "norm_topk_prob", "routed_scaling_factor")


def deepseek(a):
    v2 = a.get("topk_method", "noaux_tc") != "noaux_tc"
    config, model = (DeepseekV2Config, DeepseekV2ForCausalLM) if v2 else (DeepseekV3Config, DeepseekV3ForCausalLM)
    keys = DEEPSEEK_KEYS + (("topk_method", ) if v2 else ("rope_interleave",))
    a = {**a, "n_routed_experts": a["num_experts"]}
    return with_mtp(llama_like(config, model, "n_routed_experts", *keys)(a), a)


GLM4_KEYS = ("head_dim", "first_k_dense_replace", "attention_bias", "use_qk_norm", "num_experts_per_tok", "moe_intermediate_size",
             "n_shared_experts", "n_group", "topk_group", "norm_topk_prob", "routed_scaling_factor")


def glm4_moe(a):
    a = {**a, "n_routed_experts": a["num_experts"]}
    return with_mtp(llama_like(Glm4MoeConfig, Glm4MoeForCausalLM, "n_routed_experts", *GLM4_KEYS)(a), a)


LLAMA4_KEYS = ("head_dim", "intermediate_size_mlp", "num_local_experts", "num_experts_per_tok", "no_rope_layer_interval",
               "attention_chunk_size", "floor_scale", "attn_scale", "interleave_moe_layer_step", "use_qk_norm", "attention_bias")


def llama4(a):
    a = {**a, "intermediate_size_mlp": a["hidden_dim"], "hidden_dim": a["moe_intermediate_size"], "num_local_experts": a["num_experts"]}
    return llama_like(Llama4TextConfig, Llama4ForCausalLM, *LLAMA4_KEYS)(a)


def with_mtp(m, a):
    for i in range(a.get("num_nextn_predict_layers", 0)):  # forward() runs config.num_hidden_layers of them
        m.model.layers.append(mtp_block(m, a["n_layers"] + i))
    return m


def mtp_block(m, layer):
    config, block = m.config, type(m.model.layers[0])(m.config, layer)
    norm = lambda: type(m.model.norm)(config.hidden_size, eps=config.rms_norm_eps)
    block.enorm, block.hnorm, block.eh_proj = norm(), norm(), torch.nn.Linear(2 * config.hidden_size, config.hidden_size, bias=False)
    block.shared_head = torch.nn.Module()
    block.shared_head.norm = norm()
    return block


def ahead(x, k, fill):
    return F.pad(x[:, k:], (0, k), value=fill)


def mtp_losses(m, args, ids, labels, pos, h):
    """Multi-token prediction, written out: h is what the last block gives, before its norm."""
    n, out = args.get("num_nextn_predict_layers", 0), {}
    causal = torch.full((ids.shape[1], ids.shape[1]), -torch.inf, dtype=h.dtype).triu(1)[None, None]
    for k in range(1, n + 1):
        block = m.model.layers[args["n_layers"] + k - 1]
        e = m.model.embed_tokens(ahead(ids, k, 0))
        x = block.eh_proj(torch.cat([block.enorm(e), block.hnorm(h)], -1))
        x = block(x, attention_mask=causal, position_ids=pos, position_embeddings=m.model.rotary_emb(x, pos))
        h = block.shared_head.norm(x[0] if isinstance(x, tuple) else x)
        sums = F.cross_entropy(m.lm_head(h).flatten(0, 1), ahead(labels, k, -100).flatten(), reduction="sum")
        out[f"mtp_{k}"] = sums / (labels >= 0).sum(), 0.3 / n
    return out


FAMILY = {"gpt_oss": (llama_like(GptOssConfig, GptOssForCausalLM, "head_dim", "num_local_experts", "num_experts_per_tok",
                                 "sliding_window"), same, same),
          "llama4": (llama4, same, same), "glm4_moe": (glm4_moe, *moe_maps("glm4_moe")), "deepseek_v3": (deepseek, *moe_maps("deepseek_v3")),
          "gpt2": (gpt2_model, gpt2_to_file, gpt2_from_file), "qwen3": (llama_like(Qwen3Config, Qwen3ForCausalLM, "head_dim"), same, same),
          "qwen2": (llama_like(Qwen2Config, Qwen2ForCausalLM, "use_sliding_window", "sliding_window", "max_window_layers"),
                    same, same),
          "gemma": (llama_like(GemmaConfig, GemmaForCausalLM, "head_dim"), same, same),
          "olmo3": (llama_like(Olmo3Config, Olmo3ForCausalLM, "sliding_window", "layer_types"), same, same),
          "smollm3": (llama_like(SmolLM3Config, SmolLM3ForCausalLM, "no_rope_layer_interval", "use_sliding_window",
                                 "sliding_window", "layer_types", "attention_bias", "mlp_bias"), same, same),
          "gemma2": (llama_like(Gemma2Config, Gemma2ForCausalLM, "head_dim", "sliding_window", "query_pre_attn_scalar",
                                "attn_logit_softcapping", "final_logit_softcapping"), same, same),
          "gemma3": (llama_like(Gemma3TextConfig, Gemma3ForCausalLM, "head_dim", "sliding_window", "query_pre_attn_scalar",
                                "sliding_window_pattern"), same, same),
          "phi3": (llama_like(Phi3Config, Phi3ForCausalLM, "sliding_window"), phi3_to_file, phi3_from_file),
          "olmo2": (llama_like(Olmo2Config, Olmo2ForCausalLM), same, same),
          "mixtral": (llama_like(MixtralConfig, MixtralForCausalLM, "num_experts", "num_experts_per_tok"), *moe_maps("mixtral")),
          "qwen3_moe": (llama_like(Qwen3MoeConfig, Qwen3MoeForCausalLM, "head_dim", "num_experts", "num_experts_per_tok",
                                   "moe_intermediate_size", "norm_topk_prob", "mlp_only_layers", "output_router_logits",
                                   "router_aux_loss_coef"), *moe_maps("qwen3_moe")),
          "qwen3_next": (llama_like(Qwen3NextConfig, Qwen3NextForCausalLM, *QWEN3_NEXT_KEYS), next_to_module, next_from_module),
          "mistral": (llama_like(MistralConfig, MistralForCausalLM, "head_dim", "sliding_window"), same, same)}


BUFFER = "e_score_correction_bias"  # no parameter, and 0 at first


def router_losses(logits, args, sequences):
    """The losses that transformers does not have, written out: name → (value, weight). logits: [tokens, experts] of each layer."""
    k, out = args.get("num_experts_per_tok"), {}
    p = [x.softmax(-1) for x in logits]
    slots = [F.one_hot(x.topk(k).indices, x.shape[-1]).sum(1).to(x.dtype) for x in p]

    def balance(p, slots):  # [T, E] of T tokens: E / (k T^2) * sum over e of slots_e * p_e
        t, e = p.shape
        return e / (k * t * t) * (slots.sum(0) * p.sum(0)).sum()

    each = [[balance(*pair) for pair in zip(x.chunk(sequences), s.chunk(sequences))] for x, s in zip(p, slots)]
    values = {"layer_balance": sum(balance(x, s) for x, s in zip(p, slots)),
              "sequence_balance": sum(sum(x) / len(x) for x in each),
              "router_z": sum(x.logsumexp(-1).pow(2).mean() for x in logits)}
    for name, key in (("layer_balance", "layer_balance_loss_coef"), ("sequence_balance", "sequence_balance_loss_coef"),
                      ("router_z", "router_z_loss_coef")):
        if args.get(key):
            out[name] = values[name], args[key]
    return out


def module(init, j, dtype):
    """transformers' model with these values."""
    build, to_file, _ = FAMILY[j["spec"]]
    args = all_args(j["spec"], j["model"]["args"])
    modeling_qwen3_next.torch_chunk_gated_delta_rule = gated_delta_rule if dtype == torch.float64 else CHUNKED
    m = build(args).to(dtype).eval()  # eval: no dropout
    missing, unexpected = m.load_state_dict({n: x.to(dtype) for n, x in to_file(init).items()}, strict=False)
    tied = args.get("tie_embeddings", False)
    missing = {n for n in missing if not n.endswith(BUFFER)}
    assert not unexpected and missing <= ({"lm_head.weight"} if tied else set()), (missing, unexpected)
    m.tie_weights()
    return m


def backward(m, j, step):
    """The loss of a step (from 0) and {name: (value, weight)} of further losses; gradients are left in the parameters."""
    args, n = all_args(j["spec"], j["model"]["args"]), j["training"]["global_batch_size"]
    ids, labels, pos, _ = oracle.batch(j, step * n, n)
    moe = {"output_router_logits": True} if "num_experts" in args else {}
    last, hooks = [], []
    if args.get("num_nextn_predict_layers"):
        hooks.append(m.model.norm.register_forward_pre_hook(lambda module, x: last.append(x[0])))
    out = m(input_ids=ids, position_ids=pos, **moe)
    for h in hooks:
        h.remove()
    loss = F.cross_entropy(out.logits.flatten(0, 1), labels.flatten())
    more = router_losses(out.router_logits, args, len(ids)) if moe else {}
    if last:
        more |= mtp_losses(m, args, ids, labels, pos, last[0])
    if args.get("output_router_logits"):
        more["load_balance"] = out.aux_loss, m.router_aux_loss_coef
    m.zero_grad()
    (loss + sum(w * v for v, w in more.values())).backward()
    return loss.item(), more


def first_step(init, j, dtype):
    """Loss, norm of the gradient, the gradients by ttrun's names, and the losses besides the cross-entropy."""
    m = module(init, j, dtype)
    loss, more = backward(m, j, 0)
    g = FAMILY[j["spec"]][2]({n: p.grad for n, p in m.named_parameters()})  # a tied weight is named once
    assert set(g) == set(init), set(g) ^ set(init)
    return loss, math.sqrt(sum(x.double().pow(2).sum().item() for x in g.values())), g, {n: v.item() for n, (v, _) in more.items()}


def balanced(m, rate):
    """Calls the returned function after a step: the biases of the choice, which transformers only reads, move as DeepSeek-V3's."""
    slots = {r: 0 for r in m.modules() if hasattr(r, BUFFER)}

    def count(router, _, out):
        slots[router] += F.one_hot(out[2].flatten(), router.num_experts).sum(0)

    def move():
        for r, n in slots.items():
            getattr(r, BUFFER).add_(rate * torch.sign(n.sum() - n * len(n)))
            slots[r] = 0

    for r in slots:
        r.register_forward_hook(count)
    return move


def train(init, j, dtype):
    """[{loss, grad_norm, lr}] of the steps, and the parameters after them, by ttrun's names."""
    m = module(init, j, dtype)
    move = balanced(m, 0.001)  # moe_args.h

    def compute(_, j, step):
        loss, more = backward(m, j, step)
        move()
        return loss, {"losses": {n: v.item() for n, (v, _) in more.items()}} if more else {}

    steps, _, final = oracle.train_values(dict(m.named_parameters()), j, compute)
    return steps, FAMILY[j["spec"]][2](final)


def golden_ten(name, j, ttrun):
    init = {n: x for n, x in oracle.initial_values(ttrun, j).items() if not n.endswith(BUFFER)}
    steps, steps32 = train(init, j, torch.float64)[0], train(init, j, torch.float32)[0]
    f32 = {"loss": max(abs(a["loss"] - b["loss"]) for a, b in zip(steps32, steps)),
           "grad_norm": max(abs(a["grad_norm"] / b["grad_norm"] - 1) for a, b in zip(steps32, steps))}
    oracle.write(name, {"made_by": made_by(), "job": j, "float32": f32, "steps": steps})
    print(f"{name}: float32 loss {f32['loss']:.1e}, norm {f32['grad_norm']:.1e}; loss {steps[0]['loss']:.6f} -> {steps[-1]['loss']:.6f}")


def made_by():
    version = torch.__version__.split("+")[0]
    return f"tests/golden/models_golden.py, transformers {transformers.__version__}, PyTorch {version}, float64"


def golden(name, j, ttrun):
    init = {n: x for n, x in oracle.initial_values(ttrun, j).items() if not n.endswith(BUFFER)}
    loss, norm, g, more = first_step(init, j, torch.float64)
    loss32, norm32, g32, _ = first_step(init, j, torch.float32)
    f32 = {"gradient": oracle.deviation(g32, g)[0], "loss": abs(loss32 - loss), "grad_norm": abs(norm32 / norm - 1)}
    out = {"made_by": made_by(), "job": j, "float32": f32, "steps": [{"loss": loss, "grad_norm": norm, "lr": j["optimizer"]["lr"],
                                                                 **({"losses": more} if more else {})}],
           "init": {n: zlib.crc32(p.numpy().tobytes()) for n, p in sorted(init.items())},
           "rms_all": oracle.rms_of(g), "gradients": oracle.summary(g)}
    oracle.write(name, out)
    print(f"{name}: float32 {f32['gradient']:.3f} of the gradients' tolerance, loss {loss:.6f} ({f32['loss']:.1e}), "
          f"norm {norm:.6f} ({f32['grad_norm']:.1e})")


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--ttrun", default=os.path.join(oracle.ROOT, "ttrun"))
    ap.add_argument("--only")
    o = ap.parse_args()
    for name, j in {**CASES, **TEN}.items():
        if o.only in (None, name):
            (golden_ten if name in TEN else golden)(name, j, o.ttrun)


if __name__ == "__main__":
    main()
