#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# ttrun eval: the loss of a checkpoint on a data set equals the loss that training reports for these samples and weights.
. "$(dirname "$0")/lib.sh"
head -c 300 "$dir/text.txt" >"$dir/small.txt" # 302 tokens, 9 samples of 32

train "$dir/run" --optimizer.lr 0 --training.steps 1 --training.local_batch_size 9 --dataloader.path "$dir/small.txt" \
    --dataloader.shuffle false
loss=$(value "$dir/run/metrics.jsonl" loss)
ttrun eval --checkpoint "$dir/run" --data "$dir/small.txt" --json -q >"$dir/out" 2>"$dir/err"
rc=$?
[ $rc -eq 0 ] && [ "$(value "$dir/out" tokens)" = 301 ] && [ "$(value "$dir/out" samples)" = 10 ]
ok eval_counts_every_token_once
ttrun eval --checkpoint "$dir/run" --data "$dir/small.txt" --json -q --seq_len 7 >"$dir/out" 2>"$dir/err"
[ "$(value "$dir/out" tokens)" = 301 ] && [ "$(value "$dir/out" samples)" = 43 ]
ok windows_of_another_length_that_divides
ttrun eval --checkpoint "$dir/run" --data "$dir/small.txt" --json -q --seq_len 301 >"$dir/out" 2>"$dir/err"
ttrun eval --checkpoint "$dir/run" --data "$dir/small.txt" --json -q --seq_len 400 >"$dir/longer" 2>"$dir/err"
[ "$(value "$dir/out" samples)" = 1 ] && [ "$(value "$dir/longer" tokens)" = 301 ] &&
    near "$(value "$dir/out" loss)" "$(value "$dir/longer" loss)" 1e-6
ok a_text_shorter_than_a_window_is_one
(cd "$dir" && ttrun eval --checkpoint run --data small.txt --samples 9 --json -q >"$dir/out" 2>"$dir/err")
rc=$?
[ $rc -eq 0 ] && near "$loss" "$(value "$dir/out" loss)" 1e-5 && [ "$(value "$dir/out" tokens)" = 288 ]
ok eval_is_the_training_loss_of_the_same_samples
per=$(awk -v l="$loss" 'BEGIN {print exp(l)}')
near "$per" "$(value "$dir/out" perplexity)" 0.01
ok perplexity_is_exp_of_the_loss
bits=$(value "$dir/out" bits_per_byte) # 288 labels, one of them the end of the text
awk -v l="$loss" -v b="$bits" 'BEGIN {want = l / log(2); exit !(b > want * 0.99 && b < want * 1.02)}'
ok bits_per_byte_with_one_byte_per_token
ttrun eval --checkpoint "$dir/run" --data "$dir/small.txt" --samples 3 -q >"$dir/out" 2>"$dir/err"
grep -q '^loss [0-9.]* .*(96 tokens, 3 samples)$' "$dir/out"
ok eval_reads_as_many_samples_as_requested
ttrun eval --checkpoint "$dir/run" --data "$dir/none.txt" -q >"$dir/out" 2>"$dir/err"
rc=$?
[ $rc -eq 2 ] && [ "$(wc -l <"$dir/err")" -eq 1 ] && grep -q '^ttrun: --data: .*/none.txt: No such file' "$dir/err"
ok eval_names_missing_data
(cd "$dir" && ttrun eval --checkpoint run --data 'no*.txt' -q >"$dir/out" 2>"$dir/err")
rc=$?
[ $rc -eq 2 ] && one_line "$dir/err" && grep -q '^ttrun: --data: no file matches no\*.txt$' "$dir/err"
ok eval_names_a_pattern_without_files
ttrun eval --checkpoint "$dir/nothing" >"$dir/out" 2>"$dir/err"
rc=$?
[ $rc -eq 2 ] && grep -q 'no checkpoint in' "$dir/err"
ok eval_needs_a_checkpoint
exit $failed
