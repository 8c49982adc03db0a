#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What nvcc said of the kernels: no warning, no register that is spilled. `make CUDA=fatbin` compiled them.
. "$(dirname "$0")/../script.sh"
cd "$SRC" || exit 1
n=0
for f in build/cuda/*.fatbin; do
    [ -e "$f" ] && [ -e "plugins/backends/cuda/kernels/$(basename "$f" .fatbin).cu" ] || continue
    n=$((n + 1))
    name=$(basename "$f" .fatbin)
    if [ -e "$f.log" ] && ! [ -s "$f.log" ]; then
        echo "ok kernels_of_${name}_compile_without_a_warning"
    else
        sed 's/^/# /' "$f.log"
        echo "not ok kernels_of_${name}_compile_without_a_warning"; failed=1
    fi
done
[ $n -gt 0 ] || echo "ok kernels_are_compiled_with_CUDA=fatbin_alone"
# The plugin is made by a C compiler alone, links nothing of NVIDIA and has no constructor of its own.
so=$PLUGINS/backends/cuda.so
if ldd "$so" | grep -iE 'cuda|nv|cublas|cudnn|stdc\+\+'; then echo "not ok the_plugin_links_nothing_of_NVIDIA" && failed=1; else echo "ok the_plugin_links_nothing_of_NVIDIA"; fi
for f in plugins/backends/cuda/kernels/*.cu; do
    [ -e "$f" ] || continue
    if [ "$(strings -n 8 "$so" | grep -cxF -- "$(grep -m 1 TT_KERNEL "$f")")" -gt 0 ]; then
        echo "ok the_text_of_$(basename "$f" .cu)_is_embedded"
    else
        echo "not ok the_text_of_$(basename "$f" .cu)_is_embedded"; failed=1
    fi
done
exit $failed
