#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Prints docs/ttrun.1 with its synopsis and its lists of options as the built ttrun has them; `make docs` writes the file. If
# nothing is built, it prints the page as it is.
cd "$(dirname "$0")/.." || exit 1
part() { # NAME: the text of a part that the tables make
    [ ! -x ./ttrun ] || ./ttrun complete "--man-$1"
}
for p in synopsis options; do part $p >"${TMPDIR:-/tmp}/ttrun-man.$$.$p"; done
trap 'rm -f "${TMPDIR:-/tmp}/ttrun-man.$$".*' EXIT
awk -v files="${TMPDIR:-/tmp}/ttrun-man.$$." -v built="$([ -x ./ttrun ] && echo 1)" '
    $1 == ".\\\"" && $2 == "end" { skip = 0 }
    !skip
    $1 == ".\\\"" && $2 == "begin" && built {
        name = $3
        sub(":", "", name)
        while ((getline line < (files name)) > 0) print line
        skip = 1
    }' docs/ttrun.1
