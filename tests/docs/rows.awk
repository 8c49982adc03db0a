# SPDX-License-Identifier: Apache-2.0
# From PAGE:LINE TAB COMMAND to a line PAGE:LINE TAB COMMAND TAB ACTION TAB ITS ARGUMENT TAB WHAT IS RUN per command, by the rows of commands.table
# (-v table=…), into a file per page (-v into=FOLDER). Without -v long=1, trainings are small and scripts are not run.
BEGIN {
    FS = OFS = "\t"
    while ((getline < table) > 0) {
        if (/^#/ || NF < 3) continue
        if ($1 == "word") { word[++n_words] = $2; stands_for[n_words] = $3 }
        else if ($1 == "small") { training[++n_small] = $2; sizes[n_small] = $3 }
        else { of_page[++n] = $1; command[n] = $2; act[n] = $3 }
    }
}
function row_of(page, s,   i, k) {
    for (i = 1; i <= n; i++) {
        k = length(command[i])
        if (of_page[i] != "*" && of_page[i] != page) continue
        if (s == command[i] || (substr(command[i], k) == "*" && index(s, substr(command[i], 1, k - 1)) == 1)) return act[i]
    }
    return "run"
}
function put_words(s,   i, before) {
    for (i = 1; i <= n_words; i++) {
        before = ""
        while (match(s, "[ /=]" word[i] "([ /.]|$)")) {
            before = before substr(s, 1, RSTART) stands_for[i]
            s = substr(s, RSTART + 1 + length(word[i]))
        }
        s = before s
    }
    gsub(/\/tmp\//, "$TMPDIR/", s)
    return s
}
# The first row that matches gives its sizes; steps of three digits and more lose their last one.
function make_small(s,   i, after) {
    for (i = 1; i <= n_small; i++) {
        if (!match(s, training[i])) continue
        after = substr(s, RSTART + RLENGTH)
        if (match(after, /--training\.steps [0-9]+[0-9][0-9]/))
            after = substr(after, 1, RSTART + RLENGTH - 2) substr(after, RSTART + RLENGTH)
        match(s, training[i])
        return substr(s, 1, RSTART + RLENGTH - 1) " " sizes[i] after
    }
    return s
}
{
    page = $1
    sub(/:.*/, "", page)
    kind = row_of(page, $2)
    argument = kind
    sub(/ .*/, "", kind)
    sub(/^[^ ]* ?/, "", argument)
    line = put_words($2)
    if (line ~ /^[A-Z]=/) kind = "variable"
    if ((kind == "file" || kind == "long") && long) kind = "run"
    if (!long && kind != "file") line = make_small(line)
    if (kind == "with") line = line " " argument
    sub(/^.*\//, "", page)
    print $1, $2, kind, argument == "" ? "-" : argument, line > (into "/" page ".commands")
}
