#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# checkpoint.peer_copy_interval with --nnodes: after a rank or a whole node is lost the ranks go on from copies in memory, its own or its
# neighbour's, without a disk and to the bit; who may not have copies gets none; nothing is left.
. "$(dirname "$0")/nodes.sh"
export TMPDIR="$dir/tmp" XDG_CACHE_HOME="$dir/cache"
mkdir -p "$TMPDIR" "$XDG_CACHE_HOME"
said() { grep -q -e "$2" "$1"; }
said_times() { [ "$(grep -c -e "$2" "$1")" -ge "$3" ]; }
kill_node() { # K: its ttrun and its ranks
    eval "outer=\$node$1"
    kill -9 "$outer" $(of_node "$outer") 2>/dev/null # ranks end with their ttrun
    wait "$outer" 2>/dev/null
}
# there FOLDER K TIMES: node K's copies have got to its neighbour, in so many starts
there() { until_true said_times "$1.err$2" "peers\] node $2's copies of step [0-9]* are at " "$3"; }
from_copy() { sed -n "s/.*resumed from the supervisor's copy of step \([0-9]*\), .*/\1/p" "$1" | tail -n 1; }
memories() { # K N: the supervisor has memory for copies of N ranks
    eval "outer=\$node$1"
    [ "$(find "/proc/$outer/fd" -lname '/memfd:copies*' | wc -l)" -eq "$2" ]
}
descriptors() { find "/proc/$node0/fd" -type l | wc -l; }

options="--nnodes 2 --nproc 2 --max-restarts 9 --training.local_batch_size 1 --parallelism.data_parallel_shard_degree 4 --checkpoint.interval 1000000
    --checkpoint.peer_copy_interval 3 $long"
# stops: node 0 is asked to stop; the run has the losses and the states of an unbroken one
stops() {
    kill -TERM "$node0"
    joined
    steps=$(newest "$folder/checkpoint")
    run=$folder
    train "$dir/whole" --nproc 4 --training.local_batch_size 1 --training.steps "$steps" --checkpoint.interval 1000000 --comm.backend local
    losses "$dir/whole/metrics.jsonl" >"$dir/a"
    folder=$run
    [ $rc0 -eq 4 ] && [ $rc1 -eq 4 ] && until_gone no_rank "$folder" && losses "$folder/metrics.jsonl" | cmp -s - "$dir/a" && [ "$(wc -l <"$dir/a")" -eq "$steps" ] &&
        [ "$(hash_of "$folder/checkpoint/step-$steps")" = "$(hash_of "$dir/whole/checkpoint/step-$steps")" ] && [ "$(cd "$folder/checkpoint" && echo step-*)" = "step-$steps" ]
    rc=$?
    rm -rf "$dir/whole"
    return $rc
}

# ---- a rank, a node, and node 0 are lost, one after the other ----
# goes_on TIMES: a step was done after so many failures, and both nodes' copies are at the other one
goes_on() { until_true said_times "$folder.err0" 'step [0-9]* is done .* s after the failure' "$1"; }
nodes "$dir/r" $options
there "$folder" 0 1 && there "$folder" 1 1
kill -9 "$(of_node "$node1" | tail -n 1)"
goes_on 1 && there "$folder" 0 2 && there "$folder" 1 2
first=$?
step_0=$(from_copy "$dir/r.err0")
open=$(descriptors)
memories 0 4 && memories 1 4 || first=1

kill_node 1
cp "$dir/r.err1" "$dir/r.err1.before"
node 1 "$dir/r" $options
goes_on 2 && there "$folder" 0 3 && there "$folder" 1 1
second=$?
step_1=$(from_copy "$dir/r.err0")
memories 0 4 && memories 1 4 && [ "$(descriptors)" -le $((open + 2)) ] || second=1

