#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# arrows.sh BUILD_DIR: who calls whom, by the symbols of the objects that are built there. The core calls no other root, and no root calls one
# that is above it; no two folders call each other. Prints what does so all the same and is not in mk/arrows.list, a line "FILE: text" each, and
# what that list need not have any more; fails if there is anything. Includes are mk/lint.awk's, which reads the same list.
set -u
cd "$(dirname "$0")/.." || exit 1
find core launch interchange lib tools -name '*.c' ! -name main.c | sort | sed "s|^\(.*\)c\$|$1/\1o|" | xargs nm -A -g -P |
    LC_ALL=C awk -v build="$1/" '
    function root(file) { sub(/\/.*/, "", file); return file }
    function folder(file,    part) { split(file, part, "/"); return part[1] ~ /^(launch|interchange)$/ ? part[1] : part[1] "/" part[2] }
    function includes(file, header,    line, yes) {
        sub(/^(core|lib|tools)\//, "", header)
        while ((getline line < file) > 0) if (line ~ /^#[ ]*include/ && index(line, "\"" header "\"")) yes = 1
        close(file)
        return yes
    }
    BEGIN {
        may["lib"] = " core "
        may["interchange"] = may["launch"] = " core lib "
        may["tools"] = " core lib interchange launch "
    }
    FILENAME != "-" { if (NF > 1 && !/^#/) listed[$1, $2] = FNR; next }
    {
        file = substr($1, length(build) + 1)
        sub(/o:$/, "c", file)
        if ($3 ~ /[Uw]/) used[file, $2] = 1; else home[$2] = file
    }
    END {
        for (u in used) {
            split(u, part, SUBSEP)
            to = home[part[2]]
            if (to != "" && to != part[1]) calls[part[1], to] = part[2]
        }
        for (c in calls) {
            split(c, part, SUBSEP)
            if (c in listed) continue
            what = part[1] ": calls " calls[c] " of " part[2]
            if (root(part[1]) != root(part[2]) && !index(may[root(part[1])], " " root(part[2]) " ")) print what ", a root above its own"
            else if (folder(part[1]) != folder(part[2])) {
                between[folder(part[1]), folder(part[2])] = between[folder(part[1]), folder(part[2])] what "\n"
                n[folder(part[1]), folder(part[2])]++
            }
        }
        for (b in between) { # of two that call each other, the calls of which there are fewer
            split(b, part, SUBSEP)
            back = part[2] SUBSEP part[1]
            if (back in between && n[b] <= n[back]) {
                gsub(/\n/, ", and " part[2] " calls " part[1] "\n", between[b])
                printf "%s", between[b]
            }
        }
        for (l in listed) {
            split(l, part, SUBSEP)
            if (!(l in calls) && !includes(part[1], part[2])) print "mk/arrows.list:" listed[l] ": " part[1] " no longer needs " part[2]
        }
    }' mk/arrows.list - | sort | awk '{ print } END { exit NR > 0 }'
