#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Converters that replace single products (products.c): every product of its role is offered, an identity changes no bit on any
# mesh, a tensor's maximum is that of the whole tensor, roles reach exactly their products, and the order of the list counts.
. "$(dirname "$0")/../run/lib.sh"
mkdir -p "$dir/more"
build() { cc -std=c11 -Wall -Wextra -Werror -shared -fPIC "-I$SRC/include" "$SRC/tests/plugins/$1.c" -o "$dir/more/$1.so"; }
{ build products && build experts; } >"$dir/out" 2>&1
ok plugins_build_from_the_public_headers
# our own tiles: bits do not depend on how many rows a product has
more="--plugin-dir $dir/more --comm.backend local --backend.blas own"
p=--parallelism.
plain=$job
tool="$BUILD/tests/run/states_tool"

# go NAME CONVERTERS OPTION...: two steps with these converters
go() {
    name=$1 list=$2
    shift 2
    rm -rf "${dir:?}/$name"
    train "$dir/$name" $more --training.steps 2 --checkpoint.interval 1 --converters "$list" "$@"
}
equal() { # A B STEP: every tensor of the two checkpoints
    "$TTRUN" ckpt diff "$dir/$1/checkpoint/step-$3" "$dir/$2/checkpoint/step-$3" >"$dir/out" 2>"$dir/err"
}
refused() { [ "$rc" -eq 2 ] && one_line "$dir/err" && grep -q -- "$1" "$dir/err"; }

# ---- what is offered ----
go all "[{\"name\": \"same\", \"file\": \"$dir/all.txt\"}]"
[ "$rc" -eq 0 ] && [ "$(grep -c '^linear ' "$dir/all.txt")" -eq 45 ] && [ "$(grep '^linear ' "$dir/all.txt" | sort -u | wc -l)" -eq 45 ] &&
    grep -qx 'linear forward lm_head.weight \[32,262\]' "$dir/all.txt" && grep -qx 'linear grad_weight model.layers.1.mlp.down_proj.weight \[48,32\]' "$dir/all.txt" &&
    grep -qx 'linear grad_input model.layers.0.self_attn.k_proj.weight \[32,16\]' "$dir/all.txt" &&
    grep -q 'converters\[0\] (same): converts products: 15 of 21 forward, 15 of 17 grad_input, 15 of 15 grad_weight' "$dir/err"
ok every_linear_is_offered_in_every_role_once
[ "$(grep -c '^attention forward' "$dir/all.txt")" -eq 6 ] && [ "$(grep -c '^attention grad_input' "$dir/all.txt")" -eq 2 ] &&
    grep -qx 'attention forward model.layers.1.self_attn.k \[8,2\]' "$dir/all.txt" && grep -qx 'attention grad_input model.layers.0.self_attn.dout \[8,4\]' "$dir/all.txt"
ok attentions_operands_are_offered
go few "[{\"name\": \"same\", \"file\": \"$dir/few.txt\", \"roles\": [\"grad_weight\"], \"filter\": [\"lm_head\", \"layers[.]0[.]\"]}]"
[ "$rc" -eq 0 ] && [ "$(wc -l <"$dir/few.txt")" -eq 7 ] && [ "$(grep -c 'linear grad_weight model.layers.1' "$dir/few.txt")" -eq 7 ]
ok roles_and_filter_choose
go attn "[{\"name\": \"same\", \"file\": \"$dir/attn.txt\", \"filter\": [\"self_attn[.](q|dout)$\", \"weight\"]}]"
[ "$rc" -eq 0 ] && [ "$(wc -l <"$dir/attn.txt")" -eq 4 ] && ! grep -q 'has no effect' "$dir/err"
ok filter_knows_attentions_operands

