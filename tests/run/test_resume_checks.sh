#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A resume checks the hash of each file while it loads: a changed byte of any file ends it by one line on every mesh, whoever needs the
# byte, and what is loaded is read once.
. "$(dirname "$0")/processes.sh"
export TTRUN_PLUGIN_PATH="$PLUGINS"
p=--parallelism
batch="--training.local_batch_size 4 --training.global_batch_size 8"
one=
two="--nproc 2 $p.data_parallel_shard_degree 2"
four="--nproc 4 $p.data_parallel_replicate_degree 2 $p.data_parallel_shard_degree 2 --training.local_batch_size 2"
other="--nproc 2 $p.tensor_parallel_degree 2"

# flip FILE FROM_END: one bit of that byte
flip() {
    place=$(($(wc -c <"$1") - $2))
    was=$(od -An -tu1 -j $place -N 1 "$1")
    # shellcheck disable=SC2059
    printf "$(printf '\\%03o' $((was % 2 ? was - 1 : was + 1)))" | dd of="$1" bs=1 seek=$place conv=notrunc 2>/dev/null
    [ "$(od -An -tu1 -j $place -N 1 "$1")" -ne "$was" ]
}
shard() { ls "$1"/checkpoint/step-5/shard-0000"$2"-*; }
# refused WORDS: one line of this, status 2, and nothing was done or lost
advice='continue from an older step with --checkpoint.load_step, or start over with --resume never$'
refused() {
    [ "$rc" -eq 2 ] && one_line "$dir/err" && grep -q "^ttrun: $1" "$dir/err" && ! grep -q 'resumed from\|continues from' "$dir/err" &&
        [ "$(ls "$dir/bent/checkpoint")" = step-5 ] && [ "$(hash_of "$dir/bent/checkpoint/step-5")" = "$(cat "$dir/sum")" ]
}
# bent FROM SHARD FROM_END OPTION...: resumes a copy of a run after a flip
bent() {
    rm -rf "$dir/bent" && cp -r "$1" "$dir/bent"
    flip "$(shard "$dir/bent" "$2")" "$3"
    hash_of "$dir/bent/checkpoint/step-5" >"$dir/sum"
    shift 3
    train "$dir/bent" $batch --training.steps 7 "$@"
}
changed() { refused ".*step-5/shard-0000$1-.*: XXH3 is .*, .* in trainer.json; the data has changed; $advice"; }

for mesh in one two four; do
    eval "options=\$$mesh"
    # shellcheck disable=SC2154
    train "$dir/$mesh" $batch --training.steps 5 $options
    [ "$rc" -eq 0 ]
    ok "saved_on_$mesh"
done
[ "$(ls "$dir"/one/checkpoint/step-5/shard-*)" = "$(shard "$dir/one" 1)" ] && shard "$dir/two" 2 >/dev/null && shard "$dir/four" 2 >/dev/null
ok the_steps_have_the_shards_that_are_changed_below

# ---- a byte of a tensor ----
while read -r name from shard back mesh more; do
    eval "options=\$$mesh"
    for backend in local shm; do
        [ "$mesh $backend" = "one shm" ] && continue
        bent "$dir/$from" "$shard" "$back" $options $more --comm.backend $backend
        changed "$shard"
        ok "found_${name}_$backend"
    done
done <<MESHES
in_the_file_of_one_rank one 1 70000 one
in_a_state_that_is_not_loaded one 1 9 one --checkpoint.exclude_from_loading optimizer
in_the_first_ranks_file two 1 9 two
in_the_second_ranks_file two 2 9 two
in_the_begin_of_the_second_ranks_file two 2 40000 two
in_a_state_that_no_rank_loads two 2 9 two --checkpoint.exclude_from_loading optimizer
in_the_first_file_of_replicas four 1 9 four
in_the_second_file_of_replicas four 2 9 four
from_two_ranks_to_one two 2 9 one
from_one_rank_to_two one 1 9 two
from_replicas_to_parts_of_tensors four 2 70 other
from_two_ranks_to_four two 2 9 four
MESHES

# ---- more than one, and where the load itself stumbles over it ----
rm -rf "$dir/bent2" && cp -r "$dir/two" "$dir/bent2"
flip "$(shard "$dir/bent2" 1)" 9
for backend in local shm; do
    bent "$dir/bent2" 2 9 $two --comm.backend $backend
    changed '[12]'
    ok "two_changed_files_are_one_line_$backend"
    for at in 3 9 40; do # the header's length; no JSON; a name
        bent "$dir/two" 2 "$(($(wc -c <"$(shard "$dir/two" 2)") - at))" $two --comm.backend $backend
        changed 2
        ok "changed_header_${at}_$backend"
    done
done
bent "$dir/two" 2 9 $two --checkpoint.load_step 5
refused '.*shard-00002-.*; the data has changed; remove that step to continue from the one before, or start over with --resume never$'
ok advice_with_a_load_step

# ---- the state of another run ----
whole="--checkpoint.initial_load_path $dir/bent/checkpoint/step-5 --checkpoint.initial_load_model_only false"
bent "$dir/two" 2 9 $two >/dev/null
for backend in local shm; do
    train "$dir/goes_on" $batch $two $whole --comm.backend $backend
    refused ".*checkpoint.initial_load_path.*: .*shard-00002-.*: XXH3 is .*; the data has changed; $advice"
    ok "other_runs_state_$backend"
done

# ---- a step without the frozen parameters ----
part="--checkpoint.save_frozen false --checkpoint.initial_load_path $dir/one/checkpoint/step-5 --training.trainable [\"layers.1.*q_proj\"]"
train "$dir/part" $batch $part --training.steps 6
rm -rf "$dir/part/checkpoint/step-6"
bent "$dir/part" 1 9 $part --training.steps 6
[ "$(wc -c <"$(shard "$dir/part" 1)")" -lt 30000 ] && changed 1
ok found_in_a_step_without_frozen_parameters

# ---- each byte once ----
without_sanitizers
preload reads
# reads OPTION...: resumes a run that has step 5 of some MB, and counts
large="--model.args.dim 256 --model.args.hidden_dim 700 --training.steps 5"
reads() {
    rm -f "$dir/reads"
    READS=$dir/reads READS_IN=$dir/large/checkpoint/step-5/ LD_PRELOAD=$dir/reads.so train "$dir/large" $batch $large --training.steps 6 "$@"
    [ "$rc" -eq 0 ] && grep -q 'resumed from .*step-5' "$dir/err"
}
# counted: for each shard its bytes and how many were read of it
counted() {
    for file in "$dir"/large/checkpoint/step-5/shard-*; do
        echo "$(wc -c <"$file") $(awk -v name="${file##*/}" '$1 == name { n += $2 } END { print n + 0 }' "$dir/reads")"
    done >"$dir/counts"
    cat "$dir/counts" >>"$dir/err"
}
each_once() { counted && awk '{ bad += $1 != $2 || $1 < 3000000 } END { exit bad || NR < 1 }' "$dir/counts"; }
for mesh in one two; do
    eval "options=\$$mesh"
    rm -rf "$dir/large"
    train "$dir/large" $batch $large $options --comm.backend shm
    reads $options --comm.backend shm && each_once
    ok "each_byte_is_read_once_on_$mesh"
    rm -rf "$dir/large/checkpoint/step-6"
    reads $options --checkpoint.exclude_from_loading optimizer --comm.backend local && each_once
    ok "bytes_that_are_not_loaded_are_read_once_on_$mesh"
done
rm -rf "$dir/large/checkpoint/step-6"
reads && each_once
ok two_ranks_files_are_read_once_by_one
exit $failed
