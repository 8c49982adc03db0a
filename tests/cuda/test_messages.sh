#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What a user reads who asks for the backend cuda where it cannot run, and what "auto" takes. On the driver of tests/fake.
. "$(dirname "$0")/../script.sh"
fake=$BUILD/tests/fake/lib
echo "a line of text" >"$dir/text.txt"
cat >"$dir/job.json" <<'JOB'
{ "spec": "llama3", "dump_folder": "out", "model": { "flavor": "debugmodel" }, "tokenizer": { "name": "byte" },
  "dataloader": { "name": "text", "path": ["text.txt"] }, "training": { "seq_len": 64, "local_batch_size": 1 } }
JOB
plan() { "$TTRUN" plan "$@" "$dir/job.json" >"$dir/out" 2>"$dir/err"; }
# refuses NAME WORDS [ARGUMENT…]: status 2 and one line that has the words
refuses() {
    name=$1 words=$2
    shift 2
    plan --backend.name cuda --backend.libraries "$fake" "$@"
    [ $? -eq 2 ] && [ "$(grep -c . "$dir/err")" -eq 1 ] && grep -qF -- "$words" "$dir/err" && grep -q "backend.name" "$dir/err"
    ok "$name"
}
with() { # VARIABLE=VALUE refuses …
    export "${1?}"
    shift
    "$@"
    unset FAKE_CUDA_VERSION FAKE_CUDA_DEVICES FAKE_CUDA_CHIP FAKE_CUDA_FAIL
}
with FAKE_CUDA_VERSION=11040 refuses an_old_driver_says_which_is_needed "is of CUDA 11.4; CUDA 12.0 (driver 525) or newer is needed"
with FAKE_CUDA_DEVICES=0 refuses no_GPU_is_said "CUDA_ERROR_NO_DEVICE"
with FAKE_CUDA_CHIP=t4 refuses an_old_GPU_is_named "device 0 (Tesla T4) has compute capability 7.5; 8.0 (Ampere) or newer is needed"
with FAKE_CUDA_FAIL='cuInit:*=34' refuses a_stub_is_told "is the toolkit's stub"
with FAKE_CUDA_FAIL='cuInit:*=803' refuses a_driver_that_differs_from_the_kernel_module_is_told "of different versions: reboot"
with FAKE_CUDA_FAIL='cuDeviceGetAttribute:1=999' refuses a_failed_question_is_told "cuDeviceGetAttribute 75 of device 0"
refuses a_device_that_is_not_there_is_told "there is no device 5; this process sees 1" --backend.device 5
mkdir "$dir/empty"
if ldconfig -p 2>/dev/null | grep -q libcuda.so.1; then
    echo "ok no_driver_is_skipped_where_there_is_one"
else
    refuses no_driver_says_what_was_searched "no NVIDIA driver: libcuda.so.1 was not found (searched backend.libraries ($dir/empty), ld.so" \
        --backend.libraries "$dir/empty"
fi

# takes NAME BACKEND [ARGUMENT…]: "auto" takes that one
takes() {
    name=$1 backend=$2
    shift 2
    plan -v "$@"
    grep -q "backend auto: $backend\(,\|\$\)" "$dir/err"
    ok "$name"
}
takes auto_is_cuda_where_a_GPU_is cuda --backend.libraries "$fake"
export LD_LIBRARY_PATH="$fake${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
takes auto_finds_the_driver_by_itself cuda
takes auto_is_the_backend_that_knows_the_keys cpu --backend.isa generic
export FAKE_CUDA_CHIP=t4
takes auto_is_cpu_where_the_GPU_is_too_old cpu
plan
grep -q "backend auto: not cuda: device 0 (Tesla T4) has compute capability 7.5" "$dir/err"
ok a_GPU_that_is_not_used_is_told
unset FAKE_CUDA_CHIP
exit $failed
