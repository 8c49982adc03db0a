#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What a job does beside its steps, on the backend "cuda" over the driver and the libraries of tests/fake: captured graphs, checkpoints,
# validation, evaluation, generated text, checks of numbers, states in host memory, other models, and what is said of a GPU that fails.
. "$(dirname "$0")/cuda.sh"
sed -i 's/"seq_len": 32/"seq_len": 16/' "$job"

numbers() { # metrics.jsonl without what differs from run to run
    without_times "$1/metrics.jsonl"
}
same_numbers() { numbers "$1" >"$dir/a" && numbers "$2" >"$dir/b" && [ -s "$dir/a" ] && cmp "$dir/a" "$dir/b" >>"$dir/err" 2>&1; }
same_step() { # STEP A B
    [ -e "$3/checkpoint/step-$1" ] && [ "$(hash_of "$2/checkpoint/step-$1")" = "$(hash_of "$3/checkpoint/step-$1")" ]
}
on_cuda() { # FOLDER OPTION…
    folder=$1
    shift
    # shellcheck disable=SC2086
    train "$folder" $cuda "$@"
}
fails() { # FAILURE FOLDER OPTION…: as FAKE_CUDA_FAIL says
    FAKE_CUDA_FAIL=$1
    export FAKE_CUDA_FAIL
    shift
    on_cuda "$@"
    unset FAKE_CUDA_FAIL
}
fsdp="--nproc 2 $p.data_parallel_shard_degree 2 --training.local_batch_size 2"
pp="--nproc 2 $p.pipeline_parallel_degree 2 $p.pipeline_parallel_microbatches 4"
four="--training.steps 4 --checkpoint.interval 2 --checkpoint.keep_latest_k 0"

# ---- graphs: a section is captured when it runs for the second time ----
on_cuda "$dir/four" $four && [ $rc -eq 0 ] && [ "$(wc -l <"$dir/four/metrics.jsonl")" -eq 4 ] && ! grep -q 'not captured' "$dir/err"
ok four_steps
on_cuda "$dir/off" $four --debug.capture off && [ $rc -eq 0 ] && same_numbers "$dir/four" "$dir/off" && same_step 4 "$dir/four" "$dir/off"
ok graphs_have_the_bits_of_single_launches
fails 'cuGraphLaunch:1=719' "$dir/launch" $four
[ $rc -ne 0 ] && grep -q '^ttrun: .*cuGraphLaunch: CUDA error 719' "$dir/err" && [ "$(wc -l <"$dir/launch/metrics.jsonl")" -lt 4 ]
ok graphs_are_launched
fails 'cuGraphLaunch:1=719' "$dir/launch_off" $four --debug.capture off
[ $rc -eq 0 ]
ok capture_off_launches_no_graph
fails 'cuStreamBeginCapture_v2:*=801' "$dir/refused" $four
[ $rc -eq 0 ] && grep -q 'W exec. the update is not captured as a graph: .*CUDA error 801' "$dir/err" && same_numbers "$dir/four" "$dir/refused"
ok a_driver_that_cannot_capture_is_told_and_has_the_same_bits
on_cuda "$dir/pp" $four $pp && [ $rc -eq 0 ] && on_cuda "$dir/pp_off" $four $pp --debug.capture off && [ $rc -eq 0 ] &&
    same_numbers "$dir/pp" "$dir/pp_off" && same_step 4 "$dir/pp" "$dir/pp_off"
ok graphs_of_a_pipeline_have_the_bits_of_single_launches
fails 'cuGraphLaunch:1=719' "$dir/pp_launch" $four $pp
[ $rc -ne 0 ] && grep -q 'cuGraphLaunch: CUDA error 719' "$dir/err"
ok graphs_of_a_pipeline_are_launched

# ---- checkpoints ----
on_cuda "$dir/half" $four --training.steps 2 && [ $rc -eq 0 ] && cp -r "$dir/half" "$dir/half_two" && same_step 2 "$dir/four" "$dir/half" &&
    on_cuda "$dir/half" $four && [ $rc -eq 0 ] && grep -q 'resumed from .*step-2' "$dir/err" && same_numbers "$dir/four" "$dir/half" &&
    same_step 4 "$dir/four" "$dir/half"
ok a_resumed_run_has_the_bits_of_one_without_a_stop
on_cuda "$dir/two" $four $fsdp && [ $rc -eq 0 ] && on_cuda "$dir/two_half" $four $fsdp --training.steps 2 && [ $rc -eq 0 ] &&
    on_cuda "$dir/two_half" $four $fsdp && [ $rc -eq 0 ] && grep -q 'resumed from .*step-2' "$dir/err" && same_numbers "$dir/two" "$dir/two_half" &&
    same_step 4 "$dir/two" "$dir/two_half"
