#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Folders as the Hugging Face hub has them: ids of models in the hub's local cache, tokenizers that cannot be read, and special
# tokens for which the model has no row.
. "$(dirname "$0")/lib.sh"
says() { # FILE TEXT
    grep -qF -e "$2" "$1" || { echo "    not in $1: $2"; false; }
}
awk 'BEGIN {
    printf "{\"added_tokens\":[{\"id\":257,\"content\":\"<end>\",\"special\":true},{\"id\":258,\"content\":\"<img>\",\"special\":true}],"
    printf "\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false},\"model\":{\"type\":\"BPE\",\"merges\":[[\"H\",\"i\"]],\"vocab\":{\"Hi\":256"
    for (b = 0; b < 256; b++)
        printf ",\"\\u%04x\":%d", (b > 32 && b < 127) || (b > 160 && b != 173) ? b : 256 + other++, b
    printf "}}}\n"
}' >"$dir/tokenizer.json"
config() { # VOCABULARY
    printf '{"model_type": "llama", "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1, "num_attention_heads": 2,
        "num_key_value_heads": 2, "vocab_size": %s, "max_position_embeddings": 64, "rms_norm_eps": 1e-05, "tie_word_embeddings": false}' "$1"
}
folder() { # FOLDER VOCABULARY: with a tokenizer of 259 ids, of which 258 is <img>
    mkdir -p "$1" && config "$2" >"$1/config.json" && cp "$dir/tokenizer.json" "$1" && printf '{"eos_token": "<end>"}' >"$1/tokenizer_config.json"
}
go() { # FOLDER OPTION...
    where=$1
    shift
    ttrun --training.local_batch_size 2 --training.steps 1 --dataloader.path "$dir/text.txt" --backend.threads 1 --dump_folder "$where" "$@" >"$dir/out" 2>"$dir/err"
    rc=$?
}

# ---- ids of the hub ----
export HF_HOME="$dir/home"
unset HF_HUB_CACHE HUGGINGFACE_HUB_CACHE XDG_CACHE_HOME
repo=$dir/home/hub/models--some-org--a.model_1
folder "$repo/snapshots/0123abc" 260
mkdir "$repo/refs" && printf 0123abc >"$repo/refs/main"
cd "$dir" || exit 1
go "$dir/a" some-org/a.model_1
[ $rc -eq 0 ] && [ "$(value "$dir/a/run.json" job.model.hf)" = "$repo/snapshots/0123abc" ] &&
    [ "$(value "$dir/a/run.json" job.tokenizer.path)" = "$repo/snapshots/0123abc/tokenizer.json" ]
ok an_id_of_the_hub_is_its_folder_in_the_cache
mkdir "$dir/jobs" && printf '{"model": {"hf": "some-org/a.model_1"}}' >"$dir/jobs/job.json"
go "$dir/b" "$dir/jobs/job.json"
[ $rc -eq 0 ] && [ "$(value "$dir/b/run.json" job.model.hf)" = "$repo/snapshots/0123abc" ]
ok an_id_in_a_job
printf 'Hi' | ttrun tokenize --tokenizer some-org/a.model_1 >"$dir/out" 2>"$dir/err" && [ "$(cat "$dir/out")" = 256 ]
ok a_tokenizer_by_its_id
HF_HOME=$dir/nowhere HF_HUB_CACHE=$dir/home/hub ttrun plan some-org/a.model_1 --json >"$dir/out" 2>"$dir/err"
ok another_cache
mkdir -p "$dir/jobs/some-org" && folder "$dir/jobs/some-org/a.model_1" 261
go "$dir/c" "$dir/jobs/job.json"
[ $rc -eq 0 ] && [ "$(value "$dir/c/run.json" job.model.hf)" = "$dir/jobs/some-org/a.model_1" ]
ok a_folder_that_is_there_wins
go "$dir/d" some-org/other
[ $rc -eq 2 ] && [ "$(wc -l <"$dir/err")" -eq 1 ] && says "$dir/err" "some-org/other: there is no such job file or folder; a model of the Hugging Face hub is downloaded first, by: hf download some-org/other (looked in $dir/home/hub)"
ok a_model_that_is_not_there_says_how_to_get_it
go "$dir/d" --model.hf some-org/other
[ $rc -eq 2 ] && [ "$(wc -l <"$dir/err")" -eq 1 ] && says "$dir/err" "hf download some-org/other"
ok so_does_the_key
ttrun generate some-org/other --prompt x >"$dir/out" 2>"$dir/err"
[ $? -eq 2 ] && [ "$(wc -l <"$dir/err")" -eq 1 ] && says "$dir/err" "hf download some-org/other"
ok so_does_generate
printf ../../../../etc >"$repo/refs/main"
go "$dir/d" some-org/a.model_1
[ $rc -eq 2 ] && says "$dir/err" "hf download"
ok a_branch_leads_nowhere_else

# ---- a special token for which the model has no row ----
folder "$dir/few" 258
go "$dir/e" "$dir/few"
[ $rc -eq 0 ] && says "$dir/err" "the model has no row for 1 special token of the tokenizer, from id 258 on: text with one is refused"
ok a_special_token_beyond_the_head
printf 'Hi <img> there, and more of it, so that a sample is full: one two three four five six seven eight nine ten' >"$dir/img.txt"
go "$dir/f" "$dir/few" --tokenizer.allow_special true --dataloader.path "$dir/img.txt" --training.seq_len 8
[ $rc -ne 0 ] && says "$dir/err" "258 at position" && says "$dir/err" "is outside the model's vocabulary of 258"
ok is_refused_where_the_data_have_it
ttrun generate "$dir/e" --tokenizer.allow_special true --prompt 'a<img>' --max-tokens 1 >"$dir/out" 2>"$dir/err"
[ $? -eq 2 ] && says "$dir/err" "id 258 is not in the vocabulary of 258"
ok and_where_a_prompt_has_it
sed -i 's/"<end>"}/"<img>"}/' "$dir/few/tokenizer_config.json"
go "$dir/g" "$dir/few"
[ $rc -eq 2 ] && says "$dir/err" "258 is less than the tokenizer's 259"
ok but_not_one_that_ends_documents
folder "$dir/fewer" 256
go "$dir/g" "$dir/fewer"
[ $rc -eq 2 ] && says "$dir/err" "256 is less than the tokenizer's 259"
ok nor_tokens_that_are_not_special

# ---- tokenizers that cannot be read ----
mkdir "$dir/mistral" && config 300 >"$dir/mistral/config.json" && echo '{}' >"$dir/mistral/tekken.json"
go "$dir/h" "$dir/mistral"
[ $rc -eq 2 ] && [ "$(wc -l <"$dir/err")" -eq 2 ] && says "$dir/err" "$dir/mistral has none that can be read (looked for: tokenizer.json, tokenizer.model, tiktoken.model, qwen.tiktoken, vocab.json)"
ok bytes_are_not_the_ids_of_another_tokenizer
go "$dir/h" "$dir/mistral" --tokenizer.name byte
[ $rc -eq 0 ]
ok unless_the_job_says_so
exit $failed
