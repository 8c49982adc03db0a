#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# ttrun --nnodes MIN:MAX: a run goes on with the nodes that are left, takes in those that come later, and its curve is that of an unbroken one.
. "$(dirname "$0")/nodes.sh"
small="--training.local_batch_size 1 --optimizer.lr 0.0001"
range="$small $long --checkpoint.interval 10 --max-restarts 3 --rdzv-last-call 1000000"
said() { grep -q -e "$2" "$1"; }
three() { # FOLDER OPTION...
    next_port
    for k in 0 1 2; do node $k "$@"; done
}
kill_nodes() { # K...: their ttrun and all ranks, at once
    all=
    for k in "$@"; do
        eval "outer=\$node$k"
        all="$all $outer $(of_node "$outer")"
    done
    kill -9 $all 2>/dev/null # ranks end with their ttrun
    for k in "$@"; do eval "wait \$node$k" 2>/dev/null; done
    :
}
no_child() { [ -z "$(of_node "$1")" ]; }
world_of() { value "$folder/run.json" "starts.$1.world"; }
# new_step FOLDER N: N times a step was done after a new start
new_step() { [ "$(grep -c 'step [0-9]* is done .* s after the failure' "$1.err0")" -ge "$2" ]; }
stop() { # as a user stops a run: node 0's ttrun
    kill -TERM "$node0"
}

# ---- a node is lost: the others go on; it comes back and is taken in ----
options="--nnodes 2:3 $range --resume never --training.global_batch_size 6 --parallelism.data_parallel_shard_degree 3"
three "$dir/r" $options
until_true saved "$dir/r" 10
tool=$BUILD/tests/run/nodes_tool
kill_nodes 1
until_true said "$dir/r.err0" 'nodes 0, 2: 2 ranks' && until_true new_step "$dir/r" 1
good=$?
# Who has no right to come changes nothing.
"$tool" $port say nodes 3 least 2 >"$dir/out" && said "$dir/out" 'has another job than node 0' &&
    "$tool" $port say nodes 3 least 2 status -2 text "no such plugin" >"$dir/out" && said "$dir/out" 'node 1 on .*: no such plugin' &&
    "$tool" $port say nodes 3 least 1 >"$dir/out" && said "$dir/out" 'was started with --nnodes 1:3, node 0 with 2:3' &&
    "$tool" $port say nodes 3 least 2 node 2 >"$dir/out" && said "$dir/out" 'both say that they are node 2'
refused=$?
node 1 "$dir/r" $options
until_true said "$dir/r.err0" 'node 1 on [^ ]* has come; starts again from step [1-9]' && until_true new_step "$dir/r" 2
back=$?
stop
joined_three
[ $good -eq 0 ] && [ $back -eq 0 ] && [ $rc0 -eq 4 ] && [ $rc1 -eq 4 ] && [ $rc2 -eq 4 ] && until_gone no_rank "$dir/r"
ok range_goes_on_with_the_nodes_that_are_left_and_takes_back_one
[ $refused -eq 0 ] && [ "$(grep -c 'nodes\] refused: ' "$dir/r.err0")" -eq 4 ]
ok range_refuses_others_while_ranks_run
[ "$(grep -c 'nodes 0, 1, 2: 3 ranks, data_parallel_replicate 1, data_parallel_shard 3, global batch 6' "$dir/r.err0")" -eq 2 ] && said "$dir/r.err0" 'nodes 0, 2: 2 ranks' &&
    said "$dir/r.err0" 'node 1 on [^ ]* was lost: .*; restart 1 of 3 from step [1-9][0-9]*$' && said "$dir/r.err2" 'node 1 on [^ ]* was lost: .*; restart 1 of 3' &&
    said "$dir/r.err2" 'node 1 on [^ ]* has come; starts again' && said "$dir/r.err1" 'waits: this node takes part in a later start' &&
    [ "$(world_of 0)" = 3 ] && [ "$(world_of 1)" = 2 ] && [ "$(world_of 2)" = 3 ] && value "$dir/r/run.json" starts.2.restart.cause | grep -q 'node 1 on .* has come'
ok range_says_who_takes_part
# A restart for a node that has come loses no step: it goes on from the step at which the start before it has stopped.
[ "$(value "$dir/r/run.json" starts.1.to_step)" -eq "$(value "$dir/r/run.json" starts.2.from_step)" ] && [ -z "$(find "$dir/r" -maxdepth 1 -name 'before-*')" ]
ok range_takes_in_a_node_after_a_save
steps=$(losses "$dir/r/metrics.jsonl" | tail -n 1 | cut -d ' ' -f 1)
train "$dir/whole" --nproc 3 $small --training.global_batch_size 6 --training.steps "$steps" --checkpoint.interval 1000000 --comm.backend local
losses "$dir/whole/metrics.jsonl" >"$dir/a"
losses "$dir/r/metrics.jsonl" | paste -d ' ' "$dir/a" - |
    awk -v n="$steps" '{d = $2 - $4; d = d < 0 ? -d : d; if (d > most) most = d; k += $1 == $3 && NF == 4 && d < 1e-5 * $2}
        END {print "# " n " steps, largest difference of the losses: " most; exit !(n > 10 && k == n && NR == n)}'
