#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Unusual surroundings of a run: pipes, limits, odd folders, locales, crashes. Each gives one line and the right status.
. "$(dirname "$0")/lib.sh"
export TTRUN_PLUGIN_PATH="$PLUGINS"
says() { # STATUS WORDS COMMAND...: one error line with the words
    want=$1 words=$2
    shift 2
    "$@" >"$dir/out" 2>"$dir/err" </dev/null
    rc=$?
    [ $rc -eq "$want" ] && one_line "$dir/err" && grep -q -- "$words" "$dir/err"
}

# ---- FIFOs are refused, not waited for ----
train "$dir/whole" --training.steps 5
mkfifo "$dir/fifo.json"
says 2 'named pipe' "$TTRUN" plan "$dir/fifo.json"
ok fifo_as_job
mkdir "$dir/llama" && mkfifo "$dir/llama/tokenizer.json"
says 2 'tokenizer.json: not a file' "$TTRUN" tokenize --tokenizer "$dir/llama/tokenizer.json"
ok fifo_as_tokenizer
cp -r "$dir/whole" "$dir/trainer" && rm "$dir/trainer/checkpoint/step-5/trainer.json" && mkfifo "$dir/trainer/checkpoint/step-5/trainer.json"
"$TTRUN" ckpt verify "$dir/trainer/checkpoint/step-5" >"$dir/out" 2>"$dir/err"
rc=$?
[ $rc -eq 2 ] && grep -q 'trainer.json: is a named pipe' "$dir/out" "$dir/err"
ok fifo_as_trainer_json
shard=shard-00001-model-00001-of-00001.safetensors
cp -r "$dir/whole" "$dir/shard" && rm "$dir/shard/checkpoint/step-5/$shard" && mkfifo "$dir/shard/checkpoint/step-5/$shard"
"$TTRUN" ckpt verify "$dir/shard/checkpoint/step-5" >"$dir/out" 2>"$dir/err"
[ $? -eq 2 ] && grep -q "$shard: is not a regular file" "$dir/out" "$dir/err" &&
    says 2 "$shard: not a regular file" "$TTRUN" ckpt diff "$dir/shard/checkpoint/step-5" "$dir/whole/checkpoint/step-5"
ok fifo_as_shard
cp -r "$dir/whole" "$dir/report" && rm "$dir/report/run.json" && mkfifo "$dir/report/run.json"
"$TTRUN" report "$dir/report" >"$dir/out" 2>"$dir/err"
rc=$?
[ $rc -le 2 ]
ok fifo_as_run_json
mkdir "$dir/metrics" && mkfifo "$dir/metrics/metrics.jsonl"
says 2 'metrics.jsonl is not a regular file' "$TTRUN" "$job" -q --dump_folder "$dir/metrics"
ok fifo_as_metrics

# ---- a planted link is not written through ----
mkdir "$dir/planted" && echo precious >"$dir/precious" && ln -s "$dir/precious" "$dir/planted/metrics.jsonl.tmp"
echo '{"step":1}' >"$dir/planted/metrics.jsonl"
train "$dir/planted" --training.steps 2
[ "$rc" -eq 0 ] && [ "$(cat "$dir/precious")" = precious ]
ok symbolic_link_in_place_of_a_temporary_file_is_not_followed

# ---- nobody else can lock a run folder ----
cp -r "$dir/whole" "$dir/locked" && chmod 644 "$dir/locked/.lock"
train "$dir/locked" --training.steps 6
[ $rc -eq 0 ] && [ "$(stat -c %a "$dir/locked/.lock" "$dir/locked/checkpoint/.lock.saves" | sort -u)" = 600 ]
ok locks_are_the_users_own

# ---- a job through a pipe ----
sed "s|\"text.txt\"|\"$dir/text.txt\"|" "$job" >"$dir/absolute.json"
cat "$dir/absolute.json" | "$TTRUN" /dev/stdin --dump_folder "$dir/piped" >"$dir/out" 2>"$dir/err"
rc=$?
[ $rc -eq 0 ] && [ "$(wc -l <"$dir/piped/metrics.jsonl")" -eq 10 ]
ok job_through_a_pipe
"$TTRUN" /dev/stdin --dump_folder "$dir/piped2" --nproc 2 --comm.backend shm <"$dir/absolute.json" >"$dir/out" 2>"$dir/err"
rc=$?
[ $rc -eq 0 ] && [ "$(wc -l <"$dir/piped2/metrics.jsonl")" -eq 10 ]
ok job_through_a_pipe_for_two_processes
# A process loads its job once: under this name its text is not kept, and a pipe can be read only once.
for options in '' '--dry-run' '--nproc 2 --comm.backend local' '--nproc 1:2 --max-restarts 0 --dry-run'; do
    cat "$dir/absolute.json" | "$TTRUN" /proc/thread-self/fd/0 --dump_folder "$dir/once" --resume never $options >"$dir/out" 2>"$dir/err"
    rc=$?
    [ $rc -eq 0 ] || break
