#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Puts what all.sh and check.sh need on a machine without a compiler or packages of ours into one folder:
#   bench/gpu/bundle.sh DIR
# The program, its plugins, the tests of kernels, the libraries that a minimal system lacks, these scripts, and a text to train on.
set -eu
cd "$(dirname "$0")/../.."
[ $# -eq 1 ] || { echo "usage: bench/gpu/bundle.sh DIR" >&2; exit 2; }
to=$1
b=build/release
for f in $b/ttrun $b/plugins/backends/cuda.so $b/tests/cuda/test_cuda_ops; do
    [ -e "$f" ] || { echo "bundle: $f is missing; run: make all tests" >&2; exit 1; }
done
rm -rf "$to"
mkdir -p "$to/lib" "$to/tests" "$to/bench"
cp "$b/ttrun" "$b/libttrun.so.0" "$to/"
for f in $b/plugins/*/*.so $b/plugins/*/*.json; do
    kind=$(basename "$(dirname "$f")")
    mkdir -p "$to/plugins/$kind"
    cp "$f" "$to/plugins/$kind/"
done
for f in $b/tests/cuda/test_cuda_*; do
    case $f in *.o | *.d) ;; *) cp "$f" "$to/tests/" ;; esac
done
# What the system has everywhere stays out; libcuda and the other libraries of NVIDIA are the machine's.
for f in $b/ttrun $b/libttrun.so.0 $b/plugins/*/*.so $b/tests/cuda/test_cuda_ops; do
    ldd "$f" 2>/dev/null
done | awk '$3 ~ /^\// && $1 !~ /^((libc|libm|libdl|libpthread|librt|libgcc_s|libstdc\+\+)\.so|libmpi|libopen-|libttrun)/ {print $3}' | sort -u |
    while read -r f; do cp -L "$f" "$to/lib/"; done
cp bench/gpu/*.sh bench/gpu/*.py bench/train/peer.py bench/ratios.awk "$to/bench/"
cat include/ttrun/*.h core/*/*.h docs/*.md >"$to/text.txt"
strip --strip-debug "$to"/ttrun "$to"/libttrun.so.0 "$to"/plugins/*/*.so "$to"/tests/* 2>/dev/null || true
du -sk "$to" | awk '{printf "bundle: %s, %.1f MiB\n", $2, $1 / 1024}'
