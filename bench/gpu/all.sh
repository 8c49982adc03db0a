#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Everything that needs a GPU, in at most ten minutes, on one GPU: kernels against the reference, runs that must repeat to the bit,
# graphs on and off, losses against the CPU's, ceilings, speed beside torch.compile (and LLM.Q, if LLMQ names its program).
#   bench/gpu/all.sh             in a checkout that is built, or in a bundle (bundle.sh)
#   STAGES="battery repeat" …    some of: describe battery repeat capture losses models speed start memory
#   MODELS="1.5B 3B" ROUNDS=2 STEPS=12 JOBS=6 LIMIT=150      JOBS: tests of the battery at once; LIMIT: seconds of each
# Results: the table at the end, $OUT/gpu.md, and everything in $OUT/*.log. It goes on after a failure, and exits 1 if there was one.
. "$(dirname "$0")/lib.sh"
stages=${STAGES:-describe battery repeat capture losses models start memory speed}
models=${MODELS:-1.5B 3B} rounds=${ROUNDS:-2} steps=${STEPS:-12}
table=$out/gpu.md
: >"$table"
failed=0
say() { echo "$*" | tee -a "$table"; }
result() { # NAME STATUS TEXT
    if [ "$2" -eq 0 ]; then say "| $1 | ok | ${3-} |"; else
        say "| $1 | **failed** | ${3-} |"
        failed=1
    fi
}
began=$(date +%s)
wanted() {
    case " $stages " in *" $1 "*) ;; *) return 1 ;; esac
    echo "# $1, after $(($(date +%s) - began)) s"
}
near() { # RUN RUN STEPS MOST: their losses; the largest relative difference goes to $work/worst
    field "$1" loss >"$work/a" && field "$2" loss >"$work/b" &&
        paste "$work/a" "$work/b" | awk -v n="$3" -v most="$4" '{d = ($1 - $2) / $2; if (d < 0) d = -d; if (d > worst) worst = d}
            END {print worst; exit !(NR == n && worst <= most)}' >"$work/worst"
}
same_bits() { # RUN RUN: they have losses, and the same ones
    field "$1" loss >"$work/a" && field "$2" loss >"$work/b" && cmp -s "$work/a" "$work/b" && [ -s "$work/a" ]
}

if wanted describe; then
    nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.max.sm,power.limit --format=csv,noheader 2>/dev/null | tee "$out/gpu.txt"
    "$root/ttrun" --version
fi
say "| what | result | |"
say "|---|---|---|"

if wanted battery; then
    # several at once: most of their time is the reference's, on the host
    for t in "$tests"/test_cuda_*; do
        case $t in *.o | *.d) ;; *) basename "$t" ;; esac
    done >"$work/battery"
    xargs -P "${JOBS:-6}" -I '{}' sh -c 'timeout -k 5 "$3" "$1/{}" >"$2/{}.log" 2>&1; echo $? >"$2/{}.status"' - "$tests" "$out" "${LIMIT:-150}" <"$work/battery"
    while read -r name; do
        rc=$(cat "$out/$name.status")
        rm -f "$out/$name.status"
        result "$name" "$rc" "$(grep -c '\[       OK' "$out/$name.log") of $(grep -c '\[ RUN' "$out/$name.log") tests"
        [ "$rc" -eq 0 ] || grep -h "ERROR\|FAILED\|error" "$out/$name.log" | head -n 5
    done <"$work/battery"
fi
if wanted repeat; then
    job debug 20
    for i in 1 2 3; do ours "repeat$i" --training.seq_len 512 && field "repeat$i" loss >"$work/loss$i"; done
    cmp -s "$work/loss1" "$work/loss2" && cmp -s "$work/loss1" "$work/loss3" && [ -s "$work/loss1" ]
    result "three runs of 20 steps, bits" $? "last loss $(tail -n 1 "$work/loss1" 2>/dev/null)"
fi
if wanted capture; then
    job debug 20
    ours capture --training.seq_len 512 && ours eager --training.seq_len 512 --debug.capture off && same_bits capture eager
    result "captured graphs on = off, bits" $? ""
