#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# ops.sh page | header: docs/ops.md or include/ttrun/ops.h as the op definitions of the built ttrun have them; `make docs`
# writes them there, `make lint` compares. Where nothing is built there is nothing to compare with: the file as it is.
cd "$(dirname "$0")/.." || exit 1
case ${1-} in
page)
    [ -x ./ttrun ] || exec cat docs/ops.md
    exec ./ttrun config --ops
    ;;
header)
    [ -x ./ttrun ] || exec cat include/ttrun/ops.h
    # The table stands between two lines of the header; all else there is written by hand.
    sed -n '1,/^\/\* Made by `make docs`/p' include/ttrun/ops.h
    ./ttrun config --ops header
    sed -n '/^\/\* End of what is made/,$p' include/ttrun/ops.h
    ;;
*)
    echo "usage: mk/ops.sh page | header" >&2
    exit 2
    ;;
esac
