#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# float8's all-gather: with it a weight's gather carries 1 byte per number and the maxima of all weights are one reduction
# per step, and no bit of a run differs from that without it, on any mesh. Delayed scaling: state that resumes, and one
# reduction per step.
. "$(dirname "$0")/lib.sh"

shard="--parallelism.data_parallel_shard_degree 2"
accumulate="--training.global_batch_size 16" # two micro-batches
keep="--parallelism.fsdp_reshard_after_forward never"
# recipe NAME GATHER: the list of converters
recipe() {
    case $1 in
    delayed) more='"recipe": "tensorwise", "scaling": "delayed", "amax_history_len": 3' ;;
    *) more="\"recipe\": \"$1\"" ;;
    esac
    echo "[{\"name\": \"float8\", $more, \"enable_fsdp_float8_all_gather\": $2}]"
}
run() { # FOLDER RECIPE GATHER OPTION...
    folder=$1 converters=$(recipe "$2" "$3")
    shift 3
    train "$dir/$folder" --converters "$converters" --checkpoint.enable false --training.steps 4 --comm.backend local "$@"
}
numbers() { sed -n 's/^{"step":\([0-9]*\),.*"loss":\([-0-9.e+]*\),.*"grad_norm":\([-0-9.e+]*\).*/\1 \2 \3/p' "$1"; }
same() { # MESH RECIPE OPTION...
    mesh=$1 name=$2
    shift 2
    run "${name}_${mesh}_off" "$name" false "$@"
    numbers "$dir/${name}_${mesh}_off/metrics.jsonl" >"$dir/off"
    run "${name}_${mesh}_on" "$name" true "$@"
    [ "$rc" -eq 0 ] && [ "$(wc -l <"$dir/off")" -eq 4 ] && numbers "$dir/${name}_${mesh}_on/metrics.jsonl" | cmp -s - "$dir/off"
    ok "${name}_same_bits_$mesh"
}
hsdp="--parallelism.data_parallel_replicate_degree 2"
tp="--parallelism.tensor_parallel_degree 2"
pp="--parallelism.pipeline_parallel_degree 2"
bf16="--training.mixed_precision_param bfloat16"
# shellcheck disable=SC2086 # options of several words
for name in tensorwise rowwise delayed; do
    same fsdp $name $shard
    same fsdp_tp $name $shard $tp
    same accumulate $name $shard $accumulate
    same accumulate_keep $name $shard $accumulate $keep
    same bf16_keep $name $shard $accumulate $keep $bf16
done
# shellcheck disable=SC2086
{
    same hsdp tensorwise $shard $hsdp
    same full tensorwise $shard --activation_checkpoint.mode full
    same selective_bf16 rowwise $shard $bf16 --activation_checkpoint.mode selective
    same zbv tensorwise $shard $pp --parallelism.pipeline_parallel_schedule zbv
    same hp rowwise_with_gw_hp $shard
}

# ---- what the plan says ----
# plan RECIPE GATHER OPTION...: writes the communication to $dir/net as "cause|collective|calls|bytes"
plan() {
    converters=$(recipe "$1" "$2")
    shift 2
    ttrun plan "$job" --json --converters "$converters" "$@" >"$dir/plan.json" 2>"$dir/err"
    network
}
network() {
    sed 's/.*"communication":\[//; s/},{/}\n{/g' "$dir/plan.json" |
        sed -n 's/.*"collective":"\([^"]*\)","cause":"\([^"]*\)","calls":\([0-9]*\),"bytes_sent":\([0-9]*\).*/\2|\1|\3|\4/p' >"$dir/net"
}
sent() { awk -F '|' -v c="$1" -v k="$2" '$1 == c && index($2, k) {n += $'"$3"'} END {print n + 0}' "$dir/net"; }
# Only linear weights in blocks are gathered again: 4 bytes per number become 1, and the norms' stay.
again="parameters, again for the backward"
# shellcheck disable=SC2086
plan tensorwise false $shard
before=$(sent "$again" all_gather 4) forward=$(sent parameters all_gather 4) maxima=$(sent "maxima of scales" all_reduce 3)
# shellcheck disable=SC2086
plan tensorwise true $shard
after=$(sent "$again" all_gather 4)
echo "# gathered again: $before bytes, then $after; forward $forward, then $(sent parameters all_gather 4)"
# per layer 32·32·2 + 16·32·2 + 48·32·3 numbers of weights, of which a rank lacks half, and two norms of 32
weights=$((2 * (32 * 32 * 2 + 16 * 32 * 2 + 48 * 32 * 3) / 2))
[ "$maxima" -eq 0 ] && [ "$before" -ge $((4 * weights)) ] && [ $((before - after)) -eq $((3 * weights)) ]
ok plan_gathers_one_byte_per_number
[ "$(sent "maxima of scales" all_reduce 3)" -eq 1 ]
ok one_reduction_of_maxima
for way in default never; do
    # shellcheck disable=SC2086
    plan tensorwise true $shard $accumulate --parallelism.fsdp_reshard_after_forward $way
    [ "$(sent "maxima of scales" all_reduce 3)" -eq 1 ]
    ok one_reduction_per_step_of_two_micro_batches_$way
