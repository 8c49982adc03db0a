#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A third party's view: `make install DESTDIR=…`, then the examples and every scaffold are built against what was
# installed, as C11 and C++20 without a warning, and checked by the installed ttrun.
set -u
: "${SRC:=$(pwd)}"
dir=$(mktemp -d "${TMPDIR:-/tmp}/install.XXXXXX") || exit 1
trap 'rm -rf "$dir"' EXIT
failed=0
strict="-O2 -Werror -Wall -Wextra -Wpedantic"

verdict() { # NAME STATUS
    if [ "$2" -eq 0 ]; then echo "ok $1"; else
        echo "not ok $1"
        sed 's/^/    /' "$dir/log"
        failed=1
    fi
}

# With the outer make's variables (MODE, CC, PREFIX, …): others would rebuild the tree under the running tests.
make -s -C "$SRC" install DESTDIR="$dir/root" >"$dir/log" 2>&1
verdict install $?
[ $failed -eq 0 ] || exit 1
unset MAKEFLAGS MFLAGS MAKELEVEL CFLAGS

prefix=$(dirname "$(dirname "$(dirname "$(find "$dir/root" -name ttrun.pc)")")")
TTRUN=$prefix/bin/ttrun
PKG_CONFIG_PATH=$prefix/lib/pkgconfig
PKG_CONFIG_SYSROOT_DIR=$dir/root
PKG_CONFIG_ALLOW_SYSTEM_CFLAGS=1 # they are below the sysroot here
PKG_CONFIG_ALLOW_SYSTEM_LIBS=1
export TTRUN PKG_CONFIG_PATH PKG_CONFIG_SYSROOT_DIR PKG_CONFIG_ALLOW_SYSTEM_CFLAGS PKG_CONFIG_ALLOW_SYSTEM_LIBS

"$TTRUN" plugins list >"$dir/log" 2>&1 && grep -q '^model  *llama3 ' "$dir/log"
verdict installed_plugins_are_found $?

build() { # FOLDER CC STD: with the folder's own Makefile
    (cd "$1" && make -s clean && make -s CC="$2" STD="$3" CFLAGS="$strict") >"$dir/log" 2>&1
}
built_all_ways() { # FOLDER: every compiler there is, both languages
    build "$1" gcc -std=c11 || return 1
    build "$1" g++ "-x c++ -std=c++20" || return 1
    command -v clang >/dev/null || return 0
    build "$1" clang -std=c11 || return 1
    build "$1" clang++ "-x c++ -std=c++20" || return 1
    build "$1" gcc -std=c17
}

mkdir "$dir/examples"
for example in "$SRC"/examples/*/; do
    name=$(basename "$example")
    mkdir "$dir/examples/$name"
    cp "$example"/*.c "$example/Makefile" "$dir/examples/$name"
    built_all_ways "$dir/examples/$name"
    verdict "example_$name" $?
    make -s -C "$dir/examples/$name" check >"$dir/log" 2>&1
    verdict "check_$name" $?
done
[ "$(wc -l <"$SRC/examples/mini/mini.c")" -le 60 ]
verdict mini_is_60_lines $?

cd "$dir" || exit 1
for kind in model optimizer loss lr_scheduler tokenizer dataloader metrics hook op converter; do
    "$TTRUN" plugins new $kind foo_$kind >"$dir/log" 2>&1 && built_all_ways "$dir/foo_$kind"
    verdict "new_$kind" $?
    make -s -C "$dir/foo_$kind" check >"$dir/log" 2>&1
    verdict "check_new_$kind" $?
done

# without pkg-config
unset PKG_CONFIG_PATH PKG_CONFIG_SYSROOT_DIR
make -s -C "$dir/foo_model" TTRUN_PREFIX="$prefix" clean foo_model.so >"$dir/log" 2>&1
verdict prefix_instead_of_pkg_config $?
exit $failed
