# SPDX-License-Identifier: Apache-2.0
# Shared by the scripts about --nnodes, which source it: a ttrun per "machine".
. "$(dirname "$0")/processes.sh"
# ---- ports ----
# take_ports FILE N [FROM STEP]: takes N pairs of ports until this script ends, and writes the first ones of the pairs to the file
take_ports() {
    "$BUILD/tests/run/port_tool" "$@" &
    until_gone test -e "$1"
}
# next_port [FILE]: the next pair that this script took: $port is node 0's, the ranks use the one after it
next_port() {
    port=$(sed -n 1p "${1:-$dir/ports}")
    [ -n "$port" ] || { echo "not ok no port is left in ${1:-$dir/ports}" && exit 1; }
    sed -i 1d "${1:-$dir/ports}"
}
# listening PORT: somebody listens there; the address ends with the port in 4 hexadecimal digits, 0A is TCP_LISTEN
listening() { awk -v port="$(printf ':%04X$' "$1")" '$2 ~ port && $4 == "0A" {found = 1} END {exit !found}' /proc/net/tcp /proc/net/tcp6; }
take_ports "$dir/ports" 50
# ---- nodes ----
node0='' node1='' node2=''
node() { # N FOLDER OPTION...: node N of the run in the background, as $nodeN
    k=$1 folder=$2
    shift 2
    : >"$folder.out$k" 2>"$folder.err$k" # not the text of an earlier run
    "$TTRUN" "$job" --plugin-dir "$PLUGINS" --dump_folder "$folder" --node_rank "$k" --master_addr localhost --master_port "$port" \
        --rdzv-timeout 1000000 "$@" >"$folder.out$k" 2>"$folder.err$k" </dev/null &
    eval "node$k=$!"
}
nodes() { # FOLDER OPTION...: two of them
    next_port
    node 0 "$@"
    node 1 "$@"
}
# run_is_over, for until_true: every node that was started has ended
run_is_over() {
    [ -n "$node0$node1$node2" ] || return 1
    for one in $node0 $node1 $node2; do has_ended "$one" || return 1; done
}
joined() { # the statuses as $rc0 and $rc1
    waits_for "the end of nodes 0 and 1 of $folder"
    wait "$node0"
    rc0=$?
    wait "$node1"
    rc1=$?
    node0='' node1='' node2=''
    cat "$folder".err? >"$dir/err"
}
joined_three() {
    waits_for "the end of node 2 of $folder"
    wait "$node2"
    rc2=$?
    joined
}
# of_node PID: the ranks of a node
of_node() { pgrep -P "$1" | sort -n; }
# saved FOLDER STEP
saved() { [ "$(newest "$1/checkpoint")" -ge "$2" ]; }
# ---- nodes on a clock of the test (clock.c) ----
# own_clock COMMAND...: as node, but what it starts has a clock that `passes` moves
own_clock() {
    [ -e "$dir/clock.so" ] || preload clock || return 1
    CLOCK=$dir/clock LD_PRELOAD="$(sanitizer) $dir/clock.so" "$@"
}
# passes PID...: hours pass until these have ended: those that wait find that it is too late
passes() {
    waits_for "the end of $* after their limit"
    for one; do
        until has_ended "$one"; do
            hours=$((${hours:-0} + 2000000))
            echo $hours >"$dir/clock"
            sleep 0.05
        done
    done
}
