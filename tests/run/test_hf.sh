#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Weights as a Hugging Face folder: written after the last step, read back bit for bit on every mesh; its config.json gives
# the sizes; hostile folders give an error of one line. tests/peers/hf_peer.py compares them with transformers.
. "$(dirname "$0")/lib.sh"
awk 'BEGIN {
    printf "{\"added_tokens\":[{\"id\":257,\"content\":\"<end>\",\"special\":true}],\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false},"
    printf "\"model\":{\"type\":\"BPE\",\"merges\":[[\"H\",\"i\"]],\"vocab\":{\"Hi\":256"
    for (b = 0; b < 256; b++)
        printf ",\"\\u%04x\":%d", (b > 32 && b < 127) || (b > 160 && b != 173) ? b : 256 + other++, b
    printf "}}}\n"
}' >"$dir/tokenizer.json"
tie=--model.args.tie_embeddings
no_bytes=
# again FOLDER HF OPTION...: two steps that change nothing, from the weights and sizes of a Hugging Face folder
again() {
    where=$1 hf=$2
    shift 2
    printf '{"extends": "job.json", "model": {"flavor": "hf", "hf_assets_path": "%s", "args": {"vocab_size": 262}},
        "optimizer": {"lr": 0}, "training": {"steps": 2},
        "checkpoint": {"initial_load_path": "%s", "initial_load_in_hf": true, "enable": false}}' "$hf" "$hf" >"$dir/again.json"
    sed 's/"model": { "flavor": "debugmodel",/"model": { /; s/"args": {.*} },/"args": {} },/' "$job" >"$dir/base.json"
    sed -i 's/"job.json"/"base.json"/' "$dir/again.json"
    bytes=
    [ -e "$hf/tokenizer.json" ] || [ -n "$no_bytes" ] || bytes='--tokenizer.name byte'
    # shellcheck disable=SC2086
    ttrun "$dir/again.json" --dump_folder "$where" $bytes "$@" >"$dir/out" 2>"$dir/err"
    rc=$?
}
same_losses() { # FOLDER FOLDER
    losses "$1/metrics.jsonl" >"$dir/l1"
    losses "$2/metrics.jsonl" >"$dir/l2"
    [ -s "$dir/l1" ] && cmp -s "$dir/l1" "$dir/l2"
}
# the reference: the native step folder, loaded on the same mesh with lr 0
native() { # FOLDER STEP-FOLDER OPTION...
    where=$1 step=$2
    shift 2
    train "$where" --optimizer.lr 0 --training.steps 2 --checkpoint.enable false --checkpoint.initial_load_path "$step" "$@"
}

train "$dir/a" --checkpoint.last_save_in_hf true --training.steps 4
[ $rc -eq 0 ] && [ -f "$dir/a/hf/step-4/model.safetensors" ] && [ "$(readlink "$dir/a/hf/latest")" = step-4 ] &&
    [ -f "$dir/a/hf/step-4/generation_config.json" ] && ! [ -e "$dir/a/hf/step-4.tmp" ] && ! [ -e "$dir/a/hf/step-4/tokenizer.json" ]
ok last_save_writes_a_hugging_face_folder
[ "$(value "$dir/a/hf/latest/config.json" num_key_value_heads)" = 2 ] && [ "$(value "$dir/a/hf/latest/config.json" eos_token_id)" = 257 ]
ok config_json_has_sizes_and_ids
for mesh in "" "--nproc 2 --comm.backend local --parallelism.tensor_parallel_degree 2" "--nproc 2 --comm.backend local --parallelism.data_parallel_shard_degree 2" \
    "--nproc 2 --comm.backend local --parallelism.pipeline_parallel_degree 2"; do
    name=$(echo "$mesh" | sed 's/.*\.\(.*\)_degree.*/_\1/')
    rm -rf "$dir/n" "$dir/h"
    # shellcheck disable=SC2086
    native "$dir/n" "$dir/a/checkpoint/step-4" $mesh && again "$dir/h" "$dir/a/hf/latest" $mesh
    [ $rc -eq 0 ] && same_losses "$dir/n" "$dir/h"
    ok "hf_weights_are_bitwise_those_saved$name"
