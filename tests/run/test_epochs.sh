#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs by epochs, and data that ends: the steps are known before the first one, an epoch's last step has the samples that are left
# and their divisor on every mesh, and a run goes on in the middle of an epoch.
. "$(dirname "$0")/lib.sh"
head -c 421 "$dir/text.txt" >"$dir/small.txt" # with bos and eos 423 tokens: 13 samples of 32; in batches of 4: 4, 4, 4, 1
sed 's|"text.txt"|"small.txt"|; s|"steps": 10|"num_train_epochs": 2|; s|"checkpoint": {[^}]*}|"checkpoint": { "enable": false }|
     s|"backend"|"comm": { "backend": "local" }, "backend"|' "$dir/job.json" >"$dir/epochs.json"
job=$dir/epochs.json
p=--parallelism
column() { "$json" "$dir/$1/metrics.jsonl" "$2" "$3" 2>/dev/null; } # NAME KEY STEP
lines() { grep -c '^{"step":[0-9]*,"epoch"' "$dir/$1/metrics.jsonl"; }
run() { # NAME OPTION...
    name=$1
    shift
    train "$dir/$name" "$@"
    [ "$rc" -eq 0 ]
}
# losses and norms of two runs, each within 2e-6 of itself; norms of fewer samples are larger
alike() { # A B
    for f in "$dir/$1" "$dir/$2"; do
        sed -n 's/^{"step":\([0-9]*\),.*"loss":\([-0-9.e+]*\),.*"grad_norm":\([-0-9.e+]*\),.*/\1 \2 \3/p' "$f/metrics.jsonl" >"$f.numbers"
    done
    awk 'function far(x, y, d) {d = x - y; return (d < 0 ? -d : d) > 5e-6 * y}
         NR == FNR {loss[$1] = $2; norm[$1] = $3; next}
         {if (!($1 in loss) || far($2, loss[$1]) || far($3, norm[$1])) bad = 1; n++} END {exit bad || n != 8}' "$dir/$1.numbers" "$dir/$2.numbers"
}

run one && [ "$(lines one)" = 8 ] && grep -q '2 epochs of 13 samples, 4 steps each: 8 steps in all; an epoch.s last step has 1 sample' "$dir/err"
ok epochs_give_the_number_of_steps
[ "$(grep -c 'the data begins again, epoch 1' "$dir/err")" = 1 ] && grep -q 'step 5: the data begins again' "$dir/err"
ok a_line_says_that_the_data_begins_again
[ "$(column one tokens 3)" = 128 ] && [ "$(column one tokens 4)" = 32 ] && [ "$(column one n_tokens_seen 8)" = 832 ] &&
    [ "$(column one n_samples_seen 4)" = 13 ] && [ "$(column one n_samples_seen 8)" = 26 ] && [ "$(column one total_epochs 1)" = 2 ] &&
    [ "$(column one epoch 4)" = 0 ] && [ "$(column one epoch 5)" = 1 ] && grep -q '"samples_per_s":[0-9]' "$dir/one/metrics.jsonl"
ok metrics_count_samples_and_epochs
grep -q '^    "steps": 8,' "$dir/one/run.json"
ok the_resolved_job_has_the_steps

# the same samples one by one, on the weights of the start: step 4 is sample 13 alone
run still --optimizer.lr 0 --training.num_train_epochs 1 &&
    run single --optimizer.lr 0 --training.num_train_epochs 1 --training.local_batch_size 1 && [ "$(lines single)" = 13 ] &&
    near "$(column still loss 4)" "$(column single loss 13)" 2e-6 && near "$(column still grad_norm 4)" "$(column single grad_norm 13)" 2e-6 &&
    [ "$(column still loss_max 4)" = "$(column still loss 4)" ]
ok a_step_of_fewer_samples_is_a_smaller_batch
sum=$(awk -F'[:,]' '/"epoch"/ {for (i = 1; i < NF; i++) if ($i == "\"loss\"") s += $(i + 1)} END {printf "%.9f", s / 13}' "$dir/single/metrics.jsonl")
awk -v a="$(column still loss 1)" -v b="$(column still loss 2)" -v c="$(column still loss 3)" -v d="$(column still loss 4)" -v s="$sum" \
    'BEGIN {x = (4 * (a + b + c) + d) / 13 - s; exit !(x < 2e-6 && x > -2e-6)}'
ok an_epoch_has_every_sample_once
while read -r name options; do
    run "$name" $options && alike one "$name"
    ok "epochs_$name"
done <<MESHES
fsdp2 --training.local_batch_size 2 $p.data_parallel_shard_degree 2
fsdp4 --training.local_batch_size 1 $p.data_parallel_shard_degree 4
tp2 $p.tensor_parallel_degree 2
cp2 $p.context_parallel_degree 2
pp2 $p.pipeline_parallel_degree 2 $p.pipeline_parallel_microbatches 4
micro --training.local_batch_size 1 --training.global_batch_size 4
fsdp2_micro --training.local_batch_size 1 --training.global_batch_size 4 $p.data_parallel_shard_degree 2
MESHES

