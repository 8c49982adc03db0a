#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Ranks as processes: started by mpirun, by torchrun's variables, by ttrun itself; the same bits as rank-threads.
. "$(dirname "$0")/processes.sh"

# ---- the same bits ----
for way in $ways; do
    while read -r name options; do
        [ -e "$dir/t-$name" ] || train "$dir/t-$name" --comm.backend local $options
        processes $way "$dir/p-$name" $options
        [ "$rc" -eq 0 ] && losses "$dir/t-$name/metrics.jsonl" >"$dir/a" && losses "$dir/p-$name/metrics.jsonl" | cmp -s - "$dir/a" &&
            [ "$(wc -l <"$dir/a")" -eq 10 ] &&
            [ "$(hash_of "$dir/t-$name/checkpoint/step-10")" = "$(hash_of "$dir/p-$name/checkpoint/step-10")" ] &&
            grep -q '"world":[234],' "$dir/p-$name/run.json"
        ok "${way}_${name}_equals_threads"
        rm -rf "$dir/p-$name"
        [ $way = "${ways%% *}" ] || break # the others by one way alone
    done <<'MESHES'
hsdp --nproc 4 --parallelism.data_parallel_replicate_degree 2 --parallelism.data_parallel_shard_degree 2
fsdp2 --nproc 2
tp2 --nproc 2 --parallelism.tensor_parallel_degree 2
pp2 --nproc 2 --parallelism.pipeline_parallel_degree 2
cp2 --nproc 2 --parallelism.context_parallel_degree 2
cp3_ring --nproc 3 --parallelism.context_parallel_degree 3 --parallelism.context_parallel_rotate_method ring --training.local_batch_size 1
tp2pp2 --nproc 4 --parallelism.tensor_parallel_degree 2 --parallelism.pipeline_parallel_degree 2
MESHES
done

# ---- joining what others started ----
for rank in 0 1; do
    : >"$dir/out$rank" 2>"$dir/err$rank"
    RANK=$rank WORLD_SIZE=2 LOCAL_RANK=$rank LOCAL_WORLD_SIZE=2 MASTER_ADDR=localhost MASTER_PORT=$dir "$TTRUN" "$job" \
        --plugin-dir "$PLUGINS" --dump_folder "$dir/torch" >"$dir/out$rank" 2>"$dir/err$rank" &
    eval "pid$rank=$!"
done
wait $pid0 && wait $pid1 && losses "$dir/torch/metrics.jsonl" >"$dir/a" && losses "$dir/t-fsdp2/metrics.jsonl" | cmp -s - "$dir/a" &&
    grep -q 'step: 10 ' "$dir/err0" && ! [ -s "$dir/err1" ] && ! [ -s "$dir/out0" ] && ! [ -s "$dir/out1" ]
ok torchrun_variables_make_ranks_and_rank_0_prints
RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 MASTER_ADDR=localhost MASTER_PORT=1 "$TTRUN" "$job" \
    --plugin-dir "$PLUGINS" --comm.backend shm --dump_folder "$dir/nodes" >"$dir/out" 2>"$dir/err"
rc=$?
[ $rc -eq 2 ] && one_line "$dir/err" && grep -q 'shm: only 1 of 2 ranks are on this machine' "$dir/err"
ok shm_over_machines_is_an_error
WORLD_SIZE=2 ttrun "$job" --dump_folder "$dir/nonsense" >"$dir/out" 2>"$dir/err"
rc=$?
[ $rc -eq 2 ] && one_line "$dir/err" && grep -q 'WORLD_SIZE=2 without RANK' "$dir/err"
ok world_size_without_rank_is_status_2
RANK=1 ttrun "$job" --dump_folder "$dir/nonsense" >"$dir/out" 2>"$dir/err"
rc=$?
[ $rc -eq 2 ] && one_line "$dir/err" && grep -q 'RANK=1 without WORLD_SIZE: this process would train alone' "$dir/err" && ! [ -e "$dir/nonsense" ]
ok rank_without_world_size_is_refused
RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=2 MASTER_ADDR=localhost MASTER_PORT=1 ttrun "$job" --dump_folder "$dir/nonsense" --dry-run >"$dir/out" 2>"$dir/err" &&
    ttrun "$job" --dump_folder "$dir/nonsense" --dry-run --nproc 2 >"$dir/two" 2>"$dir/err" && ttrun "$job" --dump_folder "$dir/nonsense" --dry-run >"$dir/one" 2>"$dir/err" &&
    cmp "$dir/out" "$dir/two" && ! cmp -s "$dir/out" "$dir/one"
