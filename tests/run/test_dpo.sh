#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Preference pairs and the loss dpo: what a pair's sample has, the formula, every mesh, the reference's file, refusals.
. "$(dirname "$0")/lib.sh"
sed -i 's/"dataloader": {[^}]*}/"dataloader": { "name": "chat", "path": ["pairs.jsonl"], "template": "chatml", "pairs": true, "shuffle": false }, "tokenizer": { "name": "byte" }, "loss": { "name": "dpo" }/; s/"seq_len": 32/"seq_len": 224/; s/"lr": 0.01/"lr": 0.001/; s/"interval": 5/"interval": 3/; s/"steps": 10/"steps": 6/' "$job"
show() { ttrun data show "$job" --n "${n:-1}" "$@" >"$dir/out" 2>"$dir/err"; }
learned() { sed -n 's/^  learned //p' "$dir/out"; }
input() { sed -n "s/^  $1 *//p" "$dir/out"; }
count() { input "$1" | tr ' ' '\n' | grep -cx -- "$2"; }

# ---- a pair ----
turns='{"role":"user","content":"a"},{"role":"assistant","content":"b"},{"role":"user","content":"c"}'
pair_is() { # NAME RECORD LEARNED OPTION...
    name=$1 want=$3
    printf '%s\n' "$2" >"$dir/pairs.jsonl"
    shift 3
    show "$@" && [ "$(learned)" = "$want" ] && [ "$(count pair_weight 1)" = 1 ] && [ "$(count seg 0)" -gt 9 ] && [ "$(count seg 1)" -gt 9 ]
    ok "$name"
}
pair_is strings '{"prompt":"c","chosen":"yes","rejected":"no"}' '"yes<|im_end|>" "no<|im_end|>"'
[ "$(count pair_sign 1)" = 13 ] && [ "$(count pair_sign -1)" = 12 ] && [ "$(count pair_sign 0)" = 199 ]
ok signs_of_both_answers
pair_is turns_of_the_prompt_are_not_learned '{"prompt":['"$turns"'],"chosen":[{"role":"assistant","content":"yes"}],"rejected":[{"role":"assistant","content":"no"}]}' '"yes<|im_end|>" "no<|im_end|>"' --training.seq_len 400
pair_is whole_conversations '{"chosen":['"$turns"',{"role":"assistant","content":"yes"}],"rejected":['"$turns"',{"role":"assistant","content":"no"}]}' '"yes<|im_end|>" "no<|im_end|>"' --training.seq_len 400
for question in '"instruction":"a","input":"c","system":""' '"messages":[{"role":"user","content":"a\nc"}]' '"conversations":[{"from":"human","value":"a\nc"}],"system":null'; do
    pair_is "asked_by_$(printf %s "$question" | cut -d'"' -f2)" "{$question,\"chosen\":{\"from\":\"gpt\",\"value\":\"yes\"},\"rejected\":{\"role\":\"assistant\",\"content\":\"no\"}}" '"yes<|im_end|>" "no<|im_end|>"'
    grep -q '^  text .*user\\na\\nc<|im_end|>' "$dir/out"
    ok the_question_is_its_text
