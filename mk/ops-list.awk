# SPDX-License-Identifier: Apache-2.0
# ops-list.awk core/graph/ops/*.c: prints one line TT_CORE_OP(name) per op defined there, sorted as strcmp sorts.
# A definition begins in the first column: "const tt_op_def tt_op_NAME =", or MACRO(NAME, … with a macro of that file whose
# text has tt_op_def. The name may be on the next line. What begins so and has no name ends the build.
function define(text) {
    sub(/^[ \t]+/, "", text)
    if (text == "" && !waiting) { waiting = 1; return }
    waiting = 0
    if (plain && sub(/^tt_op_/, "", text) == 0 || !match(text, /^[a-z0-9_]+/)) {
        print FILENAME ":" FNR ": ops-list.awk finds no name of an op in \"" text "\"" > "/dev/stderr"
        failed = 1
        exit 1
    }
    name[++n] = substr(text, 1, RLENGTH)
}
FNR == 1 { delete makes; macro = ""; waiting = 0 }
waiting { define($0); next }
/^#define [A-Z][A-Z0-9_]*\(/ { macro = substr($2, 1, index($2, "(") - 1) }
macro != "" && /tt_op_def/ { makes[macro] = 1 }
!/\\$/ { macro = "" }
/^const tt_op_def( |$)/ && !/^const tt_op_def \*/ { plain = 1; define(substr($0, 16)) }
/^[A-Z][A-Z0-9_]*\(/ {
    at = index($0, "(")
    if (substr($0, 1, at - 1) in makes) { plain = 0; define(substr($0, at + 1)) }
}
END {
    if (failed) exit 1
    for (i = 2; i <= n; i++) # "" + : compared as texts
        for (k = i; k > 1 && "" name[k] < "" name[k - 1]; k--) { t = name[k]; name[k] = name[k - 1]; name[k - 1] = t }
    for (i = 1; i <= n; i++) print "TT_CORE_OP(" name[i] ")"
}