# ---- an identity ----
# same NAME OPTION...: neither the identity nor the detour over the tensor's maximum changes a bit of the checkpoint
same() {
    what=$1
    shift
    go plain '[]' "$@" && [ "$rc" -eq 0 ] && go same '[{"name": "same"}]' "$@" && [ "$rc" -eq 0 ] && equal plain same 2 && go powers '[{"name": "powers"}]' "$@" && [ "$rc" -eq 0 ] &&
        equal plain powers 2
    ok "no_bit_changes_$what"
}
same one_rank
same accumulated --training.global_batch_size 8
same recomputed --activation_checkpoint.mode full
same selective_bf16 --activation_checkpoint.mode selective --training.mixed_precision_param bfloat16
same stored_in_bf16 --activation_checkpoint.store_dtype bfloat16
same unfused --debug.disable_fusion true
same fsdp --nproc 2
same fsdp_sunk --nproc 2 --training.global_batch_size 16 ${p}fsdp_reshard_after_forward never
same replicas_bf16 --nproc 2 ${p}data_parallel_replicate_degree 2 --training.mixed_precision_param bfloat16 --training.mixed_precision_reduce bfloat16
same tp --nproc 2 ${p}tensor_parallel_degree 2
same tp_without_sp --nproc 2 ${p}tensor_parallel_degree 2 ${p}enable_sequence_parallel false
same async_tp --nproc 2 ${p}tensor_parallel_degree 2 ${p}enable_async_tensor_parallel true
same cp --nproc 2 ${p}context_parallel_degree 2
same cp_ring --nproc 2 ${p}context_parallel_degree 2 ${p}context_parallel_rotate_method ring
same cp_ulysses --nproc 2 ${p}context_parallel_degree 2 ${p}context_parallel_rotate_method ulysses
same pp --nproc 2 ${p}pipeline_parallel_degree 2
same pp_tied --nproc 2 ${p}pipeline_parallel_degree 2 --model.args.tie_embeddings true
same zbv --nproc 2 ${p}pipeline_parallel_degree 2 ${p}pipeline_parallel_schedule ZBVZeroBubble --model.args.n_layers 4 --activation_checkpoint.mode full
same tp_tied --nproc 2 ${p}tensor_parallel_degree 2 --model.args.tie_embeddings true
same fsdp_tp --nproc 4 ${p}tensor_parallel_degree 2

# a loop over token chunks: what a converter makes of the head's own operands runs before it; what it needs of all rows of the logits'
# gradient ends it
long="--model.args.vocab_size 4000 --training.seq_len 512 --training.local_batch_size 1"
unchunked='logits exist whole, not in chunks of tokens, because op reduce_max'
go plain '[]' $long && go same '[{"name": "same"}]' $long && [ "$rc" -eq 0 ] && equal plain same 2 && ! grep -q 'logits exist whole' "$dir/err"
ok no_bit_changes_chunks
go powers '[{"name": "powers"}]' $long && [ "$rc" -eq 0 ] && grep -q "$unchunked" "$dir/err" && near "$(value "$dir/powers/metrics.jsonl" grad_norm 2)" "$(value "$dir/plain/metrics.jsonl" grad_norm 2)" 1e-6
ok a_maximum_over_the_logits_gradient_ends_the_loop
go gram '[{"name": "gram", "filter": ["layers"]}]' $long && [ "$rc" -eq 0 ] && grep -q 'logits exist whole, not in chunks of tokens, because op linear_dx' "$dir/err"
ok a_sum_over_tokens_that_rows_read_ends_the_loop
go plain_pp '[]' $long --nproc 2 ${p}pipeline_parallel_degree 2 && go same '[{"name": "same"}]' $long --nproc 2 ${p}pipeline_parallel_degree 2 && [ "$rc" -eq 0 ] && equal plain_pp same 2
ok no_bit_changes_chunks_pp
go plain '[]' $long && go forward '[{"name": "powers", "roles": ["forward"]}]' $long && [ "$rc" -eq 0 ] && ! grep -q 'logits exist whole' "$dir/err" && equal plain forward 2
ok a_maximum_over_the_heads_operands_does_not

# ---- the scale of a tensor is that of the whole tensor ----
# mesh NAME OPTION...: with 4 bits per operand the losses are those of one rank; a part's own maximum would change the third digit
mesh() {
    what=$1
    shift
    go "$what" '[{"name": "rough"}]' "$@"
    [ "$rc" -eq 0 ] && losses "$dir/$what/metrics.jsonl" | paste -d' ' - "$dir/wanted" |
        awk '{d = $2 - $4; n++; if (d < 0) d = -d; if ($1 != $3 || d > 2e-5) bad = 1} END {exit bad || n != 2}'
    ok "whole_tensors_scale_$what"
}
go one '[{"name": "rough"}]' --training.local_batch_size 8 && losses "$dir/one/metrics.jsonl" >"$dir/wanted"
go exact '[]' --training.local_batch_size 8
[ "$rc" -eq 0 ] && ! losses "$dir/exact/metrics.jsonl" | cmp -s - "$dir/wanted"
ok four_bits_change_the_losses
mesh fsdp --nproc 2
mesh tp --nproc 2 --training.local_batch_size 8 ${p}tensor_parallel_degree 2
mesh cp --nproc 2 --training.local_batch_size 8 ${p}context_parallel_degree 2
mesh ring --nproc 2 --training.local_batch_size 8 ${p}context_parallel_degree 2 ${p}context_parallel_rotate_method ring
mesh pp --nproc 2 --training.local_batch_size 8 ${p}pipeline_parallel_degree 2 ${p}pipeline_parallel_microbatches 1
mesh fsdp_tp --nproc 4 ${p}tensor_parallel_degree 2