done
train "$dir/tp" --checkpoint.last_save_in_hf true --training.steps 4 --nproc 2 --comm.backend local --parallelism.tensor_parallel_degree 2 \
    --checkpoint.last_save_model_only true
native "$dir/tpn" "$dir/tp/checkpoint/step-4"
again "$dir/tph" "$dir/tp/hf/latest"
[ $rc -eq 0 ] && same_losses "$dir/tpn" "$dir/tph"
ok saved_by_two_ranks_and_model_only
train "$dir/tied" $tie true --checkpoint.last_save_in_hf true --training.steps 4 --tokenizer.name hf --tokenizer.path "$dir/tokenizer.json"
[ $rc -eq 0 ] && ! grep -q lm_head "$dir/tied/hf/latest/model.safetensors" && cmp -s "$dir/tokenizer.json" "$dir/tied/hf/latest/tokenizer.json"
ok tied_weights_export_no_head_but_the_tokenizer
native "$dir/tn" "$dir/tied/checkpoint/step-4" $tie true --tokenizer.name hf --tokenizer.path "$dir/tokenizer.json"
again "$dir/th" "$dir/tied/hf/latest"
[ $rc -eq 0 ] && same_losses "$dir/tn" "$dir/th"
ok tied_weights_load_again

# ---- what hf_assets_path says where the job does not ----
tied=$dir/tied/hf/step-4
ours='--model.flavor hf --model.args {} --checkpoint.last_save_in_hf true --training.steps 1 --optimizer.lr 0'
sed '/"model": {/d; /"args": {/d' "$job" >"$dir/bare.json"
bare() { # FOLDER OPTION...: README's line, of a job without a tokenizer
    where=$1
    shift
    # shellcheck disable=SC2086
    ttrun "$dir/bare.json" --dump_folder "$where" $ours --model.hf_assets_path "$tied" "$@" >"$dir/out" 2>"$dir/err"
    rc=$?
}
bare "$dir/d1" --checkpoint.initial_load_in_hf true
[ $rc -eq 0 ] && grep -q "checkpoint\] weights: $tied (Hugging Face's)" "$dir/err" && ! grep -q ' W ' "$dir/err" &&
    [ "$(value "$dir/d1/run.json" job.tokenizer.name)" = hf ] && [ "$(value "$dir/d1/run.json" job.tokenizer.path)" = "$tied/tokenizer.json" ]
ok the_folders_tokenizer_and_weights_are_the_default
cmp -s "$tied/model.safetensors" "$dir/d1/hf/latest/model.safetensors" && cmp -s "$tied/tokenizer.json" "$dir/d1/hf/latest/tokenizer.json"
ok loaded_weights_export_unchanged
# weights of a model with a vocabulary do not begin a training on bytes
initial() { # FOLDER WEIGHTS OPTION...
    where=$1 from=$2
    shift 2
    # shellcheck disable=SC2086
    train "$where" $tie true --training.steps 1 --checkpoint.enable false --checkpoint.initial_load_path "$from" "$@"
}
no_tokenizer() { [ "$rc" -eq 2 ] && grep -q "^ttrun: .*tokenizer: the weights are those of $1, whose ids are no bytes, and the job names no tokenizer: set model.hf to that folder" "$dir/err"; }
initial "$dir/v1" "$tied"
no_tokenizer "$tied"
ok weights_with_a_tokenizer_need_it
mkdir "$dir/alone" && cp "$tied/config.json" "$tied/model.safetensors" "$dir/alone" && initial "$dir/v2" "$dir/alone" && [ "$rc" -eq 0 ] && initial "$dir/v3" "$tied" --tokenizer.name byte && [ "$rc" -eq 0 ]
ok bytes_where_they_are_named_or_may_be_meant
cp "$tied/config.json" "$dir/alone/merges.txt" && initial "$dir/v4" "$dir/alone"
no_tokenizer "$dir/alone"
ok weights_with_a_part_of_a_tokenizer_need_one
rm "$dir/alone/merges.txt" && initial "$dir/v5" "$dir/alone" --model.args.vocab_size 600 --checkpoint.initial_load_strict false
no_tokenizer "$dir/alone"
ok a_large_vocabulary_is_not_of_bytes
bare "$dir/d2" --tokenizer.name byte --checkpoint.initial_load_path "$tied"
[ $rc -eq 0 ] && [ "$(grep -c "the tokenizer is \"byte\", not the model.s own, $tied/tokenizer.json" "$dir/err")" -eq 1 ] && [ -f "$dir/d2/hf/latest/config.json" ] &&
    ! [ -e "$dir/d2/hf/latest/tokenizer.json" ]
