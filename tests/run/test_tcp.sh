#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Two "machines" of two ranks each over TCP, by variables as torchrun sets them: the same bits as rank-threads.
. "$(dirname "$0")/nodes.sh"
machines() { # FOLDER OPTION...
    folder=$1
    shift
    next_port
    for rank in 0 1 2 3; do
        # the key of the session comes from MASTER_ADDR too: two names of one address are two machines
        address=localhost
        [ $rank -lt 2 ] || address=127.0.0.1
        : >"$folder.out$rank" 2>"$folder.err$rank" # not the text of an earlier run
        RANK=$rank WORLD_SIZE=4 LOCAL_RANK=$((rank % 2)) LOCAL_WORLD_SIZE=2 MASTER_ADDR=$address MASTER_PORT=$port "$TTRUN" "$job" \
            --plugin-dir "$PLUGINS" --dump_folder "$folder" "$@" >"$folder.out$rank" 2>"$folder.err$rank" </dev/null &
        eval "pid$rank=$!"
    done
}
# run_is_over, for until_true: all four have ended
run_is_over() {
    for rank in 0 1 2 3; do eval "has_ended \"\$pid$rank\"" || return 1; done
}
joined() { # the status of all: 0, or that of one that failed
    waits_for "the end of all ranks of $folder"
    rc=0
    for rank in 0 1 2 3; do
        eval "wait \$pid$rank" || rc=$?
    done
    cat "$folder".err? >"$dir/err"
}
while read -r name options; do
    train "$dir/t" --nproc 4 --training.steps 3 --checkpoint.interval 3 $options --comm.backend local
    machines "$dir/m" --training.steps 3 --checkpoint.interval 3 $options
    joined
    [ "$rc" -eq 0 ] && losses "$dir/t/metrics.jsonl" >"$dir/a" && losses "$dir/m/metrics.jsonl" | cmp -s - "$dir/a" &&
        [ "$(wc -l <"$dir/a")" -eq 3 ] && [ "$(hash_of "$dir/t/checkpoint/step-3")" = "$(hash_of "$dir/m/checkpoint/step-3")" ]
    ok "tcp_machines_$name"
    rm -rf "$dir/t" "$dir/m"
done <<MESHES
tp2_fsdp2 --parallelism.tensor_parallel_degree 2
fsdp4_tcp_alone --parallelism.data_parallel_shard_degree 4 --comm.backend tcp
pp2_tp2 --parallelism.pipeline_parallel_degree 2 --parallelism.tensor_parallel_degree 2
MESHES

of_run() { pgrep -f "^$program .*--dump_folder $1 " | sort -n; }
nobody() { [ -z "$(of_run "$1")" ]; }

# A killed rank ends all: one line of its own machine, one of the other.
export TTRUN_PATIENCE=4 # on the machine without the lost rank all wait 8 s in vain for a better reason than "a connection has ended"
machines "$dir/lost" --training.steps 1000000 --checkpoint.interval 1000000
until_true has_lines "$dir/lost/metrics.jsonl" 2
kill -9 "$(of_run "$dir/lost" | tail -n 1)"
joined
[ $rc -ne 0 ] && grep -q '^ttrun: rank [0-3] was lost at [a-z_]* number [0-9]*: ' "$dir/err" &&
    grep -q '^ttrun: .*rank [0-3] on .* was lost: its connection has ended' "$dir/err" && [ "$(grep -c '^ttrun: ' "$dir/err")" -eq 2 ] &&
    until_gone nobody "$dir/lost"
ok tcp_killed_rank_ends_both_machines_by_a_line_each
# A rank with another secret is refused, and the line says what to look at.
next_port
secret() { # RANK
    : >"$dir/out$1" 2>"$dir/err$1"
    TTRUN_COMM_SECRET=of$1 RANK=$1 WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 MASTER_ADDR=127.0.0.$(($1 + 1)) MASTER_PORT=$port own_clock "$TTRUN" "$job" \
        --plugin-dir "$PLUGINS" --dump_folder "$dir/secret" --comm.init_timeout_seconds 1000000 >"$dir/out$1" 2>"$dir/err$1" </dev/null &
    eval "pid$1=$!"
}
secret 0
pid2=$pid0 pid3=$pid0 pid1=$pid0
until_true listening "$port"
CONNECTS=$dir/connects secret 1
pid2=$pid1 pid3=$pid1
until_true has_lines "$dir/connects" 3 # so it has heard the first two refusals; hours later it gives up
passes "$pid1" "$pid0"
wait "$pid0"
rc0=$?
wait "$pid1"
rc1=$?
[ $rc0 -eq 1 ] && [ $rc1 -eq 1 ] && grep -q 'what listens there refuses this rank: are TTRUN_COMM_SECRET' "$dir/err1"
ok tcp_rank_with_another_secret_is_refused
exit $failed
