# SPDX-License-Identifier: Apache-2.0
"""Writes tests/golden/subword.json: small tokenizers of every kind but byte-level BPE, and what Hugging Face tokenizers and
sentencepiece make of pseudo-random texts, as digests of ids and of decoded bytes, and of the ids of all texts as one.
tests/plugins/test_hf_subword.c draws the same texts.
  TTRUN_VENV/bin/python tests/golden/subword.py        needs the packages tokenizers, sentencepiece, protobuf"""
import base64
import collections
import glob
import json
import os
import random
import sys

import sentencepiece
import tokenizers

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(os.path.dirname(HERE), "peers")]
from sentencepiece import sentencepiece_model_pb2 as pb  # noqa: E402
import hf_tokenizer as hf  # noqa: E402
import subword_models as sub  # noqa: E402

RULES = "FB01\t66 69\n2460\t31\n00A0\t20\n3000\t20\n09\t20\n41\t61\n0065 0301\t00E9\nFF21\t41\n200B\t\n"
OWN = ["a▁", "b▁▁c", " ", "  ", " ", "<s>", "<unk>", "<0x41>", "<x>", "tion", "[AB]", "[A]", "<|user|>", " <|user|> ", "Zq x", " zword ", " <l>",
       "\n\n", "ing", "do not", "##ing", "\u200b", "\ufeff", "①", "ﬁ", "Ａ", "İ", "ẞ", "\x00", "\x7f", "e\u0301", "嗨嗨"]


def near_unigram(text):
    """A tokenizer.model in which a pair of characters scores nearly what the two score: how sums are rounded decides."""
    draw, m = random.Random(5), pb.ModelProto()
    m.trainer_spec.model_type = 1
    m.normalizer_spec.remove_extra_whitespaces = False
    m.pieces.add(piece="<unk>", type=2)
    scores = {c: -8 - draw.random() for c in sorted(set(text.replace(" ", "▁"))) if c != "\0"}
    for c, score in scores.items():
        m.pieces.add(piece=c, score=score)
    pairs = collections.Counter(a + b for a, b in zip(text, text[1:]) if a in scores and b in scores)
    for pair, _ in sorted(pairs.items(), key=lambda p: (-p[1], p[0]))[:600]:
        m.pieces.add(piece=pair, score=scores[pair[0]] + scores[pair[1]] + draw.uniform(-0.01, 0.01))
    for symbol in ("on", "ons", "st", "\n\n"):
        if symbol not in pairs or not any(p.piece == symbol for p in m.pieces):
            m.pieces.add(piece=symbol, type=4)
    return m.SerializeToString()


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
    kinds["sp near unigram"] = near_unigram("".join(drawn))
    out = {"bits": pieces, "n_texts": n, "tokenizers": tokenizers.__version__, "sentencepiece": sentencepiece.__version__, "kinds": {}}
    for name, data in kinds.items():
        if isinstance(data, bytes):
            t = sentencepiece.SentencePieceProcessor(model_proto=data)
            lists, whole = t.encode(drawn), t.encode("".join(drawn))
            back = [t.decode(ids) for ids in lists]
            kept = {"model": base64.b64encode(data).decode()}
        else:
            t = sub.reference(data)
            lists = [e.ids for e in t.encode_batch(drawn, add_special_tokens=False)]
            whole = t.encode("".join(drawn), add_special_tokens=False).ids
            back = [t.decode(ids) for ids in lists]
            kept = {"tokenizer": data}
        out["kinds"][name] = dict(kept, ids=hf.digest(lists), text=hf.digest([list(b.encode()) for b in back]), whole=hf.digest([whole]))
    with open(os.path.join(HERE, "subword.json"), "w") as f:
        json.dump(out, f, ensure_ascii=True, separators=(",", ":"))
        f.write("\n")


if __name__ == "__main__":
    main()
