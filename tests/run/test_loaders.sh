#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A run on each kind of data: JSON lines plain and packed, files of tokens of llm.c and without a header. The same stream
# of tokens must give the same losses whatever file it comes from.
. "$(dirname "$0")/lib.sh"

# bytes N...: as little-endian words of WIDTH bytes: words WIDTH <numbers
words() {
    awk -v w="$1" '{
        v = $1
        for (i = 0; i < w; i++) { printf "\\%03o", v % 256; v = int(v / 256) }
        printf "\n"
    }' | while read -r escaped; do printf "$escaped"; done
}
# Two documents, and their tokens as the byte tokenizer has them: bos 256, eos 257.
awk 'BEGIN {
    for (d = 0; d < 2; d++) {
        printf "{\"id\": %d, \"text\": \"", d
        for (i = 0; i < 300; i++) printf "%c", 97 + (i * (d + 3)) % 26
        printf "\"}\n"
    }
}' >"$dir/two.jsonl"
awk 'BEGIN {
    for (d = 0; d < 2; d++) {
        print 256
        for (i = 0; i < 300; i++) print 97 + (i * (d + 3)) % 26
        print 257
    }
}' >"$dir/numbers"
zeros=$(awk 'BEGIN {for (i = 3; i < 256; i++) print 0}')
words 2 <"$dir/numbers" >"$dir/raw16.dat"
words 4 <"$dir/numbers" >"$dir/raw32.dat"
{ printf '%s\n' 20240520 1 604 $zeros | words 4; cat "$dir/raw16.dat"; } >"$dir/gpt2.bin"
{ printf '%s\n' 20240801 7 604 $zeros | words 4; cat "$dir/raw32.dat"; } >"$dir/llama3.bin"
mkdir "$dir/parts"
{ printf '%s\n' 20240520 1 300 $zeros | words 4; head -c 600 "$dir/raw16.dat"; } >"$dir/parts/a.bin"
{ printf '%s\n' 20240520 1 304 $zeros | words 4; tail -c 608 "$dir/raw16.dat"; } >"$dir/parts/b.bin"
cp "$dir/two.jsonl" "$dir/other.jsonl"
gzip -c "$dir/two.jsonl" >"$dir/two.jsonl.gz"

# runs NAME OPTION...: two steps, and the losses are those of the first run
runs() {
    name=$1
    shift
    train "$dir/$name" --training.steps 2 "$@"
    [ $rc -eq 0 ] && losses "$dir/$name/metrics.jsonl" >"$dir/$name.losses" &&
        [ "$(wc -l <"$dir/$name.losses")" -eq 2 ] && cmp "$dir/jsonl.losses" "$dir/$name.losses" >>"$dir/out"
    ok "losses_of_$name"
}
runs jsonl --dataloader.name jsonl --dataloader.path "$dir/two.jsonl"
runs jsonl_gz --dataloader.name jsonl --dataloader.path "$dir/two.jsonl.gz"
if command -v zstd >/dev/null 2>&1; then
    zstd -q --long=27 "$dir/two.jsonl" -o "$dir/two.jsonl.zst"
    runs jsonl_zst --dataloader.name jsonl --dataloader.path "$dir/tw*.zst"
else
    skip losses_of_jsonl_zst "no zstd here"
fi
runs llmc_gpt2 --dataloader.name bin --dataloader.path "$dir/gpt2.bin"
runs llmc_llama3 --dataloader.name bin --dataloader.path "$dir/llama3.bin"
runs llmc_two_files --dataloader.name bin --dataloader.path "$dir/parts/*.bin"
runs raw_uint16 --dataloader.name bin --dataloader.path "$dir/raw16.dat" --dataloader.format uint16
runs raw_uint32 --dataloader.name bin --dataloader.path "$dir/raw32.dat" --dataloader.format uint32

# documents apart: by the tokenizer's tokens and by their ids the same
train "$dir/mask_a" --training.steps 2 --dataloader.name jsonl --dataloader.path "$dir/two.jsonl" --dataloader.document_mask true
a=$(losses "$dir/mask_a/metrics.jsonl")
train "$dir/mask_b" --training.steps 2 --dataloader.name bin --dataloader.path "$dir/gpt2.bin" --dataloader.document_mask true \
    --dataloader.bos_id 256 --dataloader.eos_id 257
