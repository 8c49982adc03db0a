#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# mutants.sh: faults put into a copy of the tree, build/mutants/tree, each behind a switch that MUTANT=NUMBER sets, and what the tests say of each:
# those of tests/mutants/table against the tests that are named there, and N drawn ones against the tests that reach their place, near and short ones
# first, until one fails.
#   N=0 SEED=1    so many are drawn (tests/mutants/mutate_tool.c says which kinds)
#   EACH=60       a drawn one is given up after so many seconds of CPU
#   ONLY="3 17"   only these numbers, in the tree as it was built last, and for each all that it can be tried with
#   JOBS=2        so many at once
# One line each in build/mutants/report; the last line counts. Fails if a row of the table is not found.
set -u
cd "$(dirname "$0")/.." || exit 1
# A fault may kill whom it should not: where that is allowed, all of this has process numbers of its own.
if [ -z "${MUTANTS_ALONE-}" ] && unshare --pid --fork --mount-proc true 2>/dev/null; then
    MUTANTS_ALONE=1 exec unshare --pid --fork --mount-proc --kill-child sh "$0"
fi
here=$(pwd) out=build/mutants
tree=$here/$out/tree tool=$here/build/release/tests/mutants/mutate_tool
mkdir -p "$out"
export here tree out JOBS="${JOBS:-2}" EACH="${EACH:-60}" MUTANTS_DIR="$here/$out"

# A fault may also ask for all the memory or write for ever. (In KiB and half KiB; tests have thin files of some GiB.)
ulimit -v 24000000 && ulimit -f 20000000 || exit 1

build() {
    rm -rf "$out/new" && mkdir -p "$out/new" "$tree" || exit 1
    git ls-files --cached --others --exclude-standard | while read -r f; do [ ! -f "$f" ] || echo "$f"; done >"$out/files"
    xargs -d '\n' cp --parents -P -t "$out/new" <"$out/files" || exit 1
    grep '^\(core\|launch\|interchange\|lib\|tools\|plugins\|include\)/.*\.[ch]$' "$out/files" |
        "$tool" tests/mutants/table "${N:-0}" "${SEED:-1}" "$out/new" >"$out/list" || { cat "$out/list" && exit 1; }
    # Only what is new or another text is built again.
    (cd "$tree" && find . -path ./build -prune -o -type f -print) | while read -r f; do [ -e "$out/new/$f" ] || rm "$tree/$f"; done
    while read -r f; do
        cmp -s "$out/new/$f" "$tree/$f" || { mkdir -p "$tree/$(dirname "$f")" && cp -P "$out/new/$f" "$tree/$f"; }
    done <"$out/files"
    env -u MAKEFLAGS -u MAKELEVEL make -C "$tree" --no-print-directory -j"$JOBS" -k tests FUZZ_SRC= \
        CFLAGS="-O1 -w -include $here/tests/mutants/mutant.h" >"$out/build.log" 2>&1 || { grep -B1 -A4 'rror:' "$out/build.log" && exit 1; }
}

# What each test reaches, and which fail here without any fault: they are no judges.
reach() {
    rm -rf "$out/reached" && mkdir "$out/reached"
    (cd "$tree" && sh mk/list-tests.sh | grep -v '^tests/\(fuzz\|mutants\)/' | MUTANTS_REACHED_IN=$here/$out/reached sh mk/run-tests.sh build/release -) >"$out/reach.log"
    sed -n 's/^FAIL  \([^ ]*\) .*/\1/p' "$out/reach.log" | sort >"$out/unfit"
    tail -n 1 "$out/reach.log"
    for f in "$out"/reached/*; do
        od -An -v -tu1 -w1 "$f" | awk -v test="$(basename "$f" | tr @ /)" '$1 {print NR - 1, test}'
    done | grep -vwFf "$out/unfit" | sort -k1,1n >"$out/places"
}

# The line of one: NUMBER, then what list says of it.
cat >"$out/judge.sh" <<'JUDGE'
number=$1
IFS='	' read -r _ where named what <<LINE
$(awk -F '\t' -v n="$number" '$1 == n' "$out/list")
LINE
area=$(echo "$where" | sed -E 's,^(core|lib|tools)/([^/]*)/.*,\2,; s,^(launch|interchange)/.*,\1,; s|^plugins/([^/]*)/([^/]*)/.*|\2|; s|^plugins/.*/([^/]*)\.c:.*|\1|')
if [ "$named" != - ] && [ -z "${ONLY-}" ]; then
    tests=$(cd "$tree" && T=$(echo "$named" | tr , ' ') sh mk/list-tests.sh)
else
    tests=$(awk -v n="$number" '$1 == n {print $2}' "$out/places" | awk -v area="$area" -v each="$EACH" '
        FILENAME != "-" { cost["tests/" $3] = $1; next }
        { near = index($1, "/" area "/") || index($1, area) ? 0.05 : 1; print (cost[$1] + 0.02) * near, cost[$1] + 0, $1 }' "$tree/tests/times" - |
        sort -g | awk -v each="$EACH" -v all="${ONLY-}" '{spent += $2} all != "" || NR == 1 || spent <= each {print $3}')
fi
[ "$named" != = ] || { printf '%s\n' "no effect  $number $where $what" && exit; }
n=0 by=
for t in $tests; do
    n=$((n + 1))
    if ! (cd "$tree" && echo "$t" | MUTANT=$number JOBS=1 WAITING=1 TEST_CPU=120 TEST_TIMEOUT=120 sh mk/run-tests.sh build/release - \
        >"$MUTANTS_DIR/said.$number" 2>&1); then
        by=$t
        break
    fi
done
if [ -n "$by" ]; then
    printf '%s\n' "found      $number $where $what: by $by"
elif [ -z "$tests" ]; then
    printf '%s\n' "unreached  $number $where $what"
else
    printf '%s\n' "NOT FOUND  $number $where $what: $n of $(awk -v n="$number" '$1 == n' "$out/places" | grep -c .) tests"
fi
JUDGE

if [ -z "${ONLY-}" ]; then
    build && reach
    numbers=$(cut -f 1 "$out/list")
else
    numbers=$ONLY
fi
export ONLY="${ONLY-}"
echo "$numbers" | tr ' ' '\n' | xargs -n 1 -P "$JOBS" sh $out/judge.sh | tee "$out/report"
rows=$(awk -F '\t' '$3 != "-"' "$out/list" | wc -l)
awk -v rows="$rows" '
    $1 == "no" { next }
    { number = $1 == "NOT" ? $3 : $2; drawn = number > rows; n[drawn]++ }
    $1 == "found" { found[drawn]++ }
    $1 == "unreached" { unreached[drawn]++ }
    END {
        printf "of the table %d of %d found; of those drawn %d of %d, and no test reaches %d\n", found[0], n[0], found[1], n[1], unreached[1]
        exit found[0] < n[0]
    }' "$out/report"
