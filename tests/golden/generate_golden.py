# SPDX-License-Identifier: Apache-2.0
"""Writes tests/golden/generate.json: the 64 tokens that transformers' generate, eager and in float32, writes greedily
after prompts of 1, 2, 17 and 31 ids. Run from the root after `make` (some 10 s):

    python tests/golden/generate_golden.py [--ttrun ./ttrun] [--only MODEL]...

The weights are ttrun's initial values made lively: such as they come, a text soon repeats one token and the logits lie
close together. The seed is the first whose nearest call between the best and the second logit is beyond NEAREST, which
is a hundred times what float32 rounds away, and whose texts have some variety: a text that differs is wrong. Each text comes twice, alone and
in a batch padded on the left, and must be the same."""
import argparse
import json
import os
import tempfile

import torch
import transformers
from transformers import LlamaConfig, LlamaForCausalLM

import models_golden
import oracle

PATH = os.path.join(oracle.ROOT, "tests", "golden", "generate.json")
NEW, LENGTHS, NEAREST, DIFFERENT, VOCAB = 64, (31, 1, 17, 2), 1e-3, 6, 262  # VOCAB: the byte tokenizer's
SMALL = {"dim": 48, "n_layers": 3, "n_heads": 6, "n_kv_heads": 2, "hidden_dim": 71, "vocab_size": VOCAB, "norm_eps": 1e-5,
         "rope_theta": 1e4, "tie_embeddings": False}
WIDE = {**SMALL, "dim": 42, "head_dim": 12}
MODELS = {"llama3": {**WIDE, "rope_scaling": oracle.LLAMA3},
          "gpt2": {"dim": 48, "n_layers": 3, "n_heads": 6, "hidden_dim": 71, "vocab_size": VOCAB, "n_positions": 96,
                   "norm_eps": 1e-5, "tie_embeddings": True},
          "qwen3": {**WIDE, "rope_theta": 1e6, "tie_embeddings": True},
          "qwen2": {**SMALL, "use_sliding_window": True, "sliding_window": 11, "max_window_layers": 1},
          "mistral": {k: v for k, v in {**WIDE, "sliding_window": 9}.items() if k != "tie_embeddings"},
          "mixtral": {k: v for k, v in {**SMALL, "num_experts": 5, "num_experts_per_tok": 2}.items() if k != "tie_embeddings"},
          "qwen3_moe": {**WIDE, "rope_theta": 1e6, "num_experts": 7, "num_experts_per_tok": 3, "moe_intermediate_size": 29,
                        "norm_topk_prob": True, "mlp_only_layers": [1]},
          "qwen3_next": {**models_golden.QWEN3_NEXT, "vocab_size": VOCAB},
          "deepseek_v3": {"dim": 48, "n_layers": 3, "n_heads": 6, "hidden_dim": 71, "vocab_size": VOCAB, "norm_eps": 1e-6, "rope_theta": 1e4,
                          "q_lora_rank": 21, "kv_lora_rank": 19, "qk_nope_head_dim": 12, "qk_rope_head_dim": 6, "v_head_dim": 10,
                          "first_k_dense_replace": 1, "num_experts": 12, "num_experts_per_tok": 3, "moe_intermediate_size": 23,
                          "n_shared_experts": 1, "n_group": 6, "topk_group": 2, "norm_topk_prob": True, "routed_scaling_factor": 2.5,
                          "rope_scaling": {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 16,
                                           "mscale": 0.707, "mscale_all_dim": 1.3}},
          "glm4_moe": {**models_golden.GLM4_MOE, "vocab_size": VOCAB, "num_nextn_predict_layers": 0},
          "llama4": {**models_golden.LLAMA4, "vocab_size": VOCAB},
          "gpt_oss": {**models_golden.GPT_OSS, "vocab_size": VOCAB},
          "gemma2": {"dim": 42, "n_layers": 3, "n_heads": 6, "n_kv_heads": 2, "head_dim": 12, "hidden_dim": 71, "vocab_size": VOCAB,
                     "sliding_window": 9, "query_pre_attn_scalar": 20, "attn_logit_softcapping": 5.0,
                     "final_logit_softcapping": 20.0},
          "gemma3": {"dim": 42, "n_layers": 3, "n_heads": 6, "n_kv_heads": 2, "head_dim": 12, "hidden_dim": 71, "vocab_size": VOCAB,
                     "sliding_window": 9, "query_pre_attn_scalar": 20, "rope_local_base_freq": 5e3, "sliding_window_pattern": 3,
                     "rope_scaling": {"rope_type": "linear", "factor": 8.0}},
          "phi3": {"dim": models_golden.PHI3["dim"], "n_layers": 3, "n_heads": 6, "n_kv_heads": 2, "hidden_dim": 71,
                   "vocab_size": VOCAB, "sliding_window": 13, "partial_rotary_factor": 0.67, "rope_scaling": {
                       **models_golden.PHI3["rope_scaling"], "original_max_position_embeddings": 200}},
          "olmo2": {"dim": 48, "n_layers": 3, "n_heads": 6, "n_kv_heads": 2, "hidden_dim": 71, "vocab_size": VOCAB}}