kill_node 0
lines=$(wc -l <"$folder/metrics.jsonl")
cp "$dir/r.err0" "$dir/r.err0.before"
node 0 "$dir/r" $options
there "$folder" 0 1 && there "$folder" 1 2 && until_true has_lines "$folder/metrics.jsonl" $((lines + 5))
third=$?
stops
same=$?
step_2=$(from_copy "$dir/r.err0")
echo "# from copies of steps $step_0, $step_1 and $step_2"
[ $first -eq 0 ] && [ "${step_0:-0}" -gt 0 ] && said "$dir/r.err0.before" "node 1 on .*: rank [23] .* was ended by SIGKILL .*; restart 1 of 9 from step $step_0\$"
ok peers_a_lost_rank_goes_on_from_copies
[ $second -eq 0 ] && [ "${step_1:-0}" -ge "$step_0" ] && said "$dir/r.err1" "node 1 has got the copies of step $step_1 of 2 ranks back" &&
    said "$dir/r.err0.before" "node 1 on .* was lost: .*; restart 2 of 9 from step $step_1\$"
ok peers_a_lost_node_gets_its_copies_back
[ $third -eq 0 ] && [ "${step_2:-0}" -ge "$step_1" ] && said "$dir/r.err0" "node 0 has got the copies of step $step_2 of 2 ranks back"
ok peers_a_lost_node_0_gets_its_copies_back
[ $same -eq 0 ]
ok peers_change_no_bit_and_need_no_disk
[ "$(cat "$dir/r.err0.before" "$dir/r.err1.before" "$dir/r.err0" "$dir/r.err1" | grep -c ' W peers\] ')" -eq 0 ]
ok peers_say_nothing_where_nothing_is_wrong

# ---- a slow neighbour: no rank waits, and what it has got stays of use ----
nodes "$dir/w" $options
there "$dir/w" 0 1 && there "$dir/w" 1 1
kill -STOP "$node1" # its ranks go on
lines=$(wc -l <"$dir/w/metrics.jsonl")
until_true has_lines "$dir/w/metrics.jsonl" $((lines + 30))
good=$?
kill_node 1
node 1 "$dir/w" $options
goes_on 1 && [ $good -eq 0 ] && stops && step=$(from_copy "$dir/w.err0") && [ "${step:-0}" -gt 0 ] &&
    said "$dir/w.err1" "node 1 has got the copies of step $step of 2 ranks back"
ok peers_a_slow_neighbour_makes_copies_rarer

# ---- nodes that change ----
three() { # FOLDER OPTION...
    next_port
    for k in 0 1 2; do node $k "$@"; done
}
stop_three() {
    kill -TERM "$node0"
    wait "$node2"
    rc2=$?
    wait "$node0"
    rc0=$?
    cat "$folder".err? >"$dir/err"
    [ $rc0 -eq 4 ] && [ $rc2 -eq 4 ] && until_gone no_rank "$folder"
}
range="--nnodes 2:3 --nproc 1 --max-restarts 3 --rdzv-last-call 1000000 --training.local_batch_size 1 --checkpoint.peer_copy_interval 3 $long"
export TTRUN_COMM_SECRET=secret
three "$dir/s" $range --training.global_batch_size 4 --checkpoint.interval 1000000
there "$dir/s" 0 1 && there "$dir/s" 1 1
kill_node 1
until_true said "$dir/s.err0" 'nodes 0, 2: 2 ranks' && goes_on 1
good=$?
stop_three && [ $good -eq 0 ] && step=$(from_copy "$dir/s.err0") && [ "${step:-0}" -gt 0 ] && said "$dir/s.err0" "; restart 1 of 3 from step $step\$" &&
    said "$dir/s.err2" "node 2 has got the copies of step $step of 1 rank back"
