#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Communication that runs concurrently with computation: the same bits over threads, processes and MPI; and how such a run ends.
. "$(dirname "$0")/processes.sh"
sed -e 's/"n_layers": 2/"n_layers": 4/' "$dir/job.json" >"$dir/deep.json"
job=$dir/deep.json
backends="local shm"
has_mpirun && [ -e "$PLUGINS/comms/mpi.so" ] && backends="local shm mpi" && allow_leaks

# ---- the same bits, on and off ----
turn=0
while read -r name options; do
    plain=$(echo "$options" | sed 's/--parallelism.enable_async_tensor_parallel true//') # pieces change no bit of our own tiles either
    train "$dir/off" --comm.backend local --comm.overlap off --backend.blas own --training.steps 3 --checkpoint.interval 3 $plain
    [ "$rc" -eq 0 ] || echo "# off: $(tail -n 1 "$dir/err")"
    losses "$dir/off/metrics.jsonl" >"$dir/a"
    taken=$backends
    is_long || { set -- $backends && shift $((turn % $#)) && taken=$1 && turn=$((turn + 1)); } # in turn
    for backend in $taken; do
        train "$dir/on" --comm.backend $backend --comm.overlap on --backend.blas own --training.steps 3 --checkpoint.interval 3 \
            --debug.dump_graph "$dir/graphs" $options
        [ "$rc" -eq 0 ] && [ "$(wc -l <"$dir/a")" -eq 3 ] && losses "$dir/on/metrics.jsonl" | cmp -s - "$dir/a" &&
            [ "$(hash_of "$dir/off/checkpoint/step-3")" = "$(hash_of "$dir/on/checkpoint/step-3")" ] &&
            grep -q ' async' "$dir"/graphs/*-overlap.txt && ! grep -q 'comm.overlap: this MPI' "$dir/err"
        ok "${backend}_${name}_on_equals_off"
        rm -rf "$dir/on" "$dir/graphs"
    done
    rm -rf "$dir/off"
done <<'MESHES'
fsdp2 --nproc 2
fsdp2_accumulate --nproc 2 --training.global_batch_size 16 --activation_checkpoint.mode full
hsdp --nproc 4 --parallelism.data_parallel_replicate_degree 2 --parallelism.data_parallel_shard_degree 2
tp2 --nproc 2 --parallelism.tensor_parallel_degree 2
tp2_pieces --nproc 2 --parallelism.tensor_parallel_degree 2 --parallelism.enable_async_tensor_parallel true
tp2_fsdp2_pieces --nproc 4 --parallelism.tensor_parallel_degree 2 --parallelism.enable_async_tensor_parallel true
tp2_fsdp2 --nproc 4 --parallelism.tensor_parallel_degree 2
cp2_fsdp2 --nproc 4 --parallelism.context_parallel_degree 2
pp2_fsdp2 --nproc 4 --parallelism.pipeline_parallel_degree 2
pp2_ep2_gathered_biases --nproc 4 --spec gpt_oss --model.args.n_layers 2 --model.args.num_experts 64 --model.args.dim 256 --model.args.hidden_dim 64 --parallelism.pipeline_parallel_degree 2 --parallelism.data_parallel_shard_degree 2 --parallelism.expert_parallel_degree 2 --training.mixed_precision_param bfloat16 --training.seq_len 16
pp2_fsdp2_zbv --nproc 4 --parallelism.pipeline_parallel_degree 2 --parallelism.pipeline_parallel_schedule ZBVZeroBubble --parallelism.fsdp_reshard_after_forward always
MESHES

# ---- what is seen of it ----
train "$dir/trace" --nproc 2 --comm.backend local --comm.overlap on --training.steps 2 --metrics.log_freq 1 --profiling.enable true
[ "$rc" -eq 0 ] && [ "$(grep -c '"comm_exposed":[0-9.e-]*' "$dir/trace/metrics.jsonl")" -eq 2 ] &&
    grep -q '"communication over dp_shard"' "$dir/trace/profile/step-2.json" && grep -q '"name":"wait"' "$dir/trace/profile/step-2.json" &&
    grep -q '"op":"all_gather","concurrent":true' "$dir/trace/profile/ops.jsonl" && grep -q '"op":"wait"' "$dir/trace/profile/ops.jsonl" &&
    grep -q 'all_gather, concurrent' "$dir/err"
ok trace_has_a_row_of_communication_and_the_waits
train "$dir/auto" --nproc 2 --comm.backend local --comm.overlap sometimes
[ "$rc" -eq 2 ] && one_line "$dir/err" && grep -q 'comm.overlap' "$dir/err"
ok unknown_value_of_overlap_is_an_error

# ---- ends ----
for way in $ways; do
    test_killed_ranks $way --comm.overlap on
    test_hanging_rank $way --comm.overlap on
    launch $way "$dir/$way-term" --nproc 2 --comm.overlap on --checkpoint.interval 1000000
    kill -TERM $pid
    ends 4 && [ -n "$(newest "$folder/checkpoint")" ]
    ok "${way}_sigterm_saves_and_ends_with_4"
    processes $way "$dir/$way-nan" --nproc 2 --comm.overlap on --optimizer.lr 1e38
    [ "$rc" -eq 3 ] && one_line "$dir/err"
    ok "${way}_nan_ends_with_3"
done
case $backends in
*mpi)
    launch mpirun "$dir/mpi-kill" --nproc 2 --comm.overlap on --comm.backend mpi --checkpoint.interval 1000000
    kill -9 "$(ranks "$folder" | tail -n 1)"
    ends 1 && one_line "$dir/err" && grep -q '^ttrun: rank [01] was lost at [a-z_]* number [0-9]*: ' "$dir/err"
    ok mpi_killed_rank_ends_all_with_one_line
    ;;
esac
exit $failed
