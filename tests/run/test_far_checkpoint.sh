#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Checkpoints of the backend "far" (tests/plugins/far), whose memory the host cannot read: they have the bytes of the reference's, and
# both resume from each other's. And saves are copied beside the next step: what a save holds does not depend on how long its copies take.
. "$(dirname "$0")/lib.sh"
mkdir -p "$dir/far/backends"
cp "$BUILD/tests/plugins/far/far.so" "$dir/far/backends/"
ref="--plugin-dir $dir/far --backend.name reference"
far="--plugin-dir $dir/far --backend.name far"

numbers() { # metrics.jsonl without what differs from run to run
    sed 's/"\(tps\|tps_global\|tflops\|mfu\|mem_gib\|time_s\|wall\)":[^,}]*,\{0,1\}//g; s/"time":{[^}]*},\{0,1\}//' "$1/metrics.jsonl"
}
same_numbers() { numbers "$1" >"$dir/a" && numbers "$2" >"$dir/b" && [ -s "$dir/a" ] && cmp "$dir/a" "$dir/b" >>"$dir/err" 2>&1; }
same_steps() { # A B STEP…: the tensors of these checkpoints are equal
    (
        a=$1 b=$2
        shift 2
        for step; do
            [ -e "$b/checkpoint/step-$step" ] && [ "$(hash_of "$a/checkpoint/step-$step")" = "$(hash_of "$b/checkpoint/step-$step")" ] || exit 1
        done
    )
}

# ---- every step is saved; the model has buffers, which updates change too ----
cc -std=c11 -w -O1 -fPIC -shared -fvisibility=hidden "-I$SRC/include" "$SRC/tests/run/buffers.c" "-L$BUILD" -lttrun -lm -o "$dir/far/buffered.so"
ok plugin_with_buffers_builds
sed 's|"model": {.*|"model": { "name": "buffered" }, "comm": { "backend": "local" },|; /"args": {/d' "$job" >"$dir/buffers.json"
llama=$job job=$dir/buffers.json
every="--training.steps 4 --checkpoint.interval 1 --checkpoint.keep_latest_k 0"
train "$dir/every" $ref $every --checkpoint.async_mode disabled
[ $rc -eq 0 ] && [ "$(hash_of "$dir/every/checkpoint/step-1")" != "$(hash_of "$dir/every/checkpoint/step-2")" ]
ok every_step_is_saved
train "$dir/async" $ref $every
[ $rc -eq 0 ] && same_steps "$dir/every" "$dir/async" 1 2 3 4 && same_numbers "$dir/every" "$dir/async"
ok a_save_beside_the_next_step_has_the_same_bytes
for seed in 0 1 2 3; do
    train "$dir/every-$seed" $far --backend.seed $seed $every
    [ $rc -eq 0 ] && same_steps "$dir/every" "$dir/every-$seed" 1 2 3 4 && same_numbers "$dir/every" "$dir/every-$seed"
    ok "far_saves_the_bytes_of_the_reference_seed_$seed"
done
train "$dir/every-disabled" $far $every --checkpoint.async_mode disabled
[ $rc -eq 0 ] && same_steps "$dir/every" "$dir/every-disabled" 1 2 3 4
ok far_saves_the_same_bytes_with_async_mode_disabled

# A copy that lasts longer than the next forward: the update waits for it.
case $BUILD in */asan | */tsan) ;; *)
    cc -std=c11 -O1 -fno-builtin -shared -fPIC -o "$dir/slow.so" "$SRC/tests/run/slow.c" -ldl -lpthread
    ok slow_copies_build
    slow() { # FOLDER OPTION…
        folder=$1
        shift
        LD_PRELOAD=$dir/slow.so timeout 60 "$TTRUN" "$job" --plugin-dir "$PLUGINS" --dump_folder "$folder" "$@" >"$dir/out" 2>"$dir/err"
        rc=$?
    }
    two="--checkpoint.interval 1 --checkpoint.keep_latest_k 0 --training.steps 2"
    slow "$dir/slow" $ref $two
    [ $rc -eq 0 ] && same_steps "$dir/every" "$dir/slow" 1 2
    ok the_update_waits_for_the_copies_of_a_save
    slow "$dir/slow-far" $far $two
    [ $rc -eq 0 ] && same_steps "$dir/every" "$dir/slow-far" 1 2
    ok the_update_waits_for_the_copies_of_a_save_on_far
    ;;
esac
exit $failed
