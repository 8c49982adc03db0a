#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What the compiler does not check: who includes whom, sizes, forbidden calls and words, licence lines, generated pages,
# references to rules and files that do not exist, format.
# Prints "lint: ok", or one finding a line and fails.
set -u
cd "$(dirname "$0")/.." || exit 1
found=$(mktemp) || exit 1
trap 'rm -f "$found" "$found.links"' EXIT

sources() { find "$@" -name build -prune -o \( -name '*.c' -o -name '*.h' -o -name '*.cu' -o -name '*.def' \) -print 2>/dev/null | sort; }
awk=awk
roots="core launch interchange lib tools"

# ---- one pass over the C files: sizes, calls, includes; comments and literals are blanked first ----
sources $roots plugins include | xargs -r $awk -v arrows=mk/arrows.list -f mk/lint.awk >>"$found"

# ---- statics: a name that more than three files of the roots and of plugins give a static function carries its file's noun ----
# (put in trace.c is trace_put), so that a backtrace, a profile and grep tell them apart.
sources $roots plugins | xargs -r $awk '
    /^static [^=;"]*\(/ {
        name = $0
        sub(/\(.*/, "", name)
        sub(/.*[ *]/, "", name)
        if (name !~ /^[a-z][a-z0-9_]*$/ || name ~ /^tt_/ || (FILENAME, name) in seen) next
        seen[FILENAME, name] = 1
        places[name] = places[name] FILENAME ":" FNR "\n"
        files[name]++
    }
    END {
        for (name in files) {
            if (files[name] <= 3) continue
            n = split(places[name], place, "\n")
            for (i = 1; i < n; i++) {
                split(place[i], part, "/")
                if (part[1] != "plugins")
                    print place[i] ": " name ": " files[name] " files have a static of this name; give it its file\047s noun"
            }
        }
    }' | sort >>"$found"

# ---- tests: what a verdict must not depend on ----
if [ -f tests/lint/clock.list ]; then
    find tests \( -path tests/peers -o -path tests/golden \) -prune -o -type f \( -name '*.sh' -o -name '*.[ch]' -o -name '*.cpp' \) -print |
        sort | xargs -r $awk -f mk/lint-clock.awk tests/lint/clock.list >>"$found"
fi

# ---- words and licence lines ----
everything=$(find . \( -name .git -o -name build -o -name corpus -o -name golden -o -name outputs \) -prune -o -type f \
    \( -name '*.[ch]' -o -name '*.cu' -o -name '*.def' -o -name '*.cpp' -o -name '*.sh' -o -name '*.mk' -o -name '*.py' -o -name '*.map' \
    -o -name Makefile -o -name '*.awk' -o -name '*.bash' \) -print | sed 's|^\./||' | sort)
# the words are spelt apart so that this file may hold them
marks='TO''DO|FIX''ME|XX''X|HA''CK'
echo "$everything" | xargs -r grep -nwE "$marks" /dev/null | sed 's/^\([^:]*:[0-9]*\):[ ]*/\1: a mark; do it now or file it elsewhere: /' >>"$found"
for f in $everything; do
    head -n 3 "$f" | grep -q 'SPDX-License-Identifier: Apache-2.0' || echo "$f:1: no SPDX line" >>"$found"
done

# ---- generated pages ----
if [ -x mk/reference.sh ]; then
    sh mk/reference.sh | cmp -s - docs/reference.md || echo "docs/reference.md: out of date; run make docs" >>"$found"
fi
if [ -x mk/man.sh ]; then
    sh mk/man.sh | cmp -s - docs/ttrun.1 || echo "docs/ttrun.1: out of date; run make docs" >>"$found"
fi
if [ -x mk/ops.sh ]; then
    sh mk/ops.sh page | cmp -s - docs/ops.md || echo "docs/ops.md: out of date; run make docs" >>"$found"
    sh mk/ops.sh header | cmp -s - include/ttrun/ops.h || echo "include/ttrun/ops.h: its table is out of date; run make docs" >>"$found"
fi

# ---- references in comments and pages ----
# A rule number in parentheses, "(R5, P3)", is one that docs/design/rules.md has. A tree without that page has no rules.
if [ -f docs/design/rules.md ]; then
    rules=" $(sed -n 's/^\(- \)\{0,1\}\*\*\([RPC][0-9]*\) .*/\2/p' docs/design/rules.md | tr '\n' ' ')"
    find $roots include plugins docs tests -type f \( -name '*.[ch]' -o -name '*.def' -o -name '*.md' \) 2>/dev/null | sort |
        xargs -r grep -noE '\((rules? )?[RPC][0-9]{1,2}(( to|,| and) ?[RPC][0-9]{1,2})*[^A-Za-z0-9]' /dev/null |
        while IFS=: read -r file line cited; do
            for r in $(echo "$cited" | grep -oE '[RPC][0-9]+'); do
                case $rules in *" $r "*) ;; *) echo "$file:$line: docs/design/rules.md has no rule $r" ;; esac
            done
        done >>"$found"
