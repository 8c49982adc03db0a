#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# From a folder of text to a model that answers, in minutes on two cores: tokenizer, pre-training, fine-tuning on conversations,
# preferences, evaluation.
#   examples/chat/run.sh [OPTION…]      OPTION…: of every job, such as --nproc 2
# TEXT='/data/*.txt' names other text; TTRUN another program. Everything is written to examples/chat/out. Started again, it goes
# on where it was; out/report.html shows the stages.
set -eu
cd "$(dirname "$0")"
ttrun=${TTRUN:-../../ttrun}
out=out
mkdir -p $out/text

say() { printf '\n== %s\n' "$*"; }
done_with() { [ -e "$out/$1" ]; }

say "1. Text and a tokenizer"
if ! done_with held_out.txt; then
    # shellcheck disable=SC2086
    cat ${TEXT:-../../docs/*.md /usr/share/common-licenses/*} 2>/dev/null >$out/all.txt
    # the last twentieth of the lines is held out
    lines=$(wc -l <$out/all.txt)
    head -n $((lines - lines / 20)) $out/all.txt >$out/text/text.txt
    tail -n $((lines / 20)) $out/all.txt >$out/held_out.txt.part
    rm $out/all.txt
    awk -f conversations.awk $out
    # the questions are part of what the tokenizer has seen, so that their words are whole
    "$ttrun" tokenizer train -q --data $out/text/text.txt $out/sft.jsonl --vocab-size 3072 --eos '<|im_end|>' --special '<|im_start|>' --out $out/tokenizer
    mv $out/held_out.txt.part $out/held_out.txt
fi
wc -c $out/text/text.txt $out/held_out.txt | head -n 2

# ask MODEL: its answers to questions that no stage has trained on
ask() {
    awk '{print; print "/reset"}' $out/questions.txt |
        "$ttrun" chat -q --checkpoint "$out/$1" --template chatml --temperature 0 --max-tokens 32 >"$out/answers_$1.txt"
    # right: the answer is in the reply as it stands; short: the reply is nothing else
    paste -d '\t' $out/answers.txt "$out/answers_$1.txt" | awk -F '\t' -v model="$1" '
        { right += index(" " $2, " " $1 ".") > 0 || index(" " $2, " " $1 ",") > 0; short += $2 == $1 "." }
        END { printf "| %s | %d of %d right | %d short |\n", model, right, NR, short }' | tee -a $out/results.md
}
: >$out/results.md

say "2. Pre-training"
"$ttrun" pretrain.json "$@"
"$ttrun" eval -q --checkpoint $out/pretrain --data $out/held_out.txt
"$ttrun" generate -q --checkpoint $out/pretrain --prompt 'A checkpoint' --max-tokens 24 --temperature 0.7

say "3. Fine-tuning on conversations"
"$ttrun" sft.json "$@"
ask sft

say "4. Preferences"
"$ttrun" dpo.json "$@"
ask dpo

say "5. Results"
"$ttrun" report -q $out/pretrain $out/sft $out/dpo --output $out/report.html
cat $out/results.md
paste -d '\t' $out/questions.txt $out/answers_sft.txt $out/answers_dpo.txt | head -n 5 | awk -F '\t' '{printf "  %s\n    sft: %s\n    dpo: %s\n", $1, $2, $3}'
echo "
The curves of all stages: examples/chat/out/report.html
Talk to it:               ${ttrun#../../} chat --checkpoint examples/chat/out/dpo --template chatml"