[ $rc -eq 0 ] && [ -n "$a" ] && [ "$a" = "$(losses "$dir/mask_b/metrics.jsonl")" ]
ok document_masks_agree

# packed: by the text's documents and by Megatron's list of them the same, whatever the padding's id is
cp "$dir/raw16.dat" "$dir/mega.bin"
{
    printf 'MMIDIDX\000\000\001\000\000\000\000\000\000\000\010' # version 1, uint16; sequences, documents; lengths, offsets; documents
    printf '%s\n' 2 3 | words 8
    printf '%s\n' 302 302 | words 4
    printf '%s\n' 0 604 0 1 2 | words 8
} >"$dir/mega.idx"
train "$dir/pack_a" --training.steps 2 --dataloader.name jsonl --dataloader.path "$dir/two.jsonl" --dataloader.packing best_fit
grep -q '2 documents, in 20 pieces, packed into 19 samples of 32 .* 0.66 % padding$' "$dir/err" && a=$(losses "$dir/pack_a/metrics.jsonl") &&
    train "$dir/pack_b" --training.steps 2 --dataloader.name bin --dataloader.path "$dir/mega.bin" --dataloader.packing best_fit &&
    [ $rc -eq 0 ] && [ -n "$a" ] && [ "$a" = "$(losses "$dir/pack_b/metrics.jsonl")" ] && [ "$a" != "$(cat "$dir/jsonl.losses")" ]
ok packed_documents_agree
ttrun eval --checkpoint "$dir/pack_a" >"$dir/out" 2>"$dir/err"
rc=$?
[ $rc -eq 0 ] && grep -q '(602 tokens, 19 samples)$' "$dir/out" # 2 × 302, but the last of each document
ok packed_eval_counts_every_token

# refuses NAME WORDS OPTION...: one line, with a status
refuses() {
    name=$1 words=$2
    shift 2
    train "$dir/refused" --training.steps 2 "$@"
    [ $rc -ne 0 ] && [ "$(wc -l <"$dir/err")" -eq 1 ] && grep -q -e "$words" "$dir/err"
    ok "refuses_$name"
}
echo '{"text": 1}' >>"$dir/other.jsonl"
refuses a_line_without_text 'other.jsonl:3: "text" is not a string' --dataloader.name jsonl --dataloader.path "$dir/other.jsonl"
head -c 1500 "$dir/gpt2.bin" >"$dir/cut.bin"
refuses a_cut_file 'cut.bin: 1500 bytes' --dataloader.name bin --dataloader.path "$dir/cut.bin"
refuses packing_without_documents 'dataloader.packing: .*gpt2.bin has no list' --dataloader.name bin --dataloader.path "$dir/gpt2.bin" --dataloader.packing best_fit
refuses a_bin_file_without_a_format 'set dataloader.format' --dataloader.name bin --dataloader.path "$dir/raw16.dat"
refuses an_unknown_format 'dataloader.format' --dataloader.name bin --dataloader.path "$dir/raw16.dat" --dataloader.format int8
refuses a_token_outside_the_vocabulary 'outside the model' --dataloader.name bin --dataloader.path "$dir/raw16.dat" --dataloader.format uint32
# documents of one token have no label: a batch of them is an update of zero gradient
head -c 8000 /dev/zero | tr '\0' 'A' >"$dir/ones.dat" # ids of 16705, each a document
for mesh in "" "--nproc 2 --comm.backend local --training.local_batch_size 2"; do
    rm -rf "$dir/ones"
    train "$dir/ones" $mesh --training.steps 3 --dataloader.name bin --dataloader.path "$dir/ones.dat" --dataloader.format uint16 \
        --dataloader.document_mask true --dataloader.bos_id 16705 --model.args.vocab_size 16706 --metrics.enable_tensorboard true
    [ $rc -eq 0 ] && [ "$(grep -c 'W train\] step [123]: no token of the batch is counted' "$dir/err")" -eq 3 ] &&
        [ "$(grep -c '"loss":null,"loss_max":null,"grad_norm":0,' "$dir/ones/metrics.jsonl")" -eq 3 ] &&
        [ "$(newest "$dir/ones/checkpoint")" = 3 ]
    ok "batch_without_a_counted_token_goes_by${mesh:+_on_two_ranks}"
