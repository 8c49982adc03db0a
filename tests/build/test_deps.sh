#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# mk/deps.sh on a machine that has nothing: which packages it asks for. There is no apt-get on its PATH, so that it only prints.
. "$(dirname "$0")/../script.sh"
cd "$SRC" || exit 1
mkdir "$dir/bin" "$dir/root" && ln -s "$(command -v sh)" "$(command -v sed)" "$dir/bin" || exit 1
missing() { # DEPS: what it asks for, one package a line; its exit status
    env -u CC -u CXX -u NVCC -u CUDA_HOME PATH="$dir/bin" DEPS_ROOT="$dir/root" sh mk/deps.sh "$1" >"$dir/out" 2>"$dir/err"
    rc=$?
    sed -n "s/^deps: missing (by Debian's names)://p" "$dir/err" | sed 's/;.*//' | tr ' ' '\n' | sed '/^$/d' | sort >"$dir/$1"
    return $rc
}
asks() { # DEPS PACKAGE…: each of them is asked for
    missing "$1" && return 1
    what=$1
    shift
    for package in "$@"; do grep -qx -- "$package" "$dir/$what" || return 1; done
}
asks_not() { # DEPS PACKAGE…: none of them is asked for
    missing "$1" && return 1
    what=$1
    shift
    [ -s "$dir/$what" ] || return 1
    for package in "$@"; do ! grep -qx -- "$package" "$dir/$what" || return 1; done
}
site="libcmark-gfm-dev libcmark-gfm-extensions-dev"
check min_needs_a_compiler_and_libraries asks min gcc make pkg-config libc6-dev libjansson-dev libpcre2-dev libevent-dev
check min_needs_no_mpi asks_not min libopenmpi-dev openmpi-bin libcmocka-dev $site
check build_needs_mpi asks build gcc libjansson-dev libopenmpi-dev openmpi-bin
check build_needs_nothing_of_the_tests asks_not build libcmocka-dev $site
check the_tests_need asks test gcc libjansson-dev libopenmpi-dev libcmocka-dev
check the_site_needs_no_more asks_not site libjansson-dev libopenmpi-dev libcmocka-dev
check the_site_needs asks site gcc $site
# with all headers and libraries there, only commands are missing
mkdir -p "$dir/root/usr/include/event2" "$dir/root/usr/lib/x86_64-linux-gnu/openblas-pthread"
for f in stdio jansson ltdl xxhash zstd zlib pcre2 utf8proc event2/event mpi cmocka cmark-gfm cmark-gfm-core-extensions; do : >"$dir/root/usr/include/$f.h"; done
: >"$dir/root/usr/lib/x86_64-linux-gnu/openblas-pthread/libopenblas.so.0"
: >"$dir/root/usr/lib/x86_64-linux-gnu/libsqlite3.so.0"
: >"$dir/root/usr/lib/x86_64-linux-gnu/libedit.so.2"
: >"$dir/root/usr/lib/x86_64-linux-gnu/libevent_openssl-2.1.so.7"
missing test
check what_is_there_is_not_asked_for [ "$(tr '\n' ' ' <"$dir/test")" = "g++ gcc make openmpi-bin pkg-config procps zstd " ]
for tool in pkg-config gcc g++ make mpirun pgrep zstd; do ln -s "$(command -v sed)" "$dir/bin/$tool"; done
missing test
check nothing_is_missing [ "$rc" = 0 -a ! -s "$dir/err" ]
# tests/docs/test_site.sh makes the site, and skips nearly all that it checks where it cannot
rm "$dir/root/usr/include/cmark-gfm-core-extensions.h"
missing test
check what_makes_the_site_is_wanted [ "$rc" = 0 -a "$(cat "$dir/err")" = "deps: without libcmark-gfm-extensions-dev some tests are skipped" ]
rm "$dir/root/usr/lib/x86_64-linux-gnu"/libe*
missing build
check what_edits_lines_and_encrypts_is_wanted [ "$rc" = 0 -a "$(cat "$dir/err")" = "deps: without libedit2 ttrun chat has no line editing
deps: without libevent-openssl-2.1-7 ttrun serve has no TLS" ]
check and_the_site_needs_it asks site libcmark-gfm-extensions-dev
exit $failed
