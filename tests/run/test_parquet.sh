#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Parquet: a run on its rows has the losses of a run on the same rows as JSON lines, to the bit, for texts and for conversations;
# data show, eval, mixtures; errors by file, row and column.
. "$(dirname "$0")/lib.sh"
rows="$BUILD/tests/run/parquet_tool" golden=$SRC/tests/golden/parquet.json
for number in $(seq 0 60); do # texts.parquet and chats.parquet, which pyarrow wrote
    name=$("$json" "$golden" "files.$number.name" 2>/dev/null) || break
    case $name in
    texts | chats) "$json" "$golden" "hex:files.$number.hex" >"$dir/$name.parquet" && "$rows" "$dir/$name.parquet" >"$dir/$name.jsonl" ;;
    checksums) "$json" "$golden" "hex:files.$number.hex" >"$dir/words.parquet" ;;
    esac
done
[ "$(wc -l <"$dir/texts.jsonl")" -eq 12 ] && [ "$(wc -l <"$dir/chats.jsonl")" -eq 6 ]
ok files_of_pyarrow

# same NAME OPTION...: three steps on FILE.jsonl and on FILE.parquet have the same losses
same() {
    name=$1 file=$2
    shift 2
    for kind in jsonl parquet; do
        rm -rf "$dir/$kind"
        train "$dir/$kind" --training.steps 3 --dataloader.path "$dir/$file.$kind" "$@"
        [ $rc -eq 0 ] || break
        losses "$dir/$kind/metrics.jsonl" >"$dir/$kind.losses"
    done
    [ $rc -eq 0 ] && [ "$(wc -l <"$dir/jsonl.losses")" -eq 3 ] && cmp "$dir/jsonl.losses" "$dir/parquet.losses" >"$dir/out"
    ok "$name"
}
same texts texts --dataloader.name jsonl
cp "$dir/parquet.losses" "$dir/texts.losses"
same documents_apart texts --dataloader.name jsonl --dataloader.document_mask true
! cmp -s "$dir/parquet.losses" "$dir/texts.losses"
ok documents_are_rows
same packed texts --dataloader.name jsonl --dataloader.packing best_fit
same two_ranks texts --dataloader.name jsonl --nproc 2 --comm.backend local
same conversations chats --dataloader.name chat --dataloader.template chatml --training.seq_len 160
same packed_conversations chats --dataloader.name chat --dataloader.template chatml --training.seq_len 160 --dataloader.packing best_fit

# the loader of text takes rows as documents
for name in text jsonl; do
    train "$dir/by_$name" --training.steps 3 --dataloader.name $name --dataloader.document_mask true --dataloader.path "$dir/texts.parquet"
    [ $rc -eq 0 ] && losses "$dir/by_$name/metrics.jsonl" >"$dir/by_$name.losses" || break
done
[ $rc -eq 0 ] && [ -s "$dir/by_text.losses" ] && cmp "$dir/by_text.losses" "$dir/by_jsonl.losses" >"$dir/out"
ok text_has_the_rows
train "$dir/words" --training.steps 1 --training.seq_len 8 --training.local_batch_size 1 --dataloader.name text --dataloader.field s --dataloader.path "$dir/words.parquet"
[ $rc -eq 0 ]
ok text_has_another_column
# a tokenizer learns from rows as from files with the same documents
mkdir "$dir/documents"
line=0
while read -r row; do # the tool writes a row per line
    line=$((line + 1))
    printf '%s\n' "$row" >"$dir/row.json"
    printf '%s' "$("$json" "$dir/row.json" text; echo .)" | sed '$ s/\.$//' >"$dir/document"
    head -c -1 "$dir/document" >"$dir/documents/$(printf %02d $line)" # json_tool ends with a newline
