#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Profiles: which steps are traced, that the traces are complete and show what ran, and that tracing changes no number.
. "$(dirname "$0")/lib.sh"
tool=$BUILD/tests/run/trace_tool
# kinds FILE: the trace's slices by kind, to $dir/kinds; fails where the trace is not one
kinds() { "$tool" "$1" >"$dir/kinds" 2>"$dir/out"; }
# field PID TID CATEGORY "NAME" 1|2|3: count, FLOPs or bytes of a kind
field() { sed -n "s/^pid $1 tid $2 $3 $4 \([0-9]*\) \([0-9]*\) \([0-9]*\)$/\\$5/p" "$dir/kinds"; }

train "$dir/off" --backend.threads 2 --training.global_batch_size 8 && ! [ -e "$dir/off/profile" ] && ! grep -q 'I profile' "$dir/err"
ok no_profile_without_profiling
train "$dir/on" --profile --profiling.profile_freq 4 --backend.threads 2 --training.global_batch_size 8
[ "$rc" -eq 0 ] && [ "$(ls "$dir/on/profile" | tr '\n' ' ')" = "ops.jsonl step-10.json step-4.json step-8.json " ]
ok every_freq_th_step_and_the_last_are_traced
losses "$dir/off/metrics.jsonl" >"$dir/a" && losses "$dir/on/metrics.jsonl" >"$dir/b" && [ -s "$dir/a" ] && cmp -s "$dir/a" "$dir/b" &&
    [ "$(hash_of "$dir/off/checkpoint/step-10")" = "$(hash_of "$dir/on/checkpoint/step-10")" ]
ok profiling_changes_no_bit
kinds "$dir/on/profile/step-4.json" && kinds "$dir/on/profile/step-10.json" && kinds "$dir/on/profile/step-8.json"
ok traces_are_well_formed
# sum PID TID CATEGORY 1|2|3: of the matrix products, with pointwise ops in them or without
sum() {
    total=0
    for kind in linear linear_fused linear_fused_rope; do total=$((total + $(field "$1" "$2" "$3" $kind "$4"))); done
    echo $total
}
# 2 layers of (q 32, k 16, v 16, o 32, gate, up, down 48) × 32 and a head of 262 × 32, two FLOPs, 128 tokens, two micro-batches
products=$((2 * 256 * (2 * (96 * 32 + 48 * 96) + 262 * 32))) counted=$(sum 0 0 forward 2)
[ "$counted" -ge $products ] && [ "$counted" -le $((products + products / 20)) ] && [ "$(sum 0 0 forward 1)" = 30 ]
ok flops_of_the_forward_are_counted
[ "$(field 0 0 phase forward 1)" = 2 ] && [ "$(field 0 0 phase backward 1)" = 2 ] && [ "$(field 0 0 phase update 1)" = 1 ] &&
    [ "$(field 0 0 step 'step 8' 1)" = 1 ] && [ "$(field 0 0 phase data 1)" = 1 ]
ok phases_are_slices_of_the_trace
grep -q '^\[r0 .* profile\] 3 steps traced, .* traces in ' "$dir/err" &&
    grep -q 'profile\] limits measured on rank 0 (.* 2 threads): f32 products [1-9][0-9.]*, other arithmetic [1-9][0-9.]* GFLOP/s, memory [1-9]' "$dir/err" && grep -q 'profile\] op  *calls  *ms/step  *% step  *GFLOP/s  *GB/s  *% roofline$' "$dir/err" &&
    grep -q 'profile\] linear  *[0-9]*\.0 ' "$dir/err" && grep -q 'profile\] all ops ' "$dir/err"
ok table_on_the_console
awk -v all="$(sed -n 's/.*profile\] all ops  *[0-9.]*  *[0-9.]*  *\([0-9.]*\) .*/\1/p' "$dir/err")" 'BEGIN {exit !(all > 0 && all <= 100.05)}'
ok times_of_ops_add_up_to_at_most_the_step
value "$dir/on/profile/ops.jsonl" op >"$dir/out" && [ "$(wc -l <"$dir/on/profile/ops.jsonl")" -gt 10 ] && head -n 1 "$dir/on/profile/ops.jsonl" | grep -q '^{"steps":3,'
ok table_for_the_report
# ops long enough that a second thread takes its part of some
train "$dir/wide" --profile --backend.threads 2 --training.steps 1 --training.seq_len 512 --model.args.dim 128 --model.args.hidden_dim 512 &&
    kinds "$dir/wide/profile/step-1.json" && grep -q '^pid 0 tid 1 worker linear' "$dir/kinds" && grep -q '"name":"worker 1"' "$dir/wide/profile/step-1.json"
ok workers_are_threads_of_the_trace
train "$dir/half" --profile --training.mixed_precision_param bfloat16 && grep -q '): f32 products [0-9.]*, bf16 products [1-9][0-9.]*, other' "$dir/err" &&
    head -n 1 "$dir/half/profile/ops.jsonl" | grep -q '"limits":"f32 products [0-9.]*, bf16 products '
ok limits_are_measured_for_the_dtypes_of_the_job
train "$dir/two" --profiling.enable_profiling true --nproc 2 --comm.backend local --training.steps 2 --profiling.save_traces_folder traces &&
    kinds "$dir/two/traces/step-2.json" && [ "$(field 0 0 forward linear 2)" = "$(field 1 0 forward linear 2)" ] && [ "$(field 1 0 communication all_gather 1)" -gt 5 ] &&
    [ "$(field 0 0 communication reduce_scatter 3)" -gt 1000 ]
ok ranks_are_processes_of_one_trace
train "$dir/pp" --profile --training.steps 1 --parallelism.pipeline_parallel_degree 2 --comm.backend local &&
    kinds "$dir/pp/profile/step-1.json" && [ "$(field 0 0 communication send 1)" -ge 4 ] && [ "$(field 0 0 communication send 3)" = "$(field 1 0 communication recv 3)" ]
