#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# ops.sh page | header: prints docs/ops.md or include/ttrun/ops.h from the op definitions of the built ttrun; `make docs`
# writes the files, `make lint` compares them. If nothing is built, it prints the file as it is.
cd "$(dirname "$0")/.." || exit 1
case ${1-} in
page)
    [ -x ./ttrun ] || exec cat docs/ops.md
    exec ./ttrun config --ops
    ;;
header)
    [ -x ./ttrun ] || exec cat include/ttrun/ops.h
    # The table is between two marker lines of the header; the rest of the header is written by hand.
    sed -n '1,/^\/\* Made by `make docs`/p' include/ttrun/ops.h
    ./ttrun config --ops header
    sed -n '/^\/\* End of what is made/,$p' include/ttrun/ops.h
    ;;
*)
    echo "usage: mk/ops.sh page | header" >&2
    exit 2
    ;;
esac
