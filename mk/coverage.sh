#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# coverage.sh BUILD_DIR: the lines of the program and its plugins that the tests run, by folder. The tree in BUILD_DIR was built with --coverage, and tests
# have run (make coverage). One line a file in BUILD_DIR/lines: executed lines, lines, name.
#   BEFORE=FILE   such a list of another run: prints its share beside, and fails if a folder lost more than half a percent of its lines
set -u
build=$1
find "$build/core" "$build/launch" "$build/interchange" "$build/lib" "$build/tools" "$build/plugins" -name '*.gcno' | sort | while read -r notes; do
    gcov -n "$notes" 2>/dev/null
done | awk '
    /^File / { file = substr($2, 2, length($2) - 2); next }
    /^Lines executed:/ && file ~ /^(core|launch|interchange|lib|tools|plugins)\/.*\.c$/ {
        split($0, part, /[:% ]+/)
        n = part[5]
        if (n > lines[file]) { lines[file] = n; executed[file] = int(part[3] * n / 100 + 0.5) }
    }
    { file = "" }
    END { for (f in lines) print executed[f], lines[f], f }' | sort -k3 >"$build/lines"
awk -v before="${BEFORE-}" '
    { split($3, part, "/"); folder = part[1] ~ /^(launch|interchange)$/ ? part[1] : part[1] "/" part[2] }
    FILENAME == before { was[folder] += $1; were[folder] += $2; was["all"] += $1; were["all"] += $2; next }
    { ran[folder] += $1; n[folder] += $2; ran["all"] += $1; n["all"] += $2 }
    END {
        for (f in n) {
            now = 100 * ran[f] / n[f]
            printf "%-20s %6d of %6d lines %6.1f %%", f, ran[f], n[f], now
            if (were[f]) {
                printf "   before %6.1f %%%s", 100 * was[f] / were[f], now < 100 * was[f] / were[f] - 0.5 ? "   LOST" : ""
                lost += now < 100 * was[f] / were[f] - 0.5
            }
            print ""
        }
        exit lost > 0
    }' ${BEFORE:+"$BEFORE"} "$build/lines" >"$build/folders"
status=$?
sort "$build/folders"
exit $status
