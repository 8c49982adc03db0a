#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Ranks as processes: started by mpirun, by torchrun's variables, by ttrun itself; the same bits as rank-threads; what
# one rank's end does to the others.
. "$(dirname "$0")/lib.sh"
long="--training.steps 1000000 --metrics.log_freq 1"
program=$(readlink -f "$TTRUN")
unset RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT
has_mpirun() { command -v mpirun >/dev/null; }
has_mpirun || echo "# no mpirun here: \`make deps\` installs it; its part is skipped"
# A PATH without mpirun.
mkdir "$dir/bin"
for tool in sh env cat; do ln -s "$(command -v $tool)" "$dir/bin/"; done

# How ranks are started: under mpirun where it is, and by ttrun itself.
ways="own"
has_mpirun && ways="mpirun own"
# processes WAY FOLDER OPTION...: as train
processes() {
    way=$1 folder=$2
    shift 2
    path=$PATH
    case $way in own) path=$dir/bin && set -- --comm.backend shm "$@" ;; esac
    PATH=$path "$timeout" 60 "$TTRUN" "$job" --plugin-dir "$PLUGINS" --dump_folder "$folder" "$@" >"$dir/out" 2>"$dir/err"
    rc=$?
}
timeout=$(command -v timeout)

# ---- the same bits ----
for way in $ways; do
    while read -r name options; do
        [ -e "$dir/t-$name" ] || train "$dir/t-$name" --comm.backend local $options
        processes $way "$dir/p-$name" $options
        [ "$rc" -eq 0 ] && losses "$dir/t-$name/metrics.jsonl" >"$dir/a" && losses "$dir/p-$name/metrics.jsonl" | cmp -s - "$dir/a" &&
            [ "$(wc -l <"$dir/a")" -eq 10 ] &&
            [ "$(hash_of "$dir/t-$name/checkpoint/step-10")" = "$(hash_of "$dir/p-$name/checkpoint/step-10")" ] &&
            grep -q '"world":[24],' "$dir/p-$name/run.json"
        ok "${way}_${name}_equals_threads"
        rm -rf "$dir/p-$name"
        [ $way = "${ways%% *}" ] || break # the others by one way alone
    done <<'MESHES'
hsdp --nproc 4 --parallelism.data_parallel_replicate_degree 2 --parallelism.data_parallel_shard_degree 2
fsdp2 --nproc 2
tp2 --nproc 2 --parallelism.tensor_parallel_degree 2
pp2 --nproc 2 --parallelism.pipeline_parallel_degree 2
cp2 --nproc 2 --parallelism.context_parallel_degree 2
tp2pp2 --nproc 4 --parallelism.tensor_parallel_degree 2 --parallelism.pipeline_parallel_degree 2
MESHES
done

# ---- joining what others started ----
for rank in 0 1; do
    RANK=$rank WORLD_SIZE=2 LOCAL_RANK=$rank LOCAL_WORLD_SIZE=2 MASTER_ADDR=localhost MASTER_PORT=$$ "$timeout" 60 "$TTRUN" "$job" \
        --plugin-dir "$PLUGINS" --dump_folder "$dir/torch" >"$dir/out$rank" 2>"$dir/err$rank" &
    eval "pid$rank=$!"
done
wait $pid0 && wait $pid1 && losses "$dir/torch/metrics.jsonl" >"$dir/a" && losses "$dir/t-fsdp2/metrics.jsonl" | cmp -s - "$dir/a" &&
    grep -q 'step: 10 ' "$dir/err0" && ! [ -s "$dir/err1" ] && ! [ -s "$dir/out0" ] && ! [ -s "$dir/out1" ]
ok torchrun_variables_make_ranks_and_rank_0_speaks
RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 MASTER_ADDR=localhost MASTER_PORT=1 "$timeout" 60 "$TTRUN" "$job" \
    --plugin-dir "$PLUGINS" --comm.backend shm --dump_folder "$dir/nodes" >"$dir/out" 2>"$dir/err"
rc=$?
[ $rc -eq 2 ] && one_line "$dir/err" && grep -q 'shm: 1 of 2 ranks are on this machine' "$dir/err"
ok shm_over_machines_is_an_error
RANK=1 WORLD_SIZE=1 ttrun "$job" --dump_folder "$dir/nonsense" >"$dir/out" 2>"$dir/err"
rc=$?
[ $rc -eq 2 ] && one_line "$dir/err" && grep -q 'RANK=1 and WORLD_SIZE=1' "$dir/err"
ok variables_that_make_no_sense_are_an_error
if has_mpirun; then
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    "$timeout" 60 mpirun -q --oversubscribe -np 2 "$TTRUN" "$job" --plugin-dir "$PLUGINS" --dump_folder "$dir/by-hand" >"$dir/out" 2>"$dir/err"
    rc=$?
    [ $rc -eq 0 ] && losses "$dir/by-hand/metrics.jsonl" | cmp -s - "$dir/a" && [ "$(grep -c 'step: 10 ' "$dir/err")" -eq 1 ]
    ok mpirun_by_hand_is_joined
    "$timeout" 60 mpirun -q --oversubscribe -np 3 "$TTRUN" "$job" --plugin-dir "$PLUGINS" --training.stpes 3 >"$dir/out" 2>"$dir/err"
    rc=$?
    [ $rc -eq 2 ] && one_line "$dir/err" && grep -q 'training.stpes: unknown key' "$dir/err"
    ok what_all_ranks_find_wrong_is_said_once
    "$timeout" 60 mpirun -q --oversubscribe -np 2 "$TTRUN" "$job" --plugin-dir "$PLUGINS" --comm.backend local >"$dir/out" 2>"$dir/err"
    rc=$?
    [ $rc -eq 2 ] && one_line "$dir/err" && grep -q 'comm.backend.*local.*mpirun started 2' "$dir/err"
    ok local_under_mpirun_is_an_error
    unset OMPI_ALLOW_RUN_AS_ROOT OMPI_ALLOW_RUN_AS_ROOT_CONFIRM
