# SPDX-License-Identifier: Apache-2.0
# What every test script begins with: . "$(dirname "$0")/../script.sh", or the library of its folder (tests/run/lib.sh), which does so.
# It sets:
#   SRC the checkout, BUILD its build folder, TTRUN the program, PLUGINS its plugin folder
#   dir      an empty folder of this script, which is removed if all went well
#   failed   0, or 1 after a failure: a script ends with `exit $failed`
# and has the functions below. tests/README.md says how a script waits for what it tests.
set -u
: "${SRC:=$(cd "$(dirname "$0")/../.." && pwd)}"
: "${BUILD:=$SRC/build/release}"
: "${TTRUN:=$BUILD/ttrun}" "${PLUGINS:=$BUILD/plugins}"
case $0 in /*) ok_script=$0 ;; *) ok_script=$PWD/$0 ;; esac
failed=0
dir=$(mktemp -d "${TMPDIR:-/tmp}/script.XXXXXX") || exit 1
trap '[ $? -ne 0 ] || [ $failed -ne 0 ] || rm -rf "$dir"' EXIT

# ok NAME: passes if the previous command succeeded; otherwise says what was expected (the lines of the script before this
# one), what was seen (their variables; the last lines of the streams that the script keeps), and sets failed.
ok() {
    ok_status=$?
    [ $ok_status -ne 0 ] || { echo "ok $1" && return; }
    failed=1
    echo "not ok $1 (status $ok_status)"
    show_check "$1"
    for ok_stream in "$dir/out" "$dir/err" "$dir/log"; do
        [ -s "$ok_stream" ] || continue
        echo "    seen in ${ok_stream##*/}:"
        tail -n 20 "$ok_stream" | sed 's/^/      /'
    done
}
# check NAME COMMAND...: the same of a command
check() {
    check_name=$1
    shift
    "$@"
    ok "$check_name"
}
# In the long tier (make test-long): every seed, mesh and recipe, where `make test` takes some.
is_long() { [ -n "${TEST_LONG-}" ]; }
# skip NAME WHY: counted beside passed and failed
skip() { echo "skip $1: $2"; }

# The lines of the script, or of a library in its folder, that end in `ok NAME`, or the line `check NAME …`, and what the variables in them are.
show_check() {
    (cd "${ok_script%/*}" && awk -v name="$1" '
        # a word of the script that may be this name: $x and ${x} stand for anything
        function may_be(word) {
            gsub(/"|\047/, "", word)
            gsub(/[.*+?(){}|^\[\]\\]/, "\\\\&", word)
            gsub(/\\\$|[$]\\\{[a-zA-Z0-9_#%]*\\\}|[$][a-zA-Z0-9_]+/, ".*", word)
            return name ~ ("^" word "$")
        }
        FNR == 1 { n = 0 }
        /^[ \t]*(#|$)/ { n = 0; next }
        { text[++n] = $0 }
        $1 == "check" && may_be($2) { n = 1; text[1] = $0; show(); exit }
        $1 == "ok" { if (may_be($2)) { n--; show(); exit } n = 0 }
        function show(   i) {
            printf "    expected, by line %d of %s:\n", FNR, FILENAME
            for (i = n > 8 ? n - 7 : 1; i <= n; i++) printf "      %s\n", text[i]
        }' "${ok_script##*/}" $(ls | grep '\.sh$' | grep -v '^test_')) >"$dir/.check"
    cat "$dir/.check"
    for ok_variable in $(grep -o '[$]{\{0,1\}[a-zA-Z_][a-zA-Z0-9_]*' "$dir/.check" | tr -d '${' | sort -u); do
        case $ok_variable in dir | SRC | BUILD | TTRUN | PLUGINS | TMPDIR) continue ;; esac
        eval "printf '    seen: %s=%s\\n' $ok_variable \"\${$ok_variable-}\""
    done
    rm -f "$dir/.check"
}
