#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# ttrun report on real runs (profiled, resumed, cut off, with few files) and on folders that are not runs.
. "$(dirname "$0")/lib.sh"
report() {
    ttrun report "$@" >"$dir/out" 2>"$dir/err"
    rc=$?
}
train "$dir/run" --profile --validation.enable true --validation.freq 5 --validation.steps 1 --validation.dataloader.path "$dir/text.txt" &&
    train "$dir/run" --profile --training.steps 15 --validation.enable true --validation.freq 5 --validation.steps 1 --validation.dataloader.path "$dir/text.txt"
report "$dir/run" && [ "$(cat "$dir/out")" = "$dir/run/report.html" ] && ! [ -s "$dir/err" ]
ok report_writes_into_the_run
page=$dir/run/report.html
cp "$page" "$dir/first" && report "$dir/run" && cmp -s "$page" "$dir/first"
ok report_is_the_same_each_time
# 15 steps of training and three validations: the last loss of the curve is the last of the metrics
grep -v validation "$dir/run/metrics.jsonl" >"$dir/training"
last=$(losses "$dir/training" | tail -n 1 | cut -d ' ' -f 2)
points=$(sed -n 's/.*data-name="training" data-p="\([^"]*\)".*/\1/p' "$page")
near "$(echo "$points" | awk '{print $NF}')" "$last" 1e-4 && [ "$(echo "$points" | wc -w)" -eq 30 ]
ok report_draws_the_losses
[ "$(sed -n 's/.*data-name="validation" data-p="\([^"]*\)".*/\1/p' "$page" | wc -w)" -eq 6 ]
ok report_draws_validation
grep -q 'data-name="activations"' "$page" && grep -q 'Memory over the step' "$page" && ! grep -q 'cannot be planned' "$page"
ok report_plans_the_memory_again
grep -q '<code>linear_dw</code></td><td class="r">15.0</td>' "$page" && grep -q 'Limits measured then, per rank: f32 products [1-9]' "$page"
ok report_has_the_op_table
grep -q '<code>step-5</code>, <code>step-10</code>, <code>step-15</code>' "$page" && grep -q '<code>hidden_dim\|<code>n_layers\|<code>seq_len' "$page"
ok report_has_job_and_checkpoints
mkdir "$dir/bare" && printf '{"step":1,"loss":2}\n{"step":2,"lo' >"$dir/bare/metrics.jsonl"
report "$dir/bare" && grep -q '1 line of metrics.jsonl could not be read' "$dir/bare/report.html" && grep -q 'no run.json' "$dir/bare/report.html"
ok report_of_a_run_that_was_cut_off
mkdir "$dir/odd" && echo '{"job":{"spec":"nothing","x":1},"world":-3}' >"$dir/odd/run.json"
report "$dir/odd" && grep -q 'cannot be planned again' "$dir/odd/report.html"
ok report_of_a_job_that_does_not_resolve
echo '{"job":' >"$dir/odd/run.json"
report "$dir/odd" && grep -q 'run.json:' "$dir/odd/report.html"
ok report_of_a_broken_run_json
report "$dir/run" "$dir/bare" --output "$dir/both.html" && grep -q 'data-name="bare, training"' "$dir/both.html" && [ "$(cat "$dir/out")" = "$dir/both.html" ]
ok report_compares_runs
mkdir "$dir/group" && cp -r "$dir/run" "$dir/group/a" && cp -r "$dir/bare" "$dir/group/b" && mkdir "$dir/group/b/before-1" && cp "$dir/bare/metrics.jsonl" "$dir/group/b/before-1" &&
    report "$dir/group" --output "$dir/group.html" && grep -q 'data-name="a, training"' "$dir/group.html" && grep -q 'data-name="b, training"' "$dir/group.html" &&
    ! grep -q before-1 "$dir/group.html" && report "$dir/group/*" --output "$dir/glob.html" && cmp -s "$dir/group.html" "$dir/glob.html"
ok report_compares_the_runs_below_a_folder
for i in 1 2 3 4 5 6 7; do cp -r "$dir/bare" "$dir/group/more$i"; done
report "$dir/group"
[ $rc -eq 2 ] && one_line "$dir/err" && grep -q 'group: 9 runs; a page compares 8 at most: name them' "$dir/err"
ok report_of_too_many_runs
bad=
for f in "$dir/none" "$dir"; do
    report "$f"
    [ "$rc" -eq 2 ] && one_line "$dir/err" && ! [ -s "$dir/out" ] || bad="$bad $f"
done
[ -z "$bad" ]
ok "report_of_no_run_is_an_error$bad"
train "$dir/pp" --training.steps 2 --parallelism.pipeline_parallel_degree 2 --comm.backend local && report "$dir/pp" && ! grep -q 'cannot be planned' "$dir/pp/report.html"
ok report_of_a_pipeline
grep -q '<h3>Pipeline</h3>' "$dir/pp/report.html" && grep -q 'number: micro-batch' "$dir/pp/report.html" && ! grep -q 'http' "$dir/pp/report.html"
ok report_draws_the_pipeline_with_a_legend
grep -q 'Keys of the jobs that differ' "$dir/both.html" && grep -q '<td>1 rank</td>' "$dir/both.html"
ok report_has_a_table_of_runs
exit $failed
