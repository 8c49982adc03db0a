#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A pipeline's bubble: what its parts took in a traced step, replayed in virtual time in the plan's order, idles as much as
# the plan says, within 2 points. Parts are timed by their thread's own clock, so ranks may outnumber the cores. Ranks of
# one stage each and of two, whole and split backwards; all schedules on 2 to 4 ranks with TTRUN_LONG=1.
. "$(dirname "$0")/lib.sh"
# debugmodel's width: what an op costs beside its arithmetic does not show
sed -e 's/"args": {[^}]*}/"args": {}/' -e 's/"seq_len": 32/"seq_len": 256/' -e 's/"local_batch_size": 4/"local_batch_size": 8/' \
    "$dir/job.json" >"$dir/wide.json"
job=$dir/wide.json

# replay SCHEDULE RANKS: up to three runs, for a machine that does something else
replay() {
    for try in 1 2 3; do
        rm -rf "$dir/run"
        train "$dir/run" --profile --training.steps 3 --profiling.profile_freq 2 --checkpoint.enable false \
            --comm.backend local --parallelism.pipeline_parallel_degree "$2" --parallelism.pipeline_parallel_schedule "$1" \
            --parallelism.pipeline_parallel_microbatches 8
        [ "$rc" -eq 0 ] || return 1
        head -n 1 "$dir/run/profile/ops.jsonl" >"$dir/head"
        planned=$(value "$dir/head" bubble.planned) replayed=$(value "$dir/head" bubble.replayed)
        near "$planned" "$replayed" 0.02 && awk -v p="$planned" 'BEGIN {exit !(p > 0.02 && p < 0.7)}' && return 0
    done
    echo "$1 on $2: $planned as planned, $replayed replayed" >>"$dir/err"
    return 1
}
if [ -n "${TTRUN_LONG:-}" ]; then
    for ranks in 2 3 4; do
        for schedule in 1F1B GPipe Interleaved1F1B LoopedBFS InterleavedZeroBubble ZBVZeroBubble DualPipeV; do
            replay $schedule $ranks
            ok "replayed_bubble_is_the_plans $schedule $ranks"
        done
    done
else
    replay 1F1B 3
    ok replayed_bubble_is_the_plans
    replay ZBVZeroBubble 4
    ok replayed_bubble_of_a_split_backward_is_the_plans
fi
grep -q 'profile\] pipeline [A-Za-z0-9]*: bubble [0-9.]* % as planned, [0-9.]* % with what its parts took, [0-9.]* % on the clock' "$dir/err"
ok bubbles_on_the_console
train "$dir/one" --profile --training.steps 1 --checkpoint.enable false
[ "$rc" -eq 0 ] && ! grep -q bubble "$dir/one/profile/ops.jsonl" "$dir/err"
ok one_rank_has_no_bubble
exit $failed
