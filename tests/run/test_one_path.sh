#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A Hugging Face folder as the whole fine-tuning job, what an export keeps of it, and run folders that need nothing outside
# themselves. tests/peers/one_path_peer.py does the same with transformers' own folders.
. "$(dirname "$0")/lib.sh"
awk 'BEGIN {
    printf "{\"added_tokens\":[{\"id\":257,\"content\":\"<x>\",\"special\":true},{\"id\":258,\"content\":\"<end>\",\"special\":true}],\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false},"
    printf "\"model\":{\"type\":\"BPE\",\"merges\":[[\"H\",\"i\"]],\"vocab\":{\"Hi\":256"
    for (b = 0; b < 256; b++)
        printf ",\"\\u%04x\":%d", (b > 32 && b < 127) || (b > 160 && b != 173) ? b : 256 + other++, b
    printf "}}}\n"
}' >"$dir/tokenizer.json"
mkdir "$dir/hf" && cp "$dir/tokenizer.json" "$dir/hf" || exit 1
printf '{"bos_token": "<end>", "eos_token": "<end>", "model_max_length": 1000000000000000019884624838656}' >"$dir/hf/tokenizer_config.json"
printf 'a template' >"$dir/hf/chat_template.jinja"
printf '{"<added>": 259}' >"$dir/hf/added_tokens.json"
printf '{"_from_model_config": true, "eos_token_id": [258, 3], "max_new_tokens": 7}' >"$dir/hf/generation_config.json"
cat >"$dir/hf/config.json" <<'JSON'
{
  "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 32, "intermediate_size": 48,
  "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 262, "hidden_act": "silu",
  "max_position_embeddings": 512, "rms_norm_eps": 1e-05, "bos_token_id": 258, "eos_token_id": [258, 3],
  "rope_parameters": {"rope_theta": 20000.0, "rope_type": "default"}, "a_key_of_others": {"x": [1, null]}, "dtype": "bfloat16",
  "tie_word_embeddings": false
}
JSON
go() { # FOLDER OPTION...
    where=$1
    shift
    ttrun --training.local_batch_size 2 --training.steps 2 --dataloader.path "$dir/text.txt" --backend.threads 1 \
        --dump_folder "$where" "$@" >"$dir/out" 2>"$dir/err"
    rc=$?
}
key() { value "$1/run.json" "job.$2"; }
export_to() { # FROM OUT OPTION...
    "$TTRUN" ckpt export --to hf --plugin-dir "$PLUGINS" "$@" >"$dir/out" 2>"$dir/err"
    rc=$?
}
says() { # FILE TEXT
    grep -qF -e "$2" "$1" || { echo "    not in $1: $2"; false; }
}

# ---- the job ----
go "$dir/a" "$dir/hf"
[ $rc -eq 0 ] && [ "$(key "$dir/a" spec)" = llama3 ] && [ "$(key "$dir/a" model.flavor)" = hf ] &&
    [ "$(key "$dir/a" training.seq_len)" = 512 ] && [ "$(key "$dir/a" tokenizer.path)" = "$dir/hf/tokenizer.json" ]
ok a_folder_in_place_of_the_job
says "$dir/err" "weights: random, $dir/hf has no model.safetensors" && says "$dir/err" "sequences of 512 tokens"
ok what_is_missing_is_said
export_to "$dir/a" "$dir/weights" --type f32 && cp "$dir/weights/model.safetensors" "$dir/hf"
go "$dir/b" --model.hf "$dir/hf" --optimizer.lr 0 --lr_scheduler.warmup_steps 0 --checkpoint.last_save_in_hf true
[ $rc -eq 0 ] && says "$dir/err" "weights: $dir/hf (Hugging Face's)" && ! grep -q ' W ' "$dir/err"
ok model_hf_on_the_command_line
ttrun config "$dir/hf" --training.seq_len 64 >"$dir/out" 2>"$dir/err" && says "$dir/out" '"spec": "llama3", // model.hf' &&
    says "$dir/out" '"flavor": "hf", // model.hf' && says "$dir/out" '"seq_len": 64, // --training.seq_len' &&
    says "$dir/out" "\"initial_load_path\": \"$dir/hf\", // model.hf" && says "$dir/out" '"name": "hf", // model.hf'
