#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The core calls no other root, no root one above it, and no two folders call each other, but for what mk/arrows.list has: mk/arrows.sh looks at the
# objects that are built, which `make lint` need not have. Then it looks at a tree of four files.
. "$(dirname "$0")/../script.sh"
sh "$SRC/mk/arrows.sh" "$BUILD" >"$dir/out" 2>&1
ok no_call_goes_up
tree=$dir/tree
mkdir -p "$tree/mk" "$tree/core/base" "$tree/core/mesh" "$tree/lib/chat" "$tree/launch" "$tree/interchange" "$tree/tools/cli" &&
    cp "$SRC/mk/arrows.sh" "$tree/mk/" && : >"$tree/mk/arrows.list" || exit 1
put() { # FILE DEFINES [CALLS]
    printf 'int %s(void);\n%sint %s(void) { return %s; }\n' "$2" "${3:+int $3(void);
}" "$2" "${3:+$3() + }1" >"$tree/$1"
    mkdir -p "$tree/build/${1%/*}" && ${CC:-gcc} -c "$tree/$1" -o "$tree/build/${1%.c}.o"
}
arrows() { sh "$tree/mk/arrows.sh" build >"$dir/out" 2>&1; }
put core/base/a.c a && put core/mesh/b.c b a && put lib/chat/c.c c b && put launch/d.c d c && put tools/cli/e.c e d && arrows && [ ! -s "$dir/out" ]
ok calls_may_go_down
put core/mesh/b.c b e
! arrows && [ "$(cat "$dir/out")" = "core/mesh/b.c: calls e of tools/cli/e.c, a root above its own" ]
ok a_call_up_is_found
echo 'core/mesh/b.c tools/cli/e.c' >"$tree/mk/arrows.list"
arrows && [ ! -s "$dir/out" ]
ok the_list_allows_a_call
put core/mesh/b.c b a
! arrows && [ "$(cat "$dir/out")" = "mk/arrows.list:1: core/mesh/b.c no longer needs tools/cli/e.c" ]
ok an_entry_that_is_not_needed_is_found
: >"$tree/mk/arrows.list"
put core/base/a.c a b && put core/mesh/f.c f a
! arrows && [ "$(cat "$dir/out")" = "core/base/a.c: calls b of core/mesh/b.c, and core/mesh calls core/base" ]
ok two_folders_that_call_each_other_are_found
# An include of the list is needed as long as it is there.
put core/base/a.c a
echo 'launch/d.c tools/cli/cli.h' >"$tree/mk/arrows.list"
echo '#include "cli/cli.h"' >>"$tree/launch/d.c"
arrows && [ ! -s "$dir/out" ]
ok the_list_allows_an_include
exit $failed