ok another_tokenizer_is_a_warning_and_the_folders_one_is_not_exported
grep -q "weights: $tied (Hugging Face's)" "$dir/err"
ok a_hugging_face_folder_is_recognized
bare "$dir/d3"
[ $rc -eq 0 ] && grep -q "weights: random; those of $tied are loaded with checkpoint.initial_load_in_hf true" "$dir/err"
ok random_weights_instead_of_those_there_are_logged
train "$dir/d4" --training.steps 1 --checkpoint.enable false
[ $rc -eq 0 ] && grep -q 'weights: random$' "$dir/err"
ok random_weights_are_logged
no_bytes=1
again "$dir/d7" "$dir/a/hf/step-4"
no_bytes=
[ $rc -eq 2 ] && [ "$(grep -c "$dir/a/hf/step-4 has none that can be read (looked for: tokenizer.json, " "$dir/err")" -eq 1 ]
ok a_folder_with_weights_and_without_a_tokenizer_is_refused
mkdir "$dir/copy" && cp "$tied/tokenizer.json" "$dir/copy"
bare "$dir/d5" --tokenizer.name hf --tokenizer.path "$dir/copy" && ! grep -q 'the tokenizer is' "$dir/err" &&
    sed -i 's/"Hi"/"Ho"/; s/\["H","i"\]/["H","o"]/' "$dir/copy/tokenizer.json" && bare "$dir/d6" --tokenizer.name hf --tokenizer.path "$dir/copy" &&
    grep -q "the tokenizer is \"hf\" of $dir/copy, not the model.s own, $tied/tokenizer.json" "$dir/err" && cmp -s "$dir/copy/tokenizer.json" "$dir/d6/hf/latest/tokenizer.json"
ok a_copy_of_the_tokenizer_gives_no_warning_but_another_one_does
again "$dir/x" "$dir/a/hf/latest" --model.args.tie_embeddings true
[ $rc -eq 0 ] && [ "$(grep -c "W checkpoint\] $dir/a/hf/latest: 'lm_head.weight' is another matrix than the embedding that it is tied to" "$dir/err")" -eq 1 ]
ok a_head_that_is_not_the_embedding_is_warned_of
# in every command that loads; equal bytes are not worth a word; other tensors are named, and an import refuses them
sed 's/"tie_word_embeddings": false/"tie_word_embeddings": true/' "$dir/a/hf/latest/config.json" >"$dir/config.json"
cp -r "$dir/a/hf/step-4" "$dir/heads" && cp "$dir/config.json" "$dir/heads"
said() { grep -c "W checkpoint\] $dir/heads: 'lm_head.weight' is another matrix" "$dir/err"; }
ttrun generate "$dir/heads" --prompt a --max-tokens 1 --tokenizer.name byte >"$dir/out" 2>"$dir/err" && [ "$(said)" -eq 1 ] &&
    ttrun eval --checkpoint "$dir/heads" --data "$SRC/README.md" --samples 2 --tokenizer.name byte >"$dir/out" 2>"$dir/err" && [ "$(said)" -eq 1 ]
