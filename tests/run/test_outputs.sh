#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What a run and the other commands write: files, streams, exit statuses.
. "$(dirname "$0")/lib.sh"
export TTRUN_PLUGIN_PATH="$PLUGINS"
run=$dir/run
says() { # NAME STATUS COMMAND...: streams to $dir/out and $dir/err
    name=$1 want=$2
    shift 2
    "$@" >"$dir/out" 2>"$dir/err" </dev/null
    rc=$?
    [ $rc -eq "$want" ]
}
field() { value "$run/metrics.jsonl" "$1" "${2:-10}" >"$dir/field" 2>/dev/null && cat "$dir/field"; }

# ---- a run's files and streams ----
train "$run" --training.steps 10 --metrics.enable_tensorboard true --training.global_batch_size 8
[ "$rc" -eq 0 ] && ! [ -s "$dir/out" ]
ok training_leaves_stdout_empty
[ "$(grep -c '^\[r0 +[0-9.]*s I train\] step: *[0-9]*  loss: *[0-9.]*  grad_norm: *[0-9.]*  memory: *[0-9.]*GiB  tps: [0-9,]*  tflops: [0-9.]*  mfu: [0-9.NA/%]*  lr: [0-9.e-]*$' "$dir/err")" -eq 10 ]
ok console_has_one_line_per_step
[ "$(wc -l <"$run/metrics.jsonl")" -eq 10 ] && [ "$(losses "$run/metrics.jsonl" | wc -l)" -eq 10 ] &&
    [ "$(head -n 1 "$run/metrics.jsonl" | sed 's/,.*//')" = '{"step":1' ]
ok metrics_has_one_line_per_step
missing=
for key in step epoch loss loss_max grad_norm lr tokens n_tokens_seen tps tps_global tflops mfu mem_gib time_s time.data \
    time.forward_backward time.optimizer time.comm_exposed time.checkpoint wall; do
    field $key >"$dir/out" || missing="$missing $key"
done
[ -z "$missing" ]
ok "metrics_has_every_member$missing"
[ "$(field tokens)" = 256 ] && [ "$(field n_tokens_seen)" = 2560 ] && [ "$(field epoch)" = 0 ] && near "$(field lr)" 0.01 1e-12
ok metrics_counts_tokens_of_the_global_batch
field wall | grep -q '^20[0-9][0-9]-[01][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-5][0-9]\.[0-9]*Z$'
ok metrics_wall_is_utc
awk -v g="$(field tps_global)" -v r="$(field tps)" -v t="$(field time_s)" -v f="$(field tflops)" \
    'BEGIN {e = g * t / 256; exit !(g == r && e > 0.95 && e < 1.05 && f > 0)}'
ok metrics_speed_is_tokens_over_time
awk -v t="$(field time_s)" -v a="$(field time.data)" -v b="$(field time.forward_backward)" -v c="$(field time.optimizer)" \
    'BEGIN {exit !(a + b + c <= t * 1.001)}'
ok metrics_parts_of_a_step_fit_into_it
ls "$run"/tb/events.out.tfevents.* >"$dir/out" 2>&1
ok tensorboard_file_is_there
[ "$(value "$run/run.json" job.training.steps)" = 10 ] && [ "$(value "$run/run.json" world)" = 1 ] &&
    [ -n "$(value "$run/run.json" ttrun)" ] && [ -n "$(value "$run/run.json" host)" ] &&
    value "$run/run.json" backend | grep -q . && [ "$(value "$run/run.json" plugins.0.xxh3_128 | wc -c)" -eq 33 ]
ok run_json_has_job_versions_and_hashes
start() { value "$dir/starts/run.json" "starts.$1"; }
train "$dir/starts" --training.steps 3
train "$dir/starts" --training.steps 5 --optimizer.lr 0.02
[ "$rc" -eq 0 ] && [ "$(start 0.from_step) $(start 0.to_step) $(start 0.status)" = "0 3 done" ] && [ "$(start 1.from_step) $(start 1.to_step) $(start 1.status)" = "3 5 done" ] &&
    [ "$(start 1.changed.0)" = "training.steps: 3 → 5" ] && [ "$(start 1.changed.1)" = "optimizer.lr: 0.01 → 0.02" ] && [ -n "$(start 1.started)" ] && [ -n "$(start 1.ended)" ] && [ "$(start 1.world)" = 1 ]
