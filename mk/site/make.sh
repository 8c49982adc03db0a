#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# make.sh OUT: compiles the tool beside OUT and writes the site to OUT. An old site is replaced only by a whole one.
set -eu
out=$1
mkdir -p "$(dirname "$out")"
rm -rf "$out.new"
${CC:-gcc} -std=c11 -D_GNU_SOURCE -O1 -Wall -Wextra ${CFLAGS:-} mk/site/*.c -lcmark-gfm-extensions -lcmark-gfm -o "$out.tool"
"$out.tool" . "$out.new" mk/site/pages
cp mk/site/style.css mk/site/page.js "$out.new/"
rm -rf "$out"
mv "$out.new" "$out"
echo "$out/index.html: $(du -sk "$out" | cut -f 1) KB in all"