# parts of epochs, batches larger than the data, and the learning rate over the whole run
run part --training.num_train_epochs 1.5 && [ "$(lines part)" = 6 ] && run tenth --training.num_train_epochs 0.1 && [ "$(lines tenth)" = 1 ]
ok parts_of_epochs
run large --training.local_batch_size 64 --training.num_train_epochs 3 && [ "$(lines large)" = 3 ] && [ "$(column large n_samples_seen 3)" = 39 ] &&
    [ "$(column large tokens 1)" = 416 ]
ok a_batch_larger_than_the_data
run falling --lr_scheduler.name wsd --lr_scheduler.warmup_steps 2 && run steps --lr_scheduler.name wsd --lr_scheduler.warmup_steps 2 \
    --training.num_train_epochs null --training.steps 8 && for s in 1 2 3 4 5 6 7 8; do [ "$(column falling lr $s)" = "$(column steps lr $s)" ] || break; done &&
    [ "$s" = 8 ] && [ "$(column falling lr 8)" = "$(column steps lr 8)" ]
ok the_learning_rate_falls_over_the_epochs
run both --training.steps 3 && [ "$(lines both)" = 8 ] && grep -q 'training.steps is not used: training.num_train_epochs is set' "$dir/err"
ok epochs_win_over_steps

# data that ends
run ends --training.num_train_epochs null --training.steps 100 --dataloader.infinite false && [ "$(lines ends)" = 4 ] && alike_first() {
    [ "$(losses "$dir/ends/metrics.jsonl")" = "$(losses "$dir/one/metrics.jsonl" | head -n 4)" ]
} && alike_first
ok data_that_ends
run early --training.num_train_epochs null --training.steps 3 --dataloader.repeat false && [ "$(lines early)" = 3 ]
ok steps_end_before_the_data
run open --training.num_train_epochs null --training.steps null --dataloader.infinite false && [ "$(lines open)" = 4 ]
ok steps_null_is_the_length_of_the_data
run mixed --training.num_train_epochs 1 --dataloader.path null --dataloader.mixture "[{\"path\": \"$dir/small.txt\"}, {\"path\": \"$dir/small.txt\", \"weight\": 2}]"
[ "$rc" -eq 2 ]
sed 's|"path": \[[^]]*\]|"mixture": [{"path": "small.txt"}, {"path": "small.txt", "weight": 2}]|' "$job" >"$dir/mixed.json"
job=$dir/mixed.json
run mixed --training.num_train_epochs 1 && [ "$(lines mixed)" = 7 ] && [ "$(column mixed n_samples_seen 7)" = 26 ]
ok epochs_of_a_mixture
job=$dir/epochs.json
refused() { # NAME MESSAGE OPTION...
    name=$1 message=$2
    shift 2
    train "$dir/refused" "$@"
    [ "$rc" -eq 2 ] && grep -q "$message" "$dir/err" && one_line "$dir/err"
    ok "$name"
}
refused steps_null_alone 'training.steps: null leaves the length open' --training.num_train_epochs null --training.steps null
refused epochs_of_data_that_ends 'training.num_train_epochs: 2 epochs need data that begins again' --dataloader.infinite false
refused validation_without_end 'validation.dataloader.infinite: a validation takes each sample once' --validation.enable true \
    --validation.dataloader.path "$dir/text.txt" --validation.dataloader.infinite true

# a run goes on in the middle of an epoch
run whole --checkpoint.enable true --training.num_train_epochs 3 && run cut --checkpoint.enable true --training.num_train_epochs 1.5 &&
    [ "$(newest "$dir/cut/checkpoint")" = 6 ] && run cut --checkpoint.enable true --training.num_train_epochs 3 &&
    [ "$(losses "$dir/cut/metrics.jsonl")" = "$(losses "$dir/whole/metrics.jsonl")" ] && [ "$(lines cut)" = 12 ] &&
    [ "$(hash_of "$dir/cut/checkpoint/step-12")" = "$(hash_of "$dir/whole/checkpoint/step-12")" ]
ok goes_on_in_the_middle_of_an_epoch
# ... with batches of another size: 8 of 13 samples are done, 5 are left
run other --checkpoint.enable true --training.num_train_epochs 0.5 && run other --checkpoint.enable true --training.num_train_epochs 1 --training.local_batch_size 3 &&
    [ "$(lines other)" = 4 ] && [ "$(column other n_samples_seen 4)" = 13 ] && [ "$(column other tokens 4)" = 64 ]
ok goes_on_with_batches_of_another_size
train "$dir/cut" --checkpoint.enable true --training.num_train_epochs 3
[ "$rc" -eq 0 ] && grep -q 'nothing to do: step 12 of 12 is done' "$dir/err"
ok a_finished_run_has_nothing_to_do