done
pair_is other_keys '{"q":"c","good":"yes","bad":"no"}' '"yes<|im_end|>" "no<|im_end|>"' --dataloader.prompt_field q --dataloader.completion_field good --dataloader.rejected_field bad
{ printf '{%% for m in messages %%}<|im_start|>{{ m.role }}\n{%% if m.role == "assistant" %%}{%% generation %%}{{ m.content }}{%% endgeneration %%}{%% else %%}{{ m.content }}{%% endif %%}<|im_end|>\n{%% endfor %%}'; } >"$dir/marked.jinja"
pair_is template_with_generation_blocks '{"prompt":['"$turns"'],"chosen":[{"role":"assistant","content":"yes"}],"rejected":[{"role":"assistant","content":"no"}]}' '"yes" "no"' --dataloader.template "$dir/marked.jinja" --training.seq_len 400
long=$(printf '%0300d' 7)
printf '{"prompt":"c","chosen":"%s","rejected":"no"}\n' "$long" >"$dir/pairs.jsonl"
show && learned | grep -q '^"0\{100,\}" "no<|im_end|>"$' && grep -q '^packed: 0.00 % padding' "$dir/out"
ok a_long_answer_takes_the_room_that_the_other_leaves
show --dataloader.truncation drop
[ $? -eq 2 ] && grep -q 'no conversation is left' "$dir/err"
ok truncation_drops_the_pair
refused() { # NAME TEXT OPTION...
    name=$1 text=$2
    shift 2
    train "$dir/refused" "$@"
    [ "$rc" -eq 2 ] && [ "$(grep -vc ' I ' "$dir/err")" -eq 1 ] && grep -q "$text" "$dir/err"
    ok "refused_$name"
}
refused format 'dataloader.pairs: a line is a preference pair, and dataloader.format says alpaca' --dataloader.format alpaca
refused loss_on 'dataloader.loss_on: with dataloader.pairs the answers are compared' --dataloader.loss_on all
refused conversations_alone 'the dataloader has no input "pair_weight", which the loss dpo divides by' --dataloader.pairs false
printf '{"prompt":"c","chosen":"yes"}\n' >"$dir/pairs.jsonl"
refused a_missing_answer 'pairs.jsonl:1: "rejected" is neither a string nor a list of messages'
printf '{"chosen":"yes","rejected":"no"}\n' >"$dir/pairs.jsonl"
refused a_missing_prompt 'pairs.jsonl:1: no "prompt", which the answers answer; dataloader.prompt_field names its key'
printf '{"messages":[%s,{"role":"assistant","content":"yes"}],"chosen":"yes","rejected":"no"}\n' "$turns" >"$dir/pairs.jsonl"
refused a_question_with_its_answer 'pairs.jsonl:1: what the answers answer ends with a turn of the assistant'

# ---- training ----
awk 'BEGIN { for (i = 0; i < 22; i++) { a = "yes it is " i * i % 7; b = "no " i % 3; if (i % 3 == 0) a = a " and more"; if (i % 4 == 0) b = b " " a
    printf "{\"prompt\":\"is %d\",\"chosen\":\"%s\",\"rejected\":\"%s\"}\n", i, a, b } }' </dev/null >"$dir/pairs.jsonl"
reference() { cksum <"$1/reference/training.bin"; }
train "$dir/one" && [ "$rc" -eq 0 ] && near "$(value "$dir/one/metrics.jsonl" loss 1)" 0.693147180559945 1e-7 && near "$(value "$dir/one/metrics.jsonl" rewards.margin 1)" 0 1e-9 &&
    awk -v l="$(value "$dir/one/metrics.jsonl" loss 6)" 'BEGIN { exit !(l < 0.66) }' && [ "$(value "$dir/one/metrics.jsonl" rewards.accuracy 6)" = 1 ]
ok begins_with_log_2_and_learns
grep -q ' step:  6 .*  rewards/chosen: [-0-9].*  rewards/rejected: .*  rewards/accuracy: 1  rewards/margin: [0-9.]*$' "$dir/err" && ttrun report "$dir/one" >"$dir/out" 2>>"$dir/err" &&
    for name in chosen rejected accuracy margin; do grep -q "<figcaption>rewards/$name</figcaption>" "$dir/one/report.html" || { echo "no curve of $name" && break; }; done >"$dir/missing" && ! [ -s "$dir/missing" ]
ok rewards_are_on_the_console_and_in_the_report

