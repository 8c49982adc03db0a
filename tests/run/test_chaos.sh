#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# SIGKILL of the whole run, of one rank or of the supervisor, mostly while it saves, and the next start at once: on one mesh the curve is that of the
# unbroken run to the bit, on meshes drawn anew it is to rounding. Never an incomplete step, nothing kept that should be gone, nothing
# left behind. KILLS=200 kills more often (make chaos), SEED=7 draws other moments.
. "$(dirname "$0")/processes.sh"
kills=${KILLS:-20} seed=${SEED:-1}
export TMPDIR="$dir/tmp" XDG_CACHE_HOME="$dir/cache"
mkdir -p "$TMPDIR" "$XDG_CACHE_HOME"
shm_before
common="--checkpoint.interval 1 --checkpoint.keep_latest_k 2"

mesh_of() { # NUMBER: a mesh whose global batch is 4 sequences
    p=--parallelism
    case $1 in
    0) echo "--training.local_batch_size 4" ;;
    1) echo "--nproc 2 --comm.backend shm --training.local_batch_size 2 $p.data_parallel_shard_degree 2" ;;
    2) echo "--nproc 2 --comm.backend shm --training.local_batch_size 4 $p.tensor_parallel_degree 2" ;;
    3) echo "--nproc 2 --comm.backend local --training.local_batch_size 2 $p.data_parallel_shard_degree 2" ;;
    4) echo "--nproc 4 --comm.backend shm --training.local_batch_size 2 $p.data_parallel_shard_degree 2 $p.tensor_parallel_degree 2" ;;
    5) echo "--max-restarts 1000 --checkpoint.peer_copy_interval 1 $(mesh_of 1)" ;;
    6) echo "--max-restarts 1000 $(mesh_of 4)" ;;
    7) echo "--max-restarts 1000 $(mesh_of 3)" ;;
    esac
}
goes_on() { grep -q 'supervisor\] step .* is done .* after the failure' "$folder.err"; }
# Until a save is under way. Nothing is slept between two looks: a save of this model lasts some milliseconds, and each step begins one.
saves() {
    waits_for "a save in $folder"
    until run_is_over; do
        for at in "$folder"/checkpoint/step-*.tmp; do [ -e "$at" ] && return 0; done
    done
    return 1
}
steps_logged() { if [ -e "$1/metrics.jsonl" ]; then wc -l <"$1/metrics.jsonl"; else echo 0; fi; }
whole_steps() { # FOLDER: no more than two are kept, one more where the kill came before its removal; all are whole
    n=0
    for at in "$1"/checkpoint/step-*; do
        case $at in *.tmp | *.old-* | *'*') continue ;; esac
        n=$((n + 1))
        "$TTRUN" ckpt verify "$at" >>"$dir/out" 2>&1 || return 1
    done
    [ $n -le 3 ]
}
kill_once() { # NUMBER MESH WHEN WHOM WAITS: starts the run of $folder, and kills it
    lines=$(steps_logged "$folder")
    : >"$folder.out" 2>"$folder.err"
    PATH=$dir/bin "$TTRUN" "$job" --plugin-dir "$PLUGINS" --dump_folder "$folder" $long $common $(mesh_of "$2") >"$folder.out" 2>"$folder.err" &
    pid=$!
    until_true has_lines "$folder/metrics.jsonl" $((lines + 2)) || bad="$bad $1: no steps: $(grep -v ' I ' "$folder.err" | head -n 1);"
    [ "$3" = later ] || saves || bad="$bad $1: no save;"
    victim=$pid
    [ "$4" -eq 0 ] || victim=$(ranks "$folder" | sed -n "$4p")
    kill -9 "${victim:-$pid}" 2>/dev/null
    for at in "$folder"/checkpoint/step-*.tmp; do [ ! -e "$at" ] || echo "$1" >>"$folder.in"; done
    if [ "$2" -ge 5 ] && [ "$victim" != $pid ]; then # a rank of a supervisor, which starts all again; then it is killed, too
        until_true goes_on || bad="$bad $1: no restart;"
        kill -9 $pid
    fi
    wait $pid 2>/dev/null
    [ "$5" -eq 0 ] || { until_gone no_rank "$folder" && whole_steps "$folder"; } || bad="$bad $1: a step is not whole;"
}
# moments N: lines "number mesh when whom waits"
moments() {
    awk -v n="$1" -v meshes="$2" -v seed="$seed" 'BEGIN {
        srand(seed)
        k = split(meshes, mesh, " ")
        for (i = 1; i <= n; i++) {
            m = mesh[1 + int(k * rand())]
            ranks = m == 4 || m == 6 ? 4 : m == 1 || m == 2 || m == 5 ? 2 : m == 7
            print i, m, rand() < 0.8 ? "saving" : "later", int((ranks + 1) * rand()), i % 2
        }
    }'
}
torment() { # NAME KILLS MESHES
    folder=$dir/$1 bad=
    moments "$2" "$3" >"$dir/moments"
    while read -r number mesh when whom waits; do
        kill_once "$number" "$mesh" "$when" "$whom" "$waits"
    done <"$dir/moments"
    until_gone no_rank "$folder"
    : >"$dir/out"
    steps=$(($(newest "$folder/checkpoint") + 3))
}
finish() { # NAME MESH: the tormented run to its end, and the unbroken one
    train "$dir/$1" --training.steps $steps $common $(mesh_of "$2")
    status=$rc
    train "$dir/$1-whole" --training.steps $steps $common $(mesh_of "$2")
    losses "$dir/$1/metrics.jsonl" >"$dir/$1.losses"
    losses "$dir/$1-whole/metrics.jsonl" >"$dir/$1-whole.losses"
    echo "# $1: $steps steps, killed while saving $(grep -c . "$dir/$1.in") times"
    [ -z "$bad" ] && [ $status -eq 0 ] && [ $rc -eq 0 ]
}
is_clean() { # NAME: what retention keeps, and no other name
    rm -f "$dir/names"
    (cd "$dir/$1/checkpoint" && echo *) >"$dir/names"
    [ "$(tr ' ' '\n' <"$dir/names" | sort -V | tr '\n' ' ')" = "step-$((steps - 1)) step-$steps " ] &&
        [ -z "$(find "$dir/$1" "$TMPDIR" "$XDG_CACHE_HOME" -mindepth 1 \( -name '*.tmp*' -o -name '*.old-*' -o -type s -o -type p \) | tee -a "$dir/err")" ] &&
        [ -z "$(find "$TMPDIR" -mindepth 1 ! -path "$dir/tmp/run.*" | tee -a "$dir/err")" ]
}

