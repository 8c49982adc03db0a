#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The table of ops (mk/ops-list.awk) has every op that the files of core/graph/ops define, however they are formatted.
. "$(dirname "$0")/../script.sh"
cd "$dir" || exit 1
list() { LC_ALL=C awk -f "$SRC/mk/ops-list.awk" "$@"; }
library_has_every_op_that_it_compiles() {
    for source in "$SRC"/core/graph/ops/*.c; do # not *.o: of a source that is gone
        echo "$BUILD/core/graph/ops/$(basename "$source" .c).o"
    done | xargs nm -g --defined-only | awk '$3 ~ /^tt_op_/ && $2 != "T" {print "TT_CORE_OP(" substr($3, 7) ")"}' | LC_ALL=C sort >compiled
    list "$SRC"/core/graph/ops/*.c | LC_ALL=C sort >listed
    [ "$(wc -l <compiled)" -gt 90 ] && { cmp -s compiled listed || { diff compiled listed; return 1; }; }
}
cat >one.c <<'C'
#define MOVE_2(id, doc)                          \
    const tt_op_def                              \
        tt_op_##id = {.name = #id, .doc = doc}
#define OTHER(id) int id
MOVE_2(zig, "doc");
MOVE_2(
    zag_2, "a doc that is too long for the line of the name");
OTHER(no_op);
const tt_op_def tt_op_plain = {0};
const tt_op_def
    tt_op_next = {0};
const tt_op_def *const *table;
C
line_breaks_lose_no_op() {
    [ "$(list one.c | tr '\n' ' ')" = "TT_CORE_OP(next) TT_CORE_OP(plain) TT_CORE_OP(zag_2) TT_CORE_OP(zig) " ]
}
unreadable_definitions_end_the_build() {
    printf '#define MOVE(id) const tt_op_def tt_op_##id\nMOVE(/* first */ zig);\n' >bad1.c
    printf 'const tt_op_def op_without_prefix = {0};\n' >bad2.c
    printf 'const tt_op_def\n\ntt_op_far = {0};\n' >bad3.c
    for i in 1 2 3; do
        if list "bad$i.c" >out 2>err || ! grep -q "^bad$i.c:[0-9]*: ops-list.awk finds no name of an op" err; then cat out err; return 1; fi
    done
}
check library_has_every_op_that_it_compiles library_has_every_op_that_it_compiles
check line_breaks_lose_no_op line_breaks_lose_no_op
check unreadable_definitions_end_the_build unreadable_definitions_end_the_build
exit $failed
