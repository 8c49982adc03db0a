#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The converter lora: the base keeps its bits, the curve of one rank on every mesh, resume, dropout, generation, merged and separate export and import.
. "$(dirname "$0")/lib.sh"
p=--parallelism
l=--training.local_batch_size
lora='[{"name": "lora", "rank": 3, "alpha": 6}]'
states() { grep -o '"optimizer\.state\.[^"]*\.exp_avg"' "$1/trainer.json" | sed 's/"optimizer.state.//; s/.exp_avg"//' | sort; }
changed() { "$TTRUN" ckpt diff "$1" "$2" 2>&1 | grep -o '\(model\|lm_head\)[a-zA-Z0-9_.]*weight' | sort -u; }
loss_at() { losses "$1/metrics.jsonl" | sed -n "s/^$2 //p"; }
refused() { # NAME TEXT CONVERTERS OPTION...
    name=$1 text=$2 list=$3
    shift 3
    train "$dir/refused" --converters "$list" "$@"
    [ "$rc" -eq 2 ] && grep -q "$text" "$dir/err" && [ ! -e "$dir/refused/checkpoint" ]
    ok "refused_$name"
}
refused target 'targets: no linear layer is named "qproj"' '[{"name": "lora", "targets": ["q_proj", "qproj"]}]'
refused embedding 'targets: no linear layer is named "embed_tokens"' '[{"name": "lora", "targets": ["embed_tokens"]}]'
refused part_of_a_word 'targets: no linear layer is named "proj"' '[{"name": "lora", "targets": ["proj"]}]'
refused rank 'rank' '[{"name": "lora", "rank": 0}]'
refused dropout 'dropout' '[{"name": "lora", "dropout": 1}]'

# ---- the base ----
train "$dir/base" --training.steps 20 && [ "$rc" -eq 0 ] && train "$dir/plain" --training.steps 1 --checkpoint.initial_load_path "$dir/base/checkpoint/step-20"
ok base_is_trained
from="--checkpoint.initial_load_path $dir/base/checkpoint/step-20 --checkpoint.interval 1"
train "$dir/one" $from --converters "$lora" && [ "$rc" -eq 0 ] && grep -q 'of them trained' "$dir/err"
ok trains
[ "$(loss_at "$dir/one" 1)" = "$(loss_at "$dir/plain" 1)" ] && awk -v a="$(loss_at "$dir/one" 1)" -v b="$(loss_at "$dir/one" 10)" 'BEGIN {exit !(b < a - 0.02)}'
ok begins_as_the_base_and_learns
states "$dir/one/checkpoint/step-10" >"$dir/states"
changed "$dir/one/checkpoint/step-1" "$dir/one/checkpoint/step-10" >"$dir/changed"
[ "$(grep -c 'lora_[AB]' "$dir/states")" -eq 28 ] && [ "$(wc -l <"$dir/states")" -eq 28 ] && cmp -s "$dir/states" "$dir/changed" && ! grep -q 'lm_head\|embed' "$dir/states"
ok states_and_changes_of_adapters_alone
train "$dir/half" $from --converters "$lora" --training.steps 5 && train "$dir/half" $from --converters "$lora" && grep -q 'resumed from .*step-5' "$dir/err" &&
    "$TTRUN" ckpt diff "$dir/one/checkpoint/step-10" "$dir/half/checkpoint/step-10" >"$dir/out" 2>&1
ok resumed_bitwise
train "$dir/norms" $from --converters "$lora" --training.trainable '["tag:adapter", "tag:norm"]' && [ "$rc" -eq 0 ] && [ "$(states "$dir/norms/checkpoint/step-10" | wc -l)" -eq 33 ]
ok trainable_adds_norms
train "$dir/two" $from --converters '[{"name": "lora", "rank": 2, "targets": ["q_proj", "model.layers.1.mlp.*"], "filter": ["layers.0"]}]' && [ "$rc" -eq 0 ]
[ "$(states "$dir/two/checkpoint/step-10" | wc -l)" -eq 8 ]
ok targets_and_filter

