# SPDX-License-Identifier: Apache-2.0
# A test's verdict must not depend on time, load, ports, other processes or unseeded chance (tests/README.md). Reads
# tests/lint/clock.list first: FILE WORD REASON, a file that may use this word, and why; then the files of tests/. Prints a finding
# per line that has a word, and per entry of the list that nothing needs any more.
function word_is(word) {
    used[FILENAME, word] = 1
    if (!((FILENAME, word) in allowed))
        print FILENAME ":" FNR ": " word ": no verdict may depend on it; wait for an event (tests/README.md), or give the reason in tests/lint/clock.list"
}
FNR == 1 { script = FILENAME ~ /\.sh$/; list = FILENAME ~ /clock\.list$/ }
list {
    if ($0 ~ /^(#|$)/) next
    if (NF < 5) print FILENAME ":" FNR ": a file, a word and a reason"
    allowed[$1, $2] = 1
    entry[++n] = $1 SUBSEP $2 SUBSEP FNR
    name = FILENAME
    next
}
{
    line = $0
    if (script) sub(/(^|[ \t])#.*/, "", line)
    else {
        gsub(/\/\*[^*]*\*\/|\/\/.*/, "", line)
        if (line ~ /^[ \t]*\/?\*/) next
    }
}
script && line ~ /(^|[ \t;&|(`])sleep [0-9"$.]/ { word_is("sleep") }
script && line ~ /(^|[ \t;&|(`])date( [-+"]|\))/ { word_is("date") }
script && line ~ /(^|[ \t;&|("])timeout"? (-[a-z] [^ ]+ )*[0-9"$]/ { word_is("timeout") }
script && line ~ /(^|[^\\])[$][$]([^(]|$)/ { word_is("pid") }
script && line ~ /urandom|[$]RANDOM|srand\(\)/ { word_is("chance") }
script && line ~ /(port|PORT)[ =][1-9][0-9][0-9][0-9]|(localhost|127\.0\.0\.1):[1-9]/ { word_is("port") }
!script && line ~ /(^|[^a-z_])(u|nano|clock_nano)?sleep\(|(^|[^a-z_])u?alarm\(/ { word_is("sleep") }
!script && line ~ /tt_now_ns\(|tt_wall_seconds\(|clock_gettime\(|gettimeofday\(|getrusage\(|setitimer\(|std::chrono|(^|[^a-z_])time\(NULL|(^|[^a-z_])clock\(\)/ { word_is("clock") }
!script && line ~ /getpid\(/ { word_is("pid") }
!script && line ~ /urandom|(^|[^a-z_])(s?rand|s?random|getrandom|arc4random)\(/ { word_is("chance") }
!script && line ~ /htons\([1-9]/ { word_is("port") }
END {
    for (i = 1; i <= n; i++) {
        split(entry[i], e, SUBSEP)
        if (!((e[1], e[2]) in used)) print name ":" e[3] ": " e[1] " no longer uses " e[2] "; take the entry out"
    }
}
