# SPDX-License-Identifier: Apache-2.0
# dialects.awk share/dialects/NAME.json...: prints the tables of core/config/dialects.h. A file is JSON with a row a line, in
#   "keys"        "THEIRS": {"KIND": "TEXT"}, where TT_RESERVED_KIND is in reserved.h, or {"idle": "TEXT", "if": "VALUE|VALUE", "else": "TEXT"}
#   "values"      {"FIELD": VALUE, …} with the fields of tt_dialect_value
#   "optimizers"  "THEIRS": {the options of such a group here, with PyTorch's defaults}
#   "arguments"   "THEIRS": the value that changes nothing here; null: each does
# "of" is whose names these are; the text of the kind "same" ends with it. What is no such line ends the build.
function wrong(what) {
    print FILENAME ":" FNR ": " what > "/dev/stderr"
    failed = 1
    exit 1
}

function key_row(    row, k, owners) {
    k = text[1]
    row = text[2] " " text[3]
    if (k in rows && (rows[k] != row || n > 3)) wrong("another row has this key")
    if (!(k in rows)) keys[++n_keys] = k
    rows[k] = row
    kind[k] = toupper(substr(text[2], 2, length(text[2]) - 2))
    means[k] = text[3]
    rest_of[k] = n > 3 ? text[5] ", " text[7] : "NULL, NULL"
    if (of == "") return
    owners = k in whose ? whose[k] " and " : ""
    whose[k] = owners of "'s"
}

# "key": "optimizer.name" becomes .key = "optimizer.name".
function value_row(line,    out) {
    while (match(line, /"[a-z_]+": /)) {
        out = out substr(line, 1, RSTART - 1) "." substr(line, RSTART + 1, RLENGTH - 4) " = "
        line = substr(line, RSTART + RLENGTH)
    }
    values = values "    " out line ",\n"
}

function optimizer_row(options) {
    sub(/^"[^"]*": /, "", options)
    gsub(/"/, "\\\"", options)
    optimizers = optimizers "    {" text[1] ", \"" options "\"},\n"
}

FNR == 1 { of = section = "" }
/^[{}]$/ { next }
/^    "of": "[^"\\]*",$/ { of = substr($0, 12, length($0) - 13); next }
/^    "[a-z]*": [[{]$/ { section = substr($1, 2, length($1) - 3); next }
/^    []}],?$/ { section = ""; next }
{
    sub(/^ */, "")
    sub(/,$/, "")
    shape = ""
    n = 0
    for (line = $0; match(line, /"([^"\\]|\\["\\])*"/); line = substr(line, RSTART + RLENGTH)) {
        shape = shape substr(line, 1, RSTART - 1) "s"
        text[++n] = substr(line, RSTART, RLENGTH)
    }
    shape = shape line
}
section == "keys" && (shape == "s: {s: s}" || shape == "s: {s: s, s: s, s: s}" && text[4] text[6] == "\"if\"\"else\"") { key_row(); next }
section == "values" && shape ~ /^[{]s: s, s: s, s: s(, s: (s|true))?[}]$/ { value_row($0); next }
section == "optimizers" && shape ~ /^s: [{]s: s(, s: [^ {}]+)*[}]$/ { optimizer_row($0); next }
section == "arguments" && shape ~ /^s: (null|true|false)$/ {
    arguments = arguments "    {" text[1] ", " ($2 == "null" ? "NULL" : "\"" $2 "\"") "},\n"
    next
}
{ wrong("no row of share/dialects: " $0) }
END {
    if (failed) exit 1
    for (i = 2; i <= n_keys; i++) # in the order of strcmp: without the closing quote
        for (k = i; k > 1 && substr(keys[k], 1, length(keys[k]) - 1) < substr(keys[k - 1], 1, length(keys[k - 1]) - 1); k--) {
            t = keys[k]
            keys[k] = keys[k - 1]
            keys[k - 1] = t
        }
    print "/* SPDX-License-Identifier: Apache-2.0 */\n/* Written by mk/dialects.awk. */\n#include \"config/dialects.h\"\n#include <ttrun/option.h>\n"
    print "static const tt_reserved keys[] = {"
    for (i = 1; i <= n_keys; i++) {
        k = keys[i]
        if (kind[k] == "SAME" && k in whose) means[k] = substr(means[k], 1, length(means[k]) - 1) " (" whose[k] " name)\""
        print "    {" k ", TT_RESERVED_" kind[k] ", " means[k] ", " rest_of[k] "},"
    }
    print "};\nstatic const tt_dialect_value values[] = {\n" values "};"
    print "static const tt_dialect_optimizer optimizers[] = {\n" optimizers "};"
    print "static const tt_dialect_argument arguments[] = {\n" arguments "};"
    print "const tt_dialects tt_dialects_known = {keys, TT_COUNT(keys), values, TT_COUNT(values),"
    print "    optimizers, TT_COUNT(optimizers), arguments, TT_COUNT(arguments)};"
}