ok by_every_command_that_loads
mkdir "$dir/twice" && cp "$tied/config.json" "$tied/model.safetensors" "$dir/twice" && LC_ALL=C sed '1s/"model\.\(layers\|norm\)/"xodel.\1/g; 1s/"model.embed_tokens.weight":/"lm_head.weight":           /' "$tied/model.safetensors" >"$dir/twice/2.safetensors" &&
    printf '{"weight_map": {"a": "model.safetensors", "b": "2.safetensors"}}' >"$dir/twice/model.safetensors.index.json" && rm "$dir/twice/model.safetensors" && cp "$tied/model.safetensors" "$dir/twice/1.safetensors" &&
    sed -i 's/model.safetensors/1.safetensors/' "$dir/twice/model.safetensors.index.json"
ttrun eval --checkpoint "$dir/twice" --data "$SRC/README.md" --samples 2 --tokenizer.name byte >"$dir/out" 2>"$dir/err" && grep -q '19 tensors not of this model ignored: xodel' "$dir/err" && ! grep -q lm_head "$dir/err"
ok a_head_that_is_the_embedding_is_worth_no_word
ttrun ckpt import --from hf "$dir/heads" "$dir/imported" 2>"$dir/err"
[ $? -eq 2 ] && one_line "$dir/err" && grep -q "'lm_head.weight' is another matrix.*model.args.tie_embeddings false takes it" "$dir/err" && ! [ -e "$dir/imported" ] &&
    ttrun ckpt import --from hf "$dir/heads" "$dir/imported" --checkpoint.initial_load_strict false 2>"$dir/err" && [ "$(said)" -eq 1 ] && grep -q '20 tensors taken, 1 left, 20 made' "$dir/err" &&
    ttrun ckpt import --from hf "$dir/heads" "$dir/untied" --model.args.tie_embeddings false 2>"$dir/err" && grep -q '21 tensors taken, 0 left, 21 made' "$dir/err"
ok an_import_takes_it_or_is_told_to_leave_it
sed 's/"num_hidden_layers": 2/"num_hidden_layers": 1/' "$dir/a/hf/step-4/config.json" >"$dir/config.json"
cp -r "$dir/a/hf/step-4" "$dir/ahead" && cp "$dir/config.json" "$dir/ahead"
ttrun ckpt import --from hf "$dir/ahead" "$dir/imported2" 2>"$dir/err" && grep -q '9 tensors not of this model ignored: model.layers.1' "$dir/err" && grep -q '12 tensors taken, 9 left, 12 made' "$dir/err"
ok layers_that_guess_ahead_may_be_left
train "$dir/biased" --training.steps 1 --model.args.attention_bias true --checkpoint.last_save_in_hf true && cp -r "$dir/biased/hf/step-1" "$dir/extra2" && sed -i 's/"attention_bias": true/"attention_bias": false/' "$dir/extra2/config.json"
ttrun ckpt import --from hf "$dir/extra2" "$dir/imported3" 2>"$dir/err"
[ $? -eq 2 ] && one_line "$dir/err" && grep -q 'extra2: 8 tensors are not of this model: model.layers.{0-1}.self_attn.k_proj.bias, .*; checkpoint.initial_load_strict false leaves them out' "$dir/err" && ! [ -e "$dir/imported3" ] &&
    ttrun ckpt import --from hf "$dir/extra2" "$dir/imported3" --checkpoint.initial_load_strict false 2>"$dir/err" && grep -q '21 tensors taken, 8 left, 21 made' "$dir/err" && grep -q '8 tensors not of this model ignored' "$dir/err"
ok what_an_import_would_lose_is_an_error
mv "$dir/a/hf" "$dir/hf.before"
train "$dir/a" --checkpoint.last_save_in_hf true --training.steps 4
[ $rc -eq 0 ] && cmp -s "$dir/hf.before/step-4/model.safetensors" "$dir/a/hf/latest/model.safetensors"
ok a_run_that_is_done_still_exports
cp -r "$dir/a/hf/step-4" "$dir/a/hf/step-4.tmp"
echo rubbish >"$dir/a/hf/step-4.tmp/model-00001-of-00009.safetensors"
rm -rf "$dir/a/checkpoint"
train "$dir/a" --checkpoint.last_save_in_hf true --training.steps 4
[ $rc -eq 0 ] && ! [ -e "$dir/a/hf/step-4.tmp" ] && [ "$(find "$dir/a/hf/latest/" -name '*.safetensors' | wc -l)" -eq 1 ]
ok leftovers_of_a_killed_save_are_replaced

