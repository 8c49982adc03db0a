#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# ttrun data, and the cache of tokens under a run.
. "$(dirname "$0")/lib.sh"
cache=$dir/cache
data() {
    verb=$1
    shift
    ttrun data "$verb" "$job" "$@" >"$dir/out" 2>"$dir/err"
    rc=$?
}
files() { ls "$1" | sed 's/.*\.//' | sort | tr '\n' ' '; }

data build --dataloader.cache "$dir/cache"
[ $rc -eq 0 ] && grep -q '^1 file, 1 document, [0-9,]* bytes of text, [0-9,]* tokens, [0-9,]* samples of 32$' "$dir/out" &&
    grep -q "^in .*/cache/[0-9a-f]*\.tokens$" "$dir/out" && files "$cache" | grep -q '^\(key \)\{0,1\}tokens $'
ok build_prints_counts_and_the_cache_folder
# Text younger than two seconds is not believed to be unchanged; a file of the checkout is older.
data build --dataloader.path "$SRC/LICENSE" --dataloader.cache "$dir/cache_of_old"
[ $rc -eq 0 ] && [ "$(files "$dir/cache_of_old")" = "key tokens " ]
ok build_notes_the_times_of_old_text
bytes=$(wc -c <"$dir/text.txt")
data build --dataloader.cache "$dir/cache" --json
[ $rc -eq 0 ] && [ "$(value "$dir/out" text_bytes)" = "$bytes" ] && [ "$(value "$dir/out" tokens)" = $((bytes + 2)) ] &&
    [ "$(value "$dir/out" samples)" = $(((bytes + 1) / 32)) ] && [ "$(value "$dir/out" loader)" = text ]
