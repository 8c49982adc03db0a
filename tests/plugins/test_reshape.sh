#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A model whose attention is written from ops, with tokens split into sequences and heads from head_dim, keeps each data
# rank's sequences and each tensor rank's heads, and trains alike on every mesh. So it does if the ops are the local
# decomposition of one op of the plugin, whose rule places it (TT_OP_LOCAL).
. "$(dirname "$0")/../run/lib.sh"
cd "$dir" || exit 1
# plugin SOURCE FOLDER OPTION...
plugin() {
    source=$1 to=$2
    shift 2
    mkdir -p "$to"
    cc -std=c11 -Wall -Wextra -Werror -O1 -fPIC -shared "$@" "-I$SRC/include" "$source" -o "$to/retnet.so" "-L$BUILD" -lttrun -lm >out 2>&1
}
plugin "$SRC/tests/plugins/retnet.c" more && plugin "$SRC/tests/plugins/retnet.c" op '-DONE_OP="true"'
ok retention_from_ops_builds
for folder in more op; do
    "$TTRUN" plugins check $folder/retnet.so --plugin-dir "$PLUGINS" >out 2>err && grep -q '^ok    gradients' out && grep -q '^ok    two ranks .*FSDP 2' out
    ok "plugins_check_passes_$folder"
done
# options of the file's model are no options of the small model that the check of the op runs
"$TTRUN" plugins check more/retnet.so --plugin-dir "$PLUGINS" --model.args.one_op true >out 2>err && grep -q '^ok    gradients' out
ok plugins_check_takes_options_of_a_model_beside_an_op
"$TTRUN" plugins check more/retnet.so --plugin-dir "$PLUGINS" --model.args.two_ops true >out 2>err
[ $? -eq 2 ] && grep -q 'two_ops: unknown key' err
ok plugins_check_refuses_options_that_the_model_lacks
sed -i 's/"flavor": "debugmodel",/"name": "retnet", "flavor": "debugmodel" },/; /"args"/d; s/"local_batch_size": 4/"global_batch_size": 8/; s/"steps": 10/"steps": 3/' job.json

train one --plugin-dir more --training.local_batch_size 8
[ "$rc" -eq 0 ] && losses one/metrics.jsonl >wanted && [ "$(wc -l <wanted)" -eq 3 ]
ok one_rank_trains

# mesh NAME RANKS LOCAL OPTION...: the losses of one rank, to rounding; the graph stays in NAME.graph
mesh() {
    name=$1 ranks=$2 batch=$3
    shift 3
    train "$name" --plugin-dir more --training.local_batch_size "$batch" --comm.backend local --nproc "$ranks" --debug.dump_graph "$name.graph" "$@"
    [ "$rc" -eq 0 ] && losses "$name/metrics.jsonl" | paste -d' ' - wanted |
        awk '{d = $2 - $4; n++; if (d < 0) d = -d; if ($1 != $3 || d > 1e-4) bad = 1} END {exit bad || n != 3}'
    ok "$name"
}
# local_products NAME PLACE: both products of retention, forward, are cut so
local_products() {
    [ "$(grep -c '= matmul .*layers.0' "$1.graph/01-place.txt")" -eq 2 ] &&
        [ "$(grep "= matmul .*layers.0" "$1.graph/01-place.txt" | grep -c "@ $2 ")" -eq 2 ]
    ok "$1_computes_its_own_part"
}
p=--parallelism.
mesh fsdp 2 4
local_products fsdp '{dp_shard},{},{},{}'
mesh hsdp 4 2 ${p}data_parallel_replicate_degree 2 ${p}data_parallel_shard_degree 2
local_products hsdp '{dp_replicate,dp_shard},{},{},{}'
mesh fsdp_tp 4 4 ${p}tensor_parallel_degree 2
local_products fsdp_tp '{dp_shard},{tp},{},{}'
mesh cp 2 8 ${p}context_parallel_degree 2
local_products cp '{cp},{},{},{}'
mesh cp_of_one_sequence 4 1 ${p}context_parallel_degree 2
local_products cp_of_one_sequence '{dp_shard},{},{},{}' # positions are gathered
mesh fsdp_pp 4 2 ${p}pipeline_parallel_degree 2


# The same as one op with a local decomposition: the bits of one rank, and the same meshes; Ulysses gives it whole sequences
# of fewer heads; it has activations computed again, and 16 bits.
a=--model.args.one_op
train op --plugin-dir more --training.local_batch_size 8 $a true --debug.dump_graph op.graph
[ "$rc" -eq 0 ] && losses op/metrics.jsonl | cmp -s - wanted && grep -q '= retention .*layers.0' op.graph/00-describe.txt &&
    ! grep -q '= retention' op.graph/01-place.txt
