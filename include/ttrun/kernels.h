/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TTRUN_KERNELS_H
#define TTRUN_KERNELS_H
#include <ttrun/backend.h>

/* Kernels for a backend that is another plugin's: of ops the same plugin brings, of ops the backend
 * has no kernel for, or faster ones. Which kernel runs an op is decided once per program:
 *   1. that of a component the job names in backend.kernels, the first in the list that has one;
 *   2. that of the plugin file the op itself comes from;
 *   3. the backend's own;
 *   4. that of any other plugin in the plugin folders; two of them are an error that names both;
 *   5. none: the op runs as its decomposition.
 * The backend's pointwise ops mostly run inside of its kernel of the op "fused", which calls no
 * kernel of theirs. A pointwise op of a plugin is never fused: it runs on its kernel. */

#ifdef __cplusplus
extern "C" {
#endif

/* Vtable of a TT_KIND_KERNELS component, which has no options. A kernel's first argument is the
 * backend's own object: only the backend's plugin knows what is in it. */
typedef struct tt_kernels_vt {
    size_t struct_size;
    const char *backend;           /* name of the backend they run on: "cpu" */
    const tt_kernel *kernels;      /* one per op, whose name is in it */
    size_t n_kernels, kernel_size; /* count and stride */
} tt_kernels_vt;

#ifdef __cplusplus
}
#endif
#endif
