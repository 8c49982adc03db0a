#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Checkpoints of the backend "far" (tests/plugins/far), whose memory the host cannot read: they have the bytes of the reference's, and
# both resume from each other's. And saves are copied beside the next step: what a save holds does not depend on how long its copies take.
. "$(dirname "$0")/lib.sh"
mkdir -p "$dir/far/backends"
cp "$BUILD/tests/plugins/far/far.so" "$dir/far/backends/"
ref="--plugin-dir $dir/far --backend.name reference"
far="--plugin-dir $dir/far --backend.name far"

numbers() { # metrics.jsonl without what differs from run to run
    without_times "$1/metrics.jsonl"
}
same_numbers() { numbers "$1" >"$dir/a" && numbers "$2" >"$dir/b" && [ -s "$dir/a" ] && cmp "$dir/a" "$dir/b" >>"$dir/err" 2>&1; }
same_steps() { # A B STEP…: the tensors of these checkpoints are equal
    (
        a=$1 b=$2
        shift 2
        for step; do
            [ -e "$b/checkpoint/step-$step" ] && [ "$(hash_of "$a/checkpoint/step-$step")" = "$(hash_of "$b/checkpoint/step-$step")" ] || exit 1
        done
    )
}

# ---- every step is saved; the model has buffers, which updates change too ----
cc -std=c11 -w -O1 -fPIC -shared -fvisibility=hidden "-I$SRC/include" "$SRC/tests/run/buffers.c" "-L$BUILD" -lttrun -lm -o "$dir/far/buffered.so"
ok plugin_with_buffers_builds
sed 's|"model": {.*|"model": { "name": "buffered" }, "comm": { "backend": "local" },|; /"args": {/d' "$job" >"$dir/buffers.json"
llama=$job job=$dir/buffers.json
every="--training.steps 4 --checkpoint.interval 1 --checkpoint.keep_latest_k 0"
train "$dir/every" $ref $every --checkpoint.async_mode disabled
[ $rc -eq 0 ] && [ "$(hash_of "$dir/every/checkpoint/step-1")" != "$(hash_of "$dir/every/checkpoint/step-2")" ]
ok every_step_is_saved
train "$dir/async" $ref $every
[ $rc -eq 0 ] && same_steps "$dir/every" "$dir/async" 1 2 3 4 && same_numbers "$dir/every" "$dir/async"
ok a_save_beside_the_next_step_has_the_same_bytes
seeds=2
! is_long || seeds="0 1 2 3"
for seed in $seeds; do
    train "$dir/every-$seed" $far --backend.seed $seed $every
    [ $rc -eq 0 ] && same_steps "$dir/every" "$dir/every-$seed" 1 2 3 4 && same_numbers "$dir/every" "$dir/every-$seed"
    ok "far_saves_the_bytes_of_the_reference_seed_$seed"
done
train "$dir/every-offload" $far --training.enable_cpu_offload true $every
[ $rc -eq 0 ] && same_steps "$dir/every" "$dir/every-offload" 1 2 3 4 && same_numbers "$dir/every" "$dir/every-offload"
ok far_saves_the_same_bytes_with_states_in_host_memory
for then in true false; do # a run goes on with its states where they were not before
    first=$([ $then = true ] && echo false || echo true)
    train "$dir/go-on" $far --training.enable_cpu_offload $first $every --training.steps 2
    train "$dir/go-on" $far --training.enable_cpu_offload $then $every
    [ $rc -eq 0 ] && same_steps "$dir/every" "$dir/go-on" 1 2 3 4
    ok "a_run_resumes_with_enable_cpu_offload_$then"
    rm -rf "$dir/go-on"
done
train "$dir/every-disabled" $far $every --checkpoint.async_mode disabled
[ $rc -eq 0 ] && same_steps "$dir/every" "$dir/every-disabled" 1 2 3 4
ok far_saves_the_same_bytes_with_async_mode_disabled

# A copy that is made only when training waits for it.
case $BUILD in */asan | */tsan) ;; *)
    preload held
    ok held_copies_build
    held() { # FOLDER OPTION…
        folder=$1
        shift
        HELD=last LD_PRELOAD=$dir/held.so "$TTRUN" "$job" --plugin-dir "$PLUGINS" --dump_folder "$folder" "$@" >"$dir/out" 2>"$dir/err"
        rc=$?
    }
    two="--checkpoint.interval 1 --checkpoint.keep_latest_k 0 --training.steps 2"
    held "$dir/held" $ref $two
    [ $rc -eq 0 ] && same_steps "$dir/every" "$dir/held" 1 2
    ok the_update_waits_for_the_copies_of_a_save
    held "$dir/held-far" $far $two
    [ $rc -eq 0 ] && same_steps "$dir/every" "$dir/held-far" 1 2
    ok the_update_waits_for_the_copies_of_a_save_on_far
    ;;
esac

# A tensor of 9 MiB, which crosses in several pieces.
big="--model.args.dim 256 --model.args.vocab_size 9000 --model.args.n_layers 1 --model.args.tie_embeddings true --training.local_batch_size 1 --training.seq_len 8
    --checkpoint.interval 1"
job=$llama
train "$dir/big" $ref $big --training.steps 2 --checkpoint.async_mode disabled
[ $rc -eq 0 ] && train "$dir/big-far" $far $big --training.steps 1 && [ "$rc" -eq 0 ] && train "$dir/big-far" $far $big --training.steps 2 &&
    [ "$rc" -eq 0 ] && same_steps "$dir/big" "$dir/big-far" 1 2 && same_numbers "$dir/big" "$dir/big-far"