# Step 4 by hand: the log-probabilities of its pairs with the weights of step 3, which are the reference of a run that begins with them.
# shellcheck disable=SC2030,SC2031
(n=4 && show --sample 12 && input pair_sign) >"$dir/signs"
values() { od -A n -v -t f4 -w896 -j $((200 + 12 * 896)) -N $((4 * 896)) "$1/reference/training.bin"; }
values "$dir/one" >"$dir/before"
by_hand() { # LOSS_TYPE RUN LABEL_SMOOTHING TOLERANCE: RUN has six steps of this loss
    type=$1 run=$2 wrong=$3 tolerance=$4
    train "$dir/next" --resume never --checkpoint.initial_load_path "$run/checkpoint/step-3" --training.steps 1 --loss.loss_type "$type" --loss.label_smoothing "$wrong" && [ "$rc" -eq 0 ] &&
        values "$dir/next" >"$dir/after" &&
        paste -d ' ' "$dir/signs" "$dir/before" "$dir/after" | awk -v beta=0.1 -v type="$type" -v wrong="$wrong" '
            { g = b = n_g = n_b = 0
              for (i = 1; i <= 224; i++) { x = $(i + 448) - $(i + 224); if ($i > 0) { g += x; n_g++ } if ($i < 0) { b += x; n_b++ } }
              d = type ~ /ipo|norm/ ? g / n_g - b / n_b : g - b; z = beta * d; m += beta * (g - b); as = log(1 + exp(-z)); other = log(1 + exp(z))
              sum += type == "hinge" ? (z < 1 ? 1 - z : 0) : type == "ipo" ? (d - 1 / (2 * beta)) ^ 2 : type == "robust" ? ((1 - wrong) * as - wrong * other) / (1 - 2 * wrong) : (1 - wrong) * as + wrong * other }
            END { if (NR != 4 || NF != 672) exit 1; printf "%.9f %.9f\n", sum / NR, m / NR }' >"$dir/hand" && read -r loss margin <"$dir/hand" &&
        near "$(value "$run/metrics.jsonl" loss 4)" "$loss" "$tolerance" && near "$(value "$run/metrics.jsonl" rewards.margin 4)" "$margin" 1e-6
}
by_hand sigmoid "$dir/one" 0 2e-7 && ! near "$loss" 0.693147 1e-4
ok the_formula_by_hand
while read -r type first wrong tolerance; do
    train "$dir/$type" --loss.loss_type "$type" --loss.label_smoothing "$wrong" && [ "$rc" -eq 0 ] && near "$(value "$dir/$type/metrics.jsonl" loss 1)" "$first" 2e-6
    ok "first_loss_of_$type"
    by_hand "$type" "$dir/$type" "$wrong" "$tolerance"
    ok "the_formula_of_${type}_by_hand"
done <<TYPES
hinge 1 0 2e-7
ipo 25 0 5e-6
sigmoid_norm 0.693147 0.2 2e-7
robust 0.693147 0.2 5e-7
TYPES
# 448 tokens of 20000 logits are computed in pieces, 224 are not. A library may sum in an order that depends on the number of rows
for n in 1 2; do train "$dir/wide$n" --backend.blas own --backend.f32_products fma --model.args.vocab_size 20000 --training.local_batch_size $n --training.steps 1 && [ "$rc" -eq 0 ]; done &&
    near "$(value "$dir/wide2/metrics.jsonl" loss)" 0.693147180559945 1e-7 && [ "$(reference "$dir/wide1")" = "$(reference "$dir/wide2")" ]
ok the_reference_of_logits_in_pieces

# ---- meshes ----
want=$(value "$dir/one/metrics.jsonl" loss 6) margin=$(value "$dir/one/metrics.jsonl" rewards.margin 6)
same() { # NAME OPTION...
    name=$1
    shift
    train "$dir/$name" --comm.backend local "$@" && [ "$rc" -eq 0 ] && near "$(value "$dir/$name/metrics.jsonl" loss 6)" "$want" 2e-6 && near "$(value "$dir/$name/metrics.jsonl" rewards.margin 6)" "$margin" 5e-6
    ok "same_with_$name"
}
same fsdp --parallelism.data_parallel_shard_degree 2 --training.local_batch_size 2
same tp --parallelism.tensor_parallel_degree 2
same cp --parallelism.context_parallel_degree 2
same pp --parallelism.pipeline_parallel_degree 2
same accumulation --training.local_batch_size 1 --training.global_batch_size 4
same pp_tp --parallelism.pipeline_parallel_degree 2 --parallelism.tensor_parallel_degree 2
same fsdp_cp --parallelism.data_parallel_shard_degree 2 --parallelism.context_parallel_degree 2 --training.local_batch_size 1 --training.global_batch_size 4
# the last step of an epoch has 2 pairs: the mean is over these
epoch="--training.steps null --training.num_train_epochs 1 --dataloader.infinite false"
# shellcheck disable=SC2086
train "$dir/epoch" $epoch && [ "$rc" -eq 0 ] && want=$(value "$dir/epoch/metrics.jsonl" loss 6) margin=$(value "$dir/epoch/metrics.jsonl" rewards.margin 6) &&
    same epoch_fsdp --parallelism.data_parallel_shard_degree 2 --training.local_batch_size 2 $epoch
