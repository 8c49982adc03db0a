#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Prints docs/reference.md as the option tables of the built ttrun and its plugins have it; `make docs` writes it there.
# Where nothing is built there is nothing to compare with: the page as it is.
cd "$(dirname "$0")/.." || exit 1
if [ -x ./ttrun ]; then
    exec ./ttrun config --plugin-dir ./plugins --reference
fi
exec cat docs/reference.md
