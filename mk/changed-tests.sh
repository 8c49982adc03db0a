#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# changed-tests.sh: the tests that the changed files reach, one name a line. Changed is what `git` says: the work tree beside SINCE, by default
# the last commit that the upstream branch has too, or without one HEAD. A file reaches
#   itself, if it is a test
#   each program that includes it (the .d files of BUILD, build/release)
#   the tests that name it: a script its library, tool or file of mk/; any test a plugin
#   from core/AREA, lib/AREA, tools/AREA, launch or interchange, the tests of tests/AREA (see below where an area has none), and the scripts
#   that are called after it
set -u
BUILD=${BUILD:-build/release}
git rev-parse --git-dir >/dev/null 2>&1 || { echo "changed-tests: no repository of git is here, so nothing is known to have changed" >&2 && exit; }
since=${SINCE:-$(git merge-base HEAD '@{upstream}' 2>/dev/null || echo HEAD)}
all=$(ls tests/*/test_*.[cs]* tests/*/*/test_*.[cs]* tests/*/long_*.[cs]* tests/fuzz/fuzz_*.c 2>/dev/null | grep '\.\(c\|sh\)$')
scripts=$(echo "$all" | grep '\.sh$')

named() { # WORD FILE...: those that hold it
    word=$1
    shift
    grep -lw -e "$word" "$@" /dev/null
}
reached_by() { # FILE
    base=${1##*/}
    stem=${base%.*}
    # a change of what it includes makes a program another one
    ls "$BUILD"/tests/*/*.d "$BUILD"/tests/*/*/*.d 2>/dev/null | xargs -r grep -lE "(^| )$1( |\$|:)" /dev/null | sed "s|^$BUILD/\(.*\)\.d\$|\1.c|"
    case $1 in
    tests/*/test_* | tests/*/long_* | tests/fuzz/fuzz_*) echo "$1" ;;
    tests/fuzz/*) echo "$all" | grep '^tests/fuzz/' ;;
    tests/docs/* | docs/* | *.md) echo "$scripts" | grep '^tests/\(docs\|build\)/' ;;
    tests/*)
        named "$base" $scripts
        named "$stem" $scripts ;;
    Makefile) echo "$all" | grep '^tests/build/' ;;
    mk/*) named "$base" $scripts ;;
    plugins/*)
        name=${1#plugins/*/}
        name=${name%%/*}
        named "${name%.c}" $all ;;
    core/* | launch/* | interchange/* | lib/* | tools/*)
        area=${1#core/} area=${area#lib/} area=${area#tools/}
        area=${area%%/*}
        case $area in # these have no folder in tests/
        conformance) area=abi ;;
        device) area=exec ;;
        interchange) area=checkpoint ;;
        linalg) area=ops ;;
        plugin) area=plugins ;;
        rank) area=train ;;
        esac
        echo "$all" | grep "^tests/$area/"
        echo "$scripts" | grep "/test_[a-z0-9_]*$stem" ;;
    esac
}
{ git diff --name-only "$since" && git ls-files --others --exclude-standard; } | sort -u | while read -r file; do reached_by "$file"; done |
    sed 's/\.c$//' | sort -u
