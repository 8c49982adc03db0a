#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# ttrun runs lists run folders and those set aside; ttrun gc removes what was set aside, and caches, unless a run is live.
. "$(dirname "$0")/lib.sh"
all=$dir/all
runs() { "$TTRUN" runs "$all" "$@" >"$dir/out" 2>"$dir/err"; }
gc() {
    "$TTRUN" gc "$@" >"$dir/out" 2>"$dir/err"
    rc=$?
}
train "$all/deep/one" --training.steps 2 && train "$all/two" --training.steps 4
for seed in 1 2 3; do
    train "$all/two" --training.steps 4 --training.seed $seed --resume never
done
[ $rc -eq 0 ] && ls "$all/two" | tr '\n' ' ' | grep -q 'before-1 before-2 before-3 checkpoint metrics.jsonl run.json'
ok runs_are_set_aside_by_number
for name in checkpoint/step-4 metrics.jsonl run.json; do [ -e "$all/two/before-2/$name" ] || echo "$name"; done >"$dir/missing"
! [ -s "$dir/missing" ] && [ "$(value "$all/two/before-2/run.json" job.training.seed)" = 1 ]
ok what_is_set_aside_is_a_whole_run
runs && [ "$(wc -l <"$dir/out")" -eq 6 ] && grep -q '^.*/deep/one *llama3 *2/2 .* done$' "$dir/out" &&
    [ "$(grep -c 'before-[123] .*4/4.*done, set aside$' "$dir/out")" -eq 3 ]
ok runs_lists_all
runs --json && [ "$(grep -c '"state":"done"' "$dir/out")" -eq 5 ] && grep -q "\"older_of\":\"$all/two\"" "$dir/out" && ! grep -q '"bytes":0,' "$dir/out"
ok runs_as_json
"$TTRUN" ckpt ls "$all/two" >"$dir/out" 2>"$dir/err" && [ "$(grep -c '^before-[123]/step-4  loss' "$dir/out")" -eq 3 ] && tail -n 1 "$dir/out" | grep -q '^step-4 ' "$dir/out"
ok ckpt_ls_shows_the_older_ones
# top, runs and report mean the same folders: a run that has only begun, one without run.json, a glob
mkdir -p "$dir/kinds/a/b" "$dir/kinds/begun" "$dir/kinds/none" && echo '{"step":3,"loss":1}' >"$dir/kinds/a/b/metrics.jsonl" && : >"$dir/kinds/begun/.lock" &&
    ln -s "$all" "$dir/kinds/link"
"$TTRUN" runs "$dir/kinds" | sed '1d; s/ .*//' >"$dir/r1" && "$TTRUN" top "$dir/kinds" --once --json >"$dir/out" && "$TTRUN" runs "$dir/kin*s/" | sed '1d; s/ .*//' >"$dir/r2" &&
    [ "$(tr '\n' ' ' <"$dir/r1")" = "$dir/kinds/a/b $dir/kinds/begun " ] && cmp -s "$dir/r1" "$dir/r2" && [ "$(grep -o '"folder":' "$dir/out" | wc -l)" -eq 2 ]
ok runs_and_top_find_the_same
train "$dir/again" --training.steps 2 && train "$dir/again" --training.steps 4 --optimizer.lr 0.02
"$TTRUN" runs "$dir/again" >"$dir/out" 2>"$dir/err" && grep -A9 '^starts:$' "$dir/out" | sed 1d >"$dir/starts" && [ "$(grep -c '^20' "$dir/starts")" -eq 2 ] &&
    sed -n 1p "$dir/starts" | grep -q ' steps 0 to 2, ranks 1, host .*: done$' && grep -q ' steps 2 to 4, .*: done$' "$dir/starts" && grep -q '^    optimizer.lr: 0.01 → 0.02$' "$dir/starts"
ok the_starts_of_one_run
"$TTRUN" report "$dir/again" >"$dir/out" 2>"$dir/err" && tr -d '\n' <"$dir/again/report.html" | grep -q '<h3>Starts</h3>.*<td>0 – 2</td>.*<td>2 – 4</td>.*optimizer.lr: 0.01 → 0.02'
ok the_report_has_the_starts
cp -r "$all" "$dir/same"
gc "$all" && [ $rc -eq 0 ] && [ "$(grep -c 'two/before-' "$dir/out")" -eq 3 ] && grep -q 'would remove .* bytes); nothing was removed: add --yes' "$dir/out" &&
    diff -r "$all" "$dir/same"