# ---- the adapters go: the base is trained from there on, whether the run was interrupted at that step or not ----
ends='[{"name": "lora", "rank": 3, "to_step": 6}]'
bad=
for with in "" "--training.ema_decay 0.8" "--optimizer.name schedule_free" "--optimizer.name muon --optimizer.state_dtype dynamic8" "--comm.backend local --nproc 2" \
    "--comm.backend local --nproc 2 $p.pipeline_parallel_degree 2" "--checkpoint.save_frozen false"; do
    rm -rf "$dir/whole" "$dir/cut"
    # shellcheck disable=SC2086
    train "$dir/whole" $from $with --converters "$ends" && train "$dir/cut" $from $with --converters "$ends" --training.steps 6 && [ "$rc" -eq 0 ] &&
        train "$dir/cut" $from $with --converters "$ends" && [ "$rc" -eq 0 ] && grep -q 'were frozen when it was saved (.*): their optimizer states begin anew' "$dir/err" &&
        "$TTRUN" ckpt diff "$dir/whole/checkpoint/step-10" "$dir/cut/checkpoint/step-10" >"$dir/out" 2>&1 || bad="$bad [$with]"
done
[ -z "$bad" ]
ok "resumed_where_the_adapters_end$bad"
train "$dir/gone" $from --converters "$lora" --training.steps 5 && train "$dir/gone" $from && [ "$rc" -eq 0 ] && [ "$(states "$dir/gone/checkpoint/step-10" | wc -l)" -eq 21 ]
ok resumed_without_adapters
refused twice 'q_proj.lora_A.weight is that of converters\[0\] already: leave this layer to one of the two' '[{"name": "lora", "rank": 3}, {"name": "lora", "rank": 3, "dropout": 0.1}]'
train "$dir/apart" $from --converters '[{"name": "lora", "rank": 2, "targets": ["q_proj"]}, {"name": "lora", "rank": 3, "targets": ["up_proj", "*.down_proj*"]}]' && [ "$rc" -eq 0 ]
[ "$(states "$dir/apart/checkpoint/step-10" | wc -l)" -eq 12 ]
ok two_for_different_layers

# ---- every mesh; with dropout, too ----
batch="--training.local_batch_size 8 --training.global_batch_size 8 --comm.backend local --checkpoint.initial_load_path $dir/base/checkpoint/step-20"
for drop in 0 0.3; do
    with="[{\"name\": \"lora\", \"rank\": 3, \"alpha\": 6, \"dropout\": $drop}]"
    train "$dir/whole$drop" $batch --converters "$with" && [ "$rc" -eq 0 ]
    ok "trains_with_dropout_$drop"
    while read -r mesh options; do
        train "$dir/$mesh$drop" $batch --converters "$with" $options
        [ "$rc" -eq 0 ] && near "$(loss_at "$dir/$mesh$drop" 1)" "$(loss_at "$dir/whole$drop" 1)" 5e-5 && near "$(loss_at "$dir/$mesh$drop" 10)" "$(loss_at "$dir/whole$drop" 10)" 1e-3
        ok "${mesh}_dropout_$drop"
    done <<MESHES
accumulated $l 2
fsdp2 $l 4 $p.data_parallel_shard_degree 2
hsdp2x2 $l 2 $p.data_parallel_shard_degree 2 $p.data_parallel_replicate_degree 2
tp2 $p.tensor_parallel_degree 2
cp2 $p.context_parallel_degree 2
pp2 $p.pipeline_parallel_degree 2
pp2_zbv $p.pipeline_parallel_degree 2 $p.pipeline_parallel_schedule ZBVZeroBubble
fsdp2_tp2 $l 4 $p.data_parallel_shard_degree 2 $p.tensor_parallel_degree 2
MESHES
done
! [ "$(loss_at "$dir/whole0" 3)" = "$(loss_at "$dir/whole0.3" 3)" ]
ok dropout_changes_the_training
for same in "--backend.threads 2" "--activation_checkpoint.mode full" "--debug.detect_nan true"; do
    train "$dir/same" --resume never $batch --converters "$with" $same
    [ "$rc" -eq 0 ] && "$TTRUN" ckpt diff "$dir/whole0.3/checkpoint/step-10" "$dir/same/checkpoint/step-10" >"$dir/out" 2>&1
    ok "same_bits${same%% *}"