fi
# A relative path that goes up must name a file of this tree, and so must a page's link.
{
    find $roots include plugins docs mk examples bench configs tests/golden -type f \( -name '*.[ch]' -o -name '*.def' \
        -o -name '*.md' -o -name '*.py' -o -name '*.json' -o -name '*.mk' -o -name '*.awk' \) 2>/dev/null
    find . -maxdepth 1 -type f | sed 's|^\./||'
} | sort | xargs -r grep -nHoE '(^|[^A-Za-z0-9_./$*}])(\.\./)+[A-Za-z][A-Za-z0-9_./-]*' 2>/dev/null |
    while IFS=: read -r file line path; do
        path=$(echo "$path" | sed 's|^[^.]*||; s|[.,]*$||')
        case $path in ../outputs/*) continue ;; esac # where runs of configs/ write
        [ -e "$(dirname "$file")/$path" ] || echo "$file:$line: $path leads to no file of this tree"
    done >>"$found"
# A file of the roots or of tests/ that a page or a comment names must exist.
find docs $roots mk tests bench include plugins README.md CONTRIBUTING.md -type f \( -name '*.md' -o -name '*.[ch1]' -o -name '*.sh' \) 2>/dev/null |
    grep -v '^tests/lint/' | sort | xargs -r grep -nHoE '(^|[^A-Za-z0-9_./-])(core|launch|interchange|lib|tools|tests)/[a-z0-9_/]+\.(c|h|sh)([^A-Za-z0-9_/]|$)' 2>/dev/null |
    while IFS=: read -r file line path; do
        path=$(echo "$path" | sed 's|^[^A-Za-z]||; s|[^A-Za-z0-9]$||')
        [ -e "$path" ] || echo "$file:$line: there is no $path"
    done >>"$found"
find . -maxdepth 1 -name '*.md' | sed 's|^\./||' | xargs -r grep -nHoE '\]\([^)# ]+' >"$found.links" 2>/dev/null
find docs examples bench tests/golden $roots -name '*.md' 2>/dev/null | xargs -r grep -nHoE '\]\([^)# ]+' >>"$found.links" 2>/dev/null
while IFS=: read -r file line link; do
    link=${link#??}
    case $link in http*) continue ;; esac
    [ -e "$(dirname "$file")/$link" ] || echo "$file:$line: the link to $link leads nowhere"
done <"$found.links" >>"$found"
rm -f "$found.links"

# ---- format ----
if command -v clang-format >/dev/null 2>&1; then
    find $roots include plugins tests examples bench mk \( -name '*.[ch]' -o -name '*.cu' \) 2>/dev/null | sort |
        xargs -r -n 40 clang-format --dry-run 2>&1 |
        sed -n 's/^\([^:]*\):\([0-9]*\):.*clang-format-violations.*/\1:\2: not as clang-format has it; make fmt/p
            s/^xargs: clang-format: /clang-format:0: at one of the files, so what comes after is not looked at: /p' |
        sort -t: -k1,1 -u >>"$found"
fi

if [ -s "$found" ]; then
    cat "$found"
    echo "lint: $(wc -l <"$found") findings" >&2
    exit 1
fi
echo "lint: ok"
