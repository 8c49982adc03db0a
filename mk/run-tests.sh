#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# run-tests.sh BUILD_DIR [AREA...]: runs every test binary and test script of these folders of tests/, or of all, JOBS (2) at once,
# each with a time limit and its output kept whole. Ends with "N passed, N failed".
set -u
build=$1
shift
[ $# -gt 0 ] || set -- '*'
limit=${TEST_TIMEOUT:-600}
SRC=$(pwd)
BUILD=$SRC/$build
TTRUN=$BUILD/ttrun
PLUGINS=$BUILD/plugins
FUZZ_SECONDS=${FUZZ_SECONDS:-5}
export SRC BUILD TTRUN PLUGINS FUZZ_SECONDS
# A script that runs make must not talk to this make's job server.
unset CMOCKA_MESSAGE_OUTPUT TTRUN_PLUGIN_PATH MAKEFLAGS MAKELEVEL MFLAGS
export ASAN_OPTIONS="${ASAN_OPTIONS:-detect_leaks=1:abort_on_error=0}" UBSAN_OPTIONS="${UBSAN_OPTIONS:-print_stacktrace=1}"
export TSAN_OPTIONS="${TSAN_OPTIONS:-suppressions=$SRC/tests/tsan.supp}"

work=$(mktemp -d "${TMPDIR:-/tmp}/ttrun-test.XXXXXX") || exit 1
export work limit
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM

# One test, in an empty folder of its own as TMPDIR: result lines to $work/N.line, counts to $work/N.count.
cat >"$work/one.sh" <<'ONE'
number=$1 path=$2
name=${path#"$BUILD"/}
name=${name#"$SRC"/}
out=$work/$number.out
mkdir "$work/$number.tmp"
export TMPDIR=$work/$number.tmp XDG_CACHE_HOME=$work/$number.tmp/cache
start=$(date +%s%N)
case $path in
*/tests/fuzz/fuzz_*) set -- "$path" "$SRC/tests/fuzz/corpus/${path##*/fuzz_}" ;;
*.sh) set -- sh "$path" ;;
*) set -- "$path" ;;
esac
timeout -k 5 "$limit" "$@" </dev/null >"$out" 2>&1
rc=$?
ms=$((($(date +%s%N) - start) / 1000000))
case $path in
*.sh)
    passed=$(grep -ac '^ok ' "$out") failed=$(grep -ac '^not ok ' "$out") ;;
*)
    passed=$(grep -ac '^\[       OK \]' "$out")
    failed=$(sed -n 's/^\[  FAILED  \] .*: \([0-9][0-9]*\) test(s), listed.*/\1/p' "$out" | awk '{n += $1} END {print n + 0}') ;;
esac
case $path in */fuzz_*) [ $rc -eq 0 ] && passed=1 ;; esac
why=
[ $rc -eq 124 ] || [ $rc -eq 137 ] && why=" (over $limit s)"
[ $rc -ge 128 ] && [ $rc -ne 137 ] && why=" (signal $((rc - 128)))"
# A crash, a time-out or a test that ran nothing counts, whatever it printed before.
[ $rc -ne 0 ] && [ "$failed" -eq 0 ] && failed=1
if [ $rc -eq 0 ] && [ "$passed" -eq 0 ]; then
    # All of them, for example because a sanitizer's malloc stands where the test's own must.
    if grep -aq '^\[  SKIPPED \]' "$out"; then why=" (skipped)"; else failed=1 why=" (ran no test)"; fi
fi
word=ok
[ "$failed" -gt 0 ] && word=FAIL
{
    printf '%-5s %-48s %4d passed %3d failed %7d ms%s\n' "$word" "$name" "$passed" "$failed" "$ms" "$why"
    [ $word = FAIL ] && grep -av '^\[ RUN      \]\|^\[       OK \]' "$out" | tail -n 60 | sed 's/^/      /'
} >"$work/$number.line"
echo "$passed $failed" >"$work/$number.count"
rm -rf "$work/$number.tmp"
# One cat per test, so the lines of two tests never mix.
cat "$work/$number.line"
ONE

find_tests() { # AREA
    area=$1
    for source in tests/$area/test_*.c tests/$area/*/test_*.c; do
        [ -e "$source" ] && echo "$BUILD/${source%.c}"
    done
    for source in tests/fuzz/fuzz_*.c; do
        case $area in '*' | fuzz) [ -e "$source" ] && echo "$SRC/build/asan/${source%.c}" ;; esac
    done
    for script in tests/$area/test_*.sh tests/$area/*/test_*.sh; do
        [ -e "$script" ] && echo "$SRC/$script"
    done
}
for a; do find_tests "$a"; done | awk '{print NR; print}' | xargs -d '\n' -r -n 2 -P "${JOBS:-2}" sh "$work/one.sh"
cat "$work"/*.count /dev/null 2>/dev/null |
    awk '{p += $1; f += $2} END {printf "%d passed, %d failed\n", p, f; exit f > 0 || p == 0}'
