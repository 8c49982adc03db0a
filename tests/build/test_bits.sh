#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# tests/bits/compare.sh refuses a job that it does not have, with the names of those that it has.
. "$(dirname "$0")/../script.sh"
for name in nosuch 'llama.' '#' 'tp '; do
    sh "$SRC/tests/bits/compare.sh" "$SRC" gpt2 "$name" >"$dir/out" 2>"$dir/err"
    [ $? -eq 2 ] && ! [ -s "$dir/out" ] && [ "$(wc -l <"$dir/err")" -eq 1 ] &&
        grep -qF "has no job \"$name\"; it has: llama3, llama3_threads, " "$dir/err"
    ok "job_${name}_is_refused"
done
exit $failed
