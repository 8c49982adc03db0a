# SPDX-License-Identifier: Apache-2.0
"""Writes normal_table.c: what the normalizers and pre-tokenizers of Hugging Face tokenizers do to every code point, asked of
the package itself, because each of its parts knows another version of Unicode than utf8proc.
  python make_normal_table.py > normal_table.c      needs the package tokenizers"""
import tokenizers
from tokenizers import normalizers as N, pre_tokenizers as P

POINTS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]


def runs(predicate):
    """First and last of each run of code points for which the predicate holds; surrogates join their neighbours."""
    out = []
    for c in POINTS:
        if not predicate(chr(c)):
            continue
        if out and (out[-1][1] == c - 1 or (out[-1][1] == 0xD7FF and c == 0xE000)):
            out[-1][1] = c
        else:
            out.append([c, c])
    return out


def lower_runs():
    """first, last, step, what is added; the ones that become two code points are the caller's."""
    lower, out = N.Lowercase().normalize_str, []
    for c in POINTS:
        s = lower(chr(c))
        if len(s) != 1:
            assert (c, s) == (0x130, "i\u0307"), (c, s)
            continue
        if s == chr(c):
            continue
        delta = ord(s) - c
        if out and out[-1][3] == delta and c - out[-1][1] in (1, 2) and (
                out[-1][0] == out[-1][1] or out[-1][2] == c - out[-1][1]):
            out[-1][2] = c - out[-1][1]
            out[-1][1] = c
        else:
            out.append([c, c, 1, delta])
    return out


def table(name, kind, rows, note):
    print(f"/* {note} */")
    print(f"const {kind} {name}[] = {{")
    line = "   "
    for r in rows:
        word = " " + ", ".join(str(x) for x in r) + ","
        if len(line) + len(word) > 100:
            print(line)
            line = "   "
        line += word
    print(line)
    print("};")
    print(f"const size_t {name.replace('hf_', 'hf_n_', 1)} = sizeof {name} / sizeof {name}[0];")


bert = N.BertNormalizer(clean_text=True, handle_chinese_chars=False, strip_accents=False, lowercase=False).normalize_str
chinese = N.BertNormalizer(clean_text=False, handle_chinese_chars=True, strip_accents=False, lowercase=False).normalize_str
bert_accents = N.BertNormalizer(clean_text=False, handle_chinese_chars=False, strip_accents=True, lowercase=False).normalize_str
accents, nmt, nfkd = N.StripAccents().normalize_str, N.Nmt().normalize_str, N.NFKD().normalize_str
nfd = N.NFD().normalize_str
bert_words = P.BertPreTokenizer().pre_tokenize_str
words = P.Whitespace().pre_tokenize_str
marks = P.Punctuation("isolated").pre_tokenize_str
digits = P.Digits(True).pre_tokenize_str


def pieces(f, c):
    return len(f("a" + c + "b"))


print("/* SPDX-License-Identifier: Apache-2.0 */")
print('#include "normalize.h"')
print()
print(f"/* Written by make_normal_table.py with tokenizers {tokenizers.__version__}. Code points as first and last of each run. */")
print()
print("/* clang-format off */")
table("hf_accent_runs", "uint32_t", runs(lambda c: accents(c) == ""), "StripAccents removes them.")
table("hf_bert_accent_runs", "uint32_t", runs(lambda c: bert_accents(c) == ""), "BertNormalizer's strip_accents removes them.")
table("hf_bert_gone_runs", "uint32_t", runs(lambda c: bert(c) == ""), "BertNormalizer's clean_text removes them.")
table("hf_bert_blank_runs", "uint32_t", runs(lambda c: bert(c) == " "), "It makes them blanks.")
table("hf_chinese_runs", "uint32_t", runs(lambda c: chinese(c) == f" {c} "), "handle_chinese_chars puts blanks around them.")
table("hf_nmt_gone_runs", "uint32_t", runs(lambda c: nmt(c) == ""), "Nmt removes them.")
table("hf_nmt_blank_runs", "uint32_t", runs(lambda c: nmt(c) == " "), "Nmt makes them blanks.")
table("hf_canonical_runs", "uint32_t", runs(lambda c: nfd(c) != c), "NFD changes them.")
table("hf_compatible_runs", "uint32_t", runs(lambda c: nfkd(c) != c), "NFKD changes them.")
table("hf_punctuation_runs", "uint32_t", runs(lambda c: pieces(marks, c) == 3), "Punctuation splits at them.")
table("hf_bert_mark_runs", "uint32_t", runs(lambda c: pieces(bert_words, c) == 3), "BertPreTokenizer splits at them.")
table("hf_digit_runs", "uint32_t", runs(lambda c: pieces(digits, c) == 3), "Digits splits at them.")
table("hf_word_runs", "uint32_t", runs(lambda c: pieces(words, c) == 1), "Whitespace takes them for letters.")
table("hf_lower_runs", "int32_t", lower_runs(), "Lowercase: first, last, step, what is added.")
print("/* clang-format on */")
