# SPDX-License-Identifier: Apache-2.0
"""tiktoken files read by plugins/tokenizers/hf against the package tiktoken: the same ids, with a rank file trained here, on the
texts of hf_tokenizer_peer.py (HF_PEER_MB, HF_PEER_FUZZ), for the patterns of gpt2, cl100k, o200k, llama3, kimi by name and as
expressions, and for one that PCRE2 reads; special tokens plain and allowed."""
import base64
import os
import sys

import tiktoken
from tiktoken_ext import openai_public

import hf_tokenizer_peer as peer

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
KIMI = "|".join([r"[\p{Han}]+",
                 r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
                 r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
                 r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"])
OTHER = r"\p{Lu}?\p{Ll}+|\p{N}{1,4}+|\s+$|\s|[^\s\p{L}\p{N}]+|\p{L}"


def patterns():
    """The expressions of the package, without the rank files it would fetch."""
    kept = openai_public.load_tiktoken_bpe
    openai_public.load_tiktoken_bpe = lambda *a, **k: {}
    try:
        yield "gpt2", openai_public.r50k_base()["pat_str"]
        for name in ("cl100k", "o200k"):
            text = getattr(openai_public, name + "_base")()["pat_str"]
            yield name, text
            yield text, text
    finally:
        openai_public.load_tiktoken_bpe = kept
    yield "llama3", LLAMA3
    yield "kimi", KIMI
    yield KIMI, KIMI
    yield OTHER, OTHER


def compare(tool, what, data, theirs, texts, env, special=False):
    want = [theirs.encode(t, allowed_special="all" if special else set(), disallowed_special=()) for t in texts]
    got, said = peer.run(tool, data, texts, special, **env)
    said = "" if special else said # special tokens have no text
    bad = [i for i in range(len(texts)) if i >= len(got) or want[i] != got[i]]
    print(("WRONG " if bad or said else "ok    ") + f"{what}: {len(texts)} texts, {sum(len(t.encode()) for t in texts) / 1e6:.1f} MB, "
          f"{sum(map(len, want))} ids" + (f"; {len(bad)} differ" if bad else "") + (f"; {said}" if said else ""), flush=True)
    for i in bad[:3]:
        print(f"      {texts[i][:120]!r}\n      want {want[i][:40]}\n      got  {got[i][:40] if i < len(got) else None}")
    return bool(bad or said)


def main():
    tool = peer.build()
    files = list(peer.real_texts())
    corpus = os.path.join(peer.work, "corpus")
    with open(corpus, "w") as f:
        f.write("\n".join(files)[: 8 << 20])
    vocab, _ = peer.hf.train([corpus], 8000)
    letters = {chr(b): b for b in (*range(0x21, 0x7f), *range(0xa1, 0xad), *range(0xae, 0x100))}
    for b in range(256):
        if b not in letters.values():
            letters[chr(256 + len(letters) - 188)] = b
    ranks = {bytes(letters[c] for c in token): i for token, i in vocab.items()}
    data = "".join(f"{base64.b64encode(t).decode()} {i}\n" for t, i in sorted(ranks.items(), key=lambda x: x[1])).encode()
    special = {"<|endoftext|>": len(ranks), "<think>": len(ranks) + 9}
    fuzz, assigned = list(peer.fuzz_texts(peer.FUZZ, True)), list(peer.fuzz_texts(peer.FUZZ, False))
    long_words = ["a" * 20000, "\n" * 20000 + "x", " \n" * 10000, "1" * 100000, " " * 20000]
    failed = 0
    for given, expression in patterns():
        name = given if len(given) < 10 else given[:24] + "…"
        theirs = tiktoken.Encoding("peer", pat_str=expression, mergeable_ranks=ranks, special_tokens=special)
        env = {"HF_PATTERN": given, "HF_SPECIAL_TOKENS": str(special).replace("'", '"')}
        strings = assigned if given == OTHER else fuzz
        if given == expression and given != OTHER: # the same scanner as by name
            strings = strings[: len(strings) // 10]
        else:
            failed += compare(tool, f"{name} real text", data, theirs, files, env)
        failed += compare(tool, f"{name} fuzz", data, theirs, strings, env)
        failed += compare(tool, f"{name} fuzz, special tokens", data, theirs, strings[:10000], env, special=True)
        failed += compare(tool, f"{name} long words", data, theirs, long_words, env)
    print("tiktoken_peer: " + ("WRONG" if failed else "ok"))
    return failed != 0


if __name__ == "__main__":
    sys.exit(main())
