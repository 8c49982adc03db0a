#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Experts that are cut over ranks (docs/design/experts.md): a model of attention and mixtures of experts (mix.c) has one rank's losses and
# parameters on every mesh, with accumulation, recomputation, skewed routing, and experts without tokens.
. "$(dirname "$0")/../run/lib.sh"
mkdir -p "$dir/more"
cc -std=c11 -Wall -Wextra -Werror -shared -fPIC "-I$SRC/include" "$SRC/tests/plugins/mix.c" -o "$dir/more/mix.so" >"$dir/out" 2>&1
ok the_model_builds_from_the_public_headers
sed 's/"args": {[^}]*}/"name": "mix"/' "$job" >"$dir/mix.json"
job=$dir/mix.json
p=--parallelism.
ep=${p}expert_parallel_degree
tool="$BUILD/tests/run/states_tool"

# go NAME OPTION...: ten steps of 8 samples
go() {
    name=$1
    shift
    rm -rf "${dir:?}/$name"
    train "$dir/$name" --plugin-dir "$dir/more" --comm.backend local --training.global_batch_size 8 --checkpoint.interval 5 --checkpoint.keep_latest_k 0 "$@"
}
# Some meshes are for the long tier alone, and there runs have ten steps; five show whether numbers differ, and step 5 is saved in both.
steps=5
! is_long || steps=10
# one NAME OPTION...: what the meshes below are compared with
one() {
    want=$1
    shift
    common=$*
    go "$want" --training.local_batch_size 8 "$@"
    [ "$rc" -eq 0 ] && losses "$dir/$want/metrics.jsonl" | head -n $steps >"$dir/wanted" && [ "$(wc -l <"$dir/wanted")" -eq $steps ]
    ok "one_rank_$want"
}
# exp_avg is the mean of the gradients of five steps: column 4 is the mean of |difference| / |gradient|. What a missing sum over
# two ranks would leave is of the size of the gradient.
gradients() {
    for w in layers.0.gate layers.1.up layers.1.down layers.0.bias layers.1.router.weight layers.0.norm2.weight layers.0.q.weight embed_tokens.weight; do
        "$tool" "$dir/$want/checkpoint/step-5" "$dir/$1/checkpoint/step-5" $w.exp_avg $w.exp_avg_sq >>"$dir/$1.moved" || return 1
    done
    awk '{n++; if (!($4 <= 1e-3)) bad = 1} END {exit bad || n != 8}' "$dir/$1.moved"
}
# Of a bounded run: some step had more rows than the first passes have room for.
overflowed() { grep -q '"overflow":0\.[0-9]*[1-9]' "$dir/$1/metrics.jsonl"; }
# mesh NAME OPTION...: the losses of $steps steps and the gradients of the first five are one rank's
mesh() {
    what=${want}_$1
    shift
    # shellcheck disable=SC2086
    go "$what" --training.steps $steps $common "$@"
    [ "$rc" -eq 0 ] && losses "$dir/$what/metrics.jsonl" | paste -d' ' - "$dir/wanted" |
        awk -v steps=$steps '{d = $2 - $4; n++; if (d < 0) d = -d; if ($1 != $3 || d > 2e-5) bad = 1} END {exit bad || n != steps}' && gradients "$what" &&
        case $what in *bounded*) overflowed "$what" ;; esac
    ok "$what"
    rm -rf "${dir:?}/$what"
}
more() { ! is_long || mesh "$@"; } # a mesh of the long tier: another one finds the same
refused() { [ "$rc" -eq 2 ] && one_line "$dir/err" && grep -q -- "$1" "$dir/err"; }

