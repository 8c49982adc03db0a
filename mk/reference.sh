#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Prints docs/reference.md from the option tables of the built ttrun and its plugins; `make docs` writes the file.
# If nothing is built, it prints the page as it is.
cd "$(dirname "$0")/.." || exit 1
if [ -x ./ttrun ]; then
    exec ./ttrun config --plugin-dir ./plugins --reference
fi
exec cat docs/reference.md