ok one_op_has_the_bits_of_its_ops
mesh op_fsdp 2 4 $a true
local_products op_fsdp '{dp_shard},{},{},{}'
mesh op_tp 2 8 $a true ${p}tensor_parallel_degree 2
local_products op_tp '{},{tp},{},{}'
# no redistribute between q, k, v and y but a slice of the decay, a constant, in the forward
sed -n '/= linear .*layers.0/,/o_proj/p' op_tp.graph/01-place.txt | awk '/= linear/ {n = 0} {n++; l[n] = $0} END {for (i = 1; i <= n; i++) print l[i]}' >between
[ "$(grep -c '= redistribute' between)" -eq 1 ] && grep -q '= redistribute %[0-9]* : f32\[4 heads, 32, 32\] @ {tp},{},{} follow' between &&
    grep -q '= reshape .*\[256 tokens, 32 heads\] @ {},{tp} follow' between
ok op_tp_gathers_no_heads
mesh op_fsdp_tp 4 4 $a true ${p}tensor_parallel_degree 2
local_products op_fsdp_tp '{dp_shard},{tp},{},{}'
mesh op_cp 2 8 $a true ${p}context_parallel_degree 2
local_products op_cp '{cp},{},{},{}'
mesh op_cp_of_one_sequence 4 1 $a true ${p}context_parallel_degree 2
local_products op_cp_of_one_sequence '{dp_shard},{},{},{}'
mesh op_ulysses 4 1 $a true ${p}context_parallel_degree 2 ${p}context_parallel_rotate_method ulysses
local_products op_ulysses '{dp_shard},{cp},{},{}'
mesh op_tp_ulysses 8 1 $a true ${p}context_parallel_degree 2 ${p}tensor_parallel_degree 2 ${p}context_parallel_rotate_method ulysses
local_products op_tp_ulysses '{dp_shard},{tp,cp},{},{}'
mesh op_pp 2 4 $a true ${p}pipeline_parallel_degree 2
mesh op_recomputed 2 4 $a true --activation_checkpoint.mode full
train op_half --plugin-dir more --training.local_batch_size 8 $a true --training.mixed_precision_param bfloat16 &&
    losses op_half/metrics.jsonl >half &&
    train ops_half --plugin-dir more --training.local_batch_size 8 --training.mixed_precision_param bfloat16 &&
    losses ops_half/metrics.jsonl | cmp -s - half && [ "$(wc -l <half)" -eq 3 ]
ok one_op_in_bfloat16_has_the_bits_of_its_ops
train op_half_tp --plugin-dir more --training.local_batch_size 8 $a true --training.mixed_precision_param bfloat16 \
    --comm.backend local --nproc 2 ${p}tensor_parallel_degree 2
losses op_half_tp/metrics.jsonl | paste -d' ' - half | awk '{d = $2 - $4; if (d < 0) d = -d; if (d > 0.02) bad = 1} END {exit bad || NR != 3}'
ok one_op_in_bfloat16_on_tp

# Beside attention, for which context parallelism orders tokens otherwise, the op has them in order, because its flag asks for it.
sed 's/ *return tt_linear(b, y, "o_proj"/    y = tt_add(b, y, tt_attention(b, in[0], in[1], in[2], c->dim \/ c->heads, NULL));\n&/' "$SRC/tests/plugins/retnet.c" >retnet.c
plugin retnet.c ordered && train ordered.one --plugin-dir ordered --training.local_batch_size 8 $a true && losses ordered.one/metrics.jsonl >wanted2 &&
    sed 's/ | TT_OP_ORDERED//; s/TT_OP_ORDERED | //' retnet.c >unordered.c && plugin unordered.c unordered
ok a_model_with_attention_and_the_op
for order in ordered unordered; do
    train $order.cp --plugin-dir $order --training.local_batch_size 1 $a true --comm.backend local --nproc 4 ${p}context_parallel_degree 2
    losses $order.cp/metrics.jsonl | paste -d' ' - wanted2 | awk '{d = $2 - $4; if (d < 0) d = -d; if (d > 1e-4) bad = 1} END {exit bad || NR != 3}'
    echo $? >$order.differs
done
[ "$(cat ordered.differs)" -eq 0 ] && [ "$(cat unordered.differs)" -eq 1 ]
ok an_ordered_op_keeps_the_order_of_tokens

