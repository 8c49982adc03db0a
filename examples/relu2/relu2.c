/* SPDX-License-Identifier: Apache-2.0 */
/* relu2: the op y = max(x, 0)^2, and a kernel of it for the backend "cpu". On every other backend,
 * and in other types than f32, the op runs as its decomposition. */
#include <ttrun/kernels.h>

static tt_status infer(const tt_shape_query *q, tt_type *out, tt_error *err)
{
    if (q->n_in != 1)
        return TT_FAIL(err, TT_EINVAL, "%s takes one operand, not %d", q->op, q->n_in);
    out[0] = *q->in[0];
    return TT_OK;
}

static void vjp(tt_builder *b, tt_vjp *c) /* dx = 2 max(x, 0) dy */
{
    if (c->want[0] && c->dout[0])
        c->din[0] = tt_mul(b, tt_scale(b, tt_relu(b, c->in[0]), 2.0), c->dout[0]);
}

static void decompose(tt_builder *b, const tt_shape_query *q, tt_value *const *in, tt_value **outs)
{
    tt_value *y = tt_relu(b, in[0]);
    (void)q;
    outs[0] = tt_mul(b, y, y);
}

static tt_cost cost(const tt_shape_query *q, const tt_type *out)
{
    tt_cost c = TT_ZERO;
    c.flops = 2;
    for (int i = 0; i < out->n_dims; i++)
        c.flops *= (double)out->dims[i].size;
    c.bytes = c.flops * (double)tt_dtype_size(q->in[0]->dtype);
    return c;
}

static const tt_op_def def =
    TT_OP_DEF("relu2", "squared relu", "* -> *", TT_OP_POINTWISE, infer, vjp, decompose, cost);
static const tt_op_vt op_vt = {sizeof(op_vt), &def};

/* ---- the kernel: threads take 16384 elements at a time ---- */

static void range(void *arg, int64_t begin, int64_t end, int thread)
{
    const tt_kernel_call *c = (const tt_kernel_call *)arg;
    const float *x = (const float *)c->in[0].data;
    float *y = (float *)c->out[0].data;
    (void)thread;
    for (int64_t i = begin; i < end; i++)
        y[i] = x[i] > 0 ? x[i] * x[i] : 0;
}

static tt_status run(void *backend, const tt_kernel_call *c, tt_error *err)
{
    (void)backend, (void)err;
    tt_parallel_for(c->pool, tt_tensor_numel(&c->out[0]), 16384, range, (void *)(uintptr_t)c);
    return TT_OK;
}

static int supports(const tt_kernel_call *c)
{
    return c->in[0].dtype == TT_F32;
}

/* op, run, scratch_bytes, can_accumulate, in_place (y may lie in x's memory), supports */
static const tt_kernel kernel = {sizeof(kernel), "relu2", run, NULL, 0, 1, supports};
static const tt_kernels_vt kernels_vt = {sizeof(kernels_vt), "cpu", &kernel, 1, sizeof(kernel)};

static const tt_component components[] = {
    TT_COMPONENT_PLAIN(TT_KIND_OP, "relu2", "squared relu", &op_vt),
    TT_COMPONENT_PLAIN(TT_KIND_KERNELS, "relu2", "relu2 on the cpu", &kernels_vt),
};
TT_PLUGIN("relu2", "1.0", components);
