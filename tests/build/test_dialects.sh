#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The tables of other trainers' names (mk/dialects.awk) have every row of share/dialects, and a row that is read wrong ends the build.
. "$(dirname "$0")/../script.sh"
cd "$dir" || exit 1
tables() { LC_ALL=C awk -f "$SRC/mk/dialects.awk" "$@"; }
cat >a.json <<'J'
{
    "of": "A",
    "keys": {
        "x": {"same": "ours"},
        "x-y": {"idle": "a \"word\"", "if": "false|0", "else": "no"},
        "b": {"answer": "why"}
    },
    "values": [
        {"key": "k", "value": "V", "here": "v", "any_case": true}
    ],
    "optimizers": {
        "O": {"name": "o", "lr": 1e-3, "last": "x"}
    },
    "arguments": {
        "any": null,
        "off": false
    }
}
J
cat >b.json <<'J'
{
    "of": "B",
    "keys": {
        "x": {"same": "ours"}
    }
}
J
rows_are_sorted_and_say_whose_they_are() {
    tables a.json b.json | grep '^    {' >out
    cat >expected <<'C'
    {"b", TT_RESERVED_ANSWER, "why", NULL, NULL},
    {"x", TT_RESERVED_SAME, "ours (A's and B's name)", NULL, NULL},
    {"x-y", TT_RESERVED_IDLE, "a \"word\"", "false|0", "no"},
    {.key = "k", .value = "V", .here = "v", .any_case = true},
    {"O", "{\"name\": \"o\", \"lr\": 1e-3, \"last\": \"x\"}"},
    {"any", NULL},
    {"off", "false"},
C
    cmp -s out expected || { diff expected out; return 1; }
}
every_row_of_the_files_is_in_the_tables() {
    for f in "$SRC"/share/dialects/*.json; do "$BUILD/tests/run/json_tool" "$f" keys >/dev/null || return 1; done
    rows=$(cat "$SRC"/share/dialects/*.json | grep -c '^        ')
    twice=$(sed -n '/"keys"/,/^    }/s/^        \("[^"]*"\): .*/\1/p' "$SRC"/share/dialects/*.json | sort | uniq -d | wc -l)
    [ "$(tables "$SRC"/share/dialects/*.json | grep -c '^    {')" = $((rows - twice)) ]
}
rows_that_cannot_be_read_end_the_build() {
    for row in '"x": {"same": "other"},' '"y": {"same": "ours", "if": "1"},' '"y": {"same": 1},' '"y": "ours",' '"y": {"same": "a\u0041"},' '"y": {"same": "a"}, "z": {"same": "b"},'; do
        sed "s|^        \"b\".*|        $(printf %s "$row" | sed 's/\\/&&/g')\n&|" a.json >bad.json
        if tables bad.json >out 2>err || ! grep -q '^bad.json:[0-9]*: ' err; then
            echo "$row"
            return 1
        fi
    done
}
check rows_are_sorted_and_say_whose_they_are rows_are_sorted_and_say_whose_they_are
check every_row_of_the_files_is_in_the_tables every_row_of_the_files_is_in_the_tables
check rows_that_cannot_be_read_end_the_build rows_that_cannot_be_read_end_the_build
exit $failed