torment one_mesh $((kills / 2)) "1 5"
finish one_mesh 1 && cmp "$dir/one_mesh.losses" "$dir/one_mesh-whole.losses" >>"$dir/err" &&
    [ "$(hash_of "$dir/one_mesh/checkpoint/step-$steps")" = "$(hash_of "$dir/one_mesh-whole/checkpoint/step-$steps")" ]
ok "$((kills / 2))_kills_on_one_mesh_change_no_bit$bad"
is_clean one_mesh
ok kills_on_one_mesh_leave_nothing

# A low learning rate: with the job's own, unbroken runs of 1 rank and of tensor_parallel_degree 2 are 9e-4 apart after 210 steps, with
# this one 1e-7 after 260, because roundings do not grow.
common="$common --optimizer.lr 0.0001"
torment meshes $((kills - kills / 2)) "0 1 2 3 4 5 6 7"
finish meshes 0 && paste -d ' ' "$dir/meshes.losses" "$dir/meshes-whole.losses" |
    awk -v steps="$steps" '{d = $2 - $4; d = d < 0 ? -d : d; if (d > most) most = d; n += d < 1e-5 * $4 && $1 == $3; if (d >= 1e-5 * $4) print > "/dev/stderr"}
        END {print "# largest difference of the losses: " most; exit n != steps}' 2>>"$dir/err"
ok "$((kills - kills / 2))_kills_on_changing_meshes_change_only_roundings$bad"
is_clean meshes
ok kills_on_changing_meshes_leave_nothing
shm_left >>"$dir/err"
[ $? -ne 0 ]
ok no_shared_memory_is_left
exit $failed