one plain
more fsdp --nproc 2
more ep2 --nproc 2 $ep 2
mesh ep2_fsdp2 --nproc 4 --training.local_batch_size 2 $ep 2
more ep4 --nproc 4 --training.local_batch_size 2 $ep 4
mesh tp2 --nproc 2 --training.local_batch_size 8 ${p}tensor_parallel_degree 2
more ep2_in_tp2 --nproc 2 --training.local_batch_size 8 ${p}tensor_parallel_degree 2 $ep 2
mesh ep2_in_tp2_whole_tokens --nproc 2 --training.local_batch_size 8 ${p}tensor_parallel_degree 2 ${p}enable_sequence_parallel false $ep 2
more ep2_in_tp4 --nproc 4 --training.local_batch_size 8 ${p}tensor_parallel_degree 4 $ep 2
mesh ep4_over_dp_and_tp --nproc 4 ${p}tensor_parallel_degree 2 $ep 4
mesh ep2_in_tp2_fsdp2 --nproc 4 ${p}tensor_parallel_degree 2 $ep 2
mesh hsdp --nproc 4 --training.local_batch_size 2 ${p}data_parallel_replicate_degree 2 $ep 2
mesh cp2 --nproc 2 --training.local_batch_size 8 ${p}context_parallel_degree 2 $ep 2
mesh ring_fsdp --nproc 4 ${p}context_parallel_degree 2 ${p}context_parallel_rotate_method ring $ep 2
mesh pp2 --nproc 4 ${p}pipeline_parallel_degree 2 $ep 2
mesh accumulated --nproc 2 --training.local_batch_size 1 $ep 2
mesh recomputed --nproc 2 --activation_checkpoint.mode full $ep 2
mesh sunk --nproc 4 --training.local_batch_size 1 ${p}fsdp_reshard_after_forward never $ep 2
# Rooms for fewer rows than the busiest rank has: the others take further passes.
f=${p}expert_buffer_factor
more bounded_ep2 --nproc 2 $ep 2 $f 1
mesh bounded_ep2_fsdp2 --nproc 4 --training.local_batch_size 2 $ep 2 $f 1.25
more bounded_ep4 --nproc 4 --training.local_batch_size 2 $ep 4 $f 1
more bounded_ep2_in_tp2 --nproc 2 --training.local_batch_size 8 ${p}tensor_parallel_degree 2 $ep 2 $f 1
mesh bounded_ep4_over_dp_and_tp --nproc 4 ${p}tensor_parallel_degree 2 $ep 4 $f 1.5
more bounded_hsdp --nproc 4 --training.local_batch_size 2 ${p}data_parallel_replicate_degree 2 $ep 2 $f 1
mesh bounded_ring_fsdp --nproc 4 ${p}context_parallel_degree 2 ${p}context_parallel_rotate_method ring $ep 2 $f 1
mesh bounded_pp2 --nproc 4 ${p}pipeline_parallel_degree 2 $ep 2 $f 1
mesh bounded_accumulated --nproc 2 --training.local_batch_size 1 $ep 2 $f 1
more bounded_recomputed --nproc 2 --activation_checkpoint.mode full $ep 2 $f 1
mesh bounded_selective --nproc 2 --activation_checkpoint.mode selective $ep 2 $f 1
mesh bounded_sunk --nproc 4 --training.local_batch_size 1 ${p}fsdp_reshard_after_forward never $ep 2 $f 1
one deep --model.args.layers 4 --optimizer.lr 0.001
mesh zbv --nproc 4 ${p}pipeline_parallel_degree 2 ${p}pipeline_parallel_schedule ZBVZeroBubble $ep 2
mesh bounded_zbv --nproc 4 ${p}pipeline_parallel_degree 2 ${p}pipeline_parallel_schedule ZBVZeroBubble $ep 2 $f 1
one uneven --training.seq_len 33
mesh cp2 --nproc 2 --training.local_batch_size 8 ${p}context_parallel_degree 2 $ep 2
mesh tp2 --nproc 2 --training.local_batch_size 8 ${p}tensor_parallel_degree 2 $ep 2
one skewed --model.args.skew true
mesh ep4 --nproc 4 --training.local_batch_size 2 $ep 4
mesh bounded_ep4 --nproc 4 --training.local_batch_size 2 $ep 4 $f 1
one all_experts --model.args.experts 4 --model.args.top_k 4
mesh ep4 --nproc 4 --training.local_batch_size 2 $ep 4
mesh with_room --nproc 4 --training.local_batch_size 2 $ep 4 $f 2.5
# Values whose rows do not come first have all rows, and the passes are still right.
one turned --model.args.turned true
mesh ep4 --nproc 4 --training.local_batch_size 2 $ep 4
mesh bounded_ep4 --nproc 4 --training.local_batch_size 2 $ep 4 $f 1
# Replicas of the most loaded experts: computed where the tokens are, with gradients that go back to the owner. go() saves step 5,
# so the gradients compared are those of hot experts that changed meanwhile.
r=${p}expert_replicas
one replicated --model.args.skew true
more ep2 --nproc 2 $ep 2 $r 1
mesh ep2_all --nproc 2 $ep 2 $r 4
more ep2_fsdp2 --nproc 4 --training.local_batch_size 2 $ep 2 $r 2
mesh ep4 --nproc 4 --training.local_batch_size 2 $ep 4 $r 2
more ep2_in_tp2 --nproc 2 --training.local_batch_size 8 ${p}tensor_parallel_degree 2 $ep 2 $r 2
mesh ep2_in_tp4 --nproc 4 --training.local_batch_size 8 ${p}tensor_parallel_degree 4 $ep 2 $r 2
more hsdp --nproc 4 --training.local_batch_size 2 ${p}data_parallel_replicate_degree 2 $ep 2 $r 2
more ring_fsdp --nproc 4 ${p}context_parallel_degree 2 ${p}context_parallel_rotate_method ring $ep 2 $r 2
more pp2 --nproc 4 ${p}pipeline_parallel_degree 2 $ep 2 $r 2
more accumulated --nproc 2 --training.local_batch_size 1 $ep 2 $r 2
more recomputed --nproc 2 --activation_checkpoint.mode full $ep 2 $r 2
# Several micro-batches per step: the weights are brought once per step, and the gradients wait for the epilogue.
a="--training.local_batch_size 1"
more accumulated_ep2_fsdp2 --nproc 4 $a $ep 2 $r 2
mesh accumulated_ep4 --nproc 4 $a $ep 4 $r 3
more accumulated_hsdp --nproc 4 $a ${p}data_parallel_replicate_degree 2 $ep 2 $r 2
more accumulated_ep2_in_tp2 --nproc 2 $a ${p}tensor_parallel_degree 2 $ep 2 $r 2
mesh accumulated_ring --nproc 4 $a ${p}context_parallel_degree 2 ${p}context_parallel_rotate_method ring $ep 2 $r 2
mesh accumulated_pp2 --nproc 4 $a ${p}pipeline_parallel_degree 2 $ep 2 $r 2
mesh accumulated_recomputed --nproc 2 $a --activation_checkpoint.mode full $ep 2 $r 2
mesh accumulated_sunk --nproc 4 $a ${p}fsdp_reshard_after_forward never $ep 2 $r 2
mesh accumulated_hsdp_overlapped --nproc 4 $a --comm.overlap on ${p}data_parallel_replicate_degree 2 $ep 2 $r 2
mesh accumulated_without_room --nproc 2 $a $ep 2 $r 2 ${p}expert_replicas_gb 5e-5
mesh accumulated_reference --nproc 2 $a --backend.name reference $ep 2 $r 2
mesh passes_ep4 --nproc 4 --training.local_batch_size 2 $ep 4 $r 1 $f 1 # one expert has all slots, and its replicas leave none over
more reference --nproc 2 --backend.name reference $ep 2 $r 2
mesh found --nproc 2 $ep 2 $r -1
# The experts with replicas follow the counts: the busiest rank has fewer rows than without; and a run that goes on has the bits of
# one that was not stopped, because the checkpoint has the counts.
go whole --nproc 2 $ep 2 $r 2 --model.args.skew true && cp -r "$dir/whole" "$dir/again" && rm -rf "$dir/again/checkpoint/step-10" &&
    train "$dir/again" --plugin-dir "$dir/more" --comm.backend local --training.global_batch_size 8 --nproc 2 $ep 2 $r 2 --model.args.skew true
