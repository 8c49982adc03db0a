#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# optimizer.early_step_in_backward: parameters are updated in the backward. The same bits as updates after it, on every mesh and with every optimizer; fewer bytes, in
# the plan and in the process; and one line that says what to do where it cannot be.
. "$(dirname "$0")/lib.sh"
early="--optimizer.early_step_in_backward true"
p=--parallelism
base="--training.max_norm 0 --training.steps 6 --checkpoint.interval 6"

# same NAME OPTION…: the same checkpoint and losses with and without the key
same() {
    name=$1
    shift
    train "$dir/$name-late" $base "$@" && [ "$rc" -eq 0 ]
    ok "${name}_runs"
    train "$dir/$name" $base $early "$@"
    [ "$rc" -eq 0 ] && ttrun ckpt diff "$dir/$name-late/checkpoint/step-6" "$dir/$name/checkpoint/step-6" >"$dir/out" 2>"$dir/err" &&
        [ "$(losses "$dir/$name-late/metrics.jsonl")" = "$(losses "$dir/$name/metrics.jsonl")" ]
    ok "the_same_bits_$name"
    near "$(value "$dir/$name-late/metrics.jsonl" grad_norm)" "$(value "$dir/$name/metrics.jsonl" grad_norm)" 1e-5
    ok "the_norm_of_$name"
}
same one_rank --debug.poison true
same two_threads --backend.threads 2
same unfused --debug.disable_fusion true
same recomputed --activation_checkpoint.mode full --debug.poison true
same fsdp_2 $p.data_parallel_shard_degree 2 --training.local_batch_size 2
same fsdp_3_no_overlap $p.data_parallel_shard_degree 3 --training.local_batch_size 2 --comm.overlap off
same ddp_2 $p.data_parallel_replicate_degree 2 --training.local_batch_size 2
same tp_2_fsdp_2 $p.tensor_parallel_degree 2 $p.data_parallel_shard_degree 2 --activation_checkpoint.mode full
same cp_2 $p.context_parallel_degree 2
same bf16 --training.mixed_precision_param bfloat16 --training.mixed_precision_reduce bfloat16 $p.data_parallel_shard_degree 2
same bf16_states --optimizer.state_dtype bfloat16 --training.dtype bfloat16 $p.data_parallel_shard_degree 2
same averaged --training.ema_decay 0.9
same muon --optimizer.name muon $p.data_parallel_shard_degree 2
same soap --optimizer.name soap
same adamw8bit --optimizer.name adamw8bit
same groups --optimizer.param_groups '[{"match": "norm", "weight_decay": 0, "clip_grad": false}]'
sed 's/"llama3"/"gpt2"/; s/"n_kv_heads": 2, "hidden_dim": 48, //' "$job" >"$dir/tied.json"
job=$dir/tied.json
same tied
job=$dir/job.json
same chunked_head --model.args.vocab_size 40000

# converters make other gradients than those that autodiff made; a delta net's are pieces of others
sed 's/"llama3"/"qwen3_next"/; s/"n_layers": 2/"n_layers": 2, "head_dim": 8, "full_attention_interval": 2, "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 4, "linear_value_head_dim": 4, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 12, "shared_expert_intermediate_size": 16/' \
    "$job" >"$dir/next.json"
for mesh in none data_parallel_replicate data_parallel_shard tensor_parallel; do
    set -- --training.seq_len 16 --training.local_batch_size 2
    [ $mesh = none ] || set -- "$@" $p.${mesh}_degree 2
    for low in '"float8"' '"float8","scaling":"delayed"' '"mxfp8"' '"nvfp4"' '"blockwise"'; do
        same "$(echo "$mesh $low" | tr -cs 'a-z0-9\n' _)" "$@" --converters "[{\"name\":$low}]"
    done
    job=$dir/next.json
    same "next_$mesh" "$@"
    same "next_${mesh}_mxfp8" "$@" --converters '[{"name":"mxfp8"}]'
    job=$dir/job.json
done

# a resume, from a run whose updates follow the backward
cp -r "$dir/one_rank-late" "$dir/resumed" && train "$dir/resumed" $base $early --training.steps 8 && [ "$rc" -eq 0 ]
ok resumes_a_run_without_it
train "$dir/one_rank-late" $base --training.steps 8
ttrun ckpt diff "$dir/resumed/checkpoint/step-8" "$dir/one_rank-late/checkpoint/step-8" >"$dir/out" 2>"$dir/err"
ok the_same_bits_resumed

# fewer bytes
sizes='--model.args.dim 256 --model.args.n_layers 8 --model.args.hidden_dim 512 --training.local_batch_size 1'
bytes() { # OPTION…: of a rank's program, by the plan
    ttrun plan "$job" --json $base $sizes "$@" >"$dir/out" 2>"$dir/err"
    sed 's/.*"bytes_per_rank":{"state":\([0-9]*\),"slot":0,"work":\([0-9]*\),.*/\1 \2/' "$dir/out"
}
set -- $(bytes) $(bytes $early) # state, work; the same in the backward: 4.86 M gradients of 4 bytes, but not those of the head
[ "$#" -eq 4 ] && [ $(($1 + $2 - $3 - $4)) -gt 12000000 ]
ok "the_plan_saves_gradients ($*)"

# where it cannot be: one line, and what to do
refused() { # NAME TEXT OPTION…
    name=$1 text=$2
    shift 2
    train "$dir/refused" --training.steps 2 $early "$@"
    [ "$rc" -eq 2 ] && [ "$(grep -c . "$dir/err")" -eq 1 ] && grep -q "optimizer.early_step_in_backward: $text" "$dir/err"
    ok "refuses_$name"
}
refused clipping '.*set training.max_norm to 0'
z="--training.max_norm 0"
refused skip_nonfinite 'training.skip_nonfinite' $z --training.skip_nonfinite true
refused skip_norm 'training.max_grad_norm_skip' $z --training.max_grad_norm_skip 10
refused float16 'float16 has a loss scale' $z --training.mixed_precision_param float16
refused norm_order '.*clip_norm_type must be 2' $z --training.clip_norm_type 1
refused norms 'metrics.norms' $z --metrics.norms layer
refused health 'debug.health_check_freq' $z --debug.health_check_freq 1
refused replay 'debug.replay_interval' $z --debug.replay_interval 1
refused accumulation 'the gradients of 2 micro-batches' $z --training.global_batch_size 8
refused pipelines 'a pipeline sums' $z $p.pipeline_parallel_degree 2
exit $failed