# ---- hostile folders ----
good=$dir/a/hf/step-4
bad=$dir/bad
# refused NAME WORDS COMMAND: a copy of the good folder, spoilt by the command; the error is one line and has the words
refused() {
    rm -rf "$bad"
    cp -r "$good" "$bad"
    (cd "$bad" && eval "$3")
    again "$dir/x" "$bad"
    [ $rc -eq 2 ] && one_line "$dir/err" && grep -qF -- "$2" "$dir/err"
    ok "$1"
}
index() { rm -f model.safetensors; printf '%s' "$1" >model.safetensors.index.json; }
edit() { sed -i "$1" config.json; }
refused folder_without_weights 'no model.safetensors, no pytorch_model.bin and no index of them' 'rm model.safetensors'
refused index_not_json 'model.safetensors.index.json:1:' 'index "{"'
refused index_without_map 'no object "weight_map"' 'index "{}"'
refused index_map_is_list 'no object "weight_map"' 'index "{\"weight_map\": []}"'
refused index_parent_folder "is not in the name of a .safetensors file in this folder" \
    'cp model.safetensors ../up.safetensors; index "{\"weight_map\": {\"a\": \"../up.safetensors\"}}"'
refused index_absolute_path "is not in the name of a .safetensors file in this folder" \
    'cp model.safetensors ../up.safetensors; index "{\"weight_map\": {\"a\": \"$dir/up.safetensors\"}}"'
refused index_number "is not in the name of" 'index "{\"weight_map\": {\"a\": 3}}"'
refused index_missing_file 'model-2.safetensors' 'index "{\"weight_map\": {\"a\": \"model-2.safetensors\"}}"'
refused index_empty "no tensor 'model.embed_tokens.weight'" 'index "{\"weight_map\": {}}"'
refused index_tensor_twice 'is in two files' \
    'cp model.safetensors m1.safetensors; mv model.safetensors m2.safetensors; index "{\"weight_map\": {\"a\": \"m1.safetensors\", \"b\": \"m2.safetensors\"}}"'
refused weights_truncated 'model.safetensors' 'head -c 5000 model.safetensors >m; mv m model.safetensors'
refused weights_empty 'model.safetensors' ': >model.safetensors'
refused weights_header_length 'model.safetensors' 'printf "\377\377\377\377\377\377\377\177" | dd of=model.safetensors conv=notrunc 2>"$dir/dd"'
refused weights_lack_a_tensor "parameter 'lm_head.weight': $dir/bad: no tensor 'lm_head.weight'" 'sed -i "s/\"lm_head.weight\"/\"lm_haed.weight\"/" model.safetensors'
refused weights_of_another_shape "parameter 'model.layers.0.mlp.gate_proj.weight'" 'edit "s/\"intermediate_size\": 48/\"intermediate_size\": 64/"'
refused weights_of_another_shape_names_both_shapes "is [48,32] there, [64,32] in the model" 'edit "s/\"intermediate_size\": 48/\"intermediate_size\": 64/"'
refused config_missing 'config.json: cannot open: No such file' 'rm config.json'
refused config_not_json 'config.json:2:1:' 'echo "{" >config.json'
refused config_list 'expected an object' 'echo "[1]" >config.json'
refused config_without_type 'it has no "model_type"' 'edit "/model_type/d"'
refused config_other_type 'config.json:3:17: this is a mistral model: add --spec mistral' 'edit "s/\"llama\"/\"mistral\"/"'
refused config_bias_without_tensors "parameter 'model.layers.0.self_attn.q_proj.bias'" 'edit "s/\"attention_bias\": false/\"attention_bias\": true/"'
refused config_activation 'hidden_act: model llama3 supports only "silu"' 'edit "s/silu/gelu/"'
refused config_quantized 'quantization_config: model llama3' 'edit "s/\"hidden_act\"/\"quantization_config\": {}, \"hidden_act\"/"'
refused config_size_is_text 'config.json:4:18: ' 'edit "s/\"hidden_size\": 32/\"hidden_size\": \"32\"/"'
refused config_size_negative 'config.json:4:18: ' 'edit "s/\"hidden_size\": 32/\"hidden_size\": -32/"'
refused config_size_twice 'occurs twice' 'edit "s/\"hidden_size\": 32/\"hidden_size\": 32, \"hidden_size\": 64/"'
refused config_heads 'does not divide' 'edit "s/\"num_key_value_heads\": 2/\"num_key_value_heads\": 3/"'
refused config_rope_type 'rope_type' 'edit "s/\"rope_type\": \"llama3\"/\"rope_type\": \"dynamic\"/"'
refused config_rope_not_an_object 'rope_scaling: expected an object with "rope_type"' 'edit "s/\"rope_scaling\": {.*},/\"rope_scaling\": 3,/"'
refused config_rope_by_layer 'rope_parameters: expected an object with "rope_type"' 'edit "s/\"rope_scaling\": {.*},/\"rope_parameters\": {\"full_attention\": {}},/"'

