/* SPDX-License-Identifier: Apache-2.0 */
#include "fused.h"
#include <string.h>

/* A matrix product fused with the pointwise program that reads it, and with RoPE. When a rectangle
 * of the product is complete, the thread that computed it runs the program over it and rotates its
 * heads while the rectangle is in cache. The product is stored where an output will be and the
 * program reads it there, so the bits equal those of the separate kernels. Operands as in gemm.c.
 * Naive twins: ref_fused_product and ref_linear_fused_rope in backends/reference/pointwise.c. */

/* The kernel call of the product alone. */
static tt_kernel_call product_of(const tt_kernel_call *c)
{
    const tt_fused_product *f = c->attrs;
    tt_kernel_call p = *c;
    p.op = strcmp(c->op, "linear_dx_fused") == 0 ? "linear_dx" : "linear";
    p.n_in = 2;
    p.out = &c->out[f->into];
    p.n_out = 1;
    p.attrs = NULL;
    return p;
}

static size_t product_scratch(const tt_kernel_call *p, int n_threads)
{
    return cpu_align(cpu_linear_takes(p) ? cpu_linear_scratch(p, n_threads)
                                         : cpu_mixed_scratch(p, n_threads));
}

static size_t scratch(const tt_kernel_call *c, int n_threads)
{
    const tt_fused_product *f = c->attrs;
    const tt_kernel_call p = product_of(c);
    return product_scratch(&p, n_threads) + cpu_align(cpu_program_scratch(&f->program, n_threads));
}

/* What is applied to each rectangle of the product. */
typedef struct epilogue {
    cpu_program program;
    const cpu_rope *rope; /* NULL: no rotation */
    const int32_t *pos;
    const tt_tensor *out; /* the output to rotate */
} epilogue;

/* Prefetches what the program reads of row r: the run is too short for the hardware prefetcher. */
static void fetch_row(const cpu_program *p, int64_t r, int64_t c0, int64_t c1)
{
    for (int i = 1; i < p->f->n_in; i++) {
        const int64_t size = (int64_t)tt_dtype_size(p->in[i].dtype);
        const char *x = (const char *)p->in[i].data + (r * p->shape[1] + c0) * size;
        if (tt_tensor_numel(&p->in[i]) == p->n)
            for (int64_t at = 0; at < (c1 - c0) * size; at += CPU_LINE)
                __builtin_prefetch(x + at);
    }
}

static void run_program(const cpu_program *p, int64_t r0, int64_t r1, int64_t c0, int64_t c1,
                        int thread)
{
    if (!p->f->n_instr)
        return;
    fetch_row(p, r0, c0, c1);
    for (int64_t r = r0; r < r1; r++) {
        if (r + 1 < r1)
            fetch_row(p, r + 1, c0, c1);
        cpu_program_run(p, r * p->shape[1] + c0, r * p->shape[1] + c1, thread);
    }
}

static void run_rows(void *arg, int64_t r0, int64_t r1, int64_t c0, int64_t c1, int thread)
{
    const epilogue *e = arg;
    run_program(&e->program, r0, r1, c0, c1, thread);
    if (e->rope) {
        const int64_t width = e->out->shape[1];
        float *y = (float *)e->out->data + r0 * width + c0;
        e->program.isa->rope(e->rope, e->pos + r0, r1 - r0, y, y, width,
                             (c1 - c0) / e->rope->head_dim);
    }
}

static void row_pieces(void *arg, int64_t begin, int64_t end, int thread)
{
    const cpu_program *p = &((const epilogue *)arg)->program;
    run_program(p, begin, end, 0, p->shape[1], thread);
}

/* Computes the product and applies the epilogue; rope is only for f32 operands. */
static tt_status run_product(void *self, const tt_kernel_call *c, const cpu_rope *rope,
                             tt_error *err)
{
    const tt_fused_product *f = c->attrs;
    const tt_kernel_call product = product_of(c);
    tt_tensor in[TT_MAX_INS];
    epilogue e = {.rope = rope, .pos = c->in[c->n_in - 1].data, .out = &c->out[0]};
    cpu_program *p = &e.program;
    const cpu_done done = {run_rows, &e, rope ? rope->head_dim : 1};
    if (c->n_in > TT_MAX_INS || f->program.n_in > c->n_in - 1)
        return TT_FAIL(err, TT_EINTERNAL, "%s: a program of %d inputs for %d operands", c->op,
                       f->program.n_in, c->n_in);
    in[0] = c->out[f->into];
    memcpy(in + 1, c->in + 2, (size_t)(c->n_in - 2) * sizeof *in);
    TT_TRY(cpu_program_make(
        p, &f->program, ((const cpu_backend *)self)->isa, in, c->out,
        (char *)c->scratch + product_scratch(&product, tt_pool_threads(c->pool)), true, err));
    if (cpu_linear_takes(&product)) {
        cpu_linear(self, &product, &done);
        return TT_OK;
    }
    TT_TRY(cpu_mixed_run(self, &product, err));
    tt_parallel_for(c->pool, p->shape[0], cpu_row_grain(p->shape[0], p->shape[1]), row_pieces, &e);
    return TT_OK;
}

static tt_status linear_fused(void *self, const tt_kernel_call *c, tt_error *err)
{
    return run_product(self, c, NULL, err);
}

/* ---- with RoPE ---- */

/* The kernel call of RoPE alone, on the output; `in` (two tensors) becomes its operands. */
static tt_kernel_call rope_of(const tt_kernel_call *c, tt_tensor in[2])
{
    tt_kernel_call r = *c;
    in[0] = c->out[0];
    in[1] = c->in[c->n_in - 1];
    r.op = "rope";
    r.in = in;
    r.n_in = 2;
    r.attrs = &((const tt_fused_rope *)c->attrs)->rope;
    return r;
}

static bool in_tiles(const tt_kernel_call *c)
{
    return c->in[0].dtype == TT_F32 && c->in[1].dtype == TT_F32 && c->out[0].dtype == TT_F32;
}

static size_t rope_scratch(const tt_kernel_call *c, int n_threads)
{
    tt_tensor in[2];
    const tt_kernel_call r = rope_of(c, in);
    const size_t made = scratch(c, n_threads);
    return in_tiles(c) ? made + cpu_rope_bytes(r.attrs)
                       : (size_t)cpu_max((int64_t)made, (int64_t)cpu_mixed_scratch(&r, n_threads));
}

static tt_status linear_fused_rope(void *self, const tt_kernel_call *c, tt_error *err)
{
    tt_tensor in[2];
    const tt_kernel_call r = rope_of(c, in);
    cpu_rope rope;
    if (!in_tiles(c)) {
        TT_TRY(run_product(self, c, NULL, err));
        return cpu_mixed_run(self, &r, err);
    }
    TT_TRY(cpu_rope_make(&rope, r.attrs, (char *)c->scratch + scratch(c, tt_pool_threads(c->pool)),
                         err));
    return run_product(self, c, &rope, err);
}

const cpu_kernel cpu_kernels_linear_fused[] = {
    CPU_KERNEL_ANY("linear_fused", linear_fused, scratch, 0),
    CPU_KERNEL_ANY("linear_dx_fused", linear_fused, scratch, 0),
    CPU_KERNEL_ANY("linear_fused_rope", linear_fused_rope, rope_scratch, 0),
    CPU_KERNEL_END,
};
