#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Optimizer states (optimizer.state_dtype) and parameters (training.dtype) in bf16, rounded stochastically: the same bits for any threads, fused or not, across resumes, in
# host memory, and on every mesh that computes the same values; half the memory; and training that nearest rounding would bend.
. "$(dirname "$0")/states.sh"
bf16="--optimizer.state_dtype bfloat16"

# ---- one mesh: the bits of a plain run ----
train "$dir/plain" $bf16 && [ "$rc" -eq 0 ]
ok trains
[ "$(dtypes "$dir/plain/checkpoint/step-10" optimizer.state)" = BF16 ] && [ "$(dtypes "$dir/plain/checkpoint/step-10" model)" = F32 ]
ok the_checkpoint_has_states_in_bf16
train "$dir/f32"
[ "$(dtypes "$dir/f32/checkpoint/step-10" optimizer.state)" = F32 ] && ! equal "$dir/plain" "$dir/f32" 10
ok without_the_key_they_are_f32
same() { # NAME OPTION…
    name=$1
    shift
    train "$dir/$name" $bf16 "$@"
    [ "$rc" -eq 0 ] && equal "$dir/plain" "$dir/$name" 10
    ok "bitwise_$name"
}
same again
same two_threads --backend.threads 2
same five_threads --backend.threads 5
same unfused --debug.disable_fusion true
same detect_nan --debug.detect_nan true
same poison --debug.poison true
train "$dir/seed" $bf16 --training.seed 1
[ "$rc" -eq 0 ] && ! equal "$dir/plain" "$dir/seed" 10
ok another_seed_has_other_bits
train "$dir/half" $bf16 --training.steps 5 && train "$dir/half" $bf16
[ "$rc" -eq 0 ] && grep -q 'resumed from .*step-5' "$dir/err" && ! grep -q 'optimizer states' "$dir/err" && equal "$dir/plain" "$dir/half" 10
ok bitwise_resumed
for backend in reference far; do
    train "$dir/$backend" $mine --backend.name $backend $bf16 --training.steps 5
    [ "$rc" -eq 0 ]
    ok "runs_on_$backend"
done
equal "$dir/reference" "$dir/far" 5
ok far_has_the_bits_of_the_reference
train "$dir/offload" $mine --backend.name far $bf16 --training.steps 5 --training.enable_cpu_offload true
[ "$rc" -eq 0 ] && equal "$dir/reference" "$dir/offload" 5
ok bitwise_with_states_in_host_memory
for name in sgd lion; do
    options=--optimizer.momentum\ 0.9
    [ $name = sgd ] || options=
    train "$dir/$name" $mine --optimizer.name $name --optimizer.lr 1e-3 $options $bf16
    [ "$rc" -eq 0 ] && [ "$(dtypes "$dir/$name/checkpoint/step-10" optimizer.state)" = BF16 ]
    ok "any_optimizer_$name"
done
train "$dir/half16" $bf16 --training.dtype bfloat16
[ "$rc" -eq 0 ] && [ "$(dtypes "$dir/half16/checkpoint/step-10" '')" = BF16 ]
ok with_parameters_in_bf16_too

# ---- another dtype on resume ----
cp -r "$dir/f32" "$dir/to_bf16" && cp -r "$dir/plain" "$dir/to_f32"
train "$dir/to_bf16" $bf16 --training.steps 12
[ "$rc" -eq 0 ] && [ "$(grep -c 'its optimizer states are f32, this run.s are bf16: rounded to nearest' "$dir/err")" -eq 1 ]
ok f32_states_are_rounded_to_nearest_and_a_line_says_so
train "$dir/to_f32" --training.steps 12
[ "$rc" -eq 0 ] && [ "$(grep -c 'its optimizer states are bf16, this run.s are f32: the same values' "$dir/err")" -eq 1 ] &&
    [ "$(dtypes "$dir/to_f32/checkpoint/step-12" optimizer.state)" = F32 ]
ok bf16_states_are_read_as_f32_and_a_line_says_so

# ---- meshes: echo's states are computed from values that no mesh changes ----
echo="$mine --optimizer.name echo --comm.backend local --training.steps 6 --checkpoint.interval 6 $bf16"
odd="--model.args.dim 40 --model.args.n_heads 4 --model.args.hidden_dim 50 --model.args.vocab_size 271"
for shape in even odd; do
    [ $shape = odd ] || odd_options=
    [ $shape = even ] || odd_options=$odd
    on_meshes echo_$shape $echo $odd_options
    on_mesh fsdp_tp $p.data_parallel_shard_degree 2 $p.tensor_parallel_degree 2 --training.local_batch_size 2
    on_mesh pp_fsdp $p.pipeline_parallel_degree 2 $p.data_parallel_shard_degree 2 --training.local_batch_size 2
    on_mesh offload_fsdp --backend.name far --training.enable_cpu_offload true $p.data_parallel_shard_degree 2 --training.local_batch_size 2
