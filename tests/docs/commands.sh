#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# make test-docs: every command of the README and of docs/ is run, page by page and in order, in a folder that holds the tree's files
# as a clone does. commands.table says what the words in capitals stand for (DIR), which commands run in a shorter form, and which not,
# and why. Trainings are small: short sequences, few of them, a tenth of the steps. Scripts of tests/ need only be there, since make test runs them.
# docs/tasks.md comes first, since others use what it trains; then each page in a copy of that folder, JOBS (2) pages at once. Each command
# must end with status 0, and no process of it takes ten minutes of CPU time. About 40 s of CPU.
#   TTRUN_DOCS="docs/tasks.md …"   only these pages
#   TEST_LONG=1                    every command as it stands, scripts of tests/ too: 12 minutes of CPU
SRC=${SRC:-$(cd "$(dirname "$0")/../.." && pwd)}
: "${BUILD:=$SRC/build/release}"
TTRUN=${TTRUN:-$BUILD/ttrun} PLUGINS=${PLUGINS:-$BUILD/plugins}
export SRC BUILD TTRUN PLUGINS # scripts of tests/ want them
here=$SRC/tests/docs

# A page in its folder: one line of ok or not ok per command, which are told together with what the command said.
if [ "${1-}" = --page ]; then
    page=$2 root=$3
    cp -a "${root%/*}/clone" "$root" || exit 1
    export TMPDIR="$root.tmp"
    mkdir -p "$TMPDIR"
    PATH=$root:$PATH
    cd "$root" || exit 1
    variable= skipped=0 passed=0 failed=0 before=0
    cpu() { # $spent: milliseconds of what has ended since the last call
        times >"$TMPDIR/times"
        now=$(awk -f "$SRC/mk/cpu-ms.awk" "$TMPDIR/times")
        spent=$((now - before)) before=$now
    }
    while IFS='	' read -r where command act how line <&3; do
        wanted=0
        case $act in
        skip | long) skipped=$((skipped + 1)) && continue ;;
        variable) variable=$line && continue ;; # J="…", which the next commands read
        status) wanted=$how ;;
        file)
            status=0
            for word in $line; do case $word in tests/* | mk/*) [ -f "$word" ] || status=1 ;; esac; done
            echo "$where $command: there is no such file" >"$TMPDIR/out" ;;
        esac
        if [ "$act" != file ]; then
            (ulimit -t 600 && exec bash -c "$variable
$line") >"$TMPDIR/out" 2>&1 </dev/null 3<&-
            status=$?
        fi
        cpu
        if [ $status -eq "$wanted" ]; then
            passed=$((passed + 1))
            echo "ok $where $command ($spent CPU ms)"
        else
            failed=$((failed + 1))
            {
                echo "not ok $where $command (status $status)"
                [ "$line" = "$command" ] || echo "  run as: $line"
                { grep -A 20 '^not ok' "$TMPDIR/out" || tail -n 5 "$TMPDIR/out"; } | head -n 60 | sed 's/^/  /'
            } >"$TMPDIR/told"
            cat "$TMPDIR/told"
        fi
    done 3<"$root.commands"
    echo "$passed $failed $skipped" >"$root.count"
    exit
fi

TMPDIR=$(sh "$SRC/mk/test-folder.sh") || exit 1
export TMPDIR
trap 'rm -rf "$TMPDIR"' EXIT
trap 'exit 1' INT TERM
root=$TMPDIR/clone
mkdir -p "$root"
for f in "$SRC"/*; do
    case ${f##*/} in outputs | configs | mine) ;; *) ln -s "$f" "$root/" ;; esac
done
cp -r "$SRC/configs" "$root/" # relative paths in a job begin at its folder

first=docs/tasks.md
# reference.md and ops.md hold no commands but make docs.
[ -n "${TTRUN_DOCS:-}" ] || TTRUN_DOCS="$first docs/features.md README.md $(cd "$SRC" && ls docs/*.md | grep -v 'docs/\(reference\|ops\|tasks\|features\).md')"
cd "$SRC" || exit 1
LC_ALL=C awk -v folder="$root" -f "$here/commands.awk" $TTRUN_DOCS >"$TMPDIR/all" || exit 1
LC_ALL=C awk -v table="$here/commands.table" -v long="${TEST_LONG:-}" -v into="$TMPDIR" -f "$here/rows.awk" "$TMPDIR/all" || exit 1

pages=
for p in $TTRUN_DOCS; do
    name=${p##*/}
    [ -s "$TMPDIR/$name.commands" ] || continue
    [ "$p" = "$first" ] || { pages="$pages $p" && continue; }
    sh "$here/commands.sh" --page "$p" "$TMPDIR/$name"
    rm -rf "$root" && mv "$TMPDIR/$name" "$root"
done
[ -z "$pages" ] || echo "$pages" | xargs -n 1 | xargs -P "${JOBS:-2}" -I '{}' sh -c 'exec sh "$1/commands.sh" --page "$3" "$2/${3##*/}"' sh "$here" "$TMPDIR" '{}'
cat "$TMPDIR"/*.count | {
    passed=0 failed=0 skipped=0
    while read -r p f s; do passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s)); done
    [ "$(ls "$TMPDIR"/*.count | wc -l)" -eq "$(ls "$TMPDIR"/*.commands | wc -l)" ] || failed=$((failed + 1)) # a page that broke off
    echo "what is skipped, commands.table says why"
    echo "$passed passed, $failed failed, $skipped skipped"
    [ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
}
