#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A run resumes at step 5 and goes to step 10: steps, exports for Hugging Face, run.json, metrics.jsonl, copies of the tokenizer. Of its calls that
# write, sync, rename, open or remove below its folder one fails, or is its last: what was whole stays whole, nothing half-made has a final name, it is
# said once, and the next start ends where an unbroken run does. Every 17th call (EVERY, FIRST); TEST_LONG: each of them, with every kind of fault.
. "$(dirname "$0")/lib.sh"
without_sanitizers
preload faults
ok faults_build
mkdir "$dir/tok" && awk 'BEGIN {
    printf "{\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false},\"model\":{\"type\":\"BPE\",\"merges\":[],\"vocab\":{"
    for (i = 0; i < 256; i++)
        printf "%s\"\\u%04x\":%d", i ? "," : "", (i > 32 && i < 127) || (i > 160 && i != 173) ? i : 256 + other++, i
    printf "}}}\n"
}' >"$dir/tok/tokenizer.json"
sed 's|"optimizer"|"tokenizer": { "name": "hf", "path": "tok/tokenizer.json" },\n  "optimizer"|' "$job" >"$dir/own.json" && job=$dir/own.json
rules="--checkpoint.interval 2 --checkpoint.keep_latest_k 2 --checkpoint.hf_interval 4 --checkpoint.hf_keep 2"
run=$dir/run
train "$run" $rules --training.steps 5 && cp -r "$run" "$dir/base"
FAULT_IN=$run FAULT_COUNT=$dir/count LD_PRELOAD=$dir/faults.so train "$run" $rules
n=$(cat "$dir/count")
[ "$rc" -eq 0 ] && [ "$n" -gt 100 ] && [ -f "$run/tokenizer/tokenizer.json" ]
ok unbroken_run
mv "$run" "$dir/whole"
hash_of "$dir/whole/checkpoint/step-10" >"$dir/hash"
without_times "$dir/whole/metrics.jsonl" >"$dir/metrics"

wrong() {
    echo "not ok call_$at (error $number, status $rc): $1"
    sed 's/^/    /' "$dir/err.fault" "$dir/err" | grep -v ' I train. step' | tail -n 12
    failed=1
}
# What has a final name is whole
check_files() {
    for step in "$run"/checkpoint/step-*; do
        case $step in *.tmp | *.old-*) continue ;; esac
        "$TTRUN" ckpt verify "$step" >"$dir/out" 2>&1 || { wrong "$step is not whole" && return; }
    done
    for step in "$run"/hf/step-*; do
        case $step in *.tmp | *.old-*) continue ;; esac
        for f in config.json model.safetensors tokenizer.json; do
            [ -s "$step/$f" ] || { wrong "$step has no $f" && return; }
            other=$dir/whole/hf/$(basename "$step")/$f
            [ ! -e "$other" ] || cmp -s "$step/$f" "$other" || { wrong "$step/$f is another" && return; }
        done
    done
    [ ! -L "$run/hf/latest" ] || [ -d "$run/hf/latest/" ] || { wrong "hf/latest leads nowhere" && return; }
    "$json" "$run/run.json" job.spec >"$dir/out" 2>&1 || { wrong "run.json is torn" && return; }
    for f in "$run"/tokenizer/*; do
        case $f in *.tmp* | *~*) continue ;; esac
        cmp -s "$f" "$dir/whole/tokenizer/$(basename "$f")" || { wrong "$f is torn" && return; }
    done
}
one_fault() { # CALL ERRNO
    at=$1 number=$2
    rm -rf "$run" && cp -r "$dir/base" "$run"
    # the tokenizer is copied again
    echo '{}' >"$run/tokenizer/tokenizer.json"
    FAULT_IN=$run FAULT_AT=$at FAULT_ERRNO=$number LD_PRELOAD=$dir/faults.so train "$run" $rules
    cp "$dir/err" "$dir/err.fault"
    case $rc in
    0) ;;
    1 | 2) [ "$number" -ne 0 ] && [ "$(grep -c '^ttrun: ' "$dir/err")" -eq 1 ] || { wrong "one line is wanted" && return; } ;;
    77) [ "$number" -eq 0 ] || { wrong "status" && return; } ;;
    *) wrong "status" && return ;;
    esac
    echo "$rc" >>"$dir/statuses"
    [ -f "$run/tokenizer/tokenizer.json" ] && [ "$(cat "$run/tokenizer/tokenizer.json")" = "{}" ] && cp "$dir/whole/tokenizer/tokenizer.json" "$run/tokenizer/"
    [ -z "$(newest "$run/checkpoint")" ] && wrong "no step is left" && return
    check_files
    train "$run" $rules
    [ "$rc" -eq 0 ] || { wrong "the next start" && return; }
    hash_of "$run/checkpoint/step-10" | cmp -s - "$dir/hash" || { wrong "step 10 has other bits" && return; }
    without_times "$run/metrics.jsonl" | cmp -s - "$dir/metrics" || { wrong "metrics.jsonl has other lines" && return; }
    cmp -s "$run/hf/step-10/model.safetensors" "$dir/whole/hf/step-10/model.safetensors" || { wrong "the export" && return; }
    left=$(find "$run" -name '*.tmp*' -o -name '*.old-*')
    [ -z "$left" ] || { wrong "left behind: $left" && return; }
    check_files
}
: >"$dir/statuses"
i=${FIRST:-0} every=${EVERY:-17}
while [ "$i" -lt "$n" ]; do
    if is_long; then
        for e in 28 5 0; do one_fault "$i" "$e"; done # ENOSPC, EIO, the last call
        i=$((i + 1))
    else
        case $((i / every % 3)) in 0) one_fault "$i" 28 ;; 1) one_fault "$i" 5 ;; *) one_fault "$i" 0 ;; esac
        i=$((i + every))
    fi
done
[ "$failed" -eq 0 ]
ok no_fault_loses_or_tears_a_file
# the faults were of all kinds: fatal, survived, and kills
[ "$(sort -u "$dir/statuses" | tr '\n' ' ' | sed 's/^0 1 77 $/all/; s/^0 1 2 77 $/all/')" = all ]
ok faults_of_all_kinds_were_met
exit $failed
