#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Numbers that go wrong stop the run with status 3, and leave no checkpoint of the bad state; numbers that must agree do.
. "$(dirname "$0")/lib.sh"

# ---- NaN and Inf ----
train "$dir/nan" --optimizer.lr 1e30 --checkpoint.interval 1
[ "$rc" -eq 3 ] && one_line "$dir/err" && grep -q '^ttrun: step [0-9]*: .* is \(NaN\|Inf\);.*lower optimizer.lr' "$dir/err"
ok nan_stops_with_3_and_says_what_to_do
bad=$(sed -n 's/^ttrun: step \([0-9]*\):.*/\1/p' "$dir/err")
last=$(newest "$dir/nan/checkpoint")
[ "$last" = $((bad - 1)) ] && "$TTRUN" ckpt verify "$dir/nan/checkpoint/step-$last" >"$dir/out"
ok nan_leaves_the_checkpoint_before_it
[ "$(wc -l <"$dir/nan/metrics.jsonl")" -eq "$last" ]
ok nan_step_is_not_in_the_metrics
train "$dir/nan2" --optimizer.lr 1e30 --comm.backend local --parallelism.data_parallel_shard_degree 2 --checkpoint.interval 1
[ "$rc" -eq 3 ] && one_line "$dir/err" && "$TTRUN" ckpt verify "$dir/nan2/checkpoint/step-$(newest "$dir/nan2/checkpoint")" >"$dir/out"
ok nan_stops_two_ranks
train "$dir/which" --optimizer.lr 1e30 --debug.detect_nan true
[ "$rc" -eq 3 ] && one_line "$dir/err" &&
    grep -q '^ttrun: debug.detect_nan: step [0-9]*, rank 0, .*: [a-z_]* in "[^"][^"]*" wrote \(NaN\|Inf\) at element [0-9]* of output [0-9]* (value %[0-9]*)$' "$dir/err"
ok detect_nan_names_step_rank_op_and_value
# The first stage alone sees it, and may not wait for the other, which waits for the stage: not to end a save either.
train "$dir/which2" --optimizer.param_groups '[{"match":"norm","lr":1e30}]' --debug.detect_nan true --comm.backend local --parallelism.pipeline_parallel_degree 2
[ "$rc" -eq 3 ] && one_line "$dir/err" && grep -q 'debug.detect_nan: step [0-9]*, rank 0, .* in "model.layers.0[^"]*" wrote .*(value %[0-9]*)$' "$dir/err"
ok detect_nan_on_one_rank_of_two_ends_both

# ---- bitwise ----
bits() { # NAME OPTION...: the losses and weights of the plain run
    name=$1
    shift
    train "$dir/$name" "$@"
    [ "$rc" -eq 0 ] && losses "$dir/$name/metrics.jsonl" | cmp -s - "$dir/plain.losses" &&
        [ "$(hash_of "$dir/$name/checkpoint/step-10")" = "$(hash_of "$dir/plain/checkpoint/step-10")" ]
    ok "bitwise_$name"
}
train "$dir/plain"
losses "$dir/plain/metrics.jsonl" >"$dir/plain.losses"
bits again
bits two_threads --backend.threads 2
bits four_threads --backend.threads 4
bits unfused --debug.disable_fusion true
bits detect_nan --debug.detect_nan true
bits poison --debug.poison true
bits recompute_full --activation_checkpoint.mode full
bits recompute_selective --activation_checkpoint.mode selective
same_as() { # NAME TOLERANCE OPTION...: losses near those of the plain run
    name=$1 tolerance=$2
    shift 2
    train "$dir/$name" "$@"
    losses "$dir/$name/metrics.jsonl" | paste -d ' ' - "$dir/plain.losses" |
        awk -v t="$tolerance" '{d = $2 - $4; n += (d < 0 ? -d : d) <= t * $4 && $1 == $3} END {exit n != 10}'
    ok "same_as_one_rank_$name"
}
same_as accumulation 1e-4 --training.local_batch_size 1 --training.global_batch_size 4
same_as ddp 1e-4 --training.local_batch_size 2 --parallelism.data_parallel_replicate_degree 2 --comm.backend local
same_as fsdp 1e-4 --training.local_batch_size 2 --parallelism.data_parallel_shard_degree 2 --comm.backend local
same_as tp 1e-4 --parallelism.tensor_parallel_degree 2 --comm.backend local
same_as pp 1e-4 --parallelism.pipeline_parallel_degree 2 --comm.backend local