ok gc_only_shows_by_default
gc "$all" --yes --dry-run && diff -r "$all" "$dir/same"
ok dry_run_wins
start "$all/two" --training.steps 100000000 --training.seed 3 --checkpoint.enable false --resume never --metrics.log_freq 1
until_true grep -q "\"step\"" "$all/two/metrics.jsonl"
until_true [ -d "$all/two/before-4" ]
"$TTRUN" runs "$all" >"$dir/live" 2>&1
"$TTRUN" runs "$all/two" >"$dir/going" 2>&1
gc "$all" --yes
[ $rc -eq 0 ] && grep -q "process $pid is training there: nothing of this run is removed" "$dir/err" && [ -d "$all/two/before-1" ] &&
    grep -q 'two .* running$' "$dir/live"
ok a_live_run_is_left_alone
kill -9 "$pid"
wait "$pid" 2>/dev/null
"$TTRUN" runs "$all/two" >"$dir/out" 2>&1 && tail -n 1 "$dir/going" | grep -q ', ranks 1, host .*: running$' && tail -n 1 "$dir/out" | grep -q ': was killed, or runs on another machine$'
ok a_start_says_that_it_runs_or_was_killed
n=$(ls -d "$all"/two/before-* | wc -l)
gc "$all" --keep 2 --yes && [ $rc -eq 0 ] && [ "$(ls -d "$all"/two/before-* | wc -l)" -eq 2 ] && [ -d "$all/two/before-$n" ] && [ -f "$all/two/run.json" ]
ok gc_keeps_the_newest
train "$all/two" --training.steps 1 --training.seed 9 --resume never && [ -d "$all/two/before-$((n + 1))" ]
ok numbers_go_on_after_gc
mkdir "$all/two/before-noon" && ln -s "$all/deep" "$all/two/before-77"
gc "$all" --yes && [ -d "$all/two/before-noon" ] && [ -d "$all/deep/one" ] && ! [ -e "$all/two/before-$n" ]
ok folders_of_others_and_links_are_left_alone
# checkpoints elsewhere go with the run that they were set aside by, and a run.json cannot name another's
far=$dir/far
ln -s "$dir/big" "$dir/linked" && mkdir "$dir/big"
for run in far linked; do
    for seed in 1 2; do
        train "$all/$run" --training.steps 2 --training.seed $seed --resume never --checkpoint.folder "$dir/$run"
    done
done
[ $rc -eq 0 ] && [ "$(cat "$far.before-1/.set-aside")" = "$all/far/before-1" ] && [ -d "$dir/big.before-1/step-2" ] &&
    "$TTRUN" runs "$all/linked" >"$dir/out" && grep -q '/before-1 .* 2/2 .*set aside$' "$dir/out"
ok checkpoints_elsewhere_say_whose_they_are
cp -a "$all/far/before-1" "$dir/as-it-was"
foreign=$dir/theirs/ck
mkdir -p "$foreign.before-1/step-1" "$dir/marked.before-1/step-1" && echo "$dir/other/before-1" >"$dir/marked.before-1/.set-aside"
ln -s "$far.before-1" "$dir/away.before-1"
left() { # run.json names this folder, which has FOLDER.before-1
    sed "s|$far\"|$1\"|" "$dir/as-it-was/run.json" >"$all/far/before-1/run.json" && gc "$all/far" --yes && [ $rc -eq 0 ] &&
        grep -q "${1##*/}.before-1 is left as it is: it lies outside of .*/far, and nothing in it says that it belongs to .*/far/before-1" "$dir/err" &&
        ! [ -e "$all/far/before-1" ] && cp -a "$dir/as-it-was" "$all/far/before-1"
}
left "$foreign" && [ -d "$foreign.before-1/step-1" ] && left "$dir/marked" && [ -d "$dir/marked.before-1/step-1" ]
ok gc_leaves_what_says_nothing_of_its_run
sed "s|$far\"|$dir/away\"|" "$dir/as-it-was/run.json" >"$all/far/before-1/run.json" && gc "$all/far" --yes && [ -d "$far.before-1/step-2" ]
ok gc_does_not_go_through_a_link
rm -rf "$all/far/before-1" && cp -a "$dir/as-it-was" "$all/far/before-1" && gc "$all" && [ -d "$far.before-1/step-2" ] && gc "$all" --yes && [ $rc -eq 0 ] &&
    ! [ -e "$far.before-1" ] && ! [ -e "$dir/big.before-1" ] && [ -d "$far/step-2" ] && [ -d "$dir/big/step-2" ] && grep -q "^$dir/big.before-1  " "$dir/out"