ok dry_run_plans_the_ranks_of_the_launcher
RANK=1 WORLD_SIZE=1 ttrun "$job" --dump_folder "$dir/nonsense" >"$dir/out" 2>"$dir/err"
rc=$?
[ $rc -eq 2 ] && one_line "$dir/err" && grep -q 'RANK=1 and WORLD_SIZE=1' "$dir/err"
ok contradictory_variables_are_an_error
if has_mpirun; then
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    mpirun -q --oversubscribe -np 2 "$TTRUN" "$job" --plugin-dir "$PLUGINS" --dump_folder "$dir/by-hand" >"$dir/out" 2>"$dir/err"
    rc=$?
    [ $rc -eq 0 ] && losses "$dir/by-hand/metrics.jsonl" | cmp -s - "$dir/a" && [ "$(grep -c 'step: 10 ' "$dir/err")" -eq 1 ]
    ok ranks_of_the_users_mpirun_form_one_run
    mpirun -q --oversubscribe -np 3 "$TTRUN" "$job" --plugin-dir "$PLUGINS" --training.stpes 3 >"$dir/out" 2>"$dir/err"
    rc=$?
    [ $rc -eq 2 ] && one_line "$dir/err" && grep -q 'training.stpes: unknown key' "$dir/err"
    ok error_of_all_ranks_is_printed_once
    mpirun -q --oversubscribe -np 2 "$TTRUN" "$job" --plugin-dir "$PLUGINS" --comm.backend local >"$dir/out" 2>"$dir/err"
    rc=$?
    [ $rc -eq 2 ] && one_line "$dir/err" && grep -q 'comm.backend.*local.*mpirun started 2' "$dir/err"
    ok local_under_mpirun_is_an_error
    if command -v script >/dev/null && script -qec true /dev/null </dev/null >/dev/null 2>&1; then
        TERM=xterm script -qec "env -u NO_COLOR $TTRUN $job --plugin-dir $PLUGINS --nproc 2 --dump_folder $dir/pty --training.steps 300 --metrics.log_freq 100" \
            /dev/null </dev/null >"$dir/out"
        grep -q "train *[0-9]*% .*tps" "$dir/out"
        ok progress_bar_through_mpirun
    fi
    unset OMPI_ALLOW_RUN_AS_ROOT OMPI_ALLOW_RUN_AS_ROOT_CONFIRM
fi
PATH=$dir/bin "$TTRUN" "$job" --plugin-dir "$PLUGINS" --nproc 2 --dump_folder "$dir/nompi" >"$dir/out" 2>"$dir/err"
rc=$?
[ $rc -eq 0 ] && grep -q 'no mpirun on this machine' "$dir/err" && grep -q 'run as threads of this process' "$dir/err"
ok without_mpirun_nproc_is_rank_threads
PATH=$dir/bin "$TTRUN" "$job" --plugin-dir "$PLUGINS" --nproc 2 --comm.backend mpi --dump_folder "$dir/nompi2" >"$dir/out" 2>"$dir/err"
rc=$?
[ $rc -eq 2 ] && one_line "$dir/err" && grep -q 'there is no mpirun; install' "$dir/err"
ok mpi_without_mpirun_is_an_error
mkdir "$dir/broken"
printf '#!/bin/sh\nexit 1\n' >"$dir/broken/mpirun"
chmod +x "$dir/broken/mpirun"
PATH=$dir/broken:$PATH "$TTRUN" "$job" --plugin-dir "$PLUGINS" --nproc 2 --dump_folder "$dir/nompi3" >"$dir/out" 2>"$dir/err"
rc=$?
[ $rc -eq 1 ] && one_line "$dir/err" && grep -q 'mpirun started no rank (status 1)' "$dir/err"
ok mpirun_that_starts_nothing_is_named
train "$dir/ucx" --nproc 2 --comm.backend ucx
[ "$rc" -eq 2 ] && one_line "$dir/err" && grep -q 'comm.backend: comm "ucx" is unknown; known: mpi, nccl, tcp; the core has auto, local and shm' "$dir/err"
ok unknown_comm_plugin_is_an_error
train "$dir/mesh" --nproc 2 --parallelism.tensor_parallel_degree 4
[ "$rc" -eq 2 ] && one_line "$dir/err" && ! [ -e "$dir/mesh" ]
ok error_of_the_mesh_is_printed_once
exit $failed