ok range_has_the_curve_of_the_unbroken_run

# ---- spare nodes: 3 ranks do not divide the batch ----
options="--nnodes 2:3 $range --training.global_batch_size 4"
three "$dir/s" $options
until_true said "$dir/s.err0" 'nodes 0, 1; spare: 2: 2 ranks' && until_true saved "$dir/s" 10 && kill_nodes 1 &&
    until_true said "$dir/s.err0" 'nodes 0, 2: 2 ranks' && until_true new_step "$dir/s" 1
good=$?
node 1 "$dir/s" $options
until_true said "$dir/s.err1" 'waits: ' && kill -TERM "$node1"
wait "$node1"
left=$?
until_true said "$dir/s.err0" 'node 1 on [^ ]* has left; it had no ranks'
stop
joined_three
[ $good -eq 0 ] && [ $left -eq 4 ] && [ $rc0 -eq 4 ] && [ $rc2 -eq 4 ] && ! said "$dir/s.err0" 'starts again' && said "$dir/s.err1" 'stopped by SIGTERM while it waited for the next start' &&
    [ "$(grep -c '; restart ' "$dir/s.err0")" -eq 1 ]
ok range_takes_a_spare_node_first

# ---- a node whose ranks fail before a step, twice: it becomes the spare one ----
cat >"$dir/wait.sh" <<'WAIT'
echo x >>"$1/asked"
while [ -d "$1" ] && [ ! -e "$1/go" ]; do sleep 0.05; done
echo "$1/whole"
WAIT
asked() { [ "$(wc -l <"$dir/asked")" -ge "$1" ]; }
options="--nnodes 2:3 $small --max-restarts 3 --training.steps 5 --training.global_batch_size 6 --checkpoint.initial_load_model_only true"
three "$dir/e" $options --checkpoint.initial_load_command "sh $dir/wait.sh $dir"
# killed TIME: the rank of node 1 is killed when rank 0 waits for the TIME-th time
has_rank() { rank=$(of_node "$node1") && [ -n "$rank" ]; }
killed() { until_true asked "$1" && until_true has_rank && kill -9 "$rank"; }
killed 1 && killed 2
good=$?
touch "$dir/go"
joined_three
[ $good -eq 0 ] && [ $rc0 -eq 0 ] && [ $rc1 -eq 0 ] && [ $rc2 -eq 0 ] && said "$dir/e.err0" 'restart 2 of 3 from step 0$' && said "$dir/e.err0" 'nodes 0, 2; spare: 1: 2 ranks' && [ "$(world_of 0)" = 2 ]
ok range_leaves_out_the_node_that_fails

# ---- fewer ranks per node, and one node alone ----
options="--nnodes 1:2 --nproc 3 $range --training.global_batch_size 4"
nodes "$dir/u" $options
until_true saved "$dir/u" 10 && kill_nodes 1 && until_true said "$dir/u.err0" 'nodes 0: 2 ranks' && until_true new_step "$dir/u" 1
good=$?
stop
wait "$node0"
rc0=$?
cp "$dir/u.err0" "$dir/err"
[ $good -eq 0 ] && [ $rc0 -eq 4 ] && said "$dir/err" 'nodes 0, 1: 4 ranks' && [ "$(world_of 0)" = 4 ] && [ "$(world_of 1)" = 2 ]
ok range_divides_ranks_evenly
nodes "$dir/o" --nnodes 1:2 $range --training.global_batch_size 4
until_true saved "$dir/o" 10 && kill_nodes 1 && until_true said "$dir/o.err0" 'nodes 0: 1 rank,' && until_true new_step "$dir/o" 1
good=$?
stop
wait "$node0"
[ $? -eq 4 ] && [ $good -eq 0 ] && [ "$(world_of 1)" = 1 ]
ok range_goes_on_with_one_node

