# SPDX-License-Identifier: Apache-2.0
"""A folder with tokenizer.model and what lies beside it (tokenizer_config.json, special_tokens_map.json, added_tokens.json)
against transformers' LlamaTokenizer, which converts it: the same ids for HF_PEER_FUZZ (20000) strings with added tokens in
them, with special tokens read as such and as plain text, and the same bos, eos and pad.
  added_tokens_peer.py            needs the packages transformers, tokenizers, sentencepiece"""
import json
import os
import random
import re
import struct
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import hf_tokenizer_peer as peer  # noqa: E402
import peer_texts  # noqa: E402
import subword_models as sub  # noqa: E402
from transformers import LlamaTokenizer  # noqa: E402

FUZZ = int(os.environ.get("HF_PEER_FUZZ", "20000"))
failed = 0


def token(content, special=True, **more):
    return dict(dict(content=content, lstrip=False, normalized=False, rstrip=False, single_word=False, special=special), **more)


def folders(n):
    """name: the files beside a model of n pieces."""
    three = {"0": token("<unk>"), "1": token("<s>"), "2": token("</s>")}
    chat = dict(three, **{str(n): token("<|im_start|>"), str(n + 1): token("<|im_end|>", rstrip=True), str(n + 2): token("<tool>", special=False),
                          str(n + 3): token("zword", special=False, single_word=True), str(n + 4): token("<l>", special=False, lstrip=True)})
    named = dict(bos_token="<s>", eos_token="</s>", unk_token="<unk>")
    llama = dict(tokenizer_class="LlamaTokenizer")
    return {
        "no config": {},
        "decoder": {"tokenizer_config.json": dict(llama, **named, added_tokens_decoder=chat)},
        "decoder, other eos": {"tokenizer_config.json": dict(llama, **dict(named, eos_token="<|im_end|>", pad_token="<tool>"),
                                                             added_tokens_decoder=chat, legacy=False),
                               "special_tokens_map.json": {"eos_token": "</s>"}},
        "legacy": {"tokenizer_config.json": dict(llama, **named, legacy=True, added_tokens_decoder=chat)},
        "no prefix": {"tokenizer_config.json": dict(llama, **named, add_prefix_space=False, added_tokens_decoder=chat)},
        "map": {"tokenizer_config.json": dict(llama, **named, additional_special_tokens=["<|user|>", "<tool>"]),
                "special_tokens_map.json": {"pad_token": token("[PAD]"), "eos_token": "<|end|>"}},
        "old": {"tokenizer_config.json": dict(llama, **named), "special_tokens_map.json": {"pad_token": "[PAD]"},
                "added_tokens.json": {"[PAD]": n, "<tool>": n + 1, "<|user|>": n + 2}},
        "pad in config": {"tokenizer_config.json": dict(llama, **named, pad_token="<pad>", legacy=True)},
    }


def texts(n):
    own = ["<|im_start|>", "<|im_end|>", "<tool>", "zword", "zword", "<l>", "[PAD]", "<|user|>", "<|end|>", "<s>", "</s>", "<unk>", " ", "\n", "  "]
    draw = random.Random(9)
    for text in peer.fuzz_texts(n, True):
        for _ in range(draw.randrange(4)):
            k = draw.randrange(len(text) + 1)
            text = text[:k] + draw.choice(own) + text[k:]
        # transformers 5 puts no blank before a part that begins with one; transformers 4 and sentencepiece do
        yield re.sub("(" + "|".join(map(re.escape, own[:12])) + "|^)[ ▁]+", r"\1", text)


def ours(tool, folder, some, special):
    given, got = (os.path.join(peer.work, x) for x in ("given", "got"))
    with open(given, "wb") as f:
        for t in some:
            b = t.encode()
            f.write(struct.pack("<I", len(b)) + b)
    p = subprocess.run([tool, os.path.join(folder, "tokenizer.model"), given, got], capture_output=True, text=True,
                       env=dict(os.environ, HF_ALLOW_SPECIAL=str(int(special)), HF_SPECIALS="1"))
    if p.returncode:
        return [], p.stderr.strip()
    with open(got, "rb") as f:
        data = f.read()
    lists, at = [], 0
    while at < len(data):
        n = struct.unpack_from("<I", data, at)[0]
        lists.append(list(struct.unpack_from(f"<{n}i", data, at + 4)))
        at += 4 + 4 * n
    return lists, [x for x in p.stdout.splitlines() if x.startswith("bos ")][0]


def main():
    global failed
    tool = peer.build()
    files = peer_texts.corpus(0.5)
    model = sub.sentence_pieces(files, 2000)["sp llama bpe"]
    some = list(texts(FUZZ))
    for name, beside in folders(len(sub.proto(model).pieces)).items():
        folder = os.path.join(peer.work, name.replace(" ", "_").replace(",", ""))
        os.makedirs(folder)
        with open(os.path.join(folder, "tokenizer.model"), "wb") as f:
            f.write(model)
        for file, data in beside.items():
            with open(os.path.join(folder, file), "w") as f:
                json.dump(data, f)
        for special in (False, True) if beside else (False,):  # without configs, ttrun reads no piece as special
            t = LlamaTokenizer.from_pretrained(folder, split_special_tokens=not special)
            want = [t(x, add_special_tokens=False)["input_ids"] for x in some]
            got, said = ours(tool, folder, some, special)
            bad = [i for i in range(len(some)) if i >= len(got) or got[i] != want[i]]
            ids = f"bos {t.bos_token_id} eos {t.eos_token_id} pad {-1 if t.pad_token_id is None else t.pad_token_id}"
            wrong = bool(bad) or (beside and said != ids)
            failed += bool(wrong)
            print(("WRONG " if wrong else "ok    ") + f"{name}, special tokens {'read' if special else 'plain'}: {len(some)} strings, "
                  f"{sum(map(len, want))} ids; {len(bad)} differ; {said}, want {ids}", flush=True)
            for i in bad[:3]:
                print(f"      {some[i][:100]!r}\n      want {t.convert_ids_to_tokens(want[i])[:30]} {want[i][:30]}\n      got  {t.convert_ids_to_tokens(got[i])[:30] if i < len(got) else None} {got[i][:30] if i < len(got) else None}")
    print("added_tokens_peer: " + ("WRONG" if failed else "ok"))
    return failed != 0


if __name__ == "__main__":
    sys.exit(main())
