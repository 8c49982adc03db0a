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
    cp "$f.log" "$dir/log" && ! [ -s "$dir/log" ]
    ok "kernels_of_${name}_compile_without_a_warning"
done
[ $n -gt 0 ] || skip kernels_compile_without_a_warning "nvcc compiles them with CUDA=fatbin alone"
# The plugin is made by a C compiler alone, links nothing of NVIDIA and has no constructor of its own.
so=$PLUGINS/backends/cuda.so
! ldd "$so" | grep -iE 'cuda|nv|cublas|cudnn|stdc\+\+' >"$dir/out"
ok the_plugin_links_nothing_of_NVIDIA
rm -f "$dir/log" "$dir/out"
for f in plugins/backends/cuda/kernels/*.cu; do
    [ -e "$f" ] || continue
    [ "$(strings -n 8 "$so" | grep -cxF -- "$(grep -m 1 TT_KERNEL "$f")")" -gt 0 ]
    ok "the_text_of_$(basename "$f" .cu)_is_embedded"
done
exit $failed
