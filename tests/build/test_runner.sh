#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# mk/run-tests.sh, over a small tree with a test of each kind: what it counts, prints and keeps.
. "$(dirname "$0")/../script.sh"
tree=$dir/tree
mkdir -p "$tree/tests/all" "$tree/tests/hangs" "$tree/tests/fine" "$tree/tests/computes" "$tree/build"
head='. "$SRC/tests/script.sh"'
cp "$SRC/tests/script.sh" "$tree/tests/"
test_of() { # FOLDER NAME: its text is on stdin
    { echo "$head" && cat; } >"$tree/tests/$1/test_$2.sh"
}
run() { # AREA VARIABLE=VALUE...
    area=$1
    shift
    (cd "$tree" && env -u T -u STALL "$@" sh "$SRC/mk/run-tests.sh" build "$area") >"$dir/out" 2>&1
    rc=$?
}
last() { tail -n 1 "$dir/out"; }

test_of fine good <<'TEST'
true
ok one
check two true
TEST
test_of fine skips <<'TEST'
skip three "no such device here"
TEST
run fine
[ $rc -eq 0 ] && [ "$(last)" = '2 passed, 0 failed, 1 skipped' ] && grep -qx 'skipped: tests/fine/test_.*: three: no such device here' "$dir/out"
ok passed_and_skipped_are_counted
run fine T=test_good
[ $rc -eq 0 ] && [ "$(last)" = '2 passed, 0 failed, 0 skipped' ]
ok one_test_runs_alone

test_of all bad <<'TEST'
size=3
echo "a line that the program wrote" >"$dir/err"
echo kept >"$TMPDIR/file"
[ $size -eq 4 ] && grep -q other "$dir/err"
ok the_size_is_four
exit $failed
TEST
echo 'echo "ok nothing"; kill -SEGV $$' | test_of all crashes
echo : | test_of all empty
run all
[ $rc -eq 1 ] && [ "$(last)" = '1 passed, 3 failed, 0 skipped' ]
ok failures_are_counted
for words in 'expected, by line 6 of test_bad.sh:' '\[ \$size -eq 4 \] && grep' 'seen: size=3' 'a line that the program wrote' 'alone: make test-all T=test_bad' \
    'its folder: build/failed/all.test_bad' 'test_crashes.sh .*(signal 11)' 'test_empty.sh .*(ran no test)'; do
    grep -q "$words" "$dir/out" || break
done
grep -q "$words" "$dir/out"
ok a_failure_says_what_was_expected_and_seen_and_how_to_run_it_alone
[ "$(cat "$tree/build/failed/all.test_bad/file")" = kept ] && [ -n "$(find "$tree/build/failed/all.test_bad" -name err)" ]
ok the_folder_of_a_failure_is_kept

test_of hangs waits <<'TEST'
mkfifo "$dir/never"
echo "the last word" >"$dir/run.err"
echo "a writer of never" >"$TT_AWAITED"
read -r line <"$dir/never"
TEST
echo 'while :; do :; done' | test_of computes computes
run hangs TEST_TIMEOUT=3
[ $rc -eq 1 ] && [ "$(last)" = '0 passed, 1 failed, 0 skipped' ] && grep -q 'test_waits.sh .*(hung for 3 s)' "$dir/out" &&
    grep -q 'it waited for: a writer of never' "$dir/out" && grep -q 'the last word' "$dir/out"
ok a_hang_is_ended_and_says_what_it_waited_for
# A runner that is ended by hand takes its tests along.
mkdir "$tree/tests/ended"
test_of ended waits <<'TEST'
mkfifo "$dir/never"
echo $$ >"$MINE/pid.new" && mv "$MINE/pid.new" "$MINE/pid"
read -r line <"$dir/never"
TEST
(cd "$tree" && exec env -u T MINE="$dir" sh "$SRC/mk/run-tests.sh" build ended) >"$dir/out" 2>&1 &
runner=$!
until [ -s "$dir/pid" ]; do sleep 0.05; done
kill -TERM $runner
wait $runner
rc=$?
while kill -0 "$(cat "$dir/pid")" 2>/dev/null; do sleep 0.05; done
[ $rc -eq 1 ]
ok a_runner_that_is_ended_takes_its_tests_along
run computes TEST_CPU=1
[ $rc -eq 1 ] && grep -q 'test_computes.sh .*(more than 1 s of CPU in one process)' "$dir/out"
ok a_process_that_computes_too_long_is_ended
exit $failed