ok far_saves_and_resumes_large_tensors
rm -rf "$dir/big" "$dir/big-far"

# ---- resume: with the bits of a run that did not stop, on either backend from what the other saved ----
six="--training.steps 6 --checkpoint.interval 3 --checkpoint.keep_latest_k 0 --lr_scheduler.warmup_steps 2"
train "$dir/six" $ref $six
[ $rc -eq 0 ]
ok six_steps_without_a_stop
half() { # NAME BACKEND-OPTION…: steps 1 to 3, saved at 3
    name=$1
    shift
    train "$dir/$name" "$@" $six --training.steps 3
    [ "$rc" -eq 0 ] && same_steps "$dir/six" "$dir/$name" 3
}
rest() { # NAME OPTION…: steps 4 to 6
    name=$1
    shift
    train "$dir/$name" "$@" $six
    [ "$rc" -eq 0 ] && grep -q 'resumed from .*step-3' "$dir/err" && same_numbers "$dir/six" "$dir/$name" && same_steps "$dir/six" "$dir/$name" 3 6
}
half far_far $far && rest far_far $far --backend.seed 2
ok far_resumes_what_far_saved
half far_ref $far --backend.seed 3 && rest far_ref $ref
ok the_reference_resumes_what_far_saved
half ref_far $ref && rest ref_far $far
ok far_resumes_what_the_reference_saved

# ---- the same on two ranks that each hold a half; with far's communicator and with the host's between copies ----
one=$dir/six
fsdp="--nproc 2 --parallelism.data_parallel_shard_degree 2 --training.local_batch_size 2"
train "$dir/two" $ref $fsdp --comm.backend local $six
[ $rc -eq 0 ] && mv "$one" "$dir/one" && mv "$dir/two" "$dir/six"
ok two_ranks_without_a_stop
for comm in local far; do
    half "two_$comm" $far $fsdp --comm.backend $comm && rest "two_$comm" $far $fsdp --comm.backend $comm
    ok "two_ranks_of_far_resume_their_save_$comm"
done
half two_ref $far $fsdp --comm.backend far && rest two_ref $ref $fsdp --comm.backend local
ok two_ranks_of_the_reference_resume_what_two_of_far_saved
# one rank's save on two ranks of far: with the reference's bits
for backend in ref far; do
    cp -r "$dir/one" "$dir/from_one_$backend" && rm -r "$dir/from_one_$backend/checkpoint/step-6"
done
train "$dir/from_one_ref" $ref $fsdp --comm.backend local $six
[ $rc -eq 0 ] && train "$dir/from_one_far" $far $fsdp --comm.backend far $six && [ $rc -eq 0 ] &&
    same_numbers "$dir/from_one_ref" "$dir/from_one_far" && same_steps "$dir/from_one_ref" "$dir/from_one_far" 3 6
ok two_ranks_of_far_resume_the_save_of_one

# ---- a stop between: saved on far, and continued ----
start "$dir/stop" $far --training.steps 100000 --checkpoint.interval 100000
until_true has_lines "$dir/stop/metrics.jsonl" 3 && kill -TERM $pid
wait $pid
rc=$?
at=$(newest "$dir/stop/checkpoint")
[ $rc -eq 4 ] && [ "$at" -ge 3 ] && train "$dir/stop" $far --training.steps $((at + 1)) && [ "$(value "$dir/stop/metrics.jsonl" step)" = $((at + 1)) ]
ok a_stop_saves_on_far

# ---- Hugging Face: exported by a run on far, and loaded from there ----
hf="--training.steps 2 --checkpoint.last_save_in_hf true --training.mixed_precision_param bfloat16"
train "$dir/hf_ref" $ref $hf
[ $rc -eq 0 ] && train "$dir/hf_far" $far $hf && [ "$rc" -eq 0 ] && [ "$(hash_of "$dir/hf_ref/hf/latest")" = "$(hash_of "$dir/hf_far/hf/latest")" ]
ok far_exports_the_files_of_the_reference
load="--training.steps 2 --checkpoint.enable false --checkpoint.initial_load_path $dir/hf_far/hf/latest"
train "$dir/load_ref" $ref $load
[ $rc -eq 0 ] && train "$dir/load_far" $far $load && [ "$rc" -eq 0 ] && grep -q "Hugging Face's" "$dir/err" && same_numbers "$dir/load_ref" "$dir/load_far"
ok far_loads_weights_from_a_hugging_face_folder
train "$dir/load_two" $ref $fsdp --comm.backend local $load
[ $rc -eq 0 ] && train "$dir/load_two_far" $far $fsdp --comm.backend far $load && [ "$rc" -eq 0 ] && same_numbers "$dir/load_two" "$dir/load_two_far"
ok two_ranks_of_far_load_weights_from_a_hugging_face_folder
step="--training.steps 2 --checkpoint.enable false --checkpoint.initial_load_path $dir/one/checkpoint/step-3"
train "$dir/step_ref" $ref $step
[ $rc -eq 0 ] && train "$dir/step_far" $far $step && [ "$rc" -eq 0 ] && same_numbers "$dir/step_ref" "$dir/step_far"
ok far_loads_weights_from_a_checkpoint
exit $failed
