#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# checkpoint.peer_copy_interval with --nproc MIN:MAX: after a rank is lost the run goes on, on another mesh, from copies in the supervisor's
# memory, as it would from a checkpoint of the same step, to the bit; damaged copies are not taken; nothing is left.
. "$(dirname "$0")/processes.sh"
without_sanitizers # cores.c
preload cores
export TMPDIR="$dir/tmp" XDG_CACHE_HOME="$dir/cache" CORES="$dir/cores"
mkdir -p "$TMPDIR" "$XDG_CACHE_HOME"
shm_before
echo 4 >"$CORES"
cat >"$dir/moe.json" <<'JOB'
{ "spec": "deepseek_v3", "model": { "args": { "dim": 24, "n_layers": 4, "n_heads": 4, "hidden_dim": 31, "vocab_size": 262, "num_experts": 8,
    "num_experts_per_tok": 3, "n_group": 2, "topk_group": 1, "moe_intermediate_size": 13, "n_shared_experts": 1, "kv_lora_rank": 10,
    "qk_nope_head_dim": 6, "qk_rope_head_dim": 4, "v_head_dim": 6, "rope_scaling": null, "sequence_balance_loss_coef": 0.1 } },
  "dataloader": { "name": "text", "path": ["text.txt"] },
  "optimizer": { "lr": 0.003 }, "lr_scheduler": { "name": "constant", "warmup_steps": 0 },
  "training": { "local_batch_size": 2, "seq_len": 21 },
  "metrics": { "log_freq": 1, "enable_tensorboard": false }, "backend": { "threads": 1 } }
JOB

said() { grep -q -e "$1" "$folder.err"; }
times_said() { [ "$(grep -c -e "$1" "$folder.err")" -ge "$2" ]; }
saved_past() { newest "$folder/checkpoint" | awk -v n="$1" '{good = $1 >= n} END {exit !good}'; }
memories() { find "/proc/$pid/fd" -lname '/memfd:copies*' | wc -l; }
has_memories() { [ "$(memories)" -eq "$1" ]; }
# supervise FOLDER MIN OPTION...: up to four ranks, in the background as $pid
supervise() {
    folder=$1 least=$2
    shift 2
    echo 4 >"$CORES"
    : >"$folder.out" 2>"$folder.err"
    LD_PRELOAD=$dir/cores.so "$TTRUN" "$job" --plugin-dir "$PLUGINS" --dump_folder "$folder" --max-restarts 5 --nproc "$least:4" --comm.backend shm $long \
        --checkpoint.peer_copy_interval 3 "$@" >"$folder.out" 2>"$folder.err" &
    pid=$!
    until_true has_lines "$folder/metrics.jsonl" 10
}
# lose PID CORES: a rank is lost while the machine has so many cores; waits until the next start has done a step
lose() {
    echo "$2" >"$CORES"
    before=$(grep -c 'is done .* s after the failure' "$folder.err")
    kill -9 "$1" && until_true times_said 'is done .* s after the failure' $((before + 1))
}
kill_rank() { lose "$(ranks "$folder" | sed -n "$1p")" "$2"; } # N: one of them
stops() { # $pid, after a save
    kill -TERM $pid
    ends 4
}
copied_from() { sed -n 's/.*resumed from the supervisor.s copy of step \([0-9]*\), .*/\1/p' "$folder.err" | sed -n "${1}p"; }
# equals_resume WHOLE STEP... -- SMALLER: the states and losses of $folder are those of a run that is resumed at STEP from its checkpoint.
# The options of the first mesh are in $wide, of the one that follows in $narrow.
equals_resume() {
    run=$folder last=$(newest "$folder/checkpoint")
    train "$dir/whole" $wide --comm.backend local --training.steps "$1" --checkpoint.interval 1000000 && [ "$rc" -eq 0 ] &&
        train "$dir/whole" $narrow --comm.backend local --training.steps "$last" --checkpoint.interval 1000000
    losses "$dir/whole/metrics.jsonl" >"$dir/a"
    folder=$run
    losses "$folder/metrics.jsonl" | cmp -s - "$dir/a" && [ "$rc" -eq 0 ] && [ "$last" -gt "$1" ] && [ "$(wc -l <"$dir/a")" -eq "$last" ] &&
        [ "$(hash_of "$folder/checkpoint/step-$last")" = "$(hash_of "$dir/whole/checkpoint/step-$last")" ] &&
        [ "$(cd "$folder/checkpoint" && echo step-*)" = "step-$last" ]
    same=$?
    rm -rf "$dir/whole"
    return $same
}
no_disk="--checkpoint.interval 1000000"
p=--parallelism
batch="--training.seq_len 8 --training.local_batch_size 1 --training.global_batch_size 12"
supervise "$dir/room" 1 $batch $no_disk
said 'supervisor\] 4 ranks of 1 to 4' || enough=no
stops
[ "${enough:-yes}" = yes ] || { echo "# a quota of this machine allows fewer than four ranks: skipped" && exit 0; }

