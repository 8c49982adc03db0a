/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/ops/internal.h"

/* scan: the linear recurrence h[t] = a[t] * h[t-1] + x[t] along tokens, for each element of x
 * [T,..]. Token t continues t-1 if both are of one segment and their positions follow each other; any
 * other token starts at h = x. The decay a has x's dims, but its token dim and its trailing dims may
 * have size 1: one decay for all tokens, or for a whole matrix of states. Memory of the states is
 * saved so, because x and h are much larger than the tokens' other values.
 * scan_cached is the same for decoding: a state keeps h of each sequence. */

/* How many leading dims a shares with x; the dims after them have size 1. Their sizes decide, so
 * x [T,D,1] and a [T,D,1] share 2. */
static int shared_dims(const tt_type *a)
{
    int n = a->n_dims;
    while (n > 1 && a->dims[n - 1].size == 1)
        n--;
    return n;
}

/* Inputs `x` and `a` are the recurrence's input, or its result, and the decay. */
static tt_status want_decay(const tt_shape_query *q, int x, int a, tt_error *err)
{
    TT_TRY(tt_want_min_rank(q, x, "x", 2, err));
    TT_TRY(tt_want_float(q, x, "x", err));
    TT_TRY(tt_want_float(q, a, "the decay", err));
    const tt_type *tx = q->in[x], *ta = q->in[a];
    bool fits = tx->n_dims == ta->n_dims;
    for (int d = 0; fits && d < shared_dims(ta); d++)
        fits = (d == 0 && ta->dims[0].size == 1) || tt_dim_same_size(&tx->dims[d], &ta->dims[d]);
    if (!fits)
        return tt_infer_fail(q, err,
                             "the decay must have x's dims, or size 1 in the token dim or in "
                             "trailing dims");
    return TT_OK;
}

static tt_status want_i32_tokens(const tt_shape_query *q, int x, int at, const char *what,
                                 tt_error *err)
{
    for (int i = at; i < at + 2; i++) {
        TT_TRY(tt_want_rank(q, i, what, 1, err));
        TT_TRY(tt_want_i32(q, i, what, err));
        TT_TRY(tt_want_equal(q, x, 0, i, 0, err));
    }
    return TT_OK;
}

static tt_status infer_scan(const tt_shape_query *q, tt_type *out, tt_error *err)
{
    TT_TRY(tt_want_inputs(q, 4, 4, err));
    TT_TRY(want_decay(q, 0, 1, err));
    TT_TRY(want_i32_tokens(q, 0, 2, "seg and pos", err));
    out[0] = *q->in[0];
    return TT_OK;
}

/* da [T, dims of a after the token dim]: where a stretches, it is a sum, and f32 at least. */
static tt_status infer_scan_bwd(const tt_shape_query *q, tt_type *out, tt_error *err)
{
    TT_TRY(tt_want_inputs(q, 5, 5, err));
    TT_TRY(want_decay(q, 0, 1, err));
    TT_TRY(tt_want_same(q, 0, 2, err));
    TT_TRY(want_i32_tokens(q, 0, 3, "seg and pos", err));
    const tt_type *h = q->in[0], *a = q->in[1];
    out[0] = *h;
    out[1] = tt_type_make(tt_type_numel(a) == tt_type_numel(h) ? a->dtype
                                                               : tt_dtype_accumulate(a->dtype),
                          a->dims, a->n_dims);
    out[1].dims[0] = h->dims[0];
    return TT_OK;
}

static tt_status infer_scan_cached(const tt_shape_query *q, tt_type *out, tt_error *err)
{
    TT_TRY(tt_want_inputs(q, 5, 5, err));
    TT_TRY(want_decay(q, 0, 1, err));
    TT_TRY(want_i32_tokens(q, 0, 2, "slot and pos", err));
    const tt_type *x = q->in[0], *s = q->in[4];
    TT_TRY(tt_want_rank(q, 4, "the state", x->n_dims, err));
    for (int d = 1; d < x->n_dims; d++)
        TT_TRY(tt_want_equal(q, 0, d, 4, d, err));
    if (s->dtype != tt_dtype_accumulate(x->dtype))
        return tt_infer_fail(q, err, "the state must be %s",
                             tt_dtype_name(tt_dtype_accumulate(x->dtype)));
    out[0] = *x;
    out[1] = *s;
    return TT_OK;
}