done

# ---- out and in ----
text() { from_folder=$1; shift; ttrun generate --checkpoint "$from_folder" "$@" --prompt 'line 1' --max-tokens 24 --temperature 0 2>"$dir/err"; }
text "$dir/one" >"$dir/of_run" && [ -s "$dir/of_run" ]
ok generates
ttrun ckpt export --to hf "$dir/one" "$dir/merged" 2>"$dir/err" && ! grep -q lora "$dir/merged/model.safetensors" && text "$dir/merged" --tokenizer.name byte >"$dir/of_merged" && cmp "$dir/of_run" "$dir/of_merged"
ok merged_export_says_the_same
ttrun ckpt export --to hf --adapter "$dir/one" "$dir/adapter" >"$dir/out" 2>"$dir/err" && grep -q '"peft_type": "LORA"' "$dir/adapter/adapter_config.json" &&
    [ "$(grep -ao 'base_model.model.model.layers.[01].[a-z_.]*.lora_[AB].weight' "$dir/adapter/adapter_model.safetensors" | wc -l)" -eq 28 ]
ok adapter_export_has_the_names_of_peft
ttrun ckpt export --to gguf "$dir/one" "$dir/x.gguf" 2>"$dir/err" && ttrun ckpt export --to gguf "$dir/merged" "$dir/y.gguf" 2>"$dir/also" && cmp "$dir/x.gguf" "$dir/y.gguf" && [ "$(find "$dir" -maxdepth 1 -name '*.tmp' | wc -l)" -eq 0 ]
ok gguf_of_merged_weights_in_one_command
count() { sed -n 's/.*, \([0-9]*\) parameters.*/\1/p' "$1"; }
ttrun ckpt export --to hf "$dir/base" "$dir/counted" 2>"$dir/whole.err" && ttrun ckpt export --to hf "$dir/one" "$dir/merged2" 2>"$dir/merged.err" && ttrun ckpt export --to hf --adapter "$dir/one" "$dir/adapter3" 2>"$dir/adapter.err" &&
    [ "$(count "$dir/whole.err")" = "$(count "$dir/merged.err")" ] && [ "$(count "$dir/whole.err")" = "$(count "$dir/err")" ] && [ "$(count "$dir/adapter.err")" -gt 0 ] && [ "$(count "$dir/adapter.err")" -lt "$(count "$dir/whole.err")" ]
ok it_says_how_many_parameters_were_written
! ttrun ckpt export --to hf --adapter "$dir/base" "$dir/none" >"$dir/out" 2>"$dir/err" && grep -q 'no adapters' "$dir/err" && [ ! -e "$dir/none" ]
ok a_run_without_adapters_has_none_to_export
ttrun ckpt export --to hf "$dir/base" "$dir/hf" 2>"$dir/err"
sed 's|"model": {.*$|"model": { "hf": "'"$dir/hf"'" },|; /"args":/d; /"spec"/d' "$dir/job.json" >"$dir/from_hf.json" && job=$dir/from_hf.json
train "$dir/again" --checkpoint.initial_load_path "$dir/adapter" --converters "$lora" --training.steps 1 --tokenizer.name byte --optimizer.lr 0 && [ "$rc" -eq 0 ] &&
    near "$(loss_at "$dir/again" 1)" "$(loss_at "$dir/one" 10)" 1
ok starts_from_an_adapter
ttrun ckpt export --to hf --adapter "$dir/again" "$dir/adapter2" >"$dir/out" 2>"$dir/err" && cmp "$dir/adapter/adapter_model.safetensors" "$dir/adapter2/adapter_model.safetensors"
ok the_adapter_comes_back_bitwise
train "$dir/bad" --checkpoint.initial_load_path "$dir/adapter" --converters '[{"name": "lora", "rank": 3, "alpha": 7}]' --tokenizer.name byte
[ "$rc" -ne 0 ] && grep -q 'set rank, alpha and rslora as there' "$dir/err"
ok another_scale_is_refused
train "$dir/bad" --checkpoint.initial_load_path "$dir/adapter" --tokenizer.name byte
[ "$rc" -ne 0 ] && grep -q 'the job needs the converter lora' "$dir/err"
ok an_adapter_without_the_converter_is_refused

