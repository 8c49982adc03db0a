# SPDX-License-Identifier: Apache-2.0
"""`ttrun ckpt export --to gguf` in llama.cpp (the package xllamacpp).

  models      tiny models of transformers, of every family: log-probabilities of the whole vocabulary, and a greedy text
  tokenizers  of every kind: the same ids for the same texts, as plain text, with special tokens, and with bos and eos; a tokenizer
              that GGUF cannot hold is refused

usage: llama_cpp_peer.py [build folder [NAME...]]"""
import base64
import json
import os
import random
import subprocess
import sys
import tempfile
import urllib.request

import numpy as np
import torch
import transformers as T
import xllamacpp
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
import subword_models
from checks import check
import checks

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else f"{ROOT}/build/release")
ONLY = sys.argv[2:]
CLOSE, GELU_CLOSE = 2e-4, 1e-2  # ggml looks GELU up in a table of f16
VOCAB = 320


class Llama:
    """A GGUF file in llama.cpp, in f32 throughout."""

    def __init__(self, path):
        p = xllamacpp.CommonParams()
        p.model.path, p.n_ctx, p.n_parallel, p.warmup, p.verbosity, p.port, p.fit_params = path, 256, 1, False, 0, 0, False
        p.cpuparams.n_threads = 1
        p.cache_type_k = p.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
        p.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
        self.server = xllamacpp.Server(p)

    def ask(self, path, **what):
        request = urllib.request.Request(self.server.listening_address + path, json.dumps(what).encode(), {"Content-Type": "application/json"})
        return json.load(urllib.request.urlopen(request))

    def ids(self, text, special=False, whole=False):
        return self.ask("/tokenize", content=text, parse_special=special, add_special=whole)["tokens"]

    def logprobs(self, ids):
        # an ASCII token is made the next one: the server gives no numbers for a part of a character
        answer = self.ask("/completion", prompt=ids, n_predict=1, n_probs=VOCAB, temperature=0, cache_prompt=False, logit_bias=[[70, 1e6]],
                          samplers=["temperature"])
        out = np.zeros(VOCAB)
        for e in answer["completion_probabilities"][0]["top_logprobs"]:
            out[e["id"]] = e["logprob"]
        return out

    def greedy(self, ids, n):
        return self.ask("/completion", prompt=ids, n_predict=n, temperature=0, cache_prompt=False, ignore_eos=True, return_tokens=True)["tokens"]


def export(folder, out):
    r = subprocess.run([f"{BUILD}/ttrun", "ckpt", "export", "--to", "gguf", folder, out, "--plugin-dir", f"{BUILD}/plugins"],
                       capture_output=True, text=True, timeout=120)
    return r.returncode, r.stderr


# ---- models ----

BASE = dict(hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, vocab_size=VOCAB,
            max_position_embeddings=96, pad_token_id=0, bos_token_id=0, eos_token_id=1)
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 24, "rope_theta": 10000.0}
LONG = {"rope_type": "longrope", "factor": 4.0, "original_max_position_embeddings": 24, "rope_theta": 10000.0}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64,
          "rope_theta": 10000.0}
MOE = dict(BASE, num_hidden_layers=3, head_dim=16, moe_intermediate_size=32, n_routed_experts=8, num_experts_per_tok=3, first_k_dense_replace=1,
           n_group=1, topk_group=1, n_shared_experts=1)
LATENT = dict({k: v for k, v in MOE.items() if k != "head_dim"}, num_key_value_heads=4, n_shared_experts=2, kv_lora_rank=32, qk_nope_head_dim=16,
              qk_rope_head_dim=8, v_head_dim=24, q_lora_rank=24)
