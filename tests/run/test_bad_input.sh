#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs every command of bad_input.table: each must end with status 1 or 2 within 20 s of CPU time, print one line with the given words to
# stderr, and nothing to stdout.
. "$(dirname "$0")/lib.sh"
export TTRUN_PLUGIN_PATH="$PLUGINS"
table=$(dirname "$0")/bad_input.table

# ---- fixtures ----
: >"$dir/empty.txt"
printf 'short' >"$dir/short.txt"
mkdir "$dir/nest" "$dir/groups" "$dir/deep" "$dir/long" "$dir/circle" "$dir/faulty" "$dir/work"
awk 'BEGIN {for (i = 0; i < 100000; i++) printf "["}' >"$dir/deep/job.json"
awk 'BEGIN {printf "{\"spec\": \""; for (i = 0; i < 3000000; i++) printf "x"}' >"$dir/long/job.json"
awk 'function many(c) {for (i = 0; i < 20000; i++) printf c}
    BEGIN {printf "{\"optimizer\": {\"param_groups\": [{\"match\": \""; many("("); printf "a"; many(")"); printf "\"}]}}"}' >"$dir/nest/job.json"
awk 'BEGIN {printf "{\"optimizer\": {\"param_groups\": ["; for (i = 0; i < 2000; i++) printf "%s{\"match\": \"a%d\"}", i ? "," : "", i; printf "]}}"}' >"$dir/groups/job.json"
echo '{"extends": "b.json"}' >"$dir/circle/a.json"
echo '{"extends": "a.json"}' >"$dir/circle/b.json"
echo '{"training": 3' >"$dir/faulty/base.json"
echo '{"extends": "base.json"}' >"$dir/faulty/job.json"
train "$dir/done" --training.steps 2 --checkpoint.interval 1
[ "$rc" -eq 0 ]
ok fixture
for copy in rubbish nostate trunc noshard noise bent metricsdir; do
    cp -r "$dir/done" "$dir/$copy"
    rm -r "$dir/$copy/checkpoint/step-1"
done
echo '{"step": "two"}' >"$dir/rubbish/checkpoint/step-2/trainer.json"
: >"$dir/nostate/checkpoint/step-2/trainer.json"
shard=shard-00001-model-00001-of-00001.safetensors
head -c 1000 "$dir/done/checkpoint/step-2/$shard" >"$dir/trunc/checkpoint/step-2/$shard"
rm "$dir/noshard/checkpoint/step-2/$shard"
head -c 4000 /dev/zero | tr '\0' '\377' >"$dir/noise/checkpoint/step-2/$shard"
printf 'x' | dd of="$dir/bent/checkpoint/step-2/$shard" bs=1 seek=200000 conv=notrunc 2>/dev/null
rm "$dir/metricsdir/metrics.jsonl" && mkdir "$dir/metricsdir/metrics.jsonl"

# ---- one line of the table ----
one() { # NAME WORDS JOB ARGS
    d=$dir/work/$1 j=$dir/work/$1/job.json
    mkdir "$d" && cp "$dir/text.txt" "$d/"
    case $3 in
    =) cp "$dir/job.json" "$j" ;;
    -) : ;;
    *) printf "$3" >"$j" ;;
    esac
    eval "set -- \"\$1\" \"\$2\" $4"
    name=$1 words=$2
    shift 2
    (cd "$d" && ulimit -t 20 && exec "$TTRUN" "$@" >out 2>err)
    rc=$?
    why= lines=0 place=no told=no found=no
    [ $rc -eq 1 ] || [ $rc -eq 2 ] || why="status $rc"
    # builtins alone: this is done some hundred times
    while IFS= read -r line || [ -n "$line" ]; do
        case $line in '[r0 '*) continue ;; esac # the log
        lines=$((lines + 1))
        first=${line%% *}
        case $first in *:[0-9]*:[0-9]*:) [ "$first" = "$line" ] || place=yes ;; esac
        case $line in 'ttrun: '?*) place=yes ;; esac
        case $first in *job.json:*) found=yes ;; esac
        case $line in *"$words"*) told=yes ;; esac
    done <"$d/err"
    [ $lines -eq 1 ] || why="$why; $lines lines on stderr"
    [ -s "$d/out" ] && why="$why; something on stdout"
    [ $place = yes ] || why="$why; begins with no place"
    case $words in job.json:*) [ $found = yes ] || why="$why; not at a place of the file" ;; esac
    [ $told = yes ] || why="$why; does not say \"$words\""
    if [ -z "$why" ]; then echo "ok $name"; else
        echo "not ok $name: $why"
        cut -c 1-600 "$d/err" "$d/out" | sed 's/^/    /' | head -n 8
        failed=1
    fi
    rm -rf "$d"
}

while IFS='|' read -r name words job arguments; do
    case $name in '' | '#'*) continue ;; esac
    one "$name" "$words" "$job" "$arguments" </dev/null
done <"$table"
exit $failed