# largest of the lines of numbers
largest() { sort -n | tail -n 1; }
memory_sizes() { find "/proc/$pid/fd" -lname '/memfd:copies*' -exec stat -L -c %s {} + | largest; }
# planned OPTION...: the bytes that ttrun plan says of the rank with the largest copies
planned() { ttrun plan "$job" --world 4 --checkpoint.peer_copy_interval 3 --json "$@" 2>/dev/null | grep -o '"copies":[0-9]*' | sed 's/.*://' | largest; }

# ---- a rank is lost on each kind of mesh ----
# lost NAME RANKS OPTIONS WIDE NARROW: so many of four ranks are left; WIDE and NARROW: the degrees of both meshes
lost() {
    name=$1 left=$2 wide="--nproc 4 $3 $4" narrow="--nproc $2 $3 $5"
    # shellcheck disable=SC2086
    supervise "$dir/$name" "$left" $3 $4 $no_disk
    # shellcheck disable=SC2086
    sizes="$(memory_sizes) $(planned $3 $4)"
    kill_rank 2 "$left" && until_true has_memories 4
    good=$?
    stops && [ $good -eq 0 ] && step=$(copied_from 1) && [ "${step:-0}" -gt 0 ] && [ $((step % 3)) -eq 0 ] &&
        said "; restart 1 of 5 from step $step, with $left of 4 ranks" &&
        said "resumed from the supervisor's copy of step $step, next is step $((step + 1)) (made by 4 ranks)" && equals_resume "$step"
    ok "$name"
    echo "# from step ${step:-none}"
    [ "${sizes% *}" = "${sizes#* }" ] && [ "${sizes% *}" -gt 4096 ] && said 'copies of the states: [0-9.]* GiB of host memory per rank, [0-9.]* of all 4 ranks, in the supervisor.s memory'
    ok "${name}_memory_is_as_planned"
}
shard=$p.data_parallel_shard_degree replicate=$p.data_parallel_replicate_degree
lost fsdp_4_to_3 3 "$batch" "$shard -1" "$shard -1"
! is_long || lost hsdp_4_to_2 2 "$batch $shard 2" "$replicate 2" "$replicate 1" # replicas: see the end, too
lost fsdp_4_to_1 1 "$batch" "$shard -1" "$shard -1"
lost tp_fsdp_4_to_2 2 "$batch $p.tensor_parallel_degree 2" "$shard -1" "$shard -1"
lost pp_fsdp_4_to_2 2 "--training.local_batch_size 2 --training.global_batch_size 8 $p.pipeline_parallel_degree 2 $p.pipeline_parallel_schedule 1F1B" "$shard -1" "$shard -1"
# The states are in a device's memory, the copies in the host's.
mkdir -p "$dir/far/backends"
cp "$BUILD/tests/plugins/far/far.so" "$dir/far/backends/"
lost far_fsdp_4_to_3 3 "$batch --plugin-dir $dir/far --backend.name far --training.seq_len 8" "$shard -1" "$shard -1"
dense=$job job=$dir/moe.json
lost ep_fsdp_4_to_2 2 "--training.global_batch_size 8 $p.expert_parallel_degree 2" "$shard -1" "$shard -1"
job=$dense