[ "$rc" -eq 0 ] && [ "$(hash_of "$dir/whole/checkpoint/step-10")" = "$(hash_of "$dir/again/checkpoint/step-10")" ]
ok "replicas_go_on_to_the_bit"
sed -n 's/.*"ranks_max_over_mean":\([0-9.]*\).*"ranks_without_replicas":\([0-9.]*\).*/\1 \2/p' "$dir/whole/metrics.jsonl" >"$dir/ranks"
awk 'NR > 2 && !($1 < $2) {bad = 1} END {exit bad || NR != 10}' "$dir/ranks"
ok "replicas_even_out_the_ranks"
go bad --nproc 2 $ep 2 $r 9
refused 'parallelism.expert_replicas: a layer has [0-9]* experts, so no 9 of them can have replicas'
ok "more_replicas_than_experts_are_refused"
counted() { # OPTION...: the instructions whose rows are counted
    go counted --nproc 4 --training.local_batch_size 2 --training.steps 1 $ep 4 --debug.dump_program "$dir/program" "$@" && cat "$dir"/program/*rank0.txt | grep -c 'rows by'
}
some=$(counted) none=$(counted --model.args.turned true)
[ "$some" -gt 20 ] && [ "$none" -eq 0 ]
ok "kernels_get_the_rows_that_there_are"

# bf16: its own one rank, to its rounding
go half --training.local_batch_size 8 --training.mixed_precision_param bfloat16 && losses "$dir/half/metrics.jsonl" >"$dir/wanted"
go half_ep2 --nproc 2 --training.mixed_precision_param bfloat16 $ep 2
[ "$rc" -eq 0 ] && losses "$dir/half_ep2/metrics.jsonl" | paste -d' ' - "$dir/wanted" |
    awk '{d = $2 - $4; n++; if (d < 0) d = -d; if ($1 != $3 || d > 2e-2) bad = 1} END {exit bad || n != 10}'
ok bf16_ep2
go half --training.local_batch_size 8 --training.mixed_precision_param bfloat16 --model.args.skew true && losses "$dir/half/metrics.jsonl" >"$dir/wanted"
# half NAME OPTION...: replicas in bf16; the gradients are as far from one rank's as those of the same mesh without replicas
half() {
    what=bf16_replicas_$1
    shift
    go without "$@" --training.mixed_precision_param bfloat16 --model.args.skew true
    go replicas "$@" --training.mixed_precision_param bfloat16 --model.args.skew true $r 2
    : >"$dir/far"
    for name in without replicas; do
        for w in layers.0.gate layers.1.up layers.1.down layers.1.router.weight; do
            echo "$name $("$tool" "$dir/half/checkpoint/step-5" "$dir/$name/checkpoint/step-5" $w.exp_avg $w.exp_avg_sq)" >>"$dir/far"
        done
    done
    [ "$rc" -eq 0 ] && losses "$dir/replicas/metrics.jsonl" | paste -d' ' - "$dir/wanted" |
        awk '{d = $2 - $4; n++; if (d < 0) d = -d; if ($1 != $3 || d > 2e-2) bad = 1} END {exit bad || n != 10}' &&
        awk '{n[$1]++; sum[$1] += $5} END {exit !(n["without"] == 4 && n["replicas"] == 4 && sum["replicas"] <= 1.5 * sum["without"] + 0.02)}' "$dir/far"
    ok "$what"
}
half ep2 --nproc 2 $ep 2
! is_long || half ep4 --nproc 4 --training.local_batch_size 2 $ep 4
! is_long || half accumulated_ep2 --nproc 2 $a $ep 2
half accumulated_ep4 --nproc 4 $a $ep 4

# a checkpoint of one mesh goes on with another
go kept --nproc 2 $ep 2 && rm -rf "$dir/kept/checkpoint/step-10" &&
    train "$dir/kept" --plugin-dir "$dir/more" --comm.backend local --training.global_batch_size 8 --training.local_batch_size 8
[ "$rc" -eq 0 ] && near "$(value "$dir/kept/metrics.jsonl" loss 10)" "$(value "$dir/plain/metrics.jsonl" loss 10)" 2e-5
ok a_checkpoint_goes_on_without_experts_cut

# ---- what is refused ----
go bad --nproc 4 --training.local_batch_size 2 $ep 4 --model.args.experts 6
refused '6 experts do not divide over the 4 ranks of ep; choose a degree of ep that divides 6'
ok experts_that_do_not_divide_are_refused
go bad --nproc 4 --training.local_batch_size 2 $ep 4 --model.args.experts 2
refused '2 experts do not divide over the 4 ranks of ep'
ok fewer_experts_than_ranks_are_refused
go bad --nproc 4 --training.local_batch_size 2 $ep 3
refused 'expert_parallel_degree: parallelism: ep 3 must be the product of the innermost ranks'
ok a_degree_that_does_not_divide_is_refused

# ---- plan ----
ttrun plan "$job" --plugin-dir "$dir/more" --world 4 $ep 2 --training.local_batch_size 4 >"$dir/out" 2>"$dir/err"
[ $? -eq 0 ] && grep -q '^ranks  *4: dp_shard0 2 × dp_shard1 2, ep = dp_shard1' "$dir/out" && grep -q '^  activations  *0.1  *6  all_to_all over dp_shard1' "$dir/out" &&
    grep -q '^  gradients of activations  *0.1  *4  all_to_all over dp_shard1' "$dir/out" && grep -q '^  gradients  *0.0  *8  reduce_scatter over dp_shard0' "$dir/out"
ok plan_shows_the_all_to_alls
# Replicas with four micro-batches: without room for the weights of a whole step three calls for each of 2 layers and 4 micro-batches,
# forward, again for the backward, and gradients; with room one call per layer and step for the weights, and one for the gradients.
ttrun plan "$job" --plugin-dir "$dir/more" --world 2 $ep 2 --training.local_batch_size 1 --training.global_batch_size 8 $r 2 >"$dir/with" 2>"$dir/err" &&
    ttrun plan "$job" --plugin-dir "$dir/more" --world 2 $ep 2 --training.local_batch_size 1 --training.global_batch_size 8 $r 2 ${p}expert_replicas_gb 5e-5 >"$dir/out" 2>"$dir/err"
calls() { awk -v what="$1" '/all_reduce/ && index($0, "  " what "  ") == 1 {print $(NF - 3)}' "$2"; }
[ "$(calls activations "$dir/out")" = 24 ] && [ "$(calls 'activations, for the backward' "$dir/out")" = 24 ] && [ "$(calls 'gradients of activations' "$dir/out")" = 24 ] &&
    [ "$(calls activations "$dir/with")" = 2 ] && [ -z "$(calls 'activations, for the backward' "$dir/with")" ] && [ -z "$(calls 'gradients of activations' "$dir/with")" ] &&
    [ "$(calls 'gradients, once per step' "$dir/with")" = $(($(calls 'gradients, once per step' "$dir/out") + 2)) ]
ok plan_brings_replicas_once_per_step
exit $failed
