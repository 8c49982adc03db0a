/* SPDX-License-Identifier: Apache-2.0 */
#include "fused.h"
#include <string.h>

/* Runs a kernel written for f32 on other float dtypes, through f32 copies in scratch: storage in
 * bf16, f16 or f64, arithmetic in f32, one rounding when the result is stored. Kernels that take
 * these dtypes themselves (cpu_kernel.takes) are called directly. */

static bool foreign(const tt_tensor *t)
{
    return tt_dtype_is_float(t->dtype) && t->dtype != TT_F32;
}
static size_t copy_bytes(const tt_tensor *t)
{
    return foreign(t) ? cpu_align((size_t)tt_tensor_numel(t) * sizeof(float)) : 0;
}
static size_t all_copies(const tt_kernel_call *c)
{
    size_t n = 0;
    for (int i = 0; i < c->n_in; i++)
        n += copy_bytes(&c->in[i]);
    for (int i = 0; i < c->n_out; i++)
        n += copy_bytes(&c->out[i]);
    return n;
}

size_t cpu_mixed_scratch(const tt_kernel_call *c, int n_threads)
{
    const cpu_kernel *k = cpu_kernel_find(c->op);
    size_t own = k && k->scratch_bytes ? k->scratch_bytes(c, n_threads) : 0;
    return own + (k && k->takes && k->takes(c) ? 0 : all_copies(c));
}

typedef struct convert {
    const cpu_isa *isa;
    const tt_tensor *from, *to;
} convert;

static void convert_pieces(void *arg, int64_t begin, int64_t end, int thread)
{
    const convert *w = arg;
    (void)thread;
    cpu_reg x = {(char *)w->from->data + (size_t)begin * tt_dtype_size(w->from->dtype),
                 w->from->dtype, false};
    cpu_reg y = {(char *)w->to->data + (size_t)begin * tt_dtype_size(w->to->dtype), w->to->dtype,
                 false};
    cpu_pointwise_run(w->isa, OP_CAST, end - begin, &x, 1, &y, 0);
}

static void copy_to(void *self, const tt_kernel_call *c, const tt_tensor *from, const tt_tensor *to)
{
    convert w = {((const cpu_backend *)self)->isa, from, to};
    tt_parallel_for(c->pool, tt_tensor_numel(from), 16384, convert_pieces, &w);
}

/* The tensor's f32 copy at *scratch, or the tensor itself if it needs none. */
static tt_tensor as_f32(const tt_tensor *t, char **scratch)
{
    tt_tensor f = *t;
    if (!foreign(t))
        return f;
    f.dtype = TT_F32;
    f.data = cpu_take(scratch, tt_tensor_numel(t));
    return f;
}

tt_status cpu_mixed_run(void *self, const tt_kernel_call *c, tt_error *err)
{
    const cpu_kernel *k = cpu_kernel_find(c->op);
    if (!k || !k->run || c->n_in > TT_MAX_INS || c->n_out > TT_MAX_OUTS)
        return TT_FAIL(err, TT_EINTERNAL, "%s: not a kernel of the cpu backend", c->op);
    size_t copies = all_copies(c);
    if (!copies || (k->takes && k->takes(c)))
        return k->run(self, c, err);
    tt_kernel_call f = *c;
    tt_tensor in[TT_MAX_INS], out[TT_MAX_OUTS];
    char *p = c->scratch;
    for (int i = 0; i < c->n_in; i++) {
        in[i] = as_f32(&c->in[i], &p);
        if (foreign(&c->in[i]))
            copy_to(self, c, &c->in[i], &in[i]);
    }
    for (int i = 0; i < c->n_out; i++) {
        out[i] = as_f32(&c->out[i], &p);
        if (foreign(&c->out[i]) && c->accumulate && i == 0)
            copy_to(self, c, &c->out[i], &out[i]);
    }
    f.in = in;
    f.out = out;
    f.scratch = p;
    f.scratch_bytes = c->scratch_bytes - copies;
    TT_TRY(k->run(self, &f, err));
    for (int i = 0; i < c->n_out; i++)
        if (foreign(&c->out[i]))
            copy_to(self, c, &out[i], &c->out[i]);
    return TT_OK;
}