done
train "$dir/ones" $mesh --training.steps 4 --dataloader.name bin --dataloader.path "$dir/ones.dat" --dataloader.format uint16 \
    --dataloader.document_mask true --dataloader.bos_id 16705 --model.args.vocab_size 16706
[ $rc -eq 0 ] && grep -q 'next is step 4' "$dir/err"
ok run_is_resumed_after_a_batch_without_a_counted_token

# ---- model.vocab_from_tokenizer ----
sed 's/, "vocab_size": 262//; s/"flavor": "debugmodel",/"flavor": "debugmodel", "vocab_from_tokenizer": true,/' "$dir/job.json" >"$dir/vocab.json"
job=$dir/vocab.json
train "$dir/vocab" --training.steps 2
[ $rc -eq 0 ] && [ "$(value "$dir/vocab/run.json" job.model.args.vocab_size)" = 262 ] && "$TTRUN" config "$job" --plugin-dir "$PLUGINS" | grep -q '"vocab_size": 262, *// tokenizer byte'
ok the_vocabulary_has_the_tokenizers_size
train "$dir/vocab" --training.steps 4
[ $rc -eq 0 ] && grep -q 'resumed from .*step-2' "$dir/err" && ! grep -q 'differs from the job.*vocab' "$dir/err"
ok such_a_run_resumes
train "$dir/vocab2" --training.steps 1 --model.args.vocab_size 300
[ $rc -eq 0 ] && [ "$(value "$dir/vocab2/run.json" job.model.args.vocab_size)" = 300 ]
ok a_size_that_is_set_wins
job=$dir/job.json

# ---- text: compressed too, and a line if it is JSON ----
head -c 9000 "$dir/text.txt" >"$dir/plain.txt"
gzip -c "$dir/plain.txt" >"$dir/plain.txt.gz"
zstd -q "$dir/plain.txt" -o "$dir/plain.txt.zst"
for kind in txt txt.gz txt.zst; do
    train "$dir/$kind" --dataloader.path "$dir/plain.$kind" --training.steps 2 && [ $rc -eq 0 ] && losses "$dir/$kind/metrics.jsonl" >"$dir/$kind.loss"
done
cmp -s "$dir/txt.loss" "$dir/txt.gz.loss" && cmp -s "$dir/txt.loss" "$dir/txt.zst.loss" && [ "$(wc -l <"$dir/txt.loss")" -eq 2 ] && ! grep -q 'JSON' "$dir/err"
ok text_of_gzip_and_zstd
cp "$dir/plain.txt" "$dir/named.txt.gz"
train "$dir/named" --dataloader.path "$dir/named.txt.gz"
[ $rc -eq 2 ] && one_line "$dir/err" && grep -q 'named.txt.gz' "$dir/err"
ok text_with_the_name_of_gzip
json() { # NAME TEXT: how often the loader text says that it is JSON
    printf "$2" >"$dir/json.$1" && train "$dir/json_$1" --dataloader.path "$dir/json.$1" --training.steps 1 --training.seq_len 4 --checkpoint.enable false
    [ $rc -eq 0 ] || return 1
    [ "$(grep -c "json.$1 is JSON: the loader text trains on braces and keys, too; dataloader.name jsonl" "$dir/err")" -eq "$3" ]
}
json lines '{"text": "one"}\n{"text": "two"}\n' 1 && json one ' {"text": "one two three"}' 0 && json list '[\n  {"a": "one"},\n  {"a": "two"}\n]\n' 1 && json code '{ int i = 0; }\nreturn "x";\n' 0 &&
    json tex '{"a quote", and more}\n{x}\n' 1 && json end '{"text": "one two three"}' 1 && json prose '[1] See the other page, {that one}.\n' 0 && json brace '{\n"a": 1\n}\n' 0