OSS = dict(BASE, head_dim=16, num_local_experts=4, num_experts_per_tok=2, sliding_window=9, layer_types=["sliding_attention", "full_attention"])
GEMMA = dict(BASE, head_dim=32, query_pre_attn_scalar=32, sliding_window=9)
MODELS = {
    "llama": T.LlamaConfig(**BASE, attention_bias=True, mlp_bias=True), "llama yarn": T.LlamaConfig(**BASE, rope_parameters=dict(YARN)),
    "llama linear": T.LlamaConfig(**BASE, rope_parameters={"rope_type": "linear", "factor": 4.0, "rope_theta": 10000.0}),
    "llama llama3": T.LlamaConfig(**BASE, rope_parameters=dict(LLAMA3)),
    "llama longrope": T.LlamaConfig(**BASE, rope_parameters=dict(LONG, short_factor=[1] * 8, long_factor=[2, 3, 5, 9, 11, 12, 13, 14])),
    "mistral": T.MistralConfig(**BASE, sliding_window=None), "qwen2": T.Qwen2Config(**BASE), "qwen3": T.Qwen3Config(**BASE, head_dim=32),
    "qwen3 yarn": T.Qwen3Config(**BASE, head_dim=32, rope_parameters=dict(YARN)), "gemma": T.GemmaConfig(**BASE, head_dim=32),
    "gemma2": T.Gemma2Config(**GEMMA), "gemma3": T.Gemma3TextConfig(**dict(GEMMA, num_hidden_layers=6)), "phi3": T.Phi3Config(**BASE),
    "phi3 longrope": T.Phi3Config(**BASE, original_max_position_embeddings=24, rope_parameters=dict(
        LONG, short_factor=[1, 1.5, 2, 2.5], long_factor=[2, 3, 5, 9], partial_rotary_factor=0.5)),
    "olmo2": T.Olmo2Config(**BASE), "olmo3": T.Olmo3Config(**dict(BASE, num_hidden_layers=8, sliding_window=9, rope_parameters=dict(YARN))),
    "qwen3 tied": T.Qwen3Config(**BASE, head_dim=32, tie_word_embeddings=True), "smollm3": T.SmolLM3Config(**dict(BASE, num_hidden_layers=4, no_rope_layers=[1, 1, 1, 0])),
    "gpt2": T.GPT2Config(n_embd=64, n_layer=2, n_head=4, vocab_size=VOCAB, n_positions=96, bos_token_id=0, eos_token_id=1),
    "mixtral": T.MixtralConfig(**BASE, num_local_experts=4, num_experts_per_tok=2),
    "qwen3_moe": T.Qwen3MoeConfig(**BASE, head_dim=32, num_experts=8, num_experts_per_tok=3, moe_intermediate_size=32, norm_topk_prob=True),
    "glm4_moe": T.Glm4MoeConfig(**dict(MOE, use_qk_norm=True, attention_bias=True, routed_scaling_factor=1.5)),
    "glm4_moe groups": T.Glm4MoeConfig(**dict(MOE, n_group=4, topk_group=2, num_experts_per_tok=2)),
    "deepseek_v3": T.DeepseekV3Config(**dict(LATENT, n_group=4, topk_group=2, num_experts_per_tok=2, routed_scaling_factor=2.5)),
    "deepseek_v3 yarn": T.DeepseekV3Config(**dict(LATENT, rope_parameters=dict(YARN, mscale=0.7, mscale_all_dim=0.7))),
    "deepseek_v2": T.DeepseekV2Config(**dict(LATENT, num_hidden_layers=27, q_lora_rank=None, topk_method="greedy", routed_scaling_factor=1.0)),
    "gpt_oss": T.GptOssConfig(**OSS, rope_parameters=dict(YARN, truncate=True))}


def make_model(config):
    torch.manual_seed(0)
    m = T.AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    with torch.no_grad():
        for name, p in m.named_parameters():
            p.add_(torch.randn_like(p) * 0.1) if name.endswith("norm.weight") else p.normal_(0, 0.2 if p.dim() > 1 else 0.1)
        for name, p in m.named_buffers():
            if name.endswith("e_score_correction_bias"):
                p.normal_(0, 0.2)
    return m


