# SPDX-License-Identifier: Apache-2.0
"""Hugging Face folders of every model that both have, against transformers, both ways.

  ours → theirs  hf/step-N opens with AutoModelForCausalLM.from_pretrained; its logits are ours with the same folder
  theirs → ours  save_pretrained (f32, f16, bf16, sharded); our logits with its weights and config.json are theirs

Weights are random and large, so that every bias, norm and window shows; logits differ by at most 1e-5.

usage: hf_peer.py [build folder [SPEC...]]"""
import json
import os
import subprocess
import sys
import tempfile

import numpy as np
import torch
import transformers
from transformers import (AutoModelForCausalLM, DeepseekV2Config, DeepseekV2ForCausalLM, DeepseekV3Config, DeepseekV3ForCausalLM,
                          GptOssConfig, GptOssForCausalLM, Gemma2Config, Gemma2ForCausalLM, Gemma3ForCausalLM, Gemma3TextConfig,
                          Glm4MoeConfig, Glm4MoeForCausalLM,
                          GemmaConfig, GemmaForCausalLM, GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM,
                          MistralConfig, MistralForCausalLM, MixtralConfig, MixtralForCausalLM, Llama4ForCausalLM, Llama4TextConfig, Olmo2Config, Olmo2ForCausalLM, Olmo3Config, Olmo3ForCausalLM,
                          Phi3Config, Phi3ForCausalLM, Qwen2Config, Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM,
                          Qwen3MoeConfig, Qwen3MoeForCausalLM, Qwen3NextConfig, Qwen3NextForCausalLM,
                          SmolLM3Config, SmolLM3ForCausalLM)
from safetensors.torch import load_file, save_file
import checks
from checks import check

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else f"{ROOT}/build/release")
SEQ, BATCH, TOLERANCE = 32, 4, 1e-5
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 16}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}
LONGROPE = {"rope_type": "longrope", "factor": 8.0, "original_max_position_embeddings": 16,
            "short_factor": [1.0, 1.1, 1.25, 1.5, 1.75, 2.5], "long_factor": [1.5, 2.0, 3.5, 7.25, 11.0, 19.0]}
BASE = dict(dim=32, n_layers=2, n_heads=4, n_kv_heads=2, hidden_dim=48, vocab_size=262, rope_theta=10000.0, norm_eps=1e-6,
            tie_embeddings=False)
MLA = dict(kv_lora_rank=22, qk_nope_head_dim=10, qk_rope_head_dim=6, v_head_dim=14)
MOE12 = dict(num_experts=12, num_experts_per_tok=3, moe_intermediate_size=20)
MOE = dict(num_experts=7, num_experts_per_tok=3, moe_intermediate_size=20)
NEXT = dict(linear_num_key_heads=2, linear_num_value_heads=6, linear_key_head_dim=10, linear_value_head_dim=7,
            linear_conv_kernel_dim=3, shared_expert_intermediate_size=19)