done
tied="--model.args.tie_embeddings true"
train "$dir/tied" $echo $tied && train "$dir/tied_pp" $echo $tied $p.pipeline_parallel_degree 2
[ "$rc" -eq 0 ] && equal "$dir/tied" "$dir/tied_pp" 6
ok the_same_bits_where_two_stages_share_a_parameter
train "$dir/echo_f32" $mine --optimizer.name echo --training.steps 6 --checkpoint.interval 6
[ "$rc" -eq 0 ] && "$BUILD/tests/run/states_tool" "$dir/echo_f32/checkpoint/step-6" "$dir/echo_even/checkpoint/step-6" mean twin >"$dir/out" 2>"$dir/err" &&
    awk '{exit !($1 == "error" && $2 < 2e-4 && $2 > -2e-4 && $4 > 1e-4 && $6 > 0.3)}' "$dir/out"
ok states_are_right_on_average_and_each_has_its_own_numbers

# ---- memory ----
small() { ttrun plan "$job" --json "$@" 2>"$dir/err" | "$json" /dev/stdin bytes_per_rank.state; }
# 2 states of n parameters: 4 n bytes less; aligned per stack
n=$(ttrun plan "$job" --json 2>"$dir/err" | "$json" /dev/stdin parameters)
[ $(($(small) - $(small $bf16))) -ge $((4 * n - 4096)) ] && [ $(($(small) - $(small $bf16))) -le $((4 * n + 4096)) ]
ok plan_counts_half_the_bytes

# ---- training: 1000 steps with beta2 0.999. exp_avg_sq rounded to nearest does not fall any more where its rate is below bf16's resolution ----
long="--training.steps 1000 --checkpoint.interval 1000 --optimizer.beta2 0.999 --optimizer.lr 0.0003 --metrics.log_freq 1"
train "$dir/long_f32" $long && train "$dir/long_bf16" $long $bf16 && train "$dir/long_nearest" $mine --optimizer.name nearest $long
[ "$rc" -eq 0 ]
ok three_runs_of_1000_steps
for run in bf16 nearest; do # the largest distance of the loss, relative; and the error of exp_avg_sq on average
    losses "$dir/long_$run/metrics.jsonl" >"$dir/b" && losses "$dir/long_f32/metrics.jsonl" | paste - "$dir/b" |
        awk '{d = ($4 - $2) / $2; d = d < 0 ? -d : d; if (d > most) most = d; n++} END {print n, most}' >"$dir/distance_$run"
    "$BUILD/tests/run/states_tool" "$dir/long_f32/checkpoint/step-1000" "$dir/long_$run/checkpoint/step-1000" exp_avg_sq exp_avg >"$dir/error_$run"
done
: >"$dir/err"
cat "$dir/distance_bf16" "$dir/distance_nearest" "$dir/error_bf16" "$dir/error_nearest" >"$dir/out"
awk '{exit !($1 == 1000 && $2 <= 0.01)}' "$dir/distance_bf16" && awk '{exit !($2 < 0.01 && $2 > -0.01)}' "$dir/error_bf16"
ok the_loss_stays_within_1_percent_of_f32_and_exp_avg_sq_too
awk '{exit !($1 == 1000 && $2 > 0.02)}' "$dir/distance_nearest" && awk '{exit !($2 > 0.05)}' "$dir/error_nearest"
ok rounding_to_nearest_fails_both

# ---- parameters in bf16 (training.dtype) ----
half="--training.dtype bfloat16"
slow="--training.steps 400 --optimizer.lr 2e-5 --checkpoint.enable false"
train "$dir/slow32" $slow && train "$dir/slow16" $slow $half && near "$(value "$dir/slow32/metrics.jsonl" loss)" "$(value "$dir/slow16/metrics.jsonl" loss)" 0.02
ok parameters_in_bf16_move_where_nearest_rounding_would_stop_them
train "$dir/value16" $half && train "$dir/value16_parts" $half --training.steps 5 && train "$dir/value16_parts" $half && equal "$dir/value16" "$dir/value16_parts" 10
ok bitwise_resumed_with_parameters_in_bf16
shrink="$mine --optimizer.name shrink --comm.backend local --training.steps 6 --checkpoint.interval 6 $half"
on_meshes shrink $shrink
train "$dir/shrink_tied" $shrink --model.args.tie_embeddings true && train "$dir/shrink_tied_pp" $shrink --model.args.tie_embeddings true $p.pipeline_parallel_degree 2
[ "$rc" -eq 0 ] && equal "$dir/shrink_tied" "$dir/shrink_tied_pp" 6
ok the_same_parameters_where_two_stages_share_one
for option in false true; do
    train "$dir/host_$option" $mine --backend.name far $half --training.steps 5 --training.enable_cpu_offload $option
done
[ "$rc" -eq 0 ] && equal "$dir/host_false" "$dir/host_true" 5
ok bitwise_with_states_in_host_memory_and_parameters_in_bf16
exit $failed
