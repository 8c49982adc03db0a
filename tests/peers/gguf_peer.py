# SPDX-License-Identifier: Apache-2.0
"""`ttrun ckpt export --to gguf` against the gguf package, value by value; `ckpt import --from meta|torchtitan` against the
permutation of transformers' converter.

  export  every model, f32, f16, bf16, q8_0: GGUFReader opens it; names are those of gguf's own tensor map; data is, bit for bit,
          what gguf's quantize makes of the Hugging Face folder's; keys are config.json's; tokens, kinds, merges tokenizer.json's
  import  Llama under Meta's names (one file, two files cut as Meta cuts them; torchtitan's): all equal to the import of the
          Hugging Face folder

usage: gguf_peer.py [build folder [SPEC...]]"""
import json
import os
import subprocess
import sys
import tempfile

import gguf
import numpy as np
from gguf.quants import quantize
from safetensors.numpy import load_file, save_file
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
import checks
from checks import check

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else f"{ROOT}/build/release")
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 64}
BASE = dict(dim=64, n_layers=2, n_heads=4, n_kv_heads=2, hidden_dim=96, vocab_size=320, tie_embeddings=False)
SHAPES = [("llama3", "llama", dict(BASE, rope_scaling=LLAMA3)),
          ("llama3", "llama", dict(BASE, rope_scaling=None, tie_embeddings=True, hidden_dim=80, head_dim=32)),
          ("mistral", "llama", dict(BASE, sliding_window=None)),
          ("qwen2", "qwen2", dict(BASE, tie_embeddings=True)),
          ("qwen3", "qwen3", dict(BASE, head_dim=32, rope_scaling={"rope_type": "yarn", "factor": 4.0,
                                                                  "original_max_position_embeddings": 64})),
          ("llama3", "llama", dict(BASE, rope_scaling=None, attention_bias=True, mlp_bias=True)),
          ("gemma", "gemma", dict(BASE, head_dim=32, tie_embeddings=True)),
          ("gemma2", "gemma2", dict(BASE, head_dim=32, query_pre_attn_scalar=32, sliding_window=9, tie_embeddings=True)),
          ("gemma3", "gemma3", dict(BASE, head_dim=32, query_pre_attn_scalar=32, sliding_window=9, tie_embeddings=True,
                                    rope_scaling={"rope_type": "linear", "factor": 8.0})),
          ("phi3", "phi3", dict(BASE, partial_rotary_factor=0.5, rope_scaling={
              "rope_type": "longrope", "factor": 4.0, "original_max_position_embeddings": 64,
              "short_factor": [1, 1.5, 2, 2.5], "long_factor": [2, 3, 5, 9]})),
          ("olmo2", "olmo2", dict(BASE)), ("smollm3", "smollm3", dict(BASE, tie_embeddings=True)),
          ("gpt2", "gpt2", dict(dim=64, n_layers=2, n_heads=4, vocab_size=320, n_positions=40))]
SPLIT_LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
                r"|\s+(?!\S)|\s+")
TYPES = {"f32": gguf.GGMLQuantizationType.F32, "f16": gguf.GGMLQuantizationType.F16, "bf16": gguf.GGMLQuantizationType.BF16,
         "q8_0": gguf.GGMLQuantizationType.Q8_0}
PAIRS = "llama", "smollm3"  # architectures whose heads have pairs (2 j, 2 j + 1)
def ttrun(*words):
    r = subprocess.run([f"{BUILD}/ttrun", *words, "--plugin-dir", f"{BUILD}/plugins"], capture_output=True, text=True, timeout=120)
    return r.returncode, r.stdout, r.stderr


def must(*words):
    rc, out, err = ttrun(*words)
    if rc:
        raise SystemExit(f"ttrun {' '.join(words)}\n{err[-600:]}")
    return out


def make_tokenizer(path, text, llama):
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False) if not llama else pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(SPLIT_LLAMA3), "isolated"),
         pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator([text], trainers.BpeTrainer(vocab_size=300, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
                                                      special_tokens=["<|begin|>", "<|end|>"], show_progress=False))
    t.add_tokens(["<user>"])
    t.save(path)


# ---- export ----

