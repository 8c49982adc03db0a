#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The kernels of plugins/backends/cuda.
#   cuda.sh find                 prints the nvcc that compiles them, or nothing: $NVCC, $CUDA_HOME/bin, PATH, /usr/local/cuda;
#                                12.8 or newer
#   cuda.sh compile FILE.cu OUT  by $NVCC into a fatbin for the chips that it knows among 8.0, 9.0, 10.0, 12.0, and PTX of 8.0;
#                                OUT.log gets its warnings, of which tests/cuda/test_kernels.sh allows none
#   cuda.sh depends FILE.cu      prints the headers that it includes
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

# closure FILE: the file and all that it includes by "..."
closure() {
    folder=$(dirname "$1")
    todo=$(basename "$1")
    seen=
    while [ -n "$todo" ]; do
        f=${todo%% *}
        todo=${todo#"$f"}
        todo=${todo# }
        case " $seen " in *" $f "*) continue ;; esac
        [ -e "$folder/$f" ] || continue
        seen="$seen $f"
        echo "$folder/$f"
        for h in $(sed -n 's/^ *# *include *"\(.*\)".*/\1/p' "$folder/$f"); do todo="$todo${todo:+ }$h"; done
    done
}

compile() {
    known=$("$NVCC" --list-gpu-arch)
    flags="-std=c++17 -O3 --fmad=false --compress-mode=size -Xptxas -warn-spills -gencode=arch=compute_80,code=compute_80"
    for sm in 80 90 100 120; do
        echo "$known" | grep -qx "compute_$sm" && flags="$flags -gencode=arch=compute_$sm,code=sm_$sm"
    done
    kept=
    if [ -n "${CCACHE_DIR:-}" ]; then # as ccache keeps objects: for other trees
        mkdir -p "$CCACHE_DIR/ttrun-fatbin"
        kept=$CCACHE_DIR/ttrun-fatbin/$({ closure "$1" | xargs cat; "$NVCC" --version; echo "$flags"; } | sha256sum | cut -d' ' -f1)
        if [ -e "$kept" ] && cp "$kept" "$2.$$" && cp "$kept.log" "$2.log"; then
            mv "$2.$$" "$2"
            cat "$2.log" >&2
            return
        fi
    fi
    # shellcheck disable=SC2086
    "$NVCC" $flags -fatbin "$1" -o "$2.$$" 2>"$2.log" || { cat "$2.log" >&2; exit 1; }
    cat "$2.log" >&2
    if [ -n "$kept" ]; then
        cp "$2.log" "$kept.log"
        cp "$2.$$" "$kept.$$" && mv "$kept.$$" "$kept"
    fi
    mv "$2.$$" "$2"
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
depends) closure "$2" | tail -n +2 ;;
embed) embed "$2" "$3" ;;
esac
