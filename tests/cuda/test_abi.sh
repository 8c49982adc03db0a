#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Our prototypes and values of NVIDIA's libraries are those of its headers, where these are installed. A file tests/cuda/abi*.c
# holds static assertions; its first line that starts with "#include <" and names a header of a library says what it needs.
. "$(dirname "$0")/../script.sh"
cd "$SRC" || exit 1
include=
for d in "${CUDA_HOME:-/usr/local/cuda}/include" /usr/local/cuda/include; do
    [ -e "$d/cuda.h" ] && include=$d && break
done
for f in tests/cuda/abi*.c; do
    name=$(basename "$f" .c)
    absent=
    for h in $(sed -n 's/^#include <\(.*\)>$/\1/p' "$f"); do
        [ -n "$include" ] && [ -e "$include/$h" ] || [ -e "/usr/include/$h" ] || absent="$absent $h"
    done
    if [ -n "$absent" ]; then
        skip "${name}_is_as_in_NVIDIA's_headers" "not here:$absent"
    else
        ${CC:-gcc} -std=gnu11 -fsyntax-only -Wall -Wextra -Iinclude -iquote plugins/backends/cuda \
            -iquote plugins/comms/nccl -isystem "$include" "$f"
        ok "${name}_is_as_in_NVIDIA's_headers"
    fi
done
exit $failed
