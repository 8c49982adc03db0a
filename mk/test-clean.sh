#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# test-clean.sh [debian] [ubuntu]: the README's commands on systems that have nothing but make: Debian 12 and Ubuntu 24.04 as
# debootstrap makes them, each in a folder that is removed afterwards (KEEP=1: kept). Needs root, debootstrap and the network; a
# system that cannot be made is skipped by a line that says why. About 10 minutes per system on two cores.
#   CLEAN_TESTS="base config build" which tests run there; "all": make test
set -u
cd "$(dirname "$0")/.." || exit 1
tests=${CLEAN_TESTS:-base config build}
work=${TMPDIR:-/tmp}/ttrun-clean
passed=0 failed=0
skip() { echo "skip  $1: $2"; }

[ "$(id -u)" = 0 ] || { skip test-clean "needs root, for debootstrap and chroot"; exit 0; }
command -v debootstrap >/dev/null || { skip test-clean "there is no debootstrap (apt-get install debootstrap)"; exit 0; }
# Mounts are made in a namespace of their own, and end with it.
if [ -z "${TTRUN_CLEAN_INSIDE:-}" ]; then
    unshare -m true 2>/dev/null || { skip test-clean "this machine forbids mounts (unshare -m)"; exit 0; }
    TTRUN_CLEAN_INSIDE=1 exec unshare -m sh "$0" "$@"
fi

check() { # NAME COMMAND: runs it in the system, in the sources
    name=$1
    shift
    if chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 sh -c "cd /src && $*" >"$root.out" 2>&1; then
        echo "ok    $system $name"
        passed=$((passed + 1))
    else
        echo "FAIL  $system $name"
        tail -n 20 "$root.out" | sed 's/^/      /'
        failed=$((failed + 1))
    fi
}

# Debian has no package of Ubuntu's keyring: it comes from Ubuntu's archive, known by its hash (its key of 2018 is
# F6EC B376 2474 EDA9 D21B 7022 8719 20D1 991B C93C). Prints the keyring's path.
ubuntu_keyring() { # MIRROR
    keys=/usr/share/keyrings/ubuntu-archive-keyring.gpg
    if ! [ -e "$keys" ]; then
        rm -rf "$work-keys" && mkdir -p "$work-keys" || return 1
        deb=$work-keys/keyring.deb keys=$work-keys$keys
        wget -q -T 30 -O "$deb" "$1/pool/main/u/ubuntu-keyring/ubuntu-keyring_2023.11.28.1_all.deb" &&
            echo "36de43b15853ccae0028e9a767613770c704833f82586f28eb262f0311adb8a8  $deb" | sha256sum --status -c && dpkg-deb -x "$deb" "$work-keys" || return 1
    fi
    echo "$keys"
}

try() { # SYSTEM SUITE MIRROR KEYRING COMPONENTS
    system=$1 root=$work-$1
    rm -rf --one-file-system "$root"
    mkdir -p "$root" || exit 1
    script=/usr/share/debootstrap/scripts/$2
    [ -e "$script" ] || script=/usr/share/debootstrap/scripts/$([ "$1" = ubuntu ] && echo gutsy || echo sid)
    if ! [ -e "$4" ]; then
        skip "$system" "its keyring is not there and was not found at $3 (apt-get install $1-archive-keyring or ubuntu-keyring)"
        return
    fi
    if ! debootstrap --variant=minbase --include=make --components="$5" --keyring="$4" "$2" "$root" "$3" "$script" >"$root.out" 2>&1; then
        skip "$system" "debootstrap failed: $(grep -v '^I:' "$root.out" | tail -n 1)"
        return
    fi
    for f in /etc/resolv.conf /etc/hosts; do cp -L "$f" "$root$f"; done
    for f in /etc/apt/apt.conf.d/*; do
        ! grep -qi proxy "$f" 2>/dev/null || cp "$f" "$root/etc/apt/apt.conf.d/"
    done
    mount -t proc proc "$root/proc" && mount --rbind /dev "$root/dev" && mount --rbind /sys "$root/sys" || exit 1
    mkdir "$root/src"
    git archive HEAD | tar -x -C "$root/src"

    check "DEPS=min make deps all: without MPI" \
        "DEPS=min make deps all >/tmp/first 2>&1 || { cat /tmp/first; exit 1; }; ! [ -e plugins/comms/mpi.so ] && ! command -v mpirun"
    check "two ranks without MPI" "./ttrun configs/llama3_debug.json --nproc 2 --training.steps 3 --dump_folder /tmp/min"
    check "make demo" "DEMO_SECONDS=10 make demo && [ -e plugins/comms/mpi.so ]"
    check "make says nothing of a missing compiler" "! grep 'No such file\|not found' /tmp/first"
    if [ "$tests" = all ]; then
        check "make test" "make test"
    else
        check "make deps DEPS=test" "make deps DEPS=test"
        for area in $tests; do check "make test-$area" "make test-$area"; done
    fi
    check "make install, then a job from elsewhere" "make install PREFIX=/opt/ttrun && cd / && /opt/ttrun/bin/ttrun /src/configs/llama3_debug.json --training.steps 2 --dump_folder /tmp/installed"
    umount -R "$root/sys" "$root/dev" "$root/proc"
    [ -n "${KEEP:-}" ] || rm -rf --one-file-system "$root" "$root.out"
}

for which in ${*:-debian ubuntu}; do
    case $which in
    debian) try debian bookworm http://deb.debian.org/debian /usr/share/keyrings/debian-archive-keyring.gpg main ;;
    ubuntu)
        mirror=http://archive.ubuntu.com/ubuntu
        try ubuntu noble $mirror "$(ubuntu_keyring $mirror)" main,universe
        rm -rf "$work-keys"
        ;;
    *) echo "test-clean: no system \"$which\"; use debian or ubuntu" >&2; exit 2 ;;
    esac
done
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
