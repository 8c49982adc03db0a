# SPDX-License-Identifier: Apache-2.0
"""bench/tokenizer/run.sh's loop for KINDS: tokenizers other than byte-level BPE, trained on the documents, beside the package
that they come from, in turns on one thread. The ids of all documents must be the same.
  kinds.py WORK ROUNDS MB VOCAB KINDS"""
import os
import re
import statistics
import struct
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
work, rounds, mb, vocab_size, wanted = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4]), sys.argv[5]
os.environ.update(HF_PEER_VOCAB=str(vocab_size), HF_TOOL=f"{work}/hf_tool", TOKENIZERS_PARALLELISM="false")
sys.path.insert(0, os.path.join(ROOT, "tests", "peers"))
import peer_texts  # noqa: E402
import subword_peer  # noqa: E402


def ours(path):
    p = subprocess.run([f"{work}/hf_tool", path, f"{work}/texts", "-", "1"], capture_output=True, text=True, check=True)
    words = p.stdout.split()
    return float(words[0]), int(words[2])


def theirs(kind, texts, size):
    start = time.perf_counter()
    n = sum(len(ids) for some in subword_peer.batches(texts, 1 << 20) for ids in kind.ids(some))
    return size / (time.perf_counter() - start) / 1e6, n


def main():
    texts = peer_texts.corpus(mb)
    size = sum(len(t.encode()) for t in texts)
    with open(f"{work}/texts", "wb") as f:
        for t in texts:
            b = t.encode()
            f.write(struct.pack("<I", len(b)) + b)
    jsons, models = subword_peer.all_kinds(texts)
    kinds = {**{k: subword_peer.Tokenizers(v) for k, v in jsons.items()}, **{k: subword_peer.SentencePiece(v) for k, v in models.items()}}
    kinds = {k: v for k, v in kinds.items() if re.fullmatch(wanted, k)}
    got = {k: ([], []) for k in kinds}
    for _ in range(rounds):
        for name, kind in kinds.items():
            path = f"{work}/kind"
            with open(path, "wb") as f:
                f.write(kind.file)
            (speed, n), (other, m) = ours(path), theirs(kind, texts, size)
            got[name][0].append(speed)
            got[name][1].append(other)
            if n != m:
                raise SystemExit(f"bench/tokenizer: {name}: {n} ids, but the package has {m}")
    print(f"vocabulary {vocab_size}, {len(texts)} documents, {size / 1e6:.1f} MB, one thread, median of {rounds}")
    print(f"{'MB/s':20}{'ttrun':>8}{'package':>9}{'x':>7}")
    for name, (a, b) in got.items():
        print(f"{name:20}{statistics.median(a):8.1f}{statistics.median(b):9.1f}{statistics.median(x / y for x, y in zip(a, b)):7.1f}")


main()