ok run_json_lists_the_starts
train "$dir/starts" --training.steps 9 --optimizer.lr 1e38
[ "$rc" -eq 3 ] && start 2.status | grep -q '^failed: step 7: grad_norm is NaN' && [ "$(start 2.to_step)" = 6 ]
ok run_json_says_why_a_start_failed
: >"$dir/out" 2>"$dir/err"
"$TTRUN" "$job" --dump_folder "$dir/starts" --training.steps 100000000 --plugin-dir "$PLUGINS" >"$dir/out" 2>"$dir/err" &
pid=$!
until_true grep -q 'step: *[1-9][0-9]' "$dir/err"
kill -TERM $pid && wait $pid
start 3.status | grep -q '^stopped by SIGTERM after step [0-9]*, saved$'
ok run_json_says_that_a_start_was_stopped
: >"$dir/out" 2>"$dir/err"
"$TTRUN" "$job" --dump_folder "$dir/starts" --training.steps 100000000 --plugin-dir "$PLUGINS" >"$dir/out" 2>"$dir/err" &
pid=$!
until_true grep -q 'step: *[1-9][0-9]' "$dir/err"
kill -KILL $pid && wait $pid 2>/dev/null
[ -n "$(start 4.started)" ] && [ -z "$(start 4.ended)" ]
ok a_start_that_was_killed_has_no_end
printf '{"starts": [1, {"x": ' >"$dir/starts/run.json"
train "$dir/starts" --training.steps 100000000 --checkpoint.create_seed_checkpoint true
[ "$rc" -ne 0 ] && [ "$(start 0.status | cut -c 1-7)" = "failed:" ]
ok run_json_that_is_cut_off_is_replaced
train "$dir/kept" --training.steps 2 --debug.save_config_file "$dir/kept.json"
said=$rc
says again 0 "$TTRUN" "$dir/kept.json" --dump_folder "$dir/again" && [ "$said" -eq 0 ] &&
    [ "$(losses "$dir/again/metrics.jsonl")" = "$(losses "$dir/kept/metrics.jsonl")" ] &&
    [ "$(value "$dir/kept.json" training.max_norm)" = 1 ] && [ "$(value "$dir/kept.json" training.steps)" = 2 ]
ok save_config_file_is_a_job_file
says config_file 2 "$TTRUN" "$job" --dump_folder "$dir/unkept" --debug.save_config_file "$dir/no/kept.json"
grep -q 'debug.save_config_file: .*no/kept.json' "$dir/err"
ok save_config_file_that_cannot_be_written_is_named
mkdir -p "$dir/repo/.git/refs/heads"
echo "ref: refs/heads/main" >"$dir/repo/.git/HEAD"
echo "0123456789abcdef0123456789abcdef01234567" >"$dir/repo/.git/refs/heads/main"
cp "$dir/job.json" "$dir/text.txt" "$dir/repo/"
says git 0 "$TTRUN" "$dir/repo/job.json" --dump_folder "$dir/repo/run" --training.steps 1 &&
    [ "$(value "$dir/repo/run/run.json" git)" = 0123456789abcdef0123456789abcdef01234567 ]
ok run_json_has_the_git_revision
train "$dir/two" --training.steps 4 --comm.backend local --nproc 2
tps=$(value "$dir/two/metrics.jsonl" tps 4) all=$(value "$dir/two/metrics.jsonl" tps_global 4)
near "$(awk -v t="$tps" 'BEGIN {print 2 * t}')" "$all" 1 && [ "$(value "$dir/two/metrics.jsonl" tokens 4)" = 256 ]
ok metrics_tps_is_per_rank
train "$dir/freq" --metrics.log_freq 4
[ "$(losses "$dir/freq/metrics.jsonl" | cut -d ' ' -f 1 | tr '\n' ' ')" = "1 4 8 10 " ]
ok log_freq_logs_first_multiples_and_last
train "$dir/quiet" -q
[ "$rc" -eq 0 ] && ! [ -s "$dir/err" ] && ! [ -s "$dir/out" ] && [ "$(wc -l <"$dir/quiet/metrics.jsonl")" -eq 10 ]
ok quiet_is_silent
train "$dir/verbose" -v
[ "$(grep -c 'D time\] \|D setup\] \|D plan\] ' "$dir/err")" -ge 12 ] && grep -q 'D setup\] optimizer adamw: /.*adamw.so$' "$dir/err" &&
    grep -q 'D plan\] kernels of the program: .* linear' "$dir/err" && grep -q 'D plan\] schedule ' "$dir/err" && grep -q "D time" "$dir/err"
