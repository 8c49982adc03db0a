#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Hooks at each point of a run, and what happens to the other ranks if one rank fails.
. "$(dirname "$0")/lib.sh"
mkdir -p "$dir/more/hooks"
cc -std=c11 -Wall -Wextra -Werror -shared -fPIC "-I$SRC/include" "$SRC/tests/run/hook.c" -o "$dir/more/hooks/watch.so" >"$dir/out" 2>&1
ok hook_builds_from_the_public_headers
more="--plugin-dir $dir/more"
hook() { # OBJECT: a job with this hook
    job=$dir/hook.json
    echo "{\"extends\": \"job.json\", \"hooks\": [$1]}" >"$job"
}
hook "{\"name\": \"watch\", \"file\": \"$dir/seen\"}"
train "$dir/run" $more --training.steps 3 --metrics.log_freq 100
[ "$rc" -eq 0 ] && [ "$(tr '\n' ' ' <"$dir/seen")" = "open 0/1 before 1 after 1 1 before 2 after 2 1 before 3 after 3 1 close " ]
ok hook_is_called_around_every_step
hook "{\"name\": \"watch\", \"file\": \"$dir/seen2\"}"
train "$dir/two" $more --training.steps 2 --comm.backend local --nproc 2
[ "$rc" -eq 0 ] && [ "$(grep -c open "$dir/seen2")" -eq 1 ]
ok hook_is_called_on_rank_0_only
hook '{"name": "watch", "file": "/no/such/folder/x"}'
train "$dir/bad" $more
[ "$rc" -eq 2 ] && one_line "$dir/err" && grep -q '^ttrun: .*hook watch: cannot write /no/such/folder/x' "$dir/err"
ok hook_that_does_not_open_is_status_2
hook '{"name": "watch", "fyle": "x"}'
train "$dir/unknown" $more
[ "$rc" -eq 2 ] && one_line "$dir/err" && grep -q 'hooks\[0\].fyle: unknown key (did you mean .*file' "$dir/err"
ok hook_options_are_checked
hook '{"name": "fail", "fail_at": 3}'
train "$dir/fail" $more --checkpoint.interval 1
[ "$rc" -eq 1 ] && one_line "$dir/err" && grep -q '^ttrun: .*enough at step 3' "$dir/err" && [ "$(newest "$dir/fail/checkpoint")" = 2 ]
ok hook_that_fails_ends_the_run
for status in -3 999 -4 1; do # two of <ttrun/status.h>, two not
    hook "{\"name\": \"silent\", \"rank\": $status}"
    train "$dir/silent$status" $more
    [ "$rc" -eq 2 ] && one_line "$dir/err" && grep -q '^ttrun: .*hook silent.* failed without a message' "$dir/err"
    ok "hook_that_says_nothing_is_no_success_$status"
done
hook '{"name": "silent", "fail_at": 1}'
train "$dir/silent" $more
[ "$rc" -eq 1 ] && one_line "$dir/err" && grep -q '^ttrun: .*hook silent failed without a message (input/output error)' "$dir/err"
ok hook_that_fails_without_a_message_is_a_failure
for rank in 0 1 3; do
    hook "{\"name\": \"fail\", \"fail_at\": 3, \"rank\": $rank}"
    train "$dir/ranks$rank" $more --comm.backend local --nproc 4 --parallelism.tensor_parallel_degree 2
    [ "$rc" -eq 1 ] && one_line "$dir/err" && grep -q "^ttrun: rank $rank: .*enough at step 3" "$dir/err"
    ok "rank_${rank}_that_fails_ends_all_and_is_named"
done
# ---- every point of a run ----
seen() { tr '\n' ',' <"$dir/all.$1"; }
hook "{\"name\": \"all\", \"file\": \"$dir/all\"}"
validates="--validation.enable true --validation.freq 4 --validation.steps 1 --validation.dataloader.path $dir/text.txt"
train "$dir/all_run" $more --training.steps 4 --checkpoint.interval 2 --checkpoint.snapshot_interval 3 --checkpoint.keep_every 4 --checkpoint.async_mode disabled --checkpoint.hf_interval 2 $validates
step() { echo "before $1,backward $1,after $1 1,"; }
[ "$rc" -eq 0 ] && [ "$(seen 0)" = "open 0/1,start 0 of 4, 0 tokens,$(step 1)$(step 2)saved step-2 at 2 256,saved hf step-2 model at 2 256,$(step 3)saved step-3 snapshot at 3 384,$(step 4)saved step-4 kept at 4 512,validated 4 validation/loss,saved hf step-4 model at 4 512,end 4 done,close," ]
ok hook_is_told_of_every_point_of_a_run
rm -f "$dir"/all.*
train "$dir/all_two" $more --training.steps 3 --checkpoint.interval 2 --checkpoint.hf_interval 2 $validates --nproc 2
[ "$rc" -eq 0 ] && grep -v -e validated -e 'saved hf' -e open "$dir/all.0" >"$dir/a" && grep -v open "$dir/all.1" | diff "$dir/a" - &&
    [ "$(grep -c '^saved step' "$dir/all.1")" -eq 2 ] && [ "$(grep -c 'saved hf' "$dir/all.0")" -eq 2 ] && ! grep -q gone "$dir"/all.*