# ---- state: the maximum of the last four steps, per product ----
go state '[{"name": "delayed"}]' --training.local_batch_size 8 --training.steps 4 --checkpoint.interval 2 && losses "$dir/state/metrics.jsonl" >"$dir/wanted"
# kept NAME OPTION...: the losses are those of one rank
kept() {
    what=$1
    shift
    go "$what" '[{"name": "delayed"}]' --training.steps 4 "$@"
    [ "$rc" -eq 0 ] && losses "$dir/$what/metrics.jsonl" | paste -d' ' - "$dir/wanted" |
        awk '{d = $2 - $4; n++; if (d < 0) d = -d; if ($1 != $3 || d > 5e-5) bad = 1} END {exit bad || n != 4}'
    ok "state_of_converters_$what"
}
kept micro_batches --training.global_batch_size 8
kept fsdp --nproc 2
kept tp --nproc 2 --training.local_batch_size 8 ${p}tensor_parallel_degree 2
kept ring --nproc 2 --training.local_batch_size 8 ${p}context_parallel_degree 2 ${p}context_parallel_rotate_method ring
kept pp --nproc 2 --training.local_batch_size 8 ${p}pipeline_parallel_degree 2
go exact '[]' --training.local_batch_size 8 --training.steps 4 --checkpoint.interval 2
[ "$rc" -eq 0 ] && ! losses "$dir/exact/metrics.jsonl" | cmp -s - "$dir/wanted" && [ "$(losses "$dir/exact/metrics.jsonl" | head -n 1)" = "$(head -n 1 "$dir/wanted")" ]
ok the_first_step_has_no_history
cp -r "$dir/state" "$dir/again" && rm -rf "$dir/again/checkpoint/step-4" && train "$dir/again" $more --training.steps 4 --checkpoint.interval 2 --training.local_batch_size 8 --converters '[{"name": "delayed"}]'
[ "$rc" -eq 0 ] && equal state again 4 && grep -q 'all equal' "$dir/out" && grep -q '"converters.delayed.lm_head.weight.grad_input.a"' "$dir/again/checkpoint/step-4/trainer.json"
ok checkpoints_hold_the_state
rm -rf "$dir/exact/checkpoint/step-4" && train "$dir/exact" $more --training.steps 4 --training.local_batch_size 8 --converters '[{"name": "delayed"}]'
[ "$rc" -eq 0 ] && grep -q "has no state of this job's converters for 98 tensors: they begin anew" "$dir/err"
ok a_converter_that_is_added_begins_anew
rm -rf "$dir/again/checkpoint/step-4" && train "$dir/again" $more --training.steps 4 --training.local_batch_size 8
[ "$rc" -eq 0 ] && grep -q '98 tensors not of this model ignored: converters.delayed' "$dir/err"
ok the_state_of_one_that_is_gone_is_left_out

# ---- roles reach their products, and no others ----
# after a step exp_avg is (1 - beta1) times the gradient: that of `doubled` PARAM... changed by its own size (it is twice as large, or
# 0), that of `untouched` PARAM... did not change
after() { # CONVERTERS
    go base '[]' --training.max_norm 0
    go other "$1" --training.max_norm 0
    [ "$rc" -eq 0 ]
}
moved() { # PARAM: the mean of |change| / |gradient|
    "$tool" "$dir/base/checkpoint/step-1" "$dir/other/checkpoint/step-1" "$1.exp_avg" "$1.exp_avg_sq" |
        awk '{print $4}'
}
doubled() { for w in "$@"; do [ "$(moved "$w")" = 1.000000 ] || return 1; done; }
untouched() { for w in "$@"; do [ "$(moved "$w")" = 0.000000 ] || return 1; done; }
after '[]' && untouched lm_head.weight model.layers.0.self_attn.q_proj.weight
ok without_a_converter_gradients_are_equal
L=model.layers.1
after '[{"name": "times", "roles": ["grad_weight"], "filter": ["layers", "embed"]}]' && doubled lm_head.weight &&
    untouched model.norm.weight $L.mlp.down_proj.weight $L.self_attn.q_proj.weight model.layers.0.mlp.up_proj.weight model.embed_tokens.weight
