#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Jobs over the comm plugin "nccl" on the fake driver and the fake NCCL, which serves ranks that are threads of one process, a GPU each:
# losses and weights are those over comm local to the bit. Of processes: which communicator the host takes, and what is said where
# there is none.
. "$(dirname "$0")/processes.sh"
sed -i 's/"seq_len": 32/"seq_len": 16/' "$job"
lib="$BUILD/tests/fake/lib"
cuda="--backend.name cuda --backend.libraries $lib --backend.cache $BUILD/tests/fake/cubin"
nccl="--comm.backend nccl --comm.args.libraries $lib"
FAKE_CUDA_DEVICES=2
export FAKE_CUDA_DEVICES
p=--parallelism

# same NAME OPTION…: the options make two ranks
same() {
    name=$1
    shift
    set -- --training.steps 3 --checkpoint.interval 3 --nproc 2 "$@"
    # shellcheck disable=SC2086
    train "$dir/local" $cuda --comm.backend local "$@"
    [ "$rc" -eq 0 ]
    ok "local_runs_$name"
    # shellcheck disable=SC2086
    train "$dir/nccl" $cuda $nccl --comm.host local "$@"
    [ "$rc" -eq 0 ] && grep -q 'comm\] NCCL ' "$dir/err" && losses "$dir/local/metrics.jsonl" >"$dir/a" &&
        losses "$dir/nccl/metrics.jsonl" | cmp -s - "$dir/a" && [ "$(wc -l <"$dir/a")" -eq 3 ] &&
        [ "$(hash_of "$dir/local/checkpoint/step-3")" = "$(hash_of "$dir/nccl/checkpoint/step-3")" ]
    ok "nccl_has_the_bits_of_local_$name"
    rm -rf "$dir/local" "$dir/nccl"
}
same fsdp $p.data_parallel_shard_degree 2
same tp $p.tensor_parallel_degree 2
same pp $p.pipeline_parallel_degree 2 $p.pipeline_parallel_microbatches 4
same cp_ring $p.context_parallel_degree 2 $p.context_parallel_rotate_method ring

# The spaces of the plan are registered once with each communicator, and deregistered before they are freed; an NCCL that cannot (2.18) or
# that refuses trains on, with a line at -v.
fsdp="--nproc 2 $p.data_parallel_shard_degree 2 --training.steps 2 --checkpoint.interval 2 --comm.host local"
FAKE_NCCL_TRACE=1
export FAKE_NCCL_TRACE
# shellcheck disable=SC2086
train "$dir/registered" $cuda $nccl $fsdp
grep '^fake NCCL: registers' "$dir/err" | sort >"$dir/a"
sed -n 's/^fake NCCL: deregisters/fake NCCL: registers/p' "$dir/err" | sort >"$dir/b"
[ "$rc" -eq 0 ] && [ -s "$dir/a" ] && [ "$(uniq "$dir/a" | wc -l)" = "$(wc -l <"$dir/a")" ] && cmp -s "$dir/a" "$dir/b"
ok "each_space_is_registered_once_and_deregistered"
mkdir "$dir/old" && sed 's/ncclCommRegister/ncclCommRegistex/g' "$lib/libnccl.so.2" >"$dir/old/libnccl.so.2"
# shellcheck disable=SC2086
train "$dir/old_nccl" $cuda --comm.backend nccl --comm.args.libraries "$dir/old" $fsdp
[ "$rc" -eq 0 ] && ! grep -q '^fake NCCL: registers' "$dir/err" && grep -q "comm\] NCCL .*$dir/old/" "$dir/err" &&
    [ "$(hash_of "$dir/registered/checkpoint/step-2")" = "$(hash_of "$dir/old_nccl/checkpoint/step-2")" ]