# One line of as many tokens as the head has rows: the loop over token chunks must not cut the head.
square() { train "$dir/$1" --model.args.vocab_size 1024 --training.seq_len 1024 --training.steps 1 --training.global_batch_size 2 --training.local_batch_size "$2"; }
square one_line 1
square two_lines 2
[ "$rc" -eq 0 ] && near "$(value "$dir/one_line/metrics.jsonl" loss)" "$(value "$dir/two_lines/metrics.jsonl" loss)" 1e-4
ok a_sequence_as_long_as_the_vocabulary_has_the_same_loss

# ---- learning rates, clipping ----
train "$dir/wsd" --lr_scheduler.name wsd --lr_scheduler.warmup_steps 2 --lr_scheduler.decay_ratio 0.5 --lr_scheduler.min_lr_factor 0.1
lrs=$(sed -n 's/.*"lr":\([^,]*\),.*/\1/p' "$dir/wsd/metrics.jsonl")
# warm-up (s+1)/(2+1), constant, then from step 6 linearly to a tenth
echo "$lrs" | awk '{lr[NR] = $1} function near(a, b) {return (a > b ? a - b : b - a) < 1e-9}
    END {ok = NR == 10 && lr[1] < lr[2] && lr[2] < 0.01 + 1e-12 && near(lr[3], 0.01) && near(lr[5], 0.01)
         for (i = 7; i <= 10; i++) ok = ok && lr[i] < lr[i - 1]
         step = lr[7] - lr[8]
         for (i = 9; i <= 10; i++) ok = ok && near(lr[i - 1] - lr[i], step)
         exit !ok}'
ok lr_warms_up_stays_and_decays
train "$dir/still" --optimizer.lr 0 --dataloader.shuffle false --training.local_batch_size 960 --training.steps 2 \
    --validation.enable true --validation.freq 1 --validation.dataloader.path "$dir/text.txt"
train_loss=$(losses "$dir/still/metrics.jsonl" | sed -n '1s/.* //p')
valid_loss=$(sed -n 's/.*"validation":{"loss":\([^,]*\),.*/\1/p' "$dir/still/metrics.jsonl" | head -n 1)
[ "$rc" -eq 0 ] && near "$train_loss" "$valid_loss" 1e-4 &&
    [ "$(grep -c '"validation"' "$dir/still/metrics.jsonl")" -eq 2 ] &&
    [ "$(sed -n 's/.*"validation":{"loss":[^,]*,"tokens":\([0-9]*\)}.*/\1/p' "$dir/still/metrics.jsonl" | head -n 1)" = 30720 ]
ok validation_on_the_training_data_without_updates_is_the_training_loss
grep '"validation"' "$dir/still/metrics.jsonl" | grep -q '^{"step":1,[^{]*"validation":{' && ! grep '"validation"' "$dir/still/metrics.jsonl" | grep -q '^[^{]*{[^{]*"loss"'
ok validation_lines_have_no_loss_of_their_own
norm=$(value "$dir/plain/metrics.jsonl" grad_norm 10)
train "$dir/clip" --training.max_norm 0
near "$(value "$dir/clip/metrics.jsonl" grad_norm 1)" "$(value "$dir/plain/metrics.jsonl" grad_norm 1)" 1e-6 && [ -n "$norm" ]
ok grad_norm_is_before_clipping
exit $failed
