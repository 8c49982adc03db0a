#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# run-tests.sh BUILD_DIR [AREA...]: runs every test binary and test script of these folders of tests/, or of all, JOBS (2) at once.
#   T="test_stop test_ctl"   only those of these names
#   TEST_CPU=600             the most seconds of CPU of one process
#   TEST_TIMEOUT=3600        seconds after which a program that hangs is ended; what it waited for is printed
#   TTRUN_PATIENCE=20        factor of the program's own grace times, so that no load makes one of them end early
#   STALL=SEED               threads stand still at random looks at the clock (tests/stall/stall.c)
# A failure keeps its folder in BUILD_DIR/failed. Ends with "N passed, N failed, N skipped".
set -u
build=$1
shift
[ $# -gt 0 ] || set -- '*'
SRC=$(pwd)
BUILD=$SRC/$build
TTRUN=$BUILD/ttrun
PLUGINS=$BUILD/plugins
TTRUN_PATIENCE=${TTRUN_PATIENCE:-20}
TEST_CPU=${TEST_CPU:-600} TEST_TIMEOUT=${TEST_TIMEOUT:-3600}
export SRC BUILD TTRUN PLUGINS TTRUN_PATIENCE TEST_CPU TEST_TIMEOUT
# A script that runs make must not talk to this make's job server.
unset CMOCKA_MESSAGE_OUTPUT TTRUN_PLUGIN_PATH MAKEFLAGS MAKELEVEL MFLAGS
export ASAN_OPTIONS="${ASAN_OPTIONS:-detect_leaks=1:abort_on_error=0}" UBSAN_OPTIONS="${UBSAN_OPTIONS:-print_stacktrace=1}"
export TSAN_OPTIONS="${TSAN_OPTIONS:-suppressions=$SRC/tests/tsan.supp}"

work=$(mktemp -d "${TMPDIR:-/tmp}/ttrun-test.XXXXXX") || exit 1
export work
trap 'rm -rf "$work"' EXIT
# An end by hand ends the tests, which have process groups of their own: timeout passes the signal on to all of theirs.
tests=
trap 'kill $tests $(cat "$work"/*.pid) 2>/dev/null; exit 1' INT TERM

# One test, in an empty folder of its own as TMPDIR: result lines to $work/N.line, counts to $work/N.count.
cat >"$work/one.sh" <<'ONE'
number=$1 path=$2
name=${path#"$BUILD"/}
name=${name#"$SRC"/}
out=$work/$number.out
area=${name#tests/}
kept=$BUILD/failed/$(echo "${area%.sh}" | tr / .)
alone="make test-${area%%/*} T=$(basename "$name" .sh)"
mkdir "$work/$number.tmp"
export TMPDIR=$work/$number.tmp XDG_CACHE_HOME=$work/$number.tmp/cache TT_AWAITED=$work/$number.awaited
: >"$TT_AWAITED"
start=$(date +%s%N)
case $path in
*/tests/fuzz/fuzz_*) set -- "$path" "$SRC/tests/fuzz/corpus/${path##*/fuzz_}" ;;
*.sh) set -- sh "$path" ;;
*) set -- "$path" ;;
esac
[ -z "${STALL:-}" ] || set -- env LD_PRELOAD="$BUILD/tests/stall/stall.so" "$@"
(ulimit -S -t "$TEST_CPU" && exec timeout -k 5 "$TEST_TIMEOUT" "$@") </dev/null >"$out" 2>&1 &
echo $! >"$work/$number.pid"
wait $!
rc=$?
rm -f "$work/$number.pid"
times >"$work/$number.times" # of a pipe's part it would tell nothing
cpu_ms=$(awk 'END {for (i = 1; i <= 2; i++) {split($i, t, "m"); n += 60000 * t[1] + 1000 * t[2]} printf "%d", n}' "$work/$number.times")
ms=$((($(date +%s%N) - start) / 1000000))
case $path in
*.sh)
    passed=$(grep -ac '^ok ' "$out") failed=$(grep -ac '^not ok ' "$out")
    sed -n 's/^skip //p' "$out" >"$work/$number.skips" ;;
*)
    passed=$(grep -ac '^\[       OK \]' "$out")
    failed=$(sed -n 's/^\[  FAILED  \] .*: \([0-9][0-9]*\) test(s), listed.*/\1/p' "$out" | awk '{n += $1} END {print n + 0}')
    sed -n 's/^\[  SKIPPED \] \(test_[a-z0-9_]*\)$/\1/p' "$out" | sort -u >"$work/$number.skips" ;;
