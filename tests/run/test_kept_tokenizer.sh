#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A resumed run and its own copy of the tokenizer: opened when the job's file is gone, named when the two differ.
. "$(dirname "$0")/lib.sh"
bpe() { # MERGE: byte-level BPE with one merge
    awk -v a="${1% *}" -v b="${1#* }" 'BEGIN {
        printf "{\"added_tokens\":[{\"id\":257,\"content\":\"<end>\",\"special\":true}],\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false},"
        printf "\"model\":{\"type\":\"BPE\",\"merges\":[[\"%s\",\"%s\"]],\"vocab\":{\"%s%s\":256", a, b, a, b
        for (i = 0; i < 256; i++)
            printf ",\"\\u%04x\":%d", (i > 32 && i < 127) || (i > 160 && i != 173) ? i : 256 + other++, i
        printf "}}}\n"
    }'
}
mkdir "$dir/tok" && bpe "l i" >"$dir/tok/mine.json" && printf '{"eos_token": "<end>"}' >"$dir/tok/tokenizer_config.json"
sed 's|"optimizer"|"tokenizer": { "name": "hf", "path": "tok/mine.json" },\n  "optimizer"|' "$job" >"$dir/own.json" && job=$dir/own.json
train "$dir/run" --training.steps 5 && cp -r "$dir/run" "$dir/whole" && train "$dir/whole" --training.steps 10
[ "$rc" -eq 0 ] && [ -f "$dir/run/tokenizer/mine.json" ] && ! grep -q ' W data]' "$dir/err"
ok resume_with_the_same_file_says_nothing
# moved elsewhere, and the job's tokenizer is gone
mv "$dir/tok" "$dir/away" && mv "$dir/run" "$dir/moved" && train "$dir/moved" --training.steps 10
losses "$dir/whole/metrics.jsonl" >"$dir/l1"
losses "$dir/moved/metrics.jsonl" >"$dir/l2"
[ "$rc" -eq 0 ] && cmp -s "$dir/l1" "$dir/l2" && [ "$(wc -l <"$dir/l2")" -eq 10 ] &&
    grep -q "I data] tokenizer: $dir/tok/mine.json is gone; the run's own copy is used, $dir/moved/tokenizer/mine.json" "$dir/err"
ok the_copy_is_opened_when_the_file_is_gone
train "$dir/moved" --training.steps 12 --nproc 2 --comm.backend local --parallelism.data_parallel_shard_degree 2
[ "$rc" -eq 0 ] && [ "$(grep -c 'is gone; the run' "$dir/err")" -eq 1 ]
ok once_for_all_ranks
train "$dir/moved" --training.steps 12 --resume never
[ "$rc" -eq 2 ] && one_line "$dir/err" && grep -q 'mine.json' "$dir/err"
ok a_run_that_begins_anew_needs_the_file
train "$dir/fresh" --training.steps 1
[ "$rc" -eq 2 ] && one_line "$dir/err"
ok a_new_run_needs_the_file
# other ids: an error that says where the right one is; only other words around it: a line
mkdir "$dir/tok" && bpe "n e" >"$dir/tok/mine.json"
cp -r "$dir/whole" "$dir/other" && train "$dir/other" --training.steps 12
[ "$rc" -eq 2 ] && grep -q "was written with another tokenizer: use that tokenizer (the run keeps it in $dir/other/tokenizer), or another dump_folder" "$dir/err" &&
    cmp -s "$dir/other/tokenizer/mine.json" "$dir/away/mine.json"
ok other_ids_are_an_error_and_the_copy_stays
cp "$dir/away/mine.json" "$dir/tok" && printf '{"eos_token": "<end>", "x": 1}' >"$dir/tok/tokenizer_config.json"
hash=$(grep -o '"tokenizer/tokenizer_config.json":"[0-9a-f]*' "$dir/whole/run.json" | sed 's/.*"//')
train "$dir/whole" --training.steps 12
[ "$rc" -eq 0 ] && [ -n "$hash" ] && [ "$(grep -c ' W data]' "$dir/err")" -eq 1 ] &&
    grep -q "tok/tokenizer_config.json differs from the file that the run has had, .*/tokenizer_config.json (xxh3_128 $hash in run.json), and replaces it" "$dir/err" &&
    cmp -s "$dir/tok/tokenizer_config.json" "$dir/whole/tokenizer/tokenizer_config.json"
ok a_file_that_changed_is_named
# the steps after load_step that this job has written are of another branch if the tokenizer is another now
bpe "n e" >"$dir/tok/other.json"
back="--training.steps 7 --checkpoint.load_step 5"
train "$dir/whole" $back && train "$dir/whole" $back --tokenizer.path "$dir/tok/other.json"
[ "$rc" -eq 2 ] && [ "$(newest "$dir/whole/checkpoint")" = 7 ] && grep -q "/step-5 was written with another tokenizer" "$dir/err" &&
    ! grep -q 'has already continued' "$dir/err"
ok load_step_with_another_tokenizer_is_that_step
exit $failed