done
# Gradients of products with scales per tensor and per row are reduced to their shards, not to the whole.
# shellcheck disable=SC2086
for recipe in tensorwise rowwise; do
    plan $recipe true $shard $accumulate --parallelism.fsdp_reshard_after_forward never
    [ "$(sent gradients reduce_scatter 3)$(sent "gradients, once per step" reduce_scatter 3)" -gt 0 ] &&
        [ "$(sent "gradients of activations" all_reduce 4)" -lt $((4 * weights)) ]
    ok gradients_are_reduced_to_shards_$recipe
done
# With tensor parallelism the input of q, k and v is rounded once, and gathered as float8: 1 byte instead of 4
# (that of the head once more for its gradient, in its loop over token chunks).
# shellcheck disable=SC2086
ttrun plan "$job" --json $tp >"$dir/plan.json" 2>"$dir/err" && network
high=$(sent activations all_gather 4)
# shellcheck disable=SC2086
plan tensorwise false $tp
echo "# activations gathered with TP 2: $high bytes, then $(sent activations all_gather 4)"
[ "$high" -gt 0 ] && [ "$(sent activations all_gather 4)" -le $((high / 3)) ]
ok activations_are_gathered_as_float8
# shellcheck disable=SC2086
plan delayed false $shard $accumulate
[ "$(sent "maxima of scales" all_reduce 3)" -eq 1 ] && [ "$(sent activations all_reduce 3)" -eq 0 ] &&
    [ "$(sent "gradients of activations" all_reduce 3)" -eq 0 ]
ok delayed_scaling_reduces_once_per_step

# ---- delayed scaling ----
delayed() { # FOLDER STEPS OPTION...
    folder=$1 steps=$2
    shift 2
    train "$dir/$folder" --converters "$(recipe delayed true)" --training.steps "$steps" --checkpoint.interval 3 --comm.backend local "$@"
}
# shellcheck disable=SC2086
delayed whole 6 $shard
losses "$dir/whole/metrics.jsonl" >"$dir/whole.losses"
cp -r "$dir/whole" "$dir/cut"
rm -rf "$dir/cut/checkpoint/step-6"
# shellcheck disable=SC2086
delayed cut 6 $shard
[ "$rc" -eq 0 ] && losses "$dir/cut/metrics.jsonl" | tail -n 3 >"$dir/cut.losses" && tail -n 3 "$dir/whole.losses" | cmp -s - "$dir/cut.losses"
ok delayed_state_resumes
cat "$dir"/whole/checkpoint/step-6/*.safetensors | grep -aq 'converters.float8.model.layers.0.mlp.up_proj.weight.grad_input.amax_b'
ok delayed_state_is_in_checkpoints
# largest_of OPERAND: of a state of three maxima and a scale, the largest of them times the scale
largest_of() {
    name=converters.float8.model.layers.0.mlp.up_proj.weight.$1 file=$(grep -al "$1" "$dir"/whole/checkpoint/step-6/*.safetensors | head -n 1)
    n=$(od -An -t u8 -N 8 "$file" | tr -d ' ')
    at=$(head -c $((8 + n)) "$file" | tail -c "$n" | grep -o "\"$name\":{[^}]*" | sed 's/.*"data_offsets":\[\([0-9]*\),.*/\1/')
    od -An -t f4 -j $((8 + n + at)) -N 16 "$file" | awk '{m = $1; m = $2 > m ? $2 : m; m = $3 > m ? $3 : m; print m * $4}'
}
near "$(largest_of forward.amax_a)" 448 0.01 && near "$(largest_of forward.amax_b)" 448 0.01 && near "$(largest_of grad_input.amax_a)" 57344 1
ok delayed_scales_are_those_of_the_formats
run other delayed false
losses "$dir/other/metrics.jsonl" | sed -n 1p >"$dir/one"
run dynamic tensorwise false
! losses "$dir/dynamic/metrics.jsonl" | sed -n 1p | cmp -s - "$dir/one"
ok delayed_differs_from_dynamic
train "$dir/refused" --converters '[{"name": "float8", "recipe": "rowwise", "scaling": "delayed"}]'
[ "$rc" -eq 2 ] && one_line "$dir/err" && grep -q 'needs the recipe tensorwise' "$dir/err"
ok delayed_rows_are_refused
exit $failed
