#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Run by hand, as root: two "machines" are network namespaces on a bridge in a third one, and the wire of the second is cut, so that
# it answers no more and nothing says so. Prints after how many seconds each node says it and has ended: busy, and with ranks that stand
# still, where only the keepalive between the nodes can notice. Not in make test: it needs root, and a minute.
. "$(dirname "$0")/processes.sh"
unset TTRUN_PATIENCE
spaces="ttrun$$"
ip netns add "${spaces}w" 2>"$dir/err" || { echo "# no network namespaces here: $(cat "$dir/err")" && exit 0; }
trap 'for k in 0 1 w; do ip netns del "$spaces$k" 2>/dev/null; done; rm -rf "$dir"' EXIT
ip -n "${spaces}w" link add wire type bridge
ip -n "${spaces}w" link set wire up
for k in 0 1; do
    ip netns add "$spaces$k"
    ip -n "${spaces}w" link add "port$k" type veth peer name eth0 netns "$spaces$k"
    ip -n "${spaces}w" link set "port$k" master wire up
    ip -n "$spaces$k" addr add "10.99.0.1$k/24" dev eth0
    ip -n "$spaces$k" link set eth0 up
    ip -n "$spaces$k" link set lo up
done
vanish() { # NAME, COMMAND that is run before the wire is cut
    ip -n "${spaces}w" link set port1 up
    rm -rf "$dir/v"
    for k in 0 1; do
        ip netns exec "$spaces$k" "$TTRUN" "$job" --plugin-dir "$PLUGINS" --dump_folder "$dir/v" --nnodes 2 --node_rank $k --master_addr 10.99.0.10 \
            $long --checkpoint.interval 1000000 >"$dir/out$k" 2>"$dir/err$k" </dev/null &
        eval "node$k=$!"
    done
    until_true has_lines "$dir/v/metrics.jsonl" 2
    eval "$2"
    ip -n "${spaces}w" link set port1 down
    begin=$(date +%s)
    bad=0
    for k in 0 1; do
        eval "wait \$node$k"
        [ $? -eq 1 ] || bad=1
        echo "# $1: node $k has ended after $(($(date +%s) - begin)) s: $(grep '^ttrun: ' "$dir/err$k" | cut -c 1-150)"
    done
    cat "$dir"/err? >"$dir/err"
    [ $bad -eq 0 ] && [ $(($(date +%s) - begin)) -le 40 ] && until_gone no_rank "$dir/v"
    ok "vanished_machine_is_noticed_$1"
}
vanish busy :
vanish still 'kill -STOP $(ranks "$dir/v")'
exit $failed
