#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# checkpoint.save_frozen false: steps without the frozen parameters are resumed to the bit on every mesh, from the weights that the run
# began with; what is trained later begins as the base; the last step and exports are whole; what else is frozen later is saved.
. "$(dirname "$0")/lib.sh"
c=--checkpoint
batch="--training.local_batch_size 8 --training.global_batch_size 8 --comm.backend local"
tensors() { grep -c '"shape"' "$1/trainer.json"; }
has() { grep -q "^\"$2\":" "$1/trainer.json"; }
train "$dir/base" --training.steps 3
base=$dir/base/checkpoint/step-3
only='["layers.1.*q_proj","tag:norm"]'
part="$c.save_frozen false $c.initial_load_path $base --training.trainable $only $batch"
whole="$c.initial_load_path $base --training.trainable $only $batch"

train "$dir/whole" $whole
train "$dir/part" $part
steps=$dir/part/checkpoint
[ "$rc" -eq 0 ] && has "$steps/step-5" model.layers.1.self_attn.q_proj.weight && has "$steps/step-5" model.norm.weight && ! has "$steps/step-5" model.layers.0.self_attn.q_proj.weight &&
    ! has "$steps/step-5" lm_head.weight && [ "$(tensors "$steps/step-5")" -eq 18 ] # 6 parameters, each with two states
ok a_step_has_the_trained_parameters_alone
[ "$(tensors "$steps/step-10")" -eq "$(tensors "$dir/whole/checkpoint/step-10")" ] && "$TTRUN" ckpt diff "$dir/whole/checkpoint/step-10" "$steps/step-10" >"$dir/out" 2>&1
ok the_last_step_is_whole
"$TTRUN" ckpt verify "$steps/step-5" >"$dir/out" 2>&1 && "$TTRUN" ckpt ls "$dir/part" >"$dir/out" 2>&1
ok it_verifies
cp -r "$dir/part" "$dir/from5" && rm -rf "$dir/from5/checkpoint/step-10"
again() { # FOLDER OPTION...: goes on from step 5
    rm -rf "$dir/again" && cp -r "$dir/from5" "$dir/again"
    train "$dir/again" "$@"
}
same_end() { [ "$rc" -eq 0 ] && grep -q 'resumed from .*step-5' "$dir/err" && "$TTRUN" ckpt diff "$dir/whole/checkpoint/step-10" "$dir/again/checkpoint/step-10" >"$dir/out" 2>&1; }
again $part
same_end && grep -q "step-5 leaves out frozen parameters: they are those of $base" "$dir/err"
ok resumed_to_the_bit
again $whole
same_end
ok resumed_by_a_job_that_saves_all
again $part $c.interval 7
same_end && [ "$(tensors "$dir/again/checkpoint/step-7")" -eq 18 ]
ok it_goes_on_leaving_them_out
while read -r name mesh; do
    rm -rf "$dir/mesh"
    train "$dir/mesh" $part $mesh --training.steps 8
    [ "$rc" -eq 0 ] && [ "$(tensors "$dir/mesh/checkpoint/step-5")" -eq 18 ]
    ok "leaves_them_out_$name"
    rm -rf "$dir/mesh/checkpoint/step-8"
    train "$dir/mesh" $part --training.steps 8
    [ "$rc" -eq 0 ] && grep -q 'resumed from .*step-5' "$dir/err"
    ok "one_rank_resumes_$name"
    again $part $mesh
    [ "$rc" -eq 0 ] && grep -q 'resumed from .*step-5' "$dir/err" && near "$(losses "$dir/again/metrics.jsonl" | sed -n 's/^10 //p')" "$(losses "$dir/whole/metrics.jsonl" | sed -n 's/^10 //p')" 5e-5
    ok "resumes_$name"
done <<'MESHES'
fsdp2 --nproc 2 --training.local_batch_size 4 --parallelism.data_parallel_shard_degree 2
tp2 --nproc 2 --parallelism.tensor_parallel_degree 2
pp2 --nproc 2 --parallelism.pipeline_parallel_degree 2
MESHES

