#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# ttrun --nnodes: a ttrun per "machine" starts its ranks, they meet over TCP, and the curve is that of one machine.
. "$(dirname "$0")/nodes.sh"
while read -r name options; do
    train "$dir/t" --nproc 4 --training.steps 3 --checkpoint.interval 3 $options --comm.backend local
    nodes "$dir/m" --nnodes 2 --nproc-per-node 2 --training.steps 3 --checkpoint.interval 3 $options
    joined
    [ $rc0 -eq 0 ] && [ $rc1 -eq 0 ] && losses "$dir/t/metrics.jsonl" >"$dir/a" && losses "$dir/m/metrics.jsonl" | cmp -s - "$dir/a" &&
        [ "$(wc -l <"$dir/a")" -eq 3 ] && [ "$(hash_of "$dir/t/checkpoint/step-3")" = "$(hash_of "$dir/m/checkpoint/step-3")" ]
    ok "nodes_$name""_has_the_curve_of_one_machine"
    rm -rf "$dir/t" "$dir/m"
done <<MESHES
tp2_fsdp2 --parallelism.tensor_parallel_degree 2
pp2_tcp_alone --parallelism.pipeline_parallel_degree 2 --comm.backend tcp
MESHES

# ---- ranks that die ----
train "$dir/t" --nproc 4 --training.steps 60 --checkpoint.interval 4 --comm.backend local
losses "$dir/t/metrics.jsonl" >"$dir/a"
gate 9 before 3
nodes "$dir/r" $gated --resume never --nnodes 2 --nproc 2 --max-restarts 2 --training.steps 60 --checkpoint.interval 4
stands 3 && step_on 3 saved "$dir/r" 4
kill -9 "$standing" # rank 3, of node 1, for which the others wait
let_go
joined
[ $rc0 -eq 0 ] && [ $rc1 -eq 0 ] && losses "$dir/r/metrics.jsonl" | cmp -s - "$dir/a" &&
    grep -q 'node 1 on [^ ]*: rank [23] (process [0-9]*) was ended by SIGKILL (9), out of memory?; restart 1 of 2 from step [1-9]' "$dir/r.err0" &&
    grep -q 'rank [23] (process [0-9]*) was ended by SIGKILL (9), out of memory?; restart 1 of 2' "$dir/r.err1"
ok nodes_start_again_when_a_rank_dies_and_the_curve_is_equal
# No step before the checkpoint is done again, although the first start began anew (--resume never): nothing is moved aside.
from=$(sed -n 's/.*; restart 1 of 2 from step \([0-9]*\)$/\1/p' "$dir/r.err0")
[ "${from:-0}" -ge 2 ] && grep -q "resumed from .*/checkpoint/step-$from, " "$dir/r.err0" && [ "$(value "$dir/r/run.json" starts.0.from_step)" -eq 0 ] &&
    [ "$(value "$dir/r/run.json" starts.1.from_step)" -eq "$from" ] && [ "$(value "$dir/r/run.json" starts.1.restart.number)" -eq 1 ] &&
    ! value "$dir/r/run.json" starts.2.from_step >"$dir/out" && [ -z "$(find "$dir/r" -maxdepth 1 -name 'before-*')" ]
ok nodes_continue_from_the_checkpoint

nodes "$dir/e" --nnodes 2 --nproc 2 $long --checkpoint.interval 1000000
until_true has_lines "$dir/e/metrics.jsonl" 2
kill -9 "$(of_node "$node0" | tail -n 1)"
joined
[ $rc0 -eq 1 ] && [ $rc1 -eq 1 ] && one_line "$dir/e.err1" && grep -q '^ttrun: node 0 on [^ ]*: rank [01] (process [0-9]*) was ended by SIGKILL' "$dir/e.err1" &&
    one_line "$dir/e.err0" && grep -q '^ttrun: node 0 on [^ ]*: rank [01] (process [0-9]*) was ended by SIGKILL' "$dir/e.err0" && until_gone no_rank "$dir/e"
ok nodes_without_restarts_end_by_a_line_each