# shellcheck disable=SC2086
same epoch_accumulation --training.local_batch_size 1 --training.global_batch_size 4 $epoch

# ---- the reference's file ----
train "$dir/again" --training.steps 3 && [ "$rc" -eq 0 ] && train "$dir/again" && [ "$rc" -eq 0 ] && grep -q 'reference of the loss dpo: 22 samples (training) from ' "$dir/err" &&
    [ "$(value "$dir/again/metrics.jsonl" loss 6)" = "$(value "$dir/one/metrics.jsonl" loss 6)" ]
ok a_resumed_run_reads_it
was=$(reference "$dir/again")
train "$dir/lost" --training.steps 3 && [ "$rc" -eq 0 ] && printf x | dd of="$dir/lost/reference/training.bin" bs=1 seek=900 conv=notrunc 2>"$dir/null" && train "$dir/lost" && [ "$rc" -eq 0 ] &&
    grep -q 'it is computed with the weights that the run began with' "$dir/err" && [ "$(reference "$dir/lost")" = "$was" ] &&
    [ "$(value "$dir/lost/metrics.jsonl" loss 6)" = "$(value "$dir/one/metrics.jsonl" loss 6)" ]
ok a_damaged_one_is_computed_with_the_first_weights
# a step from which the loss is to start, replaced in place: the reference would be of other weights
cp -r "$dir/again/checkpoint/step-3" "$dir/first" && train "$dir/replaced" --training.steps 3 --checkpoint.initial_load_path "$dir/first" && [ "$rc" -eq 0 ] && rm -r "$dir/first" "$dir/replaced/reference" &&
    cp -r "$dir/again/checkpoint/step-6" "$dir/first" && train "$dir/replaced" --checkpoint.initial_load_path "$dir/first"
[ "$rc" -eq 2 ] && grep -q 'the loss dpo compares with the weights that the run began with, but those in .* are others' "$dir/err"
ok weights_that_were_replaced_are_refused
train "$dir/replaced" --checkpoint.initial_load_path "$dir/again/checkpoint/step-3" && [ "$rc" -eq 0 ]
ok where_the_first_ones_are_now
train "$dir/lost" --resume never && grep -q '(training) from ' "$dir/err" && train "$dir/lost" --resume never --training.seed 9 && grep -q '(training) computed' "$dir/err" && [ "$(reference "$dir/lost")" != "$was" ]
ok other_weights_have_another
train "$dir/again" --resume never --training.seq_len 220 && grep -q '(training) computed' "$dir/err" && sed -i '3s/yes/yea/' "$dir/pairs.jsonl" && train "$dir/again" --resume never --training.seq_len 220 && grep -q '(training) computed' "$dir/err"
ok other_samples_have_another
cat >"$dir/sets.json" <<'JOB'
{ "extends": "job.json", "validation": { "enable": true, "freq": 3, "local_batch_size": 3, "seq_len": 230, "dataloader": { "name": "chat", "path": ["pairs.jsonl"], "template": "chatml", "pairs": true } } }
JOB
job=$dir/sets.json
train "$dir/sets" && [ "$rc" -eq 0 ] && [ -s "$dir/sets/reference/validation-0.bin" ] && v=$(sed -n 's/.*validate step:  6  loss:  \([0-9.]*\).*/\1/p' "$dir/out" "$dir/err") && awk -v l="$v" 'BEGIN { exit !(l > 0.5 && l < 0.69) }' &&
    train "$dir/sets_on_two" --comm.backend local --parallelism.data_parallel_shard_degree 2 --training.local_batch_size 2 && near "$(sed -n 's/.*validate step:  6  loss:  \([0-9.]*\).*/\1/p' "$dir/out" "$dir/err")" "$v" 2e-4
ok validation_has_its_own
ttrun eval --checkpoint "$dir/one" >"$dir/out" 2>"$dir/err"
[ $? -eq 2 ] && grep -q 'add --loss.name cross_entropy' "$dir/err" && ttrun eval --checkpoint "$dir/one" --loss.name cross_entropy >"$dir/out" 2>"$dir/err" && grep -q '^loss ' "$dir/out"
ok eval_takes_another_loss
exit $failed
