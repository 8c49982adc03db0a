#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What reads a model on the backend "far" (tests/plugins/far), whose memory the host cannot read: validation while training, `ttrun eval`,
# `ttrun generate` and `ttrun plugins check` say what they say on the reference backend.
. "$(dirname "$0")/lib.sh"
mkdir -p "$dir/far/backends"
cp "$BUILD/tests/plugins/far/far.so" "$dir/far/backends/"
ref="--plugin-dir $dir/far --backend.name reference"
far="--plugin-dir $dir/far --backend.name far"

numbers() { # metrics.jsonl without what differs from run to run
    without_times "$1/metrics.jsonl"
}
same_numbers() { numbers "$1" >"$dir/a" && numbers "$2" >"$dir/b" && [ -s "$dir/a" ] && cmp "$dir/a" "$dir/b" >>"$dir/err" 2>&1; }

# ---- validation, beside the copies of a save ----
valid="--training.steps 4 --checkpoint.interval 2 --validation.enable true --validation.freq 2 --validation.steps 3 --validation.dataloader.path $dir/text.txt"
validates() { # NAME OPTION…
    name=$1
    shift
    train "$dir/${name}_ref" $ref $valid "$@" --comm.backend local
    [ "$rc" -eq 0 ] && [ "$(grep -c '"validation":{' "$dir/${name}_ref/metrics.jsonl")" -eq 2 ]
    ok "validation_on_the_reference_$name"
    for comm in local far; do
        [ $comm = local ] || [ "$name" != alone ] || continue
        train "$dir/${name}_$comm" $far $valid "$@" --comm.backend $comm
        [ "$rc" -eq 0 ] && same_numbers "$dir/${name}_ref" "$dir/${name}_$comm" &&
            [ "$(hash_of "$dir/${name}_ref/checkpoint/step-2")" = "$(hash_of "$dir/${name}_$comm/checkpoint/step-2")" ]
        ok "validation_on_far_${name}_$comm"
    done
}
validates alone
validates fsdp --nproc 2 --parallelism.data_parallel_shard_degree 2
validates pp --nproc 2 --parallelism.pipeline_parallel_degree 2

# ---- eval and generate ----
both() { # COMMAND OPTION…: the same output on both backends
    command=$1
    shift
    for backend in reference far; do
        ttrun "$command" --checkpoint "$run" --plugin-dir "$dir/far" --backend.name $backend "$@" >"$dir/out.$backend" 2>"$dir/err"
        rc=$?
        [ "$rc" -eq 0 ] && [ -s "$dir/out.$backend" ] || return 1
    done
    cmp "$dir/out.reference" "$dir/out.far" >>"$dir/err" 2>&1
}
run=$dir/run
train "$run" --training.steps 60 --checkpoint.last_save_in_hf true
[ $rc -eq 0 ]
ok a_model_is_trained
both eval --data "$dir/text.txt" --samples 20 --json -q
ok eval
printf 'line 7\n\nof a text\n' >"$dir/prompts.txt"
both generate --prompt 'line 1' --prompts "$dir/prompts.txt" --n 2 --max-tokens 12 --json && [ "$(wc -l <"$dir/out.far")" -eq 8 ]
ok generate_with_a_cache
both generate --prompt 'line 1' --prompts "$dir/prompts.txt" --max-tokens 12 --json --batch 2 --temperature 0 --backend.threads 1
ok generate_in_batches
run=$dir/run/hf/latest
both generate --tokenizer.name byte --prompt 'line 12' --max-tokens 8 --temperature 0
ok generate_from_a_hugging_face_folder
# a sum over the tokens before has no form for one token after the other: the whole context is computed for each
cat >"$dir/sums" <<'SUMS'
    const tt_dim T = tt_value_type(x)->dims[0], joined[2] = {T, D};
    const tt_dim apart[3] = {TT_DIM(T.lines, NULL), TT_DIM(T.size / T.lines, NULL), D};
    x = tt_add(b, x, tt_reshape(b, tt_cumsum(b, tt_reshape(b, x, apart, 3), 1, NULL), joined, 2));
SUMS
awk -v sums="$(cat "$dir/sums")" '/^    x = tt_rms_norm\(b, x, "norm"/ {print sums} {print} /<ttrun\/model.h>/ {print "#include <ttrun/recurrence.h>"}' "$SRC/examples/mini/mini.c" >"$dir/mini.c"
cc -std=c11 -w -O1 -fPIC -shared -fvisibility=hidden "-I$SRC/include" "$dir/mini.c" "-L$BUILD" -lttrun -lm -o "$dir/far/mini.so" 2>"$dir/err"
ok plugin_without_a_cache_builds
sed 's|"model": {.*|"model": { "name": "mini" },|; /"args": {/d' "$job" >"$dir/mini.json"
job=$dir/mini.json run=$dir/mini
train "$run" --plugin-dir "$dir/far" --training.steps 5
[ $rc -eq 0 ]
ok a_model_without_a_cache_is_trained
both generate --prompt 'line 1' --max-tokens 6 --json -v && grep -q 'every token computes its whole context again' "$dir/err"
ok generate_without_a_cache

"$TTRUN" plugins check "$dir/far/backends/far.so" --plugin-dir "$PLUGINS" >"$dir/out" 2>"$dir/err"
rc=$?
[ $rc -eq 0 ] && "$TTRUN" plugins check "$PLUGINS/backends/reference.so" --plugin-dir "$PLUGINS" >"$dir/want" 2>>"$dir/err" &&
    sed 1d "$dir/out" | sed 's/backend far/backend reference/' >"$dir/have" && sed 1d "$dir/want" | cmp - "$dir/have" >>"$dir/err" 2>&1
ok plugins_check_of_far_says_what_it_says_of_the_reference
exit $failed