ok gc_removes_checkpoints_elsewhere
mkdir -p "$dir/cache/ttrun/cubin" && echo x >"$dir/cache/ttrun/0123.tokens" && echo y >"$dir/cache/ttrun/mine.txt"
XDG_CACHE_HOME=$dir/cache gc "$all" --cache && grep -q '0123.tokens' "$dir/out" && [ -f "$dir/cache/ttrun/0123.tokens" ] &&
    XDG_CACHE_HOME=$dir/cache gc "$all" --cache --yes && ! [ -e "$dir/cache/ttrun/0123.tokens" ] && ! [ -e "$dir/cache/ttrun/cubin" ] &&
    [ -f "$dir/cache/ttrun/mine.txt" ]
ok gc_of_the_caches
# killed while it moved: checkpoints are in before-N already, the rest is not
rm -rf "$all" && train "$all/k" --training.steps 3 && mkdir "$all/k/before-1" && mv "$all/k/checkpoint" "$all/k/before-1"
train "$all/k" --training.steps 3 --training.seed 5
[ $rc -eq 0 ] && [ -f "$all/k/before-1/run.json" ] && [ -f "$all/k/before-1/metrics.jsonl" ] && ! [ -e "$all/k/before-2" ]
ok a_killed_move_is_completed_in_the_same_place
# the last save does not fit: all steps are done, and the run is not. With room again a start begins anew and sets it aside.
(ulimit -f 100; train "$dir/failed" --training.steps 4; exit $rc)
rc=$?
"$TTRUN" runs "$dir/failed" >"$dir/out" 2>>"$dir/err" && [ $rc -eq 1 ] && grep -q ' 4/4 .* failed$' "$dir/out" && grep -q ' steps 0 to 4, .*: failed: ' "$dir/out" &&
    "$TTRUN" runs "$dir/failed" --json >"$dir/out" && grep -q '"state":"failed"' "$dir/out" && "$TTRUN" top "$dir/failed" --once --json >"$dir/out" && grep -q '"state":"failed"' "$dir/out"
ok a_run_whose_last_save_failed_is_not_done
train "$dir/failed" --training.steps 4
"$TTRUN" runs "$dir/failed" >"$dir/out" 2>>"$dir/err" && [ $rc -eq 0 ] && grep -q 'failed  .* 4/4 .* done$' "$dir/out" && grep -q '/before-1  .* 4/4 .* failed, set aside$' "$dir/out"
ok and_done_after_a_start_that_saves
# killed before the last save was complete: run.json has no end of its start
train "$dir/killed" --training.steps 4 --checkpoint.interval 2
sed -i 's/,"ended":"[^"]*","to_step":4,"status":"done"//' "$dir/killed/run.json" && mv "$dir/killed/checkpoint/step-4" "$dir/step-4"
"$TTRUN" runs "$dir/killed" >"$dir/out" 2>>"$dir/err" && [ $rc -eq 0 ] && ! grep -q '"status"' "$dir/killed/run.json" && grep -q ' 4/4 .* stopped$' "$dir/out" &&
    "$TTRUN" top "$dir/killed" --once >"$dir/out" && grep -q '^killed  stopped ' "$dir/out"
ok a_run_killed_during_its_last_save_is_not_done
mv "$dir/step-4" "$dir/killed/checkpoint/step-4" && "$TTRUN" runs "$dir/killed" >"$dir/out" 2>>"$dir/err" && grep -q ' 4/4 .* done$' "$dir/out"
ok and_one_killed_after_it_is
mkdir "$dir/hostile" && sed 's/llama3/x\\u001b[31my/' "$dir/killed/run.json" >"$dir/hostile/run.json"
"$TTRUN" runs "$dir/hostile" >"$dir/out" 2>"$dir/err" && grep -qF 'x\x1b[31my' "$dir/out" && "$TTRUN" top "$dir/hostile" --once >"$dir/err" && ! grep -q "$(printf '\033')" "$dir/out" "$dir/err"
ok a_terminal_gets_no_control_characters_of_files
for command in "runs $dir/killed" "top $dir/killed --once" "gc $dir/killed"; do
    "$TTRUN" $command --plugin-dir "$PLUGINS" --spec llama3 >"$dir/out" 2>"$dir/err" || failed=1
done
[ $failed -eq 0 ]
ok spec_and_plugin_dir_go_with_every_command
gc "$dir/none"
[ $rc -eq 2 ] && [ "$(wc -l <"$dir/err")" -eq 1 ]
ok no_such_folder
exit $failed
