#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# ttrun generate: several prompts, its output, native and Hugging Face folders, and its errors.
. "$(dirname "$0")/lib.sh"
train "$dir/run" --training.steps 100 --checkpoint.last_save_in_hf true
[ $rc -eq 0 ]
ok a_model_is_trained
# generate OPTION...: streams to $dir/out and $dir/err
generate() {
    ttrun generate --checkpoint "$dir/run" "$@" >"$dir/out" 2>"$dir/err"
    rc=$?
}
field() { sed -n "$2"'s/.*"'"$1"'":\("[^"]*"\|[^,}]*\).*/\1/p' "$dir/out"; }

generate --prompt 'line 1' --max-tokens 20
[ $rc -eq 0 ] && [ "$(head -c 6 "$dir/out")" = 'line 1' ] && [ "$(wc -c <"$dir/out")" -ge 27 ] && ! [ -s "$dir/err" ]
ok text_begins_with_the_prompt
cp "$dir/out" "$dir/first"
generate --prompt 'line 1' --max-tokens 20 --seed 0
cmp -s "$dir/out" "$dir/first"
ok equal_seeds_give_equal_texts
generate --prompt 'line 1' --max-tokens 20 --seed 1
! cmp -s "$dir/out" "$dir/first"
ok another_seed_gives_another_text
generate --prompt 'line 1' --max-tokens 20 -v
grep -q 'keys and values' "$dir/err" && grep -q 'tokens/s' "$dir/err" && cmp -s "$dir/out" "$dir/first"
ok verbose_names_memory_and_speed

printf 'line 7\n\nof a text\n' >"$dir/prompts.txt"
generate --prompt 'line 1' --prompts "$dir/prompts.txt" --n 2 --max-tokens 12 --json
cp "$dir/out" "$dir/all"
[ $rc -eq 0 ] && [ "$(wc -l <"$dir/out")" -eq 8 ] && [ "$(field prompt 6)" = 2 ] && [ "$(field sample 6)" = 1 ] &&
    [ "$(field prompt_tokens 1)" = 7 ] && [ "$(field prompt_tokens 5)" = 1 ]
ok results_have_the_order_of_the_prompts
for batch in 1 3; do
    generate --prompt 'line 1' --prompts "$dir/prompts.txt" --n 2 --max-tokens 12 --json --batch $batch --backend.threads $batch
    [ $rc -eq 0 ] && cmp -s "$dir/out" "$dir/all"
    ok "a_text_does_not_depend_on_its_batch_$batch"
done
generate --prompts "$dir/prompts.txt" --max-tokens 5
[ $rc -eq 0 ] && [ "$(grep -c '^---$' "$dir/out")" -eq 2 ] && head -n 1 "$dir/out" | grep -q '^line 7'
ok several_texts_are_separated
printf '{"prompt": "line 7"}\n{"ids": [256, 108, 105, 110, 101, 32, 55]}\n' >"$dir/prompts.jsonl"
generate --prompts "$dir/prompts.jsonl" --max-tokens 9 --temperature 0 --json
[ $rc -eq 0 ] && [ "$(field text 1)" = "$(field text 2)" ] && [ -n "$(field text 1)" ]
ok prompt_of_ids_gives_the_text_of_the_same_prompt
generate --prompt 'line 12' --max-tokens 8 --temperature 0
cp "$dir/out" "$dir/greedy"
generate --prompt 'line 12' --max-tokens 8 --temperature 0 --backend.name reference
[ $rc -eq 0 ] && cmp -s "$dir/out" "$dir/greedy"
ok backend_other_than_the_checkpoints
generate --prompt 'line 12' --max-tokens 8 --top-k 1 --temperature 5
cmp -s "$dir/out" "$dir/greedy"
ok top_k_of_one_is_greedy
generate --prompt 'line 12' --max-tokens 8 --top-p 0 --temperature 5
cmp -s "$dir/out" "$dir/greedy"
ok top_p_of_zero_is_greedy

# ---- the same weights as a Hugging Face folder; its tokenizer is given, or the prompts are ids ----
ttrun generate --checkpoint "$dir/run/hf/latest" --tokenizer.name byte --prompt 'line 12' --max-tokens 8 --temperature 0 \
    >"$dir/out" 2>"$dir/err"
rc=$?
printf '{"ids": [108, 105, 110, 101, 32, 55]}\n' >"$dir/ids.jsonl"
[ $rc -eq 0 ] && [ "$(head -c 7 "$dir/out")" = 'line 12' ]
ok hugging_face_weights_generate
ttrun generate --checkpoint "$dir/run/hf/latest" --prompts "$dir/ids.jsonl" --max-tokens 8 --temperature 0 --json >"$dir/hf" 2>"$dir/err"
rc=$?
generate --prompts "$dir/ids.jsonl" --max-tokens 8 --temperature 0 --json
[ "$(sed 's/.*"ids"//' "$dir/hf")" = "$(sed 's/.*"ids"//' "$dir/out")" ] && grep -q '"text":null' "$dir/hf"
ok hugging_face_ids_are_those_of_the_native_checkpoint
awk 'BEGIN {
    printf "{\"added_tokens\":[{\"id\":257,\"content\":\"<end>\",\"special\":true}],\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false},"
    printf "\"model\":{\"type\":\"BPE\",\"merges\":[],\"vocab\":{"
    for (b = 0; b < 256; b++)
        printf "%s\"\\u%04x\":%d", b ? "," : "", (b > 32 && b < 127) || (b > 160 && b != 173) ? b : 256 + other++, b
    printf "}}}\n"
}' >"$dir/run/hf/latest/tokenizer.json"
ttrun generate --checkpoint "$dir/run/hf/latest" --prompt 'line 12' --max-tokens 8 --temperature 0 >"$dir/own" 2>"$dir/err"
rc=$?
ttrun generate --checkpoint "$dir/run/hf/latest" --tokenizer.name byte --prompts "$dir/ids.jsonl" --max-tokens 9 --temperature 0 --json >"$dir/a" 2>"$dir/err"
ttrun generate --checkpoint "$dir/run/hf/latest" --prompts "$dir/ids.jsonl" --max-tokens 9 --temperature 0 --json >"$dir/b" 2>"$dir/err"
[ $rc -eq 0 ] && [ "$(head -c 7 "$dir/own")" = 'line 12' ] && cmp -s "$dir/a" "$dir/b" && ! grep -q '"text":null' "$dir/b"
ok a_tokenizer_json_is_used

