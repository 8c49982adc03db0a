#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What a run takes over from another run's checkpoint, and what of a checkpoint it leaves out.
. "$(dirname "$0")/lib.sh"
# 20 samples, in their order: 5 steps are one epoch, so the steps 6 to 10 have the batches of the steps 1 to 5
head -c 640 "$dir/text.txt" >"$dir/short.txt"
fixed="--dataloader.path [\"$dir/short.txt\"] --dataloader.shuffle false --backend.blas own --lr_scheduler.name wsd --lr_scheduler.warmup_steps 2"
two="--nproc 2 --comm.backend local --training.local_batch_size 2"
from() { echo "--checkpoint.initial_load_path $dir/half/checkpoint/step-5 --checkpoint.initial_load_model_only false"; }
numbers() { sed 's/.*"step":\([0-9]*\).*"samples_seen":\([0-9]*\).*/\1 \2/' | head -n 1; }
values() { losses "$1/metrics.jsonl" | sed 's/.*"loss"://; s/.* //'; } # without the numbers of the steps
counted() { tr -d '\n' <"$1/trainer.json" | numbers; }

train "$dir/whole" $fixed
train "$dir/half" $fixed --checkpoint.interval 5
rm -rf "$dir/half/checkpoint/step-10"
[ "$rc" -eq 0 ] && [ "$(counted "$dir/whole/checkpoint/step-10")" = "10 40" ]
ok there_is_a_run_and_half_of_it

# ---- the whole state ----
train "$dir/other" $fixed $(from)
[ "$rc" -eq 0 ] && [ "$(hash_of "$dir/other/checkpoint/step-10")" = "$(hash_of "$dir/whole/checkpoint/step-10")" ] &&
    grep -q 'continues from .*/half/checkpoint/step-5, next is step 6' "$dir/err" && [ "$(wc -l <"$dir/other/metrics.jsonl")" -eq 5 ]
ok another_run_goes_on_with_the_same_bits
rm -rf "$dir/other"
train "$dir/other" $fixed --checkpoint.initial_load_path "$dir/half" --checkpoint.initial_load_model_only false --training.steps 8
train "$dir/other" $fixed --checkpoint.initial_load_path "$dir/half" --checkpoint.initial_load_model_only false
[ "$rc" -eq 0 ] && grep -q 'resumed from .*other/checkpoint/step-8' "$dir/err" && [ "$(hash_of "$dir/other/checkpoint/step-10")" != "" ] &&
    [ "$(losses "$dir/other/metrics.jsonl" | head -n 1)" = "$(losses "$dir/whole/metrics.jsonl" | sed -n 6p)" ]
ok a_run_folder_stands_for_its_newest_step
train "$dir/mesh" $fixed $(from) $two --parallelism.tensor_parallel_degree 2 --training.local_batch_size 4
[ "$rc" -eq 0 ] && [ "$(counted "$dir/mesh/checkpoint/step-10")" = "10 40" ] &&
    values "$dir/mesh" >"$dir/a" && values "$dir/whole" | sed -n 6,10p | paste -d' ' - "$dir/a" |
    awk '{ d = $1 - $2; if (d < 0) d = -d; if (d > 1e-4) bad = 1; n++ } END { exit bad || n != 5 }'
ok another_mesh_goes_on_with_the_same_losses

# ---- what begins anew ----
# Everything: as from the weights alone
train "$dir/weights" $fixed --checkpoint.initial_load_path "$dir/half/checkpoint/step-5" --training.steps 5
train "$dir/nothing" $fixed $(from) --checkpoint.exclude_from_loading '["optimizer", "lr_scheduler", "dataloader", "train_state"]' --training.steps 5
[ "$rc" -eq 0 ] && [ "$(hash_of "$dir/nothing/checkpoint/step-5")" = "$(hash_of "$dir/weights/checkpoint/step-5")" ] &&
    [ "$(counted "$dir/nothing/checkpoint/step-5")" = "5 20" ]
ok all_left_out_are_the_weights_alone
# Optimizer and schedule: their counts begin at step 6, and the batches are those of the steps 1 to 5
train "$dir/fresh" $fixed $(from) --checkpoint.exclude_from_loading '["optimizer", "lr_scheduler"]'
[ "$rc" -eq 0 ] && [ "$(values "$dir/fresh")" = "$(values "$dir/weights")" ] && [ "$(values "$dir/fresh")" != "$(values "$dir/whole" | tail -n 5)" ] && [ "$(counted "$dir/fresh/checkpoint/step-10")" = "10 40" ] &&
    grep -q 'exclude_from_loading: begins anew: optimizer lr_scheduler$' "$dir/err"
