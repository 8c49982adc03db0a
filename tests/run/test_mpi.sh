#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Meshes over real MPI (comm.backend mpi: no group uses shared memory): the same bits as rank-threads.
. "$(dirname "$0")/processes.sh"
if ! has_mpirun || ! [ -e "$PLUGINS/comms/mpi.so" ]; then
    echo "ok mpi_is_skipped_where_it_is_not"
    exit 0
fi
allow_leaks
export OMPI_MCA_mpi_yield_when_idle=1 # ranks that poll yield their core, so that those with news can run
sed 's/"n_layers": 2/"n_layers": 4/' "$dir/job.json" >"$dir/deep.json"
job=$dir/deep.json
# tests/comm compares each call of the transports to the bit, so one mesh of each kind of calls is enough; the long tier has them all.
some=" fsdp3 hsdp tp2_no_sp cp2_ring_fsdp2 cp2_ulysses pp2_fsdp2_recompute machines_hsdp machines_pp2_tp2 "
is_taken() { is_long || [ "${some#* "$1" }" != "$some" ]; }
m=--parallelism.pipeline_parallel_microbatches
while read -r name ranks shard replicate tp cp pp options; do
    is_taken "$name" || continue
    set -- --nproc "$ranks" --training.steps 3 --checkpoint.interval 3 --parallelism.data_parallel_shard_degree "$shard" \
        --parallelism.data_parallel_replicate_degree "$replicate" --parallelism.tensor_parallel_degree "$tp" \
        --parallelism.context_parallel_degree "$cp" --parallelism.pipeline_parallel_degree "$pp" $options
    train "$dir/t" --comm.backend local "$@"
    [ "$rc" -eq 0 ] || echo "# threads: $(tail -n 1 "$dir/err")"
    train "$dir/m" --comm.backend mpi "$@"
    [ "$rc" -eq 0 ] && losses "$dir/t/metrics.jsonl" >"$dir/a" && losses "$dir/m/metrics.jsonl" | cmp -s - "$dir/a" &&
        [ "$(wc -l <"$dir/a")" -eq 3 ] && [ "$(hash_of "$dir/t/checkpoint/step-3")" = "$(hash_of "$dir/m/checkpoint/step-3")" ]
    ok "mpi_$name"
    rm -rf "$dir/t" "$dir/m"
done <<MESHES
fsdp2 2 2 1 1 1 1
fsdp3 3 3 1 1 1 1
fsdp4 4 4 1 1 1 1
fsdp2_never 2 2 1 1 1 1 --parallelism.fsdp_reshard_after_forward never
fsdp2_accumulate 2 2 1 1 1 1 --training.global_batch_size 16
ddp2 2 1 2 1 1 1
ddp3 3 1 3 1 1 1
hsdp 4 2 2 1 1 1
tp2 2 1 1 2 1 1
tp2_no_sp 2 1 1 2 1 1 --parallelism.enable_sequence_parallel false
tp4 4 1 1 4 1 1
tp2_fsdp2 4 2 1 2 1 1
cp2 2 1 1 1 2 1
cp2_fsdp2 4 2 1 1 2 1
cp2_tp2 4 1 1 2 2 1
cp3_ring 3 1 1 1 3 1 --training.local_batch_size 1 --parallelism.context_parallel_rotate_method ring
cp2_ring_fsdp2 4 2 1 1 2 1 --training.local_batch_size 1 --parallelism.context_parallel_rotate_method ring
cp2_ulysses 2 1 1 1 2 1 --training.local_batch_size 1 --parallelism.context_parallel_rotate_method ulysses
pp2 2 1 1 1 1 2
pp2_gpipe 2 1 1 1 1 2 --parallelism.pipeline_parallel_schedule GPipe
pp3 3 1 1 1 1 3 $m 4
pp2_tp2 4 1 1 2 1 2
pp2_fsdp2_recompute 4 2 1 1 1 2 --activation_checkpoint.mode full
MESHES

# ---- two machines of two ranks each, by variables that say so: shared memory within, MPI between ----
cat >"$dir/node" <<'NODE'
#!/bin/sh
r=$OMPI_COMM_WORLD_RANK
export RANK=$r WORLD_SIZE=4 LOCAL_RANK=$((r % 2)) LOCAL_WORLD_SIZE=2 MASTER_ADDR=node$((r / 2)) MASTER_PORT=$PPID
exec "$@"
NODE
chmod +x "$dir/node"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
machines() { # FOLDER OPTION...
    mpirun -q --oversubscribe --bind-to none -np 4 "$dir/node" "$TTRUN" "$job" --plugin-dir "$PLUGINS" --dump_folder "$@"
}
while read -r name options; do
    is_taken "machines_$name" || continue
    train "$dir/t" --comm.backend local --nproc 4 --training.steps 3 --checkpoint.interval 3 $options
    machines "$dir/m" --training.steps 3 --checkpoint.interval 3 $options >"$dir/out" 2>"$dir/err" </dev/null
    rc=$?
    [ "$rc" -eq 0 ] && losses "$dir/t/metrics.jsonl" >"$dir/a" && losses "$dir/m/metrics.jsonl" | cmp -s - "$dir/a" &&
        [ "$(wc -l <"$dir/a")" -eq 3 ] && [ "$(hash_of "$dir/t/checkpoint/step-3")" = "$(hash_of "$dir/m/checkpoint/step-3")" ]
    ok "machines_$name"
    rm -rf "$dir/t" "$dir/m"