# ---- how it ends ----
# Too few nodes: the line names the first cause. Nodes 1 and 2 do not come back before node 0's clock says that it is too late.
next_port
own_clock node 0 "$dir/f" --nnodes 2:3 $range --training.global_batch_size 6
for k in 1 2; do node $k "$dir/f" --nnodes 2:3 $range --training.global_batch_size 6; done
until_true saved "$dir/f" 10
kill_nodes 1 2
until_true said "$dir/f.err0" ' W .*was lost' && until_true no_child "$node0" && passes "$node0"
wait "$node0"
rc0=$?
cp "$dir/f.err0" "$dir/err"
[ $rc0 -eq 1 ] && until_gone no_rank "$dir/f" && [ "$(grep -c '^ttrun: ' "$dir/err")" -eq 1 ] &&
    said "$dir/err" '^ttrun: node [12] on [^ ]* was lost: .*; then only 1 of at least 2 nodes came within [0-9e+]* s (--rdzv_timeout), without nodes 1 on [^ ]*, 2 on [^ ]*; start ttrun there'
ok range_with_too_few_nodes_ends_with_the_first_cause
# A mesh for the nodes that are left does not exist: the global batch is that of three ranks.
three "$dir/m" --nnodes 2:3 $range
until_true saved "$dir/m" 10
kill_nodes 2
joined
[ $rc0 -eq 1 ] && [ $rc1 -eq 1 ] && until_gone no_rank "$dir/m" && [ "$(grep -c '^ttrun: node 2 on [^ ]* was lost: .*; then no mesh of 2 to 2 ranks .* divides the global batch of 3 samples' "$dir/err")" -eq 2 ]
ok range_without_a_mesh_ends_with_the_first_cause
# Node 0 is lost.
next_port
node 0 "$dir/z" --nnodes 1:2 $range
own_clock node 1 "$dir/z" --nnodes 1:2 $range
until_true saved "$dir/z" 10
kill_nodes 0
until_true no_child "$node1" && passes "$node1"
wait "$node1"
rc1=$?
cp "$dir/z.err1" "$dir/err"
[ $rc1 -eq 1 ] && until_gone no_rank "$dir/z" && [ "$(grep -c '^ttrun: ' "$dir/err")" -eq 1 ] &&
    said "$dir/err" '^ttrun: node 0 at localhost was lost, and did not come back within [0-9e+]* s'
ok range_without_node_0_ends_by_a_line
# The first start: who is there after the last call, or a line that says who is not.
next_port
for k in 0 2; do node $k "$dir/c" --nnodes 2:3 $small --max-restarts 1 --training.steps 3 --training.global_batch_size 6 --rdzv-last-call 1; done
wait "$node2"
rc2=$?
wait "$node0"
[ $? -eq 0 ] && [ $rc2 -eq 0 ] && cp "$dir/c.err0" "$dir/err" && said "$dir/err" 'nodes 0, 2: 2 ranks' && [ "$(world_of 0)" = 2 ]
ok range_starts_after_the_last_call
next_port
node 0 "$dir/n" --nnodes 2:3 $small --max-restarts 1 --rdzv-timeout 1
wait "$node0"
[ $? -eq 1 ] && cp "$dir/n.err0" "$dir/err" && one_line "$dir/err" && said "$dir/err" 'only 1 of at least 2 nodes came within 1 s (--rdzv_timeout), without nodes 1, 2; start ttrun there'
ok range_says_which_nodes_do_not_come

# ---- usage ----
bad() { # TEXT OPTION...
    text=$1
    shift
    "$TTRUN" "$job" --plugin-dir "$PLUGINS" --dump_folder "$dir/x" --master-addr localhost --rdzv-timeout 1 "$@" >"$dir/out" 2>"$dir/err" </dev/null
    [ $? -eq 2 ] && one_line "$dir/err" && grep -q -e "$text" "$dir/err"
}
good=0
for text in 3:2 0:2 2: :2 2:3:4 2:x x:3 -1:2 2:100001 two ''; do
    bad "--nnodes: expected 1 to 100000, or a range like 2:4, got \"$text\"" --nnodes "$text" --max-restarts 1 || good=1
done
[ $good -eq 0 ] && bad '--nnodes 1:2: a range needs --max-restarts; without it give one number' --nnodes 1:2 &&
    bad '--nproc 1:2: with --nnodes give one number; --nnodes MIN:MAX' --nnodes 1:2 --nproc 1:2 --max-restarts 1 &&
    bad '--rdzv-last-call: expected 0 to 1000000, got "x"' --nnodes 1:2 --max-restarts 1 --rdzv-last-call x &&
    bad '--node-rank: expected 0 to 1, got 2' --nnodes 1:2 --max-restarts 1 --node-rank 2 &&
    bad 'no mesh of 2 to 3 ranks' --nnodes 2:3 --max-restarts 1 --parallelism.tensor_parallel_degree 4
ok range_wrong_options_are_errors
exit $failed