# ---- ends ----
: >"$dir/long" 2>"$dir/err"
"$TTRUN" generate --plugin-dir "$PLUGINS" --checkpoint "$dir/run" --prompt 'line 1' --max-tokens 100000 >"$dir/long" 2>"$dir/err" &
pid=$!
until_true test -s "$dir/long"
kill -INT $pid
wait $pid
rc=$?
[ $rc -eq 4 ] && [ "$(tail -c 1 "$dir/long" | od -An -c | tr -d ' ')" = '\n' ] && grep -q 'stopped by a signal' "$dir/err"
ok an_interrupted_command_ends_with_a_complete_line
# refused NAME WORDS OPTION...: status 2, one line with the words
refused() {
    name=$1 words=$2
    shift 2
    generate "$@"
    [ $rc -eq 2 ] && one_line "$dir/err" && grep -qF -- "$words" "$dir/err" && ! [ -s "$dir/out" ]
    ok "$name"
}
printf 'x\n{"prompt": 3}\n' >"$dir/bad.jsonl"
printf '{"ids": [1, -1]}\n' >"$dir/negative.jsonl"
printf '{"ids": [1, 262]}\n' >"$dir/outside.jsonl"
printf '{"ids": []}\n' >"$dir/none.jsonl"
: >"$dir/empty.txt"
refused prompts_not_json 'line 1' --prompts "$dir/bad.jsonl"
refused prompts_negative_id 'negative.jsonl:1: ids: element 2' --prompts "$dir/negative.jsonl"
refused prompts_id_outside_the_vocabulary 'prompt 1: id 262 is not in the vocabulary of 262' --prompts "$dir/outside.jsonl"
refused prompts_no_ids 'prompt 1 is empty' --prompts "$dir/none.jsonl"
refused prompts_empty_file 'contains no prompt' --prompts "$dir/empty.txt"
refused prompts_missing_file 'nothere.txt' --prompts "$dir/nothere.txt"
refused batch_too_large '--batch: expected a whole number from 1 to 16, got "17"' --batch 17
refused cache_of_a_model_without_latent_vectors 'heads are no products of a latent vector' --cache latent
refused top_p_outside '--top-p: expected 0 to 1' --top-p 1.5
refused max_tokens_zero '--max-tokens: expected' --max-tokens 0
rm "$dir/run/hf/latest/tokenizer.json"
ttrun generate --checkpoint "$dir/run/hf/latest" --prompt x >"$dir/out" 2>"$dir/err"
rc=$?
[ $rc -eq 2 ] && one_line "$dir/err" && grep -q 'has no tokenizer that can be read: give prompts as ids' "$dir/err"
ok text_prompt_without_a_tokenizer
sed -i 's/"llama"/"lama"/' "$dir/run/hf/latest/config.json"
ttrun generate --checkpoint "$dir/run/hf/latest" --prompts "$dir/ids.jsonl" >"$dir/out" 2>"$dir/err"
rc=$?
[ $rc -eq 2 ] && one_line "$dir/err" && grep -q 'config.json:3:17: no model plugin reads model_type "lama"' "$dir/err"
ok a_model_type_that_no_plugin_reads
# LongRoPE has other factors for texts that are longer than the original context, 24: each text has those of its own length, whatever is
# computed beside it or could follow; one that grows past the border is computed again, as transformers does it for Phi-3
sed 's/"vocab_size": 262/"vocab_size": 262, "rope_scaling": {"rope_type": "longrope", "factor": 4, "original_max_position_embeddings": 24, "short_factor": [1,1,1,1], "long_factor": [3,5,7,11]}/' \
    "$job" >"$dir/longrope.json"
job=$dir/longrope.json
train "$dir/run" --resume never --training.steps 100
long='line 12 of a text that a small model can learn by heart,'
text() { # N OPTION...: the Nth text, greedy
    nth=$1
    shift
    generate --temperature 0 --json "$@" && field text "$nth"
}
short=$(text 1 --prompt 'line 12 of' --max-tokens 8)
[ -n "$short" ] && [ "$(text 1 --prompt 'line 12 of' --prompt "$long" --max-tokens 8)" = "$short" ] &&
    [ "$(text 2 --prompt 'line 12 of' --prompt "$long" --max-tokens 8)" = "$(text 1 --prompt "$long" --max-tokens 8)" ]
ok longrope_of_each_text_alone
generate --temperature 0 --prompt 'line 12 of' --max-tokens 40 && tr '\n' '~' <"$dir/out" | sed 's/~$//' >"$dir/grown"
generate --temperature 0 --prompt "$(head -c 24 "$dir/grown" | tr '~' '\n')" --max-tokens 26 && tr '\n' '~' <"$dir/out" | sed 's/~$//' | cmp -s - "$dir/grown"
ok longrope_of_a_text_that_grows_past_the_border
exit $failed