ok config_shows_what_follows_from_the_folder
mkdir "$dir/jobs" && printf '{"model": {"hf": "../hf"}, "tokenizer": {"name": "byte"}, "spec": "llama3", "dataloader": {"path": "../text.txt"},
    "training": {"steps": 1, "seq_len": 32, "local_batch_size": 2}, "dump_folder": "../c"}' >"$dir/jobs/job.json"
(cd / && ttrun "$dir/jobs/job.json" >"$dir/out" 2>"$dir/err") && [ "$(key "$dir/c" tokenizer.name)" = byte ] &&
    says "$dir/err" "the tokenizer is \"byte\", not the model's own" && [ "$(key "$dir/c" model.hf)" = "$dir/hf" ]
ok a_key_of_the_job_wins_and_paths_start_at_the_job
(cd "$dir" && ttrun plan hf --json >out 2>err) && [ "$(value "$dir/out" parameters)" -gt 1000 ]
ok plan_of_a_folder
ttrun data show "$dir/hf" --dataloader.path "$dir/text.txt" --training.seq_len 16 >"$dir/out" 2>"$dir/err"
ok data_show_of_a_folder
mkdir "$dir/bare" && cp "$dir/hf/config.json" "$dir/bare"
go "$dir/e" "$dir/bare" --training.seq_len 32
[ $rc -eq 0 ] && says "$dir/err" "tokenizer: byte, $dir/bare has sizes alone" && says "$dir/err" "weights: random, $dir/bare has no"
ok a_folder_of_sizes_alone
sed -i 's/"llama"/"none_such"/' "$dir/bare/config.json"
go "$dir/f" "$dir/bare"
[ $rc -eq 2 ] && says "$dir/err" 'no model plugin reads model_type "none_such" (there are: ' && says "$dir/err" 'qwen3'
ok an_unknown_type_lists_what_there_is
go "$dir/f" --model.hf "$dir/none"
[ $rc -eq 2 ] && says "$dir/err" "--model.hf: there is no $dir/none/config.json, nor its folder" && [ "$(wc -l <"$dir/err")" -eq 1 ]
ok no_folder_is_one_line
go "$dir/f" --model.hf ''
[ $rc -eq 2 ] && says "$dir/err" 'model.hf: expected a name'
ok an_empty_path_is_refused

# ---- the export ----
hf=$dir/b/hf/latest
[ "$(value "$hf/config.json" max_position_embeddings)" = 512 ] && [ "$(value "$hf/config.json" dtype)" = bfloat16 ] &&
    [ "$(value "$hf/config.json" rope_parameters.rope_theta)" = 20000 ] &&
    says "$hf/config.json" '{"x": [1, null]}' && says "$hf/config.json" '"rope_theta": 20000.0' && says "$hf/config.json" '"eos_token_id": [258, 3]' && ! grep -q '^  "rope_theta"\|torch_dtype' "$hf/config.json"
ok export_keeps_the_sources_keys
cmp -s "$dir/hf/generation_config.json" "$hf/generation_config.json" && cmp -s "$dir/hf/chat_template.jinja" "$hf/chat_template.jinja" &&
    cmp -s "$dir/hf/added_tokens.json" "$hf/added_tokens.json" && cmp -s "$dir/hf/tokenizer.json" "$hf/tokenizer.json"
ok export_has_generation_config_and_tokenizer_files
export_to "$dir/b" "$dir/b2" && [ $rc -eq 0 ] && diff -r "$hf/" "$dir/b2" >"$dir/diff"
ok ckpt_export_writes_the_same_files
export_to "$dir/b" "$dir/b3" --type f32 && [ "$(value "$dir/b3/config.json" dtype)" = float32 ] &&
    cmp -s "$dir/hf/model.safetensors" "$dir/b3/model.safetensors"
