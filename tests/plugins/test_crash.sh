#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A crash in a plugin of many components: the line names the component that was called, for each kind.
. "$(dirname "$0")/../run/lib.sh"
case $BUILD in */asan | */tsan | */ubsan)
    echo "# a sanitizer tells of crashes itself"
    exit 0
    ;;
esac
mkdir "$dir/mine"
cc -std=c11 -w -O2 -fPIC -shared "-I$SRC/include" "$SRC/tests/plugins/crash.c" "-L$BUILD" -lttrun -o "$dir/mine/crash.so" >"$dir/out" 2>&1
ok plugin_builds
crashes() { # NAME WORDS [OPTION...]: one line, with the words, and status 1
    name=$1 words=$2
    shift 2
    "$TTRUN" "$job" --dump_folder "$dir/run" --checkpoint.enable false --plugin-dir "$PLUGINS" --plugin-dir "$dir/mine" "$@" \
        >"$dir/out" 2>"$dir/err" </dev/null
    rc=$?
    [ $rc -eq 1 ] && one_line "$dir/err" && grep -qF "ttrun: $words of $dir/mine/crash.so crashed (" "$dir/err"
    ok "$name"
    rm -rf "$dir/run"
}
sed '/"lr_scheduler"/d' "$job" >"$dir/plain.json" && job=$dir/plain.json
for kind in loss lr_scheduler optimizer tokenizer; do
    crashes "crash_in_a_$kind" "$kind \"crash\"" --$kind.name crash
done
sed '/"dataloader"/d' "$job" >"$dir/other.json" && job=$dir/other.json
crashes crash_in_a_dataloader 'dataloader "crash"' --dataloader.name crash
job=$dir/plain.json
echo '{"extends": "other.json", "model": null, "dataloader": {"path": "text.txt"}}' >"$dir/model.json" && job=$dir/model.json
crashes crash_in_a_model 'model "crash"' --model.name crash
job=$dir/plain.json
crashes crash_in_a_sink 'metrics "crash"' --metrics.sinks '[{"name": "crash"}]'
crashes crash_in_a_converter 'converter "crash"' --converters '[{"name": "crash"}]'
crashes crash_in_a_hook 'hook "crash"' --hooks '[{"name": "crash"}]'
crashes crash_in_a_backend 'backend "crash"' --backend.name crash
crashes crash_in_a_comm 'comm "crash"' --comm.backend crash --nproc 2 --parallelism.data_parallel_shard_degree 2
crashes crash_in_an_op 'op "crash"' --loss.name loss_of_op
crashes crash_in_a_kernel_on_a_worker 'kernels "crash"' --backend.kernels crash --backend.threads 2
crashes crash_below_a_function_of_the_table 'hook "two"' --hooks '[{"name": "two"}]'
crashes crash_in_a_function_of_two_components 'hook "one" or hook "two"' --hooks '[{"name": "one"}, {"name": "two"}]'
crashes abort_in_a_plugin 'hook "aborts"' --hooks '[{"name": "aborts"}]'
grep -q '(SIGABRT)\|(SIGABRT in ' "$dir/err"
ok abort_is_named

# A signal from another process keeps its effect.
: >/dev/null 2>"$dir/err"
"$TTRUN" "$job" --dump_folder "$dir/long" --plugin-dir "$PLUGINS" --training.steps 1000000 --checkpoint.enable false >/dev/null 2>"$dir/err" &
pid=$!
until_true has_lines "$dir/long/metrics.jsonl" 1
kill -ABRT $pid
wait $pid 2>/dev/null
rc=$?
[ $rc -eq 134 ] && ! grep -q crashed "$dir/err"
ok abort_signal_of_another_process_ends_it

"$TTRUN" plugins check "$dir/mine/crash.so" --plugin-dir "$PLUGINS" >"$dir/out" 2>"$dir/err"
rc=$?
[ $rc -eq 2 ] && grep -q '^FAIL  describes  .*"crash" crashed (SIGSEGV' "$dir/out"
ok check_names_the_component
exit $failed