ok verbose_tells_what_was_chosen
! grep -q "$(printf '\033')" "$run.err" "$dir/err" 2>/dev/null
ok no_colour_in_a_pipe
if command -v script >/dev/null && script -qec true /dev/null </dev/null >/dev/null 2>&1; then
    pty() { # PREFIX...: on a terminal; options in $more
        script -qec "$* $TTRUN $dir/job.json --dump_folder $dir/pty$pty --training.steps 300 --metrics.log_freq 100 ${more-}" \
            /dev/null </dev/null >"$dir/pty"
    }
    pty=1 TERM=xterm pty env -u NO_COLOR
    grep -q "train *[0-9]*% .*tps" "$dir/pty" && grep -q "$(printf '\033\\[3')" "$dir/pty"
    ok progress_bar_on_a_terminal
    pty=2 TERM=xterm pty env NO_COLOR=1
    ! grep -q "$(printf '\033\\[3')" "$dir/pty"
    ok no_color_is_obeyed
    pty=3 more="--metrics.enable_progress_bar false" TERM=xterm pty env
    grep -q "step: *300 " "$dir/pty" && ! grep -q "train *[0-9]*%" "$dir/pty"
    ok progress_bar_can_be_switched_off
else
    for name in progress_bar_on_a_terminal no_color_is_obeyed progress_bar_can_be_switched_off; do skip $name "script(1) gives no terminal here"; done
fi

# ---- plans ----
says dry 0 "$TTRUN" "$dir/job.json" --dry-run --dump_folder "$dir/dry" && grep -q '^memory ' "$dir/out" && ! [ -e "$dir/dry" ]
ok dry_run_prints_the_plan_and_writes_nothing
says plan 0 "$TTRUN" plan "$dir/job.json" --json && cp "$dir/out" "$dir/plan.json" &&
    [ "$(value "$dir/plan.json" parameters)" = "$(value "$run/run.json" parameters)" ] && [ "$(value "$dir/plan.json" fits)" = true ] &&
    [ "$(value "$dir/plan.json" step_time_s)" = null ] && near "$(value "$dir/plan.json" bubble)" 0 0
ok plan_json_is_one_object
awk -v s="$(value "$dir/plan.json" bytes_per_rank.state)" -v l="$(value "$dir/plan.json" bytes_per_rank.slot)" \
    -v w="$(value "$dir/plan.json" bytes_per_rank.work)" -v p="$(value "$dir/plan.json" bytes_per_rank.peak)" \
    -v c="$(value "$dir/plan.json" bytes_per_rank.saving)" 'BEGIN {exit !(s > 0 && c > 0 && s + l + w + c == p)}'
ok plan_bytes_add_up
# a save in the background copies parameters and AdamW's two states: 12 bytes per parameter
n=$(value "$dir/plan.json" parameters)
says saving 0 "$TTRUN" plan "$dir/job.json" --json --checkpoint.async_mode disabled &&
    [ "$(value "$dir/plan.json" bytes_per_rank.saving)" -ge $((12 * n)) ] && [ "$(value "$dir/out" bytes_per_rank.saving)" = 0 ] &&
    says nosave 0 "$TTRUN" plan "$dir/job.json" --json --checkpoint.enable false && [ "$(value "$dir/out" bytes_per_rank.saving)" = 0 ]
ok plan_counts_the_copy_of_a_save
# 4 × 2048 tokens by 262144 ids would be 8.6 GB of logits, and as much of their gradient
says logits 0 "$TTRUN" plan "$dir/job.json" --training.seq_len 2048 --model.args.vocab_size 262144 --json &&
    awk -v w="$(value "$dir/out" bytes_per_rank.work)" 'BEGIN {exit !(w > 0 && w < 4 * 2048 * 262144 * 4 / 10)}'
ok plan_does_not_hold_all_logits
says big 0 "$TTRUN" plan "$dir/job.json" --model.args.dim 65536 --model.args.n_layers 8 --json && [ "$(value "$dir/out" fits)" = false ]
ok plan_exits_0_if_the_job_does_not_fit
says pipe 0 "$TTRUN" plan "$dir/job.json" --world 4 --parallelism.pipeline_parallel_degree 2 --json &&
    awk -v b="$(value "$dir/out" bubble)" 'BEGIN {exit !(b > 0 && b < 1)}'