fi
PATH=$dir/bin "$timeout" 60 "$TTRUN" "$job" --plugin-dir "$PLUGINS" --nproc 2 --dump_folder "$dir/nompi" >"$dir/out" 2>"$dir/err"
rc=$?
[ $rc -eq 0 ] && grep -q 'no mpirun on this machine' "$dir/err" && grep -q 'threads of this process' "$dir/err"
ok without_mpirun_nproc_is_rank_threads
PATH=$dir/bin "$timeout" 60 "$TTRUN" "$job" --plugin-dir "$PLUGINS" --nproc 2 --comm.backend mpi --dump_folder "$dir/nompi2" >"$dir/out" 2>"$dir/err"
rc=$?
[ $rc -eq 2 ] && one_line "$dir/err" && grep -q 'there is no mpirun; install' "$dir/err"
ok mpi_without_mpirun_is_an_error
mkdir "$dir/broken"
printf '#!/bin/sh\nexit 1\n' >"$dir/broken/mpirun"
chmod +x "$dir/broken/mpirun"
PATH=$dir/broken:$PATH "$timeout" 60 "$TTRUN" "$job" --plugin-dir "$PLUGINS" --nproc 2 --dump_folder "$dir/nompi3" >"$dir/out" 2>"$dir/err"
rc=$?
[ $rc -eq 1 ] && one_line "$dir/err" && grep -q 'mpirun started no rank (status 1)' "$dir/err"
ok mpirun_that_starts_nothing_is_named
train "$dir/nccl" --nproc 2 --comm.backend nccl
[ "$rc" -eq 2 ] && one_line "$dir/err" && grep -q 'nccl.*not' "$dir/err"
ok nccl_is_not_built_yet
train "$dir/mesh" --nproc 2 --parallelism.tensor_parallel_degree 4
[ "$rc" -eq 2 ] && one_line "$dir/err" && ! [ -e "$dir/mesh" ]
ok mesh_that_does_not_fit_is_said_once

# ---- ends ----
# ranks FOLDER: the processes that are ranks of this run
ranks() { pgrep -f "^$program train .*--dump_folder $1 " | sort -n; }
launch() { # WAY FOLDER OPTION...: in the background as $pid, until two steps are logged
    way=$1 folder=$2
    shift 2
    path=$PATH
    case $way in own) path=$dir/bin && set -- --comm.backend shm "$@" ;; esac
    PATH=$path "$TTRUN" "$job" --plugin-dir "$PLUGINS" --dump_folder "$folder" $long "$@" >"$folder.out" 2>"$folder.err" &
    pid=$!
    until_true has_lines "$folder/metrics.jsonl" 2
}
ends_within() { # SECONDS STATUS: $pid, and no rank of $folder outlives it
    begin=$(date +%s)
    ("$timeout" -s KILL 20 tail --pid=$pid -f /dev/null)
    wait $pid 2>/dev/null
    rc=$?
    took=$(($(date +%s) - begin))
    cp "$folder.err" "$dir/err"
    sleep 0.2
    left=$(ranks "$folder")
    [ $rc -eq "$2" ] && [ $took -le "$1" ] && [ -z "$left" ]
}
for way in $ways; do
    launch $way "$dir/$way-term" --nproc 2 --checkpoint.interval 1000000
    kill -TERM $pid
    ends_within 10 4 && step=$(newest "$folder/checkpoint") && [ "$(value "$folder/metrics.jsonl" step)" = "$step" ] &&
        grep -q "stopped by signal .* after step $step, saved" "$dir/err" && [ "$(grep -c 'stopped by' "$dir/err")" -eq 1 ]
    ok "${way}_sigterm_saves_and_ends_with_4"
    launch $way "$dir/$way-usr" --nproc 2 --checkpoint.interval 1000000
    kill -USR1 $pid
    saved() { [ -n "$(newest "$folder/checkpoint")" ]; }
    until_true saved && kill -INT $pid && ends_within 10 4
    ok "${way}_sigusr1_saves_and_goes_on"
    for k in 1 2; do
        launch $way "$dir/$way-kill$k" --nproc 2 --checkpoint.interval 1000000
        victim=$(ranks "$folder" | sed -n "${k}p")
        kill -9 "$victim"
        ends_within 10 1 && one_line "$dir/err" && grep -q '^ttrun: rank [01] was lost at [a-z_]* number [0-9]*: ' "$dir/err"
        ok "${way}_killed_rank_$k""_ends_all_with_one_line"
    done
    launch $way "$dir/$way-hang" --nproc 2 --comm.train_timeout_seconds 1
    victim=$(ranks "$folder" | tail -n 1)
    kill -STOP "$victim"
    ends_within 10 1
    good=$?
    kill -9 "$victim" 2>/dev/null
    [ $good -eq 0 ] && one_line "$dir/err" && grep -q '^ttrun: rank [01]: .* number [0-9]* waited 1 s .*ranks that did not come: [01]$' "$dir/err"
    ok "${way}_rank_that_hangs_is_named"
    launch $way "$dir/$way-launcher" --nproc 2
    kill -9 $pid
    ends_within 3 137
    ok "${way}_killed_launcher_leaves_no_orphan"
    processes $way "$dir/$way-nan" --nproc 2 --optimizer.lr 1e38
    [ "$rc" -eq 3 ] && one_line "$dir/err"
    ok "${way}_nan_ends_with_3"
    launch $way "$dir/$way-gone" --nproc 2 --checkpoint.interval 1000000
    echo "in the way" >"$folder/checkpoint"
    kill -USR1 $pid
    ends_within 10 1 && one_line "$dir/err" && grep -q '^ttrun: rank 0: .*gone/checkpoint' "$dir/err"
    ok "${way}_failure_of_one_rank_ends_all_with_its_line"
