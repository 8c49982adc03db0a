# SPDX-License-Identifier: Apache-2.0
"""bench/tokenizer/run.sh's loop. Documents are what hf_tokenizer_peer.py reads from this machine; peers count only where
their packages are there, and must give the same number of ids."""
import json
import os
import statistics
import struct
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
work, rounds, mb, vocab_size, family = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4]), sys.argv[5]
os.environ["HF_PEER_MB"] = str(mb)
os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")

BYTES = [*range(0x21, 0x7f), *range(0xa1, 0xad), *range(0xae, 0x100)]
ALPHABET = {chr(b): b for b in BYTES} | {chr(256 + i): b for i, b in enumerate(b for b in range(256) if b not in BYTES)}


def documents():
    """Without the package tokenizers the peer's reader cannot be imported; then it is the headers alone."""
    try:
        sys.path.insert(0, os.path.join(ROOT, "tests", "peers"))
        import hf_tokenizer_peer as peer
        return list(peer.real_texts()), peer.hf
    except ImportError:
        texts, total = [], 0
        for folder, names, files in os.walk("/usr/include"):
            names.sort()
            for name in sorted(files):
                if total < mb * 1e6:
                    with open(os.path.join(folder, name), errors="ignore") as f:
                        texts.append(f.read())
                    total += len(texts[-1])
        return texts, None


def write_tokenizer(hf, texts):
    path = os.path.join(work, "tokenizer.json")
    with open(os.path.join(ROOT, "tests", "golden", "hf_tokenizer.json")) as f:
        golden = json.load(f)
    if hf:
        with open(os.path.join(work, "corpus"), "w") as f:
            f.write("\n".join(texts))
        vocab, merges = hf.train([f.name], vocab_size)
        data = hf.tokenizer_json(vocab, merges, family, added=[])
    else:
        data = golden["families"][family]["tokenizer"]
        data["model"] |= {"vocab": golden["vocab"], "merges": golden["merges"]}
        data["added_tokens"] = []
    with open(path, "w") as f:
        json.dump(data, f)
    return path, data


def ours(path):
    def go(threads):
        p = subprocess.run([f"{work}/hf_tool", path, f"{work}/texts", "-", str(threads)], capture_output=True, text=True, check=True)
        words = p.stdout.split()
        return float(words[0]), int(words[2])
    return go


def hugging_face(path, texts, size):
    from tokenizers import Tokenizer
    t = Tokenizer.from_file(path)

    def go(threads):
        start = time.perf_counter()
        if threads == 1:
            n = sum(len(t.encode(x, add_special_tokens=False).ids) for x in texts)
        else:
            n = sum(len(e.ids) for e in t.encode_batch(texts, add_special_tokens=False))
        return size / (time.perf_counter() - start) / 1e6, n
    return go


def tik(data, texts, size):
    import tiktoken
    ranks = {bytes(ALPHABET[c] for c in token): i for token, i in data["model"]["vocab"].items()}
    steps = data["pre_tokenizer"].get("pretokenizers", [])
    pattern = steps[0]["pattern"]["Regex"] if len(steps) == 2 else None
    if not pattern or data["normalizer"]:
        raise ImportError("tiktoken has one pattern and no normalizer")
    t = tiktoken.Encoding("bench", pat_str=pattern, mergeable_ranks=ranks, special_tokens={})

    def go(threads):
        start = time.perf_counter()
        if threads == 1:
            n = sum(len(t.encode_ordinary(x)) for x in texts)
        else:
            with ThreadPoolExecutor(threads) as pool:
                n = sum(pool.map(lambda x: len(t.encode_ordinary(x)), texts))
        return size / (time.perf_counter() - start) / 1e6, n
    return go


def main():
    texts, hf = documents()
    size = sum(len(t.encode()) for t in texts)
    path, data = write_tokenizer(hf, texts)
    with open(f"{work}/texts", "wb") as f:
        for t in texts:
            b = t.encode()
            f.write(struct.pack("<I", len(b)) + b)
    runners = {"ttrun": ours(path)}
    for name, make in (("tokenizers", lambda: hugging_face(path, texts, size)), ("tiktoken", lambda: tik(data, texts, size))):
        try:
            runners[name] = make()
        except ImportError as e:
            print(f"bench/tokenizer: without {name}: {e}", file=sys.stderr)
    got = {(name, threads): [] for name in runners for threads in (1, 2)}
    ids = {}
    for _ in range(rounds):
        for name, threads in got:
            speed, ids[name] = runners[name](threads)
            got[name, threads].append(speed)
    print(f"{family}, vocabulary {len(data['model']['vocab'])}, {len(texts)} documents, {size / 1e6:.1f} MB, median of {rounds}")
    print(f"{'':12}{'MB/s, 1 thread':>16}{'2 threads':>12}{'x':>7}{'ids':>12}")
    for name in runners:
        one, two = (statistics.median(got[name, k]) for k in (1, 2))
        print(f"{name:12}{one:16.1f}{two:12.1f}{two / one:7.2f}{ids[name]:12}")
    if len(set(ids.values())) != 1:
        raise SystemExit("bench/tokenizer: the numbers of ids differ")


main()