ok two_ranks_resume_with_the_bits_of_a_run_without_a_stop
on_cuda "$dir/half_two" $four $fsdp && [ $rc -eq 0 ] && grep -q 'resumed from .*step-2' "$dir/err" && close_to "$dir/four" "$dir/half_two" 1e-6
ok two_ranks_resume_the_save_of_one
train "$dir/ref_half" --backend.name reference $four --training.steps 2
[ $rc -eq 0 ] && on_cuda "$dir/ref_half" $four && [ $rc -eq 0 ] && grep -q 'resumed from .*step-2' "$dir/err" && close_to "$dir/four" "$dir/ref_half" 2e-6
ok cuda_resumes_the_save_of_the_reference

# ---- states in host memory; checks of numbers ----
on_cuda "$dir/offload" $four --training.enable_cpu_offload true && [ $rc -eq 0 ] && same_numbers "$dir/four" "$dir/offload" &&
    same_step 4 "$dir/four" "$dir/offload"
ok states_in_host_memory_have_the_same_bits
bf16="--optimizer.state_dtype bfloat16"
on_cuda "$dir/bf16" $four $bf16 && [ $rc -eq 0 ] && train "$dir/bf16_ref" --backend.name reference $four $bf16 && [ $rc -eq 0 ] &&
    close_to "$dir/bf16" "$dir/bf16_ref" 2e-6 && ! same_step 4 "$dir/four" "$dir/bf16"
ok states_in_bf16
on_cuda "$dir/bf16_off" $four $bf16 --debug.capture off && [ $rc -eq 0 ] && same_step 4 "$dir/bf16" "$dir/bf16_off" &&
    on_cuda "$dir/bf16_unfused" $four $bf16 --debug.disable_fusion true && [ $rc -eq 0 ] && same_step 4 "$dir/bf16" "$dir/bf16_unfused" &&
    on_cuda "$dir/bf16_offload" $four $bf16 --training.enable_cpu_offload true && [ $rc -eq 0 ] && same_step 4 "$dir/bf16" "$dir/bf16_offload"
ok states_in_bf16_have_the_same_bits_captured_fused_and_in_host_memory
on_cuda "$dir/bf16_half" $four $bf16 --training.steps 2 && [ $rc -eq 0 ] && on_cuda "$dir/bf16_half" $four $bf16 && [ $rc -eq 0 ] &&
    same_step 4 "$dir/bf16" "$dir/bf16_half"
ok states_in_bf16_resume_with_the_same_bits
deep="$four --model.args.n_layers 4"
# shellcheck disable=SC2086
{
    on_cuda "$dir/deep" $deep && [ $rc -eq 0 ] && on_cuda "$dir/waits" $deep --activation_checkpoint.offload all && [ $rc -eq 0 ] &&
        grep -q 'activation_checkpoint.offload: [1-9]' "$dir/err" && same_numbers "$dir/deep" "$dir/waits" && same_step 4 "$dir/deep" "$dir/waits" &&
        on_cuda "$dir/waits_full" $deep --activation_checkpoint.offload all --activation_checkpoint.mode full --debug.capture off && [ $rc -eq 0 ] &&
        same_numbers "$dir/deep" "$dir/waits_full" && same_step 4 "$dir/deep" "$dir/waits_full"
    ok activations_in_host_memory_have_the_same_bits
    on_cuda "$dir/deep_two" $deep $fsdp && [ $rc -eq 0 ] && on_cuda "$dir/waits_two" $deep $fsdp --activation_checkpoint.offload all --metrics.lag 1 && [ $rc -eq 0 ] &&
        same_numbers "$dir/deep_two" "$dir/waits_two" && same_step 4 "$dir/deep_two" "$dir/waits_two"
    ok activations_of_two_ranks_in_host_memory_have_the_same_bits
}
for check in detect_nan poison sync; do
    on_cuda "$dir/$check" $four --debug.$check true && [ $rc -eq 0 ] && same_numbers "$dir/four" "$dir/$check" && same_step 4 "$dir/four" "$dir/$check"
    ok "debug_${check}_has_the_same_bits"