ok "an_nccl_without_registration_has_the_same_bits"
FAKE_CUDA_FAIL='ncclCommRegister:*=3'
export FAKE_CUDA_FAIL
# shellcheck disable=SC2086
train "$dir/refused" $cuda $nccl $fsdp -v
unset FAKE_CUDA_FAIL FAKE_NCCL_TRACE
[ "$rc" -eq 0 ] && [ "$(grep -c 'NCCL does not register .* of device memory (internal error); training goes on without' "$dir/err")" -eq 1 ] &&
    [ "$(hash_of "$dir/registered/checkpoint/step-2")" = "$(hash_of "$dir/refused/checkpoint/step-2")" ]
ok "a_registration_that_fails_is_one_line_and_has_the_same_bits"

# says TEXT: the last run failed with one line
says() {
    [ "$rc" -ne 0 ] && grep -q "$1" "$dir/err"
}
two="--nproc 2 $p.data_parallel_shard_degree 2 --training.steps 1"
# shellcheck disable=SC2086
train "$dir/t" --backend.name cpu $two --comm.host local
says 'comm.host: local: it has an effect only beside a comm plugin of devices'
ok "host_needs_a_comm_of_devices"
# shellcheck disable=SC2086
train "$dir/t" $cuda $two $nccl --comm.host nccl
says 'comm.host: nccl is of device memory; take auto, local, shm or mpi'
ok "host_is_of_host_memory"
# shellcheck disable=SC2086
train "$dir/t" --backend.name cpu $two $nccl --comm.host local
says 'comm.backend: nccl: it needs memory of a device, and the backend cpu uses host memory'
ok "nccl_needs_a_device"

# The fake NCCL refuses an id of another process: so the host's communicator has carried it.
joins() { # NAME OPTION…
    name=$1
    shift
    # shellcheck disable=SC2086
    train "$dir/t" $cuda $two $nccl "$@"
    carried
    ok "$name"
}
carried() { says '^ttrun: \(rank [01]: \)\{0,1\}NCCL, ncclCommInitRankConfig of ranks 0, 1: invalid usage: the ranks of the fake are threads'; }
joins processes_of_one_machine_share_memory --comm.host shm

# ---- the plan ----
planned() { # OPTION… : bytes of a device
    # shellcheck disable=SC2086
    ttrun plan "$job" $cuda --world 2 $p.data_parallel_shard_degree 2 --json "$@" 2>"$dir/err" | tee "$dir/out" |
        sed -n 's/.*"device":\([0-9]*\),.*/\1/p' | head -n 1
}
more=$(planned $nccl --comm.host local) less=$(planned --comm.backend local)
[ -n "$less" ] && [ "$more" -gt "$less" ] && [ "$(planned $nccl --comm.host local --comm.args.reduction fast)" = "$less" ]
ok "plan_counts_the_scratch_of_nccl"

# ---- comm.backend auto ----
args="--comm.args.libraries $lib"
train3() { # NAME OPTION… : three steps of two ranks on the fake
    folder=$dir/$1
    shift
    # shellcheck disable=SC2086
    train "$folder" $cuda $two --training.steps 3 "$@"
}
same_as_local() {
    [ "$rc" -eq 0 ] && losses "$dir/l/metrics.jsonl" >"$dir/a" && losses "$folder/metrics.jsonl" | cmp -s - "$dir/a" && [ "$(wc -l <"$dir/a")" -eq 3 ]
}
train3 l --comm.backend local
[ "$rc" -eq 0 ]
ok "local_runs"
# shellcheck disable=SC2086
train "$dir/t" $cuda $two $args
carried
ok "auto_takes_nccl_for_as_many_gpus_as_ranks"
# shellcheck disable=SC2086
FAKE_NCCL_VERSION=21700 train3 old $args
same_as_local && grep -q 'comm.backend auto: not nccl: .* is NCCL 2.17.0' "$dir/err" && grep -q '2 ranks run as threads' "$dir/err"
ok "auto_takes_threads_without_nccl"
# shellcheck disable=SC2086
FAKE_CUDA_DEVICES=1 train3 one $args
same_as_local && grep -q 'comm.backend auto: not nccl: 2 ranks of a machine share 1 GPU, ' "$dir/err" && grep -q '2 ranks run as threads' "$dir/err"
ok "auto_takes_threads_for_ranks_that_share_a_gpu"
train3 shm --comm.backend shm
same_as_local && grep -q 'I comm\] tensors go from device to device through host memory, which is slow$' "$dir/err"
ok "processes_without_nccl_go_through_the_host"