ok optimizer_and_schedule_begin_anew
for what in optimizer lr_scheduler; do
    train "$dir/only_$what" $fixed $(from) --checkpoint.exclude_from_loading "[\"$what\"]"
    [ "$rc" -eq 0 ] && [ "$(losses "$dir/only_$what/metrics.jsonl" | tail -n 3)" != "$(losses "$dir/whole/metrics.jsonl" | tail -n 3)" ] &&
        [ "$(losses "$dir/only_$what/metrics.jsonl" | tail -n 3)" != "$(losses "$dir/fresh/metrics.jsonl" | tail -n 3)" ] || break
done
[ "$rc" -eq 0 ] && [ "$what" = lr_scheduler ] && [ "$(losses "$dir/only_optimizer/metrics.jsonl")" != "$(losses "$dir/only_lr_scheduler/metrics.jsonl")" ]
ok each_of_them_has_an_effect_of_its_own
train "$dir/data" $fixed $(from) --checkpoint.exclude_from_loading dataloader --training.steps 8
[ "$rc" -eq 0 ] && [ "$(counted "$dir/data/checkpoint/step-8")" = "8 12" ]
ok data_begins_anew
# Of the run's own checkpoint, and only once
cp -r "$dir/half" "$dir/once" && cp -r "$dir/half" "$dir/again"
anew='--checkpoint.exclude_from_loading ["optimizer","lr_scheduler"] --checkpoint.interval 8'
train "$dir/once" $fixed $anew
train "$dir/again" $fixed $anew --training.steps 10 --checkpoint.interval 8
rm -rf "$dir/again/checkpoint/step-10"
train "$dir/again" $fixed $anew
[ "$rc" -eq 0 ] && grep -q 'resumed from .*step-8' "$dir/err" && ! grep -q 'begins anew' "$dir/err" &&
    [ "$(hash_of "$dir/again/checkpoint/step-10")" = "$(hash_of "$dir/once/checkpoint/step-10")" ] &&
    [ "$(values "$dir/once" | tail -n 5)" = "$(values "$dir/weights")" ]
ok own_checkpoints_leave_it_out_once

# ---- weights of another model, or under other names ----
step=$dir/half/checkpoint/step-5
begins() { # FOLDER OPTION...: the weights that a run begins with, as its step-0
    train "$@" $fixed --checkpoint.create_seed_checkpoint true
}
weights() { hash_of "$1/checkpoint/step-0"; }
begins "$dir/larger" --model.args.n_layers 4 --checkpoint.initial_load_path "$step"
[ "$rc" -eq 2 ] && one_line "$dir/err" && grep -q "initial_load_path: .*: no tensor 'model.layers.2.input_layernorm.weight'" "$dir/err" &&
    grep -q 'and 17 more of the model.s are not there: model.layers.{2-3}.self_attn.q_proj.weight, .*, model.layers.3.input_layernorm.weight$' "$dir/err"
ok every_absent_tensor_is_named_in_the_error
begins "$dir/larger" --model.args.n_layers 4 --checkpoint.initial_load_path "$step" --checkpoint.initial_load_strict false
[ "$rc" -eq 0 ] && grep -q 'lacks 18 tensors of this model, which keep initial values: model.layers.{2-3}.input_layernorm.weight, ' "$dir/err"
ok partial_load_names_what_is_absent
for mesh in "--nproc 2" "--nproc 2 --parallelism.pipeline_parallel_degree 2" "--nproc 2 --parallelism.tensor_parallel_degree 2"; do
    begins "$dir/larger2" --resume never --model.args.n_layers 4 --checkpoint.initial_load_path "$step" --checkpoint.initial_load_strict false --comm.backend local $mesh
    [ "$rc" -eq 0 ] && [ "$(grep -c 'lacks 18 tensors' "$dir/err")" -eq 1 ] && "$TTRUN" ckpt diff "$dir/larger/checkpoint/step-0" "$dir/larger2/checkpoint/step-0" >"$dir/out" 2>&1
    ok "partial_load_on_$(echo "$mesh" | tr -c 'a-z0-9\n' _)_is_that_of_one_rank"
