#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The bubble of a pipeline in a traced step: planned, simulated from measured times, and measured by the clock. How close they
# are is tested on an idle machine (bench/parallel/bubble.sh); that the simulation of planned times gives the plan's bubble is
# tested in tests/estimate/test_bubble.c. Here: schedules with one and with two stages per rank, whole and split backwards.
. "$(dirname "$0")/lib.sh"
sed -e 's/"args": {[^}]*}/"args": {}/' "$dir/job.json" >"$dir/wide.json"
job=$dir/wide.json

# bubbles SCHEDULE RANKS: three shares of a whole
bubbles() {
    rm -rf "$dir/run"
    train "$dir/run" --profile --training.steps 3 --profiling.profile_freq 2 --checkpoint.enable false \
        --comm.backend local --parallelism.pipeline_parallel_degree "$2" --parallelism.pipeline_parallel_schedule "$1" \
        --parallelism.pipeline_parallel_microbatches 4
    [ "$rc" -eq 0 ] || return 1
    head -n 1 "$dir/run/profile/ops.jsonl" >"$dir/head"
    for share in planned replayed measured; do
        value "$dir/head" bubble.$share | awk '{exit !($1 > 0 && $1 < 1)}' || return 1
    done
}
bubbles 1F1B 3
ok profile_of_a_pipeline_has_its_bubble
bubbles ZBVZeroBubble 4
ok profile_of_a_split_backward_has_its_bubble
grep -q 'profile\] pipeline [A-Za-z0-9]*: bubble [0-9.]* % planned, [0-9.]* % simulated from measured parts, [0-9.]* % measured' "$dir/err"
ok bubbles_on_the_console
train "$dir/one" --profile --training.steps 1 --checkpoint.enable false
[ "$rc" -eq 0 ] && ! grep -q bubble "$dir/one/profile/ops.jsonl" "$dir/err"
ok one_rank_has_no_bubble
exit $failed