def llama_model(a):
    return LlamaForCausalLM(LlamaConfig(
        hidden_size=a["dim"], num_hidden_layers=a["n_layers"], num_attention_heads=a["n_heads"],
        num_key_value_heads=a["n_kv_heads"], head_dim=a["head_dim"], intermediate_size=a["hidden_dim"],
        vocab_size=a["vocab_size"], rms_norm_eps=a["norm_eps"], tie_word_embeddings=a["tie_embeddings"],
        rope_parameters={"rope_theta": a["rope_theta"], **a["rope_scaling"]}, max_position_embeddings=256,
        attn_implementation="eager"))


FAMILY = {**models_golden.FAMILY, "llama3": (llama_model, models_golden.same, models_golden.same)}


def job(spec, seed, **sections):
    j = {**oracle.job(MODELS[spec], oracle.GRADIENT, local=1), "spec": spec, **sections}
    j["training"] = {**j["training"], "seed": seed}
    return j


def lively(tensors):
    """Matrices sixteen times as large, those of embeddings four times, or a tied one would repeat the last token; vectors no
    longer all 0 or 1; buffers are 0, as before the step that initial_values() runs. test_greedy.c does the same, to the bit."""
    return {n: torch.zeros_like(x) if n.endswith(models_golden.BUFFER) else x + ((torch.arange(x.numel()) * 37) % 101 - 50) / 256 if x.dim() < 2 else
            x * (4 if ".wte." in n or "embed" in n else 16) for n, x in tensors.items()}


def initial_values(ttrun, j):
    with tempfile.TemporaryDirectory() as d:
        _, t = oracle.run_ttrun(ttrun, j, "cpu", d)
    return {n: v for n, v in t.items() if not n.startswith("optimizer.")}


def model_of(spec, weights):
    build, to_file, _ = FAMILY[spec]
    m = build(models_golden.all_args(spec, MODELS[spec])).float().eval()
    m.generation_config.eos_token_id = m.config.eos_token_id = None
    missing, unexpected = m.load_state_dict(to_file(weights), strict=False)
    tied = models_golden.all_args(spec, MODELS[spec]).get("tie_embeddings", False)
    missing = {n for n in missing if not n.endswith(models_golden.BUFFER)}
    assert not unexpected and missing <= ({"lm_head.weight"} if tied else set()), (missing, unexpected)
    m.tie_weights()
    return m


def prompts():
    return [[(t * 7919 + n * 104729 + t * t % 31) % VOCAB for t in range(n)] for n in LENGTHS]


@torch.no_grad()
def generate(m, texts):
    """The ids of each, and the least distance between the two largest logits of a call."""
    width = max(map(len, texts))
    ids = torch.tensor([[0] * (width - len(t)) + t for t in texts])
    mask = torch.tensor([[0] * (width - len(t)) + [1] * len(t) for t in texts])
    r = m.generate(ids, attention_mask=mask, do_sample=False, max_new_tokens=NEW, output_logits=True, pad_token_id=0,
                   return_dict_in_generate=True)
    top = torch.stack(r.logits).topk(2).values
    return r.sequences[:, width:].tolist(), (top[..., 0] - top[..., 1]).min().item()


PADDING_COUNTS = {"llama4"}  # transformers counts it among the positions of the temperature, so a text in a batch is another one


def generate_all(spec, m):
    if spec not in PADDING_COUNTS:
        return generate(m, prompts())
    each = [generate(m, [p]) for p in prompts()]
    return [ids for (ids,), _ in each], min(near for _, near in each)


def golden(spec, ttrun):
    for seed in range(1, 100):
        m = model_of(spec, lively(initial_values(ttrun, job(spec, seed))))
        ids, nearest = generate_all(spec, m)
        print(f"{spec}: seed {seed}: {nearest:.1e} {[len(set(t)) for t in ids]}", flush=True)
        if nearest > NEAREST and min(len(set(t)) for t in ids) >= DIFFERENT:
            break
    else:
        raise SystemExit(f"{spec}: no seed below 100 keeps the two best logits {NEAREST} apart and the texts from repeating")
    for p, batched in zip(prompts(), ids):
        alone, near = generate(m, [p])
        nearest = min(nearest, near)
        assert alone == [batched], f"{spec}: transformers writes another text in a batch"
    assert nearest > NEAREST and {len(t) for t in ids} == {NEW}
    print(f"{spec}: seed {seed}, nearest call {nearest:.1e}, {len({i for t in ids for i in t})} different ids", flush=True)
    return {"spec": spec, "args": MODELS[spec], "seed": seed, "nearest": nearest,
            "texts": [{"prompt": p, "ids": t} for p, t in zip(prompts(), ids)]}


def main():
    torch.set_num_threads(1)
    ap = argparse.ArgumentParser()
    ap.add_argument("--ttrun", default=os.path.join(oracle.ROOT, "ttrun"))
    ap.add_argument("--only", action="append")
    o = ap.parse_args()
    models = [golden(spec, o.ttrun) for spec in MODELS if not o.only or spec in o.only]
    if o.only:
        return
    version = torch.__version__.split("+")[0]
    with open(PATH, "w") as f:
        f.write(f'{{"made_by":"tests/golden/generate_golden.py, transformers {transformers.__version__}, PyTorch {version}, '
                'float32, eager","models":[\n')
        f.write(",\n".join(json.dumps(m, separators=(",", ":")) for m in models) + "\n]}\n")


if __name__ == "__main__":
    main()