# The other nodes' ranks stand still, so no connection of theirs tells them: their nodes end them by node 0's word, which needs no time limit.
stand_still() { # VICTIM: its rank of three is killed
    next_port
    rm -rf "$dir/w"
    for k in 0 1 2; do node $k "$dir/w" --nnodes 3 --nproc 1 $long --checkpoint.interval 1000000; done
    until_true has_lines "$dir/w/metrics.jsonl" 2
    for k in 0 1 2; do
        eval "rank=\$(of_node \$node$k)"
        if [ $k -eq "$1" ]; then victim=$rank; else still "$rank"; fi
    done
    kill -9 "$victim"
    joined_three
    [ $rc0 -eq 1 ] && [ $rc1 -eq 1 ] && [ $rc2 -eq 1 ] && until_gone no_rank "$dir/w" &&
        [ "$(grep -c "^ttrun: .*rank $1 (process $victim) was ended by SIGKILL" "$dir/err")" -eq 3 ]
}
stand_still 0 && stand_still 1
ok nodes_end_ranks_that_stand_still

# The line names the node of the cause. 1 and 2: its ttrun is slow (SIGSTOP), so node 0's ranks have said before that they lost a
# connection: of a rank that is killed, and of one that says itself why it ends. 3: a rank has waited too long, from the second step
# on and while nobody else is on its way; the other one, of node 0, stands still and is killed.
no_process() { ! [ -e "/proc/$1" ]; } # its node has waited for it
names_node_1() { # NODE LIMIT COMMAND TEXT: COMMAND does something to $rank, the rank of this node
    next_port
    rm -rf "$dir/n"
    gate 2
    for k in 0 1; do
        node $k "$dir/n" $gated --nnodes 2 --nproc 1 $long --checkpoint.interval 200 --comm.init_timeout_seconds 1000000 --comm.train_timeout_seconds "$2"
    done
    until_true has_come 0 && until_true has_come 1 && rank=$(process_of "$1") && other=$(process_of 0)
    [ "$1" -eq 0 ] || still "$node1"
    eval "$3"
    let_go
    [ "$1" -eq 0 ] || until_true no_process "$other"
    kill -CONT "$node1"
    joined
    [ $rc0 -eq 1 ] && [ $rc1 -eq 1 ] && [ "$(grep -c "^ttrun: node 1 on [^ ]*: \(rank 1\|step [0-9]*, collective\).*$4" "$dir/err")" -eq 2 ] && until_gone no_rank "$dir/n"
}
patience=${TTRUN_PATIENCE:-1}
export TTRUN_PATIENCE=2 # a rank that is alone on its node waits 4 s in vain for a better reason than its own
names_node_1 1 1000000 'kill -9 $rank' SIGKILL && names_node_1 0 2 'still $rank' 'waited 2 s .*ranks that did not arrive: 0' &&
    { ! command -v prlimit >"$dir/out" || names_node_1 1 1000000 'prlimit --pid $rank --fsize=2000' 'checkpoint of step .* File too large'; }
ok nodes_name_the_node_of_the_cause
export TTRUN_PATIENCE="$patience"

# A machine that is lost: the other one ends its ranks and says so.
nodes "$dir/l" --nnodes 2 --nproc 1 $long --checkpoint.interval 1000000
until_true has_lines "$dir/l/metrics.jsonl" 2
kill -9 "$node1"
joined
[ $rc0 -eq 1 ] && one_line "$dir/l.err0" && grep -q '^ttrun: node 1 on [^ ]* was lost: ' "$dir/l.err0" && until_gone no_rank "$dir/l"
ok nodes_say_that_a_node_is_lost
nodes "$dir/l0" --nnodes 2 --nproc 1 $long --checkpoint.interval 1000000
until_true has_lines "$dir/l0/metrics.jsonl" 2
kill -9 "$node0"
joined
[ $rc1 -eq 1 ] && one_line "$dir/l0.err1" && grep -q '^ttrun: node 0 at localhost was lost: ' "$dir/l0.err1" && until_gone no_rank "$dir/l0"
ok nodes_say_that_node_0_is_lost

# A lost node that is started again takes part again.
back="$gated --nnodes 2 --nproc 1 --max-restarts 2 --training.steps 40 --checkpoint.interval 10"
gate 12 before 1
nodes "$dir/b" $back
stands 1
kill -9 "$node1"
wait "$node1"
let_go
node 1 "$dir/b" $back
joined
[ $rc0 -eq 0 ] && [ $rc1 -eq 0 ] && grep -q 'node 1 on [^ ]* was lost: .*; restart 1 of 2 from step' "$dir/b.err0" && [ -e "$dir/b/checkpoint/step-40" ]
ok nodes_take_back_a_node_that_is_started_again

