#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A model may call its buffers what the core calls its own scalars, metrics and optimizer states: the run is the same.
. "$(dirname "$0")/lib.sh"
mkdir "$dir/plugins"
sed 's|"model": {.*|"model": { "name": "buffered" }, "comm": { "backend": "local" },|; /"args": {/d; s|"steps": 10|"steps": 3|; s|"interval": 5|"interval": 3|' \
    "$dir/job.json" >"$dir/buffers.json"
job=$dir/buffers.json
go() { # NAME SHARED STEPS: losses and norms of tests/run/buffers.c, its two global buffers renamed, to $dir/NAME.loss
    sed "s|\"shared\"|\"$2\"|; s|\"steps\"|\"$3\"|" "$SRC/tests/run/buffers.c" >"$dir/model.c"
    cc -std=c11 -w -O0 -fPIC -shared -fvisibility=hidden "-I$SRC/include" "$dir/model.c" "-L$BUILD" -lttrun -lm -o "$dir/plugins/buffered.so" 2>"$dir/err" || return 1
    train "$dir/$1" --plugin-dir "$dir/plugins"
    [ "$rc" -eq 0 ] && sed 's|.*"step":\([0-9]*\),.*"loss":\([^,]*\),.*"grad_norm":\([^,}]*\).*|\1 \2 \3|' "$dir/$1/metrics.jsonl" | grep '^[1-3] ' >"$dir/$1.loss" && [ "$(wc -l <"$dir/$1.loss")" -eq 3 ]
}
go own shared steps
ok buffers_of_other_names
while read -r a b; do
    go "$a.$b" "$a" "$b" && cmp -s "$dir/own.loss" "$dir/$a.$b.loss"
    ok "buffers_$a.and_$b"
done <<NAMES
lr step
inv_tokens inv_micro
loss_sum grad_norm
loss_max ok
seed stack.0.exp_avg
logits stack.1.exp_avg_sq
NAMES
# one name in a checkpoint is one tensor, whichever of the two is declared first
sed 's|    for (int64_t i = 0; i < c->layers; i++) {|    (void)tt_param(b, "shared", \&D, 1, NULL);\n&|' "$SRC/tests/run/buffers.c" >"$dir/model.c"
cc -std=c11 -w -O0 -fPIC -shared -fvisibility=hidden "-I$SRC/include" "$dir/model.c" "-L$BUILD" -lttrun -lm -o "$dir/plugins/buffered.so" 2>"$dir/err" &&
    train "$dir/twice" --plugin-dir "$dir/plugins"
[ "$rc" -eq 2 ] && grep -q 'parameter shared: a buffer has that name' "$dir/err"
ok parameter_with_the_name_of_a_buffer_is_refused
exit $failed
