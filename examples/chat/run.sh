#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# From a folder of text to a model that answers, in minutes on two cores: tokenizer, pre-training, fine-tuning on conversations,
# preferences, evaluation.
#   examples/chat/run.sh [OPTION…]      OPTION…: of every job, such as --nproc 2
# TEXT='/data/*.txt' names other text; TTRUN another program. Everything is written to examples/chat/out; an installed example
# copies its jobs to the folder chat of the current one, and writes there. Started again, it goes on where it was; out/report.html
# shows the stages.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
fail() {
    echo "run.sh: $*" >&2
    exit 1
}
# The text that is there, from the folder in which TEXT was written.
texts() {
    # shellcheck disable=SC2086
    if [ -n "${TEXT-}" ]; then set -- $TEXT; else set -- "$here"/../../docs/*.md /usr/share/common-licenses/*; fi
    for f; do [ ! -f "$f" ] || cat "$f"; done
}
# As a shell reads it back.
quoted() { case $1 in *[!A-Za-z0-9_./-]*) printf "'%s'" "$1" ;; *) printf %s "$1" ;; esac; }

ttrun=${TTRUN:-ttrun}
if [ -f "$here/../../Makefile" ]; then
    work=$here
    ttrun=${TTRUN:-$here/../../ttrun}
else
    work=$PWD/chat installed=$here/../../../../../bin/ttrun # below the same PREFIX
    [ -n "${TTRUN-}" ] || [ ! -x "$installed" ] || ttrun=$installed
    mkdir -p "$work"
    for f in pretrain.json sft.json dpo.json conversations.awk; do [ -e "$work/$f" ] || cp "$here/$f" "$work"; done
fi
found=$(command -v "$ttrun") || fail "there is no $ttrun: build it with make, or set TTRUN"
ttrun=$(cd "$(dirname "$found")" && pwd)/$(basename "$found")
mkdir -p "$work/out/text"
[ -e "$work/out/held_out.txt" ] || texts >"$work/out/all.txt"
cd "$work"
out=out

say() { printf '\n== %s\n' "$*"; }
done_with() { [ -e "$out/$1" ]; }

say "1. Text and a tokenizer"
if ! done_with held_out.txt; then
    # the last twentieth of the lines is held out
    lines=$(wc -l <$out/all.txt)
    [ "$lines" -ge 20 ] || fail "TEXT='${TEXT-}' has $lines lines: it must name files that are there, of 20 lines or more"
    head -n $((lines - lines / 20)) $out/all.txt >$out/text/text.txt
    tail -n $((lines / 20)) $out/all.txt >$out/held_out.txt.part
    rm $out/all.txt
    awk -f conversations.awk $out
    # the questions are part of what the tokenizer has seen, so that their words are whole
    cp $out/sft.jsonl $out/questions_seen.txt
    "$ttrun" tokenizer train -q --data $out/text/text.txt $out/questions_seen.txt --vocab-size 3072 --eos '<|im_end|>' --special '<|im_start|>' --out $out/tokenizer
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
The curves of all stages: $(quoted "$work/out/report.html")
Talk to it:               $(quoted "$ttrun") chat --checkpoint $(quoted "$work/out/dpo") --template chatml"
