# SPDX-License-Identifier: Apache-2.0
"""plugins/tokenizers/hf against Hugging Face tokenizers and sentencepiece: the same ids, and the same text back, for BPE over
characters, Unigram and WordPiece as tokenizer.json has them, and for tokenizer.model files, on
  real text    HF_PEER_MB (20) MB of this machine, as files and as lines
  fuzz         HF_PEER_FUZZ (100000) strings: random Unicode, control characters, marks, emoji, empty, blanks
  not UTF-8    the same with bytes that are not UTF-8, which count as U+FFFD
  long words   2 MB of blanks, of one letter, of marks
KIND=llama2 picks those whose name contains it."""
import os
import random
import re
import struct
import sys

import sentencepiece as spm

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import hf_tokenizer_peer as peer  # noqa: E402
import subword_models as sub  # noqa: E402

failed = 0
SIZE = int(os.environ.get("HF_PEER_VOCAB", "6000"))


def read_texts(path):
    with open(path, "rb") as f:
        data = f.read()
    out, at = [], 0
    while at < len(data):
        n = struct.unpack_from("<I", data, at)[0]
        out.append(data[at + 4:at + 4 + n])
        at += 4 + n
    return out


class Tokenizers:
    def __init__(self, data):
        self.file = data
        self.t = sub.reference(data)

    def ids(self, texts):
        return [e.ids for e in self.t.encode_batch(texts, add_special_tokens=False)]

    def text(self, ids):
        return self.t.decode(ids, skip_special_tokens=True)


class SentencePiece:
    def __init__(self, data):
        self.file = data
        self.t = spm.SentencePieceProcessor(model_proto=data)

    def ids(self, texts):
        return self.t.encode(texts)

    def text(self, ids):
        return self.t.decode(ids)


class Utf8:
    """A text and the bytes that stand for it, where they are not the same."""

    def __init__(self, text, raw):
        self.text, self.raw = text, raw

    def encode(self):
        return self.raw


def compare(tool, what, t, texts, decode=True):
    global failed
    plain = [x.text if isinstance(x, Utf8) else x for x in texts]
    want = t.ids(plain)
    decoded = os.path.join(peer.work, "decoded")
    got, _ = peer.run(tool, t.file, texts, False, HF_DECODED=decoded)
    bad = [i for i in range(len(texts)) if i >= len(got) or want[i] != got[i]]
    other = []
    if decode:
        back = read_texts(decoded)
        pairs = [(i, t.text(want[i]), back[i].decode("utf-8", "replace")) for i in range(len(texts))]
        # sentencepiece also drops a ▁ that was in the text, if it begins with it
        other = [i for i, a, b in pairs if a != b and not (plain[i].lstrip()[:1] == "▁" and a.lstrip() == b.lstrip())]
    failed += bool(bad or other)
    size = sum(len(x.encode()) for x in texts)
    print(("WRONG " if bad or other else "ok    ") + f"{what}: {len(texts)} texts, {size / 1e6:.1f} MB, {sum(map(len, want))} ids"
          + (f"; {len(bad)} differ" if bad else "") + (f"; {len(other)} decode to something else" if other else ""), flush=True)
    for i in bad[:3]:
        k = next((k for k, (a, b) in enumerate(zip(want[i], got[i])) if a != b), min(len(want[i]), len(got[i]))) if i < len(got) else 0
        print(f"      {plain[i][:100]!r} at id {k}\n      want {want[i][max(0, k - 3):k + 20]}\n      got  {got[i][max(0, k - 3):k + 20] if i < len(got) else None}")
    for i in other[:3]:
        print(f"      {plain[i][:100]!r}\n      want {t.text(want[i])[:100]!r}\n      got  {back[i].decode('utf-8', 'replace')[:100]!r}")


def fuzz_texts(n):
    """fuzz_texts of the other peer, and what these models look at: blanks, user symbols, added tokens."""
    draw = random.Random(11)
    own = [" ", "  ", "   ", "▁", "▁▁", "\u00a0", "\u200b", "\ufeff", "\ufffd", "<unk>", "<s>", "</s>", "<0x41>", "<x>", "<|user|>", " <|user|> ",
           "Zq x", " zword ", " <l>", "[A]", "[AB]", "[ABC", "tion", "the", "<start_of_turn>", "\n\n", "<unused0>", "ing", "[UNK]", "##ing",
           "can't", "do not", "\x00", "\x7f", "\u00ad", "ﬁ", "①", "㍿", "ｶﾞ", "Å", "İ", "ẞ", "Σς", "\r\n", "e\u0301", "日本 語", "👩\u200d👩\u200d👧", ""]
    yield ""
    for i, text in enumerate(peer.fuzz_texts(n - 1, True)):
        if i % 3 == 0:
            k = draw.randrange(len(text) + 1)
            text = text[:k] + draw.choice(own) * draw.choice((1, 1, 1, 2, 30)) + text[k:] + draw.choice(own)
        yield text


def broken_texts(n):
    draw = random.Random(3)
    for text in fuzz_texts(n):
        raw = bytearray(text.encode())
        for _ in range(draw.randrange(4)):
            raw.insert(draw.randrange(len(raw) + 1), draw.randrange(128, 256))
        # one U+FFFD a byte; the valid text between them is the longest one that begins at a byte
        out, at = "", 0
        while at < len(raw):
            try:
                out += raw[at:].decode()
                break
            except UnicodeDecodeError as e:
                out += raw[at:at + e.start].decode() + "\ufffd"
                at += e.start + 1
        yield Utf8(out, bytes(raw))


def main():
    tool = peer.build()
    files = list(peer.real_texts())
    lines = [l for t in files[::7] for l in t.split("\n")][:100000]
    learn = files[::5] + ["Привет мир, как дела?", "日本語のテキスト", "Ελληνικά", "naïve café ﬁne"] * 30
    sp = sub.sentence_pieces(learn, SIZE)
    kinds = {**{k: Tokenizers(v) for k, v in sub.tokenizer_jsons(learn, SIZE, sp).items()}, **{k: SentencePiece(v) for k, v in sp.items()}}
    fuzz, broken = list(fuzz_texts(peer.FUZZ)), list(broken_texts(peer.FUZZ // 10))
    long_words = [" " * 2000000, "a" * 200000, "e" + "\u0301\u0323" * 20000, "\n" * 200000, " \n" * 100000 + "x", "1" * 100000, "嗨" * 50000]
    for name, t in kinds.items():
        if not re.search(os.environ.get("KIND", ""), name):
            continue
        # sentencepiece adds up a document's scores in single precision: of ways that are equal to 1e-7 it takes another one
        # now and then in documents of more than 10,000 tokens, so its Unigram gets pieces of 20,000 characters
        whole = files if not (name.startswith("sp ") and "unigram" in name) else [f[k:k + 20000] for f in files for k in range(0, len(f), 20000)]
        compare(tool, f"{name}: real text", t, whole, len(files) < 400)
        compare(tool, f"{name}: lines", t, lines)
        compare(tool, f"{name}: fuzz", t, fuzz)
        compare(tool, f"{name}: not UTF-8", t, broken)
        compare(tool, f"{name}: long words", t, [w[:20000] for w in long_words] if os.environ.get("SHORT") else long_words, False)
    print("subword_peer: " + ("WRONG" if failed else "ok"))
    return failed != 0


if __name__ == "__main__":
    sys.exit(main())
