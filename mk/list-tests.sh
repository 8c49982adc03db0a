#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# list-tests.sh [AREA...]: the programs and scripts of these folders of tests/, or of all, one name a line, those that take most CPU
# time first by tests/times (what is not in it before all others), so that none of them is left for the end.
#   T="test_stop test_ctl"   only those of these names
#   TEST_LONG=1              also long_*, which `make test` does not run
#   QUICK=1.5                only those that take no more seconds of CPU, and what the changed files reach, if it takes no more than ten times that
#   CHANGED=1                only what the changed files reach (changed-tests.sh)
set -u
[ $# -gt 0 ] || set -- '*'
names='test'
[ -z "${TEST_LONG-}" ] || names='test long'

is_wanted() { # NAME
    [ -n "${T:-}" ] || return 0
    for t in $T; do [ "$1" = "$t" ] && return 0; done
    return 1
}
for area; do
    for name in $names; do
        set -- tests/$area/"${name}"_*.c tests/$area/*/"${name}"_*.c tests/$area/"${name}"_*.sh tests/$area/*/"${name}"_*.sh
        case $area in '*' | fuzz) set -- "$@" tests/fuzz/fuzz_*.c ;; esac
        for f; do
            f=${f%.c}
            base=${f##*/}
            case $f in *\**) continue ;; esac
            is_wanted "${base%.sh}" && echo "$f"
        done
    done
done | {
    [ -z "${CHANGED-}${QUICK-}" ] || sh mk/changed-tests.sh | sed 's/^/changed /'
    sed 's/^/found /'
} | awk -v quick="${QUICK-}" -v only_changed="${CHANGED-}" '
    FILENAME != "-" { if ($0 !~ /^#/) cost["tests/" $3] = $1; next }
    $1 == "changed" { changed[$2] = 1; next }
    {
        c = $2 in cost ? cost[$2] : ""
        if (quick != "" && !(c != "" && c <= quick + 0 || ($2 in changed && c <= 10 * quick))) next
        if (only_changed != "" && !($2 in changed)) next
        print c == "" ? 1e9 : c, $2
    }' tests/times - | sort -k1,1gr -k2 | cut -d ' ' -f 2