# ---- folders that PEFT wrote (tests/golden/peft.json) ----
json=$BUILD/tests/run/json_tool golden=$SRC/tests/golden/peft.json tensors=$BUILD/tests/run/tensor_tool
while read -r name converters; do
    theirs=$dir/peft_$name ours=$dir/again_$name bad=
    mkdir "$theirs"
    "$json" "$golden" "$name.config" >"$theirs/adapter_config.json"
    "$json" "$golden" "hex:$name.weights" >"$theirs/adapter_model.safetensors"
    train "$dir/of_$name" --checkpoint.initial_load_path "$theirs" --converters "$converters" --training.steps 1 --tokenizer.name byte --optimizer.lr 0 &&
        ttrun ckpt export --to hf --adapter "$dir/of_$name" "$ours" >"$dir/out" 2>"$dir/err" && "$tensors" "$theirs/adapter_model.safetensors" | sort >"$dir/a" &&
        "$tensors" "$ours/adapter_model.safetensors" | sort | cmp -s - "$dir/a" && [ -s "$dir/a" ]
    ok "${name}_adapter_of_peft_is_read_and_written_again"
    for key in peft_type task_type r lora_alpha lora_dropout use_rslora use_dora bias fan_in_fan_out inference_mode; do
        [ "$("$json" "$theirs/adapter_config.json" $key)" = "$("$json" "$ours/adapter_config.json" $key)" ] || bad="$bad $key"
    done
    [ -z "$bad" ]
    ok "${name}_configuration_says_what_peft_says$bad"
done <<CASES
plain [{"name": "lora", "rank": 2, "alpha": 6, "targets": ["q_proj", "down_proj"]}]
dora [{"name": "lora", "rank": 2, "alpha": 6, "use_dora": true, "targets": ["o_proj"]}]
rslora [{"name": "lora", "rank": 2, "alpha": 5, "dropout": 0.125, "rslora": true, "targets": ["v_proj"]}]
CASES

# ---- what an adapter_config.json may say: it is as the run has it, or the adapter is refused ----
adapter() { # KEY VALUE: PEFT's folder with another value of a key, or one more
    rm -rf "$dir/changed" && cp -r "$dir/peft_plain" "$dir/changed" &&
        value=$2 awk -v key="\"$1\"" '{ text = text $0 "\n" } END {
            value = ENVIRON["value"]
            at = index(text, key ":")
            if (at) {
                rest = substr(text, at + length(key) + 1)
                for (i = 1; i <= length(rest); i++) {
                    c = substr(rest, i, 1)
                    deep += (c == "[" || c == "{") - (c == "]" || c == "}")
                    if (deep < 0 || (deep == 0 && c == ",")) break
                }
                text = substr(text, 1, at - 1) key ": " value substr(rest, i)
            } else sub(/{/, "{" key ": " value ", ", text)
            printf "%s", text
        }' "$dir/peft_plain/adapter_config.json" >"$dir/changed/adapter_config.json"
}
begin() { train "$dir/begun" --checkpoint.initial_load_path "$dir/changed" --converters "$targets" --training.steps 1 --tokenizer.name byte --optimizer.lr 0 --checkpoint.enable false "$@"; }
targets='[{"name": "lora", "rank": 2, "alpha": 6, "targets": ["q_proj", "down_proj"]}]'
bad=
while IFS='|' read -r key value says; do
    adapter "$key" "$value" && begin
    if [ -z "$says" ]; then [ $rc -eq 0 ]; else [ $rc -eq 2 ] && one_line "$dir/err" && grep -q "$says" "$dir/err"; fi || bad="$bad $key=$value"