ok trace_of_a_pipeline_has_sends_and_receives
train "$dir/full" --profile --training.steps 1 --profiling.save_traces_folder /proc/none
[ "$rc" -eq 2 ] && one_line "$dir/err" && grep -q '/proc/none' "$dir/err"
ok a_trace_folder_that_cannot_be_made_is_an_error
train "$dir/cycles" --profile --profiling.freq 4 --profiling.active 2 --profiling.skip_first 1 --profiling.repeat 2 --training.steps 12
[ "$rc" -eq 0 ] && [ "$(ls "$dir/cycles/profile" | tr '\n' ' ')" = "ops.jsonl step-4.json step-5.json step-8.json step-9.json " ] && grep -q '4 steps traced, ' "$dir/err"
ok cycles_end_with_active_steps
train "$dir/cycles" --profile --profiling.freq 4 --profiling.skip_first 1 --training.steps 18 --profiling.save_traces_folder more
[ "$rc" -eq 0 ] && [ "$(ls "$dir/cycles/more" | tr '\n' ' ')" = "ops.jsonl step-17.json step-18.json " ]
ok skipped_steps_are_those_of_this_start
train "$dir/ranks" --profile --profiling.ranks 1 --training.steps 1 --nproc 2 --comm.backend local && kinds "$dir/ranks/profile/step-1.json" &&
    [ "$(field 1 0 phase forward 1)" = 1 ] && [ -z "$(field 0 0 phase forward 1)" ] && [ "$(ls "$dir/ranks/profile")" = step-1.json ]
ok chosen_ranks_are_traced
train "$dir/ranks" --profile --profiling.ranks 0 --training.steps 2 --nproc 2 && kinds "$dir/ranks/profile/step-2.json" &&
    [ "$(field 0 0 phase forward 1)" = 1 ] && [ -z "$(field 1 0 phase forward 1)" ]
ok chosen_ranks_are_traced_in_processes
train "$dir/bad" --profile --profiling.freq 2 --profiling.active 3
[ "$rc" -eq 2 ] && one_line "$dir/err" && grep -q 'profiling.active: a cycle of 2 steps (profiling.freq) has no 3 to trace' "$dir/err"
ok more_active_steps_than_a_cycle_has
train "$dir/bad" --profile --profiling.ranks 0,x
[ "$rc" -eq 2 ] && one_line "$dir/err" && grep -q 'profiling.ranks: expected "all" or ranks' "$dir/err"
ok ranks_that_are_no_list

# ---- profiling.enable_memory_snapshot: the first step, every fourth and the last; drawn by the report ----
train "$dir/mem" --profiling.enable_memory_snapshot true --profiling.memory_snapshot_freq 4
[ $rc -eq 0 ] && [ "$(ls "$dir/mem/memory_snapshot" | tr '\n' ' ')" = "step-1-rank-0.json step-10-rank-0.json step-4-rank-0.json step-8-rank-0.json " ] && [ ! -e "$dir/mem/profile" ]
ok memory_is_measured_in_some_steps
snap=$dir/mem/memory_snapshot/step-4-rank-0.json
[ "$(value "$snap" step)" = 4 ] && [ "$(value "$snap" ranks_in_process)" = 1 ] && awk -v b="$(value "$snap" planned_per_rank)" 'BEGIN {exit !(b > 100000 && b < 1e9)}' &&
    tr -d '\n' <"$snap" | sed 's/.*"seconds": \[\([^]]*\)\].*"resident": \[\([^]]*\)\].*/\1|\2/' | awk -F'|' '{n = split($1, t, ", "); m = split($2, b, ", ");
        for (i = 1; i <= n; i++) if ((i > 1 && t[i] + 0 < t[i - 1] + 0) || b[i] < 1000000) exit 1; exit !(n == m && n >= 2)}'
ok a_snapshot_has_times_and_resident_bytes
"$TTRUN" report "$dir/mem" >"$dir/out" 2>"$dir/err" && grep -q 'Memory over the step, measured' "$dir/mem/report.html" && grep -q 'step 10' "$dir/mem/report.html"
ok the_report_draws_what_was_measured
cp -r "$dir/mem" "$dir/mem2" && echo '{' >"$dir/mem2/memory_snapshot/step-10-rank-0.json" && "$TTRUN" report "$dir/mem2" >"$dir/out" 2>"$dir/err" &&
    grep -q 'step-10-rank-0.json cannot be read' "$dir/mem2/report.html"
ok a_damaged_snapshot_is_a_note
train "$dir/mem3" --profiling.enable_memory_snapshot true --nproc 2 --comm.backend shm --training.steps 2 --profiling.save_memory_snapshot_folder "$dir/there"
[ $rc -eq 0 ] && [ "$(ls "$dir/there" | tr '\n' ' ')" = "step-1-rank-0.json step-1-rank-1.json step-2-rank-0.json step-2-rank-1.json " ]
ok each_process_has_its_snapshots
train "$dir/mem4" --profiling.enable_memory_snapshot true --profiling.memory_snapshot_max_entries 2 --training.steps 1 --profiling.save_memory_snapshot_folder /proc/none
[ $rc -eq 0 ] && grep -q 'W profile\] step 1: no memory snapshot: .*/proc/none' "$dir/err"
ok a_folder_that_cannot_be_made_is_a_warning
losses "$dir/mem/metrics.jsonl" >"$dir/a" && train "$dir/plain" && losses "$dir/plain/metrics.jsonl" >"$dir/b" && [ -s "$dir/a" ] && cmp "$dir/a" "$dir/b"
ok measuring_changes_no_loss
exit $failed
