#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A key that does nothing because of another one, which the job leaves as it is: a line says so, once. None where the other one is set.
. "$(dirname "$0")/lib.sh"
says() { # OPTION...: the lines about keys that are not used are $said
    "$TTRUN" "$job" --plugin-dir "$PLUGINS" --dump_folder "$dir/run" --dry-run "$@" >"$dir/out" 2>"$dir/err"
    rc=$?
    said=$(sed -n 's/.* job\] \(.* not used: .*\)$/\1/p' "$dir/err")
}
bad=
while read -r switch on value key of; do
    is="is not used: $switch is $value"
    says "--$key" "$of" && [ "$said" = "$key $is" ] && [ $rc -eq 0 ] || bad="$bad $key"
    says "--$key" "$of" "--$switch" "$on" --nproc 2 --comm.backend local && [ -z "$said" ] || bad="$bad $key-with-$switch"
done <<'TABLE'
parallelism.pipeline_parallel_degree 2 1 parallelism.pipeline_parallel_schedule GPipe
parallelism.pipeline_parallel_degree 2 1 parallelism.pipeline_parallel_microbatches 2
parallelism.context_parallel_degree 2 1 parallelism.context_parallel_load_balancer none
parallelism.tensor_parallel_degree 2 1 parallelism.enable_async_tensor_parallel true
validation.enable false false validation.freq 3
validation.enable false false validation.at_start true
profiling.enable true false profiling.freq 3
profiling.enable_memory_snapshot true false profiling.memory_snapshot_freq 3
metrics.norms layer off metrics.norms_freq 2
debug.health_check_freq 3 0 debug.health_check_policy stop
debug.replay_interval 3 0 debug.replay_on same
activation_checkpoint.mode selective none activation_checkpoint.selective_ac_option 2
activation_checkpoint.mode budget none activation_checkpoint.memory_budget 0.4
checkpoint.hf_interval 5 0 checkpoint.hf_keep 1
TABLE
[ -z "$bad" ]
ok a_line_for_each_key_that_is_not_used "$bad"
says --validation.freq 3 --validation.steps 2 && [ "$said" = 'validation.freq, validation.steps are not used: validation.enable is false' ]
ok one_line_for_several
says && [ -z "$said" ] && "$TTRUN" config "$job" --plugin-dir "$PLUGINS" --json >"$dir/whole.json" && job=$dir/whole.json && says && [ -z "$said" ]
ok none_for_a_job_that_sets_all_keys
says --parallelism.pipeline_parallel_schedule 2F2B
[ $rc -eq 2 ] && one_line "$dir/err" && grep -q 'pipeline_parallel_schedule.*2F2B' "$dir/err"
ok a_wrong_schedule_is_refused_without_a_pipeline
exit $failed