# A stop signal to one of them stops all after a save.
nodes "$dir/s" --nnodes 2 --nproc 2 $long --checkpoint.interval 1000000
until_true has_lines "$dir/s/metrics.jsonl" 2
kill -TERM "$node1"
joined
[ $rc0 -eq 4 ] && [ $rc1 -eq 4 ] && ls "$dir/s/checkpoint" | grep -q '^step-' && until_gone no_rank "$dir/s"
ok nodes_stop_together_by_a_signal_to_one

# ---- Slurm ----
# TT_SLURM_PORT: step 0 of job N has the port 20000 + 2 N
take_ports "$dir/slurm" 4 20000 2
slurm() { # PROCID LOCALID TASKS TASKS_PER_NODE FOLDER OPTION...
    k=$1 folder=$5
    set -- "$@" --plugin-dir "$PLUGINS" --dump_folder "$5"
    local_id=$2 tasks=$3 per_node=$4
    shift 5
    : >"$folder.out$k" 2>"$folder.err$k"
    SLURM_PROCID=$k SLURM_STEP_NUM_TASKS=$tasks SLURM_LOCALID=$local_id SLURM_STEP_NUM_NODES=2 SLURM_STEP_TASKS_PER_NODE="$per_node(x2)" SLURM_JOB_ID=$(((port - 20000) / 2)) SLURM_STEP_ID=0 \
        SLURM_STEP_NODELIST="${list:-127.0.0.[1-2]}" "$TTRUN" "$job" "$@" >"$folder.out$k" 2>"$folder.err$k" </dev/null &
    eval "node$k=$!"
}
train "$dir/ts" --nproc 4 --training.steps 3 --checkpoint.interval 3 --comm.backend local
losses "$dir/ts/metrics.jsonl" >"$dir/a"
next_port "$dir/slurm"
slurm 0 0 2 1 "$dir/sn" --nproc 2 --training.steps 3
slurm 1 0 2 1 "$dir/sn" --nproc 2 --training.steps 3
joined
[ $rc0 -eq 0 ] && [ $rc1 -eq 0 ] && losses "$dir/sn/metrics.jsonl" | cmp -s - "$dir/a"
ok nodes_slurm_with_a_task_per_node
next_port "$dir/slurm"
slurm 0 0 2 1 "$dir/sm" --nproc 2 --training.steps 3 --nnodes 1:2 --max-restarts 1
slurm 1 0 2 1 "$dir/sm" --nproc 2 --training.steps 3 --nnodes 1:2 --max-restarts 1
joined
[ $rc0 -eq 0 ] && [ $rc1 -eq 0 ] && losses "$dir/sm/metrics.jsonl" | cmp -s - "$dir/a" && grep -q 'nodes 0, 1: 4 ranks' "$dir/sm.err0"
ok nodes_slurm_with_a_range_of_nodes
next_port "$dir/slurm"
train "$dir/t2" --nproc 2 --training.steps 3 --comm.backend local
slurm 0 0 2 1 "$dir/sr" --training.steps 3 # two tasks of a node would need a machine of their own: their session has one name
slurm 1 0 2 1 "$dir/sr" --training.steps 3
joined
[ $rc0 -eq 0 ] && [ $rc1 -eq 0 ] && losses "$dir/t2/metrics.jsonl" >"$dir/a2" && losses "$dir/sr/metrics.jsonl" | cmp -s - "$dir/a2"
ok nodes_slurm_with_a_task_per_rank
next_port "$dir/slurm"
list="n[1-" slurm 1 0 2 1 "$dir/sw" --nproc 2
wait "$node1"
[ $? -eq 2 ] && grep -q 'list of nodes, "n\[1-", byte 4: expected a range' "$dir/sw.err1"
ok nodes_slurm_list_that_is_broken_is_an_error