ok text_that_is_json_is_warned_of
cp "$dir/json.lines" "$dir/json.more"
train "$dir/json_two" --dataloader.path "[\"$dir/json.lines\", \"$dir/json.more\"]" --training.steps 1 --training.seq_len 4 --checkpoint.enable false
[ $rc -eq 0 ] && grep -q 'json.lines and 1 other file are JSON: ' "$dir/err"
ok several_files_of_json_are_one_line

# ---- a loader without options of its own for the order: the core's hold ----
mkdir "$dir/counts" && sed 's/@NAME@/counts/g; s/@[A-Z_]*@/1/g' "$SRC/share/templates/dataloader.c" >"$dir/counts/counts.c" &&
    cc -std=c11 -w -O1 -fPIC -shared "-I$SRC/include" "$dir/counts/counts.c" "-L$BUILD" -lttrun -o "$dir/counts/counts.so"
ok a_loader_without_shuffle_builds
sed 's|"dataloader": {[^}]*}|"dataloader": { "name": "counts" }|; s|"checkpoint": {[^}]*}|"checkpoint": { "enable": false }|' "$dir/job.json" >"$dir/counts.json"
order() { # OPTION...: the losses of two steps tell which samples they had
    rm -rf "$dir/ordered" && "$TTRUN" "$dir/counts.json" --plugin-dir "$dir/counts" --plugin-dir "$PLUGINS" --dump_folder "$dir/ordered" --training.steps 2 "$@" >"$dir/out" 2>"$dir/err" &&
        losses "$dir/ordered/metrics.jsonl" | tr '\n' ' '
}
still=$(order --dataloader.shuffle false) && a=$(order) && [ -n "$a" ] && [ "$a" != "$still" ] && [ "$(order --dataloader.shuffle true)" = "$a" ] &&
    b=$(order --dataloader.seed 3) && [ "$b" != "$a" ] && [ "$b" != "$still" ]
ok and_its_samples_are_shuffled
mixed='{ "mixture": [ {"name": "counts"}, {"name": "counts", "samples": 500} ] }'
sed "s|\"dataloader\": {[^}]*}|\"dataloader\": $mixed|" "$dir/counts.json" >"$dir/mixed.json"
sed 's|"name": "counts"}, |"name": "counts", "shuffle": false}, |; s|"samples": 500|&, "shuffle": false|' "$dir/mixed.json" >"$dir/mixed_each.json"
sed 's|"mixture"|"shuffle": false, &|' "$dir/mixed.json" >"$dir/mixed_all.json"
for kind in mixed mixed_each mixed_all; do
    sources=$("$TTRUN" data show "$dir/$kind.json" --plugin-dir "$dir/counts" --plugin-dir "$PLUGINS" --n 6 2>"$dir/err" | grep -o 'mixture.*of epoch 0' | grep -o 'sample [0-9]*' | sort -u | tr '\n' ' ')
    echo "$kind $sources"
done >"$dir/sources"
grep -q '^mixed_each sample 0 sample 1 sample 2 ' "$dir/sources" && [ "$(sed -n 's/^mixed_each //p' "$dir/sources")" = "$(sed -n 's/^mixed_all //p' "$dir/sources")" ] &&
    [ "$(sed -n 's/^mixed //p' "$dir/sources")" != "$(sed -n 's/^mixed_all //p' "$dir/sources")" ]
ok sources_of_a_mixture_too
sed 's|int64_t samples;|&int64_t shuffle;|;s|{"samples", "an epoch"|{"shuffle", "its own", TT_OPT_INT, offsetof(config, shuffle), "1000", 1, 1e12, NULL, 0, NULL}, &|' "$dir/counts/counts.c" >"$dir/own.c" &&
    cc -std=c11 -w -O1 -fPIC -shared "-I$SRC/include" "$dir/own.c" "-L$BUILD" -lttrun -o "$dir/counts/counts.so"
[ "$(order)" = "$still" ] && [ "$(order --dataloader.shuffle 7)" = "$still" ]
ok an_option_of_the_loader_s_own_is_the_loader_s
exit $failed