# fails NAME TEXT OPTION...: with the retnet.c of this folder
fails() {
    name=$1 text=$2
    shift 2
    plugin retnet.c "$name" && train "$name.run" --plugin-dir "$name" --training.local_batch_size 4 $a true --comm.backend local --nproc 2 "$@"
    [ "$rc" -eq 2 ] && one_line err && grep -q "$text" err
    ok "$name"
}
# the rule keeps positions apart, which the decomposition needs together
sed 's/!q/q/g' "$SRC/tests/plugins/retnet.c" >retnet.c
fails a_rule_that_is_not_kept 'op retention (TT_OP_LOCAL): its rule .* lets cp cut letter q, but matmul in its decomposition needs .* in another placement: write !q in the rule' \
    ${p}context_parallel_degree 2 --training.global_batch_size 4 --training.local_batch_size 1
# an input that is read inside is the data rank's own part: the whole of it is no rank's
sed 's/    outs\[0\] = retention(b, in);/    tt_value *seg = tt_cast(b, tt_input(b, "seg"), TT_F32);\n    const tt_dim all[2] = {TT_DIM(1, NULL), tt_value_type(seg)->dims[0]};\n&\n    outs[0] = tt_mul(b, outs[0], tt_sqrt(b, tt_sum(b, tt_reshape(b, seg, all, 2), 1, 1)));/' \
    "$SRC/tests/plugins/retnet.c" >retnet.c
fails an_input_that_is_summed 'lets dp_shard cut letter b, which makes a partial sum, but sqrt in its decomposition needs the sum: write !b in the rule'
sed 's/#define RULE .*/#define RULE "!t h, !t h, !t h, !t -> !t h"/; s/    outs\[0\] = retention(b, in);/    tt_value *all[4] = {in[0], in[1], in[2], tt_input(b, "seg")};\n    outs[0] = retention(b, all);/' \
    "$SRC/tests/plugins/retnet.c" >retnet.c
fails an_input_that_should_be_an_operand 'output 0 is {},{}, but its decomposition gives {dp_shard},{}; over dp_shard it reads what is no operand and cut: make it an operand'
sed '/TT_OP_DEF("retention"/,/;/s/decompose,/NULL,/' "$SRC/tests/plugins/retnet.c" | sed 's/^static void decompose/static inline void decompose/' >retnet.c
fails an_op_without_a_decomposition 'it has the flag TT_OP_LOCAL, but decompose is NULL'

# `plugins check` of an op that is placed first: its own derivative, right and wrong, and that of its decomposition
op() { # NAME SED-SCRIPT
    mkdir -p "$1" && sed "/TT_KIND_KERNELS/d; s/TT_COUNT(components_)/1/; s/TT_OP_POINTWISE/TT_OP_POINTWISE | TT_OP_LOCAL/; $2" "$SRC/examples/relu2/relu2.c" >"$1/relu2.c" &&
        cc -std=c11 -w -O1 -fPIC -shared "-I$SRC/include" "$1/relu2.c" -o "$1/relu2.so" "-L$BUILD" -lttrun >out 2>&1 &&
        "$TTRUN" plugins check "$1/relu2.so" --plugin-dir "$PLUGINS" >out 2>err
}
op relu_own '' && grep -q '^ok    gradients' out && grep -q '^ok    two ranks' out
ok plugins_check_of_an_op_with_a_derivative_of_its_own
op relu_plain 's/infer, vjp, decompose/infer, NULL, decompose/' && grep -q '^ok    gradients' out && grep -q '^ok    two ranks' out
ok plugins_check_of_an_op_with_the_derivative_of_its_decomposition
op relu_wrong 's/, 2.0)/, 2.5)/'
[ $? -eq 2 ] && grep -q '^FAIL  gradients' out
ok plugins_check_finds_a_wrong_derivative

# Decoding computes a token from its row and the memory of attention alone, so a model that sees sequences has no such form,
# whatever it calls them.
for label in sequences tokens; do
    sed "s/\"sequences\"/\"$label\"/" "$SRC/tests/plugins/retnet.c" >retnet.c
    cc -std=c11 -O1 -fPIC -shared "-I$SRC/include" retnet.c -o more/retnet.so "-L$BUILD" -lttrun -lm &&
        ttrun generate --checkpoint one --plugin-dir more --prompt "line 3" --max-tokens 12 --temperature 0 >"$label.text" 2>err &&
        grep -q 'op reshape (in "layers.0") gives no row for each token: every token computes its whole context' err &&
        cmp -s sequences.text "$label.text"
    ok "generate_computes_the_context_of_$label"
done
ttrun generate --checkpoint op --plugin-dir more --prompt "line 3" --max-tokens 12 --temperature 0 >op.text 2>err &&
    grep -q 'op retention (in "layers.0") has no incremental form: every token computes its whole context' err && cmp -s sequences.text op.text
ok generate_computes_the_context_of_the_op
exit $failed
