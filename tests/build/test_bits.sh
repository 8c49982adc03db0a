#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# tests/bits/compare.sh refuses a job that it does not have, with the names of those that it has.
for name in nosuch 'llama.' '#' 'tp '; do
    sh "$SRC/tests/bits/compare.sh" "$SRC" gpt2 "$name" >"$TMPDIR/out" 2>"$TMPDIR/err"
    if [ $? -eq 2 ] && ! [ -s "$TMPDIR/out" ] && [ "$(wc -l <"$TMPDIR/err")" -eq 1 ] &&
        grep -qF "has no job \"$name\"; it has: llama3, llama3_threads, " "$TMPDIR/err"; then
        echo "ok job_${name}_is_refused"
    else
        echo "not ok job_${name}_is_refused"
        cat "$TMPDIR/out" "$TMPDIR/err"
    fi
done