done
if has_mpirun; then
    launch mpirun "$dir/mpirun-killed" --nproc 2
    kill -9 "$(pgrep -P $pid)"
    ends_within 3 1 && one_line "$dir/err" && grep -q 'mpirun was ended by signal 9' "$dir/err"
    ok killed_mpirun_takes_its_ranks_along
fi
(
    trap '' XFSZ
    ulimit -S -f 100
    processes own "$dir/full" --nproc 2 --training.steps 100000
    echo "$rc" >"$dir/full.rc"
    cp "$dir/err" "$dir/full.err"
)
[ "$(cat "$dir/full.rc")" -eq 1 ] && one_line "$dir/full.err" && grep -q '^ttrun: rank [01]: checkpoint of step 5: .*step-5.tmp' "$dir/full.err"
ok writer_that_fails_is_named_with_its_rank
launch own "$dir/held" --nproc 2
held=$pid
processes own "$dir/held" --nproc 2
[ "$rc" -eq 2 ] && one_line "$dir/err" && grep -q 'process [0-9]* is training in this folder' "$dir/err"
ok second_start_on_a_live_folder_names_the_holder
kill -9 $held
wait $held 2>/dev/null

# ---- kill -9 while saving, and again at once: never two writers, never half a checkpoint ----
bad=
starts=${KILLS:-10}
k=0
way=${ways%% *}
folder=$dir/killed
while [ $k -lt "$starts" ]; do
    k=$((k + 1))
    before=$(newest "$folder/checkpoint")
    lines=0
    [ -e "$folder/metrics.jsonl" ] && lines=$(wc -l <"$folder/metrics.jsonl")
    path=$PATH
    set -- --nproc 2 --checkpoint.interval 1 --checkpoint.keep_latest_k 2
    case $way in own) path=$dir/bin && set -- --comm.backend shm "$@" ;; esac
    PATH=$path "$TTRUN" "$job" --plugin-dir "$PLUGINS" --dump_folder "$folder" $long "$@" >"$folder.out" 2>"$folder.err" &
    pid=$!
    until_true has_lines "$folder/metrics.jsonl" $((lines + 1 + k % 7)) || bad="$bad $k: no steps;"
    case $way in
    mpirun) kill -9 "$(pgrep -P $pid)" ;; # mpirun itself; the next start comes at once
    own) kill -9 $pid ;;
    esac
    [ -z "$before" ] || grep -q "resumed from .*/step-$before," "$folder.err" || bad="$bad $k: not from step $before;"
done
wait 2>/dev/null
step=$(newest "$folder/checkpoint")
"$TTRUN" ckpt verify "$folder/checkpoint/step-$step" >"$dir/out" || bad="$bad step $step is damaged;"
steps=$((step + 3))
processes "$way" "$folder" --nproc 2 --training.steps $steps --checkpoint.interval 1000000
train "$dir/alive" --comm.backend local --nproc 2 --training.steps $steps --checkpoint.interval 1000000
[ -z "$bad" ] && [ "$(hash_of "$folder/checkpoint/step-$steps")" = "$(hash_of "$dir/alive/checkpoint/step-$steps")" ] &&
    losses "$dir/alive/metrics.jsonl" >"$dir/a" && losses "$folder/metrics.jsonl" | cmp -s - "$dir/a"
ok "kill_9_of_the_launcher_${starts}_times_loses_nothing$bad"
! ls /dev/shm 2>/dev/null | grep -q ttrun
ok nothing_stays_in_dev_shm
exit $failed