done <<MESHES
fsdp4 --parallelism.data_parallel_shard_degree 4
tp2_fsdp2 --parallelism.tensor_parallel_degree 2
hsdp --parallelism.data_parallel_replicate_degree 2 --parallelism.data_parallel_shard_degree 2
pp2_tp2 --parallelism.pipeline_parallel_degree 2 --parallelism.tensor_parallel_degree 2
MESHES
nobody_in() { ! pgrep -f "ttrun .*--dump_folder $1 " >"$dir/out"; }
machines "$dir/lost" --training.steps 1000000 >"$dir/out" 2>"$dir/err" </dev/null &
pid=$!
until_true has_lines "$dir/lost/metrics.jsonl" 2
kill -9 "$(pgrep -f "^[^ ]*ttrun .*--dump_folder $dir/lost " | sort -n | tail -n 1)"
wait $pid
rc=$?
[ $rc -ne 0 ] && one_line "$dir/err" && grep -q '^ttrun: rank [0-3] was lost at [a-z_]* number [0-9]*: ' "$dir/err" &&
    until_gone nobody_in "$dir/lost"
ok machines_killed_rank_ends_all_with_one_line
unset OMPI_ALLOW_RUN_AS_ROOT OMPI_ALLOW_RUN_AS_ROOT_CONFIRM

# a comm plugin is found by its name: MPI under another one
mkdir -p "$dir/comms/src"
sed 's/TT_KIND_COMM, "mpi"/TT_KIND_COMM, "mine"/; s/TT_PLUGIN("mpi"/TT_PLUGIN("mine"/' "$SRC/plugins/comms/mpi/mpi.c" >"$dir/comms/src/mpi.c"
cp "$SRC"/plugins/comms/mpi/*.h "$dir/comms/src"
for f in "$SRC"/plugins/comms/mpi/*.c; do [ "${f##*/}" = mpi.c ] || cp "$f" "$dir/comms/src"; done
cc -std=c11 -w -O1 -D_GNU_SOURCE -fPIC -shared -fvisibility=hidden "-I$SRC/include" "-I$SRC/plugins/comms" $(pkg-config --cflags ompi-c 2>/dev/null || mpicc --showme:compile) "$dir"/comms/src/*.c "$SRC/plugins/comms/tcp/pairwise.c" \
    "-L$BUILD" -lttrun $(pkg-config --libs ompi-c 2>/dev/null || mpicc --showme:link) -o "$dir/comms/mine.so" 2>"$dir/err" &&
    train "$dir/mine" --plugin-dir "$dir/comms" --nproc 2 --training.steps 3 --comm.backend mine --parallelism.tensor_parallel_degree 2 &&
    train "$dir/theirs" --nproc 2 --training.steps 3 --comm.backend mpi --parallelism.tensor_parallel_degree 2 &&
    losses "$dir/theirs/metrics.jsonl" >"$dir/a" && losses "$dir/mine/metrics.jsonl" | cmp -s - "$dir/a" && grep -q '"kind":"comm","name":"mine"' "$dir/mine/run.json"
ok comm_plugin_by_its_name

# what goes wrong over MPI ends as it does elsewhere
train "$dir/nan" --nproc 2 --comm.backend mpi --optimizer.lr 1e38
[ "$rc" -eq 3 ] && one_line "$dir/err"
ok mpi_nan_ends_with_3
start "$dir/term" --nproc 2 --comm.backend mpi --training.steps 1000000 --checkpoint.interval 1000000
until_true has_lines "$dir/term/metrics.jsonl" 2
kill -TERM $pid
wait $pid
rc=$?
[ $rc -eq 4 ] && [ -n "$(newest "$dir/term/checkpoint")" ]
ok mpi_sigterm_saves_and_ends_with_4
start "$dir/kill" --nproc 2 --comm.backend mpi --training.steps 1000000 --checkpoint.interval 1000000
until_true has_lines "$dir/kill/metrics.jsonl" 2
kill -9 "$(pgrep -f "train .*--dump_folder $dir/kill " | sort -n | tail -n 1)"
wait $pid
rc=$?
cp "$dir/kill.err" "$dir/err"
[ $rc -eq 1 ] && one_line "$dir/err" && grep -q '^ttrun: rank [01] was lost at [a-z_]* number [0-9]*: ' "$dir/err"
ok mpi_killed_rank_ends_all_with_one_line
exit $failed
