# SPDX-License-Identifier: Apache-2.0
"""Writes tests/golden/subword.json: small tokenizers of every kind but byte-level BPE, and what Hugging Face tokenizers and
sentencepiece make of pseudo-random texts, as digests of ids and of decoded bytes. tests/plugins/test_hf_subword.c draws the
same texts.
  TTRUN_VENV/bin/python tests/golden/subword.py        needs the packages tokenizers, sentencepiece, protobuf"""
import base64
import glob
import json
import os
import sys

import sentencepiece
import tokenizers

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(os.path.dirname(HERE), "peers")]
import hf_tokenizer as hf  # noqa: E402
import subword_models as sub  # noqa: E402

RULES = "FB01\t66 69\n2460\t31\n00A0\t20\n3000\t20\n09\t20\n41\t61\n0065 0301\t00E9\nFF21\t41\n200B\t\n"
OWN = ["a▁", "b▁▁c", " ", "  ", " ", "<s>", "<unk>", "<0x41>", "<x>", "tion", "[AB]", "[A]", "<|user|>", " <|user|> ", "Zq x", " zword ", " <l>",
       "\n\n", "ing", "do not", "##ing", "\u200b", "\ufeff", "①", "ﬁ", "Ａ", "İ", "ẞ", "\x00", "\x7f", "e\u0301", "嗨嗨"]


def main():
    names = sorted(glob.glob("/usr/include/*.h"))[:40] + sorted(glob.glob("/usr/share/vim/vim*/tutor/*utf-8"))[:20]
    texts = [open(n, errors="ignore").read() for n in names]
    rules = os.path.join("/tmp", f"rules.{os.getpid()}.tsv")
    with open(rules, "w") as f:
        f.write(RULES)
    sp = sub.sentence_pieces(texts, 700, normalization_rule_tsv=rules)
    os.unlink(rules)
    kinds = {**sub.tokenizer_jsons(texts, 500, sp), **sp}
    pieces, n = hf.bits(each=4) + OWN * 3, 1500
    drawn = ["".join(t) for t in hf.texts(pieces, n)]
    out = {"bits": pieces, "n_texts": n, "tokenizers": tokenizers.__version__, "sentencepiece": sentencepiece.__version__, "kinds": {}}
    for name, data in kinds.items():
        if isinstance(data, bytes):
            t = sentencepiece.SentencePieceProcessor(model_proto=data)
            lists = t.encode(drawn)
            back = [t.decode(ids) for ids in lists]
            kept = {"model": base64.b64encode(data).decode()}
        else:
            t = sub.reference(data)
            lists = [e.ids for e in t.encode_batch(drawn, add_special_tokens=False)]
            back = [t.decode(ids) for ids in lists]
            kept = {"tokenizer": data}
        out["kinds"][name] = dict(kept, ids=hf.digest(lists), text=hf.digest([list(b.encode()) for b in back]))
    with open(os.path.join(HERE, "subword.json"), "w") as f:
        json.dump(out, f, ensure_ascii=True, separators=(",", ":"))
        f.write("\n")


if __name__ == "__main__":
    main()
