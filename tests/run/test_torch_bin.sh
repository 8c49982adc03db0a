#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Folders with pytorch_model.bin instead of safetensors: the same weights in training, generate and eval; hostile files end with a line.
. "$(dirname "$0")/lib.sh"
tool=$BUILD/tests/run/bin_tool
train "$dir/made" --training.steps 2 --checkpoint.last_save_in_hf true --checkpoint.interval 2
[ "$rc" -eq 0 ]
ok trains_a_model
st=$(cd "$dir/made/hf/latest" && pwd -P)
for kind in bin sharded both; do
    mkdir "$dir/$kind"
    cp "$st"/*.json "$dir/$kind"
done
"$tool" "$st/model.safetensors" "$dir/bin/pytorch_model.bin" >"$dir/names" && n=$(wc -l <"$dir/names")
{
    echo '{"metadata": {}, "weight_map": {'
    separator=
    for part in 1 2; do
        begin=$(((part - 1) * (n / 2))) end=$((part == 2 ? n : n / 2))
        for name in $("$tool" "$st/model.safetensors" "$dir/sharded/pytorch_model-0000$part-of-00002.bin" $begin $end); do
            echo "$separator\"$name\": \"pytorch_model-0000$part-of-00002.bin\""
            separator=,
        done
    done
    echo '}}'
} >"$dir/sharded/pytorch_model.bin.index.json"
[ "$n" -gt 10 ] && [ "$(wc -l <"$dir/sharded/pytorch_model.bin.index.json")" -eq $((n + 2)) ]
ok writes_files_as_pytorch_does
more() { # FOLDER: continues from its weights
    train "$dir/from-$1" --checkpoint.initial_load_in_hf true --checkpoint.initial_load_path "$2" --checkpoint.enable false --training.steps 3
}
more safetensors "$st" && for kind in bin sharded; do
    more $kind "$dir/$kind"
    [ "$rc" -eq 0 ] && [ -n "$(losses "$dir/from-$kind/metrics.jsonl")" ] &&
        [ "$(losses "$dir/from-$kind/metrics.jsonl")" = "$(losses "$dir/from-safetensors/metrics.jsonl")" ]
    ok "trains_from_$kind"
done
text() { ttrun generate --checkpoint "$1" --tokenizer.name byte --prompt line --max-tokens 12 --temperature 0 2>"$dir/err"; }
text "$st" >"$dir/want" && for kind in bin sharded; do
    text "$dir/$kind" >"$dir/out" && [ -s "$dir/out" ] && cmp -s "$dir/want" "$dir/out"
    ok "generates_from_$kind"
done
score() { ttrun eval --checkpoint "$1" --tokenizer.name byte --data "$dir/text.txt" --seq_len 32 2>"$dir/err"; }
score "$st" >"$dir/want" && score "$dir/bin" >"$dir/out" && [ -s "$dir/out" ] && cmp -s "$dir/want" "$dir/out"
ok evaluates_from_bin
# safetensors count where both are there
cp "$st/model.safetensors" "$dir/both" && echo hello >"$dir/both/pytorch_model.bin" && text "$st" >"$dir/want" && text "$dir/both" >"$dir/out" && cmp -s "$dir/want" "$dir/out"
ok safetensors_come_first

# one line, status 2
refused() { # NAME TEXT
    text "$dir/bin" >"$dir/out"
    rc=$?
    [ $rc -eq 2 ] && grep -q "$2" "$dir/err" && one_line "$dir/err" && ! [ -s "$dir/out" ]
    ok "$1"
}
cp "$dir/bin/pytorch_model.bin" "$dir/good"
head -c 9000 "$dir/good" >"$dir/bin/pytorch_model.bin"
refused cut_short 'pytorch_model.bin: no end of a zip file: cut short (copy it again)'
echo hello >"$dir/bin/pytorch_model.bin"
refused text_is_no_file_of_torch 'not a zip file, so not what torch.save writes'
: >"$dir/bin/pytorch_model.bin"
refused empty_file 'not a zip file'
printf '\200\002\212\012\154\374\234\106\371\040\152\250\120\031.' >"$dir/bin/pytorch_model.bin"
refused old_format_names_the_line_that_converts_it "before PyTorch 1.6, which is not read; write it again: python3 -c"
sed 's/_rebuild_tensor_v2/_rebuild_tensor_vX/' "$dir/good" >"$dir/bin/pytorch_model.bin"
refused other_global 'of the pickle: it names the global torch._utils._rebuild_tensor_vX, which weights do not need; nothing was run'
rm "$dir/bin/pytorch_model.bin"
refused no_weights 'no model.safetensors, no pytorch_model.bin and no index of them'
sed -i 's|"pytorch_model-00002-of-00002.bin"|"../evil.bin"|' "$dir/sharded/pytorch_model.bin.index.json"
text "$dir/sharded" >"$dir/out"
rc=$?
[ $rc -eq 2 ] && grep -q 'is not in the name of a .bin file in this folder' "$dir/err"
ok index_stays_in_its_folder
exit $failed
