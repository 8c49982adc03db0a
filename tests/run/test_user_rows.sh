#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What newcomers and users of other trainers tried, once more: every command of user_rows.table runs in a copy of the tree as a
# clone has it, with no variables but PATH and HOME, and must end with the given status and print, or not print, the given words.
# Commands build on those before them. TTRUN_ROWS=PATTERN: only the rows of that name (and those that make the folders).
. "$(dirname "$0")/../script.sh"
table=$(dirname "$0")/user_rows.table

clone=$dir/clone
mkdir -p "$clone" "$dir/home" "$dir/bin"
for f in "$SRC"/*; do
    case ${f##*/} in outputs | configs | mine) ;; *) ln -s "$f" "$clone/" ;; esac
done
cp -r "$SRC/configs" "$clone/" # rows write there
ln -s "$TTRUN" "$dir/bin/ttrun"
small="configs/pretrain_text.json --model.args.n_layers 1 --model.args.dim 32 --model.args.n_heads 2 --model.args.n_kv_heads 2
 --model.args.hidden_dim 48 --training.seq_len 32 --training.local_batch_size 2 --tokenizer.path outputs/tokenizer"
small=$(printf '%s' "$small" | tr -d '\n')

row() { # NAME STATUS PATTERN COMMAND
    command=$(printf '%s\n' "$4" | sed "s#@S#$small#g; s#@HF#outputs/theirs#g; s#@RUN#outputs/pretrain#g")
    (cd "$clone" && exec env -i PATH="$dir/bin:$PATH" HOME="$dir/home" sh -c "$command") >"$dir/out" 2>&1 </dev/null
    status=$?
    why=
    [ $status -eq "$2" ] || why="status $status, not $2"
    case $3 in
    !*) ! grep -Eq -e "${3#!}" "$dir/out" || why="$why; it printed $3" ;;
    *) grep -Eq -e "$3" "$dir/out" || why="$why; it did not print $3" ;;
    esac
    [ -z "$why" ] && { echo "ok $1"; return; }
    echo "not ok $1 ($why)"
    echo "    $command"
    tail -n 12 "$dir/out" | sed 's/^/    /'
    failed=1
}

# Columns are divided by |; \| is one in a pattern or a command.
sed '/^#/d; /^ *$/d; s/\\|/\x01/g' "$table" >"$dir/rows"
while IFS='|' read -r name wanted pattern command <&3; do
    case $name in
    *learnt | *written | huge_* | flavor_hf* | ${TTRUN_ROWS:-*}) ;;
    *) continue ;;
    esac
    row "$name" "$wanted" "$(printf '%s' "$pattern" | tr '\001' '|')" "$(printf '%s' "$command" | tr '\001' '|')"
done 3<"$dir/rows"
exit $failed