def byte_level(special=("<s>", "</s>"), steps=None, text="hello world this is a text ", size=300, **more):
    t = Tokenizer(models.BPE(**more))
    t.pre_tokenizer = pre_tokenizers.Sequence([*steps, pre_tokenizers.ByteLevel(False, use_regex=False)]) if steps else pre_tokenizers.ByteLevel(False)
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator([text] * 3, trainers.BpeTrainer(vocab_size=size, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
                                                          special_tokens=list(special), show_progress=False))
    return json.loads(t.to_str())


def check_model(name, config):
    model = make_model(config)
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(f"{folder}/m")
        json.dump(byte_level(), open(f"{folder}/m/tokenizer.json", "w"))
        json.dump({"bos_token": "<s>", "eos_token": "</s>"}, open(f"{folder}/m/tokenizer_config.json", "w"))
        rc, err = export(f"{folder}/m", f"{folder}/m.gguf")
        if rc:
            return check(False, f"{name}: {err[-300:]}")
        llama = Llama(f"{folder}/m.gguf")
        rng, worst = np.random.default_rng(0), 0
        for n in (30, 60) if "longrope" in name else (1, 9, 60):  # llama.cpp has the long factors for its whole context
            ids = rng.integers(2, 300, n).tolist()
            with torch.no_grad():
                want = torch.log_softmax(model(torch.tensor([ids])).logits[0, -1].float(), -1).numpy()
            worst = max(worst, np.abs(llama.logprobs(ids) - want).max())
        close = GELU_CLOSE if "gemma" in name or name == "gpt2" else CLOSE
        check(worst < close, f"{name}: log-probabilities differ by {worst:.1e}")
        with torch.no_grad():
            want = model.generate(torch.tensor([ids[:30]]), max_new_tokens=20, do_sample=False, eos_token_id=None, pad_token_id=0,
                                  suppress_tokens=[1])[0, 30:].tolist()
        got = llama.greedy(ids[:30], 20)
        same = next((i for i, (a, b) in enumerate(zip(got, want)) if a != b), 20)
        check(same == 20 or close == GELU_CLOSE, f"{name}: a greedy text of 20 tokens, the first {same} are equal")


# ---- tokenizers ----

LETTERS = "[^\\r\\n\\p{L}\\p{N}]?"
CASES = (LETTERS + "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+%s|" + LETTERS +
         "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*%s|\\p{N}%s| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+")
SHORT = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
END = "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
LLAMA = SHORT + "|" + LETTERS + "\\p{L}+|\\p{N}%s| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*" + END
DEEPSEEK = ("[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*" + END)
SPLITS = {  # the name that llama.cpp has, and the expressions
    "gpt-2": None, "smollm": [], "llama-bpe": [LLAMA % "{1,3}"], "dbrx": [LLAMA % "{1,3}"], "qwen2": [LLAMA % ""],
    "qwen35": [SHORT + "|" + LETTERS + "[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*" + END], "tekken": [CASES % ("", "", "")],
    "gpt-4o": [CASES % (SHORT + "?", SHORT + "?", "{1,3}")], "deepseek-v3": ["\\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+", DEEPSEEK],
    "deepseek-coder": ["[\\r\\n]", "\\s?\\p{L}+", "\\s?\\p{P}+", "[一-龥ࠀ-一가-퟿]+", "\\p{N}"],
    "bailingmoe": ["'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+"],
    "seed-coder": [SHORT + "|" + LETTERS + "\\p{L}+|\\p{N}{1}| ?[^\\s\\p{L}\\p{N}\\r\\n]+" + END]}


def texts():
    rng = random.Random(7)
    words = ["the", "water", "Hello", "don't", "I'LL", "x1234567", "3.14", "été", "naïve", "中文字", "日本の", "한국", "a_b", "→", "🙂", "\n", "\r\n", "\t", "  ",
             "   ", "!?", "...", "(", "\"quoted\"", "Straße", "don'T", "we're", "UPPER", "camelCase", "http://x.y/z", "#tag", "$5", "½", "a/b\n/c", "́e"]
    out = ["", " ", "a", " a", "a ", "  two  blanks  ", "\n", "tail\n\n", "line one\nline two", "hello world", "<s> not special </s>"]
    for _ in range(150):
        out.append("".join(rng.choice(words) + rng.choice(["", " ", " ", "  ", "\n"]) for _ in range(rng.randint(1, 12))))
    return out


