# SPDX-License-Identifier: Apache-2.0
# ops-list.awk core/graph/ops/*.c: prints one line TT_CORE_OP(name) per op defined there, sorted as strcmp sorts.
# A definition begins in the first column: "const tt_op_def tt_op_NAME =", or MACRO(NAME, … with a macro of that file that
# defines tt_op_##id.
FNR == 1 { delete makes; macro = "" }
/^#define [A-Z_]+\(id,/ { macro = substr($2, 1, index($2, "(") - 1) }
macro != "" && /tt_op_##id / { makes[macro] = 1 }
!/\\$/ { macro = "" }
/^const tt_op_def tt_op_[a-z0-9_]+ =/ { name[++n] = substr($3, 7) }
/^[A-Z_]+\([a-z0-9_]+,/ {
    at = index($0, "(")
    if (substr($0, 1, at - 1) in makes) name[++n] = substr($0, at + 1, index($0, ",") - at - 1)
}
END {
    for (i = 2; i <= n; i++) # "" + : compared as texts
        for (k = i; k > 1 && "" name[k] < "" name[k - 1]; k--) { t = name[k]; name[k] = name[k - 1]; name[k - 1] = t }
    for (i = 1; i <= n; i++) print "TT_CORE_OP(" name[i] ")"
}
