#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# mk/run-tests.sh and list-tests.sh, over a small tree with a test of each kind: what it counts, prints and keeps.
. "$(dirname "$0")/../script.sh"
tree=$dir/tree
unset T STALL TEST_LONG QUICK CHANGED SINCE TIMES JOBS WAITING
mkdir -p "$tree/tests/all" "$tree/tests/hangs" "$tree/tests/fine" "$tree/tests/computes" "$tree/build"
head='. "$SRC/tests/script.sh"'
cp "$SRC/tests/script.sh" "$tree/tests/"
ln -s "$SRC/mk" "$tree/mk"
: >"$tree/tests/times"
test_of() { # FOLDER NAME: its text is on stdin
    { echo "$head" && cat; } >"$tree/tests/$1/test_$2.sh"
}
run() { # AREA VARIABLE=VALUE...
    area=$1
    shift
    (cd "$tree" && env "$@" sh "$SRC/mk/run-tests.sh" build "$area") >"$dir/out" 2>&1
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

# ---- which tests, and in which order ----
mkdir -p "$tree/tests/order" "$tree/core/order"
for t in slow long_one quick waits new; do
    case $t in long_*) name=$t.sh ;; *) name=test_$t.sh ;; esac
    echo "echo 'ok $t'" >"$tree/tests/order/$name"
done
printf '%s\n' '# seconds' '9.0 9.0 order/test_slow.sh' '0.1 7.0 order/test_waits.sh' '0.2 0.2 order/test_quick.sh' >"$tree/tests/times"
list() { # VARIABLE=VALUE...
    (cd "$tree" && env "$@" sh mk/list-tests.sh order) | sed 's|tests/order/||' | tr '\n' ' '
}
[ "$(list A=)" = 'test_new.sh test_slow.sh test_quick.sh test_waits.sh ' ]
ok new_ones_come_first_then_the_longest
[ "$(list TEST_LONG=1)" = 'long_one.sh test_new.sh test_slow.sh test_quick.sh test_waits.sh ' ]
ok the_long_tier_has_more_tests
# One slot for what computes and one for what waits: a test of the first kind lets one of the second begin before it ends.
cat >"$tree/tests/order/test_slow.sh" <<'TEST'
until [ -e "$MINE/waited" ]; do sleep 0.02; done
echo 'ok slow'
TEST
echo ': >"$MINE/waited"; echo "ok waits"' >"$tree/tests/order/test_waits.sh"
run order T="test_slow test_waits" JOBS=1 WAITING=1 MINE="$dir" TIMES="$dir/times"
[ $rc -eq 0 ] && [ "$(last)" = '2 passed, 0 failed, 0 skipped' ]
ok what_waits_has_slots_of_its_own
[ "$(grep -c '^[0-9.]* [0-9.]* order/test_\(slow\|waits\).sh$' "$dir/times")" = 2 ]
ok times_are_written
new=test_new.sh
printf '%s\n' 'CC     a file' "tests/order/$new" '! the build broke' | (cd "$tree" && sh mk/run-tests.sh build -) >"$dir/out" 2>&1
rc=$?
[ $rc -eq 1 ] && [ "$(last)" = '1 passed, 1 failed, 0 skipped' ] && grep -qx 'CC     a file' "$dir/out" && grep -qx '! the build broke' "$dir/out"
ok names_that_come_on_stdin_are_run_and_a_build_that_broke_is_a_failure

# What changed files reach, in a repository of git.
git_here() { git -C "$tree" -c user.name=x -c user.email=x -c init.defaultBranch=main "$@"; }
rm "$tree/mk" && cp -r "$SRC/mk" "$tree/mk"
git_here init -q && git_here add -A && git_here commit -qm one
: >"$tree/core/order/file.c"
[ "$(list CHANGED=1)" = 'test_new.sh test_slow.sh test_quick.sh test_waits.sh ' ]
ok a_file_of_core_reaches_the_tests_of_its_folder
rm "$tree/core/order/file.c"
echo '# changed' >>"$tree/tests/order/test_quick.sh"
[ "$(list CHANGED=1)" = 'test_quick.sh ' ]
ok a_changed_test_is_reached
git_here commit -qam two
mkdir -p "$tree/plugins/optimizers" "$tree/build/release/tests/order" && : >"$tree/plugins/optimizers/sgdx.c"
echo '# sgdx' >>"$tree/tests/order/test_waits.sh" && git_here add -A && git_here commit -qm three
echo >>"$tree/plugins/optimizers/sgdx.c"
[ "$(list CHANGED=1)" = 'test_waits.sh ' ]
ok a_plugin_reaches_the_tests_that_name_it
git_here commit -qam tool
tool=tests/order/"x_tool.c"
: >"$tree/$tool" && echo '# x_tool' >>"$tree/tests/order/test_quick.sh" && git_here add -A && git_here commit -qm tool && echo >>"$tree/$tool"
[ "$(list CHANGED=1)" = 'test_quick.sh ' ]
ok a_tool_reaches_the_scripts_that_start_it
git_here commit -qam four
program=tests/order/test_program header=core/order/"a.h"
: >"$tree/$program.c" && echo "build/release/$program.o: $program.c $header" >"$tree/build/release/$program.d"
: >"$tree/$header" && git_here add -A && git_here commit -qm five && echo >>"$tree/$header"
[ "$(list CHANGED=1 | tr ' ' '\n' | grep -c test_program)" = 1 ]
ok a_header_reaches_the_programs_that_include_it
git_here commit -qam six
[ -z "$(list CHANGED=1)" ] && [ "$(list QUICK=0.5)" = 'test_quick.sh test_waits.sh ' ]
ok quick_is_what_takes_no_more_than_half_a_second
echo '# changed' >>"$tree/tests/order/test_slow.sh"
[ "$(list QUICK=0.5)" = 'test_quick.sh test_waits.sh ' ] && [ "$(list QUICK=1)" = 'test_slow.sh test_quick.sh test_waits.sh ' ]
ok quick_has_what_the_changed_files_reach_up_to_ten_times_that

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
(cd "$tree" && exec env MINE="$dir" sh "$SRC/mk/run-tests.sh" build ended) >"$dir/out" 2>&1 &
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
