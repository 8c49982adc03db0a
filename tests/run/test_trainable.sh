#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# training.trainable: frozen parameters keep their bits, have no gradients and no states, on every mesh; patterns that match nothing are refused.
. "$(dirname "$0")/lib.sh"
p=--parallelism
l=--training.local_batch_size

states() { # FOLDER: the parameters with optimizer states, sorted
    grep -o '"optimizer\.state\.[^"]*\.exp_avg"' "$1/trainer.json" | sed 's/"optimizer.state.//; s/.exp_avg"//' | sort
}
changed() { # A B: the parameters that differ between two checkpoints
    "$TTRUN" ckpt diff "$1" "$2" 2>&1 | grep -o 'model[a-z0-9_.]*weight\|lm_head.weight' | grep -v '^optimizer' | sort -u
}
refused() { # NAME TEXT OPTION...
    name=$1 text=$2
    shift 2
    train "$dir/refused" "$@"
    [ "$rc" -eq 2 ] && grep -q "training.trainable: $text" "$dir/err" && [ ! -e "$dir/refused/checkpoint" ]
    ok "refused_$name"
}
refused nothing '"layers.7" matches no parameter (names are like model' --training.trainable '["lm_head", "layers.7"]'
refused tag '"tag:nose" matches no parameter' --training.trainable '["tag:nose"]'
refused empty_list 'an empty list would train nothing' --training.trainable '[]'
refused empty_word '"" matches every name' --training.trainable '[""]'
refused bad '"(" is not a regular expression' --training.trainable '["("]'
refused hostile 'matching .* takes too much work on model' --training.trainable '["^(([a-z]+)+)+$|^(.*)*.*!"]'

# ---- one rank: what moves, and what a checkpoint has ----
train "$dir/start" --training.steps 0 --checkpoint.interval 1
train "$dir/all" --checkpoint.interval 1
only='["layers.1.*(q_proj|down_proj)", "tag:norm"]'
train "$dir/some" --training.trainable "$only" --checkpoint.interval 1 --optimizer.weight_decay 0.5
[ "$rc" -eq 0 ] && states "$dir/some/checkpoint/step-10" >"$dir/states"
grep -c . "$dir/states" | grep -qx 7 && grep -q 'layers.1.self_attn.q_proj' "$dir/states" && grep -q 'layers.1.mlp.down_proj' "$dir/states" && grep -q 'layers.0.input_layernorm' "$dir/states"
ok states_of_the_trained_alone
changed "$dir/some/checkpoint/step-1" "$dir/some/checkpoint/step-10" >"$dir/changed"
cmp -s "$dir/changed" "$dir/states"
ok frozen_parameters_keep_their_bits_whatever_the_weight_decay
[ "$("$json" "$dir/all/checkpoint/step-10/trainer.json" model_fingerprint)" = "$("$json" "$dir/some/checkpoint/step-10/trainer.json" model_fingerprint)" ]
ok checkpoints_have_the_same_parameters
norm() { sed -n 's/^{"step":1,.*"grad_norm":\([-0-9.e+]*\),.*/\1/p' "$1/metrics.jsonl"; }
awk -v a="$(norm "$dir/some")" -v b="$(norm "$dir/all")" 'BEGIN {exit !(a > 0 && a < b)}'
ok the_norm_leaves_frozen_parameters_out
train "$dir/each" --training.trainable '"."' && [ "$rc" -eq 0 ] && [ "$(losses "$dir/each/metrics.jsonl")" = "$(losses "$dir/all/metrics.jsonl")" ]
ok a_pattern_that_matches_all_changes_nothing

# ---- resume, and another choice on resume ----
train "$dir/half" --training.trainable "$only" --training.steps 5 --optimizer.weight_decay 0.5 && train "$dir/half" --training.trainable "$only" --optimizer.weight_decay 0.5
[ "$rc" -eq 0 ] && grep -q 'resumed from .*step-5' "$dir/err" && "$TTRUN" ckpt diff "$dir/some/checkpoint/step-10" "$dir/half/checkpoint/step-10" >"$dir/out" 2>&1
ok resumed_bitwise
for same in "--backend.threads 3" "--activation_checkpoint.mode full" "--debug.disable_fusion true" "--debug.detect_nan true" "--debug.poison true"; do
    train "$dir/same" --resume never --training.trainable "$only" --optimizer.weight_decay 0.5 $same
    [ "$rc" -eq 0 ] && "$TTRUN" ckpt diff "$dir/some/checkpoint/step-10" "$dir/same/checkpoint/step-10" >"$dir/out" 2>&1
    ok "same_bits${same%% *}"
done

# ---- every mesh: the curve of one rank; frozen bits as at the start ----
batch="--training.local_batch_size 8 --training.global_batch_size 8 --comm.backend local"
alike() { # RUN OTHER
    for step in 1 5 10; do
        near "$(losses "$1/metrics.jsonl" | sed -n "s/^$step //p")" "$(losses "$2/metrics.jsonl" | sed -n "s/^$step //p")" 5e-5 || return 1
    done
}
# trained on the last stage alone, on the first alone, and what only one end has
while read -r what pattern; do
    train "$dir/$what" $batch --training.trainable "$pattern" --checkpoint.interval 1 && [ "$rc" -eq 0 ]
    ok "${what}_trains"
    states "$dir/$what/checkpoint/step-10" >"$dir/$what.states"
    while read -r mesh options; do
        train "$dir/$what-$mesh" $batch --training.trainable "$pattern" --checkpoint.interval 1 $options
        [ "$rc" -eq 0 ] && alike "$dir/$what" "$dir/$what-$mesh"
        ok "${what}_$mesh"
        changed "$dir/$what-$mesh/checkpoint/step-1" "$dir/$what-$mesh/checkpoint/step-10" >"$dir/changed"
        states "$dir/$what-$mesh/checkpoint/step-10" | cmp -s - "$dir/$what.states" && cmp -s "$dir/changed" "$dir/$what.states"
        ok "${what}_${mesh}_freezes_the_others"
        rm -rf "$dir/$what-$mesh"
    done <<MESHES
fsdp2 $l 2 $p.data_parallel_shard_degree 2
fsdp2_never $l 2 $p.data_parallel_shard_degree 2 $p.fsdp_reshard_after_forward never
hsdp2x2 $l 1 $p.data_parallel_shard_degree 2 $p.data_parallel_replicate_degree 2
tp2 $l 4 $p.tensor_parallel_degree 2
cp2 $l 4 $p.context_parallel_degree 2
pp2 $p.pipeline_parallel_degree 2
pp2_gpipe $l 4 $p.pipeline_parallel_degree 2 $p.pipeline_parallel_schedule GPipe
pp2_zbv $p.pipeline_parallel_degree 2 $p.pipeline_parallel_schedule ZBVZeroBubble
fsdp2_tp2 $l 1 $p.data_parallel_shard_degree 2 $p.tensor_parallel_degree 2
fsdp2_pp2 $l 4 $p.data_parallel_shard_degree 2 $p.pipeline_parallel_degree 2
MESHES
done <<PATTERNS
late ["layers.1.self_attn"]
early ["layers.0.mlp"]
head ["lm_head"]
table ["embed_tokens"]
PATTERNS
exit $failed
