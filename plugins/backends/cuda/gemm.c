/* SPDX-License-Identifier: Apache-2.0 */
#include "gemm.h"
#include <string.h>

/* linear, linear_dx, linear_dw and matmul. T tokens, i and o: input and output width.
 *
 * There is no linear_fused, linear_dx_fused nor linear_fused_rope: fusion never removes a rounding
 * (R11), and cuBLASLt's epilogues add C before they round the product to bf16. For f32 alone the sum
 * with a residual would have the same bits; not worth a second way. The core runs the product and the
 * pointwise program. */

static cuda_product linear_product(const tt_kernel_call *c)
{
    const tt_tensor *x = &c->in[0], *w = &c->in[1], *y = &c->out[0];
    cuda_product p = {.m = y->shape[0],
                      .n = y->shape[1],
                      .k = x->shape[1],
                      .batch = 1,
                      .a = x->data,
                      .b = w->data,
                      .c = y->data,
                      .add = c->accumulate != 0,
                      .a_type = x->dtype,
                      .b_type = w->dtype,
                      .c_type = y->dtype};
    if (strcmp(c->op, "linear") == 0) { /* x [T,i], w [o,i] -> y [T,o] = x wᵀ */
        p.b_t = true;
    } else if (strcmp(c->op, "linear_dw") == 0) { /* dy [T,o], x [T,i] -> dw [o,i] = dyᵀ x */
        p.k = x->shape[0];
        p.a_t = true;
    } /* linear_dx: dy [T,o], w [o,i] -> dx [T,i] = dy w */
    return p;
}

/* a [..,m,k], b [..,k,n] with the same leading dims or none, either stored transposed */
static cuda_product matmul_product(const tt_kernel_call *c)
{
    const tt_attrs_matmul *at = c->attrs;
    const tt_tensor *a = &c->in[0], *b = &c->in[1], *y = &c->out[0];
    const int last = y->n_dims - 1;
    cuda_product p = {.m = y->shape[last - 1],
                      .n = y->shape[last],
                      .k = a->shape[at->trans_a ? last - 1 : last],
                      .batch = 1,
                      .a = a->data,
                      .b = b->data,
                      .c = y->data,
                      .a_t = at->trans_a != 0,
                      .b_t = at->trans_b != 0,
                      .add = c->accumulate != 0,
                      .a_type = a->dtype,
                      .b_type = b->dtype,
                      .c_type = y->dtype};
    for (int d = 0; d < last - 1; d++)
        p.batch *= y->shape[d];
    return p;
}

static tt_status run_product(cuda_backend *b, const tt_kernel_call *c, const cuda_product *p,
                             tt_error *err)
{
    const size_t size = tt_dtype_size(p->c_type);
    bool done = false;
    if (!p->m || !p->n || !p->batch)
        return TT_OK;
    if (!p->k) /* the sum of no terms */
        return p->add ? TT_OK
                      : cuda_zero(b, c->queue, p->c, (size_t)(p->m * p->n * p->batch) * size, err);
    if (b->blas)
        TT_TRY(cuda_blas_product(b, c->queue, p, c->scratch, c->scratch_bytes, &done, err));
    return done ? TT_OK : cuda_own_product(b, c->queue, p, err);
}

static tt_status linear(void *self, const tt_kernel_call *c, tt_error *err)
{
    const cuda_product p = linear_product(c);
    return run_product(self, c, &p, err);
}

static tt_status matmul(void *self, const tt_kernel_call *c, tt_error *err)
{
    const cuda_product p = matmul_product(c);
    return run_product(self, c, &p, err);
}

int cuda_product_supports(const tt_kernel_call *c)
{
    const tt_dtype a = c->in[0].dtype, b = c->in[1].dtype, out = c->out[0].dtype;
    return cuda_float_index(a) >= 0 && cuda_float_index(b) >= 0 &&
           (out == TT_F32 || (out == TT_BF16 && a == TT_BF16 && b == TT_BF16));
}

void cuda_need_own_products(const tt_kernel_call *c, bool grouped)
{
    const cuda_backend *b = c->backend;
    const tt_dtype a = c->in[0].dtype, w = c->in[1].dtype;
    if (!b || (b->blas && a == w && !grouped))
        return;
    if (a != TT_BF16 || w != TT_BF16)
        cuda_files_need(b, "gemm_f32");
    if (grouped || (a == TT_BF16 && w == TT_BF16))
        cuda_files_need(b, "gemm");
}

static size_t scratch(const tt_kernel_call *c, int n_threads)
{
    (void)n_threads;
    cuda_need_own_products(c, false);
    if (c->in[0].dtype != c->in[1].dtype) /* cuBLASLt has no such products */
        return 0;
    return cuda_blas_workspace(c->backend, tt_tensor_numel(&c->out[0]));
}

const tt_kernel cuda_kernels_gemm[] = {
    {.struct_size = sizeof(tt_kernel),
     .op = "linear",
     .run = linear,
     .scratch_bytes = scratch,
     .can_accumulate = 1,
     .supports = cuda_product_supports},
    {.struct_size = sizeof(tt_kernel),
     .op = "linear_dx",
     .run = linear,
     .scratch_bytes = scratch,
     .can_accumulate = 1,
     .supports = cuda_product_supports},
    {.struct_size = sizeof(tt_kernel),
     .op = "linear_dw",
     .run = linear,
     .scratch_bytes = scratch,
     .can_accumulate = 1,
     .supports = cuda_product_supports},
    {.struct_size = sizeof(tt_kernel),
     .op = "matmul",
     .run = matmul,
     .scratch_bytes = scratch,
     .can_accumulate = 1,
     .supports = cuda_product_supports},
    {0               },
};
