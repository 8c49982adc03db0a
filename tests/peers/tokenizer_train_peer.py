# SPDX-License-Identifier: Apache-2.0
"""ttrun tokenizer train against Hugging Face's BpeTrainer, on TRAIN_PEER_MB (4) MB of this machine's text: the same
vocabulary and the same merges in the same order; tokenizers opens the file, and cuts and encodes text with it as with
the one it learnt itself.

usage: tokenizer_train_peer.py [build folder]"""
import json
import os
import subprocess
import sys

from tokenizers import Tokenizer, models, pre_tokenizers, trainers

import hf_tokenizer_peer as peer
import checks
from checks import check

BUILD = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else "build/release")
MB = float(os.environ.get("TRAIN_PEER_MB", "4"))
SPECIAL = ["<s>", "</s>", "<think>"]
def theirs(files, family, size):
    t = Tokenizer(models.BPE())
    whole = peer.hf.reference(peer.hf.tokenizer_json({}, [], family, added=[]))
    t.pre_tokenizer, t.decoder = whole.pre_tokenizer, whole.decoder
    if whole.normalizer:
        t.normalizer = whole.normalizer
    t.train_from_iterator(files, trainers.BpeTrainer(vocab_size=size, min_frequency=0, special_tokens=SPECIAL,
                                                     initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    return t


def ours(paths, family, size, threads):
    out = os.path.join(peer.work, f"learnt.{family}")
    more = [w for s in SPECIAL[2:] for w in ("--special", s)]
    r = subprocess.run([f"{BUILD}/ttrun", "tokenizer", "train", "--plugin-dir", f"{BUILD}/plugins", "--vocab-size", str(size),
                        "--pattern", family, "--bos", SPECIAL[0], "--eos", SPECIAL[1], *more, "--threads", str(threads),
                        "--out", out, "-q", "--data", *paths], capture_output=True, text=True, timeout=300)
    if r.returncode:
        raise SystemExit(f"WRONG ttrun tokenizer train: {r.stderr}")
    return os.path.join(out, "tokenizer.json")


def compare(family, size, threads, files, paths, texts):
    want, path = theirs(files, family, size), ours(paths, family, size, threads)
    got = Tokenizer.from_file(path)
    a, b = (json.loads(t.to_str())["model"] for t in (want, got))
    same = next((i for i, (x, y) in enumerate(zip(a["merges"], b["merges"])) if x != y), min(len(a["merges"]), len(b["merges"])))
    check(a["merges"] == b["merges"], f"{family}: {len(a['merges'])} merges in order" + (
        "" if a["merges"] == b["merges"] else f"; ours {len(b['merges'])}, from {same}: {a['merges'][same:same + 2]} {b['merges'][same:same + 2]}"))
    check(a["vocab"] == b["vocab"] and want.get_vocab() == got.get_vocab(), f"{family}: {len(a['vocab'])} tokens have the same ids")
    x, y = (t.encode_batch(texts, add_special_tokens=False) for t in (want, got))
    n = sum(len(e.ids) for e in x)
    check([e.ids for e in x] == [e.ids for e in y], f"{family}: tokenizers encodes {len(texts)} texts alike with both, {n} ids")
    # NFC is no part of the text that comes back
    check(all(t.decode(e.ids, skip_special_tokens=False) == t.normalizer.normalize_str(s) if t.normalizer else
              t.decode(e.ids, skip_special_tokens=False) == s for t in [got] for s, e in zip(texts, y)), f"{family}: and decodes them")


def main():
    peer.MB = MB
    files = list(peer.real_texts())
    paths = []
    for i, text in enumerate(files):
        paths.append(os.path.join(peer.work, f"text.{i:05}"))
        with open(paths[-1], "wb") as f:
            f.write(text.encode())
    texts = files[:: 9] + list(peer.fuzz_texts(3000, False))
    for family, size, threads in ("llama3", 8000, 2), ("gpt2", 3000, 1), ("qwen2", 3000, 3), ("tekken", 2000, 2):
        compare(family, size, threads, files, paths, texts)
    print(f"tokenizer_train_peer: {sum(map(len, map(str.encode, files))) / 1e6:.1f} MB, " + ("WRONG" if checks.failed else "ok"))
    return checks.failed != 0


if __name__ == "__main__":
    sys.exit(main())