def halves_to_pairs(w, heads):
    """As convert_hf_to_gguf's permute: rows of a head, two halves, become pairs."""
    return w.reshape(heads, 2, w.shape[0] // heads // 2, *w.shape[1:]).swapaxes(1, 2).reshape(w.shape)


def expected(hf, spec, arch, args):
    """name → f32 array in GGUF's orientation, from the Hugging Face folder."""
    names = gguf.get_tensor_name_map({v: k for k, v in gguf.MODEL_ARCH_NAMES.items()}[arch], args["n_layers"])
    out = {}
    for name, w in load_file(f"{hf}/model.safetensors").items():
        if spec == "gpt2" and w.ndim == 2 and ".c_" in name:
            w = w.T
        if arch.startswith("gemma") and name.endswith("norm.weight"):
            w = w + 1  # as convert_hf_to_gguf
        if arch in PAIRS and name.endswith(("q_proj.weight", "q_proj.bias")):
            w = halves_to_pairs(w, args["n_heads"])
        if arch in PAIRS and name.endswith(("k_proj.weight", "k_proj.bias")):
            w = halves_to_pairs(w, args["n_kv_heads"])
        stem, _, end = name.rpartition(".")
        out[f"{names.get_name(stem)}.{end}"] = np.ascontiguousarray(w)
    return out


def rope_factors(config):
    """convert_hf_to_gguf's rope_freqs for Llama 3."""
    s, dim = config["rope_scaling"], config["head_dim"]
    freqs = 1.0 / config["rope_theta"] ** (np.arange(0, dim, 2) / dim)
    low, high = (s["original_max_position_embeddings"] / s[k] for k in ("low_freq_factor", "high_freq_factor"))
    out = []
    for wave in 2 * np.pi / freqs:
        if wave < high:
            out.append(1.0)
        elif wave > low:
            out.append(s["factor"])
        else:
            smooth = (s["original_max_position_embeddings"] / wave - s["low_freq_factor"]) / (
                s["high_freq_factor"] - s["low_freq_factor"])
            out.append(1 / ((1 - smooth) / s["factor"] + smooth))
    return np.array(out, np.float32)


def value(reader, key):
    return reader.fields[key].contents() if key in reader.fields else None


KEYS = {"attention.sliding_window": "sliding_window", "attn_logit_softcapping": "attn_logit_softcapping",
        "final_logit_softcapping": "final_logit_softcapping"}


def check_keys(reader, what, arch, c, kind):
    if arch == "gpt2":
        want = {"context_length": c["n_positions"], "block_count": c["n_layer"], "embedding_length": c["n_embd"],
                "feed_forward_length": c["n_inner"], "attention.head_count": c["n_head"],
                "attention.layer_norm_epsilon": c["layer_norm_epsilon"]}
    else:
        want = {"block_count": c["num_hidden_layers"], "embedding_length": c["hidden_size"],
                "feed_forward_length": c["intermediate_size"], "attention.head_count": c["num_attention_heads"],
                "attention.head_count_kv": c["num_key_value_heads"], "attention.key_length": c["head_dim"],
                "attention.value_length": c["head_dim"], "rope.dimension_count": int(c["head_dim"] * c.get("partial_rotary_factor", 1)),
                "rope.freq_base": c["rope_theta"], "attention.layer_norm_rms_epsilon": c["rms_norm_eps"],
                "vocab_size": c["vocab_size"], "context_length": c["max_position_embeddings"]}
        scaling = c["rope_scaling"] or {}
        want |= {key: c[there] for key, there in KEYS.items() if c.get(there) and arch.startswith("gemma")}
        if arch == "phi3":
            start = scaling["original_max_position_embeddings"]
            want |= {"rope.scaling.original_context_length": start, "attention.sliding_window": 0,
                     "rope.scaling.attn_factor": (1 + np.log(c["max_position_embeddings"] / start) / np.log(start)) ** 0.5}
        if scaling.get("rope_type") == "linear":
            want |= {"rope.scaling.type": "linear", "rope.scaling.factor": scaling["factor"]}
        if scaling.get("rope_type") == "yarn":
            want |= {"rope.scaling.type": "yarn", "rope.scaling.factor": scaling["factor"],
                     "rope.scaling.original_context_length": scaling["original_max_position_embeddings"]}
    wrong = {k: (v, value(reader, f"{arch}.{k}")) for k, v in want.items()
             if not (value(reader, f"{arch}.{k}") == v or np.isclose(value(reader, f"{arch}.{k}") or 0, v, rtol=1e-6)
                     if not isinstance(v, str) else value(reader, f"{arch}.{k}") == v)}
    check(not wrong, f"{what}: keys {wrong or ''}")
    file_type = {"f32": 0, "f16": 1, "bf16": 32, "q8_0": 7}[kind]
    check(value(reader, "general.architecture") == arch and value(reader, "general.file_type") == file_type, f"{what}: general")


def check_vocab(reader, what, path, vocab, llama):
    t = json.load(open(path))
    words = {i: w for w, i in t["model"]["vocab"].items()}
    kinds = dict.fromkeys(words, 1)
    for a in t["added_tokens"]:
        words[a["id"]], kinds[a["id"]] = a["content"], 3 if a["special"] else 4
    want = [words.get(i, f"[PAD{i}]") for i in range(vocab)]
    ok = (value(reader, "tokenizer.ggml.tokens") == want and value(reader, "tokenizer.ggml.model") == "gpt2" and
          value(reader, "tokenizer.ggml.token_type") == [kinds.get(i, 5) for i in range(vocab)] and
          value(reader, "tokenizer.ggml.pre") == ("dbrx" if llama else "gpt-2") and
          value(reader, "tokenizer.ggml.merges") == [m if isinstance(m, str) else " ".join(m) for m in t["model"]["merges"]])
    check(ok, f"{what}: tokenizer")


def check_export(folder, run, spec, arch, args, llama):
    hf = f"{run}/hf/latest"
    tensors = expected(hf, spec, arch, args)
    config = json.load(open(f"{hf}/config.json"))
    if arch == "phi3":
        for length in "long", "short":
            tensors[f"rope_factors_{length}.weight"] = np.array(config["rope_scaling"][f"{length}_factor"], np.float32)
    if arch == "llama" and config["rope_scaling"]:
        tensors["rope_freqs.weight"] = rope_factors(config)
    for kind, qtype in TYPES.items():
        what, out = f"{spec} {kind}", f"{folder}/{kind}.gguf"
        must("ckpt", "export", "--to", "gguf", "--type", kind, run, out)
        reader = gguf.GGUFReader(out)
        have = {t.name: t for t in reader.tensors}
        check(set(have) == set(tensors), f"{what}: tensors {set(have) ^ set(tensors) or ''}")
        wrong = []
        for name, w in tensors.items():
            q = gguf.GGMLQuantizationType.F32 if w.ndim == 1 or name.startswith("position") else qtype
            if q == gguf.GGMLQuantizationType.Q8_0 and w.shape[-1] % 32:
                q = gguf.GGMLQuantizationType.F16  # as convert_hf_to_gguf falls back
            t = have.get(name)
            if t is None or t.tensor_type != q or list(t.shape) != list(w.shape[::-1]):
                wrong.append(name)
            elif name == "rope_freqs.weight":
                wrong += [name] if not np.allclose(t.data, w, rtol=1e-6, atol=0) else []
            elif np.ascontiguousarray(t.data).tobytes() != quantize(w, q).tobytes():
                wrong.append(name)
        check(not wrong, f"{what}: {len(tensors)} tensors are gguf's to the bit {wrong or ''}")
        check_keys(reader, what, arch, config, kind)
        check_vocab(reader, what, f"{hf}/tokenizer.json", args["vocab_size"], llama)


# ---- import ----

META = {"model.embed_tokens": "tok_embeddings", "model.norm": "norm", "lm_head": "output", "self_attn.q_proj": "attention.wq",
        "self_attn.k_proj": "attention.wk", "self_attn.v_proj": "attention.wv", "self_attn.o_proj": "attention.wo",
        "mlp.gate_proj": "feed_forward.w1", "mlp.down_proj": "feed_forward.w2", "mlp.up_proj": "feed_forward.w3",
        "input_layernorm": "attention_norm", "post_attention_layernorm": "ffn_norm", "model.layers": "layers"}


def to_meta(hf, args):
    out = {}
    for name, w in load_file(f"{hf}/model.safetensors").items():
        if name.endswith(("q_proj.weight", "k_proj.weight")):
            w = halves_to_pairs(w, args["n_heads" if "q_proj" in name else "n_kv_heads"])
        for ours in sorted(META, key=len, reverse=True):
            name = name.replace(ours, META[ours])
        out[name] = np.ascontiguousarray(w)
    return out


def cut(name, w, k, n):
    """The k-th of n parts, as fairscale's layers have them."""
    if w.ndim == 1:
        return w
    return np.ascontiguousarray(np.split(w, n, axis=1 if name.endswith(("wo.weight", "w2.weight")) else 0)[k])


def check_import(folder, run, spec, args):
    hf = f"{run}/hf/latest"
    must("ckpt", "import", "--from", "hf", hf, f"{folder}/hf")
    must("ckpt", "export", "--to", "hf", f"{folder}/hf", f"{folder}/again")  # gpt2's names are others in a step folder
    check("all equal" in must("ckpt", "diff", f"{folder}/again", hf), f"{spec}: a Hugging Face folder in and out")
    ours, theirs = (json.load(open(f"{d}/config.json")) for d in (f"{folder}/again", hf))
    check(ours == theirs, f"{spec}: config.json in and out {[k for k in ours | theirs if ours.get(k) != theirs.get(k)] or ''}")
    if spec not in ("llama3", "mistral") or args.get("attention_bias"):  # Meta's have no biases
        return
    tensors = to_meta(hf, args)
    config = json.load(open(f"{hf}/config.json"))
    params = {"dim": args["dim"], "n_layers": args["n_layers"], "n_heads": args["n_heads"], "n_kv_heads": args["n_kv_heads"],
              "norm_eps": config["rms_norm_eps"], "rope_theta": config["rope_theta"], "vocab_size": args["vocab_size"],
              "hidden_dim": args["hidden_dim"], "head_dim": config["head_dim"], "max_seq_len": 32}
    if config["rope_scaling"]:
        params |= {"use_scaled_rope": True, "rope_scaling_factor": 8}
    for n in 1, 2:
        meta = f"{folder}/meta{n}"
        os.makedirs(meta)
        json.dump(params if n == 1 else {**params, "vocab_size": args["vocab_size"]}, open(f"{meta}/params.json", "w"))
        for k in range(n):
            save_file({name: cut(name, w, k, n) for name, w in tensors.items()}, f"{meta}/consolidated.{k:02}.safetensors")
        must("ckpt", "import", "--from", "meta", "--spec", spec, meta, f"{folder}/from-meta{n}")
        check("all equal" in must("ckpt", "diff", f"{folder}/from-meta{n}", f"{folder}/hf"), f"{spec}: import of Meta's, {n} files")
    titan = f"{folder}/titan"
    os.makedirs(titan)
    save_file(tensors, f"{titan}/model.safetensors")
    must("ckpt", "import", "--from", "torchtitan", "--spec", spec, titan, f"{folder}/from-titan", "--model.args",
         json.dumps({**args, "norm_eps": config["rms_norm_eps"]}))
    check("all equal" in must("ckpt", "diff", f"{folder}/from-titan", f"{folder}/hf"), f"{spec}: import of torchtitan's")


def main():
    text = "".join(f"line {i} of a text, {i * i} and {i * 7 % 13} times.\n" for i in range(300))
    for n, (spec, arch, args) in enumerate(SHAPES):
        if len(sys.argv) > 2 and spec not in sys.argv[2:]:
            continue
        with tempfile.TemporaryDirectory() as folder:
            with open(f"{folder}/text.txt", "w") as f:
                f.write(text)
            llama = n % 2 == 0
            make_tokenizer(f"{folder}/tokenizer.json", text, llama)
            job = {"spec": spec, "model": {"flavor": "debugmodel", "args": args}, "optimizer": {"lr": 0.05},
                   "tokenizer": {"name": "hf", "path": f"{folder}/tokenizer.json"},
                   "dataloader": {"name": "text", "path": ["text.txt"]}, "checkpoint": {"last_save_in_hf": True},
                   "training": {"local_batch_size": 2, "seq_len": 32, "steps": 2},
                   "metrics": {"enable_tensorboard": False}, "backend": {"threads": 1}}
            json.dump(job, open(f"{folder}/job.json", "w"))
            must(f"{folder}/job.json", "--dump_folder", f"{folder}/run")
            check_export(folder, f"{folder}/run", spec, arch, args, llama)
            check_import(folder, f"{folder}/run", spec, args)
    sys.exit(checks.failed > 0)


main()