# a parameter that was frozen and is trained from here on begins with the weights of the base; weights that are gone are an error
head='--training.trainable ["layers.1.*q_proj","tag:norm","lm_head"]'
again $part $head
[ "$rc" -eq 0 ] && grep -q '1 parameter was frozen when it was saved (lm_head.weight): its optimizer states begin anew' "$dir/err" && cp -r "$dir/whole" "$dir/all" &&
    rm -r "$dir/all/checkpoint/step-10" && train "$dir/all" $whole $head && [ "$rc" -eq 0 ] && grep -q 'resumed from .*step-5' "$dir/err" &&
    "$TTRUN" ckpt diff "$dir/all/checkpoint/step-10" "$dir/again/checkpoint/step-10" >"$dir/out" 2>&1
ok a_parameter_that_was_frozen_begins_as_the_base
mv "$dir/base" "$dir/moved"
again $part
[ "$rc" -ne 0 ] && one_line "$dir/err" && grep -q "step-5 leaves out frozen parameters (checkpoint.save_frozen), which come from $base" "$dir/err"
ok the_weights_are_gone
again $part $c.initial_load_path "$dir/moved/checkpoint/step-3"
same_end
ok the_job_names_where_they_are_now
mv "$dir/moved" "$dir/base"

# weights that are replaced in place are no longer those that the run began with
train "$dir/other_base" --training.steps 3 --debug.seed 7
replace() { mv "$dir/base" "$dir/kept" && mkdir -p "$dir/base/checkpoint" && cp -r "$dir/other_base/checkpoint/step-3" "$base"; }
put_back() { rm -rf "$dir/base" && mv "$dir/kept" "$dir/base"; }
replace
again $part
[ "$rc" -eq 2 ] && one_line "$dir/err" && grep -q "step-5 leaves out frozen parameters (checkpoint.save_frozen), which come from $base, but the weights there are no longer .* checkpoint.accept_changed_frozen true" "$dir/err"
ok weights_that_were_replaced_are_refused
again $part --nproc 2 --parallelism.tensor_parallel_degree 2
[ "$rc" -eq 2 ] && grep -q 'the weights there are no longer' "$dir/err"
ok by_all_ranks
ttrun generate --checkpoint "$steps/step-5" --prompt 'line 7' --max-tokens 8 >"$dir/out" 2>"$dir/err"
[ $? -ne 0 ] && grep -q 'the weights there are no longer' "$dir/err"
ok by_generate
again $part $c.initial_load_path "$dir/kept/checkpoint/step-3"
same_end && grep -q "they are those of $dir/kept/checkpoint/step-3" "$dir/err"
ok the_job_names_where_the_old_ones_are
again $part $c.accept_changed_frozen true $c.interval 7
[ "$rc" -eq 0 ] && grep -q 'which has others than when the run began (accept_changed_frozen)' "$dir/err" && grep -q 'checkpoint.save_frozen: from here on .* no longer where they were' "$dir/err" &&
    has "$dir/again/checkpoint/step-7" lm_head.weight && ! "$TTRUN" ckpt diff "$dir/whole/checkpoint/step-10" "$dir/again/checkpoint/step-10" >"$dir/out" 2>&1
ok accepted_they_are_used_and_saved
sed '/"initial_identity"/d; 1s/"xxh3_128":"[0-9a-f]*",*//' "$dir/from5/checkpoint/step-5/trainer.json" >"$dir/old.json" && ! cmp -s "$dir/old.json" "$dir/from5/checkpoint/step-5/trainer.json" && rm -rf "$dir/again" && cp -r "$dir/from5" "$dir/again" &&
    cp "$dir/old.json" "$dir/again/checkpoint/step-5/trainer.json" && train "$dir/again" $part $c.interval 7
[ "$rc" -eq 0 ] && grep -q 'resumed from .*step-5' "$dir/err" && has "$dir/again/checkpoint/step-7" initial_identity && ! has "$dir/again/checkpoint/step-7" lm_head.weight
ok a_step_of_an_older_version_is_taken_as_it_was
rm -rf "$dir/again" && cp -r "$dir/part" "$dir/again" && train "$dir/again" $part --training.steps 12 $c.interval 11
[ "$rc" -eq 0 ] && grep -q 'resumed from .*step-10' "$dir/err" && grep -q 'checkpoint.save_frozen: from here on .* no longer where they were' "$dir/err" && has "$dir/again/checkpoint/step-11" lm_head.weight
ok a_whole_step_goes_on_and_saves_them
put_back

