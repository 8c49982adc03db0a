/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TTRUN_EIGENBASIS_H
#define TTRUN_EIGENBASIS_H
#include <ttrun/backend.h>

/* The op eigenbasis, for kernels on the host. */

#ifdef __cplusplus
extern "C" {
#endif

/* Bytes of scratch memory that a matrix of n rows needs. [any-thread] */
TT_EXPORT size_t tt_eigenbasis_scratch(int64_t n);
/* a [n,n] symmetric, q [n,n] → out [n,n], whose columns are a basis:
 *   how 0  q
 *       1  one step of orthogonal iteration: the Q of the QR decomposition of a·q. Columns are taken by
 *          qᵀ·a·q, the largest first, and written back where they were in q
 *       2  eigenvectors of a, that of the largest eigenvalue first
 * In f64, rounded once; orthonormal where a has lost rank, too; the same bits for any number of threads. out is
 * neither a nor q, but q with how 0. pool NULL: by the calling thread alone. [step] */
TT_EXPORT void tt_eigenbasis_at(tt_pool *pool, const float *a, const float *q, int64_t n, float how,
                                void *scratch, float *out);

#ifdef __cplusplus
}
#endif
#endif