fi
if wanted losses; then
    job debug 50
    for dtype in float32 bfloat16; do
        most=5e-3
        [ $dtype = bfloat16 ] || most=1e-5
        small="--training.seq_len 256 --training.local_batch_size 2 --training.mixed_precision_param $dtype"
        # shellcheck disable=SC2086
        ours gpu $small && ours cpu $small --backend.name cpu && near gpu cpu 50 $most
        result "50 steps in $dtype against the CPU" $? "worst relative difference $(cat "$work/worst" 2>/dev/null), at most $most"
    done
fi
if wanted models; then
    # delta nets, experts and QK-clip: kernels that no llama has
    job debug 20
    sed 's/"llama3"/"qwen3_next"/; s/"model": {.*/"model": { "flavor": "debugmodel" },/' "$work/job.json" >"$work/next.json" && mv "$work/next.json" "$work/job.json"
    for dtype in float32 bfloat16; do
        most=2e-2
        [ $dtype = bfloat16 ] || most=1e-4
        small="--training.seq_len 256 --training.local_batch_size 2 --training.mixed_precision_param $dtype --optimizer.qk_clip 100"
        # shellcheck disable=SC2086
        ours next $small && ours next_cpu $small --backend.name cpu && near next next_cpu 20 $most
        result "20 steps of qwen3_next in $dtype against the CPU" $? "worst relative difference $(cat "$work/worst" 2>/dev/null), at most $most; $(field next tps 2>/dev/null | tail -n 1) tokens/s"
    done
    ours next_again --training.seq_len 256 && ours next_eager --training.seq_len 256 --debug.capture off && same_bits next_again next_eager
    result "qwen3_next: captured graphs on = off, bits" $? "$(field next_again tps 2>/dev/null | tail -n 1) tokens/s with 8 x 256 tokens"
fi
if wanted start; then
    job debug 1
    ours warm
    begin=$(date +%s.%N)
    ours start
    rc=$?
    end=$(date +%s.%N)
    result "start to the end of step 1, warm cache" $rc "$(echo "$begin $end" | awk '{printf "%.2f s", $2 - $1}')"
fi
if wanted memory; then
    for m in $models; do
        job "$m" 2
        "$root/ttrun" plan "$work/job.json" --json >"$work/plan.json" 2>"$work/plan.log" && ours memory
        result "memory of $m" $? "peak $(field memory mem_gib | tail -n 1) GiB; $("$root/ttrun" plan "$work/job.json" 2>/dev/null | sed -n 's/^memory */planned: /p')"
    done
fi
if wanted speed; then
    : >"$work/turns"
    for i in $(seq "$rounds"); do
        for m in $models; do
            job "$m" "$steps"
            a=0 b=0
            ours speed && a=$(field speed tps | tail -n +4 | middle)
            # shellcheck disable=SC2046
            b=$(timeout 200 python3 "$here/torch_llama.py" $(model "$m") "$steps" 2>"$out/torch-$m.log" | tail -n +4 | middle)
            echo "$m, torch.compile|${a:-0}|${b:-0}" >>"$work/turns"
            say "| $m, round $i | tokens/s | ttrun ${a:-none}, torch.compile ${b:-none}, MFU $(field speed mfu 2>/dev/null | tail -n 1) |"
            if [ -n "${LLMQ-}" ]; then
                c=$(sh "$here/llmq.sh" "$m" 2>"$out/llmq-$m.log")
                echo "$m, LLM.Q|${a:-0}|${c:-0}" >>"$work/turns"
            fi
        done
    done
    say ""
    say "| model, beside | ttrun tokens/s | theirs | ratio: median | least | most | rounds |"
    say "|---|---|---|---|---|---|---|"
    ratios=$here/ratios.awk
    [ -e "$ratios" ] || ratios=$here/../ratios.awk
    awk -f "$ratios" "$work/turns" | tee -a "$table"
fi
cp "$work"/*.log "$out/" 2>/dev/null
exit $failed
