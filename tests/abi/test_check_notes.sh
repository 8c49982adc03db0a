#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What `ttrun plugins check` must note or refuse: scaffolds with one change each, made by sed.
. "$(dirname "$0")/../script.sh"
cd "$dir" || exit 1

# KIND NAME SED [OPTION...]: the scaffold, changed, and its check; the status is in rc
check() {
    kind=$1 name=$2 change=$3
    shift 3
    "$TTRUN" plugins new "$kind" "$name" >/dev/null && sed -i.orig "$change" "$name/$name.c" &&
        { [ -z "$change" ] || ! cmp -s "$name/$name.c" "$name/$name.c.orig"; } &&
        cc -std=c11 -w -O1 -fPIC -shared "-I$SRC/include" "$name/$name.c" "-L$BUILD" -lttrun -lm -o "$name/$name.so" ||
        { echo "not ok $name: does not build" && failed=1; }
    "$TTRUN" plugins check "$name/$name.so" --plugin-dir "$PLUGINS" "$@" >out 2>err
    rc=$?
}
notes() { [ $rc -eq 0 ] && grep -q "^ok    describes .*NOTE $1" out; }
fails() { [ $rc -eq 2 ] && [ "$(wc -l <err)" -eq 1 ] && grep -q "^FAIL  $1 .*$2" out; }

# a product whose gradient is not its slope, on purpose; a converter of layers that uses tt_custom_vjp
check converter estimator 's|operands\[1\] = rounded(b, p->b)|operands[1] = p->role == TT_PRODUCT_FORWARD ? tt_scale(b, p->b, 3.0) : p->b|
s|TT_BF16|TT_F32|'
[ $rc -eq 0 ] && grep -q '^skip  gradients .*product(), whose gradient is that of the layer as it was' out && grep -q '^ok    describes .*replaces 45 of the 53 linears and products' out
ok straight_through_product
ste='static tt_value *f(tt_builder *b, tt_value *const *x, int n, void *u) { (void)n; (void)u; return tt_mul(b, x[0], tt_scale(b, x[0], 3.0)); }
static void g(tt_builder *b, tt_value *const *x, int n, tt_value *y, tt_value *dy, tt_value **dx, void *u) { (void)b; (void)x; (void)n; (void)y; (void)u; dx[0] = dy; }
static tt_value *linear(const void *c, tt_builder *b, const char *name, tt_value *x, tt_value *w) { (void)c; return name[0] == (char)108 ? NULL : tt_linear_w(b, x, tt_custom_vjp(b, \&w, 1, f, g, NULL)); }'
printf '%s\n' "$ste" | sed 's|\\&|\&|g' >ste.h
check converter layers '/^typedef struct {/i #include "../ste.h"
s|{sizeof(vt), NULL, product, 0, NULL}|{sizeof(vt), linear, NULL, 0, NULL}|
s|^static tt_value \*product|static inline tt_value *product|'
[ $rc -eq 0 ] && grep -q '^skip  gradients .*tt_custom_vjp' out && grep -q '^ok    describes .*replaces 14 of the 15 linears' out
ok straight_through_estimator

check converter idle 's/p->in < c->least/1/'
[ $rc -eq 0 ] && grep -q '^skip  describes .*none of the 53 linears and products' out && ! grep -q '^ok    trains' out
ok converter_that_replaces_nothing

quick='{"n_layers":1,"dim":16,"hidden_dim":16}'
check model label 's|"ffn"|"fnn"|' --model.args "$quick"
notes 'no sharding rule names the label "fnn" (did you mean "ffn"?)'
ok unknown_label
check model bare 's|TT_DIM(c->hidden, "ffn")|TT_DIM(c->hidden, NULL)|' --model.args "$quick"
notes '2 parameters have a dim without a label, first .*up_proj'
ok dim_without_a_label
check model twice 's|"mlp_norm"|"attention_norm"|' --model.args "$quick"
notes '.*attention_norm.* is declared 2 times'
ok norm_named_twice
check model plain "" --model.args "$quick"
[ $rc -eq 0 ] && ! grep -q NOTE out
ok nothing_to_note
check model flavor 's|"{\\"dim\\": 256|"{\\"dimm\\": 256|' --model.args "$quick"
fails describes 'flavor larger.*dimm.*did you mean model.args.dim'
ok second_flavor_with_an_unknown_option

check model few 's|tt_linear(b, x, "lm_head", V, NULL)|tt_linear(b, x, "lm_head", TT_DIM(100, "vocab"), NULL)|' --model.args "$quick"
fails describes 'model few: vocab_size() is 262, but the output "logits" has 100 columns: ids up to 261'
ok fewer_logits_than_ids
check model many 's|return ((const config \*)cfg)->vocab;|return 200;|' --model.args "$quick"
notes 'logits have 262 columns, and vocab_size() is 200'
ok more_logits_than_ids
check model shape 's|"o_proj", TT_DIM(c->dim, "embed")|"o_proj", TT_DIM(c->dim + 1, "embed")|' --model.args "$quick"
fails describes ' model shape: in layers.0: add' && ! grep -q 'model shape: model shape' out
ok component_is_named_once
echo '{}' >job.json
check model bareform '' --model.args "$quick"
"$TTRUN" --plugin-dir bareform --plugin-dir "$PLUGINS" -q --model.name bareform --model.args "$quick" --dataloader.path "$dir/bareform/README.md" --training.steps 1 --training.seq_len 16 --training.local_batch_size 1 --dump_folder run job.json >out 2>err
"$TTRUN" --plugin-dir bareform --plugin-dir "$PLUGINS" ckpt export --to hf run hf >out 2>err
[ $? -eq 2 ] && grep -q 'model bareform does not define its Hugging Face form' err && ! [ -e hf ]
ok export_without_a_form

check model scales 's|"dim\\": 256|"dim\\": 250|' --model.args "$quick"
fails describes 'larger.*must be a multiple'
ok second_flavor_that_finish_refuses

check lr_scheduler early '/^TT_PLUGIN/i __attribute__((constructor)) static void early(void) { __asm__ volatile (""); }'
[ $rc -eq 0 ] && grep -q '^ok    loads .*NOTE 1 constructor runs' out
ok constructor

check optimizer stale '/tt_assign(b, m, next)/d'
fails describes 'state "momentum" is never assigned'
ok state_never_assigned

check op arrow 's|"\* -> \*"|"t i, t - t"|'
fails describes 'rule "t i, t - t"'
ok rule_without_an_arrow
check op letters 's|"\* -> \*"|"t i -> t i i"|'
fails describes 'rule "t i -> t i i"'
ok rule_with_a_letter_twice

check dataloader late 's|(int32_t)((i + t) % l->vocab)|(int32_t)(i % 7 == 3 ? l->vocab : (i + t) % l->vocab)|'
fails describes 'token 0 of sample 3: id 26[0-9]'
ok ids_beyond_the_vocabulary_later_on
"$TTRUN" plugins check "$PLUGINS/dataloaders/text.so" --plugin-dir "$PLUGINS" --dataloader.path "$dir/none.txt" >out 2>err
rc=$?
fails describes 'none.txt'
ok loader_with_a_path_that_is_not_there
"$TTRUN" plugins check "$PLUGINS/dataloaders/text.so" --plugin-dir "$PLUGINS" >out 2>err
[ $? -eq 0 ] && grep -q '^skip  describes .*--dataloader.KEY' out
ok loader_without_a_path
exit $failed
