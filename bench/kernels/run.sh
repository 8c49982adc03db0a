#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Speed of the cpu backend's kernels at the shapes of bench/train's models, after `make`.
#   bench/kernels/run.sh [OP]                   ours; OP: kernels whose name begins so. THREADS, ISA, BLAS and PRODUCTS may be set
#   TTRUN_VENV=DIR bench/kernels/run.sh [OP]    next to PyTorch's, in turns, medians of ROUNDS (3)
# And what the interpreter adds to them, an op.
set -eu
cd "$(dirname "$0")/../.."
build=build/release
mkdir -p $build/bench
for name in kernels interpreter; do
    ${CC:-gcc} -std=c11 -O2 -Iinclude -Icore -Ilib -Itools -I. -pthread -rdynamic bench/kernels/$name.c $build/libttrun_core.a \
        -ljansson -lltdl -lzstd -lz -lpcre2-8 -lutf8proc -levent_core -lm -ldl -o $build/bench/$name
done
ours() { $build/bench/kernels $build/plugins/backends/cpu.so "${THREADS:-2}" "${ISA:-auto}" "${BLAS:-own}" "${PRODUCTS:-fma}" "$@"; }
if [ -z "${TTRUN_VENV:-}" ]; then
    printf '%-18s %-22s %9s %8s %8s %8s\n' op shape ms GFLOP/s GB/s '% roof'
    ours "$@"
else
    work=$(mktemp -d "${TMPDIR:-/tmp}/ttrun-kernels.XXXXXX")
    trap 'rm -rf "$work"' EXIT
    for _ in $(seq "${ROUNDS:-3}"); do
        ours "$@" >"$work/now"
        sed 's/^/ours /' "$work/now" >>"$work/all"
        OMP_NUM_THREADS=${THREADS:-2} "$TTRUN_VENV/bin/python" bench/kernels/peer.py "${THREADS:-2}" <"$work/now" | sed 's/^/torch /' >>"$work/all"
    done
    sed -n '1s/^# //p' "$work/now"
    echo "| op | shape | ours, ms | GFLOP/s | GB/s | % of roofline | PyTorch, ms | theirs ÷ ours |"
    echo "|---|---|---|---|---|---|---|---|"
    awk 'function median(key, n,   i, j, t) {
            for (i = 2; i <= n; i++) { t = v[key, i]; for (j = i - 1; j && v[key, j] > t; j--) v[key, j + 1] = v[key, j]; v[key, j + 1] = t }
            return (v[key, int((n + 1) / 2)] + v[key, int((n + 2) / 2)]) / 2
        }
        $2 == "#" { next }
        { key = $1 " " $2 " " $3; if ($1 == "ours" && !(key in count)) order[++n] = $2 " " $3; v[key, ++count[key]] = $4 }
        $1 == "ours" { work[$2 " " $3] = $4 * $5; moved[$2 " " $3] = $4 * $6; least[$2 " " $3] = $4 * $7 }
        END { for (i = 1; i <= n; i++) { k = order[i]; a = median("ours " k, count["ours " k]); b = median("torch " k, count["torch " k])
            split(k, w, " "); printf "| %s | %s | %.3f | %.1f | %.1f | %.1f | %.3f | %.2f |\n", w[1], w[2], a, work[k] / a, moved[k] / a, least[k] / a, b, b / a } }' "$work/all"
fi
[ $# -gt 0 ] || PLUGINS=$build/plugins $build/bench/interpreter
