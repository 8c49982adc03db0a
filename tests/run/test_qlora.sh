#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The converter qlora: frozen weights as nf4 and int8 codes in memory and checkpoints; the curve and the codes of one rank on every
# mesh, resume, other converters on its checkpoints, loading from Hugging Face's files, export, generation.
. "$(dirname "$0")/swaps.sh"
p=--parallelism
l=--training.local_batch_size
loss_at() { losses "$1/metrics.jsonl" | sed -n "s/^$2 //p"; }
codes_equal() { ! "$TTRUN" ckpt diff "$1" "$2" 2>&1 | grep 'proj.*\(nf4\|int8\|absmax\)'; }
plan_bytes() { ttrun plan "$job" --json --converters "$2" >"$dir/plan.json" 2>"$dir/err" && "$json" "$dir/plan.json" "bytes_per_rank.$1"; }
with() { echo '[{"name": "qlora", "rank": 3, "alpha": 6, "base": "'"$1"'"}]'; }
# rows of 80 and 176: a short last block
sed -i 's/"dim": 32/"dim": 80/; s/"hidden_dim": 48/"hidden_dim": 176/' "$job"
refused() { # NAME TEXT CONVERTERS OPTION...
    name=$1 text=$2 list=$3
    shift 3
    train "$dir/refused" --converters "$list" "$@"
    [ "$rc" -eq 2 ] && grep -q "$text" "$dir/err" && [ ! -e "$dir/refused/checkpoint" ]
    ok "refused_$name"
}
refused base 'base: expected one of nf4, int8' '[{"name": "qlora", "base": "fp4"}]'
refused a_part_of_the_steps 'how weights are stored' '[{"name": "qlora", "from_step": 3}]'
refused twice 'list one converter' '[{"name": "qlora"}, {"name": "qlora"}]'
sed 's/"dim": 80/"dim": 80, "tie_embeddings": true/' "$job" >"$dir/tied.json"
untied=$job job=$dir/tied.json
refused a_tied_head 'no linear layer is named "lm_head"' '[{"name": "qlora", "targets": ["lm_head"]}]'
job=$untied
# how weights are stored stays while a run goes on; what is computed with them may change
forever "$dir/numbers"
! ctl set converters '[{"name": "qlora"}]' && refuses 'q_proj.weight would lie elsewhere or have another type, so its values cannot be kept' && at=$(step_now) && until_true passed $((at + 2)) &&
    ctl stop && ends 4