ok export_in_f32_on_request
export_to "$dir/hf" "$dir/h16" --type f16 && [ "$(value "$dir/h16/config.json" dtype)" = float16 ] &&
    [ "$(wc -c <"$dir/h16/model.safetensors")" -lt "$(($(wc -c <"$dir/hf/model.safetensors") * 6 / 10))" ] && ! ls "$dir" | grep -q '\.tmp$'
ok a_hugging_face_folder_is_a_source_too
"$TTRUN" ckpt export --to gguf --plugin-dir "$PLUGINS" "$dir/hf" "$dir/m.gguf" >"$dir/out" 2>"$dir/err" && [ -s "$dir/m.gguf" ]
ok a_hugging_face_folder_becomes_gguf
export_to "$dir/b" "$dir/no" --type q8_0
[ $rc -eq 2 ] && says "$dir/err" 'f32, f16, bf16, fp8, fp8_row or nvfp4' && ! [ -e "$dir/no" ]
ok q8_0_is_not_hugging_faces
ttrun generate --checkpoint "$dir/m.gguf" --prompt a >"$dir/out" 2>"$dir/err"
[ $? -eq 2 ] && says "$dir/err" 'GGUF files are written, not read'
ok gguf_is_not_read
go "$dir/g" "$dir/hf" --model.args.rope_theta 30000 --training.seq_len 64 --checkpoint.last_save_in_hf true --checkpoint.export_dtype float32
[ $rc -eq 0 ] && [ "$(value "$dir/g/hf/latest/config.json" rope_theta)" = 30000 ] && ! grep -q rope_parameters "$dir/g/hf/latest/config.json" &&
    [ "$(value "$dir/g/hf/latest/config.json" max_position_embeddings)" = 512 ] && [ "$(value "$dir/g/hf/latest/config.json" dtype)" = float32 ]
ok a_changed_argument_is_exported
export_to "$dir/c" "$dir/c2" && [ "$(value "$dir/c2/config.json" eos_token_id)" = 257 ] && ! [ -e "$dir/c2/tokenizer.json" ]
ok another_tokenizer_is_not_exported

# ---- run folders ----
text() { # FOLDER OPTION...
    (cd / && ttrun generate --checkpoint "$@" --prompt 'line 3' --temperature 0 --max-tokens 12 2>>"$dir/err")
}
[ "$(text "$dir/b")" = "$(text "$hf")" ] && [ -n "$(text "$dir/b")" ]
ok run_and_export_give_the_same_text
ttrun generate --model.hf "$hf" --prompt 'line 3' --temperature 0 --max-tokens 12 >"$dir/out" 2>"$dir/err" && [ "$(cat "$dir/out")" = "$(text "$hf")" ]
ok generate_takes_model_hf
grep -q '"tokenizer/tokenizer.json":"[0-9a-f]\{32\}"' "$dir/b/run.json" &&
    grep -q '"model/config.json":"[0-9a-f]\{32\}"' "$dir/b/run.json"
ok run_json_has_the_hashes_of_the_copies
before=$(text "$dir/b")
mv "$dir/hf" "$dir/gone" && mv "$dir/b" "$dir/moved"
[ "$(text "$dir/moved")" = "$before" ] && export_to "$dir/moved" "$dir/b4" && [ $rc -eq 0 ] && diff -r "$dir/b2" "$dir/b4"
ok a_moved_run_needs_nothing_else
(cd / && ttrun eval --checkpoint "$dir/moved" --data "$dir/text.txt" >"$dir/out" 2>"$dir/err") && says "$dir/out" loss
ok eval_from_another_folder
mv "$dir/gone" "$dir/hf" && mv "$dir/moved" "$dir/b" && go "$dir/b" --model.hf "$dir/hf" --resume never --training.steps 1 &&
    [ "$(text "$dir/b/before-1")" = "$before" ] && cmp -s "$dir/b/before-1/tokenizer/tokenizer.json" "$dir/b/tokenizer/tokenizer.json"
