#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The kernels of plugins/backends/cuda.
#   cuda.sh find                 prints the nvcc that compiles them, or nothing: $NVCC, $CUDA_HOME/bin, PATH, /usr/local/cuda;
#                                12.8 or newer
#   cuda.sh compile FILE.cu OUT  by $NVCC into a fatbin for the chips that it knows among 8.0, 9.0, 10.0, 12.0, and PTX of 8.0
#   cuda.sh embed FOLDER FATBINS prints a C file with the texts of FOLDER/*.cu and *.h, and FATBINS/*.fatbin where there are any
set -eu

version() { "$1" --version 2>/dev/null | sed -n 's/.*release \([0-9]*\)\.\([0-9]*\).*/\1\2/p'; }

find_nvcc() {
    for nvcc in "${NVCC:-}" "${CUDA_HOME:+$CUDA_HOME/bin/nvcc}" "$(command -v nvcc || :)" /usr/local/cuda/bin/nvcc; do
        [ -n "$nvcc" ] && [ -x "$(command -v "$nvcc" || :)" ] || continue
        v=$(version "$nvcc")
        [ "${v:-0}" -ge 128 ] && echo "$nvcc" && return
    done
    return 0
}

compile() {
    known=$("$NVCC" --list-gpu-arch)
    targets="-gencode=arch=compute_80,code=compute_80"
    for sm in 80 90 100 120; do
        case "$known" in *"compute_$sm
"* | *"compute_$sm") targets="$targets -gencode=arch=compute_$sm,code=sm_$sm" ;; esac
    done
    # shellcheck disable=SC2086
    "$NVCC" -std=c++17 -O3 --fmad=false --Werror all-warnings -Xptxas -warn-spills $targets -fatbin "$1" -o "$2.new"
    mv "$2.new" "$2"
}

# symbol FILE: a C name that no two files share
symbol() { basename "$1" | tr -c 'A-Za-z0-9\n' _; }

embed() {
    echo '/* SPDX-License-Identifier: Apache-2.0 */'
    echo '/* Written by mk/cuda.sh. */'
    echo '#include "module.h"'
    echo '__asm__(".section .rodata");'
    for f in "$1"/*.cu "$1"/*.h; do
        [ -e "$f" ] || continue
        s=$(symbol "$f")
        printf '__asm__(".balign 64\\ncuda_text_%s: .incbin \\"%s\\"\\n.byte 0\\n");\n' "$s" "$f"
        printf 'extern const char cuda_text_%s[] __attribute__((visibility("hidden")));\n' "$s"
        bin=$2/$(basename "$f" .cu).fatbin
        [ "${f##*.}" = cu ] || continue
        printf '__asm__(".balign 64\\ncuda_code_%s: ' "$s"
        if [ -e "$bin" ]; then printf '.incbin \\"%s\\"' "$bin"; fi
        printf '\\ncuda_code_%s_end: .byte 0\\n");\n' "$s"
        printf 'extern const char cuda_code_%s[] __attribute__((visibility("hidden")));\n' "$s"
        printf 'extern const char cuda_code_%s_end[] __attribute__((visibility("hidden")));\n' "$s"
    done
    echo '__asm__(".previous");'
    echo 'const cuda_embedded cuda_embedded_kernels[] = {'
    for f in "$1"/*.cu; do
        [ -e "$f" ] || continue
        s=$(symbol "$f")
        echo "    {\"$(basename "$f" .cu)\", cuda_text_$s, cuda_code_$s, cuda_code_${s}_end},"
    done
    echo '    {0}};'
    echo 'const cuda_embedded cuda_embedded_headers[] = {'
    for f in "$1"/*.h; do
        s=$(symbol "$f")
        echo "    {\"$(basename "$f")\", cuda_text_$s, 0, 0},"
    done
    echo '    {0}};'
}

case $1 in
find) find_nvcc ;;
compile) compile "$2" "$3" ;;
embed) embed "$2" "$3" ;;
esac
