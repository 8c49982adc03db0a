# SPDX-License-Identifier: Apache-2.0
"""Writes unicode_table.c: the general category of every code point, asked of the regex engine of Hugging Face tokenizers
(Oniguruma), whose ids are the ones to reproduce; runs, one number each: first code point << 5 | category. Then the code
points its NFC reorders (it knows Unicode 9), and those of the script Han, as first and last of each run.
  python make_unicode_table.py > unicode_table.c      needs the package tokenizers"""
import tokenizers
from tokenizers import Regex, normalizers, pre_tokenizers

NAMES = "Cn Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Cs Co".split()
POINTS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
TEXT = "".join(map(chr, POINTS))

category = [0] * 0x110000
for number, name in enumerate(NAMES):
    if number and name != "Cs":
        split = pre_tokenizers.Split(Regex(r"\p{%s}" % name), "removed", invert=True)
        for _, (start, end) in split.pre_tokenize_str(TEXT):
            for i in range(start, end):
                category[POINTS[i]] = number
for c in range(0xD800, 0xE000):
    category[c] = NAMES.index("Cs")

runs = [c << 5 | category[c] for c in range(0x110000) if c == 0 or category[c] != category[c - 1]]
nfc = normalizers.NFC().normalize_str
# U+0334 has class 1, U+0301 class 230: one of the two changes places with a code point that has a class.
moves = [nfc(chr(c)) == chr(c) and any(nfc(s) != s for s in ("一" + chr(c) + "\u0334", "一\u0301" + chr(c))) for c in POINTS]


def runs_of(points):
    """First and last of each run."""
    out = []
    for c in points:
        if out and out[-1] == c - 1:
            out[-1] = c
        else:
            out += [c, c]
    return out


combining = runs_of(c for c, m in zip(POINTS, moves) if m)
han = runs_of(POINTS[i] for _, (a, b) in pre_tokenizers.Split(Regex(r"\p{Han}"), "removed", invert=True).pre_tokenize_str(TEXT)
              for i in range(a, b))


def table(kind, name, numbers):
    print(f"const {kind} {name}[] = {{")
    line = "   "
    for r in numbers:
        word = f" {r},"
        if len(line) + len(word) > 120:
            print(line)
            line = "   "
        line += word
    print(line)
    print("};")


print("/* SPDX-License-Identifier: Apache-2.0 */")
print('#include "hf.h"')
print()
print(f"/* Written by make_unicode_table.py with tokenizers {tokenizers.__version__}: general categories as its regex engine has\n"
      " * them. A run is first code point << 5 | category, in the order of enum hf_category. */")
print()
print("/* clang-format off */")
table("uint32_t", "hf_category_runs", runs)
table("uint32_t", "hf_combining_runs", combining)
table("uint32_t", "hf_han_runs", han)
print("const size_t hf_n_category_runs = sizeof hf_category_runs / sizeof hf_category_runs[0];")
print("const size_t hf_n_combining_runs = sizeof hf_combining_runs / sizeof hf_combining_runs[0];")
print("const size_t hf_n_han_runs = sizeof hf_han_runs / sizeof hf_han_runs[0];")
print("/* clang-format on */")
