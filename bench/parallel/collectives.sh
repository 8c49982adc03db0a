#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Collectives of two processes: ours compared with Open MPI's, in turns, µs per call; and what each process takes to copy as many
# bytes of its own, both at the same time.
#   bench/parallel/collectives.sh      after `make`, on an idle machine;  ROUNDS=5 RANKS=2
set -eu
cd "$(dirname "$0")/../.."
rounds=${ROUNDS:-5} ranks=${RANKS:-2}
work=$(mktemp -d "${TMPDIR:-/tmp}/ttrun-collectives.XXXXXX")
trap 'rm -rf "$work"' EXIT
mkdir -p build/bench
libs="-ljansson -lltdl -lzstd -lz -lpcre2-8 -lutf8proc -levent_core -lm -ldl"
${CC:-gcc} -std=c11 -O2 -Wall -Wextra -pthread -Iinclude -Icore -Ilib -Itools -I. bench/parallel/collectives.c build/release/libttrun_core.a \
    $libs -o build/bench/collectives
build/bench/collectives "$rounds" "$ranks" >"$work/ours"
touch "$work/mpi"
if command -v mpicc >/dev/null && command -v mpirun >/dev/null; then
    mpicc -std=c11 -O2 -DWITH_MPI bench/parallel/collectives.c -o build/bench/collectives_mpi
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    mpirun -q --oversubscribe --bind-to none -np "$ranks" build/bench/collectives_mpi "$rounds" >"$work/mpi"
    build/bench/collectives "$rounds" "$ranks" >>"$work/ours"
    mpirun -q --oversubscribe --bind-to none -np "$ranks" build/bench/collectives_mpi "$rounds" >>"$work/mpi"
fi
echo "| f32, $ranks processes | bytes | ttrun, µs | Open MPI, µs | times faster | memcpy, µs |"
echo "|---|---|---|---|---|---|"
awk 'FNR == 1 {file++}
    {k = $1 " " $2; if (!(k in seen)) {seen[k] = 1; if ($1 != "memcpy") order[++n] = k}
     if (!((file, k) in t) || $3 < t[file, k]) t[file, k] = $3}
    END {for (i = 1; i <= n; i++) {split(order[i], p, " "); a = t[1, order[i]]; b = t[2, order[i]]
         printf "| %s | %d | %.1f | %s | %s | %.1f |\n", p[1], p[2], a, b ? sprintf("%.1f", b) : "", b ? sprintf("%.2f", b / a) : "",
             t[1, "memcpy " p[2]]}}' \
    "$work/ours" "$work/mpi"