# spec, name, arguments of ours
SHAPES = [
    ("llama3", "untied", dict(BASE, n_kv_heads=4, rope_theta=500000.0, norm_eps=1e-5)),
    ("llama3", "gqa, padded vocabulary", dict(BASE, vocab_size=270, rope_scaling=LLAMA3)),
    ("llama3", "tied", dict(BASE, n_layers=3, n_kv_heads=1, hidden_dim=64, tie_embeddings=True)),
    ("llama3", "wide heads", dict(BASE, n_layers=1, head_dim=16, hidden_dim=40,
                                  rope_scaling={"rope_type": "linear", "factor": 2.0})),
    ("llama3", "biases", dict(BASE, dim=36, n_heads=6, head_dim=10, attention_bias=True, mlp_bias=True, norm_eps=3e-5)),
    ("qwen3", "biases", dict(BASE, head_dim=12, attention_bias=True)),
    ("gemma", "one head of keys", dict(BASE, n_kv_heads=1, head_dim=12, tie_embeddings=True)),
    ("gemma2", "window", dict(BASE, n_layers=3, dim=36, n_heads=6, head_dim=10, sliding_window=7, query_pre_attn_scalar=24,
                              attn_logit_softcapping=2.0, final_logit_softcapping=3.0, tie_embeddings=True)),
    ("gemma2", "no caps, layers of its own", dict(BASE, n_layers=3, head_dim=12, sliding_window=5, query_pre_attn_scalar=12,
                                                  attn_logit_softcapping=None, final_logit_softcapping=None,
                                                  layer_types=["full_attention", "sliding_attention", "sliding_attention"])),
    ("gemma3", "global and local", dict(BASE, n_layers=6, dim=36, n_heads=6, head_dim=10, sliding_window=7,
                                        query_pre_attn_scalar=24, rope_theta=1e6, rope_local_base_freq=5000.0,
                                        rope_scaling={"rope_type": "linear", "factor": 8.0}, tie_embeddings=True)),
    ("gemma3", "pattern and cap", dict(BASE, n_layers=3, head_dim=16, sliding_window=5, sliding_window_pattern=2,
                                       query_pre_attn_scalar=20, final_logit_softcapping=2.5)),
    ("phi3", "window", dict(BASE, dim=36, n_heads=6, sliding_window=6)),
    ("phi3", "long factors, rotated in part", dict(BASE, dim=64, partial_rotary_factor=0.75, tie_embeddings=True,
                                                   rope_scaling=LONGROPE)),
    ("phi3", "short factors", dict(BASE, partial_rotary_factor=1.0, rope_scaling={**LONGROPE, "short_factor": LONGROPE["short_factor"][:4],
                                                       "long_factor": LONGROPE["long_factor"][:4], "factor": 2.0,
                                                       "original_max_position_embeddings": 64})),
    ("olmo2", "untied", dict(BASE, dim=36, n_heads=6, rope_theta=500000.0)),
    ("olmo3", "windows and yarn", dict(BASE, n_layers=5, sliding_window=7, rope_theta=500000.0, rope_scaling=YARN)),
    ("smollm3", "no positions in some layers", dict(BASE, n_layers=5, tie_embeddings=True)),
    ("smollm3", "windows, biases", dict(BASE, n_layers=3, attention_bias=True, mlp_bias=True, use_sliding_window=True,
                                        sliding_window=6, no_rope_layers=[0, 1, 0],
                                        layer_types=["sliding_attention", "full_attention", "full_attention"])),
    ("qwen2", "tied", dict(BASE, tie_embeddings=True, rope_theta=1e6)),
    ("qwen2", "window by layer", dict(BASE, n_layers=3, use_sliding_window=True, sliding_window=7, max_window_layers=1)),
    ("qwen2", "yarn", dict(BASE, rope_scaling=YARN)),
    ("qwen3", "tied", dict(BASE, head_dim=16, tie_embeddings=True, rope_theta=1e6)),
    ("qwen3", "window by layer", dict(BASE, head_dim=12, n_kv_heads=4, use_sliding_window=True, sliding_window=5,
                                      max_window_layers=0)),
    ("mistral", "window", dict(BASE, sliding_window=6)),
    ("mistral", "wide heads", dict(BASE, head_dim=20, sliding_window=None, vocab_size=300)),
    ("deepseek_v3", "V3, groups and a bias for the choice", dict(
        BASE, n_layers=3, n_kv_heads=4, **MLA, **MOE12, q_lora_rank=18, first_k_dense_replace=1, n_group=4, topk_group=2, n_shared_experts=1,
        norm_topk_prob=True, routed_scaling_factor=2.5, attention_bias=True, rope_scaling={**YARN, "mscale": 0.7, "mscale_all_dim": 1.2})),
    ("deepseek_v3", "V2, groups by their best", dict(
        BASE, n_kv_heads=4, **MLA, **MOE12, q_lora_rank=None, first_k_dense_replace=0, n_group=4, topk_group=2, n_shared_experts=2,
        routed_scaling_factor=1.7, norm_topk_prob=False, topk_method="group_limited_greedy", rope_scaling=None)),
    ("deepseek_v3", "Kimi-K2, one group, yarn without a ramp", dict(
        BASE, n_layers=3, n_kv_heads=4, **MLA, **MOE12, q_lora_rank=18, first_k_dense_replace=1, n_group=1, topk_group=1, n_shared_experts=1,
        norm_topk_prob=True, routed_scaling_factor=2.827, rope_theta=50.0, rope_scaling={
            **YARN, "beta_fast": 1.0, "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0})),
    ("glm4_moe", "4.5, groups and a bias for the choice", dict(
        BASE, n_layers=3, head_dim=14, **MOE12, first_k_dense_replace=1, n_group=4, topk_group=2, n_shared_experts=1, norm_topk_prob=True,
        routed_scaling_factor=2.5, attention_bias=True, use_qk_norm=True, partial_rotary_factor=0.43)),
    ("glm4_moe", "Air, no norms of heads", dict(
        BASE, **MOE, head_dim=12, first_k_dense_replace=0, n_group=1, topk_group=1, n_shared_experts=2, norm_topk_prob=False,
        routed_scaling_factor=1.0, attention_bias=False, use_qk_norm=False, partial_rotary_factor=0.5, rope_scaling=YARN)),
    ("llama4", "chunks, every second layer", dict(
        BASE, n_layers=4, head_dim=12, moe_intermediate_size=20, num_experts=5, num_experts_per_tok=1, no_rope_layer_interval=3,
        attention_chunk_size=7, floor_scale=4, attn_scale=0.6, interleave_moe_layer_step=2, rope_scaling=LLAMA3)),
    ("llama4", "two choices, no chunks, biases", dict(
        BASE, n_layers=3, head_dim=10, moe_intermediate_size=20, num_experts=6, num_experts_per_tok=2, attention_chunk_size=None,
        no_rope_layers=[0, 1, 1], use_qk_norm=False, attention_bias=True, attn_temperature_tuning=False, moe_layers=[0, 2])),
    ("gpt_oss", "windows, yarn", dict(BASE, n_layers=3, head_dim=12, num_experts=5, num_experts_per_tok=3, sliding_window=7,
                                      rope_scaling={**YARN, "truncate": False})),
    ("mixtral", "5 experts", dict(BASE, num_experts=5, num_experts_per_tok=2)),
    ("mixtral", "window, wide heads, all experts", dict(BASE, head_dim=12, sliding_window=6, num_experts=3, num_experts_per_tok=3)),
    ("qwen3_moe", "a layer without experts", dict(BASE, n_layers=3, head_dim=12, **MOE, norm_topk_prob=True,
                                                  mlp_only_layers=[1])),
    ("qwen3_moe", "every second layer, biases", dict(BASE, n_layers=4, **MOE, head_dim=8, norm_topk_prob=False, decoder_sparse_step=2,
                                                     attention_bias=True)),
    ("qwen3_next", "three delta nets of four layers", dict(BASE, n_layers=4, head_dim=8, **MOE, **NEXT, norm_topk_prob=True)),
    ("qwen3_next", "layers by name, biases", dict(BASE, n_layers=3, head_dim=16, **MOE, **{**NEXT, "linear_num_value_heads": 2}, norm_topk_prob=False,
                                                  attention_bias=True, mlp_only_layers=[0], partial_rotary_factor=0.5,
                                                  layer_types=["linear_attention", "full_attention", "linear_attention"])),
    ("gpt2", "tied", dict(dim=32, n_layers=2, n_heads=4, vocab_size=262, n_positions=40, tie_embeddings=True)),
    ("gpt2", "untied, padded vocabulary", dict(dim=36, n_layers=3, n_heads=3, hidden_dim=50, vocab_size=300, n_positions=32,
                                               norm_eps=1e-6, tie_embeddings=False)),
]
# ---- theirs ----

def nested(rope, local, a):
    """rope_parameters of models whose layers that slide have others."""
    base = a.get("rope_local_base_freq", local or a["rope_theta"])
    return {"full_attention": rope, "sliding_attention": {"rope_type": "default", "rope_theta": base}}


def like_llama(config, model, *more, local=None):
    def build(a):
        rope = {"rope_theta": a["rope_theta"], "rope_type": "default", **(a.get("rope_scaling") or {})}
        if "partial_rotary_factor" in a:
            rope["partial_rotary_factor"] = a["partial_rotary_factor"]
        if local is not None:
            rope = nested(rope, local, a)
        if a.get("rope_scaling", {}) and a["rope_scaling"].get("rope_type") == "longrope":
            start = rope.pop("original_max_position_embeddings")
            long = {"original_max_position_embeddings": start, "max_position_embeddings": int(start * rope.pop("factor"))}
        else:
            long = {"max_position_embeddings": 128}
        own = {key: a[key] for key in ("head_dim",) + more if key in a}
        return model(config(hidden_size=a["dim"], num_hidden_layers=a["n_layers"], num_attention_heads=a["n_heads"],
                            num_key_value_heads=a["n_kv_heads"], intermediate_size=a["hidden_dim"],
                            vocab_size=a["vocab_size"], rms_norm_eps=a["norm_eps"], pad_token_id=None,
                            tie_word_embeddings=a["tie_embeddings"], rope_parameters=rope, **long, **own))
    return build


def deepseek(a):
    v2 = "topk_method" in a
    keys = (*MLA, "q_lora_rank", "first_k_dense_replace", "n_routed_experts", "num_experts_per_tok", "moe_intermediate_size", "n_group",
            "topk_group", "n_shared_experts", "norm_topk_prob", "routed_scaling_factor", "attention_bias")
    pair = (DeepseekV2Config, DeepseekV2ForCausalLM) if v2 else (DeepseekV3Config, DeepseekV3ForCausalLM)
    return like_llama(*pair, *keys, *(["topk_method"] if v2 else []))({**a, "n_routed_experts": a["num_experts"]})


def llama4(a):
    a = {**a, "intermediate_size_mlp": a["hidden_dim"], "hidden_dim": a["moe_intermediate_size"], "num_local_experts": a["num_experts"]}
    return like_llama(Llama4TextConfig, Llama4ForCausalLM, "intermediate_size_mlp", "num_local_experts", "num_experts_per_tok",
                      "no_rope_layer_interval", "no_rope_layers", "attention_chunk_size", "floor_scale", "attn_scale", "use_qk_norm",
                      "interleave_moe_layer_step", "moe_layers", "attention_bias", "attn_temperature_tuning")(a)


def glm4_moe(a):
    return like_llama(Glm4MoeConfig, Glm4MoeForCausalLM, "first_k_dense_replace", "n_routed_experts", "num_experts_per_tok",
                      "moe_intermediate_size", "n_group", "topk_group", "n_shared_experts", "norm_topk_prob", "routed_scaling_factor",
                      "attention_bias", "use_qk_norm")({**a, "n_routed_experts": a["num_experts"]})


def gpt_oss(a):
    return like_llama(GptOssConfig, GptOssForCausalLM, "num_local_experts", "num_experts_per_tok", "sliding_window")(
        {**a, "num_local_experts": a["num_experts"]})


def gpt2(a):
    return GPT2LMHeadModel(GPT2Config(resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
                                      n_embd=a["dim"], n_layer=a["n_layers"], n_head=a["n_heads"], n_inner=a.get("hidden_dim"),
                                      vocab_size=a["vocab_size"], n_positions=a["n_positions"],
                                      layer_norm_epsilon=a.get("norm_eps", 1e-5), tie_word_embeddings=a["tie_embeddings"],
                                      bos_token_id=256, eos_token_id=257))


WINDOWS = "use_sliding_window", "sliding_window", "max_window_layers"
BIASES = "attention_bias", "mlp_bias"
GEMMA = "sliding_window", "layer_types", "query_pre_attn_scalar", "final_logit_softcapping"
BUILD_MODEL = {"llama3": like_llama(LlamaConfig, LlamaForCausalLM, *BIASES),
               "gemma": like_llama(GemmaConfig, GemmaForCausalLM),
               "gemma2": like_llama(Gemma2Config, Gemma2ForCausalLM, "attn_logit_softcapping", *GEMMA),
               "gemma3": like_llama(Gemma3TextConfig, Gemma3ForCausalLM, "sliding_window_pattern", *GEMMA, local=10000.0),
               "phi3": like_llama(Phi3Config, Phi3ForCausalLM, "sliding_window"),
               "olmo2": like_llama(Olmo2Config, Olmo2ForCausalLM),
               "olmo3": like_llama(Olmo3Config, Olmo3ForCausalLM, "sliding_window", "layer_types", local=0),
               "smollm3": like_llama(SmolLM3Config, SmolLM3ForCausalLM, "no_rope_layers", "layer_types", *BIASES,
                                     "use_sliding_window", "sliding_window"),
               "qwen2": like_llama(Qwen2Config, Qwen2ForCausalLM, *WINDOWS),
               "qwen3": like_llama(Qwen3Config, Qwen3ForCausalLM, "attention_bias", *WINDOWS),
               "deepseek_v3": deepseek, "glm4_moe": glm4_moe, "llama4": llama4, "gpt_oss": gpt_oss,
               "mixtral": like_llama(MixtralConfig, MixtralForCausalLM, "sliding_window", "num_experts", "num_experts_per_tok"),
               "qwen3_moe": like_llama(Qwen3MoeConfig, Qwen3MoeForCausalLM, "attention_bias", *MOE, "norm_topk_prob",
                                       "decoder_sparse_step", "mlp_only_layers"),
               "qwen3_next": like_llama(Qwen3NextConfig, Qwen3NextForCausalLM, "attention_bias", *MOE, *NEXT, "norm_topk_prob",
                                        "mlp_only_layers", "layer_types"),
               "mistral": like_llama(MistralConfig, MistralForCausalLM, "sliding_window"), "gpt2": gpt2}


def random_model(spec, args):
    torch.manual_seed(5)
    m = BUILD_MODEL[spec](args).eval()
    with torch.no_grad():
        for p in m.parameters():
            one = p.dim() == 1 and not spec.startswith(("gemma", "qwen3_next"))  # their norms add it
            p.copy_(0.1 * torch.randn_like(p) + (1.0 if one else 0.0))
        for name, x in m.named_buffers():
            if name.endswith("e_score_correction_bias"):
                x.copy_(0.3 * torch.randn_like(x))
    return m


def open_theirs(folder):
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager",
                                                output_loading_info=True)


def logits_of(model, ids):
    with torch.no_grad():
        return model.eval()(ids[None, :]).logits[0].float().numpy()


# ---- ours ----

def write_job(folder, spec, model, **more):
    j = {"spec": spec, "model": model, "tokenizer": {"name": "byte"}, "dataloader": {"name": "text", "path": ["text.txt"], "shuffle": False},
         "optimizer": {"lr": 0.05}, "lr_scheduler": {"name": "constant", "warmup_steps": 0},
         "training": {"local_batch_size": BATCH, "seq_len": SEQ, "steps": 3},
         "metrics": {"log_freq": 1, "enable_tensorboard": False}, "backend": {"threads": 1}}
    for key, value in more.items():
        j[key] = {**j.get(key, {}), **value}
    path = os.path.join(folder, "job.json")
    with open(path, "w") as f:
        json.dump(j, f)
    return path


def run(*words):
    r = subprocess.run(words, capture_output=True, text=True, timeout=120)
    if r.returncode:
        raise SystemExit(f"{' '.join(words)}\n{r.stderr[-600:]}")
    return r.stderr


def train(path, dump, *options):
    run(f"{BUILD}/ttrun", path, "--plugin-dir", f"{BUILD}/plugins", "--dump_folder", dump, *options)
    with open(f"{dump}/metrics.jsonl") as f:
        return [x["loss"] for x in map(json.loads, f) if "loss" in x]


def our_logits(folder, spec, hf, ids):
    """The log, and the logits with the weights and sizes of a Hugging Face folder."""
    path = write_job(folder, spec, {"flavor": "hf", "hf_assets_path": hf},
                     checkpoint={"initial_load_path": hf, "initial_load_in_hf": True}, training={"local_batch_size": 1})
    ids.numpy().astype(np.int32).tofile(f"{folder}/ids")
    log = run(f"{BUILD}/tests/peers/logits_tool", f"{BUILD}/plugins", path, f"{folder}/ids", f"{folder}/logits")
    return np.fromfile(f"{folder}/logits", np.float32).reshape(len(ids), -1), log


def compare(ours, theirs, what):
    worst = float(np.abs(ours - theirs).max()) if ours.shape == theirs.shape else float("inf")
    check(worst <= TOLERANCE, f"{what}: logits of up to {np.abs(theirs).max():.1f} within {worst:.1e}")


# ---- the two ways ----

def ours_to_theirs(folder, spec, name, args, ids):
    train(write_job(folder, spec, {"flavor": "debugmodel", "args": args}, checkpoint={"last_save_in_hf": True}), f"{folder}/a")
    hf = f"{folder}/a/hf/latest"
    model, info = open_theirs(hf)
    lost = info["missing_keys"] or info["unexpected_keys"] or info["mismatched_keys"]
    check(not lost, f"{name}: every tensor is taken {lost or ''}")
    compare(our_logits(folder, spec, hf, ids)[0], logits_of(model, ids), f"{name}: ours → theirs")
    c = json.load(open(f"{hf}/config.json"))
    check(c["vocab_size"] == args["vocab_size"] and c["eos_token_id"] == 257 and model.config.eos_token_id == 257,
          f"{name}: config.json")


def without_prefix(hf, out, prefix):
    """The folder as a model without its output layer saves itself, or as OpenAI's own GPT-2 is on the hub."""
    os.makedirs(out)
    tensors = load_file(f"{hf}/model.safetensors")
    save_file({n.removeprefix(prefix): t.contiguous() for n, t in tensors.items()}, f"{out}/model.safetensors", {"format": "pt"})
    os.link(f"{hf}/config.json", f"{out}/config.json")


def to_version_4(folder, name):
    path = f"{folder}/config.json"
    c = json.load(open(path))
    p = c.pop("rope_parameters", None)
    if "Kimi-K2" in name:
        c["model_type"] = "kimi_k2"
    if p and "full_attention" in p:
        if c["model_type"] == "gemma3_text":
            c["rope_local_base_freq"] = p["sliding_attention"]["rope_theta"]
        p = p["full_attention"]
    else:
        c.pop("layer_types", None) if c["model_type"].startswith("qwen") and c["model_type"] != "qwen3_next" else None
    if p:
        if "partial_rotary_factor" in p and c["model_type"] in ("phi3", "glm4_moe", "qwen3_next"):
            c["partial_rotary_factor"] = p.pop("partial_rotary_factor")
        if p["rope_type"] == "longrope":
            p.pop("original_max_position_embeddings")
            p["type"] = p.pop("rope_type")
        c["rope_theta"] = p.pop("rope_theta")
        c["rope_scaling"] = None if p.get("rope_type") == "default" else p
    c["torch_dtype"] = c.pop("dtype")
    os.remove(path)  # may be a link
    json.dump(c, open(path, "w"))


def theirs_to_ours(folder, spec, name, args, ids):
    model = random_model(spec, args)
    for kind, dtype, size in (("f32", torch.float32, None), ("f32 sharded", torch.float32, "20KB"),
                              ("f16", torch.float16, None), ("bf16", torch.bfloat16, None)):
        hf = f"{folder}/{kind.replace(' ', '-')}"
        model.to(dtype).save_pretrained(hf, **({"max_shard_size": size} if size else {}))
        model.float()
        if size:
            check(os.path.exists(f"{hf}/model.safetensors.index.json"), f"{name}: {kind} is")
        theirs = logits_of(open_theirs(hf)[0], ids)
        ours, log = our_logits(folder, spec, hf, ids)
        compare(ours, theirs, f"{name}: {kind} → ours")
        check("ignored" not in log, f"{name}: {kind}, nothing is left over")
        model = random_model(spec, args)
    hf = f"{folder}/f32"
    theirs = logits_of(open_theirs(hf)[0], ids)
    bare = f"{folder}/bare"
    without_prefix(hf, bare, "transformer." if spec == "gpt2" else "model.")
    to_version_4(bare, name)
    compare(our_logits(folder, spec, bare, ids)[0], theirs, f"{name}: names without prefix, config.json of version 4 → ours")


def on_meshes(folder, spec, name, args, tokens):
    """The loss of a run that starts from a folder of theirs, on one rank and on two."""
    hf = f"{folder}/f32"
    path = write_job(folder, spec, {"flavor": "hf", "hf_assets_path": hf}, optimizer={"lr": 0.0},
                     checkpoint={"initial_load_path": hf, "initial_load_in_hf": True, "enable": False}, training={"steps": 1})
    model = open_theirs(hf)[0].eval()
    with torch.no_grad():
        logits = model(tokens[:, :-1]).logits.float()
    theirs = torch.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), tokens[:, 1:].reshape(-1)).item()
    meshes = {"1 rank": (), "fsdp 2": ("--nproc", "2", "--parallelism.data_parallel_shard_degree", "2",
                                       "--training.local_batch_size", str(BATCH // 2))}
    if args.get("n_kv_heads", 2) > 1 and args["n_heads"] % 2 == 0:
        meshes["tp 2"] = ("--nproc", "2", "--parallelism.tensor_parallel_degree", "2")
    for mesh, options in meshes.items():
        ours = train(path, f"{folder}/mesh-{mesh.replace(' ', '')}", *options)[0]
        check(abs(ours - theirs) <= TOLERANCE * max(1.0, theirs), f"{name}: {mesh}, loss {theirs:.6f} and {ours:.6f}")


def main():
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
    subprocess.run(["make", "-s", "-C", ROOT, f"{os.path.relpath(BUILD, ROOT)}/tests/peers/logits_tool"], check=True)
    text = "".join(f"line {i} of a text, {i * i} and {i * 7 % 13} times.\n" for i in range(200))
    ids = torch.tensor([256, *text.encode(), 257])
    tokens = torch.stack([ids[i * SEQ:i * SEQ + SEQ + 1] for i in range(BATCH)])
    for spec, name, args in SHAPES:
        if len(sys.argv) > 2 and spec not in sys.argv[2:]:
            continue
        with tempfile.TemporaryDirectory() as folder:
            with open(f"{folder}/text.txt", "w") as f:
                f.write(text)
            name = f"{spec} {name}"
            ours_to_theirs(folder, spec, name, args, ids[:SEQ])
            theirs_to_ours(folder, spec, name, args, ids[:SEQ])
            on_meshes(folder, spec, name, args, tokens)
    sys.exit(checks.failed > 0)


main()
