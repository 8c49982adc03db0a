/* SPDX-License-Identifier: Apache-2.0 */
#include "cpu.h"
#include <cblas.h>

/* OpenBLAS must run one thread: its workers would spin on the cores the pool computes on (R12). And
 * it must be a build that locks: the serial one hands the same buffer to two callers at once, and
 * the OpenMP one knows callers of its own threads only. */

bool cpu_blas_open(const char **version)
{
    if (openblas_get_parallel() != OPENBLAS_THREAD)
        return false;
    openblas_set_num_threads(1);
    if (openblas_get_num_threads() != 1)
        return false;
    *version = openblas_get_config();
    return true;
}

void cpu_blas_sgemm(int64_t m, int64_t n, int64_t k, cpu_mat a, cpu_mat b, float *c, int64_t ldc,
                    bool add)
{
    /* Rows run in the direction of the longer stride; one stride is 1. A vector may have both
     * strides 1. */
    const bool ta = a.cs != 1, tb = b.cs != 1;
    int64_t lda = cpu_max(ta ? a.cs : a.rs, ta ? m : k),
            ldb = cpu_max(tb ? b.cs : b.rs, tb ? k : n);
    cblas_sgemm(CblasRowMajor, ta ? CblasTrans : CblasNoTrans, tb ? CblasTrans : CblasNoTrans,
                (int)m, (int)n, (int)k, 1.0f, a.p, (int)lda, b.p, (int)ldb, add ? 1.0f : 0.0f, c,
                (int)ldc);
}
