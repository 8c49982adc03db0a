#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Converters beside what else a job has: the model that a checkpoint holds is that of its step's converters, plan and metrics count
# the FLOPs of the model as described, parameters that are gathered once per step are converted likewise, and generate, eval and export
# take LoRA from a list that has float8 too.
. "$(dirname "$0")/lib.sh"
number() { sed -n "s/.*\"$2\":\([-0-9.e+]*\).*/\1/p" "$1"; } # FILE KEY: of the only line
loss_of() { # CHECKPOINT OPTION...
    from=$1
    shift
    ttrun eval --checkpoint "$from" --samples 20 --json "$@" >"$dir/out" 2>"$dir/err" && number "$dir/out" loss
}
text_of() { # CHECKPOINT OPTION...
    from=$1
    shift
    ttrun generate --checkpoint "$from" --prompt 'line 1' --max-tokens 24 --temperature 0 "$@" 2>"$dir/err"
}
same_text() { [ -n "$1" ] && [ "$1" = "$2" ]; }

# ---- by schedule: step k has the converters that made it ----
always='[{"name": "lora", "rank": 3, "alpha": 60}]'
later='[{"name": "lora", "rank": 3, "alpha": 60, "from_step": 4}]'
first='[{"name": "lora", "rank": 3, "alpha": 60, "to_step": 6}]'
train "$dir/later" --checkpoint.interval 4 --converters "$later"
last=$dir/later/checkpoint/step-10 before=$dir/later/checkpoint/step-4
[ "$rc" -eq 0 ] && with=$(loss_of "$last" --converters "$always") && without=$(loss_of "$last" --converters '[]') && [ "$with" != "$without" ] &&
    [ "$(loss_of "$dir/later")" = "$with" ]
ok eval_takes_what_from_step_added
same_text "$(text_of "$dir/later")" "$(text_of "$dir/later" --converters "$always")" && ! same_text "$(text_of "$dir/later")" "$(text_of "$dir/later" --converters '[]')"
ok generate_takes_what_from_step_added
ttrun ckpt export --to hf "$dir/later" "$dir/merged" >"$dir/out" 2>"$dir/err" && near "$(loss_of "$dir/merged" --tokenizer.name byte --data "$dir/text.txt" --seq_len 32)" "$with" 1e-5
ok export_merges_what_from_step_added
plain=$(loss_of "$before" --converters '[]') && [ "$(loss_of "$before")" = "$plain" ] && ! grep -q 'parameters added' "$dir/err"
ok before_from_step_there_is_none
train "$dir/first" --checkpoint.interval 6 --converters "$first"
[ "$rc" -eq 0 ] && [ "$(loss_of "$dir/first/checkpoint/step-6")" = "$(loss_of "$dir/first/checkpoint/step-6" --converters "$always")" ] &&
    [ "$(loss_of "$dir/first/checkpoint/step-6")" != "$(loss_of "$dir/first/checkpoint/step-6" --converters '[]')" ] &&
    [ "$(loss_of "$dir/first")" = "$(loss_of "$dir/first" --converters '[]')" ] && ! grep -q 'parameters added' "$dir/err"
ok at_to_step_they_are_still_there_and_later_not