ok hooks_of_all_ranks_see_the_same
rm -f "$dir"/all.*
train "$dir/all_two" $more --training.steps 4 --nproc 2
[ "$rc" -eq 0 ] && grep -q '^start 3 of 4, 768 tokens$' "$dir/all.1" && [ "$(grep -c '^backward' "$dir/all.1")" -eq 1 ]
ok hook_is_told_where_a_run_resumes
rm -f "$dir"/all.*
hook "{\"name\": \"all\", \"file\": \"$dir/all\", \"fail_backward\": 3}"
train "$dir/all_fail" $more --checkpoint.interval 1
[ "$rc" -eq 1 ] && one_line "$dir/err" && grep -q '^ttrun: .*enough after the backward of 3' "$dir/err" && grep -q '^end 2 failed: .*enough after the backward of 3$' "$dir/all.0" && [ "$(newest "$dir/all_fail/checkpoint")" = 2 ]
ok hook_that_fails_before_the_update_ends_the_run
rm -f "$dir"/all.*
hook "{\"name\": \"all\", \"file\": \"$dir/all\"}"
train "$dir/all_model" $more --training.steps 2 --checkpoint.last_save_model_only true
[ "$rc" -eq 0 ] && grep -q '^saved step-2 model at 2 256$' "$dir/all.0"
ok hook_is_told_that_weights_alone_are_saved
# ---- a plugin that calls exit() makes no success of the run ----
for code in 0 7; do
    hook "{\"name\": \"fail\", \"fail_at\": 3, \"rank\": -1, \"code\": $code}"
    for ranks in "" "--comm.backend local --nproc 2" "--nproc 2"; do
        train "$dir/exit" $more --resume never $ranks
        [ "$rc" -eq 1 ] && one_line "$dir/err" && grep -q '^ttrun: a plugin or a library called exit() before the run was done; ' "$dir/err"
        ok "exit_${code}_of_a_plugin_is_a_failure${ranks:+_with$(echo "$ranks" | tr -c 'a-z0-9\n' _)}"
    done
done
for how in 1 2; do # _exit(0) and quick_exit(0)
    hook "{\"name\": \"fail\", \"fail_at\": 3, \"rank\": -1, \"code\": 0, \"at_once\": $how}"
    for ranks in "" "--nproc 2"; do
        train "$dir/exit" $more --resume never $ranks
        [ "$rc" -eq 1 ] && one_line "$dir/err" && grep -q '^ttrun: a plugin or a library called exit() before the run was done; ' "$dir/err" || break 2
    done
done
[ "$rc" -eq 1 ] && [ "$how" = 2 ]
ok an_exit_past_the_handlers_is_a_failure
hook '{"name": "fail", "fail_at": 3, "rank": -1, "closes": 1}'
train "$dir/closed" $more --resume never --checkpoint.interval 5 # it hung when it had failed
[ "$rc" -eq 1 ] && grep -q '^ttrun: .*\.lock: its descriptor is closed: a plugin or a library closes descriptors' "$dir/err"
ok a_plugin_that_closes_all_descriptors_ends_the_run
hook '{"name": "fail", "fail_at": 3, "rank": 1, "code": 0}'
train "$dir/exit" $more --resume never --nproc 2
[ "$rc" -eq 1 ] && one_line "$dir/err" && grep -q '^ttrun: a plugin or a library called exit() before the run was done; ' "$dir/err"
ok exit_of_one_rank_is_a_failure_of_all
hook '{"name": "fail", "fail_at": 3, "code": 7, "threads": 600}'
train "$dir/exit" $more --resume never
[ "$rc" -eq 1 ] && one_line "$dir/err" && grep -q '^ttrun: a plugin or a library called exit() before the run was done; ' "$dir/err"
ok exit_of_600_threads_at_once_is_a_failure
exit $failed
