#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# activation_checkpoint: the modes give the same losses on a device, with dropout and over processes; what `ttrun plan` says of a budget;
# a run may resume in another mode.
. "$(dirname "$0")/lib.sh"
mkdir -p "$dir/plugins/backends"
cp "$BUILD/tests/plugins/far/far.so" "$dir/plugins/backends/"
mine="--plugin-dir $dir/plugins"
ac=--activation_checkpoint
budget="$ac.mode budget $ac.memory_budget"

equal() { # A B STEP: every tensor of the two checkpoints
    "$TTRUN" ckpt diff "$1/checkpoint/step-$3" "$2/checkpoint/step-$3" >"$dir/out" 2>"$dir/err"
}
same_losses() { [ -n "$(losses "$1/metrics.jsonl")" ] && [ "$(losses "$1/metrics.jsonl")" = "$(losses "$2/metrics.jsonl")" ]; }

# ---- bits ----
train "$dir/far" $mine --backend.name far --training.steps 5 --model.args.attention_dropout 0.2
[ "$rc" -eq 0 ]
ok far_trains
for mode in "$ac.mode full" "$budget 0.6" "$budget 0.1" "$budget 0.3 $ac.offload all"; do
    name=$(echo "$mode" | tr -dc 'a-z0-9')
    train "$dir/far-$name" $mine --backend.name far --training.steps 5 --model.args.attention_dropout 0.2 $mode
    [ "$rc" -eq 0 ] && same_losses "$dir/far" "$dir/far-$name" && equal "$dir/far" "$dir/far-$name" 5
    ok "far_has_the_same_bits_$name"
done
train "$dir/one"
train "$dir/resumed" --training.steps 5 && train "$dir/resumed" $budget 0.3
[ "$rc" -eq 0 ] && grep -q 'resumed from .*step-5' "$dir/err" && equal "$dir/one" "$dir/resumed" 10
ok a_run_resumes_with_a_budget
train "$dir/two" --comm.backend local --parallelism.data_parallel_shard_degree 2
train "$dir/two-budget" --parallelism.data_parallel_shard_degree 2 $budget 0.3 --nproc 2
[ "$rc" -eq 0 ] && same_losses "$dir/two" "$dir/two-budget"
ok processes_choose_alike
grep -q 'I recompute\] budget: training takes 0.0.* per rank (none 0.0.*) *.* of the FLOPs are done again' "$dir/err"
ok the_run_says_what_it_chose
grep -q 'I recompute\]  *layers  keep MiB' "$dir/err"
ok the_run_says_it_layer_by_layer

# ---- what the run says ----
run=$dir/two-budget
[ "$(value "$run/run.json" recompute.mode)" = budget ] && [ "$(value "$run/run.json" recompute.layers.1.name)" = model.layers.1 ] &&
    [ "$(value "$run/run.json" recompute.bytes.0)" -le "$(value "$run/run.json" recompute.budget.0)" ]
ok run_json_has_the_choice
ttrun report "$run" >"$dir/out" 2>"$dir/err" && grep -q 'Activations computed again' "$run/report.html" && grep -q '<code>model.layers.1</code>' "$run/report.html" &&
    grep -q '>this job</text>' "$run/report.html" && [ "$(grep -c '<circle class="level"' "$run/report.html")" -eq 17 ] && ! grep -q '="nan\|="inf\|http' "$run/report.html"
ok the_report_has_the_layers_and_the_curve
ttrun report "$dir/one" >"$dir/out" 2>"$dir/err" && ! grep -q 'computed again\|"pareto"' "$dir/one/report.html" && [ -z "$(value "$dir/one/run.json" recompute.mode 2>/dev/null)" ]
ok nothing_is_said_in_mode_none
train "$dir/full" --training.steps 1 $ac.mode full
[ "$rc" -eq 0 ] && grep -q 'I recompute\] full: [1-9][0-9.]* % of the FLOPs are done again' "$dir/err" && [ "$(value "$dir/full/run.json" recompute.mode)" = full ]
ok the_log_says_how_much_full_computes_again

# ---- ttrun plan ----
plan() { ttrun plan "$job" --model.args.n_layers 6 "$@" >"$dir/out" 2>"$dir/err"; }
plan $budget 0.5 --json && cp "$dir/out" "$dir/plan.json"
[ "$(value "$dir/plan.json" recompute.mode)" = budget ] && [ "$(value "$dir/plan.json" recompute.layers.0.name)" = model.layers.0 ] &&
    awk -v b="$(value "$dir/plan.json" recompute.bytes.0)" -v most="$(value "$dir/plan.json" recompute.budget.0)" 'BEGIN {exit !(b > 0 && b <= most)}'
ok plan_json_has_every_layer
[ "$(value "$dir/plan.json" recompute.layers.0.kept)" -lt "$(value "$dir/plan.json" recompute.layers.5.kept)" ]
ok the_first_layer_keeps_less
plan $budget 0.5 && grep -q '^recompute   budget: training takes 0.0' "$dir/out" && grep -q '^ *layers  keep MiB' "$dir/out" && grep -q '^ *[0-9]-5 .*rms_norm$' "$dir/out" &&
    awk 'length > 80 {long = 1} END {exit long}' "$dir/out"
ok plan_prints_the_layers
plan $ac.mode none && ! grep -q '^recompute' "$dir/out"
ok plan_without_a_budget_says_nothing
plan --pareto "$dir/p.svg" && grep -q '>selective</text>' "$dir/p.svg" && [ "$(grep -c 'class="level"' "$dir/p.svg")" -eq 17 ] && ! grep -q 'nan\|inf' "$dir/p.svg"
ok the_curve_is_drawn
[ "$(grep -c '<line class="grid" x1="70" x2="620"' "$dir/p.svg")" -ge 4 ] && [ "$(grep -c '<line class="grid"' "$dir/p.svg")" -ge 8 ]
ok both_axes_of_the_curve_have_numbers
cp "$dir/p.svg" "$dir/q.svg" && plan --pareto "$dir/p.svg" && cmp -s "$dir/p.svg" "$dir/q.svg"
ok the_same_picture_again
plan --pareto "$dir/h.svg" --hardware h100 --backend.name cuda && grep -q 'Seconds per step on h100' "$dir/h.svg"
ok the_curve_in_seconds_of_a_machine
plan --pareto "$dir/nowhere/p.svg"
[ $? -ne 0 ] && grep -q nowhere "$dir/err"
ok a_folder_that_is_not_there

# ---- errors ----
train "$dir/little" $ac.mode budget $ac.memory_gib 0.00001
[ "$rc" -ne 0 ] && one_line "$dir/err" && grep -q 'memory_gib: 0.000 GiB per rank cannot be reached: .* at least 0.00[0-9]* GiB; lower training.local_batch_size' "$dir/err"
ok an_unreachable_budget_is_an_error
exit $failed