def check_tokenizer(name, files, ascii_only=False, refused=None):
    """files: name → bytes; the tokenizer of the package of that name is the reference."""
    n = 4096
    config = T.LlamaConfig(hidden_size=32, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2, vocab_size=n, max_position_embeddings=64)
    with tempfile.TemporaryDirectory() as folder:
        T.LlamaForCausalLM(config).save_pretrained(f"{folder}/m")
        for file, data in files.items():
            open(f"{folder}/m/{file}", "wb").write(data)
        rc, err = export(f"{folder}/m", f"{folder}/m.gguf")
        if refused:
            return check(rc == 2 and refused in err and not os.path.exists(f"{folder}/m.gguf"), f"{name}: refused {'' if refused in err else err[-300:]}")
        if rc:
            return check(False, f"{name}: {err[-300:]}")
        llama = Llama(f"{folder}/m.gguf")
        if "tokenizer.json" in files:
            t = Tokenizer.from_str(files["tokenizer.json"].decode())
            whole = lambda text, special: encode(t, text, special)
        else:
            sp = subword_models.spm.SentencePieceProcessor(model_proto=files["tokenizer.model"])
            whole = lambda text, special: sp.encode(text)
        marks = ["<s>", "<|user|>", "</s>"] if "tokenizer.json" in files else []
        for special in (False, True) if marks else (False,):
            wrong = []
            for text in (x for x in texts() if "</s>" not in x or not ("t5" in name or "phi" in name)):
                # Unigram of tokenizers has no control pieces, and llama.cpp makes every eos one
                text = text.encode("ascii", "ignore").decode() if ascii_only else text
                text = f"{marks[0]}{text}{marks[1]}{text}{marks[2]}" if special else text
                want, got = whole(text, special), llama.ids(text, special)
                wrong += [(text, want, got)] if want != got else []
            check(not wrong, f"{name}: {len(texts())} texts{', special tokens' if special else ''}: {len(wrong)} differ {wrong[:1] if wrong else ''}")
        return llama


def encode(t, text, special):
    t.encode_special_tokens = not special
    return t.encode(text, add_special_tokens=False).ids


def check_byte_level():
    for name, expressions in SPLITS.items():
        steps = expressions and [pre_tokenizers.Split(Regex(e), "isolated") for e in expressions]
        if name == "smollm":
            t = byte_level(["<s>", "</s>", "<|user|>"], [pre_tokenizers.Digits(True), pre_tokenizers.ByteLevel(False)], "\n".join(texts()), 900)
            t["pre_tokenizer"]["pretokenizers"].pop()
        else:
            t = byte_level(["<s>", "</s>", "<|user|>"], steps, "\n".join(texts()), 900)
        t["model"]["ignore_merges"] = name in ("llama-bpe", "tekken")
        # llama.cpp has the two cases of letters for ASCII alone
        check_tokenizer(name, {"tokenizer.json": json.dumps(t).encode()}, ascii_only=name in ("tekken", "gpt-4o"))




