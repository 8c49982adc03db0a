#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# ttrun plan and profiles on the backend "far" (tests/plugins/far): a named machine is the backend's to know, memory of the device and pinned
# memory are counted apart, and limits that nobody measured are not made up.
. "$(dirname "$0")/lib.sh"
mkdir -p "$dir/far/backends"
cp "$BUILD/tests/plugins/far/far.so" "$dir/far/backends/"
train "$dir/run" --plugin-dir "$dir/far" --backend.name far --profile --training.steps 2 --profiling.profile_freq 1
[ "$rc" -eq 0 ] && grep -q 'limits measured on rank 0 (.*): arithmetic not known, memory bandwidth not known$' "$dir/err"
ok limits_of_a_device_are_not_measured_on_the_host
[ "$(grep -c '"op":' "$dir/run/profile/ops.jsonl")" -gt 10 ] && ! grep '"op":' "$dir/run/profile/ops.jsonl" | grep -qv '"bound_s":0}' &&
    ! grep -qi 'inf\|nan' "$dir/run/profile/ops.jsonl"
ok no_roofline_without_limits
cat >"$dir/job.json" <<END
{"spec":"llama3","model":{"flavor":"debugmodel"},"dataloader":{"path":["x.txt"]},"training":{"local_batch_size":4,"seq_len":64},"backend":{"name":"far"}}
END
plan() { # OPTION…: to $dir/out and $dir/err
    "$TTRUN" plan "$dir/job.json" --plugin-dir "$PLUGINS" --plugin-dir "$dir/far" "$@" >"$dir/out" 2>"$dir/err"
    rc=$?
}
plan && [ "$rc" -eq 0 ] && grep -q '^memory  .* GiB of the device per rank$' "$dir/out" &&
    grep -q '^pinned  .* GiB of host memory per rank$' "$dir/out" && [ "$(grep -c '^  *inputs  *0' "$dir/out")" -eq 2 ] &&
    grep -q '^  *staging  *0.008' "$dir/out" && grep -q '^  *saving  *0.0.* the copy that a save writes from' "$dir/out" && ! grep -q '^fits' "$dir/out"
ok plan_counts_the_device_and_pinned_memory_apart
plan --hardware h200
[ "$rc" -eq 2 ] && [ "$(wc -l <"$dir/err")" -eq 1 ] && grep -q 'backend far has no answers for the machine "h200"' "$dir/err" && ! [ -s "$dir/out" ]
ok a_machine_that_the_backend_does_not_know_is_one_line
echo '{"name":"far","flops_f32":1e12,"memory_bytes":1e8}' >"$dir/far.json"
plan --hardware "$dir/far.json" && [ "$rc" -eq 0 ] && grep -q '^fits        NO: 0.122 GiB per rank; far has 0.093 GiB per rank$' "$dir/out"
ok plan_for_a_machine_that_the_backend_knows
# backend auto: the machine that is planned for decides, not the one that plans.
auto() { # NAME OPTION…: the plan of the job with backend auto, and its log
    name=$1
    shift
    "$TTRUN" plan "$dir/auto.json" --plugin-dir "$PLUGINS" "$@" >"$dir/$name.out" 2>"$dir/err"
    rc=$?
    cp "$dir/$name.out" "$dir/out"
    [ "$rc" -eq 0 ]
}
sed 's/"backend":{[^}]*}/"backend":{"name":"auto"}/' "$dir/job.json" >"$dir/auto.json"
auto h200 --hardware h200 && auto cuda --hardware h200 --backend.name cuda && cmp "$dir/h200.out" "$dir/cuda.out" >>"$dir/err" &&
    grep -q '^memory .* GiB of the device' "$dir/h200.out" && grep -q '^pinned ' "$dir/h200.out"
ok auto_takes_cuda_for_a_machine_that_it_knows
auto named --hardware h200 --backend.name cpu && ! grep -q '^pinned ' "$dir/named.out"
ok a_named_backend_stays
auto unknown --hardware "$dir/far.json" && auto cpu --hardware "$dir/far.json" --backend.name cpu && cmp "$dir/unknown.out" "$dir/cpu.out" >>"$dir/err" &&
    ! grep -q '^pinned ' "$dir/unknown.out"
ok auto_takes_the_cpu_for_a_machine_that_no_backend_knows
exit $failed
