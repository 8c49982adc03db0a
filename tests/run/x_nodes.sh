#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# ttrun --nnodes: a ttrun per "machine" starts its ranks, they meet over TCP, and the curve is that of one machine.
. "$(dirname "$0")/processes.sh"
port=$((20000 + $$ % 20000))
node() { # N FOLDER OPTION...: node N of the run in the background, as $nodeN
    k=$1 folder=$2
    shift 2
    "$timeout" 300 "$TTRUN" "$job" --plugin-dir "$PLUGINS" --dump_folder "$folder" --node_rank "$k" --master_addr localhost \
        --master_port $port --rdzv-timeout 60 "$@" >"$folder.out$k" 2>"$folder.err$k" </dev/null &
    eval "node$k=$!"
}
nodes() { # FOLDER OPTION...: two of them
    port=$((port + 3))
    node 0 "$@"
    node 1 "$@"
}
joined() { # the statuses as $rc0 and $rc1
    wait "$node0"
    rc0=$?
    wait "$node1"
    rc1=$?
    cat "$folder".err? >"$dir/err"
}

of_node() { pgrep -P "$(pgrep -P "$1" | head -n 1)" | sort -n; }
saved() { [ "$(newest "$1/checkpoint")" -ge "$2" ]; }
# ---- whoever else connects ----
tool=$BUILD/tests/run/nodes_tool
says() { # TEXT NAME VALUE...: what node 0 answers to a node with these fields, and then logs
    text=$1
    shift
    "$tool" $port say "$@" >"$dir/out" && grep -q "$text" "$dir/out"
}
second() { says 'both say that they are node 1' nodes 3; } # until the right one is there it is refused for its job
port=$((port + 3))
"$tool" $port attack &
attack=$!
few="--nnodes 3 --nproc 1 --max-restarts 1 --training.steps 300 --checkpoint.interval 10"
node 0 "$dir/h" $few
says 'node 1 on hostile.*was started with --nnodes 4, node 0 with 3' nodes 4 && says 'is ttrun 0.0.0, node 0 is ' version 0.0.0 &&
    says 'says it is node 3; give --node_rank 1 to 2 there' nodes 3 node 3 && says 'says it is node 0; ' nodes 3 node 0 && says 'with --nproc 2, node 0 with 1' nodes 3 nproc 2 &&
    says '^closed$' nodes 3 id other && says '^closed$' nodes 3 status 7 && says '^closed$' nodes 3 status -99999 && TTRUN_COMM_SECRET=another says '^closed$' nodes 3 &&
    node 1 "$dir/h" $few && until_true second &&
    supervisor=$(pgrep -P "$node0") && [ "$(find "/proc/$supervisor/fd" -type l | wc -l)" -le 300 ] &&
    [ "$(awk '/VmHWM/ {print $2}' "/proc/$supervisor/status")" -le "${MOST_KIB:-100000}" ]
good=$?
node 2 "$dir/h" $few
until_true saved "$dir/h" 10
kill -9 "$(pgrep -P "$node2")"
wait "$node2"
node 2 "$dir/h" $few
joined
wait "$node2" && [ $good -eq 0 ] && [ $rc0 -eq 0 ] && [ $rc1 -eq 0 ] && [ -e "$dir/h/checkpoint/step-300" ] && grep -q 'restart 1 of 1 from step [1-9]' "$dir/h.err0"
ok nodes_meet_among_hostile_connections
kill $attack
wait $attack 2>/dev/null
for differs in '--nnodes 4' 'ttrun 0.0.0' 'node 3;' 'node 0;' '--nproc 2' 'both say'; do
    grep -c "nodes\] refused: .*$differs" "$dir/h.err0"
done >"$dir/out"
[ "$(sort -u "$dir/out")" = 1 ] && [ "$(grep -c 'nodes\] refused [0-9]* connection' "$dir/h.err0")" -le 6 ] && [ "$(grep -c ' W ' "$dir/h.err0")" -le 16 ] && ! LC_ALL=C grep -q "$(printf '\033')" "$dir/h.err0"
ok nodes_say_once_who_was_refused

exit $failed
