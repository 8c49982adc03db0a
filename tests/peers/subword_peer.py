# SPDX-License-Identifier: Apache-2.0
"""plugins/tokenizers/hf against Hugging Face tokenizers and sentencepiece: the same ids, and the same text back, for BPE over
characters, Unigram and WordPiece as tokenizer.json has them, and for tokenizer.model files, on
  real text    HF_PEER_MB (20) MB of this machine in many languages, as whole documents and as lines
  fuzz         HF_PEER_FUZZ (100000) strings: random Unicode, control characters, marks, emoji, empty, blanks
  not UTF-8    a tenth as many with bytes that are not UTF-8, which count as U+FFFD
  long words   2 MB of blanks, of one letter, of marks
KIND=llama2 picks those whose name contains it; HF_PEER_JOBS (2) kinds are compared at a time. HF_PEER_CACHE=DIR keeps the
tokenizers and what the packages answered, so the next run of the same texts needs only ttrun's part. HF_PEER_SAVE=DIR
writes each whole text that differs."""
import array
import hashlib
import importlib.metadata
import multiprocessing
import os
import pickle
import random
import re
import struct
import subprocess
import sys
import time

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # the kinds are what runs side by side

import sentencepiece as spm  # noqa: E402

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import hf_tokenizer_peer as peer  # noqa: E402
import peer_texts  # noqa: E402
import subword_models as sub  # noqa: E402

SIZE = int(os.environ.get("HF_PEER_VOCAB", "6000"))
JOBS = int(os.environ.get("HF_PEER_JOBS", "2"))
CACHE = os.environ.get("HF_PEER_CACHE")


def read_parts(path, width):
    """The lists of a file of hf_tool: bytes of each."""
    with open(path, "rb") as f:
        data = f.read()
    out, at = [], 0
    while at < len(data):
        n = struct.unpack_from("<I", data, at)[0] * width
        out.append(data[at + 4:at + 4 + n])
        at += 4 + n
    return out


def batches(items, size):
    """Lists of items of together about size."""
    some, total = [], 0
    for item in items:
        some.append(item)
        total += len(item)
        if total >= size:
            yield some
            some, total = [], 0
    if some:
        yield some


class Tokenizers:
    def __init__(self, data):
        self.file = peer.json.dumps(data).encode()
        self.t = sub.reference(data)

    def ids(self, texts):
        return [e.ids for e in self.t.encode_batch_fast(texts, add_special_tokens=False)]

    def texts(self, ids):
        return self.t.decode_batch(ids, skip_special_tokens=True)


class SentencePiece:
    def __init__(self, data):
        self.file = data
        self.t = spm.SentencePieceProcessor(model_proto=data)

    def ids(self, texts):
        return self.t.encode(texts, num_threads=1)

    def texts(self, ids):
        return self.t.decode(ids, num_threads=1)


class Utf8:
    """A text and the bytes that stand for it, where they are not the same."""

    def __init__(self, text, raw):
        self.text, self.raw = text, raw

    def encode(self):
        return self.raw


def cached(name, make):
    """make()'s value, or what an earlier run kept of it."""
    path = os.path.join(CACHE, name) if CACHE else None
    if path and os.path.exists(path):
        with open(path, "rb") as f:
            return pickle.load(f)
    value = make()
    if path:
        os.makedirs(CACHE, exist_ok=True)
        with open(path + ".part", "wb") as f:
            pickle.dump(value, f)
        os.replace(path + ".part", path)
    return value


def answers(kind, texts):
    """What the package makes of the texts: the bytes of their ids as int32, and the texts of these ids."""
    ids, back = [], []
    for some in batches(texts, 1 << 20):
        got = kind.ids(some)
        ids += (array.array("i", x).tobytes() for x in got)
        back += kind.texts(got)
    return ids, back


class Set:
    """Texts of one sort: lie at [begin, end) of all."""

    def __init__(self, what, texts, begin, decode=True):
        self.what, self.begin, self.end, self.decode = what, begin, begin + len(texts), decode
        self.bytes = sum(len(x.encode()) for x in texts)


def numbers(data):
    return array.array("i", data).tolist()


def differences(kind, name, one, plain, want, got, limit=3):
    """The lines that say how one set went, and whether it is wrong."""
    (ids, back), (own_ids, own_back) = want, got
    bad = [i for i in range(one.begin, one.end) if ids[i] != own_ids[i]]
    other = [i for i in range(one.begin, one.end) if one.decode and back[i] != own_back[i].decode("utf-8", "replace")]
    count = sum(len(ids[i]) for i in range(one.begin, one.end)) // 4
    lines = [("WRONG " if bad or other else "ok    ") + f"{name}: {one.what}: {one.end - one.begin} texts, {one.bytes / 1e6:.1f} MB, "
             f"{count} ids" + (f"; {len(bad)} differ" if bad else "") + (f"; {len(other)} decode to something else" if other else "")]
    for i in bad[:limit]:
        a, b = numbers(ids[i]), numbers(own_ids[i])
        k = next((k for k, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))
        lines.append(f"      text {i - one.begin}, {plain[i][:100]!r} at id {k}\n      want {a[max(0, k - 3):k + 20]}\n"
                     f"      got  {b[max(0, k - 3):k + 20]}\n      here {kind.texts([a[max(0, k - 3):k + 20]])[0]!r}")
    for i in other[:limit]:
        lines.append(f"      {plain[i][:100]!r}\n      want {back[i][:100]!r}\n      got  {own_back[i].decode('utf-8', 'replace')[:100]!r}")
    save = os.environ.get("HF_PEER_SAVE")
    for i in bad[:limit] if save else ():
        with open(os.path.join(save, f"{name} {one.what} {i - one.begin}".replace(" ", "_")), "w") as f:
            f.write(plain[i])
    return lines, len(bad) + len(other)