ok plan_of_a_pipeline_has_a_bubble
flops=$(value "$dir/plan.json" flops_per_token)
for mesh in pipeline tensor context; do
    says $mesh 0 "$TTRUN" plan "$dir/job.json" --parallelism.${mesh}_parallel_degree 2 --json && near "$(value "$dir/out" flops_per_token)" "$flops" 0.5
    ok "plan_counts_the_same_work_on_any_mesh $mesh"
done
says svg 0 "$TTRUN" plan "$dir/job.json" --parallelism.pipeline_parallel_degree 2 \
    --parallelism.pipeline_parallel_schedule InterleavedZeroBubble --parallelism.pipeline_parallel_layers_per_stage 2 \
    --svg "$dir/s.svg" && grep -q "^<svg" "$dir/s.svg" && grep -q "<title>1W0 " "$dir/s.svg" && grep -q "^</svg>" "$dir/s.svg"
ok plan_draws_the_schedule
says search 0 "$TTRUN" plan "$dir/job.json" --search --world 4 --hardware h100 --best 3 && grep -q '^search .* 4 ranks of h100' "$dir/out" &&
    grep -q ' 15 meshes: .* planned in full' "$dir/out" && [ "$(grep -c '^  *[0-9][0-9 ]* [0-9.e-]* ' "$dir/out")" -ge 3 ] &&
    best=$(sed -n 's/^best *//p' "$dir/out") && says best 0 "$TTRUN" plan "$dir/job.json" --world 4 --hardware h100 --json $best
ok plan_searches_meshes
took=$(value "$dir/out" step_time_s)
says search 0 "$TTRUN" plan "$dir/job.json" --search --world 4 --hardware h100 --json && near "$(value "$dir/out" best.0.step_time_s)" "$took" 1e-7
ok plan_of_the_best_mesh_agrees_with_the_search
says search 2 "$TTRUN" plan "$dir/job.json" --search --world 4 && grep -q -- '--hardware' "$dir/err" &&
    says search 2 "$TTRUN" plan "$dir/job.json" --search --world 4 --hardware h100 --memory much && grep -q -- '--memory' "$dir/err"
ok plan_search_names_missing_options
# the largest debugmodel of the contract: parameters, FLOP per token at 2048
echo '{"dataloader": {"path": ["text.txt"]}}' >"$dir/debug.json"
says debug 0 "$TTRUN" plan "$dir/debug.json" --json && [ "$(value "$dir/out" parameters)" = 6163712 ] &&
    near "$(value "$dir/out" flops_per_token)" 71585280 0.5
ok debugmodel_has_the_documented_size

# ---- config ----
says config 0 "$TTRUN" config "$dir/job.json" --training.steps 7 && grep -q '"steps": 7, // --training.steps$' "$dir/out" &&
    grep -q '"seq_len": 32, // .*job.json:[0-9]*:[0-9]*$' "$dir/out" && grep -q '"seed": 0, // default$' "$dir/out"
ok config_shows_origins
cp "$dir/out" "$dir/resolved.json" && sed -i "s|\"text.txt\"|\"$dir/text.txt\"|" "$dir/resolved.json"
says again 0 "$TTRUN" "$dir/resolved.json" --dump_folder "$dir/again" && [ "$(wc -l <"$dir/again/metrics.jsonl")" -eq 7 ]
ok config_prints_a_job_that_runs
says schema 0 "$TTRUN" config --schema && [ "$(value "$dir/out" '$schema')" = "https://json-schema.org/draft/2020-12/schema" ] &&
    value "$dir/out" properties.training.properties.steps | grep -q '"integer"'
ok schema_is_json
says explain 0 "$TTRUN" config --explain training.steps && grep -q 'default 10000' "$dir/out"
ok explain_a_key
says explain_all 0 "$TTRUN" config --explain && grep -q '^  optimizer  ' "$dir/out" && grep -q '^  checkpoint  ' "$dir/out" && grep -q '^  hardware  ' "$dir/out"
ok explain_lists_the_sections
says explain_flavors 0 "$TTRUN" config --explain model.flavor && grep -q '^    debugmodel  *6,163,712 parameters$' "$dir/out" && grep -q '^    405B  ' "$dir/out" &&
    says explain_flavors 0 "$TTRUN" config --explain model.flavor --spec gpt2 && grep -q '^    124M  ' "$dir/out" && ! grep -q '405B' "$dir/out"