/* ---- sharding: the tokens of a sequence are whole; a dim of a with size 1 is whole, too, and where a
 * rank has a part of the dim that a stretches over, da is a partial sum ---- */

static void add_dims(tt_rule_text *t, const tt_type *x, const char *token, bool own_ones)
{
    tt_rule_add(t, " %s", own_ones && x->dims[0].size == 1 ? "!one" : token);
    for (int d = 1; d < x->n_dims; d++)
        tt_rule_add(t, own_ones && x->dims[d].size == 1 ? " !u%d" : " d%d", d);
}

static void rule_scan(const tt_shape_query *q, char *rule, size_t size)
{
    tt_rule_text t = {.s = rule, .size = size};
    add_dims(&t, q->in[0], "t=(b !q)", false);
    tt_rule_add(&t, ",");
    add_dims(&t, q->in[1], "t", true);
    tt_rule_add(&t, ", t, t ->");
    add_dims(&t, q->in[0], "t", false);
}

static void rule_scan_bwd(const tt_shape_query *q, char *rule, size_t size)
{
    tt_rule_text t = {.s = rule, .size = size};
    tt_type da = *q->in[1];
    da.dims[0] = TT_DIM(0, NULL); /* the token dim of da is always t */
    add_dims(&t, q->in[0], "t=(b !q)", false);
    tt_rule_add(&t, ",");
    add_dims(&t, q->in[1], "t", true);
    tt_rule_add(&t, ",");
    add_dims(&t, q->in[0], "t", false);
    tt_rule_add(&t, ", t, t ->");
    add_dims(&t, q->in[0], "t", false);
    tt_rule_add(&t, ",");
    add_dims(&t, &da, "t", true);
}

static void rule_scan_cached(const tt_shape_query *q, char *rule, size_t size)
{
    tt_rule_text t = {.s = rule, .size = size};
    add_dims(&t, q->in[0], "!t", false);
    tt_rule_add(&t, ",");
    add_dims(&t, q->in[1], "!t", true);
    tt_rule_add(&t, ", !t, !t,");
    add_dims(&t, q->in[0], "!s", false);
    tt_rule_add(&t, " ->");
    add_dims(&t, q->in[0], "t", false);
    tt_rule_add(&t, ",");
    add_dims(&t, q->in[0], "s", false);
}

static void vjp_scan(tt_builder *b, tt_vjp *c)
{
    tt_value *ins[5] = {c->out[0], c->in[1], c->dout[0], c->in[2], c->in[3]},
             *outs[2] = {NULL, NULL};
    tt_op(b, "scan_bwd", ins, 5, NULL, outs, 2);
    if (c->want[0])
        c->din[0] = tt_vjp_fit(b, outs[0], c->in[0]);
    if (c->want[1])
        c->din[1] = tt_vjp_fit(b, outs[1], c->in[1]);
}

static tt_cost cost_scan(const tt_shape_query *q, const tt_type *out)
{
    return tt_cost_make(q, out, 1, 2.0 * tt_numel(&out[0]));
}

static tt_cost cost_scan_bwd(const tt_shape_query *q, const tt_type *out)
{
    return tt_cost_make(q, out, 2, 4.0 * tt_numel(&out[0]));
}

static tt_cost cost_scan_cached(const tt_shape_query *q, const tt_type *out)
{ /* a token reads and writes the state of one sequence; the other states stay */
    const double n = tt_numel(&out[0]), state = 2.0 * n * (double)tt_dtype_size(out[1].dtype);
    const double moved = tt_numel(q->in[1]) * (double)tt_dtype_size(q->in[1]->dtype) +
                         2.0 * n * (double)tt_dtype_size(out[0].dtype);
    return (tt_cost){2.0 * n, moved + state};
}

