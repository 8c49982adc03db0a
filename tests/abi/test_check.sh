#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# `ttrun plugins check` finds what is wrong: each scaffold with one fault, made by sed, must fail the stage that looks
# for it, with status 2 and one line on stderr.
. "$(dirname "$0")/../script.sh"
cd "$dir" || exit 1
export ASAN_OPTIONS="${ASAN_OPTIONS:-}:handle_segv=0" # a crash is a crash

build() { # KIND NAME SED: the scaffold, changed
    "$TTRUN" plugins new "$1" "$2" >/dev/null && sed -i.orig "$3" "$2/$2.c" || return 1
    [ "$3" = p ] || ! cmp -s "$2/$2.c" "$2/$2.c.orig" || { echo "not ok $2: sed changed nothing" && failed=1; }
    cc -std=c11 -w -O1 -fPIC -shared "-I$SRC/include" "$2/$2.c" "-L$BUILD" -lttrun -lm -o "$2/$2.so"
}
check() { # FILE [OPTION...]
    "$TTRUN" plugins check "$@" --plugin-dir "$PLUGINS" >out 2>err
}
fails() { # NAME KIND STAGE WORDS SED
    build "$2" "$1" "$5" || { echo "not ok $1: does not build" && failed=1; }
    check "$1/$1.so"
    [ $? -eq 2 ] && [ "$(wc -l <err)" -eq 1 ] && grep -q "^FAIL  $3 .*$4" out && grep -qF "$1.so: fails the check \"$3\"" err
    ok "$1"
}

# a hang is ended after the stage's limit; it runs while the others do
build lr_scheduler hangs 's/return t < warmup/for (volatile int i = 1; i;) ; return t < warmup/'
TTRUN_PATIENCE=0.05 "$TTRUN" plugins check hangs/hangs.so --plugin-dir "$PLUGINS" >hang.out 2>hang.err &
hang=$!

fails crashes model describes 'model "crashes" crashed (SIGSEGV' 's|tt_input(b, "ids")|((tt_value *)*(void *volatile *)8)|'
fails calls_exit model describes 'ended the process' 's|const config \*c = (const config \*)cfg;|const config *c = (const config *)cfg; void exit(int); exit(0);|'
fails unknown_op model describes 'no op "nothing"' 's|tt_block_end(b);|tt_op(b, "nothing", \&x, 1, NULL, \&x, 1); tt_block_end(b);|'
fails negative_vocabulary model describes 'vocab_size' 's|return ((const config \*)cfg)->vocab;|return -1;|'
fails wrong_derivative op gradients 'slope is' 's/, 2\.0), c->dout/, 3.0), c->dout/'
fails missing_derivative op gradients 'slope is' 's/if (c->want\[0\].*/if (0)/'
fails differs_by_run model 'two ranks' 'TP 2: the loss of step' 's|x = tt_rms_norm(b, x, "norm", 1e-5);|static int n; x = tt_scale(b, tt_rms_norm(b, x, "norm", 1e-5), 1.0 + 0.1 * n++);|'
fails stops_the_gradient loss describes 'does not influence the loss' 's|tt_scale(b, logits|tt_scale(b, tt_stop_gradient(b, logits)|'
fails ascends optimizer trains 'does not learn' 's|tt_assign(b, u->param, tt_sub|tt_assign(b, u->param, tt_add|'
fails gives_nan optimizer 'two ranks' 'loss of step' 's|tt_assign(b, m, next)|tt_assign(b, m, tt_log_e(b, tt_neg(b, tt_abs(b, next))))|'
fails negative_factor lr_scheduler describes 'factor of step' 's|sqrt(warmup / t)|-sqrt(warmup / t)|'
fails factor_differs_between_calls lr_scheduler describes 'two calls give different factors' 's|const double warmup =|static int n; const double warmup = 1e-9 * n++ +|'
fails decodes_wrongly tokenizer describes 'encode() and decode() turn' 's|buf\[0\] = (char)id;|buf[0] = (char)(id ^ (id == 97));|'
fails id_too_high tokenizer describes 'gives the id' 's|(unsigned char)text\[i\]|256 + 2 + (unsigned char)text[i]|'
fails id_outside_the_vocabulary dataloader describes 'token 0 of sample 0' 's|(int32_t)((i + t) % l->vocab)|(int32_t)l->vocab|'
fails samples_differ_between_reads dataloader describes 'sample 0 differs after other samples were read' 's|(int32_t)((i + t) % l->vocab)|(int32_t)((i + t + ((loader *)self)->samples++) % l->vocab)|'
fails hook_that_fails hook describes 'exceeds' 's|r->step > c->after|r->step > 0|; s|"100.0"|"1.0"|'

