# SPDX-License-Identifier: Apache-2.0
"""Writes tests/golden/hf_tokenizer.json: a small byte-level vocabulary, the pre-tokenizers of six families and what Hugging
Face tokenizers make of pseudo-random texts, as a digest. tests/plugins/test_hf_tokenizer.c draws the same texts.
  TTRUN_VENV/bin/python tests/golden/hf_tokenizer.py        needs the package tokenizers"""
import glob
import json
import os
import random
import unicodedata

import tokenizers
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

HERE = os.path.dirname(os.path.abspath(__file__))
WORDS = r"|\s+(?!\S)|\s+"
L3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+" + WORDS)
D3 = (r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*"
      r"|\s*[\r\n]+" + WORDS).replace('\\"', '"')
UP, LOW = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
TK = (rf"[^\r\n\p{{L}}\p{{N}}]?{UP}*{LOW}+|[^\r\n\p{{L}}\p{{N}}]?{UP}+{LOW}*|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*"
      r"|\s*[\r\n]+" + WORDS)
NC = (r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,2}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]" + WORDS)
Q35 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+" + WORDS)


def split(pattern, behavior="Isolated", invert=False):
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": behavior, "invert": invert}


def byte_level(use_regex=False, prefix=False):
    return {"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": True, "use_regex": use_regex}


def sequence(*steps):
    return {"type": "Sequence", "pretokenizers": [*steps, byte_level()]}


NFC = {"type": "NFC"}
# name: (normalizer, pre_tokenizer, ignore_merges)
FAMILIES = {
    "gpt2": (None, byte_level(True), False),
    "llama3": (None, sequence(split(L3)), True),
    "qwen2": (NFC, sequence(split(L3.replace("{1,3}", ""))), False),
    "deepseek3": (None, sequence(split(r"\p{N}{1,3}"), split("[一-龥\u3040-ゟ゠-ヿ]+"), split(D3)), False),
    "tekken": (None, sequence(split(TK)), True),
    "nanochat": (None, sequence(split(NC)), False),
    "qwen35": (NFC, sequence(split(Q35)), False),
    # an unknown pattern, other behaviours, a blank put before every piece
    "pcre2": ({"type": "Sequence", "normalizers": [NFC]}, sequence(split(r"\p{Lu}?\p{Ll}+|\s+|[^\s\p{L}]+|\p{L}"),
              split(r"[aeiou]+\S", "Removed"), split(r"\d|\D+", "Removed", True)), False),
    "prefix": (None, byte_level(True, True), False),
}


def train(files, vocab_size, family="llama3"):
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(L3), "isolated"),
                                               pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.train(files, trainers.BpeTrainer(vocab_size=vocab_size, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
                                       show_progress=False))
    model = json.loads(t.to_str())["model"]
    return model["vocab"], [tuple(m.split(" ", 1)) if isinstance(m, str) else tuple(m) for m in model["merges"]]


def added_tokens(n):
    """One token spelt as no normal form has it. No gap: tokenizers would number them otherwise than the file."""
    plain = dict(single_word=False, lstrip=False, rstrip=False, normalized=False, special=False)
    return [dict(plain, id=n, content="<|endoftext|>", special=True),
            dict(plain, id=n + 1, content="<think>"), dict(plain, id=n + 2, content="<think>x"),
            dict(plain, id=n + 3, content="_strip_", lstrip=True, rstrip=True),
            dict(plain, id=n + 4, content="zqword", single_word=True, normalized=True),
            dict(plain, id=n + 5, content="e\u0301\u0323!", normalized=True), dict(plain, id=n + 6, content="  ")]


def tokenizer_json(vocab, merges, name, old_merges=False, added=None):
    normalizer, pre_tokenizer, ignore = FAMILIES[name]
    return {"version": "1.0", "truncation": None, "padding": None,
            "added_tokens": added_tokens(len(vocab)) if added is None else added,
            "normalizer": normalizer, "pre_tokenizer": pre_tokenizer, "post_processor": None,
            "decoder": byte_level(True), "model": {"type": "BPE", "dropout": None, "unk_token": None,
            "continuing_subword_prefix": None, "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
            "ignore_merges": ignore, "vocab": vocab, "merges": [" ".join(m) for m in merges] if old_merges else merges}}


