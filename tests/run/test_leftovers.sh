#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What killed processes leave is cleared by the next start.
. "$(dirname "$0")/processes.sh"
export TTRUN_PLUGIN_PATH="$PLUGINS" TMPDIR="$dir/tmp"
mkdir "$TMPDIR"
absent() { # PATH...
    for path in "$@"; do
        [ ! -e "$path" ] || { echo "$path is still there" >"$dir/err" && return 1; }
    done
}

# ---- a run folder ----
run=$dir/run
train "$run" --training.steps 5
mkdir "$run/hf" "$run/hf/step-3.tmp" "$run/before-1" "$run/checkpoint/step-2.purged.tmp" "$run/checkpoint/step-7.tmp"
touch "$run/run.json.tmp.4711.0" "$run/job.json.tmp.4711.1" "$run/before-1/metrics.jsonl.tmp.4711.0" "$run/checkpoint/step-2.purged.tmp/x" \
    "$run/notes.tmp.txt"
mkdir "$run/comm_traces" "$run/before-1/comm_traces"
touch "$run/comm_traces/rank_0.json.tmp.4711.1" "$run/before-1/comm_traces/rank_1.json.tmp.4711.1"
train "$run" --training.steps 6
[ $rc -eq 0 ] && [ -e "$run/notes.tmp.txt" ] && absent "$run/run.json.tmp.4711.0" "$run/job.json.tmp.4711.1" "$run/before-1/metrics.jsonl.tmp.4711.0" \
    "$run/checkpoint/step-2.purged.tmp" "$run/checkpoint/step-7.tmp" "$run/hf/step-3.tmp" \
    "$run/comm_traces/rank_0.json.tmp.4711.1" "$run/before-1/comm_traces/rank_1.json.tmp.4711.1"
ok run_folder_is_cleared

# ---- copies of plugins where they cannot be in memory, and mpirun's files ----
mkdir -m 700 "$TMPDIR/ttrun-plugins-Ab12cd" && touch "$TMPDIR/ttrun-plugins-Ab12cd/.ttrun-temporary" "$TMPDIR/ttrun-plugins-Ab12cd/0123456789abcdef-x.so"
preload no_memfd
case $BUILD in */asan | */tsan) no_memfd= ;; *) no_memfd="env LD_PRELOAD=$dir/no_memfd.so" ;; esac
if [ -n "$no_memfd" ]; then
    $no_memfd "$TTRUN" plugins list >/dev/null 2>"$dir/err"
    rc=$?
    [ $rc -eq 0 ] && [ -z "$(ls -A "$TMPDIR")" ]
    ok copies_of_plugins_are_cleared
fi
rm -rf "$TMPDIR/ttrun-plugins-Ab12cd"
mkdir -m 700 "$TMPDIR/ttrun-check-Ab12cd" && touch "$TMPDIR/ttrun-check-Ab12cd/.ttrun-temporary" "$TMPDIR/ttrun-check-Ab12cd/metrics.jsonl"
"$TTRUN" plugins check "$PLUGINS/metrics/jsonl.so" >"$dir/out" 2>"$dir/err"
rc=$?
[ $rc -eq 0 ] && [ -z "$(ls -A "$TMPDIR")" ]
ok folder_of_a_crashed_check_is_cleared
if has_mpirun; then
    launch mpirun "$dir/killed" --nproc 2
    kill -KILL "$pid"
    wait "$pid" 2>/dev/null
    [ -n "$(ls -A "$TMPDIR")" ] && until_gone no_rank "$dir/killed" &&
        processes mpirun "$dir/killed" --nproc 2 --training.steps 3 --resume never && [ $rc -eq 0 ] && [ -z "$(ls -A "$TMPDIR")" ]
    ok files_of_a_killed_mpirun_are_cleared
    processes mpirun "$dir/ended" --nproc 2 --training.steps 3
    [ $rc -eq 0 ] && [ -z "$(ls -A "$TMPDIR")" ]
    ok mpirun_leaves_nothing
fi

# ---- a cache of tokens ----
cache=$dir/cache key=0123456789abcdef0123456789abcdef other=fedcba9876543210fedcba9876543210
mkdir "$cache"
touch "$cache/$key.key.tmp.4711.0" "$cache/$key.part-docs" "$cache/$other.part" "$cache/$other.part-docs" "$cache/mine.part"
train "$dir/cached" --training.steps 1 --dataloader.cache "$cache"
[ $rc -eq 0 ] && [ -e "$cache/mine.part" ] && [ "$(find "$cache" -name '*.tokens' | wc -l)" -eq 1 ] &&
    absent "$cache/$key.key.tmp.4711.0" "$cache/$key.part" "$cache/$key.part-docs" "$cache/$other.part" "$cache/$other.part-docs"
ok cache_is_cleared
printf '{"text": "fine"}\nno JSON\n' >"$dir/bad.jsonl"
rm -r "$cache"
train "$dir/bad" --dataloader.name jsonl --dataloader.path "[\"$dir/bad.jsonl\"]" --dataloader.cache "$cache"
[ $rc -eq 2 ] || [ $rc -eq 1 ] && [ -z "$(ls -A "$cache")" ]
ok failed_build_leaves_nothing

# ---- a save that fails ----
if preload full; then
    preload="$(case $BUILD in */asan) cc -print-file-name=libasan.so ;; */tsan) cc -print-file-name=libtsan.so ;; esac) $dir/full.so"
    fails() { # SHARD OPTION...: one line, status 1, and no room is taken
        shard=$1
        shift
        rm -rf "$dir/full"
        LD_PRELOAD=$preload FULL=$shard "$TTRUN" "$job" -q --dump_folder "$dir/full" "$@" >"$dir/out" 2>"$dir/err"
        rc=$?
        [ $rc -eq 1 ] && one_line "$dir/err" && grep -q "step-5.tmp/$shard.*No space left" "$dir/err" && [ -z "$(ls "$dir/full/checkpoint")" ]
    }
    fails shard-00001 && fails shard-00001 --checkpoint.async_mode disabled
    ok failed_save_of_one_rank_keeps_no_room
    fails shard-00001 --nproc 2 --comm.backend local && fails shard-00002 --nproc 2 --comm.backend shm &&
        fails shard-00002 --nproc 2 --comm.backend shm --checkpoint.async_mode disabled
    ok failed_save_of_two_ranks_keeps_no_room
fi
exit $failed
