#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# deps.sh [min|build|test|site]: installs what is missing with apt (root or sudo -n), or prints the command to run and fails.
#   min    a compiler and the libraries of ttrun; it is then built without MPI
#   build  these, MPI, OpenBLAS and SQLite (the default); libedit and OpenSSL for libevent where they can be had
#   test   these and what the tests need; that of `make site` only where it can be had, as its test is skipped without it
#   site   a compiler and what `make site` needs
# Prints one line about CUDA and, if all is present, nothing else. DEPS_ROOT: the folder that has usr/ (for the test).
what=${1:-build}
case $what in min | build | test | site) ;; *)
    echo "deps: DEPS=$what is not known; use min, build, test or site" >&2
    exit 2 ;;
esac
missing=
need() { # PACKAGE FILE...: missing unless one of the files is there
    package=$1
    shift
    for f in "$@"; do [ -e "$f" ] && return; done
    missing="$missing $package"
}
wanted= # packages without which all works but something
without=
want() { # WHY PACKAGE FILE...: the same, of these packages; WHY: what is then so
    before=$missing why=$1
    shift
    need "$@"
    [ "$missing" = "$before" ] || {
        wanted="$wanted $1"
        without="${without}deps: without $1 $why
"
    }
    missing=$before
}
tool() { # PACKAGE COMMAND
    command -v "$2" >/dev/null 2>&1 || missing="$missing $1"
}
R=${DEPS_ROOT:-}
I=$R/usr/include
L=$R/usr/local/include
compiler=${CC:-gcc}
tool gcc "${compiler##* }" # "ccache gcc" is gcc
tool make make
tool pkg-config pkg-config
need libc6-dev $I/stdio.h # gcc only recommends it
site() { # HOW
    $1 libcmark-gfm-dev $I/cmark-gfm.h $L/cmark-gfm.h
    $1 libcmark-gfm-extensions-dev $I/cmark-gfm-core-extensions.h $L/cmark-gfm-core-extensions.h
}
[ "$what" != site ] || site need
skipped() { want "some tests are skipped" "$@"; }
if [ "$what" != site ]; then
    need libjansson-dev $I/jansson.h $L/jansson.h
    need libltdl-dev $I/ltdl.h $L/ltdl.h
    need libxxhash-dev $I/xxhash.h $L/xxhash.h
    need libzstd-dev $I/zstd.h $L/zstd.h
    need zlib1g-dev $I/zlib.h $L/zlib.h
    need libpcre2-dev $I/pcre2.h $L/pcre2.h
    need libutf8proc-dev $I/utf8proc.h $L/utf8proc.h
    need libevent-dev $I/event2/event.h $L/event2/event.h
fi
if [ "$what" != min ] && [ "$what" != site ]; then
    need libopenblas0-pthread "$R"/usr/lib/*-linux-gnu/openblas-pthread/libopenblas.so.0 "$R"/usr/lib*/libopenblas.so.0
    need libopenmpi-dev $I/mpi.h $L/mpi.h "$R"/usr/lib/*/openmpi/include/mpi.h "$R"/usr/lib/*/pkgconfig/ompi-c.pc
    tool openmpi-bin mpirun
    need libsqlite3-0 "$R"/usr/lib/*-linux-gnu/libsqlite3.so.0 "$R"/usr/lib*/libsqlite3.so.0 # the metrics plugin trackio
    want "ttrun chat has no line editing" libedit2 "$R"/usr/lib/*-linux-gnu/libedit.so.2 "$R"/usr/lib*/libedit.so.2
    want "ttrun serve has no TLS" libevent-openssl-2.1-7 "$R"/usr/lib/*-linux-gnu/libevent_openssl-2.1.so.7 "$R"/usr/lib*/libevent_openssl-2.1.so.7
fi
if [ "$what" = test ]; then
    tool g++ "${CXX:-g++}"
    need libcmocka-dev $I/cmocka.h $L/cmocka.h
    tool procps pgrep # tests search for processes that were left running
    tool zstd zstd    # tests compress text
    site skipped
fi

# CUDA is not installed by apt. Nothing is missing without it; a line says who compiles the kernels.
if [ "$what" != site ]; then
    nvcc=$(sh mk/cuda.sh find)
    if [ -n "$nvcc" ]; then
        echo "cuda: NVRTC compiles the kernels of the backend cuda at first use; with CUDA=fatbin, $nvcc ($("$nvcc" --version | sed -n 's/.*release \([0-9.]*\).*/\1/p')) does so now, in minutes"
    else
        echo "cuda: NVRTC compiles the kernels of the backend cuda at first use (there is no nvcc of CUDA 12.8 or newer)"
    fi
fi
[ -z "$missing$wanted" ] && exit 0

export DEBIAN_FRONTEND=noninteractive
may_install() {
    command -v apt-get >/dev/null 2>&1 || return
    as=
    [ "$(id -u)" = 0 ] && return
    as="sudo -n"
    sudo -n true 2>/dev/null
}
line="apt-get install -y --no-install-recommends"
if [ -n "$missing" ]; then
    if ! command -v apt-get >/dev/null 2>&1; then
        echo "deps: missing (by Debian's names):$missing; install them with your package manager" >&2
        exit 1
    fi
    if ! may_install; then
        echo "deps: missing:$missing; run: sudo $line$missing" >&2
        exit 1
    fi
    echo "deps: installing$missing (apt may take a minute)" >&2
    # Package lists may be absent or old: refresh them only if the first try fails.
    $as $line$missing >/dev/null 2>&1 || { $as apt-get update >/dev/null 2>&1; $as $line$missing >/dev/null; } || {
        echo "deps: apt could not install them; run: $line$missing" >&2
        exit 1
    }
fi
[ -z "$wanted" ] || { may_install && $as $line$wanted >/dev/null 2>&1; } || printf %s "$without" >&2
