#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Speed of the cpu backend's kernels, after `make`. THREADS, ISA and BLAS may be set.
set -e
cd "$(dirname "$0")/../.."
build=build/release
mkdir -p $build/bench
${CC:-gcc} -std=c11 -O2 -Iinclude -Icore -pthread -rdynamic bench/kernels/kernels.c $build/libttrun_core.a \
    -ljansson -lltdl -lzstd -lz -lpcre2-8 -lutf8proc -lm -ldl -o $build/bench/kernels
for what in gemm attention rows; do
    $build/bench/kernels $build/plugins/backends/cpu.so "${THREADS:-2}" "${ISA:-auto}" "${BLAS:-own}" $what
done
