#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Preference pairs that share a sample (packing), beside the same pairs alone: losses, norms and rewards of ten steps on each mesh, each loss_type,
# pairs of any length, the end of an epoch, resumption, validation.
. "$(dirname "$0")/lib.sh"
sed -i 's/"dataloader": {[^}]*}/"dataloader": { "name": "chat", "path": ["pairs.jsonl"], "template": "chatml", "pairs": true, "packing": "best_fit", "shuffle": false }, "tokenizer": { "name": "byte" }, "loss": { "name": "dpo" }/; s/"local_batch_size": 4/"local_batch_size": 2/; s/"seq_len": 32/"seq_len": 544/; s/"lr": 0.01/"lr": 0.001/' "$job"
rows() { ttrun data build "$job" --json --quiet "$@" 2>"$dir/err" | sed 's/.*"samples":\([0-9]*\).*/\1/'; }
number() { value "$1/metrics.jsonl" "$2" "$3"; }
# equal FOLDER WANT TOLERANCE STEP...: all numbers that a step has of its pairs; but the margins of step 1 are roundings, whose signs no two orders of summation share
equal() {
    folder=$1 want=$2 tolerance=$3
    shift 3
    for step; do
        for key in loss grad_norm rewards.chosen rewards.rejected rewards.accuracy rewards.margin; do
            [ "$step.$key" != 1.rewards.accuracy ] || continue
            near "$(number "$folder" $key "$step")" "$(number "$want" $key "$step")" "$tolerance" || { echo "step $step: $key $(number "$folder" $key "$step"), alone $(number "$want" $key "$step")" >>"$dir/err" && return 1; }
        done
    done
}

# ---- three pairs a sample: each takes more than a quarter of it, and at most a third ----
awk 'BEGIN { for (i = 10; i < 70; i++) { a = i " yes it is " i * i % 7; b = i " no " i % 3; if (i % 3 == 0) a = a " and more"; if (i % 4 == 0) b = b " " i * 7 % 13 " or so"
    printf "{\"prompt\":\"is %d\",\"chosen\":\"%s\",\"rejected\":\"%s\"}\n", i, a, b } }' </dev/null >"$dir/pairs.jsonl"
ttrun data show "$job" --n 20 >"$dir/shown" 2>"$dir/err"
sed -n 's/^  learned //p' "$dir/shown" | grep -o '"[0-9]* yes' | tr -dc '0-9\n' >"$dir/order"
[ "$(rows)" = 20 ] && [ "$(wc -l <"$dir/order")" = 60 ] && [ "$(sort -u "$dir/order" | wc -l)" = 60 ] && ! sort -c "$dir/order" 2>"$dir/null"
ok sixty_pairs_in_twenty_samples
# the first sample: segments, pairs, weights, signs; positions begin anew with each document
n=1
input() { sed -n "s/^  $1 *//p" "$dir/first"; }
ttrun data show "$job" --n 1 >"$dir/first" 2>"$dir/err"
{ input seg && input pair_index && input pair_weight && input pair_sign && input pos && input labels; } | awk '{ for (i = 1; i <= NF; i++) x[NR, i] = $i; n = NF }
    END { for (i = 1; i <= n; i++) {
            seg = x[1, i]; padding = seg == 6
            if (!padding && x[2, i] != int(seg / 2)) bad = 1
            if (x[5, i] != (i > 1 && seg == x[1, i - 1] ? x[5, i - 1] + 1 : 0)) bad = 1
            if (x[4, i] != (padding || x[6, i] == "-" || x[6, i] < 0 ? 0 : seg % 2 ? -1 : 1)) bad = 1
            weights[x[2, i]] += x[3, i]; all += x[3, i]; if (x[3, i] && !x[4, i]) bad = 1
        }
        exit bad || NR != 6 || n != 544 || all != 3 || weights[0] != 1 || weights[1] != 1 || weights[2] != 1 }'
ok a_sample_of_three_pairs
mkdir "$dir/alone" && while read -r i; do sed -n "$((i - 9))p" "$dir/pairs.jsonl"; done <"$dir/order" >"$dir/alone/pairs.jsonl"
alone="--dataloader.packing none --dataloader.path $dir/alone/pairs.jsonl"
# shellcheck disable=SC2086
train "$dir/want" $alone --training.local_batch_size 6 && [ "$rc" -eq 0 ] && awk -v a="$(number "$dir/want" loss 1)" -v b="$(number "$dir/want" loss 10)" 'BEGIN { exit !(b < a - 0.02) }'
ok alone
same() { # NAME OPTION...
    name=$1
    shift
    train "$dir/$name" --comm.backend local "$@" && [ "$rc" -eq 0 ] && equal "$dir/$name" "$dir/want" 5e-6 1 2 5 10
    ok "packed_as_alone_$name"
}
same one_rank
same fsdp --parallelism.data_parallel_shard_degree 2 --training.local_batch_size 1
same ddp --parallelism.data_parallel_replicate_degree 2 --parallelism.data_parallel_shard_degree 1 --training.local_batch_size 1
# one sample a micro-batch, so that its tokens are cut
same tp --parallelism.tensor_parallel_degree 2 --training.local_batch_size 1 --training.global_batch_size 2
same cp --parallelism.context_parallel_degree 2 --training.local_batch_size 1 --training.global_batch_size 2
ttrun plan "$job" --parallelism.context_parallel_degree 2 --training.local_batch_size 1 >"$dir/out" 2>"$dir/err" && grep -q '^ *(headtail; ' "$dir/out"
ok balanced_over_context_ranks
same pp --parallelism.pipeline_parallel_degree 2
same accumulation --training.local_batch_size 1 --training.global_batch_size 2
same pp_tp_accumulation --parallelism.pipeline_parallel_degree 2 --parallelism.tensor_parallel_degree 2 --training.local_batch_size 1 --training.global_batch_size 2
same fsdp_cp --parallelism.data_parallel_shard_degree 2 --parallelism.context_parallel_degree 2 --training.local_batch_size 1
train "$dir/single" --training.local_batch_size 1 --training.steps 2 && [ "$rc" -eq 0 ] && near "$(number "$dir/single" loss_max 2)" "$(number "$dir/single" loss 2)" 1e-7
ok the_largest_loss_is_a_mean_over_the_pairs_of_a_sample