# the derivative of a model may differ by intent: said, not failed
build model straight 's|x = tt_rms_norm(b, x, "norm", 1e-5);|x = tt_rms_norm(b, x, "norm", 1e-5); x = tt_add(b, tt_scale(b, x, 0.5), tt_stop_gradient(b, tt_scale(b, x, 0.5)));|'
check straight/straight.so
[ $? -eq 0 ] && grep -q '^skip  gradients .*tt_stop_gradient' out && grep -q '^ok    trains' out
ok straight_through

# the core's own tt_custom_vjp, of a router's choices, does not excuse a model of experts
build op wrong_of_experts 's/, 2\.0), c->dout/, 3.0), c->dout/; s/TT_OP_POINTWISE/TT_OP_POINTWISE | TT_OP_LOCAL/'
mkdir mixtral && cp "$SRC"/plugins/models/*.h "$SRC/plugins/models/mixtral.c" mixtral &&
    sed -i 's|tt_silu(b, gate)|wrong(b, gate)|
s|^#include "moe_losses.h"|&\nstatic inline tt_value *wrong(tt_builder *b, tt_value *x) { tt_op(b, "wrong_of_experts", \&x, 1, NULL, \&x, 1); return x; }|' mixtral/moe.h &&
    cc -std=c11 -w -O1 -fPIC -shared "-I$SRC/include" mixtral/mixtral.c "-L$BUILD" -lttrun -lm -o mixtral/mixtral.so
check mixtral/mixtral.so --plugin-dir wrong_of_experts --model.args '{"n_layers": 1, "dim": 32, "hidden_dim": 32}'
[ $? -eq 2 ] && grep -q '^FAIL  gradients .*slope is' out
ok wrong_derivative_in_experts

# a loss that turns within the first h: the delta rule's first outputs are nearly 0, and their norm is their sign
check "$PLUGINS/models/qwen3_next.so" --model.args '{"n_layers": 2, "dim": 32, "vocab_size": 64, "n_heads": 2, "n_kv_heads": 1, "head_dim": 8,
    "hidden_dim": 32, "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 4, "linear_value_head_dim": 8, "num_experts": 4,
    "num_experts_per_tok": 2, "moe_intermediate_size": 16, "shared_expert_intermediate_size": 16}'
[ $? -eq 0 ] && grep -q '^ok    gradients .*41 parameters, 41 of them' out
ok loss_that_turns_sharply

# options that a part needs come from the command line
echo "some text for the loader, long enough for a sample or two of sixteen tokens" >text.txt
check "$PLUGINS/dataloaders/text.so" --dataloader.path "$dir/text.txt"
[ $? -eq 0 ] && grep -q '^ok    describes .*samples' out
ok options_of_the_command_line
check "$PLUGINS/models/llama3.so" --model.args '{"n_layers": 2, "dim": 64}' --json
[ $? -eq 0 ] && [ "$(grep -o '"result":"ok"' out | wc -l)" -eq 5 ] && grep -q ' 2 blocks' out
ok json

# the learning rate is the option that the optimizer names
build optimizer renamed 's|"lr"|"learning_rate"|g'
check renamed/renamed.so && grep -q '^ok    trains' out
ok rate_by_another_name
printf '{"dataloader":{"path":["%s/text.txt"]},"model":{"args":{"n_layers":1,"dim":32,"n_heads":2,"n_kv_heads":2,"hidden_dim":32}},
    "lr_scheduler":{"name":"constant","warmup_steps":0},"training":{"steps":1,"seq_len":8,"local_batch_size":1}}' "$dir" >job.json
"$TTRUN" job.json --plugin-dir "$PLUGINS" --plugin-dir renamed --optimizer.name renamed --optimizer.learning_rate 0.25 \
    --dump_folder renamed/run --checkpoint.enable false >out 2>err
[ $? -eq 0 ] && grep -q '"lr":0.25,' renamed/run/metrics.jsonl
ok rate_by_another_name_is_trained_with

# a namesake in the plugin folders does not stand in the way; without them most stages have nothing to work with
mkdir same && cp "$PLUGINS/models/llama3.so" same/llama3.so
check same/llama3.so --model.args '{"n_layers": 1, "dim": 64}'
ok plugin_with_a_namesake_in_the_plugin_folders
mkdir nothing
"$TTRUN" plugins check same/llama3.so --plugin-dir nothing --only-plugin-dirs >out 2>err
[ $? -eq 0 ] && [ "$(grep -c '^skip ' out)" -eq 4 ] && grep -q 'name their folder with --plugin-dir' out
ok most_stages_are_skipped_without_other_plugins

wait $hang
[ $? -eq 2 ] && cp hang.out out && cp hang.err err && grep -q 'took longer than' err
ok hangs
exit $failed