esac
skipped=$(grep -c . "$work/$number.skips")
case $path in */fuzz_*) [ $rc -eq 0 ] && passed=1 ;; esac
why=
[ $rc -eq 124 ] || [ $rc -eq 137 ] && why=" (hung for $TEST_TIMEOUT s)"
[ $rc -ge 128 ] && [ $rc -ne 137 ] && why=" (signal $((rc - 128)))"
[ $rc -eq 152 ] && why=" (more than $TEST_CPU s of CPU in one process)"
# A crash, a time-out or a test that ran nothing counts, whatever it printed before.
[ $rc -ne 0 ] && [ "$failed" -eq 0 ] && failed=1
if [ $rc -eq 0 ] && [ "$passed" -eq 0 ]; then
    if [ "$skipped" -gt 0 ]; then why=" (skipped)"; else failed=1 why=" (ran no test)"; fi
fi
word=ok
[ "$failed" -gt 0 ] && word=FAIL
{
    printf '%-5s %-48s %4d passed %3d failed %7d ms %6d CPU ms%s\n' $word "$name" "$passed" "$failed" $ms $cpu_ms "$why"
    if [ $word = FAIL ]; then
        grep -av '^\[ RUN      \]\|^\[       OK \]\|^ok ' "$out" | tail -n 100 | sed 's/^/      /'
        [ $rc -lt 124 ] || grep -a '^\[ RUN      \]' "$out" | tail -n 1 | sed 's/^\[ RUN      \]/      it was in:/'
        case $rc in 124 | 137)
            [ ! -s "$TT_AWAITED" ] || echo "      it waited for: $(cat "$TT_AWAITED")"
            find "$TMPDIR" -type f \( -name err -o -name out -o -name log -o -name '*.err' -o -name '*.out' -o -name '*.log' \) -size +0 -printf '%T@ %p\n' |
                sort -rn | head -n 6 | cut -d ' ' -f 2- | while read -r log; do
                echo "      the last lines of ${log##*/}:"
                tail -n 8 "$log" | sed 's/^/        /'
            done ;;
        esac
        rm -rf "$kept"
        mkdir -p "$BUILD/failed" && mv "$TMPDIR" "$kept" && echo "      its folder: ${kept#"$SRC"/}"
        echo "      alone: $alone"
    fi
} >"$work/$number.line" 2>&1
echo "$passed $failed $skipped" >"$work/$number.count"
echo "$cpu_ms $ms $name" >"$work/$number.cost"
sed -i "s|^|$name: |" "$work/$number.skips"
rm -rf "$work/$number.tmp"
# One cat per test, so the lines of two tests never mix.
cat "$work/$number.line"
ONE

is_wanted() { # PATH
    [ -n "${T:-}" ] || return 0
    for t in $T; do [ "$(basename "$1" .sh)" = "$t" ] && return 0; done
    return 1
}
find_tests() { # AREA
    area=$1
    for source in tests/$area/test_*.c tests/$area/*/test_*.c; do
        [ -e "$source" ] && is_wanted "${source%.c}" && echo "$BUILD/${source%.c}"
    done
    for source in tests/fuzz/fuzz_*.c; do
        case $area in '*' | fuzz) [ -e "$source" ] && is_wanted "${source%.c}" && echo "$SRC/build/asan/${source%.c}" ;; esac
    done
    for script in tests/$area/test_*.sh tests/$area/*/test_*.sh; do
        [ -e "$script" ] && is_wanted "$script" && echo "$SRC/$script"
    done
}
for a; do find_tests "$a"; done | awk '{print NR; print}' | xargs -d '\n' -r -n 2 -P "${JOBS:-2}" sh "$work/one.sh" &
tests=$!
wait $tests
if [ "$(find "$work" -name '*.cost' | wc -l)" -gt 10 ]; then
    cat "$work"/*.cost | sort -rn | head -n 10 | awk '{printf "%s%s %.1f", NR == 1 ? "most CPU, in s: " : ", ", $3, $1 / 1000} END {print ""}'
    cat "$work"/*.cost | awk '{n += $1} END {printf "all tests: %d s of CPU\n", n / 1000}'
fi
cat "$work"/*.skips /dev/null | sed 's/^/skipped: /'
cat "$work"/*.count /dev/null |
    awk '{p += $1; f += $2; s += $3} END {printf "%d passed, %d failed, %d skipped\n", p, f, s; exit f > 0 || p == 0}'