ok a_run_set_aside_is_complete_too
# ---- a source that is gone: the run goes on, if it has a checkpoint ----
cp -r "$dir/hf" "$dir/lent" && go "$dir/own" "$dir/lent" --training.steps 2 && cp -r "$dir/own" "$dir/whole" && go "$dir/whole" "$dir/lent" --training.steps 4 &&
    printf '{"model": {"hf": "lent"}, "dataloader": {"path": ["text.txt"]}}' >"$dir/lent.json" && rm -r "$dir/lent"
go "$dir/own" "$dir/lent.json" --training.steps 4 --comm.backend shm
[ $rc -eq 0 ] && [ "$(grep -c "model.hf: $dir/lent is gone; the run's own copy of its config is used, $dir/own/model" "$dir/err")" -eq 1 ] &&
    says "$dir/err" "next is step 3" && [ "$(hash_of "$dir/own/checkpoint/step-4")" = "$(hash_of "$dir/whole/checkpoint/step-4")" ] &&
    cmp -s "$dir/whole/tokenizer/tokenizer.json" "$dir/own/tokenizer/tokenizer.json"
ok a_run_goes_on_without_its_source
go "$dir/own" "$dir/lent.json" --training.steps 5 --nproc 2 --comm.backend shm
[ $rc -eq 0 ] && [ "$(grep -c 'is gone; the run' "$dir/err")" -eq 1 ]
ok once_for_two_processes
go "$dir/own" "$dir/lent.json" --training.steps 5 --resume never
[ $rc -eq 2 ] && one_line "$dir/err" && says "$dir/err" "$dir/lent: no model.safetensors" && ! [ -e "$dir/own/before-1" ]
ok a_run_that_begins_anew_needs_its_source
rm -r "$dir/own/checkpoint"
go "$dir/own" "$dir/lent.json" --training.steps 5
[ $rc -eq 2 ] && one_line "$dir/err" && says "$dir/err" "$dir/lent: no model.safetensors"
ok a_run_without_a_checkpoint_needs_the_weights
go "$dir/own" "$dir/lent.json" --model.hf "$dir/lent2"
[ $rc -eq 2 ] && one_line "$dir/err" && says "$dir/err" "there is no $dir/lent2/config.json"
ok the_copy_of_another_source_is_not_taken

# ---- an imported folder gives back what it had, moved and without its source ----
cp -r "$dir/hf" "$dir/source" && ttrun ckpt import --from hf "$dir/source" "$dir/in" >"$dir/out" 2>"$dir/err" && mv "$dir/source" "$dir/gone" && mv "$dir/in" "$dir/in2" &&
    export_to "$dir/in2" "$dir/back" && [ $rc -eq 0 ] && [ "$(value "$dir/back/config.json" a_key_of_others.x.0)" = 1 ] &&
    [ "$(value "$dir/back/config.json" max_position_embeddings)" = 512 ] && [ "$(value "$dir/back/config.json" dtype)" = bfloat16 ] &&
    cmp -s "$dir/gone/generation_config.json" "$dir/back/generation_config.json" && cmp -s "$dir/gone/chat_template.jinja" "$dir/back/chat_template.jinja"
ok import_keeps_the_keys_of_the_config
ttrun generate --checkpoint "$dir/in2" --prompt Hi --max-tokens 2 --temperature 0 >"$dir/out" 2>"$dir/err"
ok and_its_tokenizer
ttrun ckpt import --from hf "$dir/hf" "$dir/imported" >"$dir/out" 2>"$dir/err" && says "$dir/err" "$dir/hf/config.json: keys that model llama3 does not read, and that an export gives back: a_key_of_others" &&
    [ "$(grep -c . "$dir/err")" -eq 2 ] && ! says "$dir/err" hidden_act >"$dir/out"
ok an_import_names_keys_that_it_does_not_read
exit $failed