done <"$dir/texts.jsonl"
gzip -k "$dir/texts.jsonl" && zstd -q "$dir/texts.jsonl" && { printf '['; paste -sd, "$dir/texts.jsonl"; printf ']'; } >"$dir/list.json" && gzip -k "$dir/list.json" &&
    mkdir "$dir/packed" && cp "$dir"/documents/* "$dir/packed" && for f in "$dir"/packed/*; do gzip "$f"; done
for data in texts.jsonl texts.jsonl.gz texts.jsonl.zst list.json list.json.gz 'packed/*'; do
    ttrun tokenizer train --data "$dir/$data" --vocab-size 300 --out "$dir/tok.other" >"$dir/out" 2>"$dir/err" && cp "$dir/tok.other/tokenizer.json" "$dir/tokenizer.$(echo "$data" | tr '/*' _)"
done
for data in texts.parquet 'documents/*'; do
    ttrun tokenizer train --data "$dir/$data" --vocab-size 300 --out "$dir/tok.${data%%[./]*}" >"$dir/out" 2>"$dir/err"
    rc=$?
done
[ $rc -eq 0 ] && cmp "$dir/tok.texts/tokenizer.json" "$dir/tok.documents/tokenizer.json" >"$dir/out" && [ "$("$json" "$dir/tok.texts/tokenizer.json" model.merges.20 2>/dev/null | wc -c)" -gt 3 ]
ok tokenizer_train
for data in texts.jsonl texts.jsonl.gz texts.jsonl.zst list.json list.json.gz packed__; do
    cmp "$dir/tokenizer.$data" "$dir/tok.documents/tokenizer.json"
    ok "tokenizer_train_$data"
done
printf '{"text":"a"}\n{"text":5}\n' >"$dir/bad.jsonl" && printf '[{"text":"a"},{"tex' >"$dir/cut.json" && printf 'no gzip' >"$dir/bad.txt.gz"
while IFS='|' read -r file want; do
    ttrun tokenizer train --data "$dir/$file" --vocab-size 300 --out "$dir/tok.none" >"$dir/out" 2>"$dir/err"
    [ $? -eq 2 ] && one_line "$dir/err" && grep -q "^ttrun: --data: .*$file$want" "$dir/err" && ! grep -q dataloader "$dir/err"
    ok "tokenizer_train_refuses_$file"
done <<'END'
bad.jsonl|:2: "text" is not a string
cut.json|.*the list has no end
bad.txt.gz| is not a gzip file
END
for field in body id; do
    ttrun tokenizer train --data "$dir/texts.parquet" --field $field --vocab-size 300 --out "$dir/tok.none" >"$dir/out" 2>"$dir/err"
    [ $? -eq 2 ] && [ "$(wc -l <"$dir/err")" -eq 1 ] && grep -q "data: .*texts.parquet: row 1: .*\"$field\"" "$dir/err"
    ok "tokenizer_train_without_column_$field"
done

# a file's rows come after those of the one before it, and neither its name nor its place in a glob makes a difference
mkdir "$dir/parts" && cp "$dir/texts.parquet" "$dir/parts/a.parquet" && cp "$dir/texts.jsonl" "$dir/parts/b.any" && cp "$dir/texts.parquet" "$dir/parts/c"
cat "$dir/texts.jsonl" "$dir/texts.jsonl" "$dir/texts.jsonl" >"$dir/three.jsonl"
train "$dir/glob" --training.steps 3 --dataloader.name jsonl --dataloader.path "$dir/parts/*"
losses "$dir/glob/metrics.jsonl" >"$dir/glob.losses"
train "$dir/three" --training.steps 3 --dataloader.name jsonl --dataloader.path "$dir/three.jsonl"
[ $rc -eq 0 ] && losses "$dir/three/metrics.jsonl" | cmp - "$dir/glob.losses" >"$dir/out" && [ -s "$dir/glob.losses" ]
ok globs
for kind in jsonl parquet; do
    ttrun data show "$job" --n 2 --dataloader.name chat --dataloader.template chatml --training.seq_len 160 --dataloader.path "$dir/chats.$kind" \
        2>"$dir/err" | sed 's/[0-9]* bytes//' >"$dir/$kind.shown"
    ttrun eval --checkpoint "$dir/glob" --data "$dir/texts.$kind" 2>"$dir/err" | grep -v "$dir" >"$dir/$kind.eval"
done
grep -q 'learned.*the answer is' "$dir/parquet.shown" && cmp "$dir/jsonl.shown" "$dir/parquet.shown" >"$dir/out"
ok data_show
grep -q 'tokens' "$dir/parquet.eval" && cmp "$dir/jsonl.eval" "$dir/parquet.eval" >"$dir/out"
ok eval

# refuses NAME FILE WORDS OPTION...: one line
refuses() {
    name=$1 file=$2 words=$3
    shift 3
    train "$dir/refused" --training.steps 2 --dataloader.path "$dir/$file" "$@"
    [ $rc -ne 0 ] && [ "$(wc -l <"$dir/err")" -eq 1 ] && grep -q "dataloader.path.*$file.*$words" "$dir/err"
    ok "refuses_$name"
}
refuses a_missing_column texts.parquet 'row 1: no field "body"; dataloader.field' --dataloader.name jsonl --dataloader.field body
refuses a_column_of_numbers texts.parquet 'row 1: "id" is not a string' --dataloader.name jsonl --dataloader.field id
refuses rows_that_are_no_conversations texts.parquet 'row 1: ' --dataloader.name chat --dataloader.template chatml
refuses a_column_that_text_lacks texts.parquet 'row 1: no field "body"' --dataloader.name text --dataloader.field body
size=$(wc -c <"$dir/texts.parquet")
head -c $((size - 9)) "$dir/texts.parquet" >"$dir/cut.parquet"
refuses a_cut_file cut.parquet 'PAR1' --dataloader.name jsonl
sed 's/prefix one/prefix One/' "$dir/words.parquet" >"$dir/changed.parquet" # the page has a checksum
refuses a_changed_page changed.parquet 'column s: .*checksum' --dataloader.name jsonl --dataloader.field s
exit $failed
