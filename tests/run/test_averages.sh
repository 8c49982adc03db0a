#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Weights that are averaged over steps: training.ema_decay, and an optimizer that averages by itself (schedule_free). They are validated,
# evaluated, generated from and exported, are the same on every mesh, and a resume goes on with their bits.
. "$(dirname "$0")/lib.sh"
p=--parallelism
ema="--training.ema_decay 0.8"
v="--validation.enable true --validation.freq 5 --validation.dataloader.path [\"$dir/text.txt\"] --validation.steps -1"
loss_at() { losses "$1/metrics.jsonl" | sed -n "s/^$2 //p"; }
validated() { sed -n "s/.*validate step: *$1  loss: *\([0-9.]*\) .*/\1/p" "$dir/err"; } # of the newest run
evaluated() { # CHECKPOINT OPTION...: the loss that ttrun eval prints
    at=$1
    shift
    ttrun eval --checkpoint "$at" "$@" 2>>"$dir/err" | sed -n 's/^loss \([0-9.]*\) .*/\1/p'
}
train "$dir/plain" && train "$dir/ema" $ema && [ "$(losses "$dir/plain/metrics.jsonl")" = "$(losses "$dir/ema/metrics.jsonl")" ]
ok ema_changes_no_step
one=$(evaluated "$dir/ema") live=$(evaluated "$dir/ema" --training.ema_evaluate false)
[ -n "$one" ] && [ "$live" = "$(evaluated "$dir/plain")" ] && [ "$one" != "$live" ]
ok eval_takes_the_mean_or_the_last_weights
# e1 = 0.25 p0 + 0.75 p1; with decay 0 the mean is the weights themselves
train "$dir/none" --training.ema_decay 0 && "$BUILD/tests/run/average_tool" "$dir/none/checkpoint/step-10" ema 1 >"$dir/out" &&
    train "$dir/start" --training.steps 1 --optimizer.lr 0 && train "$dir/first" --training.steps 1 --training.ema_decay 0.25 &&
    "$BUILD/tests/run/average_tool" "$dir/first/checkpoint/step-1" ema 0.75 "$dir/start/checkpoint/step-1" >"$dir/out"
ok mean_is_as_defined
train "$dir/five" $ema --training.steps 5 && train "$dir/five" $ema && "$TTRUN" ckpt diff "$dir/five/checkpoint/step-10" "$dir/ema/checkpoint/step-10" >"$dir/out" 2>&1
ok resume_keeps_the_bits
while read -r name options; do
    train "$dir/$name" $ema --comm.backend local --training.global_batch_size 4 --training.local_batch_size 2 $options
    m=$(evaluated "$dir/$name") && [ -n "$m" ] && near "$m" "$one" 2e-4
    ok "ema_on_$name"
done <<MESHES
fsdp2 $p.data_parallel_shard_degree 2
tp2 $p.tensor_parallel_degree 2
pp2 $p.pipeline_parallel_degree 2
accumulated --training.local_batch_size 1
MESHES
train "$dir/valid" $ema $v && [ "$rc" -eq 0 ] && a=$(validated 10) &&
    b=$(evaluated "$dir/valid/checkpoint/step-10") && [ -n "$a" ] && near "$a" "$b" 1e-4
ok validation_reads_the_mean
train "$dir/valid2" $ema $v --training.ema_evaluate false && [ "$(validated 10)" != "$a" ]
ok validation_may_read_the_last_weights
train "$dir/refused" $ema $v --training.dtype bfloat16
[ "$rc" -eq 2 ] && grep -q 'training.ema_evaluate: validation cannot read averaged weights that are f32 beside weights of training.dtype bfloat16' "$dir/err"
ok validation_of_bf16_is_refused
train "$dir/bf16" $ema --training.dtype bfloat16 && [ "$rc" -eq 0 ] && [ -n "$(evaluated "$dir/bf16")" ]
ok bf16_weights_have_an_f32_mean
ttrun ckpt export --to hf "$dir/ema" "$dir/hf" >"$dir/out" 2>"$dir/err" && near "$(evaluated "$dir/hf" --data "$dir/text.txt" --seq_len 32 --tokenizer.name byte)" \
    "$one" 1e-5
ok export_has_the_mean
train "$dir/small" $ema --checkpoint.last_save_model_only true && [ "$rc" -eq 0 ] && [ "$(evaluated "$dir/small")" = "$one" ]
ok last_save_of_weights_alone_is_the_mean
train "$dir/plain" $ema --training.steps 12 && [ "$rc" -eq 0 ] && grep -q 'no such copies of weights as this job keeps: 21 begin as the weights' "$dir/err"
ok ema_may_begin_later
train "$dir/lora" $ema --converters '[{"name": "lora"}]' && [ "$rc" -eq 0 ] && [ -n "$(evaluated "$dir/lora")" ]
ok ema_of_adapters

# ---- an optimizer that averages ----
free="--optimizer.name schedule_free --optimizer.weight_decay 0.1"
train "$dir/free" $free && [ "$rc" -eq 0 ] && one=$(evaluated "$dir/free") && [ "$one" != "$(evaluated "$dir/free" --training.ema_evaluate false)" ]
ok schedule_free_evaluates_its_mean
train "$dir/half" $free --training.steps 5 && train "$dir/half" $free && "$TTRUN" ckpt diff "$dir/half/checkpoint/step-10" "$dir/free/checkpoint/step-10" >"$dir/out" 2>&1
ok schedule_free_resumes_to_the_bit
for mesh in data_parallel_shard_degree tensor_parallel_degree pipeline_parallel_degree; do
    l=4
    [ $mesh = data_parallel_shard_degree ] && l=2
    train "$dir/free_$mesh" $free --comm.backend local --training.global_batch_size 4 --training.local_batch_size $l $p.$mesh 2 && near "$(loss_at "$dir/free_$mesh" 10)" "$(loss_at "$dir/free" 10)" 1e-3 &&
        near "$(evaluated "$dir/free_$mesh")" "$one" 1e-3
    ok "schedule_free_$mesh"
done
train "$dir/both" $free $ema
[ "$rc" -eq 2 ] && grep -q 'the optimizer averages by itself, so leave training.ema_decay out' "$dir/err"
ok two_averages_are_refused
exit $failed
