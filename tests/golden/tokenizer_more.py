# SPDX-License-Identifier: Apache-2.0
"""Writes tests/golden/tokenizer_more.json: with the vocabulary and the texts of hf_tokenizer.json, digests of the ids the package
tiktoken makes of them, and of the merges Hugging Face's BpeTrainer learns from them. tests/plugins/test_hf_{tiktoken,train}.c
  TTRUN_VENV/bin/python tests/golden/tokenizer_more.py        needs the packages tiktoken and tokenizers"""
import json
import os
import sys

import tiktoken
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

import hf_tokenizer as hf

sys.path.insert(0, os.path.join(hf.HERE, "..", "peers"))
import tiktoken_peer  # noqa: E402


def fnv(data):
    h = 0xcbf29ce484222325
    for byte in data:
        h = (h ^ byte) * 0x100000001b3 & (1 << 64) - 1
    return f"{h:016x}"


def learn(texts, family, size):
    normalizer, pre_tokenizer, _ = hf.FAMILIES[family]
    empty = hf.tokenizer_json({}, [], family, added=[])
    t = Tokenizer(models.BPE())
    whole = Tokenizer.from_str(json.dumps(empty))
    t.pre_tokenizer = whole.pre_tokenizer
    if normalizer:
        t.normalizer = whole.normalizer
    t.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=size, min_frequency=0, special_tokens=["<s>", "</s>"], show_progress=False,
                                                     initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    merges = json.loads(t.to_str())["model"]["merges"]
    return fnv("".join(f"{a} {b}\n" for a, b in merges).encode())


def main():
    with open(os.path.join(hf.HERE, "hf_tokenizer.json")) as f:
        golden = json.load(f)
    texts = list(hf.texts(golden["bits"], golden["n_texts"]))
    letters = [*range(0x21, 0x7f), *range(0xa1, 0xad), *range(0xae, 0x100)]
    other = [b for b in range(256) if b not in letters]
    byte = {chr(b): b for b in letters} | {chr(256 + i): b for i, b in enumerate(other)}
    ranks = {bytes(byte[c] for c in token): i for token, i in golden["vocab"].items()}
    out = {"tiktoken": {}, "train": {}, "vocab_size": 1500}
    for name, expression in tiktoken_peer.patterns():
        t = tiktoken.Encoding("golden", pat_str=expression, mergeable_ranks=ranks, special_tokens={})
        out["tiktoken"][name] = hf.digest([t.encode_ordinary(x) for x in texts])
    for family in ("gpt2", "llama3", "qwen2", "deepseek3", "tekken", "nanochat"):
        out["train"][family] = learn(texts, family, out["vocab_size"])
    with open(os.path.join(hf.HERE, "tokenizer_more.json"), "w") as f:
        json.dump(out, f, indent=1)
        f.write("\n")


if __name__ == "__main__":
    main()
