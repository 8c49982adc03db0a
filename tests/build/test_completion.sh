#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The shells' completion: bash's function is driven as readline drives it; `ttrun complete` is asked directly; zsh and fish are
# run where they are installed.
. "$(dirname "$0")/../script.sh"
cd "$SRC" || exit 1
export TTRUN_PLUGIN_PATH="$PLUGINS"
mkdir "$dir/at" && cp configs/demo.json "$dir/at/job.json" && mkdir "$dir/at/folder" && ln -s "$TTRUN" "$dir/ttrun"
PATH=$dir:$PATH
cat >"$dir/drive.bash" <<'BASH'
# Sets what readline sets for a line with the cursor at its end: words are cut at blanks and at "=".
rest=${1//=/ = }
read -ra COMP_WORDS <<<"$rest"
case $1 in *' ') COMP_WORDS+=("") ;; esac
COMP_LINE=$1 COMP_POINT=${#1} COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
compopt() { :; }
. "$SRC/mk/ttrun.bash"
complete -p ttrun >/dev/null || exit 1
_ttrun
printf '%s\n' "${COMPREPLY[@]}"
BASH
# bash_gives LINE CANDIDATE…: exactly these, in any order
bash_gives() {
    line=$1
    shift
    (cd "$dir/at" && SRC=$SRC bash "$dir/drive.bash" "$line") | sed 's/ *$//' | LC_ALL=C sort >"$dir/got"
    for word; do echo "$word"; done | sed '/^$/d' | LC_ALL=C sort >"$dir/want"
    sed -i '/^$/d' "$dir/got"
    cmp -s "$dir/got" "$dir/want" || { echo "$line"; diff "$dir/want" "$dir/got"; return 1; }
}
bash_has() { # LINE CANDIDATE…: these among others
    line=$1
    shift
    (cd "$dir/at" && SRC=$SRC bash "$dir/drive.bash" "$line") | sed 's/ *$//' >"$dir/got"
    for word; do grep -qxF -e "$word" "$dir/got" || { echo "$line: no $word"; return 1; }; done
}
lacks() { ! grep -qF -e "$1" "$dir/got" || { echo "$line: has $1"; return 1; }; }
commands() {
    bash_gives 'ttrun gener' generate && bash_gives 'ttrun ' train plan config plugins data tokenize tokenizer ckpt generate chat serve eval report runs gc top ctl folder job.json &&
        lacks complete
}
every_option_of_every_command() {
    for c in $("$TTRUN" --help | sed -n '/^commands/,/^$/s/^  \([a-z]*\) .*/\1/p'); do
        "$TTRUN" "$c" --help | sed -n 's/^  --\([a-z][a-z_-]*\)\( [^ ]* *\([a-z]*\): \)\{0,1\}.*/\1 \3/p' >"$dir/options"
        while read -r o verb; do
            [ "$o" = verbose ] || [ "$o" = quiet ] || [ "$o" = help ] || [ "$c" = tokenizer ] || [ -z "$verb" ] || [ "$c" = ckpt ] || [ "$c" = data ] || verb=
            n=3
            [ -z "$verb" ] || n=4
            # shellcheck disable=SC2086
            case "
$("$TTRUN" complete bash $((n - 1)) ttrun $c $verb "--$o")" in *"
--$o	"*) ;; *) echo "$c $verb --$o is not offered" && return 1 ;; esac
        done <"$dir/options"
    done
}
options() {
    bash_gives 'ttrun generate --te' --temperature && bash_gives 'ttrun ckpt reshard --fi' --files && bash_gives 'ttrun ckpt ls --fi' '' &&
        bash_has 'ttrun -' --resume --profile && bash_has 'ttrun generate -' --top-k && lacks --profile
}
keys() {
    bash_gives 'ttrun --optimizer.b' --optimizer.beta1 --optimizer.beta2 && bash_has 'ttrun job.json --tr' --training. &&
        bash_has 'ttrun --training.s' --training.steps --training.seq_len --training.seed && bash_has 'ttrun --validation.dataloader.p' --validation.dataloader.path &&
        bash_has 'ttrun --metrics.sinks' '--metrics.sinks[0].name'
}
keys_of_the_spec_only() {
    bash_has 'ttrun --spec gpt2 --model.args.n_' --model.args.n_positions && lacks n_kv_heads && bash_has 'ttrun job.json --model.args.n_' --model.args.n_kv_heads &&
        lacks n_positions
}
values() {
    bash_gives 'ttrun --optimizer.name ' adam adamw adamw8bit lion muon schedule_free sgd soap && bash_gives 'ttrun --optimizer.name=ad' adam adamw adamw8bit && bash_gives 'ttrun --optimizer.name=s' schedule_free sgd soap &&
        bash_gives 'ttrun --activation_checkpoint.mode ' none selective full budget && bash_gives 'ttrun --checkpoint.enable t' true &&
        bash_gives 'ttrun --model.flavor 40' 405B && bash_gives 'ttrun --spec gpt2 --model.flavor 1' 124M 1558M && bash_gives 'ttrun --resume ' auto never &&
        bash_has 'ttrun --spec ' llama3 gpt2 && bash_gives 'ttrun --metrics.sinks[0].name j' jsonl && bash_gives 'ttrun --training.steps ' ''
}
words_of_commands() {
    bash_gives 'ttrun ckpt ' ls verify diff reshard import export && bash_gives 'ttrun plugins ' list check new &&
        bash_has 'ttrun plugins new ' optimizer kernels && lacks backend && bash_has 'ttrun plugins list ' backend && bash_gives 'ttrun ckpt import a --from ' dcp hf meta torchtitan &&
        bash_gives 'ttrun plan --hardware h' h100 h100-500w h200 && bash_has 'ttrun tokenizer --pattern ' o200k && bash_gives 'ttrun config --explain hardw' hardware &&
        bash_has 'ttrun config --explain ' spec training optimizer && bash_has 'ttrun config --explain optimizer.' optimizer.beta2
}
files_and_folders() {
    bash_gives 'ttrun plan ' folder job.json && bash_gives 'ttrun eval --checkpoint ' folder && bash_gives 'ttrun generate ' folder && bash_gives 'ttrun report ' folder &&
        bash_gives 'ttrun --dataloader.path jo' job.json && bash_gives 'ttrun generate --prompts jo' job.json
}
odd_lines_do_no_harm() {
    for line in 'ttrun --' 'ttrun --=' 'ttrun =' 'ttrun --x.y.z ' 'ttrun --spec none --model.args.' 'ttrun none.json --optimizer.' 'ttrun --plugin-dir /none --optimizer.name ' \
        "ttrun --training.steps '" 'ttrun --hooks[' 'ttrun ckpt ls a b c d ' 'ttrun --a[99999999999999].b '; do
        (cd "$dir/at" && SRC=$SRC bash "$dir/drive.bash" "$line") >"$dir/got" 2>"$dir/err" && ! [ -s "$dir/err" ] || { echo "$line"; cat "$dir/err"; return 1; }
    done
    for words in 'bash' 'bash 1' 'bash x ttrun' 'bash 99 ttrun' 'bash -5 ttrun --op' 'zsh 1 ttrun --spec=' 'fish 0 ttrun'; do
        # shellcheck disable=SC2086
        "$TTRUN" complete $words >/dev/null 2>"$dir/err" && ! [ -s "$dir/err" ] || { echo "$words"; return 1; }
    done
}
for_shells_that_keep_the_equals_sign() {
    [ "$("$TTRUN" complete zsh 1 ttrun --spec=gp | sed -n '2s/	.*//p')" = --spec=gpt2 ] && [ "$("$TTRUN" complete fish 2 ttrun generate --temp | sed -n '2s/	.*//p')" = --temperature ]
}
zsh_reads_its_script() { zsh -n mk/ttrun.zsh; }
fish_completes() {
    fish -n mk/ttrun.fish && [ "$(fish --no-config -c "source mk/ttrun.fish; complete -C'ttrun --optimizer.beta1'" | sed 's/	.*//')" = --optimizer.beta1 ]
}
for c in commands every_option_of_every_command options keys keys_of_the_spec_only values words_of_commands files_and_folders odd_lines_do_no_harm \
    for_shells_that_keep_the_equals_sign; do
    check $c $c
done
if command -v zsh >/dev/null; then check zsh_reads_its_script zsh_reads_its_script; else skip zsh_reads_its_script "no zsh here"; fi
if command -v fish >/dev/null; then check fish_completes fish_completes; else skip fish_completes "no fish here"; fi
exit $failed