# ---- the secret ----
said() { grep -q -e "$2" "$1"; } # FILE TEXT
next_port
TTRUN_COMM_SECRET=one own_clock node 0 "$dir/k" --nnodes 2 --training.steps 2
TTRUN_COMM_SECRET=two own_clock node 1 "$dir/k" --nnodes 2 --training.steps 2
until_true said "$dir/k.err0" 'refused 1 connection of no node'
passes "$node0" "$node1"
joined
[ $rc0 -eq 1 ] && [ $rc1 -eq 1 ] && grep -q 'node 1 did not come' "$dir/k.err0" && grep -q 'did not take node in, or ended' "$dir/k.err1"
ok nodes_with_another_secret_are_refused
next_port
TTRUN_COMM_SECRET=one node 0 "$dir/k" --nnodes 2 --training.steps 2
TTRUN_COMM_SECRET=one node 1 "$dir/k" --nnodes 2 --training.steps 2
joined
[ $rc0 -eq 0 ] && [ $rc1 -eq 0 ]
ok nodes_with_one_secret_meet

# ---- whoever else connects ----
tool=$BUILD/tests/run/nodes_tool
case $BUILD in */asan | */tsan) : "${MOST_KIB:=1000000}" ;; esac # with the sanitizer's own memory
says() { # TEXT NAME VALUE...: what node 0 answers to a node with these fields, and then logs
    text=$1
    shift
    "$tool" $port say "$@" >"$dir/out" && grep -q "$text" "$dir/out"
}
second() { says 'both say that they are node 1' nodes 3; } # until the right one is there it is refused for its job
next_port
"$tool" $port attack &
attack=$!
few="$gated --nnodes 3 --nproc 1 --max-restarts 1 --training.steps 40 --checkpoint.interval 10"
gate 12 before 2
node 0 "$dir/h" $few
until_true listening "$port" && says 'node 1 on hostile.*was started with --nnodes 4, node 0 with 3' nodes 4 && says 'is ttrun 0.0.0, node 0 is ' version 0.0.0 &&
    says 'says it is node 3; give --node_rank 1 to 2 there' nodes 3 node 3 && says 'says it is node 0; ' nodes 3 node 0 && says 'with --nproc 2, node 0 with 1' nodes 3 nproc 2 &&
    says '^closed$' nodes 3 id other && says '^closed$' nodes 3 status 7 && says '^closed$' nodes 3 status -99999 && TTRUN_COMM_SECRET=another says '^closed$' nodes 3
good=$?
node 1 "$dir/h" $few
[ $good -eq 0 ] && until_true second &&
    supervisor=$node0 && [ "$(find "/proc/$supervisor/fd" -type l | wc -l)" -le 300 ] &&
    [ "$(awk '/VmHWM/ {print $2}' "/proc/$supervisor/status")" -le "${MOST_KIB:-100000}" ]
good=$?
node 2 "$dir/h" $few
stands 2 && step_on 2 saved "$dir/h" 10
kill -9 "$node2"
wait "$node2"
let_go
node 2 "$dir/h" $few
joined_three
[ $good -eq 0 ] && [ $rc2 -eq 0 ] && [ $rc0 -eq 0 ] && [ $rc1 -eq 0 ] && [ -e "$dir/h/checkpoint/step-40" ] && grep -q 'restart 1 of 1 from step [1-9]' "$dir/h.err0"
ok nodes_meet_among_hostile_connections
kill $attack
wait $attack 2>/dev/null
for differs in '--nnodes 4' 'ttrun 0.0.0' 'node 3;' 'node 0;' '--nproc 2' 'both say'; do
    grep -c "nodes\] refused: .*$differs" "$dir/h.err0"
done >"$dir/out"
[ "$(sort -u "$dir/out")" = 1 ] && [ "$(grep -c 'nodes\] refused [0-9]* connection' "$dir/h.err0")" -le 6 ] && [ "$(grep -c ' W ' "$dir/h.err0")" -le 16 ] && ! LC_ALL=C grep -q "$(printf '\033')" "$dir/h.err0"
ok nodes_say_once_who_was_refused

