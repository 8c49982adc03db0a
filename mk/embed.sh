#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# embed.sh PREFIX FILE...: prints a C file with one string per file; its symbol is PREFIX_ and the file's name.
prefix=$1
shift
echo '/* SPDX-License-Identifier: Apache-2.0 */'
echo '/* Written by mk/embed.sh. */'
for f; do
    symbol=${prefix}_$(basename "$f" | tr -c 'A-Za-z0-9\n' _)
    printf 'extern const char %s[];\nconst char %s[] = {\n' "$symbol" "$symbol"
    od -An -v -to1 "$f" | sed "s/  *\\([0-7][0-7]*\\)/'\\\\\\1',/g" || exit 1 # '\342': a char, signed or not
    echo '0};'
done
