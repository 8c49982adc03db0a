#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# compare.sh OTHER_TREE [NAME...]: runs the jobs of jobs.txt (default: all) with this tree's ttrun and with OTHER_TREE's, both
# built, and compares every number of metrics.jsonl that is not a time or a size of memory, to the last digit. For changes
# that only rearrange code. It is no part of `make test`, because it needs a second tree. Ends with "N passed, N failed".
set -u
cd "$(dirname "$0")/../.." || exit 1
here=$(pwd)
there=$(cd "${1:?the folder of another tree, built}" && pwd) || exit 1
shift
work=$(mktemp -d "${TMPDIR:-/tmp}/ttrun-bits.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM

degree() { # KEY N
    printf '%s\n' "--parallelism.$1" "$2"
    world=$((world * $2))
}

options() { # the words of a line as ttrun's arguments, one per line
    world=1
    for word; do
        case $word in
        GPT2) ;; # run() chooses its job file
        QWEN2 | QWEN3 | MISTRAL) printf '%s\n' --spec "$(echo "$word" | tr A-Z a-z)" ;;
        DP=*) degree data_parallel_replicate_degree "${word#*=}" ;;
        FSDP=*) degree data_parallel_shard_degree "${word#*=}" ;;
        TP=*) degree tensor_parallel_degree "${word#*=}" ;;
        CP=*) degree context_parallel_degree "${word#*=}" ;;
        PP=*) degree pipeline_parallel_degree "${word#*=}" ;;
        *) printf '%s\n' "$word" ;;
        esac
    done
    [ "$world" = 1 ] || printf '%s\n' --nproc "$world"
}

numbers() { # metrics.jsonl without what differs from run to run
    sed 's/"\(tps\|tps_global\|n_samples_seen\|samples_per_s\|tflops\|mfu\|mem_gib\|time_s\|wall\)":[^,}]*,\{0,1\}//g; s/"time":{[^}]*},\{0,1\}//' "$1"
}

run() { # TREE OUT OPTIONS…: prints the error line, or nothing if the job ran
    tree=$1 out=$2
    shift 2
    "$tree/ttrun" "tests/bits/$job.json" --plugin-dir "$tree/plugins" -q --dump_folder "$out" "$@" </dev/null >"$out.log" 2>&1 ||
        tail -n 1 "$out.log"
}

# One job on both trees: a line that begins with ok or not ok.
compare() {
    name=$1
    shift
    rm -rf "$work/old" "$work/new"
    old=$(run "$there" "$work/old" "$@")
    new=$(run "$here" "$work/new" "$@")
    if [ -n "$old$new" ]; then
        echo "not ok $name: ${new:-it runs here; in the other tree: $old}"
    elif ! numbers "$work/old/metrics.jsonl" >"$work/a" || ! numbers "$work/new/metrics.jsonl" >"$work/b" || ! [ -s "$work/a" ]; then
        echo "not ok $name: no metrics.jsonl"
    elif cmp -s "$work/a" "$work/b"; then
        echo "ok $name"
    else
        echo "not ok $name"
        diff "$work/a" "$work/b" | head -n 4 | sed 's/^/    /'
    fi
}

# A name that jobs.txt lacks would compare nothing.
for name; do
    awk -v name="$name" '!/^#/ && $1 == name {found = 1} END {exit !found}' tests/bits/jobs.txt && continue
    echo "compare.sh: tests/bits/jobs.txt has no job \"$name\"; it has: $(awk '!/^(#|$)/ {printf "%s%s", n++ ? ", " : "", $1}' tests/bits/jobs.txt)" >&2
    exit 2
done
set -f # words hold braces and stars, none is a pattern
while read -r name words; do
    case $name in '' | '#'*) continue ;; esac
    [ $# -eq 0 ] || case " $* " in *" $name "*) ;; *) continue ;; esac
    job=llama3
    case $words in *GPT2*) job=gpt2 ;; esac
    # shellcheck disable=SC2046,SC2086
    (
        list=$(options $words)
        IFS='
'
        compare "$name" $list
    )
done <tests/bits/jobs.txt | tee "$work/results"
awk '/^ok / {p++} /^not ok / {f++} END {printf "%d passed, %d failed\n", p, f; exit f > 0 || p == 0}' "$work/results"
