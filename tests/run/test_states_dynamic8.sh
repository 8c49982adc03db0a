#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Optimizer states in dynamic codes of 8 bits (optimizer.state_dtype dynamic8, optimizer adamw8bit): the same bits for any threads, across resumes, in host memory, and
# on every mesh that computes the same values; a quarter of the memory; and training that stays beside that in float32.
. "$(dirname "$0")/states.sh"
d8="--optimizer.state_dtype dynamic8"
# rows of two blocks, the second one short; weights of few elements stay f32
sed 's/"dim": 32/"dim": 96/; s/"hidden_dim": 48/"hidden_dim": 330/; s/"lr": 0.01/"lr": 0.003/' "$dir/job.json" >"$dir/wide.json" && job=$dir/wide.json

train "$dir/plain" $d8 && [ "$rc" -eq 0 ] && [ "$(dtypes "$dir/plain/checkpoint/step-10" optimizer.state)" = "F32 U8" ] &&
    [ "$(dtypes "$dir/plain/checkpoint/step-10" 'optimizer.state[a-z0-9._]*exp_avg_sq_block_scale')" = F32 ] &&
    [ "$(dtypes "$dir/plain/checkpoint/step-10" 'optimizer.state[a-z0-9._]*norm.weight.exp_avg')" = F32 ]
ok the_checkpoint_has_states_in_codes_their_scales_and_small_ones_in_f32
train "$dir/f32"
same() { # NAME OPTION…
    name=$1
    shift
    train "$dir/$name" $d8 "$@"
    [ "$rc" -eq 0 ] && equal "$dir/plain" "$dir/$name" 10
    ok "bitwise_$name"
}
same again
same five_threads --backend.threads 5
same poison --debug.poison true
same unfused --debug.disable_fusion true
train "$dir/half" $d8 --training.steps 5 && train "$dir/half" $d8
[ "$rc" -eq 0 ] && grep -q 'resumed from .*step-5' "$dir/err" && equal "$dir/plain" "$dir/half" 10
ok bitwise_resumed
train "$dir/sgd" --optimizer.name sgd --optimizer.momentum 0.9 $d8
[ "$rc" -eq 0 ] && [ "$(dtypes "$dir/sgd/checkpoint/step-10" optimizer.state)" = "F32 U8" ]
ok any_optimizer
train "$dir/adamw8bit" --optimizer.name adamw8bit
[ "$rc" -eq 0 ] && equal "$dir/plain" "$dir/adamw8bit" 10
ok adamw8bit_is_adamw_with_states_in_codes
slow="--training.steps 2 --training.local_batch_size 1 --training.seq_len 16" # for backends that are
for backend in reference far; do
    train "$dir/$backend" $mine --backend.name $backend $d8 $slow
    [ "$rc" -eq 0 ]
    ok "runs_on_$backend"
done
equal "$dir/reference" "$dir/far" 2
ok far_has_the_bits_of_the_reference
train "$dir/offload" $mine --backend.name far $d8 $slow --training.enable_cpu_offload true
[ "$rc" -eq 0 ] && equal "$dir/reference" "$dir/offload" 2
ok bitwise_with_states_in_host_memory
cp -r "$dir/f32" "$dir/to_d8"
train "$dir/to_d8" $d8 --training.steps 12
[ "$rc" -eq 2 ] && one_line "$dir/err" && grep -q 'set optimizer.state_dtype as it was' "$dir/err"
ok other_states_are_refused_on_resume
train "$dir/plain" --training.steps 12
[ "$rc" -eq 2 ] && one_line "$dir/err" && grep -q 'set optimizer.state_dtype as it was' "$dir/err"
ok states_in_codes_are_refused_for_another_dtype

on_meshes echo $mine --optimizer.name echo --comm.backend local --training.steps 6 --checkpoint.interval 6 $d8
on_mesh fsdp_tp $p.data_parallel_shard_degree 2 $p.tensor_parallel_degree 2 --training.local_batch_size 2
on_mesh pp_fsdp $p.pipeline_parallel_degree 2 $p.data_parallel_shard_degree 2 --training.local_batch_size 2

long="--training.steps $(is_long && echo 400 || echo 100) --checkpoint.enable false --optimizer.beta2 0.999 --optimizer.lr 0.0003"
train "$dir/long32" $long && train "$dir/long8" $long $d8 && near "$(value "$dir/long32/metrics.jsonl" loss)" "$(value "$dir/long8/metrics.jsonl" loss)" 0.02
ok the_loss_stays_that_of_float32

small() { ttrun plan "$job" --json "$@" 2>"$dir/err" | "$json" /dev/stdin bytes_per_rank.state; }
n=$(ttrun plan "$job" --json 2>"$dir/err" | "$json" /dev/stdin parameters)
[ $(($(small) - $(small $d8))) -ge $((58 * n / 10)) ]
ok plan_counts_a_quarter_of_the_bytes
exit $failed