done
begins "$dir/random" --model.args.n_layers 4
"$TTRUN" ckpt diff "$dir/random/checkpoint/step-0" "$dir/larger/checkpoint/step-0" >"$dir/out" 2>&1
[ "$(grep -c '^model.layers.[23]' "$dir/out")" -eq 0 ] && grep -q '^model.layers.0.self_attn.q_proj.weight' "$dir/out" && grep -q '^model.embed_tokens' "$dir/out"
ok partial_load_keeps_initial_values_of_the_rest
ttrun ckpt export --to hf "$step" "$dir/hf_half" >"$dir/out" 2>"$dir/err"
begins "$dir/larger_hf" --model.args.n_layers 4 --checkpoint.initial_load_path "$dir/hf_half" --checkpoint.initial_load_strict false
[ "$rc" -eq 0 ] && grep -q 'lacks 18 tensors of this model, which keep initial values: model.layers.{2-3}.input_layernorm.weight, ' "$dir/err" && "$TTRUN" ckpt diff "$dir/larger/checkpoint/step-0" "$dir/larger_hf/checkpoint/step-0" >"$dir/out" 2>&1
ok partial_load_of_a_hugging_face_folder
begins "$dir/smaller" --model.args.n_layers 1 --checkpoint.initial_load_path "$step"
[ "$rc" -eq 0 ] && grep -q '9 tensors not of this model ignored: model.layers.1.input_layernorm.weight, ' "$dir/err" && ! grep -q '…' "$dir/err"
ok every_extra_tensor_is_named
begins "$dir/wider" --model.args.vocab_size 270 --checkpoint.initial_load_path "$step"
[ "$rc" -eq 2 ] && one_line "$dir/err" && grep -q "tensor 'model.embed_tokens.weight' is \[262,32\] there, \[270,32\] in the model; .*; 1 more differs in shape: lm_head.weight \[262,32\] (the model's: \[270,32\])" "$dir/err"
ok every_reshaped_tensor_is_named_in_the_error
begins "$dir/wider" --model.args.vocab_size 270 --checkpoint.initial_load_path "$step" --checkpoint.initial_load_strict false
words="W checkpoint. .*: has 2 tensors of another vocabulary: the rows of the tokens that both have are taken, others keep initial values: model.embed_tokens.weight"
[ "$rc" -eq 0 ] && grep -q "$words \[262,32\] (the model's: \[270,32\]), lm_head.weight" "$dir/err"
ok another_vocabulary_is_named
# the 8 new rows are those of a model that begins anew; the others are the old ones, on meshes and by Hugging Face's form, too
begins "$dir/anew" --model.args.vocab_size 270 && ttrun ckpt diff "$dir/anew" "$dir/wider" >"$dir/out" 2>"$dir/err"
grep -q '^model.embed_tokens.weight: 8384 of 8640 elements differ' "$dir/out" && grep -q '^lm_head.weight: 8384 of 8640' "$dir/out"
ok new_tokens_are_drawn
begins "$dir/narrow" --checkpoint.initial_load_path "$dir/wider/checkpoint/step-0" --checkpoint.initial_load_strict false && begins "$dir/plain0" --checkpoint.initial_load_path "$step" &&
    ttrun ckpt diff "$dir/narrow" "$dir/plain0" >"$dir/out" 2>"$dir/err"
ok old_tokens_stay
ttrun ckpt export --to hf --type f32 "$step" "$dir/hf_whole" 2>"$dir/err" && begins "$dir/wider_hf" --model.args.vocab_size 270 --checkpoint.initial_load_path "$dir/hf_whole" --checkpoint.initial_load_strict false && ttrun ckpt diff "$dir/wider_hf" "$dir/wider" >"$dir/out" 2>"$dir/err"
ok in_hugging_faces_form
for mesh in tensor_parallel_degree data_parallel_shard_degree; do
    begins "$dir/wider_$mesh" --nproc 2 --comm.backend local --parallelism.$mesh 2 --model.args.vocab_size 270 --checkpoint.initial_load_path "$step" --checkpoint.initial_load_strict false && ttrun ckpt diff "$dir/wider_$mesh" "$dir/wider" >"$dir/out" 2>"$dir/err"
    ok "by_$mesh"
done
begins "$dir/both" --model.args.vocab_size 270 --model.args.dim 40 --checkpoint.initial_load_path "$step" --checkpoint.initial_load_strict false
[ "$rc" -eq 2 ] && grep -q 'none of its tensors is one' "$dir/err"
ok other_widths_are_not_taken
begins "$dir/none" --checkpoint.initial_load_path "$step" --checkpoint.initial_load_strict false --checkpoint.initial_load_rename '["^=theirs."]'
[ "$rc" -eq 2 ] && one_line "$dir/err" && grep -q "none of its tensors is one of this model's: the model has 'model.embed_tokens.weight'" "$dir/err"
ok partial_load_of_nothing_is_refused
swap='["layers[.]0[.]=layers.1.","layers[.]1[.]=layers.0."]'
begins "$dir/swapped" --checkpoint.initial_load_path "$step" --checkpoint.initial_load_rename "$swap"
begins "$dir/back" --checkpoint.initial_load_path "$dir/swapped/checkpoint/step-0" --checkpoint.initial_load_rename "$swap"
begins "$dir/plain" --checkpoint.initial_load_path "$step"
[ "$rc" -eq 0 ] && [ "$(weights "$dir/back")" = "$(weights "$dir/plain")" ] && [ "$(weights "$dir/swapped")" != "$(weights "$dir/plain")" ]
ok layers_exchanged_twice_are_the_same_bits
begins "$dir/swapped_hf" --checkpoint.initial_load_path "$dir/hf_half" --checkpoint.initial_load_rename "$swap"
[ "$rc" -eq 0 ] && [ "$(weights "$dir/swapped_hf")" = "$(weights "$dir/swapped")" ]
ok tensors_of_a_hugging_face_folder_are_renamed
begins "$dir/deeper" --model.args.n_layers 4 --checkpoint.initial_load_path "$step" --checkpoint.initial_load_strict false --checkpoint.initial_load_rename '["^model[.]layers[.]([01])[.](.*)=model.layers.${1}.$2"]'
[ "$rc" -eq 0 ] && [ "$(weights "$dir/deeper")" = "$(weights "$dir/larger")" ]
ok groups_of_a_pattern_stand_in_the_new_name
while IFS='|' read -r name rules error; do
    begins "$dir/t" --checkpoint.initial_load_path "$step" --checkpoint.initial_load_rename "$rules" </dev/null
    [ "$rc" -eq 2 ] && one_line "$dir/err" && grep -q "$error" "$dir/err"
    ok "rename_$name"
