# SPDX-License-Identifier: Apache-2.0
# Prints PAGE:LINE TAB COMMAND for each command of a Markdown page: lines of code blocks without a language that begin with the
# name of a program, and texts between backticks that begin with ./ttrun or such a name and go on ("ttrun plan" in a sentence is a
# name). A command on several lines, each but the last ended by \, is one. Where a page leaves something out (…), it is none.
# Files that a page shows, code blocks in jsonc whose first line is "// NAME.json …", are written to FOLDER (-v folder=…).
function is_command(s) {
    return s ~ /^(\.\/ttrun|mpirun|timeout|sh|make|[A-Z_]+=[^ ]+ (make|sh)) [^ ]/ || (block == "text" && s ~ /^((ttrun|srun|torchrun|make)( |$)|[A-Z]=)/)
}
function put(s) {
    sub(/  +#.*$/, "", s)
    sub(/ +$/, "", s)
    gsub(/\\\|/, "|", s) # a bar in a table
    if (s !~ /…/)
        printf "%s:%d\t%s\n", FILENAME, FNR, s
}
/^ *```/ {
    if (block == "") {
        block = $1
        sub(/^```/, "", block)
        if (block == "") block = "text"
        first = 1
    } else {
        if (file != "") close(file)
        block = file = more = ""
    }
    next
}
block ~ /^jsonc?$/ {
    if (first && match($0, /^\/\/ [a-z0-9_]+\.json/)) file = folder "/" substr($0, 4, RLENGTH - 3)
    first = 0
    if (file != "") print > file
    next
}
block == "text" || block == "sh" {
    s = $0
    sub(/^\$ /, "", s)
    if (more != "") { sub(/^ +/, "", s); s = more s; more = "" }
    else if (!is_command(s)) next
    if (s ~ /\\$/) { more = substr(s, 1, length(s) - 1); next }
    put(s)
    next
}
block == "" {
    n = split($0, part, "`")
    for (i = 2; i <= n; i += 2) if (is_command(part[i])) put(part[i])
}