/* Decoding: the last h of each sequence. */
static tt_status scan_memory(const tt_shape_query *q, int64_t slots, int64_t length, tt_type *out,
                             tt_error *err)
{
    const tt_type *x = q->in[0];
    (void)length, (void)err;
    out[0] = tt_type_make(tt_dtype_accumulate(x->dtype), x->dims, x->n_dims);
    out[0].dims[0] = TT_DIM(slots, "slots");
    return TT_OK;
}

static void scan_incremental(tt_builder *b, const tt_shape_query *q, tt_value *const *in,
                             tt_value *const *memory, tt_value **outs, tt_value **updated)
{
    tt_value *ins[5] = {in[0], in[1], in[2], in[3], memory[0]}, *y[2] = {NULL, NULL};
    (void)q;
    tt_op(b, "scan_cached", ins, 5, NULL, y, 2);
    outs[0] = y[0];
    updated[0] = y[1];
}

const tt_op_def tt_op_scan = {
    .struct_size = sizeof(tt_op_def),
    .name = "scan",
    .operands = "x f[T,..], a f[T,..], seg i[T], pos i[T] → h [T,..]; a's dims of size 1 stretch",
    .doc = "linear recurrence h[t] = a[t] h[t-1] + x[t] along tokens within segments",
    .flags = TT_OP_MIXES_TOKENS | TT_OP_ORDERED,
    .n_out = 1,
    .infer = infer_scan,
    .rule_for = rule_scan,
    .vjp = vjp_scan,
    .cost = cost_scan,
    .n_memory = 1,
    .memory = scan_memory,
    .incremental = scan_incremental};
const tt_op_def tt_op_scan_bwd = {.struct_size = sizeof(tt_op_def),
                                  .name = "scan_bwd",
                                  .operands = "h, a, dh f[T,..], seg, pos → dx, da [T,..]",
                                  .doc = "dx, da of scan",
                                  .flags = TT_OP_MIXES_TOKENS | TT_OP_ORDERED,
                                  .n_out = 2,
                                  .infer = infer_scan_bwd,
                                  .rule_for = rule_scan_bwd,
                                  .cost = cost_scan_bwd};
const tt_op_def tt_op_scan_cached = {
    .struct_size = sizeof(tt_op_def),
    .name = "scan_cached",
    .operands = "x, a f[T,..], slot i[T], pos i[T], state f32 [S,..] → h [T,..], state",
    .doc = "scan of new tokens, continued from the state of their sequence",
    .flags = TT_OP_MIXES_TOKENS | TT_OP_NO_GRADIENT | TT_OP_UPDATES,
    .n_out = 2,
    .infer = infer_scan_cached,
    .rule_for = rule_scan_cached,
    .cost = cost_scan_cached};

/* The op stretches trailing dims only. If `a` has another dim of size 1, the dims from it to the last
 * dim that is not stretched are written out. */
static tt_value *fit_decay(tt_builder *b, tt_value *a, tt_value *x)
{
    const tt_type *ta = tt_value_type(a), *tx = tt_value_type(x);
    tt_dim dims[TT_MAX_DIMS];
    bool stretch = false;
    if (ta->n_dims != tx->n_dims || ta->n_dims < 2)
        return a; /* the shape rule refuses it */
    for (int d = 0; d < ta->n_dims; d++) {
        const bool inner = d > 0 && d < shared_dims(ta);
        dims[d] = inner && ta->dims[d].size == 1 ? tx->dims[d] : ta->dims[d];
        stretch = stretch || dims[d].size != ta->dims[d].size;
    }
    return stretch ? tt_broadcast_to(b, a, dims, ta->n_dims) : a;
}

tt_value *tt_scan(tt_builder *b, tt_value *a, tt_value *x)
{
    tt_value *ins[4] = {x, fit_decay(b, a, x), tt_input(b, "seg"), tt_input(b, "pos")};
    return tt_emit(b, "scan", ins, 4, NULL);
}