done <<'TABLE'
without_an_equals|["layers"]|checkpoint.initial_load_rename: expected "PATTERN=NAME"; got "layers"
of_a_bad_pattern|["(layers=x"]|checkpoint.initial_load_rename: "(layers=x": missing closing parenthesis
that_matches_nothing|["^module[.]="]|initial_load_rename: "^module\[.\]=" matches no tensor
of_two_into_one|["layers.1=layers.0"]|initial_load_rename: tensors .model.layers.0.input_layernorm.weight. and .model.layers.1.input_layernorm.weight. would both be .model.layers.0.input
to_nothing|["^lm_head.weight$="]|initial_load_rename: "^lm_head.weight$=" leaves no name of tensor .lm_head.weight.
to_an_unknown_group|["^lm_head=$3"]|initial_load_rename: "^lm_head=$3": unknown substring
TABLE
train "$dir/t" $fixed $(from) --checkpoint.initial_load_strict false
[ "$rc" -eq 2 ] && one_line "$dir/err" && grep -q 'initial_load_strict: a whole state (checkpoint.initial_load_model_only) is loaded whole; leave this out' "$dir/err"
ok whole_state_is_loaded_whole

# ---- a seed ----
train "$dir/seed" $fixed --checkpoint.create_seed_checkpoint true
[ "$rc" -eq 0 ] && [ "$(newest "$dir/seed/checkpoint")" = 0 ] && [ ! -s "$dir/seed/metrics.jsonl" ] &&
    "$TTRUN" ckpt ls "$dir/seed" >"$dir/out" && grep -q '^step-0  no loss yet  0 tokens ' "$dir/out" && train "$dir/seed" $fixed
[ "$rc" -eq 0 ] && grep -q 'resumed from .*/step-0, next is step 1' "$dir/err" &&
    [ "$(hash_of "$dir/seed/checkpoint/step-10")" = "$(hash_of "$dir/whole/checkpoint/step-10")" ]
ok seed_checkpoint_is_what_the_run_begins_with
train "$dir/seed" $fixed --checkpoint.create_seed_checkpoint true
[ "$rc" -ne 0 ] && one_line "$dir/err" && grep -q 'create_seed_checkpoint: this run is at step 10 already' "$dir/err"
ok seed_of_a_run_that_has_begun_is_refused

# ---- refused ----
train "$dir/t" $fixed $(from) --checkpoint.exclude_from_loading '["optimiser"]'
[ "$rc" -eq 2 ] && one_line "$dir/err" && grep -q 'checkpoint.exclude_from_loading: "optimiser" is none of optimizer, lr_scheduler, dataloader, train_state' "$dir/err"
ok unknown_state_is_refused
cp -r "$dir/half" "$dir/own"
train "$dir/own" $fixed --checkpoint.exclude_from_loading train_state
[ "$rc" -eq 2 ] && one_line "$dir/err" && grep -q 'exclude_from_loading: train_state: the checkpoints of this dump_folder are numbered by it' "$dir/err"
ok steps_of_the_own_folder_are_not_left_out
ttrun ckpt export --to hf "$dir/half/checkpoint/step-5" "$dir/hf" >"$dir/out" 2>"$dir/err"
train "$dir/t" $fixed --checkpoint.initial_load_path "$dir/hf" --checkpoint.initial_load_model_only false
[ "$rc" -eq 2 ] && one_line "$dir/err" && grep -q 'initial_load_path: .*/hf has no trainer.json, so there are only weights to load' "$dir/err"
ok weights_alone_are_no_whole_state
train "$dir/t" $fixed $(from) --model.args.dim 64
[ "$rc" -eq 2 ] && one_line "$dir/err" && grep -q 'initial_load_path: .*was written by a model with other shapes' "$dir/err"
ok another_model_is_refused
exit $failed