# ---- FLOPs and MFU ----
float8='[{"name": "float8", "filter": ["lm_head"]}]'
wide="--hardware h100 --model.args.dim 512 --model.args.hidden_dim 1024 --training.seq_len 256"
planned() { # CONVERTERS OPTION...: FLOPs per token, and by how much the plan's MFU differs from tokens/s * FLOPs / peak
    list=$1
    shift
    ttrun plan "$job" --json --hardware h100 --converters "$list" "$@" >"$dir/plan.json" 2>"$dir/err" &&
        awk -v f="$(number "$dir/plan.json" flops_per_token)" -v t="$(number "$dir/plan.json" tokens_per_second)" -v m="$(number "$dir/plan.json" mfu)" \
            -v p="$(number "$dir/plan.json" flops_f32)" 'BEGIN {d = m - f * t / p; good = (d < 0 ? -d : d) <= 6e-5; print f, good ? "of_peak" : "off"}'
}
# shellcheck disable=SC2086
{
    [ "$(planned '[]')" = "168000 of_peak" ] && [ "$(planned "$float8")" = "168000 of_peak" ] && [ "$(planned '[{"name": "nvfp4"}]')" = "168000 of_peak" ] &&
        plan=$(planned '[]' $wide) && [ "${plan#* }" = of_peak ] && [ "$(planned "$float8" $wide)" = "$plan" ]
}
ok plan_counts_the_products_of_the_model_not_of_the_emulation
# 4 per frozen parameter of the base, 6 per adapter's, 6 * W * S: 4 * 23904 + 6 * 928 * 8 + 6 * 128 * 32
[ "$(planned '[{"name": "lora", "rank": 8}]')" = "164736 of_peak" ]
ok plan_counts_what_lora_freezes_and_adds
train "$dir/flops" --checkpoint.enable false --training.steps 3 --converters "$float8"
[ "$rc" -eq 0 ] && awk -v t="$(value "$dir/flops/metrics.jsonl" tflops)" -v n="$(value "$dir/flops/metrics.jsonl" tps)" 'BEGIN {r = t * 1e12 / n / 168000; exit !(r > 0.999 && r < 1.001)}'
ok metrics_count_the_same

# ---- parameters that are gathered once per step ----
for name in float8 blockwise; do
    list="[{\"name\": \"$name\", \"filter\": [\"lm_head\"]}]"
    twice="--checkpoint.enable false --training.steps 4 --training.global_batch_size 8 --training.mixed_precision_param bfloat16"
    # shellcheck disable=SC2086
    train "$dir/each" --resume never $twice --converters "$list" --parallelism.fsdp_reshard_after_forward always && losses "$dir/each/metrics.jsonl" >"$dir/each.txt"
    # shellcheck disable=SC2086
    train "$dir/once" --resume never $twice --converters "$list" --parallelism.fsdp_reshard_after_forward never --debug.dump_graph "$dir/graphs"
    [ "$rc" -eq 0 ] && grep -q 'gathered.model.layers.0.mlp.up_proj.weight' "$dir/graphs/"*hoist.txt && [ "$(wc -l <"$dir/each.txt")" -eq 4 ] &&
        losses "$dir/once/metrics.jsonl" | cmp - "$dir/each.txt" >>"$dir/err" 2>&1
    ok "gathered_once_per_step_$name"
done

# ---- LoRA and float8 in one list ----
both='[{"name": "lora", "rank": 3, "alpha": 60}, {"name": "float8", "recipe": "rowwise", "filter": ["lm_head", "lora_"]}]'
train "$dir/both" --converters "$both"
[ "$rc" -eq 0 ] && grep -q 'converters\[0\] (lora): replaces 14 of 15 layers' "$dir/err" && grep -q 'converters\[1\] (float8): converts products: 14 of ' "$dir/err"
ok both_train
eight=$(loss_of "$dir/both") && whole=$(loss_of "$dir/both" --converters "$always") && bare=$(loss_of "$dir/both" --converters '[]') && [ "$eight" != "$whole" ] &&
    near "$eight" "$whole" 0.02 && ! near "$bare" "$whole" 0.02
ok eval_has_both
text=$(text_of "$dir/both") && same_text "$text" "$(text_of "$dir/both" --converters "$always")" && ! same_text "$text" "$(text_of "$dir/both" --converters '[]')"
ok generate_has_the_adapters_in_full_precision
ttrun ckpt export --to hf "$dir/both" "$dir/both-hf" >"$dir/out" 2>"$dir/err" && near "$(loss_of "$dir/both-hf" --tokenizer.name byte --data "$dir/text.txt" --seq_len 32)" "$whole" 1e-5 &&
    same_text "$text" "$(text_of "$dir/both-hf" --tokenizer.name byte)"
ok the_merged_export_says_the_same
exit $failed