done
[ $rc -eq 0 ]
ok job_is_read_once_by_a_process
(cd "$dir" && cat job.json | "$TTRUN" plan /dev/stdin >out 2>err)
rc=$?
[ $rc -eq 0 ]
ok piped_job_names_files_from_the_current_folder

# ---- limits ----
(ulimit -f 40; exec "$TTRUN" "$job" -q --dump_folder "$dir/small") >"$dir/out" 2>"$dir/err"
rc=$?
[ $rc -eq 1 ] && grep -q 'File too large' "$dir/err"
ok file_size_limit
says 2 'at most 4096' "$TTRUN" "$job" --dump_folder "$dir/many" --comm.backend local --parallelism.data_parallel_shard_degree 20000
ok twenty_thousand_rank_threads
case $BUILD in */asan | */tsan | */ubsan) skip too_few_processes_are_allowed "few.so stands before a sanitizer's own library" && skip no_memory_for_metadata "a sanitizer needs more address space than ulimit -v leaves" ;; *)
    preload few
    few="env PATH=$dir LD_PRELOAD=$dir/few.so" # without mpirun
    # shellcheck disable=SC2086 # words
    says 2 'only [0-2] of 4 rank-threads could be started: .*ulimit -u' $few FEW=2 "$TTRUN" "$job" -q --backend.blas own --dump_folder "$dir/few1" --nproc 4 --comm.backend local &&
        says 2 'only 1 of 3 processes could be started: .*ulimit -u' $few FEW=1 "$TTRUN" "$job" -q --backend.blas own --dump_folder "$dir/few2" --nproc 3 --comm.backend shm
    ok too_few_processes_are_allowed
    says 2 'cannot start the thread that watches the other ranks; .*ulimit -u' $few FEW=0 FEW_RANK=1 "$TTRUN" "$job" -q --backend.blas own --dump_folder "$dir/few3" --nproc 2 --comm.backend shm && ! grep -q 'died silently' "$dir/err"
    ok a_rank_without_its_watching_thread_says_so
    (ulimit -v 60000; exec "$TTRUN" plan "$job" --model.args.n_layers 400) >"$dir/out" 2>"$dir/err"
    rc=$?
    [ $rc -eq 1 ] || [ $rc -eq 2 ]
    ok no_memory_for_metadata ;;
esac

# ---- numbers beyond what can be counted ----
sed 's/^{"xxh3_128":.*/{/; s/"tokens_seen":[0-9]*/"tokens_seen":9223372036854775807/' "$dir/whole/checkpoint/step-5/trainer.json" >"$dir/trainer.json"
cp -r "$dir/whole" "$dir/counted" && cp "$dir/trainer.json" "$dir/counted/checkpoint/step-5/trainer.json"
"$TTRUN" "$job" -q --dump_folder "$dir/counted" >"$dir/out" 2>"$dir/err"
rc=$?
[ $rc -ne 0 ] && grep -q 'tokens_seen' "$dir/err"
ok tokens_seen_beyond_64_bits
says 2 'model.args: too large' "$TTRUN" plan "$job" --training.seq_len 1000000000 --training.local_batch_size 1 \
    --model.args '{"dim":16777216,"n_heads":65536,"n_kv_heads":65536,"hidden_dim":16777216,"vocab_size":2147483647,"n_layers":100}'
ok model_beyond_64_bits

# ---- folders and files ----
mkdir "$dir/circles" && ln -s . "$dir/circles/l1" && ln -s . "$dir/circles/l2" && ln -s . "$dir/circles/l3"
"$TTRUN" plugins list --plugin-dir "$dir/circles" >"$dir/out" 2>"$dir/err"
rc=$?
[ $rc -eq 0 ]
ok plugin_folder_with_a_link_to_itself
says 1 'dataloader.cache: nothing is built' "$TTRUN" data build "$job" -q --dataloader.cache /proc/x
ok data_build_that_cannot_write

# ---- words ----
printf '\033[31m0F0\302\233x\n' >"$dir/s.csv"
"$TTRUN" plan "$job" --nproc 2 --parallelism.pipeline_parallel_degree 2 --parallelism.pipeline_parallel_schedule csv \
    --parallelism.pipeline_parallel_schedule_csv "$dir/s.csv" >"$dir/out" 2>"$dir/err"
rc=$?
[ $rc -eq 2 ] && ! grep -q "$(printf '\033')" "$dir/err"
ok terminal_escapes_in_an_error_are_shown_as_text
says 2 'got 1e+39' "$TTRUN" plan "$job" --optimizer.lr 1e39 && grep -q 'expected 0.* to 1e' "$dir/err"
ok range_names_its_upper_end