done
train "$dir/nan_cpu" --backend.name cpu $four --debug.detect_nan true --optimizer.lr 1e30
tail -n 1 "$dir/err" >"$dir/want"
on_cuda "$dir/nan" $four --debug.detect_nan true --optimizer.lr 1e30
[ $rc -ne 0 ] && tail -n 1 "$dir/err" | cmp - "$dir/want" >>"$dir/out" 2>&1 && grep -q 'step 2.*wrote NaN' "$dir/want"
ok detect_nan_finds_what_it_finds_on_the_cpu

# ---- validation, evaluation, generated text ----
valid="--training.steps 4 --validation.enable true --validation.freq 2 --validation.steps 2 --validation.dataloader.path $dir/text.txt"
for backend in reference cuda; do
    [ $backend = cuda ] || train "$dir/valid_reference" --backend.name reference $valid
    [ $backend = reference ] || on_cuda "$dir/valid_cuda" $valid
    [ $rc -eq 0 ] && sed -n 's/.*"validation":{[^}]*"loss":\([0-9.]*\).*/\1/p' "$dir/valid_$backend/metrics.jsonl" >"$dir/valid.$backend"
done
[ "$(wc -l <"$dir/valid.cuda")" -eq 2 ] && near "$(head -n 1 "$dir/valid.cuda")" "$(head -n 1 "$dir/valid.reference")" 1e-5 &&
    near "$(tail -n 1 "$dir/valid.cuda")" "$(tail -n 1 "$dir/valid.reference")" 2e-5
ok validation_has_the_losses_of_the_reference
train "$dir/trained" --training.steps 60 --training.local_batch_size 8
[ $rc -eq 0 ]
ok a_model_is_trained
both() { # COMMAND OPTION…: on both backends, to $dir/out.reference and $dir/out.cuda
    command=$1
    shift
    ttrun "$command" --checkpoint "$dir/trained" --backend.name reference "$@" >"$dir/out.reference" 2>"$dir/err" &&
        ttrun "$command" --checkpoint "$dir/trained" $cuda "$@" >"$dir/out.cuda" 2>"$dir/err" && [ -s "$dir/out.cuda" ]
    rc=$?
    [ $rc -eq 0 ]
}
both eval --data "$dir/text.txt" --samples 8 --json -q && near "$(value "$dir/out.reference" loss)" "$(value "$dir/out.cuda" loss)" 1e-5
ok eval_has_the_loss_of_the_reference
printf 'line 7\nof a text\n' >"$dir/prompts.txt"
both generate --prompt 'line 1' --prompts "$dir/prompts.txt" --max-tokens 16 --temperature 0 --json && cmp "$dir/out.reference" "$dir/out.cuda" >>"$dir/err" 2>&1
ok greedy_text_is_that_of_the_reference

# ---- other models ----
sed 's/"llama3"/"gpt2"/; s/"n_kv_heads": 2, "hidden_dim": 48, //' "$job" >"$dir/gpt2.json"
sed 's/"llama3"/"qwen3"/; s/"hidden_dim": 48/"head_dim": 16, "hidden_dim": 48/' "$job" >"$dir/qwen3.json"
llama=$job
job=$dir/gpt2.json
same gpt2 2e-6
job=$dir/qwen3.json
same qwen3 2e-6
job=$llama

# ---- a GPU that fails ----
fails 'kernel.rms_norm_warp_f32:9=700' "$dir/fail" $four
[ $rc -ne 0 ] && grep -q '^ttrun: step 2, rank 0: work on the device failed (--debug.sync true names the op): .*CUDA error 700' "$dir/err"
ok a_kernel_that_fails_is_told_with_its_step
fails 'kernel.rms_norm_warp_f32:9=700' "$dir/fail_sync" $four --debug.sync true
[ $rc -ne 0 ] && grep -q '^ttrun: .*step 2.*rms_norm.*CUDA error 700' "$dir/err"
ok debug_sync_names_the_op
fails 'cuMemAlloc_v2:1=2' "$dir/full" $four
[ $rc -ne 0 ] && grep -q '^ttrun: .*device 0 (NVIDIA H200) has no room for [0-9]* bytes' "$dir/err"
ok memory_that_is_not_given_is_told
FAKE_CUDA_MEMORY_MIB=4 on_cuda "$dir/small" $four
[ $rc -eq 2 ] && [ "$(wc -l <"$dir/err")" -eq 1 ] && ! [ -e "$dir/small/metrics.jsonl" ] &&
    grep -q "takes 0.0[0-9]* GiB of the device's memory per rank, and 0.004 of its 0.004 are free; lower training.local_batch_size" "$dir/err"
ok memory_that_is_too_small_is_refused_before_the_first_step
exit $failed
