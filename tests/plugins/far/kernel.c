/* SPDX-License-Identifier: Apache-2.0 */
#include "far.h"
#include <stdlib.h>
#include <string.h>

/* Kernels: each wraps one of the reference backend. run checks the call, copies it and puts it on
 * the queue; later the reference's kernel runs on a copy of the call with hidden addresses. */

typedef struct far_kernel_row {
    tt_kernel kernel;       /* what the core gets */
    const tt_kernel *inner; /* on host addresses */
    struct far_kernel_row *next;
} far_kernel_row;
static far_kernel_row *rows;

typedef struct far_call_copy {
    int refs;
    const far_kernel_row *row;
    tt_kernel_call call; /* with addresses of the device */
    tt_tensor *in, *out;
    void *attrs; /* of the three ops of device.h, whose attrs end with the call */
} far_call_copy;

far_call_copy *far_call_ref(far_call_copy *c)
{
    c->refs++;
    return c;
}

void far_call_drop(far_call_copy *c)
{
    if (!c || --c->refs > 0)
        return;
    free(c->in);
    free(c->out);
    free(c->attrs);
    free(c);
}

static size_t far_tensor_bytes(const tt_tensor *t)
{
    return (size_t)tt_tensor_numel(t) * tt_dtype_size(t->dtype);
}

/* The ranges of a call: its inputs, its outputs, scratch, seed, step. */
static void far_call_ranges(far_node *n, const tt_kernel_call *c)
{
    far_range *g = n->ranges;
    for (int i = 0; i < c->n_in; i++)
        *g++ = (far_range){.at = c->in[i].data, .bytes = far_tensor_bytes(&c->in[i])};
    for (int i = 0; i < c->n_out; i++)
        *g++ =
            (far_range){.at = c->out[i].data, .bytes = far_tensor_bytes(&c->out[i]), .write = true};
    *g++ = (far_range){.at = c->scratch, .bytes = c->scratch ? c->scratch_bytes : 0, .write = true};
    *g++ = (far_range){.at = (void *)(uintptr_t)c->seed, .bytes = c->seed ? sizeof *c->seed : 0};
    *g++ = (far_range){.at = (void *)(uintptr_t)c->step, .bytes = c->step ? sizeof *c->step : 0};
}

/* Outputs lie apart from each other and from the inputs, but for what in_place allows, and for states
 * that an op reads and writes: a pointwise op element by element, attention its cache. */
static tt_status far_check_aliases(const far_node *n, const tt_kernel_call *c, int in_place,
                                   tt_error *err)
{
    const bool pointwise = !strcmp(n->name, "fused") || ref_pointwise_kernel(n->name),
               updates = !strcmp(n->name, "attention_cached");
    const far_range *g = n->ranges;
    for (int o = 0; o < c->n_out; o++)
        for (int i = 0; i < c->n_in + o; i++) {
            const far_range *out = &g[c->n_in + o];
            if (!far_overlap(out, &g[i]))
                continue;
            const bool may =
                pointwise || (updates && o > 0) || (o == 0 && i < 31 && in_place >> i & 1);
            if (may && i < c->n_in && out->at == g[i].at && out->bytes == g[i].bytes)
                continue;
            return TT_FAIL(err, TT_EINVAL, "far: %s: output %d lies in the memory of %s %d",
                           n->name, o, i < c->n_in ? "input" : "output",
                           i < c->n_in ? i : i - c->n_in);
        }
    return TT_OK;
}

static tt_status far_check_alignment(const far_node *n, const tt_kernel_call *c, bool extra,
                                     tt_error *err)
{
    for (int i = 0; i < c->n_in + c->n_out; i++) {
        const tt_tensor *t = i < c->n_in ? &c->in[i] : &c->out[i - c->n_in];
        const size_t own = tt_dtype_size(t->dtype), wanted = (size_t)n->rank->config.alignment,
                     align = extra || own > wanted ? own : wanted;
        if (n->ranges[i].bytes && (uintptr_t)t->data % align)
            return TT_FAIL(err, TT_EINVAL, "far: %s: operand %d at %p is not aligned to %zu bytes",
                           n->name, i, t->data, align);
    }
    if (c->scratch && (uintptr_t)c->scratch % 64)
        return TT_FAIL(err, TT_EINVAL, "far: %s: its scratch at %p is not aligned to 64 bytes",
                       n->name, c->scratch);
    return TT_OK;
}

static tt_tensor *far_tensors(const tt_tensor *t, int n)
{
    tt_tensor *copy = far_calloc((size_t)n, sizeof *copy);
    if (n)
        memcpy(copy, t, (size_t)n * sizeof *copy);
    return copy;
}