ok explain_lists_the_flavors_of_the_spec
bad=
for pair in optimizer.name:adamw lr_scheduler.name:wsd tokenizer.name:byte dataloader.name:jsonl loss.name:cross_entropy backend.name:cpu \
    comm.backend:shm metrics.sinks:tensorboard spec:mistral hardware:h100 templates:dataloader kinds:kernels optimizer:sgd; do
    says explain_list 0 "$TTRUN" config --explain "${pair%%:*}" && grep -q "^    ${pair##*:}" "$dir/out" || bad="$bad $pair"
done
[ -z "$bad" ] || echo "missing:$bad" >"$dir/err"
[ -z "$bad" ]
ok explain_lists_what_there_is
says explain_args 0 "$TTRUN" config --explain model.args --spec gpt2 && grep -q 'n_positions \[gpt2\]' "$dir/out" && ! grep -q '\[llama3\]' "$dir/out" &&
    says explain_args 0 "$TTRUN" config "$dir/job.json" --explain model.args && grep -q 'dim \[llama3\]' "$dir/out" && ! grep -q '\[gpt2\]' "$dir/out"
ok explain_args_of_the_spec_only
says explain_foreign 0 "$TTRUN" config --explain training.gc_freq && grep -q 'no garbage collector' "$dir/out" &&
    says explain_foreign 0 "$TTRUN" config --explain float8 && grep -q converter "$dir/out"
ok explain_answers_names_of_other_trainers
says idle 0 "$TTRUN" "$dir/job.json" --dump_folder "$dir/idle" --training.gc_freq 50 --job.description text --optimizer.name AdamW --training.steps 2 &&
    [ "$(grep -c 'I job\]' "$dir/err")" -eq 4 ] && grep -q 'mixed_precision_param: float32 unless it is set' "$dir/err" && grep -q 'training.gc_freq: changes nothing here' "$dir/err" && ! grep -q gc_freq "$dir/idle/run.json"
ok foreign_keys_are_taken_with_one_notice_each
sed 's/"path": \["text.txt"\]/"mixture": [{"path": ["text.txt"]}, {"path": ["none.txt"]}]/' "$dir/job.json" >"$dir/mix.json"
says dry 2 "$TTRUN" "$dir/job.json" --dump_folder "$dir/dry" --dry-run --dataloader.path '["nope.txt"]' && grep -q 'dataloader.path: .*nope.txt' "$dir/err" && one_line "$dir/err" &&
    says dry 2 "$TTRUN" "$dir/mix.json" --dry-run && grep -q 'mixture.*none.txt' "$dir/err" &&
    says dry 0 "$TTRUN" "$dir/job.json" --dump_folder "$dir/dry" --dry-run && ! [ -e "$dir/dry" ]
ok dry_run_looks_for_the_data
says unused 0 "$TTRUN" config "$dir/job.json" --validation.dataloader.path x.txt && grep -q 'validation.dataloader is not used' "$dir/err"
ok unused_validation_data_is_told
says lists 0 "$TTRUN" config "$dir/job.json" --converters '[]' --hooks '[]' && says lists 2 "$TTRUN" config "$dir/job.json" --converters.name x &&
    grep -q "first element's keys are converters\[0\].name" "$dir/err" && says lists 2 "$TTRUN" config "$dir/job.json" '--converters[0].name' x && grep -q 'converter "x" is unknown' "$dir/err"
ok lists_of_the_job_on_the_command_line
says warm 0 "$TTRUN" "$dir/job.json" --dump_folder "$dir/warm" --lr_scheduler.warmup_steps 2 --training.steps 2 && grep -q 'the learning rate rises during 2 of the 2 steps' "$dir/err" &&
    says warm 0 "$TTRUN" "$dir/job.json" --dump_folder "$dir/warm2" --lr_scheduler.warmup_steps 1 --training.steps 3 && ! grep -q 'learning rate rises' "$dir/err"
ok a_warm_up_as_long_as_the_run_is_warned_of