# matrices in float8: read again by eval and as the start of a run, and what has no such form is refused
train "$dir/low" --converters '[{"name":"blockwise"}]' && "$TTRUN" ckpt export --to hf --type fp8 "$dir/low" "$dir/fp8" 2>"$dir/err" && "$TTRUN" ckpt export --to hf "$dir/low" "$dir/whole" 2>"$dir/err" &&
    grep -aq '"model.layers.0.mlp.up_proj.weight_scale_inv":{"dtype":"F32","shape":\[1,1\]' "$dir/fp8/model.safetensors" && grep -aq '"lm_head.weight":{"dtype":"BF16"' "$dir/fp8/model.safetensors" &&
    [ "$(value "$dir/fp8/config.json" quantization_config.quant_method)" = fp8 ] && [ "$(value "$dir/fp8/config.json" quantization_config.modules_to_not_convert.0)" = lm_head ]
ok exports_float8
loss_of() { "$TTRUN" eval --checkpoint "$1" --data "$SRC/README.md" --samples 20 --json --tokenizer.name byte >"$dir/out" 2>"$dir/err" && value "$dir/out" loss; }
whole=$(loss_of "$dir/whole") low=$(loss_of "$dir/fp8")
[ "$whole" != "$low" ] && near "$low" "$whole" 0.01 && train "$dir/again" --checkpoint.initial_load_path "$dir/fp8" --checkpoint.initial_load_in_hf true && [ "$rc" -eq 0 ]
ok reads_float8_again
"$TTRUN" ckpt export --to gguf --type fp8 "$dir/low" "$dir/no" 2>"$dir/err"
[ $? -eq 2 ] && [ "$(grep -c . "$dir/err")" -eq 1 ] && grep -q -- '--type: fp8 is for the matrices of a Hugging Face folder' "$dir/err" && [ ! -e "$dir/no" ]
ok float8_is_for_hugging_face_folders

