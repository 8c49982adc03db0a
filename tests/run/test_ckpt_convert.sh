#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# ttrun ckpt diff, reshard, import, export. tests/peers/gguf_peer.py compares the files with the gguf package. Here import and
# export must undo each other, and files of another format, incomplete or of an unknown model give an error of one line.
. "$(dirname "$0")/lib.sh"
tool="$BUILD/tests/run/tensor_tool"
ckpt() { ttrun ckpt "$@" >"$dir/out" 2>"$dir/err"; rc=$?; }
hash_at() { "$tool" "$1" | awk -v n="$2" '$1 == n {print $3}'; } # FILE TENSOR
# refused NAME STATUS WORDS: of the command before
refused() {
    [ $rc -eq "$2" ] && one_line "$dir/err" && grep -qF -- "$3" "$dir/err"
    ok "$1"
}

train "$dir/a" --checkpoint.last_save_in_hf true --training.steps 3
[ $rc -eq 0 ]
ok a_run_to_convert
step=$dir/a/checkpoint/step-3 hf=$dir/a/hf/latest

# ---- diff ----
ckpt diff "$dir/a" "$step"
[ $rc -eq 0 ] && grep -q '^63 tensors, all equal$' "$dir/out"
ok diff_of_equal_checkpoints
train "$dir/b" --training.steps 3 --optimizer.lr 0.02
ckpt diff "$dir/a" "$dir/b"
[ $rc -eq 2 ] && grep -q '^model.norm.weight: 32 of 32 elements differ, by 0\.' "$dir/out" && grep -q 'tensors differ' "$dir/err"
ok diff_names_what_differs
ckpt diff "$dir/a" "$hf"
[ $rc -eq 2 ] && [ "$(wc -l <"$dir/out")" -eq 1 ] && grep -q "^[0-9]* optimizer states: only in $step" "$dir/out"
ok diff_with_a_hugging_face_folder
train "$dir/wide" --training.steps 1 --model.args.hidden_dim 64
ckpt diff "$dir/a" "$dir/wide"
[ $rc -eq 2 ] && grep -q '^model.layers.0.mlp.up_proj.weight: \[48,32\] and \[64,32\]$' "$dir/out"
ok diff_names_different_shapes
ckpt diff "$dir/a" "$dir/none"
refused diff_of_a_missing_folder 2 'none'

# ---- reshard ----
ckpt reshard --files 5 "$dir/a" "$dir/r"
[ $rc -eq 0 ] && [ "$(find "$dir/r/step-3" -name '*.safetensors' | wc -l)" -eq 5 ] && ttrun ckpt verify "$dir/r/step-3" >"$dir/out"
ok reshard_writes_the_requested_number_of_files
ckpt diff "$dir/r" "$dir/a"
[ $rc -eq 0 ]
ok reshard_changes_no_tensor
cp -r "$dir/a" "$dir/c"
rm -rf "$dir/c/checkpoint" && mkdir "$dir/c/checkpoint" && cp -r "$dir/r/step-3" "$dir/c/checkpoint/"
train "$dir/a" --training.steps 5
train "$dir/c" --training.steps 5
[ $rc -eq 0 ] && [ "$(losses "$dir/a/metrics.jsonl")" = "$(losses "$dir/c/metrics.jsonl")" ]
ok a_run_continues_from_it_bit_for_bit
ckpt reshard "$step" "$dir/r"
refused reshard_does_not_overwrite 2 'step-3 exists already'
ckpt reshard --files 0 "$step" "$dir/r0"
refused reshard_into_zero_files 2 '--files: expected 1'

# ---- Hugging Face in and out ----
ckpt import --from hf "$hf" "$dir/in"
[ $rc -eq 0 ] && ttrun ckpt verify "$dir/in/step-0" >"$dir/out"
ok import_of_a_hugging_face_folder
ckpt export --to hf "$dir/in" "$dir/again"
[ $rc -eq 0 ] && cmp -s "$hf/model.safetensors" "$dir/again/model.safetensors" && [ "$(value "$dir/again/config.json" num_key_value_heads)" = 2 ]
ok export_gives_back_the_imported_bytes
mv "$dir/a/hf" "$dir/a/away"
ttrun generate --checkpoint "$dir/in" --prompt line --max-tokens 4 --temperature 0 >"$dir/text1" 2>"$dir/err" &&
    ttrun generate --checkpoint "$step" --prompt line --max-tokens 4 --temperature 0 >"$dir/text2" 2>>"$dir/err" && cmp -s "$dir/text1" "$dir/text2"