ok ctl_cannot_bring_codes_to_a_run
forever "$dir/codes" --converters '[{"name": "qlora"}]'
! ctl set converters '[{"name": "lora"}]' && refuses 'would lie elsewhere' && ctl set converters '[{"name": "qlora"}, {"name": "float8"}]' && until_true passed $(($(step_said) + 2)) && ctl stop && ends 4
ok ctl_keeps_codes_and_adds_float8
# which adapters are trained
train "$dir/some" --converters '[{"name": "qlora"}]' --training.trainable '["layers.0.*lora_B"]' && [ "$rc" -eq 0 ] &&
    [ "$(grep -o '"optimizer.state.[^"]*exp_avg"' "$dir/some/checkpoint/step-10/trainer.json" | sort -u | wc -l)" -eq 7 ] &&
    [ "$(grep -o '"optimizer.state.[^"]*lora_B[^"]*exp_avg"' "$dir/some/checkpoint/step-10/trainer.json" | sort -u | wc -l)" -eq 7 ]
ok trainable_chooses_adapters

train "$dir/base" --training.steps 3 && [ "$rc" -eq 0 ] && ttrun ckpt export --to hf "$dir/base" "$dir/hf" >"$dir/out" 2>"$dir/err"
ok base_is_trained
lora='[{"name": "lora", "rank": 3, "alpha": 6}]'
batch="--training.local_batch_size 8 --training.global_batch_size 8 --comm.backend local --checkpoint.initial_load_path $dir/base/checkpoint/step-3"
train "$dir/lora" $batch --converters "$lora"
for base in nf4 int8; do
    with=$(with $base) one=$dir/$base
    train "$one" $batch --converters "$with" && [ "$rc" -eq 0 ] && grep -q "rounded to $base codes" "$dir/err" &&
        grep -q "q_proj.weight.$base\"" "$one/checkpoint/step-10/trainer.json" && grep -q 'q_proj.weight.absmax"' "$one/checkpoint/step-10/trainer.json" &&
        ! grep -q 'q_proj.weight"' "$one/checkpoint/step-10/trainer.json"
    ok "${base}_trains_and_saves_codes"
    awk -v a="$(loss_at "$one" 1)" -v b="$(loss_at "$one" 10)" -v l="$(loss_at "$dir/lora" 1)" 'BEGIN {d = a - l; exit !(b < a - 0.02 && d != 0 && d * d < 0.01)}'
    ok "${base}_begins_near_the_base_and_learns"
    train "$dir/of_hf" $batch --converters "$with" --checkpoint.initial_load_path "$dir/hf" --checkpoint.initial_load_in_hf true --resume never --training.steps 1 && [ "$rc" -eq 0 ] &&
        codes_equal "$one/checkpoint/step-10" "$dir/of_hf/checkpoint/step-1" && [ "$(loss_at "$one" 1)" = "$(loss_at "$dir/of_hf" 1)" ]
    ok "${base}_from_hugging_face_has_the_same_codes"
    while read -r mesh options; do
        train "$dir/$mesh$base" $batch --converters "$with" $options
        [ "$rc" -eq 0 ] && near "$(loss_at "$dir/$mesh$base" 1)" "$(loss_at "$one" 1)" 5e-5 && near "$(loss_at "$dir/$mesh$base" 10)" "$(loss_at "$one" 10)" 1e-3 &&
            codes_equal "$one/checkpoint/step-10" "$dir/$mesh$base/checkpoint/step-10"
        ok "${base}_$mesh"
    done <<MESHES
fsdp2 $l 4 $p.data_parallel_shard_degree 2
tp2 $p.tensor_parallel_degree 2
pp2 $p.pipeline_parallel_degree 2
fsdp2_tp2 $l 4 $p.data_parallel_shard_degree 2 $p.tensor_parallel_degree 2
MESHES
    # resume on another mesh; then as lora, on numbers; then codes again
    train "$dir/tp2$base" $batch --converters "$with" --training.steps 11 $l 4 $p.data_parallel_shard_degree 2 && [ "$rc" -eq 0 ] && grep -q 'resumed from .*step-10' "$dir/err" &&
        train "$one" $batch --converters "$with" --training.steps 11 && near "$(loss_at "$dir/tp2$base" 11)" "$(loss_at "$one" 11)" 1e-3 &&
        codes_equal "$one/checkpoint/step-11" "$dir/tp2$base/checkpoint/step-11"
    ok "${base}_resumes_on_another_mesh"
    train "$dir/tp2$base" $batch --converters "$lora" --training.steps 12 && [ "$rc" -eq 0 ] && grep -q 'are read as numbers' "$dir/err" &&
        train "$one" $batch --converters "$with" --training.steps 12 && near "$(loss_at "$dir/tp2$base" 12)" "$(loss_at "$one" 12)" 1e-3
    ok "${base}_is_resumed_by_lora_on_the_same_numbers"
    # the peak would not fall if weights were kept as numbers from forward to backward
    for what in state peak; do
        n=$(plan_bytes $what "$with") && [ "$n" -gt 0 ] && [ "$n" -lt "$(plan_bytes $what "$lora")" ]
        ok "${base}_plan_counts_codes_in_$what"
    done
    ttrun ckpt export --to hf "$one" "$dir/merged$base" >"$dir/out" 2>"$dir/err" && ! grep -q 'lora\|absmax' "$dir/merged$base/model.safetensors" &&
        ttrun generate --checkpoint "$one" --prompt 'line 1' --max-tokens 16 --temperature 0 >"$dir/of_run" 2>"$dir/err" && [ -s "$dir/of_run" ] &&
        ttrun generate --checkpoint "$dir/merged$base" --tokenizer.name byte --prompt 'line 1' --max-tokens 16 --temperature 0 2>"$dir/err" | cmp - "$dir/of_run"
    ok "${base}_merged_export_says_the_same"
    ttrun ckpt export --to hf --adapter "$one" "$dir/adapter$base" >"$dir/out" 2>"$dir/err" && grep -q '"peft_type": "LORA"' "$dir/adapter$base/adapter_config.json" &&
        [ "$(grep -ao 'lora_[AB].weight' "$dir/adapter$base/adapter_model.safetensors" | wc -l)" -eq 28 ]
    ok "${base}_adapter_export"
done
train "$dir/same" $batch --converters "$(with nf4)" --activation_checkpoint.mode full --training.steps 12 && "$TTRUN" ckpt diff "$dir/nf4/checkpoint/step-12" "$dir/same/checkpoint/step-12" >"$dir/out" 2>&1
ok same_bits_recomputed_and_resumed
train "$dir/nf4" $batch --converters "$(with int8)" --training.steps 13 && [ "$rc" -eq 0 ] && grep -q 'rounded to int8 codes' "$dir/err" && grep -q 'q_proj.weight.int8"' "$dir/nf4/checkpoint/step-13/trainer.json"
ok int8_resumes_nf4
train "$dir/reference" $batch --converters "$(with nf4)" --training.steps 1 --backend.name reference && near "$(loss_at "$dir/reference" 1)" "$(loss_at "$dir/same" 1)" 1e-4
ok reference_backend_agrees
exit $failed
