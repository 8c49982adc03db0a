#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# metrics.lag 1 on the backend "far": the host prepares a step before it waits for the numbers of the step before. Lines, checkpoints,
# validations and ends are those of lag 0, to the bit, whatever the order of the device's queues.
. "$(dirname "$0")/lib.sh"
mkdir -p "$dir/far/backends"
cp "$BUILD/tests/plugins/far/far.so" "$dir/far/backends/"
far="--plugin-dir $dir/far --backend.name far --comm.backend local"
! is_long || : "${SEEDS:=1 2 3}"
turn=0 # the seed of a job, but for the long tier

numbers() { # metrics.jsonl without what differs from run to run
    without_times "$1/metrics.jsonl" >"$1.txt" && [ -s "$1.txt" ]
}
states() { # the names and bytes of the tensors of all checkpoints
    (cd "$1" && find . -name "*.safetensors" | sort | xargs -r cksum) >"$1.states" 2>>"$dir/err"
}
ends() { sed -n "s/^ttrun: //p" "$dir/err" | sed "s|$dir/[^ /]*|DIR|g; s/^rank [0-9]*: step/step/"; } # the error without its folder and the rank that told it first

# same NAME STATUS OPTION…: lag 1 leaves what lag 0 leaves
same() {
    name=$1 status=$2
    shift 2
    turn=$((turn + 1))
    for seed in ${SEEDS:-$turn}; do
        for lag in 0 1; do
            # shellcheck disable=SC2086
            train "$dir/$name-$lag" $far --training.seq_len 16 --backend.seed "$seed" --metrics.lag $lag "$@"
            [ "$rc" -eq "$status" ] && numbers "$dir/$name-$lag" && states "$dir/$name-$lag" && ends >"$dir/$name-$lag.end"
            ok "${name}_seed_${seed}_lag_$lag"
        done
        for what in txt states end; do
            cmp "$dir/$name-0.$what" "$dir/$name-1.$what" >>"$dir/err" 2>&1
            ok "lag_leaves_the_same_${what}_${name}_seed_$seed"
        done
        rm -rf "$dir/$name-0" "$dir/$name-1"
    done
}

p=--parallelism
same alone 0 --training.steps 7 --checkpoint.interval 3
same all_at_once 0 --training.steps 7 --checkpoint.interval 2 --checkpoint.async_mode disabled --metrics.log_freq 3
same validation 0 --training.steps 5 --validation.enable true --validation.freq 2 --validation.steps 2 --validation.dataloader.path "$dir/text.txt"
same profile 0 --training.steps 5 --profiling.enable true --profiling.freq 3
same micro_batches 0 --training.steps 4 --training.global_batch_size 12 --activation_checkpoint.mode full
same bf16 0 --training.steps 4 --training.mixed_precision_param bfloat16 --debug.capture off
same fsdp_overlap 0 --training.steps 5 --nproc 2 $p.data_parallel_shard_degree 2 --comm.overlap on --training.global_batch_size 8
same tp 0 --training.steps 4 --nproc 2 $p.tensor_parallel_degree 2
same pp 0 --training.steps 4 --nproc 2 $p.pipeline_parallel_degree 2 $p.pipeline_parallel_microbatches 4
same offload 0 --training.steps 4 --training.enable_cpu_offload true
same checked 0 --training.steps 3 --debug.detect_nan true
same poison 0 --training.steps 3 --debug.poison true
# A step whose numbers are not finite: no later line, no checkpoint of it or of a later step.
same nan_saved 3 --training.steps 9 --optimizer.lr 1e30 --optimizer.name sgd --checkpoint.interval 1
same nan 3 --training.steps 9 --optimizer.lr 1e30 --optimizer.name sgd --checkpoint.interval 100
grep -q '^step [0-9]*: .* is \(NaN\|Inf\)' "$dir/nan-1.end"
ok nan_is_named
same nan_of_two 3 --training.steps 9 --optimizer.lr 1e30 --optimizer.name sgd --checkpoint.interval 1 --nproc 2 $p.data_parallel_shard_degree 2
# A fault of the device names the step in which it happened; if two steps are on the queues, both.
for seed in ${SEEDS:-1}; do
    for lag in 0 1; do
        # shellcheck disable=SC2086
        train "$dir/fault-$lag" $far --backend.seed "$seed" --metrics.lag $lag --training.steps 5 --backend.fail fused --backend.fail_at 20 --debug.capture off
        [ "$rc" -eq 1 ] && ends >"$dir/fault-$lag.end"
        ok "fault_seed_${seed}_lag_$lag"
        rm -rf "$dir/fault-$lag"
    done
    step=$(sed -n 's/^step \([0-9]*\), rank 0: work on the device failed .*/\1/p' "$dir/fault-0.end")
    [ -n "$step" ] && grep -q "^step \($step\|$step or the one after it\|$((step - 1)) or the one after it\), rank 0: work on the device failed " "$dir/fault-1.end"
    ok "fault_names_its_step_seed_$seed"
done

# A stop: the step that was put on the queues before the signal is counted, logged and saved.
for seed in ${SEEDS:-1}; do
    # shellcheck disable=SC2086
    start "$dir/stop" $far --backend.seed "$seed" --metrics.lag 1 --training.steps 100000
    until_true has_lines "$dir/stop/metrics.jsonl" 3
    kill -TERM $pid
    wait $pid
    rc=$?
    at=$(newest "$dir/stop/checkpoint")
    [ "$rc" -eq 4 ] && [ -n "$at" ] && [ "$at" = "$(value "$dir/stop/metrics.jsonl" step)" ] &&
        [ "$at" -eq "$(wc -l <"$dir/stop/metrics.jsonl")" ]
    ok "a_stop_saves_the_step_that_was_logged_last_seed_$seed"
    rm -rf "$dir/stop"
done

# The host does not wait for lag on a CPU, and says so.
train "$dir/host" --training.steps 2 --metrics.lag 1
[ "$rc" -eq 0 ] && grep -q 'metrics.lag: backend' "$dir/err"
ok no_effect_on_a_host
exit $failed