static far_node *far_call_node(far_rank *r, const far_kernel_row *row, const tt_kernel_call *c)
{
    far_node *n = far_node_new(r, FAR_KERNEL, row->kernel.op, c->n_in + c->n_out + 3);
    far_call_copy *copy = far_calloc(1, sizeof *copy);
    *copy = (far_call_copy){.refs = 1, .row = row, .call = *c};
    copy->in = far_tensors(c->in, c->n_in);
    copy->out = far_tensors(c->out, c->n_out);
    const size_t attrs_bytes = far_extra_attrs(row->kernel.op);
    if (attrs_bytes) {
        copy->attrs = far_calloc(1, attrs_bytes);
        memcpy(copy->attrs, c->attrs, attrs_bytes);
        copy->call.attrs = copy->attrs;
    }
    copy->call.op = row->kernel.op;
    copy->call.in = copy->in;
    copy->call.out = copy->out;
    copy->call.pool = NULL; /* the reference's kernels use no threads */
    copy->call.queue = NULL;
    n->call = copy;
    far_call_ranges(n, &copy->call);
    return n;
}

static tt_status far_kernel_run(void *backend, const tt_kernel_call *c, tt_error *err)
{
    far_rank *r = backend;
    TT_TRY(far_begin(r, c->op, err));
    const far_kernel_row *row = rows;
    while (row && strcmp(row->kernel.op, c->op) != 0)
        row = row->next;
    tt_status s = far_check_queue(r, c->queue, c->op, err);
    const bool extra = row && far_extra_kernel(row->kernel.op) != NULL;
    if (s == TT_OK && !row)
        s = TT_FAIL(err, TT_ENOTFOUND, "far: no kernel \"%s\"", c->op);
    if (s == TT_OK && c->accumulate && !row->kernel.can_accumulate)
        s = TT_FAIL(err, TT_EINVAL, "far: %s cannot accumulate", c->op);
    if (s == TT_OK && extra)
        s = far_extra_check(c, err);
    if (s == TT_OK) {
        far_node *n = far_call_node(r, row, c);
        if (!strcmp(row->kernel.op, TT_OP_COPY_BOX))
            far_box_span(c, &n->ranges[0], &n->ranges[1]);
        if (!strcmp(row->kernel.op, TT_OP_COPY_BOX) ||
            !strcmp(row->kernel.op, TT_OP_REDUCE_MEMBERS))
            n->kinds |= FAR_PEER;
        s = far_resolve(n, err);
        if (s == TT_OK)
            s = far_check_alignment(n, c, extra, err);
        if (s == TT_OK && !extra)
            s = far_check_aliases(n, c, row->kernel.in_place, err);
        if (s == TT_OK)
            s = far_put(c->queue, n, err);
        else
            far_node_drop(n);
    }
    return far_end(r, s);
}

/* The ranges of a copy_box begin where the box begins, not where the tensor does. */
static void *far_hidden_of(const void *data, const far_range *g)
{
    static _Alignas(64) char empty[64]; /* where operands without elements lie */
    if (!g->bytes)
        return empty;
    return g->hidden ? g->hidden - ((const char *)g->at - (const char *)data) : NULL;
}

tt_status far_call_run(const far_node *n, tt_error *err)
{
    const far_call_copy *copy = n->call;
    tt_kernel_call c = copy->call;
    const far_range *g = n->ranges;
    tt_tensor *in = far_tensors(c.in, c.n_in), *out = far_tensors(c.out, c.n_out);
    for (int i = 0; i < c.n_in; i++, g++)
        in[i].data = far_hidden_of(in[i].data, g);
    for (int i = 0; i < c.n_out; i++, g++)
        out[i].data = far_hidden_of(out[i].data, g);
    c.in = in;
    c.out = out;
    c.scratch = g[0].hidden;
    c.seed = (const uint64_t *)(void *)g[1].hidden;
    c.step = (const double *)(void *)g[2].hidden;
    if (c.scratch)
        memset(c.scratch, FAR_POISON, c.scratch_bytes);
    c.backend = NULL;
    const char *fail = n->rank->config.fail;
    tt_status s = fail && !strcmp(n->name, fail) && ++n->rank->n_fail == n->rank->config.fail_at
                      ? TT_FAIL(err, TT_EIO, "the kernel failed, as backend.fail asked for")
                      : copy->row->inner->run(NULL, &c, err);
    if (s == TT_OK)
        s = far_check_guards(n->ranges, n->n_ranges, err);
    if (s != TT_OK && err)
        tt_error_context(err, "far: rank %d: %s on queue %d", n->rank->rank, n->name, n->queue->id);
    free(in);
    free(out);
    return s;
}

void far_kernel_drop_rows(void)
{
    while (rows) {
        far_kernel_row *next = rows->next;
        free(rows);
        rows = next;
    }
}

const tt_kernel *far_kernel(void *self, const char *op)
{
    (void)self;
    const tt_kernel *inner = far_extra_kernel(op);
    if (!inner)
        inner = ref_kernel(op);
    if (!inner)
        return NULL;
    far_lock();
    far_kernel_row *row = rows;
    while (row && row->inner != inner)
        row = row->next;
    if (!row) {
        row = far_calloc(1, sizeof *row);
        *row = (far_kernel_row){.kernel = *inner, .inner = inner, .next = rows};
        row->kernel.run = far_kernel_run;
        rows = row;
    }
    far_unlock();
    return &row->kernel;
}