# of a run that is resumed, what is frozen from then on has been trained
again $part --training.trainable '["tag:norm"]' $c.interval 7
[ "$rc" -eq 0 ] && grep -q 'checkpoint.save_frozen: from here on checkpoints have the frozen parameters, too: this job may freeze others' "$dir/err" && has "$dir/again/checkpoint/step-7" model.layers.1.self_attn.q_proj.weight && has "$dir/again/checkpoint/step-7" lm_head.weight
ok what_was_trained_before_is_saved
cp -r "$dir/whole" "$dir/other" && rm -rf "$dir/other/checkpoint/step-10"
train "$dir/other" $part $c.interval 7
[ "$rc" -eq 0 ] && grep -q 'does not say where else they are' "$dir/err" && has "$dir/other/checkpoint/step-7" lm_head.weight && "$TTRUN" ckpt diff "$dir/whole/checkpoint/step-10" "$dir/other/checkpoint/step-10" >"$dir/out" 2>&1
ok a_whole_step_is_followed_by_whole_ones

# a step is used like any other; without the run it is exported whole
ttrun generate --checkpoint "$steps/step-5" --prompt 'line 7' --max-tokens 8 --temperature 0 >"$dir/part.text" 2>"$dir/err"
ttrun generate --checkpoint "$dir/whole/checkpoint/step-5" --prompt 'line 7' --max-tokens 8 --temperature 0 >"$dir/whole.text" 2>>"$dir/err"
[ -s "$dir/part.text" ] && cmp -s "$dir/part.text" "$dir/whole.text"
ok generate
ttrun ckpt export --to hf "$steps/step-5" "$dir/hf" >"$dir/out" 2>"$dir/err"
[ $? -ne 0 ] && one_line "$dir/err" && grep -q 'may leave out frozen parameters' "$dir/err"
ok export_says_why_not
rm -rf "$dir/hf"
train "$dir/exported" $part $c.hf_interval 5
[ "$rc" -eq 0 ] && [ -e "$dir/exported/hf/step-5/model.safetensors" ] && has "$dir/exported/checkpoint/step-5" lm_head.weight
ok steps_that_are_exported_are_whole

# without weights to begin with, and other ways to freeze
train "$dir/random" $c.save_frozen false --training.trainable "$only"
[ "$rc" -eq 2 ] && one_line "$dir/err" && grep -q 'checkpoint.save_frozen: false: checkpoint.initial_load_path must name' "$dir/err"
ok no_weights_to_begin_with
while read -r name converter; do
    train "$dir/$name" $batch $c.initial_load_path "$base" --converters "$converter"
    train "$dir/$name.part" $batch $c.save_frozen false $c.initial_load_path "$base" --converters "$converter"
    [ "$rc" -eq 0 ] && ! has "$dir/$name.part/checkpoint/step-5" model.layers.0.self_attn.q_proj.weight && ! grep -q '"model[^"]*\(absmax\|nf4\)"' "$dir/$name.part/checkpoint/step-5/trainer.json" && rm -rf "$dir/$name.part/checkpoint/step-10" &&
        train "$dir/$name.part" $batch $c.save_frozen false $c.initial_load_path "$base" --converters "$converter"
    [ "$rc" -eq 0 ] && grep -q 'resumed from .*step-5' "$dir/err" && "$TTRUN" ckpt diff "$dir/$name/checkpoint/step-10" "$dir/$name.part/checkpoint/step-10" >"$dir/out" 2>&1
    ok "$name"
done <<'CONVERTERS'
lora [{"name":"lora","rank":4}]
dora [{"name":"lora","rank":4,"use_dora":true}]
qlora [{"name":"qlora","rank":4,"base":"nf4"}]
CONVERTERS
exit $failed