# ---- saved at the end of an epoch ----
steps_of() { (cd "$dir/$1/checkpoint" && echo step-*); }
saves="--checkpoint.enable true --checkpoint.keep_latest_k 0 --checkpoint.interval_type epochs"
run each_epoch $saves --checkpoint.interval 1 --training.num_train_epochs 3 && [ "$(steps_of each_epoch)" = "step-12 step-4 step-8" ]
ok saves_after_each_epoch
run second_epoch $saves --checkpoint.interval 2 --training.num_train_epochs 3 && [ "$(steps_of second_epoch)" = "step-12 step-8" ]
ok saves_after_every_second_epoch_and_at_the_end
# endless data: 13 samples by 4 a step; samples 13, 26, 39 are in the steps 4, 7, 10
run endless $saves --checkpoint.interval 1 --training.num_train_epochs null --training.steps 11 --nproc 2 --training.local_batch_size 2 &&
    [ "$(steps_of endless)" = "step-10 step-11 step-4 step-7" ]
ok saves_with_endless_data_where_an_epoch_ends
cut='data end after step 4, before training.steps 11 (dataloader.infinite is false)'
run short --training.num_train_epochs null --dataloader.infinite false --training.steps 11 && [ "$(lines short)" = 4 ] && grep -q "W data. the $cut" "$dir/err" &&
    run fits --training.num_train_epochs null --dataloader.infinite false --training.steps 4 && ! grep -q 'data end' "$dir/err"
ok data_that_end_before_the_steps_are_told
# the warm-up of a run by epochs is known once its samples are counted
rises() { # NAME N: the warning says N of 8 steps; 0: there is none
    if [ "$2" -eq 0 ]; then ! grep -q 'the learning rate rises during' "$dir/err"; else grep -q "W job. the learning rate rises during $2 of the 8 steps of the run: set a lower lr_scheduler.warmup_steps" "$dir/err"; fi
}
w=--lr_scheduler.warmup
run rises1 ${w}_steps 3 && rises rises1 0 && run rises2 ${w}_steps 4 && rises rises2 4 && run rises3 ${w}_steps 200 && rises rises3 8 && run rises4 ${w}_ratio 0.5 && rises rises4 4 && run rises5 ${w}_ratio 0.4 && rises rises5 4 &&
    run rises6 ${w}_ratio 0.375 && rises rises6 0 && grep -q '8 steps, 3 of them warm-up' "$dir/err"
ok a_warm_up_of_half_an_epoch_run_is_warned_of
# weights that are trained already: the default is a part of the run, not the 200 steps of pre-training
sed -i 's/"lr_scheduler": {[^}]*},*//' "$job"
run begun $saves --checkpoint.interval 2 && rises begun 8 && step=$dir/begun/checkpoint/step-8 &&
    run tuned --checkpoint.initial_load_path "$step" --training.num_train_epochs 25 && grep -q '100 steps, 3 of them warm-up' "$dir/err" && rises tuned 0 &&
    [ "$(value "$dir/tuned/run.json" job.lr_scheduler.warmup_ratio)" = 0.03 ] &&
    run said --checkpoint.initial_load_path "$step" --training.num_train_epochs 2 ${w}_steps 5 && rises said 5 && run constant --checkpoint.initial_load_path "$step" --lr_scheduler.name constant && ! grep -q 'of them warm-up' "$dir/err" &&
    run tokens --checkpoint.initial_load_path "$step" ${w}_tokens 256 && grep -q '8 steps, 2 of them warm-up' "$dir/err"
ok fine_tuning_has_a_short_warm_up
# a loader that has a sample more for the rank that opens it first
(cd "$dir" && "$TTRUN" plugins new dataloader uneven >/dev/null &&
    sed -i 's|#include <stdlib.h>|&\n#include <fcntl.h>|; s|l->samples = .*|l->samples = ((const config *)cfg)->samples + (open("'"$dir"'/first", O_CREAT \| O_EXCL, 0600) >= 0);|' uneven/uneven.c &&
    cc -std=c11 -w -O1 -fPIC -shared -fvisibility=hidden "-I$SRC/include" uneven/uneven.c "-L$BUILD" -lttrun -o uneven/uneven.so)
sed 's|"dataloader": {[^}]*}|"dataloader": { "name": "uneven", "samples": 13 }|' "$job" >"$dir/uneven.json"
job=$dir/uneven.json
train "$dir/uneven" --plugin-dir "$dir/uneven" --comm.backend shm --nproc 2 --training.local_batch_size 2
[ "$rc" -eq 2 ] && grep -q "the ranks' dataloaders have [0-9]* to [0-9]* samples: give all ranks the same files" "$dir/err"
ok ranks_with_other_numbers_of_samples_are_refused
exit $failed
