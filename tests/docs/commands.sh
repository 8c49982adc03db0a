#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# make test-docs: every command of the README and of docs/ is run as it stands, page by page and in order, in a folder that holds the
# tree's files as a clone does. commands.table says what the words in capitals stand for (DIR), which commands run in a shorter
# form, and which not, and why. Each must end with status 0, and no process of it takes ten minutes of CPU time. About 6 minutes on two cores.
#   TTRUN_DOCS="docs/tasks.md …"   only these pages
SRC=${SRC:-$(cd "$(dirname "$0")/../.." && pwd)}
: "${BUILD:=$SRC/build/release}"
TTRUN=${TTRUN:-$BUILD/ttrun} PLUGINS=${PLUGINS:-$BUILD/plugins}
export SRC BUILD TTRUN PLUGINS # scripts of tests/ want them
TMPDIR=$(mktemp -d "${TMPDIR:-/tmp}/ttrun-docs.XXXXXX") || exit 1
export TMPDIR
trap 'rm -rf "$TMPDIR"' EXIT
trap 'exit 1' INT TERM
here=$SRC/tests/docs
table=$here/commands.table
root=$TMPDIR/clone
mkdir -p "$root"
for f in "$SRC"/*; do
    case ${f##*/} in outputs | configs | mine) ;; *) ln -s "$f" "$root/" ;; esac
done
cp -r "$SRC/configs" "$root/" # relative paths in a job begin at its folder
PATH=$root:$PATH
cd "$root" || exit 1

# The third column of the table's row for a command.
action() { # PAGE COMMAND
    awk -F'\t' -v page="$1" -v command="$2" '
        /^#/ || NF < 3 || ($1 != "*" && $1 != page) { next }
        $2 == command || (substr($2, length($2)) == "*" && index(command, substr($2, 1, length($2) - 1)) == 1) { print $3; exit }' "$table"
}
words=$(awk -F'\t' '$1 == "word" {printf "s#\\([ /=]\\)%s\\([ /.]\\|$\\)#\\1%s\\2#g;", $2, $3}' "$table")
skipped=0 passed=0 failed=0

run() { # PAGE:LINE COMMAND
    act=$(action "${1%:*}" "$2")
    line=$(printf '%s\n' "$2" | sed "$words")
    wanted=0
    case $act in
    skip\ *) skipped=$((skipped + 1)); return ;;
    with\ *) line="$line ${act#with }" ;;
    status\ *) wanted=${act#status } ;;
    esac
    begin=$(date +%s)
    [ "${line#[A-Z]=}" = "$line" ] || { variable=$line; return; } # J="…", which the next commands read
    (ulimit -t 600 && exec bash -c "${variable:-}
$line") >"$TMPDIR/out" 2>&1 </dev/null
    status=$?
    if [ $status -eq "$wanted" ]; then
        passed=$((passed + 1))
        echo "ok $1 $2 ($(($(date +%s) - begin)) s)"
    else
        failed=$((failed + 1))
        echo "not ok $1 $2 (status $status)"
        [ "$line" = "$2" ] || echo "  run as: $line"
        { grep -A 20 '^not ok' "$TMPDIR/out" || tail -n 5 "$TMPDIR/out"; } | head -n 60 | sed 's/^/  /'
    fi
}

# tasks.md makes what others use; reference.md and ops.md hold no commands but make docs.
[ -n "${TTRUN_DOCS:-}" ] || TTRUN_DOCS="docs/tasks.md README.md docs/features.md $(cd "$SRC" && ls docs/*.md | grep -v 'docs/\(reference\|ops\|tasks\|features\).md')"
cd "$SRC" || exit 1
LC_ALL=C awk -v folder="$root" -f "$here/commands.awk" $TTRUN_DOCS >"$TMPDIR/commands" || exit 1
cd "$root" || exit 1
exec 3<"$TMPDIR/commands"
while IFS='	' read -r where command <&3; do run "$where" "$command"; done
echo "$skipped commands are not run: tests/docs/commands.table says why"
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
