# SPDX-License-Identifier: Apache-2.0
"""plugins/tokenizers/hf against Hugging Face tokenizers: the same ids for every family of patterns, on
  real text    HF_PEER_MB (20) MB of /usr/include, /usr/share and more, as files and as lines
  fuzz         HF_PEER_FUZZ (100000) random Unicode strings, of all code points; where PCRE2 reads the pattern, of Unicode 14
  formats      pair and string merges, added tokens, NFC, a vocabulary of gaps
  special      special tokens in texts, plain and allowed
  long words   2 MB of spaces, of one letter, of combining marks
FAMILY=llama3 picks one."""
import json
import os
import random
import struct
import subprocess
import sys
import tempfile
import unicodedata

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.join(ROOT, "tests", "golden"))
import hf_tokenizer as hf  # noqa: E402

MB = float(os.environ.get("HF_PEER_MB", "20"))
FUZZ = int(os.environ.get("HF_PEER_FUZZ", "100000"))
work = tempfile.mkdtemp(prefix="hf_peer.")
failed = 0


def build():
    given = os.environ.get("HF_TOOL")
    if given:
        return given
    out = os.path.join(work, "hf_tool")
    base = [os.path.join(ROOT, "core", "base", f) for f in sorted(os.listdir(os.path.join(ROOT, "core", "base"))) if f.endswith(".c")]
    subprocess.run(["gcc", "-std=c11", "-O2", "-g", "-pthread", f"-I{ROOT}/include", f"-I{ROOT}/core", "-o", out,
                    f"{ROOT}/tests/peers/hf_tool.c", *base, "-ljansson", "-lpcre2-8", "-lutf8proc", "-lm"],
                   check=True)
    return out


def real_texts():
    """Files of the machine, sorted, valid UTF-8 only."""
    total = 0
    for top in ("/usr/share/vim", "/usr/include", "/usr/share/doc", "/usr/share/perl", "/usr/lib/python3", "/usr/lib/python3.11"):
        for folder, names, files in os.walk(top):
            names.sort()
            for name in sorted(files):
                path = os.path.join(folder, name)
                try:
                    with open(path, "rb") as f:
                        text = f.read(1 << 20).decode("utf-8")
                except (OSError, UnicodeDecodeError):
                    continue
                if "\0" in text:
                    continue
                total += len(text.encode())
                yield text
                if total > MB * 1e6:
                    return


def fuzz_texts(n, unassigned, seed=7):
    """unassigned: by Unicode 14, Python's here; the reference may know better."""
    draw = random.Random(seed)
    points = [chr(c) for c in range(0x110000)
              if not 0xD800 <= c < 0xE000 and (unassigned or unicodedata.category(chr(c)) != "Cn")]
    by = {}
    for c in points:
        by.setdefault(unicodedata.category(c), []).append(c)
    classes, pieces = sorted(by), hf.bits()
    for _ in range(n):
        out = []
        for _ in range(1 + draw.randrange(24)):
            k = draw.randrange(10)
            out.append(draw.choice(pieces) if k < 6 else draw.choice(by[draw.choice(classes)]) if k < 9 else draw.choice(points))
        yield "".join(out)


def run(tool, tokenizer, texts, special, **env):
    """tokenizer: a tokenizer.json's object, or the bytes of a file."""
    path, given, got = (os.path.join(work, n) for n in ("tokenizer.json", "texts", "ids"))
    with open(path, "wb") as f:
        f.write(tokenizer if isinstance(tokenizer, bytes) else json.dumps(tokenizer).encode())
    with open(given, "wb") as f:
        for t in texts:
            b = t.encode()
            f.write(struct.pack("<I", len(b)) + b)
    p = subprocess.run([tool, path, given, got], capture_output=True, text=True,
                       env=dict(os.environ, HF_ALLOW_SPECIAL=str(int(special)), **env))
    if p.returncode:
        raise SystemExit(f"WRONG {p.stderr}")
    with open(got, "rb") as f:
        data = f.read()
    lists, at = [], 0
    while at < len(data):
        n = struct.unpack_from("<I", data, at)[0]
        lists.append(list(struct.unpack_from(f"<{n}i", data, at + 4)))
        at += 4 + 4 * n
    return lists, p.stdout.strip()


def compare(tool, what, tokenizer, texts, lossless=False, special=False):
    global failed
    reference = hf.reference(tokenizer)
    reference.encode_special_tokens = not special
    want = [e.ids for e in reference.encode_batch(texts, add_special_tokens=False)]
    got, said = run(tool, tokenizer, texts, special)
    bad = [i for i in range(len(texts)) if i >= len(got) or want[i] != got[i]]
    ok = not bad and (not said or not lossless)
    failed += not ok
    size = sum(len(t.encode()) for t in texts)
    print(("ok    " if ok else "WRONG ") + f"{what}: {len(texts)} texts, {size / 1e6:.1f} MB, {sum(map(len, want))} ids"
          + (f"; {len(bad)} differ" if bad else "") + (f"; {said}" if lossless and said else ""), flush=True)
    for i in bad[:3]:
        print(f"      {texts[i][:120]!r}\n      want {want[i][:40]}\n      got  {got[i][:40] if i < len(got) else None}")


def main():
    tool = build()
    files = list(real_texts())
    lines = [l for t in files[:: 7] for l in t.split("\n")][:200000]
    assigned, anything = list(fuzz_texts(FUZZ, False)), list(fuzz_texts(FUZZ, True))
    long_words = [" " * 2000000, "a" * 200000, "e" + "\u0301\u0323" * 50000, "\n" * 200000, " \n" * 100000 + "x", "1" * 100000]
    corpus = os.path.join(work, "corpus")
    with open(corpus, "w") as f:
        f.write("\n".join(files)[: 8 << 20])
    vocab, merges = hf.train([corpus], 8000)
    for name in os.environ.get("FAMILY", " ".join(hf.FAMILIES)).split():
        fuzz = assigned if name == "pcre2" else anything
        lossless = hf.FAMILIES[name][0] is None and name != "prefix"
        plain = hf.tokenizer_json(vocab, merges, name, old_merges=True, added=[])
        full = hf.tokenizer_json(vocab, merges, name)
        compare(tool, f"{name} real text", plain, files, lossless)
        compare(tool, f"{name} lines", full, lines)
        compare(tool, f"{name} fuzz", plain, fuzz, lossless)
        compare(tool, f"{name} fuzz, added tokens", full, fuzz[: len(fuzz) // 4])
        compare(tool, f"{name} fuzz, special tokens", full, fuzz[: len(fuzz) // 10], special=True)
        compare(tool, f"{name} long words", plain, long_words, lossless)
    print("hf_tokenizer_peer: " + ("WRONG" if failed else "ok"))
    return failed != 0


if __name__ == "__main__":
    sys.exit(main())
