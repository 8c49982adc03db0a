# SPDX-License-Identifier: Apache-2.0
# Shared by the scripts about --nnodes, which source it: a ttrun per "machine".
. "$(dirname "$0")/processes.sh"
port=$((20000 + $$ % 5700)) # to 25999; test_nodes_range.sh has 26000 to 31999. The system gives connections larger ones
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
joined_three() {
    wait "$node2"
    rc2=$?
    joined
}
# of_node PID: the ranks of a node
of_node() { pgrep -P "$(pgrep -P "$1" | head -n 1)" | sort -n; }
# saved FOLDER STEP
saved() { [ "$(newest "$1/checkpoint")" -ge "$2" ]; }