ok build_json
data build
[ $rc -eq 0 ] && grep -q '^in memory: less than 1 MiB of text$' "$dir/out"
ok build_does_not_cache_little_text
data build --dataloader.cache off
[ $rc -eq 0 ] && grep -q '^in memory: dataloader.cache is "off"$' "$dir/out"
ok build_with_cache_off
i=0
while [ $i -lt 40 ]; do cat "$dir/text.txt"; i=$((i + 1)); done >"$dir/big.txt"
XDG_CACHE_HOME=$dir/xdg data build --dataloader.path "$dir/big.txt"
[ $rc -eq 0 ] && ls "$dir"/xdg/ttrun/*.tokens >/dev/null && [ "$(wc -c <"$dir/big.txt")" -gt 1048576 ]
ok cache_auto_is_xdg_cache_home
(unset XDG_CACHE_HOME && HOME=$dir/home && export HOME && data build --dataloader.path "$dir/big.txt" && exit $rc) &&
    ls "$dir"/home/.cache/ttrun/*.tokens >/dev/null
ok cache_auto_without_xdg_is_below_home

# the same losses from a cache, from memory and on ranks
train "$dir/a" --training.steps 3 --dataloader.cache "$dir/cache"
[ $rc -eq 0 ] && grep -q 'epoch; from .*\.tokens$' "$dir/err" && losses "$dir/a/metrics.jsonl" >"$dir/a.losses"
ok train_from_the_cache
train "$dir/b" --training.steps 3 --dataloader.cache off
[ $rc -eq 0 ] && losses "$dir/b/metrics.jsonl" | cmp - "$dir/a.losses" && [ "$(wc -l <"$dir/a.losses")" -eq 3 ]
ok train_without_the_cache_is_the_same
train "$dir/c" --training.steps 2 --dataloader.cache off --nproc 4 --comm.backend local --log.ranks all
[ $rc -eq 0 ] && [ "$(grep -c 'tokens, .* samples per epoch' "$dir/err")" -eq 1 ]
ok rank_threads_tokenise_once
for f in "$cache"/*.tokens; do truncate -s 5000 "$f"; done
train "$dir/d" --training.steps 3 --dataloader.cache "$dir/cache"
[ $rc -eq 0 ] && grep -q 'cut off; tokenising again' "$dir/err" && losses "$dir/d/metrics.jsonl" | cmp - "$dir/a.losses"
ok damaged_cache_is_rebuilt
train "$dir/e" --training.steps 3 --dataloader.cache "$dir/text.txt/below"
[ $rc -eq 0 ] && [ "$(grep -c 'kept in memory, for this run only' "$dir/err")" -eq 1 ] &&
    losses "$dir/e/metrics.jsonl" | cmp - "$dir/a.losses"
ok cache_folder_that_cannot_be_made_is_one_line

# show
data show --sample 1 --n 2 --json
[ $rc -eq 0 ] && head -c 95 "$dir/text.txt" >"$dir/head" &&
    printf '%s' "$(cut -c32-63 "$dir/head" | head -n 1)" >"$dir/want" && grep -q "\"text\":\"$(cat "$dir/want")\"" "$dir/out" &&
    [ "$(grep -o '"sample":' "$dir/out" | wc -l)" -eq 2 ]
ok show_json
TERM=xterm TTRUN_TTY=80 "$TTRUN" tokenizer train --data "$dir/text.txt" --vocab-size 340 --bos '<begin>' --out "$dir/tok" >/dev/null 2>"$dir/err"
tr '\r' '\n' <"$dir/err" | grep -o '^MiB counted 100%\|^tokens  *[0-9]*% .*/340' | sed 's/ \[.*\]//' >"$dir/out"
[ "$(cat "$dir/out")" = "MiB counted 100%
tokens  94%  321/340" ]
ok each_stage_of_a_tokenizer_has_its_bar
data show --tokenizer.name hf --tokenizer.path "$dir/tok/tokenizer.json" --model.args.vocab_size 340
[ $rc -eq 0 ] && grep -q '^  text    "<begin>' "$dir/out"
ok show_has_special_tokens_in_the_text
data show --training.seq_len 8
want=$(head -c 7 "$dir/text.txt" | od -An -tu1 | tr -s ' \n' ' ' | sed 's/^ //; s/ $//')
[ $rc -eq 0 ] && grep -q "^  ids     256 $want$" "$dir/out" && grep -q '^  pos     0 1 2 3 4 5 6 7$' "$dir/out" &&
    grep -q "^  labels  $want [0-9]*$" "$dir/out" && grep -q '^  text    "line 0 "$' "$dir/out"
ok show_text
head -c 400 "$dir/text.txt" | od -An -tu1 -v | tr -s ' ' '\n' | sed '/^$/d' |
    awk '{printf "\\%03o\\000\n", $1}' | while read -r escaped; do printf "$escaped"; done >"$dir/raw.bin"
data show --dataloader.name bin --dataloader.path "$dir/raw.bin" --dataloader.format uint16 --training.seq_len 8
[ $rc -eq 0 ] && grep -q '^1 file, 400 tokens, 49 samples of 8$' "$dir/out" && grep -q 'data. 1 file, 400 tokens of 2 bytes' "$dir/err" && ! grep -q text "$dir/out" &&
    grep -q "^  ids     $want" "$dir/out"
ok show_tokens_without_a_tokenizer
data show --dataloader.name bin --dataloader.path "$dir/raw.bin" --dataloader.format uint16 --training.seq_len 8 --tokenizer.name byte
[ $rc -eq 0 ] && grep -q '^  text    "line 0 o"$' "$dir/out"
ok show_tokens_with_a_tokenizer
data show --sample 1000000
[ $rc -eq 2 ] && grep -q 'an epoch has samples 0 to' "$dir/err" && one_line "$dir/err"
ok show_beyond_the_end
data list
[ $rc -eq 2 ] && grep -q 'usage: ttrun data build' "$dir/err" && one_line "$dir/err"
ok unknown_verb
data build --sample 1
[ $rc -eq 2 ] && grep -q 'go with ttrun data show' "$dir/err"
ok build_refuses_sample

# a file of tokens cut off under a run: an error that names it, and no crash
cat "$dir/raw.bin" "$dir/raw.bin" "$dir/raw.bin" "$dir/raw.bin" >"$dir/cut.bin"
start "$dir/f" --training.steps 1000000 --dataloader.name bin --dataloader.path "$dir/cut.bin" --dataloader.format uint16 --checkpoint.enable false
until_true has_lines "$dir/f/metrics.jsonl" 2
truncate -s 100 "$dir/cut.bin"
wait $pid
rc=$?
cp "$dir/f.err" "$dir/err"
[ $rc -eq 1 ] && grep -q 'cut.bin ends at byte 100' "$dir/err"
ok tokens_file_that_is_cut_off_during_a_run
exit $failed
