#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# ttrun tokenize --tokenizer PATH, and a run with a tokenizer.json: its vocabulary is the 256 bytes, "Hi" and a special token.
. "$(dirname "$0")/lib.sh"
awk 'BEGIN {
    printf "{\"added_tokens\":[{\"id\":257,\"content\":\"<end>\",\"special\":true}],\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false},"
    printf "\"model\":{\"type\":\"BPE\",\"merges\":[[\"H\",\"i\"]],\"vocab\":{\"Hi\":256"
    for (b = 0; b < 256; b++)
        printf ",\"\\u%04x\":%d", (b > 32 && b < 127) || (b > 160 && b != 173) ? b : 256 + other++, b
    printf "}}}\n"
}' >"$dir/tokenizer.json"
echo '{"eos_token": {"content": "<end>"}, "bos_token": null}' >"$dir/tokenizer_config.json"

printf 'Hi!\n<end>' | ttrun tokenize --tokenizer "$dir" --bos --eos >"$dir/out" 2>"$dir/err"
rc=$?
[ $rc -eq 0 ] && [ "$(cat "$dir/out")" = "256 33 10 60 101 110 100 62 257" ]
ok tokenize_reads_a_folder_and_special_text_is_plain
printf 'Hi\nHo' | ttrun tokenize --tokenizer "$dir/tokenizer.json" --lines >"$dir/out" 2>"$dir/err"
[ "$(tr '\n' '/' <"$dir/out")" = "256/72 111/" ]
ok tokenize_reads_a_file
printf '<end>' | ttrun tokenize --tokenizer "$dir" --tokenizer.allow_special true >"$dir/out" 2>"$dir/err"
[ "$(cat "$dir/out")" = "257" ]
ok tokenize_reads_special_tokens_where_allowed
ttrun tokenize --tokenizer "$dir/nowhere.json" >"$dir/out" 2>"$dir/err" </dev/null
rc=$?
[ $rc -ne 0 ] && [ "$(wc -l <"$dir/err")" -eq 1 ] && grep -q 'nowhere.json: No such file' "$dir/err" && ! [ -s "$dir/out" ]
ok tokenize_names_a_missing_file
sed 's/"ByteLevel"/"Nonsense"/' "$dir/tokenizer.json" >"$dir/other.json"
ttrun tokenize --tokenizer "$dir/other.json" >"$dir/out" 2>"$dir/err" </dev/null
rc=$?
[ $rc -ne 0 ] && [ "$(wc -l <"$dir/err")" -eq 1 ] && grep -q 'other.json: pre_tokenizer: "Nonsense" is not supported' "$dir/err"
ok tokenize_names_the_part_that_it_cannot_do
train "$dir/run" --tokenizer.name hf --tokenizer.path "$dir" --training.steps 2
[ $rc -eq 0 ] && [ "$(losses "$dir/run/metrics.jsonl" | wc -l)" -eq 2 ]
ok training_reads_text_by_a_tokenizer_file
exit $failed