def bits(seed=5, each=18):
    """What texts are made of: pieces that patterns look at, and code points of every category, assigned by Unicode 14."""
    draw = random.Random(seed)
    by = {}
    for c in range(0x80, 0x110000):
        category = unicodedata.category(chr(c))
        if category not in ("Cn", "Cs", "Co"):
            by.setdefault(category, []).append(chr(c))
    out = [chr(c) for c in range(1, 0x80)]
    out += [" "] * 60 + ["  ", "   ", "\n", "\n", "\n\n", "\r\n", "\t", " \n", "\n ", "\u00a0", "\u3000", "\u0085", "\u2028"] * 4
    out += ["'s", "'S", "'ſ", "'t", "'Re", "'VE", "'m", "'ll", "'lL", "'d", "'", "''", "/", "//\n"] * 3
    out += "the The THE ing int return const char hello World HTTPServer 1 12 123 1234 3.14 x86_64 ... --> /* */ (x)".split() * 3
    out += ["<|endoftext|>", "<think>", "<think>x", "_strip_", " _strip_ ", "zqword", " zqword ", "  "] * 2
    out += ["é", "e\u0301", "e\u0301\u0323!", "e\u0323\u0301", "a\u0301\u0323", "o\u0302\u0327\u0331\u0334", "\u1ea1\u0302", "\u212b", "\u2126", "\u1100\u1161\u11a8",
            "\uac00\u11a8", "\u0958", "\u0344", "\u1f82", "Å", "ſ", "K", "ß", "İ", "ǅ", "ʰ", "日本語", "ひらがな", "カタカナ",
            "中文", "한국어", "Привет", "العربية", "עברית", "हिन्दी", "ไทย", "👩\u200d👩\u200d👧", "🇩🇪", "½", "Ⅷ", "٣", "€", "—", "“", "\ufeff",
            "\u0378", "\U0010ffff", "\ue000"]
    for category in sorted(by):
        out += draw.sample(by[category], min(each, len(by[category])))
    return out


class Draw:
    """xorshift64*; the C test has the same."""

    def __init__(self, seed):
        self.x = seed

    def __call__(self, below):
        m = (1 << 64) - 1
        self.x ^= self.x >> 12
        self.x = (self.x ^ self.x << 25) & m
        self.x ^= self.x >> 27
        return ((self.x * 2685821657736338717 & m) >> 33) % below


def texts(pieces, n, seed=1):
    draw = Draw(seed)
    for _ in range(n):
        yield "".join(pieces[draw(len(pieces))] for _ in range(1 + draw(30)))


def digest(lists):
    h = 0xcbf29ce484222325
    for ids in lists:
        for v in [len(ids), *ids]:
            for byte in v.to_bytes(4, "little"):
                h = (h ^ byte) * 0x100000001b3 & (1 << 64) - 1
    return f"{h:016x}"


def reference(data):
    t = Tokenizer.from_str(json.dumps(data))
    t.encode_special_tokens = True
    return t


def main():
    files = sorted(glob.glob("/usr/include/*.h"))[:60] + sorted(glob.glob("/usr/share/vim/vim*/tutor/*utf-8"))[:40]
    vocab, merges = train(files, 1400)
    pieces, n = bits(), 3000
    data = {"vocab": vocab, "merges": merges, "bits": pieces, "n_texts": n, "tokenizers": tokenizers.__version__, "families": {}}
    for name in FAMILIES:
        tokenizer = tokenizer_json(vocab, merges, name)
        t = reference(tokenizer)
        lists = [e.ids for e in t.encode_batch(list(texts(pieces, n)), add_special_tokens=False)]
        del tokenizer["model"]["vocab"], tokenizer["model"]["merges"]
        data["families"][name] = {"tokenizer": tokenizer, "digest": digest(lists), "first": lists[0]}
    with open(os.path.join(HERE, "hf_tokenizer.json"), "w") as f:
        json.dump(data, f, ensure_ascii=True, separators=(",", ":"))
        f.write("\n")


if __name__ == "__main__":
    main()
