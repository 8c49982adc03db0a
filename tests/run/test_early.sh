#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Early stopping by the validation loss, across resumes; training.seed null: drawn, told, kept by a resume, the same on all ranks.
. "$(dirname "$0")/lib.sh"
head -c 3000 "$dir/text.txt" | tr "a-z" "n-za-m" >"$dir/held.txt" # another language, which becomes less likely
sed "s|\"optimizer\"|\"validation\": { \"dataloader\": { \"name\": \"text\", \"path\": [\"held.txt\"] } }, &|" "$job" >"$dir/validated.json"
plain=$job job=$dir/validated.json
base="--training.steps 40 --validation.enable true --validation.freq 4 --validation.steps 2 --comm.backend local --metrics.log_freq 4"
stop="--validation.early_stopping_patience 2"
validations() { sed -n 's/^{"step":\([0-9]*\),.*"validation":{"loss":\([-0-9.e]*\).*/\1 \2/p' "$1/metrics.jsonl"; }
steps_of() { validations "$1" | cut -d ' ' -f 1 | tr '\n' ' '; }
train "$dir/worse" $base $stop
[ "$rc" -eq 0 ] && last=$(validations "$dir/worse" | tail -n 1 | cut -d ' ' -f 1) && [ "$last" -lt 40 ] &&
    validations "$dir/worse" | awk '{ if (NR == 1 || $2 < best) { best = $2; worse = 0 } else worse++ } END { exit worse != 2 }' &&
    [ -d "$dir/worse/checkpoint/step-$last" ] && grep -q "early stopping after step $last: since step [0-9]*, whose validation loss was" "$dir/err" &&
    [ "$(value "$dir/worse/run.json" starts.0.status)" = done ] && grep -q "finished: $last steps" "$dir/err"
ok ends_after_two_worse_validations
cp -r "$dir/worse" "$dir/first"
ttrun "$job" --dump_folder "$dir/worse" $base $stop >"$dir/out" 2>"$dir/err"
[ $? -eq 0 ] && grep -q "early stopping after step $last" "$dir/err" && [ "$(validations "$dir/worse" | tail -n 1 | cut -d ' ' -f 1)" = "$last" ]
ok has_ended_for_good
train "$dir/worse" $base --validation.early_stopping_patience 3
[ "$rc" -eq 0 ] && [ "$(validations "$dir/worse" | tail -n 1 | cut -d ' ' -f 1)" -gt "$last" ]
ok more_patience_goes_on
# An interrupted run counts on: stopped after the first worse validation, it ends at the same step.
train "$dir/parts" $base $stop --training.steps $((last - 4)) --checkpoint.interval 4
train "$dir/parts" $base $stop --checkpoint.interval 4
[ "$rc" -eq 0 ] && [ "$(steps_of "$dir/parts")" = "$(steps_of "$dir/first")" ] && [ "$(validations "$dir/parts" | tail -n 1 | cut -d ' ' -f 1)" = "$last" ]
ok a_resume_goes_on_counting
train "$dir/mesh" $base $stop --nproc 2 --training.local_batch_size 2 --comm.backend auto
[ "$rc" -eq 0 ] && [ "$(validations "$dir/mesh" | tail -n 1 | cut -d ' ' -f 1)" = "$last" ]
ok all_ranks_end_together
train "$dir/threshold" $base --validation.early_stopping_patience 1 --validation.early_stopping_threshold 1e6 --training.steps 20
[ "$rc" -eq 0 ] && [ "$(validations "$dir/threshold" | tail -n 1 | cut -d ' ' -f 1)" = 8 ]
ok threshold_counts
sed 's|held.txt|text.txt|' "$job" >"$dir/same.json" && job=$dir/same.json
train "$dir/better" $base --validation.early_stopping_patience 1 --training.steps 12 --optimizer.lr 0.003
[ "$rc" -eq 0 ] && grep -q 'finished: 12 steps' "$dir/err" && ! grep -q 'early stopping after' "$dir/err"
ok a_falling_loss_goes_on

# ---- training.seed null ----
near_losses() { # FOLDER FOLDER: of another mesh, so that the last digits differ
    losses "$1/metrics.jsonl" >"$dir/left" && losses "$2/metrics.jsonl" | paste -d ' ' "$dir/left" - | awk '{ d = $2 - $4; if ($1 != $3 || d * d > 1e-10) bad = 1; n++ } END { exit bad || n != 3 }'
}
job=$plain
quick="--training.steps 3 --comm.backend local"
seed() { value "$dir/$1/run.json" job.training.seed; }
train "$dir/a" $quick --training.seed null && grep -q "training.seed is null: this run's is $(seed a), as run.json says" "$dir/err"
ok the_seed_is_told
train "$dir/b" $quick --training.seed null
[ "$rc" -eq 0 ] && [ "$(seed a)" -ne "$(seed b)" ] && [ "$(losses "$dir/a/metrics.jsonl")" != "$(losses "$dir/b/metrics.jsonl")" ]
ok two_runs_differ
train "$dir/again" $quick --training.seed "$(seed a)"
[ "$rc" -eq 0 ] && [ "$(losses "$dir/a/metrics.jsonl")" = "$(losses "$dir/again/metrics.jsonl")" ] && [ "$(hash_of "$dir/a/checkpoint/step-3")" = "$(hash_of "$dir/again/checkpoint/step-3")" ]
ok the_seed_gives_the_run_again
train "$dir/a" --training.steps 6 --comm.backend local --training.seed null
[ "$rc" -eq 0 ] && grep -q "this run keeps $(value "$dir/again/run.json" job.training.seed), as run.json says" "$dir/err" && train "$dir/again" --training.steps 6 --comm.backend local --training.seed "$(seed a)" &&
    [ "$(losses "$dir/a/metrics.jsonl")" = "$(losses "$dir/again/metrics.jsonl")" ]
ok a_resume_keeps_it
train "$dir/c" $quick --training.seed null --nproc 2 --training.local_batch_size 2 --comm.backend auto && s=$(seed c) && train "$dir/d" $quick --training.seed "$s"
[ "$rc" -eq 0 ] && near_losses "$dir/c" "$dir/d"
ok all_ranks_have_it
sed 's|"dataloader": .*|"dataloader": { "mixture": [ { "name": "text", "path": ["text.txt"] }, { "name": "text", "path": ["held.txt"] } ] },|' "$job" >"$dir/mixed.json"
job=$dir/mixed.json
train "$dir/m" $quick --training.seed null && train "$dir/n" $quick --training.seed "$(seed m)"
[ "$rc" -eq 0 ] && [ "$(losses "$dir/m/metrics.jsonl")" = "$(losses "$dir/n/metrics.jsonl")" ]
ok sources_of_a_mixture_follow_it
exit $failed