# The job file is read again by each start.
first=$job
sed 's/"backend"/"parallelism": {"tensor_parallel_degree": 1}, "backend"/' "$first" >"$dir/degrees.json"
job=$dir/degrees.json
supervise "$dir/degrees" 4 $batch $no_disk --nproc 4
sed 's/_degree": 1/_degree": 2/' "$job" >"$dir/degrees.new" && mv "$dir/degrees.new" "$job"
kill_rank 2 4
good=$?
wide="--nproc 4 $batch $p.tensor_parallel_degree 1" narrow="--nproc 4 $batch $p.tensor_parallel_degree 2"
stops && [ $good -eq 0 ] && step=$(copied_from 1) && [ "${step:-0}" -gt 0 ] && equals_resume "$step"
ok other_degrees_in_the_job_take_the_copies
job=$first

# ---- a failure before the first copy of the new mesh, and more ranks again ----
wide="--nproc 4 $batch" narrow="--nproc 3 $batch"
gate 31 before 0 # the copy of step 20 is the newest of each start
supervise "$dir/twice" 3 $batch $no_disk $gated --checkpoint.peer_copy_interval 20
stands && lose "$standing" 3 && stands && lose "$standing" 3
good=$?
let_go
stops && [ $good -eq 0 ] && first=$(copied_from 1) && second=$(copied_from 2) && [ "${first:-0}" -eq 20 ] && [ "${second:-0}" -eq 20 ] &&
    said "; restart 2 of 5 from step $second, with 3 of 4 ranks" && equals_resume "$first"
ok a_failure_before_the_next_copy_costs_no_disk
echo "# from steps ${first:-none} and ${second:-none}"
supervise "$dir/back" 3 $batch $no_disk
kill_rank 2 3 && until_true has_memories 4 && kill_rank 3 4 && until_true has_memories 4
good=$?
stops && [ $good -eq 0 ] && said "; restart 2 of 5 from step $(copied_from 2)\$" &&
    said "resumed from the supervisor's copy of step $(copied_from 2), next is step [0-9]* (made by 3 ranks)" &&
    [ -z "$(losses "$folder/metrics.jsonl" | cut -d ' ' -f 1 | sort | uniq -d)" ]
ok more_ranks_take_the_copies_of_fewer

# ---- damaged copies ----
# damage N...: both copies of the memory of these ranks
damage() {
    still $(ranks "$folder")
    for at in "$@"; do
        fd=$(find "/proc/$pid/fd" -lname '/memfd:copies*' | sort -t / -k 5 -n | sed -n "$((at + 1))p")
        size=$(stat -L -c %s "$fd")
        for byte in $((4096 + (size - 4096) / 2 - 4200)) $((size - 4200)); do
            printf 'damaged!' | dd of="$fd" bs=1 seek=$byte conv=notrunc 2>/dev/null
        done
    done
}
supervise "$dir/damaged" 3 $batch --checkpoint.interval 20
until_true saved_past 20 && damage 1 && kill_rank 3 3
good=$?
stops && [ $good -eq 0 ] && said 'resumed from .*/checkpoint/step-[0-9]*0, ' && ! said "resumed from the supervisor's" &&
    { said 'the copies in memory of step [0-9]* are not taken: \(that of rank 1 is damaged\|only [1-3] of 4 ranks have one that is whole\)$' || said '; restart 1 of 5 from step [0-9]*0, '; } &&
    [ -z "$(losses "$folder/metrics.jsonl" | cut -d ' ' -f 1 | sort | uniq -d)" ]
ok a_damaged_copy_is_not_taken
supervise "$dir/replica" 2 $batch $p.data_parallel_replicate_degree 2 $p.data_parallel_shard_degree 2 $no_disk
damage 1 && kill_rank 3 4
good=$?
wide="--nproc 4 $batch $p.data_parallel_replicate_degree 2 $p.data_parallel_shard_degree 2" narrow=$wide
stops && [ $good -eq 0 ] && step=$(copied_from 1) && [ "${step:-0}" -gt 0 ] && equals_resume "$step"
ok a_damaged_copy_is_taken_from_its_replica

# ---- nothing is left ----
test_nothing_is_left
exit $failed