# torchrun on two machines, without MPI: LOCAL_WORLD_SIZE 1 of 2
key=$(basename "$dir")
other() {
    # shellcheck disable=SC2086
    RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 MASTER_ADDR=127.0.0.1 MASTER_PORT="$key" TORCHELASTIC_RUN_ID="$key" \
        train "$dir/t" $cuda $nccl $p.data_parallel_shard_degree 2 --training.steps 1 "$@"
}
other --comm.host shm
says 'comm.host: shm: only 1 of 2 ranks are on this machine'
ok "shared_memory_does_not_reach_another_machine"
mkdir -p "$dir/plugins"
for f in "$PLUGINS"/*; do ln -s "$f" "$dir/plugins/"; done
rm "$dir/plugins/comms" && mkdir "$dir/plugins/comms" && ln -s "$PLUGINS/comms/nccl.so" "$dir/plugins/comms/"
all=$PLUGINS
PLUGINS=$dir/plugins
other --only-plugin-dirs
says 'comm.host: auto: the ranks are on several machines, but there is no comm plugin of host memory (mpi)'
ok "several_machines_need_a_host_communicator"
PLUGINS=$all
if has_mpirun && [ -e "$PLUGINS/comms/mpi.so" ]; then
    allow_leaks
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    other --comm.host mpi
    says 'MPI says rank 0 of 1, .*: start the ranks with the mpirun or srun of the MPI'
    ok "torchrun_on_several_machines_is_told_what_is_missing"
    joins processes_of_mpirun --comm.host mpi
    # two machines: each rank is alone on its own
    cat >"$dir/alone.sh" <<'RANK'
OMPI_COMM_WORLD_LOCAL_RANK=0 OMPI_COMM_WORLD_LOCAL_SIZE=1
export OMPI_COMM_WORLD_LOCAL_RANK OMPI_COMM_WORLD_LOCAL_SIZE
exec "$@"
RANK
    # mpi FOLDER SCRIPT OPTION…
    mpi() {
        folder=$1 script=$2
        shift 2
        # shellcheck disable=SC2086
        mpirun -np 2 --oversubscribe $script "$TTRUN" "$job" --plugin-dir "$PLUGINS" --dump_folder "$folder" $cuda \
            $p.data_parallel_shard_degree 2 --training.steps 3 "$@" >"$dir/out" 2>"$dir/err"
        rc=$?
    }
    alone="sh $dir/alone.sh"
    # shellcheck disable=SC2086
    mpi "$dir/t" "$alone" $nccl
    carried
    ok "several_machines_take_mpi_for_the_host"
    # shellcheck disable=SC2086
    mpi "$dir/t" "$alone" $args
    carried
    ok "auto_takes_nccl_on_several_machines"
    # shellcheck disable=SC2086
    FAKE_NCCL_VERSION=21700 mpi "$dir/far" "$alone" $args
    same_as_local && grep -q 'W comm\] tensors go .* which is slow: not nccl, on rank 0: .* is NCCL 2.17.0' "$dir/err"
    ok "auto_says_that_machines_without_nccl_are_slow"
    # shellcheck disable=SC2086
    FAKE_CUDA_DEVICES=1 mpi "$dir/near" "" $args
    same_as_local && grep -q 'I comm\] tensors go .* slow: not nccl, on rank 0: 2 ranks of a machine share 1 GPU' "$dir/err"
    ok "auto_sees_that_ranks_of_a_launcher_share_a_gpu"
fi
exit $failed
