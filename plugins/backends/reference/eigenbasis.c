/* SPDX-License-Identifier: Apache-2.0 */
#include "reference.h"
#include <ttrun/eigenbasis.h>

size_t ref_eigenbasis_scratch(const tt_kernel_call *c, int n_threads)
{
    (void)n_threads;
    return tt_eigenbasis_scratch(c->in[0].shape[c->in[0].n_dims - 1]);
}

/* a, q [..,n,n], how [..,1,1] → [..,n,n] */
tt_status ref_eigenbasis(void *backend, const tt_kernel_call *c, tt_error *err)
{
    const int64_t n = c->in[0].shape[c->in[0].n_dims - 1], size = n * n;
    (void)backend, (void)err;
    for (int64_t i = 0; i < tt_tensor_numel(&c->in[2]); i++)
        tt_eigenbasis_at(NULL, (const float *)c->in[0].data + i * size,
                         (const float *)c->in[1].data + i * size, n, (float)ref_load(&c->in[2], i),
                         c->scratch, (float *)c->out[0].data + i * size);
    return TT_OK;
}