# ---- refusals ----
printf '{"extends": "%s", "training": {"steps": 7}}\n' "$job" >"$dir/seven.json"
differ() { # TEXT, OPTIONS OF NODE 0, OPTIONS OF NODE 1, JOB OF NODE 1: both end so, by a line each; node 0 when its time is over
    next_port
    own_clock node 0 "$dir/x" $2
    of_node0=$job job=${4:-$job}
    node 1 "$dir/x" $3
    job=$of_node0
    until_true said "$folder.err0" 'nodes\] refused: ' && until_true has_ended "$node1" && passes "$node0"
    joined
    [ $rc0 -eq 2 ] && [ $rc1 -eq 2 ] && grep -q "^ttrun: node 1 .*did not come within .* s (--rdzv_timeout); refused: .*$1" "$folder.err0" &&
        grep -q "^ttrun: node 1 .*$1" "$folder.err1" && [ "$(grep -c '^ttrun: ' "$dir/err")" -eq 2 ]
}
differ 'was started with --nnodes 3, node 0 with 2' "--nnodes 2 --nproc 1" "--nnodes 3 --nproc 1" &&
    differ 'was started with --nproc 2, node 0 with 1' "--nnodes 2 --nproc 1" "--nnodes 2 --nproc 2" &&
    differ 'has another job than node 0' "--nnodes 2 --nproc 1" "--nnodes 2 --nproc 1 --training.steps 7" &&
    differ 'has another job than node 0' "--nnodes 2 --nproc 1" "--nnodes 2 --nproc 1" "$dir/seven.json"
ok nodes_that_differ_are_named_by_a_line_of_each

# A node that cannot begin: all end at once by its line, also one that comes later.
cannot() { # N: node N of three has what $absent says, the last one comes later
    next_port
    for k in 0 1 2; do
        [ $k -ne 2 ] || [ "$1" -eq 2 ] || until_gone has_ended "$node1" # told by node 0, which waits for the last one to tell it too
        [ $k -ne "$1" ] || eval "$absent"
        node $k "$dir/c" --nnodes 3
        job=$sound TTRUN=$whole PLUGINS=$plugins
    done
    joined_three
    [ $rc0 -eq 2 ] && [ $rc1 -eq 2 ] && [ $rc2 -eq 2 ] &&
        [ "$(grep -c "^ttrun: node $1 on [^ ]*: .*$2" "$dir/err")" -eq 2 ] && grep -v "^ttrun: node $1 on" "$dir/c.err$1" | grep -q "$2" &&
        [ "$(grep -cv '^\[r' "$dir/err")" -eq 3 ]
}
sound=$job whole=$TTRUN plugins=$PLUGINS
mkdir -p "$dir/bare/none"
cp "$TTRUN" "$BUILD"/libttrun.so* "$dir/bare/" # a ttrun without plugins
absent='TTRUN=$dir/bare/ttrun PLUGINS=$dir/bare/none' && cannot 1 'train_spec "llama3" is unknown' && cannot 0 'train_spec "llama3" is unknown' &&
    absent='job=$dir/absent.json' && cannot 2 'absent.json: cannot open' && cannot 1 'absent.json: cannot open'
ok nodes_end_by_the_line_of_one_that_cannot_begin

bad() { # TEXT OPTION...
    text=$1
    shift
    "$TTRUN" "$job" --plugin-dir "$PLUGINS" --dump_folder "$dir/x" "$@" >"$dir/out" 2>"$dir/err" </dev/null
    [ $? -eq "${status:-2}" ] && one_line "$dir/err" && grep -q -e "$text" "$dir/err"
}
bad '--node-rank: expected 0 to 1, got 2' --nnodes 2 --node-rank 2 --master-addr localhost && bad 'where is node 0' --nnodes 2 &&
    bad '--node-rank 1: needs --nnodes' --node_rank 1 && bad 'expected HOST:PORT, got ":1"' --nnodes 2 --rdzv_endpoint :1 &&
    bad 'cannot be on several machines' --nnodes 2 --master-addr localhost --rdzv-timeout 1 --comm.backend local &&
    RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=2 bad 'torchrun has started this rank' --nnodes 2 --master-addr localhost
ok nodes_wrong_options_are_errors
next_port
status=1 bad 'nodes 1, 2 did not come within 1 s' --nnodes 3 --master-addr localhost --master-port $port --rdzv_timeout 1 &&
    status=1 bad 'node 0 at localhost port [0-9]* did not answer within 1 s' --nnodes 3 --node-rank 1 --master-addr localhost --master-port $port --rdzv_timeout 1
ok nodes_that_do_not_come_are_named
node 0 "$dir/p" --nnodes 2
until_true listening "$port"
bad "--master_port $port: node 0 cannot listen there: Address already in use" --nnodes 2 --master_addr localhost --master_port $port
ok nodes_port_in_use_is_an_error
kill "$node0" 2>/dev/null
wait "$node0"
exit $failed