done <<KEYS
alpha_pattern|{}|
alpha_pattern|{"q_proj": 12}|self_attn.q_proj has rank 2 and scale 6, the run's converter rank 2 and scale 3: set rank, alpha and rslora as there, by several converters
alpha_pattern|{"layers.1.self_attn.q_proj": 12}|layers.1.self_attn.q_proj has rank 2 and scale 6
alpha_pattern|{".*\\\\.[01]\\\\..*_proj": 6.5}|has rank 2 and scale 3.25
alpha_pattern|{"model[.]layers\\\\.[\\\\d]+.mlp.down_proj": 1}|down_proj has rank 2 and scale 0.5
alpha_pattern|{"_proj": 12, "proj": 12, "k_proj": 12, "q_pro": 12}|
alpha_pattern|{"q_proj": 6, ".*q_proj": 12}|
alpha_pattern|{"q_proj": "12"}|alpha_pattern "q_proj" is not a number
alpha_pattern|{"(q_proj": 12}|alpha_pattern "(q_proj": missing
rank_pattern|{"down_proj": 4}|mlp.down_proj has rank 4 and scale 1.5
use_rslora|true|scale 4.24264
use_dora|true|use_dora is true
lora_alpha|null|scale 4
lora_dropout|0.5|
task_type|null|
init_lora_weights|"gaussian"|
init_lora_weights|false|
init_lora_weights|"eva"|
init_lora_weights|"pissa"|init_lora_weights "pissa" changes the base's weights, too: save the adapter
init_lora_weights|"pissa_niter_16"|init_lora_weights "pissa_niter_16" changes
init_lora_weights|"OLoRA"|init_lora_weights "OLoRA" changes
init_lora_weights|"corda"|changes the base
init_lora_weights|"loftq"|changes the base
init_lora_weights|"lora_ga"|changes the base
bias|"all"|bias is set: PEFT trained more than the matrices A and B; checkpoint.initial_load_strict false
bias|"lora_only"|bias is set
lora_bias|true|lora_bias is set
modules_to_save|["lm_head"]|modules_to_save is set: PEFT trained more
modules_to_save|[]|
trainable_token_indices|[1, 2]|trainable_token_indices is set
target_parameters|["experts.gate"]|target_parameters is set
layer_replication|[[0, 2], [1, 2]]|layer_replication is set, which is not known here
use_qalora|true|use_qalora is set, which is not known here
alora_invocation_tokens|[5]|alora_invocation_tokens is set, which
kasa_config|{"beta": 0.1}|kasa_config is set, which
use_of_tomorrow|1|use_of_tomorrow is set, which is not known here
use_of_tomorrow|0.0|use_of_tomorrow is set, which is not known here
use_of_tomorrow|"x"|use_of_tomorrow is set, which is not known here
use_of_tomorrow|false|
use_of_tomorrow|null|
peft_type|"LOHA"|peft_type is not "LORA"
KEYS
[ -z "$bad" ]
ok "keys_of_peft_are_applied_or_refused$bad"
adapter bias '"none"'
bad=
targets='[{"name": "lora", "rank": 2, "alpha": 6, "targets": ["q_proj"]}]'
begin
[ $rc -eq 2 ] && one_line "$dir/err" && grep -q 'changed: 4 tensors of the adapter belong to no adapter of the run: base_model.model.model.layers.{0-1}.mlp.down_proj.lora_.*checkpoint.initial_load_strict false' "$dir/err"
ok tensors_of_an_adapter_that_are_left_over_are_refused
begin --checkpoint.initial_load_strict false && [ $rc -eq 0 ] && grep -q 'changed: 4 tensors not of this model ignored: ' "$dir/err" && adapter modules_to_save '["lm_head"]' &&
    begin --checkpoint.initial_load_strict false && [ $rc -eq 0 ] && grep -q 'W checkpoint. .*adapter_config.json: what PEFT trained for modules_to_save is left out' "$dir/err"
ok unless_the_job_asks_for_a_part
adapter init_lora_weights '"pissa"' && begin --checkpoint.initial_load_strict false
[ $rc -eq 2 ] && grep -q 'changes the base' "$dir/err"
ok but_never_another_base
targets='[{"name": "lora", "rank": 2, "alpha": 6, "targets": ["q_proj"]}, {"name": "lora", "rank": 2, "alpha": 12, "targets": ["down_proj"]}]'
adapter alpha_pattern '{"mlp.down_proj": 12}' && begin
[ $rc -eq 0 ]
ok alphas_that_differ_by_several_converters
exit $failed
