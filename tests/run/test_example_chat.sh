#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# examples/chat with a smaller model, fewer steps and every seventh question (in the long tier all of it): every stage begins with what the one before it left, and a second start does nothing anew.
. "$(dirname "$0")/lib.sh"
# as in a checkout: beside a Makefile, two folders up
mkdir -p "$dir/tree/examples" && : >"$dir/tree/Makefile" && ln -s "$dir/tree/examples/chat" "$dir/chat" && cp -r "$SRC/examples/chat" "$dir/tree/examples" && rm -rf "$dir/chat/out"
sed -i 's/"steps": 400/"steps": 12/; s/"freq": 100/"freq": 6/' "$dir/chat/pretrain.json"
sed -i 's/"num_train_epochs": [0-9]*/"steps": 10/' "$dir/chat/sft.json"
sed -i 's/"num_train_epochs": [0-9]*/"steps": 4/' "$dir/chat/dpo.json"
if ! is_long; then
    sed -i 's/"dim": 256, "n_layers": 4, "n_heads": 8, "n_kv_heads": 4, "hidden_dim": 688/"dim": 128, "n_layers": 2, "n_heads": 4, "n_kv_heads": 2, "hidden_dim": 344/; s/"seq_len": 256/"seq_len": 128/' "$dir/chat/pretrain.json"
    sed -i 's/return h % 10/return h % 70/' "$dir/chat/conversations.awk"
fi
go() { TTRUN="$TTRUN" TEXT="$SRC/docs/*.md" "$dir/chat/run.sh" "$@" >"$dir/out" 2>"$dir/err"; }
o=$dir/chat/out
go
rc=$?
[ "$rc" -eq 0 ] && [ "$(grep -c '^== ' "$dir/out")" -eq 5 ] && grep -q '^loss .* bits per byte ' "$dir/out"
ok every_stage
# the last line is a command that works as it is pasted, from anywhere
talk=$(sed -n 's/^Talk to it: *//p' "$dir/out") && answer=$(cd / && echo 'What is 1 plus 1?' | sh -c "$talk --plugin-dir $PLUGINS --max-tokens 4" 2>"$dir/err") && [ -n "$answer" ]
ok the_hint_can_be_pasted
n=$(wc -l <"$o/questions.txt")
[ "$n" -gt 19 ] && [ "$(wc -l <"$o/answers.txt")" -eq "$n" ] && [ "$(wc -l <"$o/answers_sft.txt")" -eq "$n" ] && [ "$(wc -l <"$o/answers_dpo.txt")" -eq "$n" ] &&
    grep -q "^| sft | [0-9]* of $n right | [0-9]* short |$" "$o/results.md" && grep -q "^| dpo | [0-9]* of $n right" "$o/results.md"
ok every_question_is_answered
! while read -r q; do grep -F "\"$q\"" "$o/sft.jsonl" "$o/pairs.jsonl" && break; done <"$o/questions.txt"
ok no_question_was_trained_on
[ -s "$o/report.html" ] && grep -q pretrain "$o/report.html" && grep -q sft "$o/report.html" && grep -q dpo "$o/report.html"
ok the_page_has_the_stages
grep -q '"loss/\|rewards' "$o/dpo/metrics.jsonl" && [ -s "$o/dpo/hf/latest/chat_template.jinja" ] && [ "$(value "$o/dpo/metrics.jsonl" step | tail -n 1)" = 4 ]
ok preferences_were_learned
a=$(cksum <"$o/answers_dpo.txt")
go && [ "$(grep -c 'nothing to do' "$dir/err" "$dir/out" | awk -F: '{n += $2} END {print n}')" -eq 3 ] && [ "$(cksum <"$o/answers_dpo.txt")" = "$a" ]
ok a_second_start_does_nothing_anew
# text that is not there, too little, and of names with a blank, from the folder where it was written; a program that is not there
rm -r "$o" && mkdir "$dir/some texts" && printf 'a\nb\n' >"$dir/some texts/few.txt"
while IFS='|' read -r name text program want; do
    (cd "$dir/some texts" && TTRUN=$program TEXT=$text "$dir/chat/run.sh" >"$dir/out" 2>"$dir/err")
    rc=$?
    [ $rc -eq 1 ] && one_line "$dir/err" && grep -qF "run.sh: $want" "$dir/err"
    ok "refused_$name"
done <<END
no_text|/nowhere/*.txt|$TTRUN|TEXT='/nowhere/*.txt' has 0 lines
few_lines|*.txt|$TTRUN|TEXT='*.txt' has 2 lines
no_program|*.txt|/nowhere/ttrun|there is no /nowhere/ttrun
END
exit $failed
