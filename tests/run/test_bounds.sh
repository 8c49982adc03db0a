#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Files that change while they are read, that contain impossible values, or that need more than a machine has: each gives an
# error of one line.
. "$(dirname "$0")/lib.sh"
export TTRUN_PLUGIN_PATH="$PLUGINS"
says() { # STATUS WORDS COMMAND...: one error line with the words
    want=$1 words=$2
    shift 2
    "$@" >"$dir/out" 2>"$dir/err" </dev/null
    rc=$?
    [ $rc -eq "$want" ] && one_line "$dir/err" && grep -q -- "$words" "$dir/err"
}
train "$dir/whole" --training.steps 5
fresh() { rm -rf "$dir/run" && cp -r "$dir/whole" "$dir/run"; }
step=$dir/run/checkpoint/step-5

# ---- a shard that is cut off while it is read ----
case $BUILD in */asan | */tsan) skip a_file_that_shrinks "a sanitizer has a handler of SIGBUS of its own" ;; *)
    if preload cut; then
        cut() { # COMMAND...: a line that names the shard, and status 1
            fresh
            says 1 '^ttrun: .*step-5/shard-00001-.*safetensors: was cut off, or cannot be read any more' env LD_PRELOAD="$dir/cut.so" "$@"
        }
        cut "$TTRUN" ckpt diff "$step" "$dir/whole/checkpoint/step-5" && cut "$TTRUN" ckpt export "$step" "$dir/hf" --to hf &&
            cut "$TTRUN" ckpt reshard "$step" "$dir/two" && cut "$TTRUN" generate --checkpoint "$step" --prompt x &&
            cut "$TTRUN" eval --checkpoint "$step"
        ok shard_cut_off_while_a_command_reads_it
        load="--dump_folder $dir/loads --checkpoint.enable false --checkpoint.initial_load_path $step"
        # shellcheck disable=SC2086 # words
        cut "$TTRUN" "$job" -q $load && cut "$TTRUN" "$job" -q $load --nproc 2 --comm.backend shm &&
            cut "$TTRUN" "$job" -q $load --nproc 2 --comm.backend local
        ok shard_cut_off_while_a_run_loads_it
    fi ;;
esac
# ---- a trainer.json that says what cannot be ----
claims() { # KEY VALUE
    fresh
    sed -i "s/^{\"xxh3_128\":.*/{/; s/\"$1\":[0-9][0-9]*/\"$1\":$2/" "$step/trainer.json"
}
claims step 0
says 2 'step-5/trainer.json: step is 0, but the folder is called step-5' "$TTRUN" "$job" -q --dump_folder "$dir/run" &&
    [ "$(ls "$dir/run/checkpoint")" = step-5 ] && ! "$TTRUN" ckpt verify "$step" >"$dir/out" 2>&1 && grep -q 'call it step-0 again' "$dir/out" &&
    "$TTRUN" ckpt ls "$dir/run" | grep -q '^step-5 .*(trainer.json says step 0)'
ok step_of_another_folder
fresh
mv "$step" "$dir/run/checkpoint/step-20"
says 2 'step-20/trainer.json: step is 5, but the folder is called step-20' "$TTRUN" "$job" -q --dump_folder "$dir/run" --training.steps 25
ok renamed_step_folder
refused() { # KEY: beyond half of what is read, the most that is read, and beyond
    for value in 1152921504606846976 2305843009213693951; do
        claims "$1" $value
        says 2 "step-5/trainer.json: .*$1: no run can continue from $value" "$TTRUN" "$job" -q --dump_folder "$dir/run" || return 1
    done
    for value in 2305843009213693952 9223372036854775807 9223372036854775808 -1 0.5; do
        claims "$1" $value
        "$TTRUN" "$job" -q --dump_folder "$dir/run" >"$dir/out" 2>"$dir/err"
        rc=$?
        [ $rc -eq 2 ] && grep -q "$1: an integer from 0 to 2305843009213693951 is wanted" "$dir/err" || return 1
    done
}
refused step && refused tokens_seen && refused samples_seen
ok counts_that_a_run_cannot_add_to

# ---- a model that is too large for this machine ----
"$TTRUN" ckpt export "$dir/whole/checkpoint/step-5" "$dir/large" --to hf >"$dir/out" 2>"$dir/err"
sed -e 's/"hidden_size": 32/"hidden_size": 65536/' -e 's/"head_dim": 8/"head_dim": 16384/' -e 's/"intermediate_size": 48/"intermediate_size": 200000/' \
    -e 's/"num_hidden_layers": 2/"num_hidden_layers": 80/' \
    "$dir/large/config.json" >"$dir/config.json" && mv "$dir/config.json" "$dir/large/config.json"
words="^ttrun: $dir/large: the model takes [0-9.]* GiB of memory, [0-9.]* of these for its parameters, and there are [0-9.]* here; take a smaller"
says 2 "$words" "$TTRUN" generate --checkpoint "$dir/large" --tokenizer.name byte --prompt x
ok generate_from_a_model_that_is_too_large
says 2 "$words" "$TTRUN" eval --checkpoint "$dir/large" --tokenizer.name byte --data "$dir/text.txt"
ok eval_of_a_model_that_is_too_large
exit $failed