# ---- it goes on to the bit ----
train "$dir/again" --training.steps 5 && [ "$rc" -eq 0 ] && train "$dir/again" && [ "$rc" -eq 0 ] && grep -q 'reference of the loss dpo: 20 samples (training) from ' "$dir/err" &&
    [ "$(hash_of "$dir/again/checkpoint/step-10")" = "$(hash_of "$dir/one_rank/checkpoint/step-10")" ] && [ "$(number "$dir/again" rewards.margin 10)" = "$(number "$dir/one_rank" rewards.margin 10)" ]
ok resumed_to_the_bit
# shellcheck disable=SC2086
train "$dir/again" --resume never $alone --training.steps 1 && [ "$rc" -eq 0 ] && grep -q '60 samples (training) computed' "$dir/err"
ok unpacked_samples_have_another_reference

# ---- pairs of any length, also longer than a sample; all of them in one step ----
awk 'BEGIN { for (i = 0; i < 41; i++) { a = "yes"; b = "no"; for (k = 0; k < i * i % 37; k++) a = a " " k * i % 11; for (k = 0; k < i * 5 % 23; k++) b = b " " k
    if (i == 7) for (k = 0; k < 150; k++) b = b " long"
    printf "{\"prompt\":\"is %d\",\"chosen\":\"%s\",\"rejected\":\"%s\"}\n", i, a, b } }' </dev/null >"$dir/pairs.jsonl"
sed 's/"lr": 0.001/"lr": 0.001/; s/"seq_len": 544/"seq_len": 611/' "$job" >"$dir/odd.json"
job=$dir/odd.json
packed=$(rows)
all() { # LOSS_TYPE OPTION...: of two steps over all pairs, the second with weights other than the reference's
    type=$1
    shift
    train "$dir/alone-$type" --loss.loss_type "$type" --dataloader.packing none --training.steps 2 --training.local_batch_size 41 "$@" && [ "$rc" -eq 0 ] &&
        train "$dir/packed-$type" --loss.loss_type "$type" --training.steps 2 --training.local_batch_size "$packed" "$@" && [ "$rc" -eq 0 ] && equal "$dir/packed-$type" "$dir/alone-$type" 2e-5 1 2
    ok "all_pairs_in_a_step_$type"
}
[ "$packed" -ge 5 ] && [ "$packed" -le 20 ] && [ "$(rows --dataloader.packing none)" = 41 ]
ok forty_one_pairs_of_any_length
all sigmoid
all sigmoid_norm --loss.beta 0.5 --loss.label_smoothing 0.2
! is_long || all hinge --loss.beta 0.3
all ipo
! is_long || all robust --loss.label_smoothing 0.2
# a batch that its epoch does not fill: samples without pairs are added
one_epoch="--training.steps null --training.num_train_epochs 1 --dataloader.infinite false"
# shellcheck disable=SC2086
train "$dir/epoch" $one_epoch --training.local_batch_size $((packed / 2 + 3)) --parallelism.data_parallel_shard_degree 2 --comm.backend local && [ "$rc" -eq 0 ] && equal "$dir/epoch" "$dir/alone-sigmoid" 2e-5 1
ok the_end_of_an_epoch
train "$dir/dropped" --dataloader.truncation drop --training.steps 1 && [ "$rc" -eq 0 ] && ttrun data build "$job" --dataloader.truncation drop >"$dir/out" 2>&1 && grep -q '1 were cut, 1 left out' "$dir/out" && [ "$(rows --dataloader.truncation drop --dataloader.packing none)" = 40 ]
ok a_pair_longer_than_a_sample
train "$dir/refused" --dataloader.truncation error
[ "$rc" -eq 2 ] && grep -q 'pairs.jsonl:8: .* tokens, more than training.seq_len leaves to this half of a pair' "$dir/err"
ok and_as_an_error

# ---- validation ----
validated() { sed -n 's/.*validate step:  2  loss:  \([0-9.]*\).*/\1/p' "$dir/out" "$dir/err"; }
for packing in none best_fit; do
    cat >"$dir/sets.json" <<JOB
{ "extends": "odd.json", "validation": { "enable": true, "freq": 2, "local_batch_size": 3, "dataloader": { "name": "chat", "path": ["pairs.jsonl"], "template": "chatml", "pairs": true, "packing": "$packing" } } }
JOB
    job=$dir/sets.json
    train "$dir/sets-$packing" --training.steps 2 && [ "$rc" -eq 0 ] && validated >"$dir/validated-$packing"
done
[ -s "$dir/validated-none" ] && near "$(cat "$dir/validated-none")" "$(cat "$dir/validated-best_fit")" 2e-4 && ! near "$(cat "$dir/validated-none")" 0.6931 1e-4
ok validation
exit $failed