# ---- checkpoints, text ----
says ls 0 "$TTRUN" ckpt ls "$run" && [ "$(sed 's/ .*//' "$dir/out" | tr '\n' ' ')" = "step-5 step-10 " ]
ok ckpt_ls_lists_steps
says verify 0 "$TTRUN" ckpt verify "$run/checkpoint/step-10"
ok ckpt_verify_accepts_a_complete_step
says verify_run 0 "$TTRUN" ckpt verify "$run" && [ "$(grep -c complete "$dir/out")" -eq 2 ]
ok ckpt_verify_accepts_a_run_folder
cp -r "$run/checkpoint/step-10" "$dir/bent"
printf 'x' | dd of="$dir/bent/shard-00001-model-00001-of-00001.safetensors" bs=1 seek=200000 conv=notrunc 2>/dev/null
says bent 2 "$TTRUN" ckpt verify "$dir/bent" && grep -q "data has changed" "$dir/out" && one_line "$dir/err"
ok ckpt_verify_finds_one_changed_byte
printf 'h\303\251\n' | "$TTRUN" tokenize >"$dir/out" 2>"$dir/err"
[ "$(cat "$dir/out")" = "104 195 169 10" ]
ok tokenize_bytes
printf 'a\n\nb' | "$TTRUN" tokenize --lines --bos --eos >"$dir/out" 2>"$dir/err"
[ "$(tr '\n' '/' <"$dir/out")" = "256 97 257/256 257/256 98 257/" ]
ok tokenize_lines_with_bos_and_eos
greedy="--checkpoint $run --prompt line --max-tokens 12 --temperature 0"
says greedy 0 "$TTRUN" generate $greedy && cp "$dir/out" "$dir/greedy" && says greedy2 0 "$TTRUN" generate $greedy &&
    cmp -s "$dir/out" "$dir/greedy" && grep -q '^line.' "$dir/out" && ! [ -s "$dir/err" ]
ok generate_greedy_is_deterministic
sample="--checkpoint $run/checkpoint/step-5 --prompt line --max-tokens 40 --temperature 2"
says seed 0 "$TTRUN" generate $sample --seed 1 && cp "$dir/out" "$dir/seed1" && says seed2 0 "$TTRUN" generate $sample --seed 1 &&
    cmp -s "$dir/out" "$dir/seed1" && says seed3 0 "$TTRUN" generate $sample --seed 2 && ! cmp -s "$dir/out" "$dir/seed1"
ok generate_follows_its_seed
says long 0 "$TTRUN" generate --checkpoint "$run" --prompt line --max-tokens 60 --temperature 0 --n 1 && ! grep -q 'trained on samples' "$dir/err" ||
    grep -q 'has [0-9]* tokens; the model was trained on samples of 32' "$dir/err"
ok generate_tells_a_text_longer_than_the_samples
echo x >"$dir/m.gguf"
says gguf 2 "$TTRUN" generate --checkpoint "$dir/m.gguf" && grep -q 'GGUF files are written, not read' "$dir/err"
ok generate_of_a_gguf_file_says_what_to_do
says eval 0 "$TTRUN" eval --checkpoint "$run" --data "$dir/text.txt" && [ "$(grep -c ' samples per epoch' "$dir/err")" -eq 1 ]
ok eval_prints_one_line_about_its_data

if [ -e /dev/full ]; then
    "$TTRUN" plan "$dir/job.json" >/dev/full 2>"$dir/err"
    rc=$?
    [ $rc -eq 1 ] && one_line "$dir/err" && grep -q '^ttrun: cannot write to standard output' "$dir/err"
    ok full_stdout_is_an_error
fi

# ---- help ----
says version 0 "$TTRUN" --version && grep -Eq '^ttrun [0-9.]+ \((commit [0-9a-f]{12}(-dirty)?, )?ABI [0-9]+\.[0-9]+\)$' "$dir/out"
ok version
cp "$dir/out" "$dir/version" && says version 0 "$TTRUN" version && cmp -s "$dir/out" "$dir/version" && says none 2 "$TTRUN" version more
ok version_is_a_command_too
says none 2 "$TTRUN"
ok no_arguments_give_status_2
bad=
for c in "" train plan config plugins tokenize ckpt generate; do
    says help 0 "$TTRUN" $c --help && grep -q '^usage: ttrun' "$dir/out" && ! [ -s "$dir/err" ] || bad="$bad $c"
done
[ -z "$bad" ]
ok "help_of_every_command$bad"
says help 0 "$TTRUN" top --help && ! grep -q -e '--nproc\|--dump_folder' "$dir/out"
ok help_has_no_option_that_means_nothing
says config 0 "$TTRUN" config "$dir/job.json" --dump-folder "$dir/dashed" --json && grep -q "$dir/dashed" "$dir/out"
ok keys_are_known_with_dashes_too
exit $failed
