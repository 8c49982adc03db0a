#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# run-tests.sh BUILD_DIR [AREA...]: runs the test programs and scripts that list-tests.sh names, of these folders of tests/ or of all.
# run-tests.sh BUILD_DIR -: those whose names come on stdin, a line each, as soon as they come: what `make` has linked, while it links the
# others. Lines that are no names are printed; one that begins with "! " is a failure.
#   JOBS=2                   so many at once of those that compute,
#   WAITING=2                and so many of those that mostly wait (tests/times: three times as many seconds of wall time as of CPU)
#   TIMES=FILE               writes what each took, in the form of tests/times
#   TEST_CPU=600             the most seconds of CPU of one process
#   TEST_TIMEOUT=3600        seconds after which a program that hangs is ended; what it waited for is printed
#   TTRUN_PATIENCE=20        factor of the program's own grace times, so that no load makes one of them end early
#   STALL=SEED               threads stand still at random looks at the clock (tests/stall/stall.c)
#   MUTANTS_REACHED_IN=DIR   a file there for each test says which mutants' places it reaches (mk/mutants.sh)
#   TMPDIR=/tmp              where test folders are; unset: in memory (test-folder.sh)
# and the variables of list-tests.sh. A failure keeps its folder in BUILD_DIR/failed. Ends with the seconds of CPU by folder and
# "N passed, N failed, N skipped".
set -u
build=$1
shift
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

# What the emulated GPU compiles while it runs is kept by content (tests/fake/nvrtc.cpp), for all trees of this user; a month after its use it goes.
if [ -n "${HOME-}" ] && [ -z "${FAKE_NVRTC_CACHE-}" ]; then
    kept=${XDG_CACHE_HOME:-$HOME/.cache}/ttrun-tests
    if mkdir -p "$kept" 2>/dev/null; then
        export FAKE_NVRTC_CACHE="$kept"
        find "$kept" -name '*.so' -atime +30 -delete
    fi
fi

work=$(sh mk/test-folder.sh) || exit 1
export work
trap 'while [ -e "$work" ]; do rm -rf "$work" 2>/dev/null; done' EXIT # a test that was ended may still write there
# An end by hand ends the tests, which have process groups of their own: timeout passes the signal on to all of theirs.
tests=
trap 'kill $tests $(cat "$work"/*.pid) 2>/dev/null; exit 1' INT TERM

# One test, NUMBER NAME, in an empty folder of its own as TMPDIR: result lines to $work/NUMBER.line, counts to $work/NUMBER.count.
cat >"$work/one.sh" <<'ONE'
number=$1 name=$2
case $name in
*.sh) path=$SRC/$name ;;
tests/fuzz/*) path=$SRC/build/asan/$name ;;
*) path=$BUILD/$name ;;
esac
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
[ -z "${MUTANTS_REACHED_IN:-}" ] || export MUTANTS_REACHED="$MUTANTS_REACHED_IN/$(echo "$name" | tr / @)"
[ -z "${STALL:-}" ] || set -- env LD_PRELOAD="$BUILD/tests/stall/stall.so" "$@"
(ulimit -S -t "$TEST_CPU" && exec timeout -k 5 "$TEST_TIMEOUT" "$@") </dev/null >"$out" 2>&1 &
echo $! >"$work/$number.pid"
wait $!
rc=$?
rm -f "$work/$number.pid"
times >"$work/$number.times"
cpu_ms=$(awk -f "$SRC/mk/cpu-ms.awk" "$work/$number.times")
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

# Two queues, of what computes and of what waits; names go to them as they come.
mkfifo "$work/computes" "$work/waits" || exit 1
xargs -d '\n' -r -n 2 -P "${JOBS:-2}" sh "$work/one.sh" <"$work/computes" &
tests=$!
xargs -d '\n' -r -n 2 -P "${WAITING:-2}" sh "$work/one.sh" <"$work/waits" &
tests="$tests $!"
waiting=" $(awk '!/^#/ && $2 >= 1 && $2 >= 3 * $1 {printf "tests/%s ", $3}' tests/times 2>/dev/null)"
distribute() {
    number=0
    while IFS= read -r line; do
        case $line in
        tests/*) ;;
        '! '*) echo "$line" && echo "0 1 0" >"$work/broken.count" && continue ;;
        *) echo "$line" && continue ;;
        esac
        number=$((number + 1))
        case $waiting in *" $line "*) queue=7 ;; *) queue=6 ;; esac
        printf '%s\n%s\n' $number "$line" >&$queue
    done
}
if [ "${1-}" = - ]; then
    exec 5<&0
else
    sh mk/list-tests.sh "$@" >"$work/list" && exec 5<"$work/list"
fi
distribute <&5 6>"$work/computes" 7>"$work/waits" &
tests="$tests $!"
exec 5<&-
wait $tests
cat "$work"/*.cost 2>/dev/null | sort -rn >"$work/costs"
if [ "$(wc -l <"$work/costs")" -gt 10 ]; then
    head -n 10 "$work/costs" | awk '{printf "%s%s %.1f", NR == 1 ? "most CPU, in s: " : ", ", $3, $1 / 1000} END {print ""}'
    awk '{split($3, part, "/"); n[part[2]] += $1; all += $1} END {for (area in n) printf "%s %.0f\n", area, n[area] / 1000; printf "all %.0f\n", all / 1000}' "$work/costs" |
        sort -k2,2nr | awk '{printf "%s%s %s", NR == 1 ? "CPU, in s: " : ", ", $1, $2} END {print ""}'
fi
if [ -n "${TIMES-}" ]; then
    {
        echo "# seconds of CPU and of wall time of each test on two cores, written by make test-times: what begins first, and what waits (mk/run-tests.sh)"
        awk '{sub(/^tests\//, "", $3); printf "%.1f %.1f %s\n", $1 / 1000, $2 / 1000, $3}' "$work/costs" | sort -k3
    } >"$work/new.times" && cp "$work/new.times" "$TIMES"
fi
cat "$work"/*.skips 2>/dev/null | sed 's/^/skipped: /'
cat "$work"/*.count 2>/dev/null |
    awk '{p += $1; f += $2; s += $3} END {printf "%d passed, %d failed, %d skipped\n", p, f, s; exit f > 0 || p == 0}'