# ---- a plugin that crashes, and one that sets a locale ----
hook() { # NAME STATEMENT: after each step
    (cd "$dir" && "$TTRUN" plugins new hook "$1" >/dev/null && sed -i "s|.*const config .c = (const config .)self;|&; $2|" "$1/$1.c" &&
        sed -i '1i #include <locale.h>' "$1/$1.c" &&
        cc -std=c11 -w -O0 -fPIC -shared "-I$SRC/include" "$1/$1.c" "-L$BUILD" -lttrun -lm -o "$1/$1.so")
    printf '{"extends": "job.json", "hooks": [{"name": "%s"}]}\n' "$1" >"$dir/$1.json"
}
hook broken '*(volatile int *)8 = 1;'
case $BUILD in */asan | */tsan | */ubsan) skip crash "a sanitizer tells of crashes itself" ;; *)
    says 1 'ttrun: hook "broken" of .*/broken.so crashed (SIGSEGV in after_step)' "$TTRUN" "$dir/broken.json" --dump_folder "$dir/crash1" --plugin-dir "$PLUGINS" \
        --plugin-dir "$dir/broken" || says 1 'ttrun: hook "broken" of .*/broken.so crashed (SIGSEGV' "$TTRUN" "$dir/broken.json" \
        --dump_folder "$dir/crash2" --plugin-dir "$PLUGINS" --plugin-dir "$dir/broken"
    ok crash_in_a_plugin
    says 1 'hook "broken" of .*/broken.so crashed (SIGSEGV' "$TTRUN" "$dir/broken.json" --dump_folder "$dir/crash3" --plugin-dir "$PLUGINS" \
        --plugin-dir "$dir/broken" --nproc 2 --comm.backend shm
    ok crash_in_a_plugin_of_two_processes ;;
esac
case $BUILD in */asan | */tsan | */ubsan) skip damaged_plugins "a sanitizer tells of crashes itself" ;; *)
    mkdir "$dir/ctor"
    printf '__attribute__((constructor)) static void begin(void) { *(volatile int *)8 = 1; }\n' >"$dir/ctor/ctor.c"
    cc -std=c11 -w -O0 -fPIC -shared -o "$dir/ctor/ctor.so" "$dir/ctor/ctor.c"
    says 1 '^ttrun: .*/ctor.so: crashed while it was loaded (SIGSEGV): it is damaged, or a constructor' "$TTRUN" train "$job" --plugin-dir "$dir/ctor" \
        --dump_folder "$dir/ctor.run" --optimizer.name ctor
    ok crash_while_a_plugin_is_loaded
    # Whatever is wrong with a plugin: one line and a status of ours, or no difference.
    mkdir "$dir/tree" && cp -r "$TTRUN" "$BUILD/libttrun.so.0" "$PLUGINS" "$dir/tree/"
    seed=1 bad=
    while [ $seed -le 16 ]; do
        "$BUILD/tests/run/flip_tool" "$PLUGINS/optimizers/adamw.so" "$dir/tree/plugins/optimizers/adamw.so" $seed
        (unset TTRUN_PLUGIN_PATH && ulimit -t 20 && exec "$dir/tree/ttrun" "$job" -q --training.steps 1 --checkpoint.enable false --dump_folder "$dir/flipped") \
            >"$dir/out" 2>"$dir/err"
        rc=$?
        case $rc in 0 | 137 | 152) ;; 1 | 2 | 3) one_line "$dir/err" || bad="$bad $seed" ;; *) bad="$bad $seed($rc)" ;; esac
        seed=$((seed + 1))
    done
    echo "# of 16 damaged plugins these were no single line: ${bad:-none}"
    [ -z "$bad" ]
    ok damaged_plugins_end_in_one_line ;;
esac
if mkdir "$dir/locales" && localedef -i de_DE -f UTF-8 "$dir/locales/de_DE.UTF-8" >/dev/null 2>&1; then
    hook german 'setlocale(LC_ALL, \"de_DE.UTF-8\");'
    LOCPATH=$dir/locales "$TTRUN" "$dir/german.json" --dump_folder "$dir/german.run" --plugin-dir "$PLUGINS" \
        --plugin-dir "$dir/german" >"$dir/out" 2>"$dir/err"
    rc=$?
    [ $rc -eq 0 ] && grep -q '"loss":[0-9]*\.[0-9]' "$dir/german.run/metrics.jsonl" && ! grep -q '"loss":[0-9]*,[0-9]' "$dir/german.run/metrics.jsonl"
    ok locale_set_by_a_plugin
else
    skip locale_set_by_a_plugin "localedef makes no German locale here"
fi
exit $failed
