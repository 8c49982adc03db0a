#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# log.files: a file per rank, with what ranks say that stderr does not show.
. "$(dirname "$0")/lib.sh"
on="--log.files true"
train "$dir/off" --training.steps 2
[ "$rc" -eq 0 ] && [ ! -e "$dir/off/logs" ]
ok without_it_there_are_no_files
train "$dir/one" $on --training.steps 2
log=$dir/one/logs/rank-0.log
[ "$rc" -eq 0 ] && [ "$(ls "$dir/one/logs")" = rank-0.log ] && [ "$(grep -c '^20[0-9-]*T[0-9:.]*Z r0 I train: step:  [12]  loss: ' "$log")" -eq 2 ] &&
    grep -q 'Z r0 I data: 1 file, 1 document' "$log" && ! grep -vq '^20[0-9-]*T[0-9:.]*Z r0 [EWID] [a-z]*: ' "$log"
ok file_has_the_lines_of_stderr
[ "$(sed 's/^[^ ]* r0 . [a-z]*: //' "$log" | grep -v '^rank 0 of 1, ' | head -n 4)" = "$(grep "^\[r0 " "$dir/err" | sed 's/^\[[^]]*\] //' | head -n 4)" ]
ok file_begins_with_what_was_said_before
train "$dir/quiet" $on --training.steps 2 -q
[ "$rc" -eq 0 ] && [ ! -s "$dir/err" ] && [ "$(grep -c ' r0 I train: step:  [12]  loss: ' "$dir/quiet/logs/rank-0.log")" -eq 2 ]
ok quiet_is_for_the_terminal
for how in "--comm.backend local" ""; do
    rm -rf "$dir/two"
    # shellcheck disable=SC2086
    train "$dir/two" $on --training.steps 2 --nproc 2 $how -v
    [ "$rc" -eq 0 ] && [ "$(ls "$dir/two/logs" | tr '\n' ' ')" = "rank-0.log rank-1.log " ] && grep -q 'Z r1 I train: rank 1 of 2, process [0-9]* on ' "$dir/two/logs/rank-1.log" &&
        ! grep -q ' r1 ' "$dir/two/logs/rank-0.log" && ! grep -q ' r0 ' "$dir/two/logs/rank-1.log" && ! grep -q '^\[r1' "$dir/err"
    ok "each_rank_has_its_file${how:+_threads}"
done
# No file of a run takes the number of a stream that is closed, so that what is printed would go into it.
for streams in '<&-' '2>&-' '>&- 2>&-' '<&- >&- 2>&-'; do
    rm -rf "$dir/closed"
    (eval "ttrun \"\$job\" --dump_folder \"\$dir/closed\" $on --training.steps 2 $streams" 2>"$dir/err")
    rc=$?
    [ "$rc" -eq 0 ] && [ "$(grep -c '^{"step":[12],' "$dir/closed/metrics.jsonl")" -eq 2 ] && [ "$(wc -l <"$dir/closed/metrics.jsonl")" -eq 2 ] &&
        ! grep -r '^\[r0 ' "$dir/closed" && [ "$(grep -c 'step:  [12]  loss: ' "$dir/closed/logs/rank-0.log")" -eq 2 ]
    ok "closed_streams_are_no_files: $streams"
done
ttrun runs "$dir/closed" <&- >"$dir/out" 2>"$dir/err" && grep -q ' 2/2  *[0-9.]* .* done$' "$dir/out"
ok without_stdin_runs_are_listed
ttrun runs "$dir/closed" >&- 2>"$dir/err"
rc=$?
[ "$rc" -eq 1 ] && one_line "$dir/err" && grep -q 'cannot write to standard output' "$dir/err"
ok without_stdout_a_result_is_an_error
train "$dir/one" $on --training.steps 4
[ "$rc" -eq 0 ] && [ "$(grep -c 'step:  [1-4]  loss: ' "$log")" -eq 4 ]
ok a_restart_adds_to_the_file
train "$dir/one" $on --training.steps 9 --optimizer.lr 1e38
[ "$rc" -eq 3 ] && tail -n 1 "$log" | grep -q 'Z r0 E train: step 6: grad_norm is NaN'
ok file_ends_with_the_error
mkdir -p "$dir/bad" && echo x >"$dir/bad/logs"
train "$dir/bad" $on
[ "$rc" -eq 2 ] && one_line "$dir/err" && grep -q -- '--log.files: .*logs' "$dir/err"
ok folder_that_cannot_be_made_is_status_2
exit $failed