def check_pieces():
    corpus = texts() + ["the water in the river, and the texts of a model that reads the words of the world one by one"] * 20
    sp = subword_models.sentence_pieces(corpus, 900)
    for name, model in sp.items():
        why = {"sp plain bpe": "no byte_fallback", "sp user unigram": "normalizer", "sp bytes unigram": "Unigram with byte_fallback"}.get(name)
        check_tokenizer(name, {"tokenizer.model": model}, refused=why)
    ids, merges = subword_models.bpe_of(sp["sp llama bpe"])
    special = subword_models.added((0, "<unk>", {}), (1, "<s>", {}), (2, "</s>", {}), (len(ids), "<|user|>", {}), (len(ids) + 1, "<tool>", dict(special=False)))
    fuse = subword_models.sequence("decoders", *subword_models.FUSE)
    prepend = subword_models.sequence("normalizers", {"type": "Prepend", "prepend": "▁"}, subword_models.REPLACE)
    bpe = subword_models.bpe(ids, merges)
    cut = {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False}
    t5 = subword_models.proto(sp["sp t5 unigram"])
    pieces = [(p.piece, p.score) for p in t5.pieces]
    unigram = subword_models.unigram(pieces, 2)
    charsmap = {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(t5.normalizer_spec.precompiled_charsmap).decode()}
    tail = subword_models.added((2, "<unk>", {}), (0, "<pad>", {}), (1, "</s>", {}), (len(pieces), "<s>", {}), (len(pieces) + 1, "<|user|>", {}))
    jsons = {
        "json llama 2": (subword_models.tokenizer(bpe, prepend, None, fuse, special), None),
        "json gemma": (subword_models.tokenizer(bpe, subword_models.REPLACE, cut, fuse, special), None),
        "json metaspace never": (subword_models.tokenizer(bpe, None, subword_models.metaspace("never", False), fuse, special), None),
        "json phi 3": (subword_models.tokenizer(bpe, prepend, None, fuse, subword_models.added(
            (0, "<unk>", {}), (1, "<s>", {}), (2, "</s>", dict(special=False, rstrip=True)), (len(ids), "<|endoftext|>", {}),
            (len(ids) + 1, "<|user|>", dict(rstrip=True)))), None),
        "json merges left out": (subword_models.tokenizer(subword_models.bpe(ids, merges[::2]), prepend, None, fuse, special), "is not made of"),
        "json no bytes": (subword_models.tokenizer(dict(bpe, byte_fallback=False), prepend, None, fuse, special), "no byte_fallback"),
        "json lowercase": (subword_models.tokenizer(bpe, {"type": "Lowercase"}, None, fuse, special), "its normalizer does more"),
        "json t5": (subword_models.tokenizer(unigram, subword_models.sequence("normalizers", charsmap, {"type": "Strip", "strip_left": True, "strip_right": True},
                    {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": "▁"}), subword_models.metaspace(), None, tail), None)}
    for name, (data, why) in jsons.items():
        check_tokenizer(name, {"tokenizer.json": json.dumps(data).encode()}, refused=why)


def check_ends():
    """bos and eos as the files say it."""
    t = byte_level(["<s>", "</s>", "<|user|>"])
    single = [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "</s>", "type_id": 0}}]
    special = {x: {"id": x, "ids": [i], "tokens": [x]} for i, x in enumerate(("<s>", "</s>"))}
    for bos, eos in ((True, False), (False, False), (True, True), (False, True)):
        used = single[0 if bos else 1:3 if eos else 2]
        template = {"type": "TemplateProcessing", "single": used, "pair": [], "special_tokens": special} if bos or eos else None
        for config in {}, {"add_bos_token": not bos, "add_eos_token": not eos}:
            config = {"bos_token": "<s>", "eos_token": "</s>", **config}
            want = [0] * config.get("add_bos_token", bos) + [67 + 2] + [1] * config.get("add_eos_token", eos)
            llama = check_tokenizer(f"bos {bos}, eos {eos}, {'config' if len(config) > 2 else 'template'}",
                                    {"tokenizer.json": json.dumps(dict(t, post_processor=template)).encode(),
                                     "tokenizer_config.json": json.dumps(config).encode()})
            got = llama.ids("e", whole=True)
            want[want.index(69)] = llama.ids("e")[0]
            check(got == want, f"… bos and eos: {got}")


def main():
    for name, config in MODELS.items():
        if not ONLY or name in ONLY:
            check_model(name, config)
    for name, what in (("byte-level", check_byte_level), ("pieces", check_pieces), ("ends", check_ends)):
        if not ONLY or name in ONLY:
            what()
    sys.exit(checks.failed > 0)


main()
