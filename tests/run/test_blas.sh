#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# backend.blas: which library computes matrix products, and what happens if it is not installed.
. "$(dirname "$0")/lib.sh"
gemm() { sed -n 's/.*backend cpu (\([^,]*\), gemm \([A-Za-z]*\).*/\1 \2/p' "$dir/err"; }
lacks() { grep -c 'backend\] backend.blas .*: no OpenBLAS here' "$dir/err"; }
train "$dir/own" --backend.blas own && [ "$(gemm | cut -d ' ' -f 2)" = own ] && [ "$(lacks)" -eq 0 ]
ok own_selects_our_gemm
if ldconfig -p | grep -q 'libopenblas\.so'; then
    train "$dir/open" --backend.blas openblas && [ "$(gemm | cut -d ' ' -f 2)" = OpenBLAS ] && [ "$(lacks)" -eq 0 ]
    ok openblas_is_found
    # by auto wherever vectors are shorter than AVX-512's
    train "$dir/auto" --backend.isa generic --backend.blas auto && [ "$(gemm)" = "generic OpenBLAS" ] && train "$dir/null" --backend.isa generic --backend.blas null &&
        [ "$(gemm)" = "generic OpenBLAS" ]
    ok auto_takes_openblas_without_avx512
else
    for name in openblas_is_found auto_takes_openblas_without_avx512; do skip $name "no OpenBLAS here"; done
fi
# A file that is no library stands before every OpenBLAS of the machine.
mkdir "$dir/empty" && : >"$dir/empty/libopenblas.so.0" && : >"$dir/empty/libopenblas.so"
export LD_LIBRARY_PATH="$dir/empty${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
train "$dir/none" --backend.blas openblas && [ "$(gemm | cut -d ' ' -f 2)" = own ] && [ "$(lacks)" -eq 1 ] && grep -q ' W backend\]' "$dir/err" &&
    losses "$dir/own/metrics.jsonl" >"$dir/a" && losses "$dir/none/metrics.jsonl" | cmp -s - "$dir/a"
ok without_openblas_our_gemm_is_used_and_logged
train "$dir/short" --backend.isa generic --comm.backend local --nproc 2 && [ "$(gemm)" = "generic own" ] && [ "$(lacks)" -eq 1 ]
ok auto_without_openblas_logs_that_once
train "$dir/mkl" --backend.blas mkl
[ "$rc" -eq 2 ] && one_line "$dir/err" && grep -q 'backend.blas.*auto.*own.*openblas' "$dir/err"
ok unknown_library_is_an_error
exit $failed