def compare(args):
    """Compares one kind on all sets, in a process of its own."""
    name, kind, state = args
    tool, path, sets, plain, digest = state
    mine = os.path.join(peer.work, re.sub(r"\W", "_", name))
    with open(mine + ".tokenizer", "wb") as f:
        f.write(kind.file)
    start = time.perf_counter()
    p = subprocess.run([tool, mine + ".tokenizer", path, mine + ".ids"], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True,
                       env=dict(os.environ, HF_ALLOW_SPECIAL="0", HF_DECODED=mine + ".decoded"))
    if p.returncode:
        return name, [f"WRONG {name}: {p.stderr.strip()}"], 1, [0] * 3
    own = read_parts(mine + ".ids", 4), read_parts(mine + ".decoded", 1)
    for end in (".ids", ".decoded"):
        os.remove(mine + end)
    took = time.perf_counter() - start
    start = time.perf_counter()
    want = cached("answers." + hashlib.sha256(digest + kind.file).hexdigest()[:24], lambda: answers(kind, plain))
    theirs = time.perf_counter() - start
    lines, wrong = [], 0
    for one in sets:
        said, n = differences(kind, name, one, plain, want, own)
        lines += said
        wrong += n
    return name, lines, wrong, [sum(s.bytes for s in sets), len(plain), f"{took:.0f} s, theirs {theirs:.0f} s"]


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


def all_sets(files):
    lines = [l for t in files[::7] for l in t.split("\n")][:100000]
    n = min(1.0, peer.MB / 20)
    long_words = [" " * int(2000000 * n), "a" * int(200000 * n), "e" + "\u0301\u0323" * int(20000 * n), "\n" * int(200000 * n),
                  " \n" * int(100000 * n) + "x", "1" * int(100000 * n), "嗨" * int(50000 * n)]
    sets, plain, raw = [], [], []
    for what, texts in (("real text", files), ("lines", lines), ("fuzz", list(fuzz_texts(peer.FUZZ))),
                        ("not UTF-8", list(broken_texts(peer.FUZZ // 10))), ("long words", long_words)):
        sets.append(Set(what, texts, len(plain), what != "long words"))
        plain += [x.text if isinstance(x, Utf8) else x for x in texts]
        raw += [x.encode() for x in texts]
    return sets, plain, raw


def all_kinds(files):
    learn = files[::5] + ["Привет мир, как дела?", "日本語のテキスト", "Ελληνικά", "naïve café ﬁne"] * 30
    sp = sub.sentence_pieces(learn, SIZE)
    return sub.tokenizer_jsons(learn, SIZE, sp), sp


def main():
    tool = peer.build()
    start = time.perf_counter()
    files = cached(f"corpus.{peer.MB}", lambda: peer_texts.corpus(peer.MB))
    sets, plain, raw = all_sets(files)
    path = os.path.join(peer.work, "all_texts")
    with open(path, "wb") as f:
        for b in raw:
            f.write(struct.pack("<I", len(b)) + b)
    packages = "".join(importlib.metadata.version(p) for p in ("tokenizers", "sentencepiece"))
    with open(path, "rb") as f:
        digest = hashlib.sha256(packages.encode() + f.read()).digest()
    jsons, models = cached(f"kinds.{SIZE}." + digest.hex()[:24], lambda: all_kinds(files))
    kinds = {**{k: Tokenizers(v) for k, v in jsons.items()}, **{k: SentencePiece(v) for k, v in models.items()}}
    todo = [(n, k, (tool, path, sets, plain, digest)) for n, k in kinds.items() if re.search(os.environ.get("KIND", ""), n)]
    print(f"{len(todo)} kinds, {len(plain)} texts, {sum(map(len, raw)) / 1e6:.1f} MB, made in {time.perf_counter() - start:.0f} s", flush=True)
    table, failed = [], 0
    for name, lines, wrong, (size, texts, took) in in_processes(todo):
        print("\n".join(lines), flush=True)
        failed += wrong
        table.append(f"{name:18} {size:12} {texts:10} {wrong:12}   {took}")
    print(f"{'kind':18} {'bytes':>12} {'strings':>10} {'differences':>12}   time\n" + "\n".join(table))
    print("subword_peer: " + ("WRONG" if failed else "ok"))
    return failed != 0


def work(at):
    return compare(todo_of_workers[at])


def in_processes(todo):
    """The results of compare, as they come. The processes are forked, so they have the texts."""
    global todo_of_workers
    todo_of_workers = todo
    with multiprocessing.get_context("fork").Pool(JOBS, maxtasksperchild=1) as pool:
        yield from pool.imap_unordered(work, range(len(todo)))


if __name__ == "__main__":
    sys.exit(main())