# compressed-tensors' forms: of the layers that the converter converts, read again to the same numbers
lower() { # NAME TYPE CONVERTER: trains with the converter, and exports the run in that type and in f32
    train "$dir/$1" --converters "$3" && "$TTRUN" ckpt export --to hf --type "$2" "$dir/$1" "$dir/$1.low" 2>"$dir/err" && ! grep -q ' W ' "$dir/err" &&
        "$TTRUN" ckpt export --to hf --type f32 "$dir/$1" "$dir/$1.whole" 2>"$dir/err" && "$TTRUN" ckpt export --to hf --type f32 "$dir/$1.low" "$dir/$1.again" 2>"$dir/err" && "$TTRUN" ckpt import --from hf "$dir/$1.low" "$dir/$1.own" 2>"$dir/err"
}
tensor() { grep -aq "\"$2\":{\"dtype\":\"$3\",\"shape\":\[$4\]" "$dir/$1.low/model.safetensors"; }
reads_again() { # NAME: the losses are equal but for those of the weights that are not rounded, which are near
    low=$(loss_of "$dir/$1.low") whole=$(loss_of "$dir/$1.whole")
    [ "$low" = "$(loss_of "$dir/$1.again")" ] && [ "$low" = "$(loss_of "$dir/$1.own")" ] && [ "$low" != "$whole" ] && near "$low" "$whole" 0.02
}
config() { value "$dir/$1.low/config.json" "quantization_config.$2"; }
lower rows fp8_row '[{"name":"float8","recipe":"rowwise","filter":["lm_head","layers.1.mlp.up_proj"]}]' && reads_again rows &&
    tensor rows model.layers.0.mlp.up_proj.weight F8_E4M3 48,32 && tensor rows model.layers.0.mlp.up_proj.weight_scale F32 48,1 && tensor rows model.layers.1.mlp.up_proj.weight BF16 48,32
ok exports_the_layers_that_are_converted_as_float8_rows
[ "$(config rows format)" = float-quantized ] && [ "$(config rows ignore.0)" = lm_head ] && [ "$(config rows ignore.2)" = model.layers.1.mlp.up_proj ] && [ "$(config rows ignore.3)" = "" ] &&
    [ "$(config rows config_groups.group_0.weights.strategy)" = channel ]
ok config_says_which_modules_are_float8_rows
lower four nvfp4 '[{"name":"nvfp4","filter":["lm_head"]}]' && reads_again four &&
    tensor four model.layers.0.mlp.up_proj.weight_packed U8 48,16 && tensor four model.layers.0.mlp.up_proj.weight_scale F8_E4M3 48,2 &&
    tensor four model.layers.0.mlp.up_proj.weight_global_scale F32 1 && tensor four lm_head.weight BF16 '[0-9]*,32' &&
    [ "$(config four format)" = nvfp4-pack-quantized ] && [ "$(config four config_groups.group_0.weights.group_size)" = 16 ]
ok exports_nvfp4_and_reads_it_again
"$TTRUN" ckpt export --to hf --type nvfp4 "$dir/low" "$dir/after" 2>"$dir/err" && grep -q 'W checkpoint\] the model was not trained with the converter nvfp4, so its weights are rounded now' "$dir/err" &&
    grep -aq '"model.layers.1.mlp.up_proj.weight_packed":' "$dir/after/model.safetensors" && grep -aq '"lm_head.weight":{"dtype":"BF16"' "$dir/after/model.safetensors"
ok rounds_the_weights_of_a_run_without_the_converter
"$TTRUN" ckpt export --to gguf --type nvfp4 "$dir/four" "$dir/no" 2>"$dir/err"
[ $? -eq 2 ] && grep -q -- '--type: nvfp4 is for the matrices of a Hugging Face folder' "$dir/err" && [ ! -e "$dir/no" ]
ok nvfp4_is_for_hugging_face_folders
train "$dir/none" --converters '[{"name":"nvfp4","filter":["proj","lm_head"]}]' && "$TTRUN" ckpt export --to hf --type nvfp4 "$dir/none" "$dir/no" 2>"$dir/err"
[ $? -eq 2 ] && [ "$(grep -c 'ttrun: --type: no matrix of model llama3 can be written so' "$dir/err")" -eq 1 ] && [ ! -e "$dir/no" ]
ok a_filter_that_leaves_nothing_is_refused

train "$dir/x" --checkpoint.initial_load_in_hf true
[ $rc -eq 2 ] && grep -qF 'checkpoint.initial_load_in_hf: needs checkpoint.initial_load_path' "$dir/err"
ok loading_hf_weights_needs_a_path
train "$dir/x" --checkpoint.last_save_in_hf true --checkpoint.enable false
[ $rc -eq 2 ] && grep -qF 'checkpoint.last_save_in_hf: nothing is saved' "$dir/err"
ok hf_export_needs_checkpoints_enabled
exit $failed
