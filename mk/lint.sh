#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What the compiler does not check: who includes whom, sizes, forbidden calls and words, licence lines, format.
# Prints "lint: ok", or one finding a line and fails.
set -u
cd "$(dirname "$0")/.." || exit 1
found=$(mktemp) || exit 1
trap 'rm -f "$found"' EXIT

sources() { find "$@" -name build -prune -o \( -name '*.c' -o -name '*.h' -o -name '*.def' \) -print 2>/dev/null | sort; }
awk=awk

# ---- one pass over the C files: sizes, calls, includes; comments and literals are blanked first ----
sources core plugins include | xargs -r $awk -f mk/lint.awk >>"$found"

# ---- words and licence lines ----
everything=$(find . \( -name .git -o -name build -o -name corpus -o -name golden -o -name outputs \) -prune -o -type f \
    \( -name '*.[ch]' -o -name '*.def' -o -name '*.cpp' -o -name '*.sh' -o -name '*.mk' -o -name '*.py' -o -name '*.map' \
    -o -name Makefile -o -name '*.awk' -o -name '*.bash' \) -print | sed 's|^\./||' | sort)
# the words are spelt apart so that this file may hold them
marks='TO''DO|FIX''ME|XX''X|HA''CK'
echo "$everything" | xargs -r grep -nwE "$marks" /dev/null | sed 's/^\([^:]*:[0-9]*\):[ ]*/\1: a mark; do it now or file it elsewhere: /' >>"$found"
for f in $everything; do
    head -n 3 "$f" | grep -q 'SPDX-License-Identifier: Apache-2.0' || echo "$f:1: no SPDX line" >>"$found"
done

# ---- generated pages ----
if [ -x mk/reference.sh ]; then
    sh mk/reference.sh | cmp -s - docs/reference.md || echo "docs/reference.md: out of date; run make docs" >>"$found"
fi
if [ -x mk/ops.sh ]; then
    sh mk/ops.sh page | cmp -s - docs/ops.md || echo "docs/ops.md: out of date; run make docs" >>"$found"
    sh mk/ops.sh header | cmp -s - include/ttrun/ops.h || echo "include/ttrun/ops.h: its table is out of date; run make docs" >>"$found"
fi

# ---- format ----
if command -v clang-format >/dev/null 2>&1; then
    find core include plugins tests examples bench -name '*.[ch]' 2>/dev/null | sort |
        xargs -r -n 40 clang-format --dry-run 2>&1 |
        sed -n 's/^\([^:]*\):\([0-9]*\):.*clang-format-violations.*/\1:\2: not as clang-format has it; make fmt/p' |
        sort -t: -k1,1 -u >>"$found"
fi

if [ -s "$found" ]; then
    cat "$found"
    echo "lint: $(wc -l <"$found") findings" >&2
    exit 1
fi
echo "lint: ok"