ok grad_weight_is_the_weights_gradient_alone
after "[{\"name\": \"times\", \"roles\": [\"grad_input\"], \"filter\": [\"lm_head\", \"layers.0\", \"(q|k|v|o|gate|up)_proj\", \"dout\"]}]" &&
    doubled $L.mlp.gate_proj.weight $L.mlp.up_proj.weight $L.post_attention_layernorm.weight &&
    untouched lm_head.weight model.norm.weight $L.mlp.down_proj.weight && ! untouched $L.self_attn.o_proj.weight && ! doubled $L.self_attn.o_proj.weight
ok grad_input_is_the_gradient_of_what_the_layer_reads
after '[{"name": "times", "factor": 0, "roles": ["forward"], "filter": ["layers"]}]' && near "$(value "$dir/other/metrics.jsonl" loss 1)" 5.568345 1e-5 &&
    ! doubled lm_head.weight && ! untouched lm_head.weight
ok forward_is_the_result_alone_and_its_gradient_passes_straight_through
after '[{"name": "times", "roles": ["grad_input"], "filter": ["_proj", "lm_head", "layers.0", "self_attn.[qkv]$"]}]' &&
    doubled $L.self_attn.q_proj.weight $L.self_attn.k_proj.weight $L.self_attn.v_proj.weight && untouched $L.self_attn.o_proj.weight lm_head.weight $L.mlp.up_proj.weight
ok grad_input_of_attention_is_the_gradient_of_its_result
after '[{"name": "times", "factor": 0, "roles": ["forward"], "filter": ["_proj", "lm_head", "layers.0", "self_attn.[qk]$"]}]' &&
    ! untouched lm_head.weight && doubled $L.self_attn.o_proj.weight $L.self_attn.q_proj.weight && ! doubled $L.self_attn.v_proj.weight
ok attention_reads_what_is_made_of_an_operand_in_both_directions

# validation computes the forward as training does
valid="{\"path\": [\"$dir/text.txt\"]}"
go valid '[{"name": "times", "factor": 0, "roles": ["forward"], "filter": ["layers"]}]' --validation.enable true --validation.freq 1 --validation.steps 1 --validation.dataloader "$valid"
[ "$rc" -eq 0 ] && grep -q '"validation":{"loss":5.5683' "$dir/valid/metrics.jsonl"
ok validation_is_converted

# ---- order ----
go plain '[]'
go back '[{"name": "times"}, {"name": "times", "factor": 0.5}]'
[ "$rc" -eq 0 ] && equal plain back 2 && go back '[{"name": "times"}, {"name": "same"}, {"name": "times", "factor": 0.5}]' && [ "$rc" -eq 0 ] && equal plain back 2
ok each_converter_sees_what_the_one_before_left
go last '[{"name": "last"}, {"name": "times", "filter": ["layers"]}]'
refused 'converters\[1\] (times) converts the product forward of lm_head.weight, which converters\[0\] (last) has converted and no other may change'
ok after_a_final_converter_none_may_follow
go last '[{"name": "last", "filter": ["lm_head"]}, {"name": "times", "filter": ["layers"]}]' && [ "$rc" -eq 0 ] && go last '[{"name": "times", "factor": 0.5}, {"name": "last"}]' &&
    [ "$rc" -eq 0 ] && equal plain last 2
ok but_beside_it_and_before_it
go a1 "[{\"name\": \"adapter\"}, {\"name\": \"same\", \"file\": \"$dir/a1.txt\"}]" && [ "$rc" -eq 0 ] && [ "$(grep -c '^linear forward' "$dir/a1.txt")" -eq 45 ] &&
    [ "$(grep -c '^linear grad_weight .*adapter_' "$dir/a1.txt")" -eq 30 ]
ok layers_that_a_converter_adds_are_offered_to_the_next
go a2 "[{\"name\": \"same\", \"file\": \"$dir/a2.txt\"}, {\"name\": \"adapter\"}]" && [ "$rc" -eq 0 ] && [ "$(grep -c '^linear forward' "$dir/a2.txt")" -eq 15 ] &&
    ! grep -q adapter "$dir/a2.txt" && equal a1 a2 2