ok an_imported_model_does_not_need_its_folder
cp -r "$dir/in" "$dir/start" && mkdir "$dir/start/checkpoint" && mv "$dir/start/step-0" "$dir/start/checkpoint" && train "$dir/start" --training.steps 1
[ $rc -eq 0 ] && grep -q 'resumed from .*step-0' "$dir/err" && grep -q 'differs from the job that wrote it: model.flavor' "$dir/err" && ! grep 'differs from the job that wrote it: \(training\|optimizer\|checkpoint\|dump_folder\|metrics\)' "$dir/err"
ok a_run_from_an_import_names_what_differs_of_the_model
mv "$dir/a/away" "$dir/a/hf"
ckpt import --from hf "$hf" "$dir/in"
refused import_does_not_overwrite 2 'in/step-0 exists already'
ckpt export --to hf "$step" "$dir/again"
refused export_does_not_overwrite 2 'again exists already'

# ---- Meta's names: the bytes of the Hugging Face file under them, so that import turns q and k, and GGUF turns them back ----
meta=$dir/meta
# renamed FILE OLD NEW: in its header, as long as before by blanks behind; N is the number of a block
renamed() {
    n=0
    while [ $n -le 1 ]; do
        old=$(echo "$2" | sed "s/N/$n/") new=$(echo "$3" | sed "s/N/$n/")
        blanks=$(printf '%*s' $((${#old} - ${#new})) '')
        LC_ALL=C sed -i "s/\"$old\":/\"$new\":$blanks/" "$1"
        n=$((n + 1))
    done
}
to_meta() {
    renamed "$1" model.embed_tokens.weight tok_embeddings.weight
    renamed "$1" model.norm.weight norm.weight
    renamed "$1" lm_head.weight output.weight
    for pair in self_attn.q_proj:attention.wq self_attn.k_proj:attention.wk self_attn.v_proj:attention.wv self_attn.o_proj:attention.wo \
        mlp.gate_proj:feed_forward.w1 mlp.down_proj:feed_forward.w2 mlp.up_proj:feed_forward.w3 \
        input_layernorm:attention_norm post_attention_layernorm:ffn_norm; do
        renamed "$1" "model.layers.N.${pair%%:*}.weight" "layers.N.${pair#*:}.weight"
    done
}
mkdir "$meta"
cp "$hf/model.safetensors" "$meta/consolidated.safetensors"
to_meta "$meta/consolidated.safetensors"
params='"dim": 32, "n_layers": 2, "n_heads": 4, "n_kv_heads": 2, "hidden_dim": 48, "norm_eps": 1e-5, "rope_theta": 500000.0'
scaled='"use_scaled_rope": true, "rope_scaling_factor": 8'
echo "{$params, \"vocab_size\": -1, $scaled}" >"$meta/params.json"
ckpt import --from meta "$meta" "$dir/m"
[ $rc -eq 0 ] && [ "$("$tool" "$meta/consolidated.safetensors" | wc -l)" -eq 21 ]
ok import_of_metas_names
ckpt diff "$dir/m" "$dir/in"
[ $rc -eq 2 ] && [ "$(wc -l <"$dir/out")" -eq 4 ] && [ "$(grep -c 'self_attn.[qk]_proj.weight' "$dir/out")" -eq 4 ]
ok only_rows_of_queries_and_keys_are_permuted
ckpt export --to gguf "$dir/m" "$dir/m.gguf"
[ $rc -eq 0 ] && [ -n "$(hash_at "$dir/m.gguf" blk.1.attn_k.weight)" ]
for pair in attn_q:attention.wq attn_k:attention.wk attn_v:attention.wv attn_output:attention.wo ffn_gate:feed_forward.w1 \
    ffn_up:feed_forward.w3 ffn_down:feed_forward.w2 attn_norm:attention_norm ffn_norm:ffn_norm; do
    [ "$(hash_at "$dir/m.gguf" "blk.1.${pair%%:*}.weight")" = "$(hash_at "$meta/consolidated.safetensors" "layers.1.${pair#*:}.weight")" ] || rc=9
done
[ $rc -eq 0 ] && [ "$("$tool" "$dir/m.gguf" | awk '$1 == "blk.0.ffn_up.weight" {print $2}')" = 32,48 ]
ok gguf_export_permutes_them_back
titan=$dir/titan
mkdir "$titan" && cp "$meta/consolidated.safetensors" "$titan/model.safetensors"
ckpt import --from torchtitan "$titan" "$dir/t" \
    --model.args '{"dim": 32, "n_layers": 2, "n_heads": 4, "n_kv_heads": 2, "hidden_dim": 48, "vocab_size": 262}'
ckpt diff "$dir/t" "$dir/m"
[ $rc -eq 0 ]
ok import_of_torchtitans_format

# ---- torch.distributed.checkpoint ----
# tests/peers/dcp_peer.py opens such folders with PyTorch. Here the optimizer and the step must come back too.
args='{"dim": 32, "n_layers": 2, "n_heads": 4, "n_kv_heads": 2, "hidden_dim": 48, "vocab_size": 262}'
for form in dcp torchtitan; do
    ckpt export --to $form "$step" "$dir/$form" && ckpt import --from $form "$dir/$form" "$dir/$form.in/checkpoint" --model.args "$args" &&
        ckpt diff "$dir/$form.in" "$step"
    [ $rc -eq 0 ] && grep -q '^63 tensors, all equal$' "$dir/out"
    ok "round_trip_by_$form"
done
# a job file says the sizes as well as --model.args; what is given on the command line wins; the job's mesh and data are no matter
sed 's/"text.txt"/"none.txt"/; s/"backend"/"parallelism": { "data_parallel_shard_degree": 4 }, "backend"/' "$job" >"$dir/theirs.json"
for form in dcp torchtitan; do
    ckpt import --from $form "$dir/$form" "$dir/$form.job/checkpoint" "$dir/theirs.json" && ckpt diff "$dir/$form.job" "$step"
    [ $rc -eq 0 ] && grep -q '^63 tensors, all equal$' "$dir/out"
    ok "a_job_gives_the_sizes_of_$form"
done
train "$dir/dcp.job" --training.steps 5
[ $rc -eq 0 ] && [ "$(losses "$dir/a/metrics.jsonl" | tail -n 2)" = "$(losses "$dir/dcp.job/metrics.jsonl")" ]
ok the_job_goes_on_from_there
# so do its dtype and its adapters: the training goes on to the bit with the adapters, their states and bf16 weights
lora='[{"name": "lora", "rank": 3, "alpha": 6}]'
for kind in adapters bf16 codes; do
    case $kind in
    adapters) sed 's/"steps": 10/"steps": 4/; 1s/{/{ "converters": '"$lora"',/' "$job" >"$dir/$kind.json" ;;
    codes) sed 's/"lora"/"qlora"/' "$dir/adapters.json" >"$dir/$kind.json" ;;
    *) sed 's/"steps": 10/"steps": 4, "dtype": "bfloat16"/' "$job" >"$dir/$kind.json" ;;
    esac
    ttrun "$dir/$kind.json" --dump_folder "$dir/$kind" --checkpoint.interval 2 >"$dir/out" 2>"$dir/err" &&
        ckpt export --to dcp "$dir/$kind/checkpoint/step-2" "$dir/$kind.dcp" && ckpt import --from dcp "$dir/$kind.dcp" "$dir/$kind.in/checkpoint" "$dir/$kind.json" &&
        ! grep -q ignored "$dir/err" && ttrun "$dir/$kind.json" --dump_folder "$dir/$kind.in" >"$dir/out" 2>"$dir/err" &&
        grep -q 'resumed from .*/step-2' "$dir/err" && ckpt diff "$dir/$kind.in/checkpoint/step-4" "$dir/$kind/checkpoint/step-4"
    [ $? -eq 0 ] && grep -q ' tensors, all equal$' "$dir/out"
    ok "a_job_says_that_there_are_$kind"
done
ckpt import --from dcp "$dir/adapters.dcp" "$dir/base" "$job"
refused what_an_import_would_lose_is_an_error 2 '28 tensors are not of this model: model.layers.{0-1}.mlp.down_proj.lora_A.weight'
ckpt import --from dcp "$dir/adapters.dcp" "$dir/base" "$job" --checkpoint.initial_load_strict false
[ $rc -eq 0 ] && [ "$(grep -c '84 tensors not of this model ignored: .*lora_A' "$dir/err")" -eq 1 ] && [ -d "$dir/base/step-0" ]
ok what_an_import_leaves_out_is_named
ckpt import --from torchtitan "$dir/torchtitan" "$dir/begin/checkpoint" "$dir/adapters.json"
[ $rc -eq 0 ] && ! grep -q ignored "$dir/err"
ok adapters_that_are_not_there_yet
sed 's/"hidden_dim": 48/"hidden_dim": 64/' "$job" >"$dir/wrong.json"
ckpt import --from dcp "$dir/dcp" "$dir/x" "$dir/wrong.json"
[ $rc -eq 2 ] && one_line "$dir/err" && ! [ -e "$dir/x" ]
ok a_job_with_other_sizes_is_refused
ckpt import --from dcp "$dir/dcp" "$dir/wins" "$dir/wrong.json" --model.args.hidden_dim 48
[ $rc -eq 0 ]
ok the_command_line_wins
# model.hf of a job is the folder that says the sizes, and the spec; so is that of the command line
echo '{"model": {"hf": "a/hf/latest"}, "tokenizer": {"name": "byte"}}' >"$dir/named.json" && sed 's/"model_type": "llama"/"model_type": "qwen2"/; /attention_bias/d' "$hf/config.json" >"$dir/qwen.json"
mkdir "$dir/qwen" && cp "$dir/qwen.json" "$dir/qwen/config.json"
ckpt import --from dcp "$dir/dcp" "$dir/named/checkpoint" "$dir/named.json" && ckpt diff "$dir/named" "$step" && [ $rc -eq 0 ] && ckpt import --from torchtitan "$dir/torchtitan" "$dir/named2/checkpoint" --model.hf "$hf" --tokenizer.name byte &&
    ckpt diff "$dir/named2" "$step" && [ $rc -eq 0 ] && [ "$(value "$dir/named/checkpoint/step-3/trainer.json" job.model.hf_assets_path)" = "$(realpath "$dir/named/checkpoint")/model" ]
ok model_hf_of_a_job_gives_the_sizes
ckpt import --from dcp "$dir/dcp" "$dir/x/y/checkpoint" --model.hf "$dir/qwen"
[ $rc -eq 2 ] && one_line "$dir/err" && grep -q "no tensor 'model.layers.0.self_attn.q_proj.bias'\|q_proj.bias" "$dir/err" && ! [ -e "$dir/x" ]
ok and_the_spec_and_a_refusal_leaves_no_folder
ckpt import --from dcp "$dir/dcp" "$dir/x" "$dir/no-job.json"
refused import_with_a_missing_job 2 'no-job.json'
ckpt import --from hf "$hf" "$dir/x" "$job"
refused import_of_a_folder_that_says_its_sizes 2 "says the sizes of its model itself; leave $job out"
ckpt export --to dcp "$step" "$dir/x" "$job"
refused export_takes_no_job 2 'usage'
train "$dir/dcp.in" --training.steps 5
[ $rc -eq 0 ] && [ "$(losses "$dir/a/metrics.jsonl" | tail -n 2)" = "$(losses "$dir/dcp.in/metrics.jsonl")" ]
ok a_run_continues_from_dcp_bit_for_bit
ckpt export --to dcp --type bf16 "$step" "$dir/x"
refused dcp_has_the_checkpoints_dtypes 2 'PyTorch converts them'
ckpt export --to torchtitan "$step" "$dir/dcp"
refused dcp_export_does_not_overwrite 2 'dcp exists already'
mv "$dir/dcp/__0_0.distcp" "$dir/away"
ckpt import --from dcp "$dir/dcp" "$dir/x" --model.args "$args"
refused items_that_are_not_there 2 '.metadata says that it holds'
head -c 20000 "$dir/away" >"$dir/dcp/__0_0.distcp"
ckpt import --from dcp "$dir/dcp" "$dir/x" --model.args "$args"
refused items_that_are_cut_short 2 'cut short; copy it again'
[ ! -e "$dir/x" ]
ok a_refused_import_leaves_nothing

# ---- GGUF ----
for type in f32 f16 bf16 q8_0; do
    ckpt export --to gguf --type $type "$dir/a" "$dir/$type.gguf"
    [ $rc -eq 0 ] && [ "$(head -c 4 "$dir/$type.gguf")" = GGUF ] && ! [ -e "$dir/$type.gguf.tmp" ]
    ok "export_to_gguf_$type"
done
[ "$(wc -c <"$dir/f16.gguf")" -eq "$(wc -c <"$dir/bf16.gguf")" ] && [ "$(wc -c <"$dir/q8_0.gguf")" -lt "$(wc -c <"$dir/f16.gguf")" ]
ok smaller_types_are_smaller

# ---- what is refused ----
ckpt import --from pickle "$meta" "$dir/x"
refused from_unknown_format 2 '--from: expected hf, meta, torchtitan or dcp, got "pickle"'
ckpt import "$meta" "$dir/x"
refused from_is_missing 2 '--from is missing'
ckpt export --to onnx "$dir/a" "$dir/x"
refused to_unknown_format 2 '--to: expected hf, gguf, dcp or torchtitan, got "onnx"'
ckpt export --to gguf --type q4_k "$dir/a" "$dir/x"
refused unknown_type 2 '--type: expected f32, f16, bf16, fp8, fp8_row, nvfp4 or q8_0'
ckpt export --to hf --type q8_0 "$dir/a" "$dir/x"
refused hf_export_has_no_q8_0 2 'written in f32, f16, bf16, fp8, fp8_row or nvfp4'
ckpt export --to gguf "$dir/none" "$dir/x"
refused export_of_a_missing_folder 2 'no such folder'
ckpt import --from hf "$dir/none" "$dir/x"
refused import_of_a_missing_folder 2 'none'
ckpt import --from hf "$meta" "$dir/x"
refused no_config 2 'config.json'
sed 's/"llama"/"bert"/' "$hf/config.json" >"$meta/config.json"
ckpt import --from hf "$meta" "$dir/x"
refused unknown_model_type 2 'no model plugin reads model_type "bert"'
rm "$meta/config.json"
ckpt import --from torchtitan --spec gpt2 "$titan" "$dir/x"
refused model_without_metas_names 2 "model gpt2 cannot read torchtitan's tensor names; use --spec deepseek_v3 or --spec gpt_oss"
mkdir "$dir/pth" && echo '{}' >"$dir/pth/params.json" && echo pickle >"$dir/pth/consolidated.00.pth"
ckpt import --from meta "$dir/pth" "$dir/x"
refused metas_pickles_are_refused 2 "Meta's consolidated.*.pth are Python pickles, which ttrun does not run"
mkdir "$dir/odd" && echo pickle >"$dir/odd/.metadata" && echo pickle >"$dir/odd/__0_0.distcp"
ckpt import --from torchtitan "$dir/odd" "$dir/x"
refused a_metadata_that_is_no_pickle 2 'opcode PUT, which weights do not need'
spoil() { # NAME WORDS PARAMS
    echo "$3" >"$meta/params.json"
    ckpt import --from meta "$meta" "$dir/x"
    refused "$1" 2 "$2"
}
spoil params_no_json 'params.json:2:1:' '{'
spoil params_list 'expected an object' '[1]'
spoil params_of_a_mixture 'params.json:1:9: moe: model llama3 has no such argument' '{"moe": {"num_experts": 8}}'
spoil params_no_factor 'use_scaled_rope: the file does not say by which factor' "{$params, \"use_scaled_rope\": true}"
spoil params_twice 'key "hidden_dim" occurs twice' "{$params, \"hidden_dim\": 64}"
spoil params_hidden_differs "tensor 'layers.0.feed_forward.w1.weight'" "$(echo "{$params}" | sed 's/"hidden_dim": 48/"hidden_dim": 64/')"
spoil params_text_for_number 'expected' "$(echo "{$params}" | sed 's/"dim": 32/"dim": "x"/')"
echo "{$params, \"vocab_size\": 262, $scaled}" >"$meta/params.json"
cp "$meta/consolidated.safetensors" "$meta/consolidated.01.safetensors"
ckpt import --from meta "$meta" "$dir/x"
refused more_parts_than_the_model_has 2 'is not one of 2 equal parts of the model'
rm "$meta/consolidated.01.safetensors"
sed -i 's/"layers.1.attention.wk.weight"/"layers.1.attention.wx.weight"/' "$meta/consolidated.safetensors"
ckpt import --from meta "$meta" "$dir/x"
refused a_missing_tensor 2 "no tensor 'layers.1.attention.wk.weight'"
head -c 4000 "$titan/model.safetensors" >"$meta/consolidated.safetensors"
ckpt import --from meta "$meta" "$dir/x"
refused a_file_cut_short 2 'consolidated.safetensors'
[ -z "$(find "$dir/x" -name 'step-*' 2>/dev/null)" ]
ok failed_commands_leave_no_files
exit $failed
