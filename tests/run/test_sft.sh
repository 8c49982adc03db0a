#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Fine-tuning beside transformers, without Python: tests/golden/sft, which sft_golden.py there writes. For templates in the manner of
# Llama-3, Qwen3, Mistral and ChatML, with generation blocks: ids and masks of conversations, the loss of each, of all packed, and of steps of AdamW.
. "$(dirname "$0")/lib.sh"
golden=$SRC/tests/golden/sft
cp -r "$golden/." "$dir" || exit 1
# The samples that data show writes as JSON, a line each: the runs of learned places, and the ids up to the last place that has a segment of its own
samples() {
    sed 's/^.*"samples":\[//; s/{"sample":/\n/g' | sed -n 's/.*"ids":\[\([^]]*\)\],"labels":\[\([^]]*\)\],"pos":\[[^]]*\],"seg":\[\([^]]*\)\].*/\1 \2 \3/p' |
        awk '{ n = split($1, id, ","); split($2, label, ","); split($3, seg, ","); runs = ids = ""; from = 0
            for (i = 1; i <= n && seg[i] == 0; i++) {
                ids = ids " " id[i]
                if (label[i] >= 0 && !from) from = i
                if (label[i] >= 0 && (i == n || label[i + 1] < 0)) { runs = runs (runs == "" ? "" : ",") from - 1 "-" i - 1; from = 0 }
            }
            print runs ids }'
}
show() { # STYLE N OPTION...
    style=$1 many=$2
    shift 2
    ttrun data show "$job" --quiet --json --n "$many" --dataloader.path "$dir/$style.jsonl" --dataloader.template "$dir/tokenizer/$style.jinja" "$@" 2>"$dir/err" | samples >"$dir/out"
}
fit() { # STYLE FOLDER OPTION...
    style=$1 to=$2
    shift 2
    train "$to" --dataloader.path "$dir/$style.jsonl" --dataloader.template "$dir/tokenizer/$style.jinja" "$@" && [ "$rc" -eq 0 ] && losses "$to/metrics.jsonl" | cut -d ' ' -f 2 >"$dir/got"
}
close() { # WANT: a loss per line, as $dir/got
    paste -d ' ' "$1" "$dir/got" | awk -v t="$2" '{ d = $1 - $2; if (NF != 2 || d > t || d < -t) { print "line " NR ": " $0; bad = 1 } } END { exit bad || NR == 0 }' >"$dir/out"
}
sed 's/"beta1": 0.9,//; s/"beta2": 0.95,//; s/"eps": 1e-08,//' "$job" | sed 's/"optimizer": {/"optimizer": { "name": "sgd",/; s/"lr": 0.002/"lr": 0/' >"$dir/still.json"
for style in headers thinking instruct chatml; do
    cut -d ' ' -f 2- "$dir/$style.txt" >"$dir/want"
    n=$(wc -l <"$dir/want")
    [ "$n" -ge 20 ] && show $style "$n" && cmp -s "$dir/want" "$dir/out"
    ok "${style}_ids_and_masks"
    # the same turns by what the template adds for the next answer; instruct adds nothing, and of an empty answer it prints no trace
    if [ $style != instruct ]; then
        sed 's/{%-* *generation *-*%}//g; s/{%-* *endgeneration *-*%}//g' "$dir/tokenizer/$style.jinja" >"$dir/tokenizer/$style-bare.jinja"
        ! cmp -s "$dir/tokenizer/$style.jinja" "$dir/tokenizer/$style-bare.jinja" && show $style "$n" --dataloader.template "$dir/tokenizer/$style-bare.jinja" && cmp -s "$dir/want" "$dir/out"
        ok "${style}_masks_without_generation_blocks ($(diff "$dir/want" "$dir/out" | grep -c '^<') differ)"
    fi
    # a template that lies elsewhere has the texts of special tokens from the tokenizer's folder
    mkdir -p "$dir/apart" && cp "$dir/tokenizer/$style.jinja" "$dir/apart" && show $style "$n" --dataloader.template "$dir/apart/$style.jinja" && cmp -s "$dir/want" "$dir/out"
    ok "${style}_template_in_a_folder_of_its_own"
    n=$(wc -l <"$dir/$style.left.txt")
    # what is longer than the sample is in the order of the data; the others are dropped from both
    [ "$n" -ge 3 ] && show $style 40 --training.seq_len 48 --dataloader.truncation left && awk 'NF == 49' "$dir/out" >"$dir/cut" && grep -cxFf "$dir/cut" "$dir/$style.left.txt" >"$dir/found" && [ "$(cat "$dir/found")" = "$n" ]
    ok "${style}_cut_at_the_left"
    cut -d ' ' -f 1 "$dir/$style.txt" >"$dir/want"
    n=$(wc -l <"$dir/want")
    job=$dir/still.json
    fit $style "$dir/each-$style" --training.steps "$n" --training.local_batch_size 1 && close "$dir/want" 5e-6
    ok "${style}_loss_of_each_conversation"
    job=$dir/job.json
    sed -n "s/^$style [0-9.]* //p" "$dir/losses.txt" | tr ' ' '\n' >"$dir/want"
    fit $style "$dir/steps-$style" && close "$dir/want" 2e-5
    ok "${style}_losses_of_steps"
    sed -n "s/^$style \([0-9.]*\) .*/\1/p" "$dir/losses.txt" >"$dir/want"
    packed=$(ttrun data build "$job" --json --quiet --dataloader.packing best_fit --dataloader.path "$dir/$style.jsonl" --dataloader.template "$dir/tokenizer/$style.jinja" 2>"$dir/err" | sed 's/.*"samples":\([0-9]*\).*/\1/')
    [ "$packed" -lt "$n" ] && fit $style "$dir/packed-$style" --dataloader.packing best_fit --training.steps 1 --training.local_batch_size "$packed" && close "$dir/want" 5e-6
    ok "${style}_all_packed"
done
# and so has a conversation, with the file or with the run's copy of it
answer() { printf 'hi there\n' | ttrun chat --checkpoint "$dir/talks" --temperature 1 --seed 3 --max-tokens 30 -q "$@" 2>&1; }
sed 's/bos_token/no_token/g' "$dir/tokenizer/headers.jinja" >"$dir/apart/none.jinja"
fit headers "$dir/talks" --dataloader.template "$dir/apart/headers.jinja" --training.steps 4 --optimizer.lr 0.05 --checkpoint.enable true && answer --template "$dir/tokenizer/headers.jinja" >"$dir/want" && [ -s "$dir/want" ] &&
    [ "$(answer --template "$dir/apart/headers.jinja")" = "$(cat "$dir/want")" ] && [ "$(answer)" = "$(cat "$dir/want")" ] && [ "$(answer --template "$dir/apart/none.jinja")" != "$(cat "$dir/want")" ]
ok chat_with_a_template_in_a_folder_of_its_own
exit $failed