ok but_not_to_the_one_before
go a3 "[{\"name\": \"adapter\", \"file\": \"$dir/a3.txt\"}, {\"name\": \"adapter\", \"scope\": \"second\", \"file\": \"$dir/a4.txt\"}]" && [ "$rc" -eq 0 ] &&
    [ "$(wc -l <"$dir/a3.txt")" -eq 15 ] && [ "$(wc -l <"$dir/a4.txt")" -eq 45 ] && [ "$(grep -c '_proj.weight$\|lm_head.weight$' "$dir/a4.txt")" -eq 15 ] &&
    grep -q 'converters\[1\] (adapter): replaces 45 of 45 layers' "$dir/err"
ok the_next_is_asked_about_the_layer_itself_and_the_added_ones

# ---- refusals ----
go bad '[{"name": "wrong"}]'
refused 'converters\[0\] (wrong): product() of model.layers.0.self_attn.q_proj.weight returned f32\[\], must be f32\[128 tokens, 32 heads\]'
ok a_wrong_shape_is_refused
go bad '[{"name": "sme"}]'
refused 'converters\[0\].name: converter "sme" is unknown; did you mean "same"'
ok an_unknown_name_is_refused
go bad '[{"name": "same", "roles": []}]'
refused 'converters\[0\].roles: is empty, so nothing would be converted'
ok no_roles_are_refused
go bad '[{"name": "same", "roles": ["grad_inputs"]}]'
refused 'converters\[0\].roles: no role "grad_inputs" (did you mean grad_input?)'
ok an_unknown_role_is_refused
go bad '[{"name": "same", "roles": ["forward", "forward"]}]'
refused 'converters\[0\].roles: "forward" is listed twice'
ok a_role_twice_is_refused
go nothing '[{"name": "same", "filter": ["weight", "self_attn"]}]'
[ "$rc" -eq 0 ] && grep -q 'converters\[0\] (same) converts nothing' "$dir/err"
ok a_converter_without_effect_is_a_warning

# ---- experts: one weight for each group of rows ----
sed 's/"args": {[^}]*}/"name": "experts"/' "$plain" >"$dir/experts.json"
job=$dir/experts.json
go grouped "[{\"name\": \"same\", \"file\": \"$dir/e.txt\", \"filter\": [\"tag:first\"]}]"
[ "$rc" -eq 0 ] && [ "$(wc -l <"$dir/e.txt")" -eq 9 ] && [ "$(grep -c '^grouped .* layers.0.down \[48,32\] experts$' "$dir/e.txt")" -eq 3 ]
ok grouped_products_are_offered_and_a_tag_leaves_them_out
same experts
same experts_fsdp --nproc 2
go plain '[]' --nproc 2 && go rolls '[{"name": "rolls", "roles": ["forward"]}]' --nproc 2 && [ "$rc" -eq 0 ] && equal plain rolls 2
ok a_converter_may_use_what_a_later_node_has_gathered
same experts_tp --nproc 2 ${p}tensor_parallel_degree 2
go one '[{"name": "rough"}]' --training.local_batch_size 8 && losses "$dir/one/metrics.jsonl" >"$dir/wanted"
mesh experts_fsdp --nproc 2
mesh experts_tp --nproc 2 --training.local_batch_size 8 ${p}tensor_parallel_degree 2

# ---- the SDK ----
mkdir "$dir/empty" && sed 's/, \.product = same}/}/' "$SRC/tests/plugins/products.c" >"$dir/empty/empty.c" &&
    cc -std=c11 -w -shared -fPIC "-I$SRC/include" "$dir/empty/empty.c" -o "$dir/empty/empty.so" && "$TTRUN" plugins check "$dir/empty/empty.so" >"$dir/out" 2>"$dir/err"
[ $? -eq 2 ] && grep -q 'converter "same".*its functions linear and product are both NULL' "$dir/err"
ok a_converter_without_functions_is_refused
job=$plain
mkdir "$dir/sound" && cc -std=c11 -Wno-unused-const-variable -DSOUND -shared -fPIC "-I$SRC/include" "$SRC/tests/plugins/products.c" -o "$dir/sound/products.so" &&
    "$TTRUN" plugins check "$dir/sound/products.so" --plugin-dir "$PLUGINS" >"$dir/out" 2>"$dir/err"
[ $? -eq 0 ] && grep -q 'converter times: replaces 53 of the 53 linears and products' "$dir/out"
ok plugins_check_runs_products
exit $failed