ok peers_a_spare_node_gets_the_copies_of_the_lost_one
unset TTRUN_COMM_SECRET
three "$dir/m" $range --training.global_batch_size 6 --checkpoint.interval 10
there "$dir/m" 0 1 && there "$dir/m" 1 1 && there "$dir/m" 2 1 && until_true saved "$dir/m" 10
kill_node 1
until_true said "$dir/m.err0" 'nodes 0, 2: 2 ranks' && goes_on 1
good=$?
stop_three && [ $good -eq 0 ] && said "$dir/m.err0" 'resumed from .*/checkpoint/step-[0-9]*0, ' &&
    { said "$dir/m.err0" 'the copies in memory of step [0-9]* are of another mesh; goes on from the checkpoint of step [0-9]*0$' || said "$dir/m.err0" '; restart 1 of 3 from step [0-9]*0$'; }
ok peers_another_mesh_goes_on_from_the_checkpoint

# Two nodes have each other's copies: the one that is left goes on alone, with half of the ranks.
alone="--nnodes 1:2 --nproc 2 --max-restarts 9 --rdzv-last-call 1000000 --training.local_batch_size 1 --training.global_batch_size 4 --checkpoint.interval 1000000
    --checkpoint.peer_copy_interval 3 $long"
nodes "$dir/a1" $alone
there "$folder" 0 1 && there "$folder" 1 1
kill_node 1
goes_on 1 && until_true memories 0 2
good=$?
kill -TERM "$node0"
wait "$node0"
rc0=$?
cp "$folder.err0" "$dir/err"
step=$(from_copy "$folder.err0") last=$(newest "$folder/checkpoint")
run=$folder
whole="--comm.backend local --training.local_batch_size 1 --training.global_batch_size 4 --checkpoint.interval 1000000"
train "$dir/whole" $whole --nproc 4 --training.steps "${step:-0}" && train "$dir/whole" $whole --nproc 2 --training.steps "$last"
losses "$dir/whole/metrics.jsonl" >"$dir/a"
folder=$run
[ $good -eq 0 ] && [ $rc0 -eq 4 ] && [ "${step:-0}" -gt 0 ] && [ "$(wc -l <"$dir/a")" -eq "$last" ] && losses "$folder/metrics.jsonl" | cmp -s - "$dir/a" &&
    [ "$(hash_of "$folder/checkpoint/step-$last")" = "$(hash_of "$dir/whole/checkpoint/step-$last")" ] &&
    said "$folder.err0" "resumed from the supervisor's copy of step $step, next is step $((step + 1)) (made by 4 ranks)" &&
    said "$folder.err0" "; restart 1 of 9 from step $step\$"
ok peers_one_node_of_two_goes_on_alone_from_copies
rm -rf "$dir/whole"

# ---- connections that end, and bytes that change on their way ----
broken() { # NAME TEXT: what BREAK_NAME does to a copy of node 0's is told by one line, and the copies are used after that
    preload break_send
    rm -rf "$dir/c"
    next_port
    export BREAK_$1="$dir/break"
    LD_PRELOAD=$dir/break_send.so node 0 "$dir/c" $options
    node 1 "$dir/c" $options
    there "$dir/c" 0 1 && there "$dir/c" 1 1
    touch "$dir/break"
    until_true said "$dir/c.err0" "W peers\] the connection to localhost port [0-9]*, over which copies of the states go, has ended: $2; it is made again" || return 1
    unset BREAK_$1
    kill_node 1
    node 1 "$dir/c" $options
    goes_on 1 && stops && said "$dir/c.err1" 'node 1 has got the copies of step [1-9][0-9]* of 2 ranks back' && [ "$(grep -c ' W peers\] ' "$dir/c.err0")" -eq 1 ]
}
case $BUILD in */asan | */tsan) echo "# a sanitizer's own send stands before that of this test: skipped" ;; *)
    broken CUT 'Connection reset by peer'
    ok peers_a_connection_that_ends_is_made_again
    broken FLIP 'a copy arrived damaged'
    ok peers_damaged_bytes_are_noticed
    ;;
esac
exit $failed
