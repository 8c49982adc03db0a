/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/ops/internal.h"

/* reshape: the same elements in row-major order with other dims. The rule matches the dims of input and
 * output in groups with equal products: [T, H*hd] → [B, S, H, hd] has the groups T ↔ B, S and
 * H*hd ↔ H, hd. Only the first dim of each side of a group may be cut. If both first dims have the
 * same number of units, they share a letter and keep any cut. Otherwise one is a multiple of the
 * other, T = B times S, and both keep the atoms whose product divides B, "t=(b !r)": a rank's part
 * then has the same elements in input and output. All other dims are whole, so the remaining atoms
 * are gathered. */

static tt_status infer_reshape(const tt_shape_query *q, tt_type *out, tt_error *err)
{
    const tt_attrs_dims *a = q->attrs;
    TT_TRY(tt_want_inputs(q, 1, 1, err));
    if (a->n_dims < 0 || a->n_dims > TT_MAX_DIMS)
        return tt_infer_fail(q, err, "a value has at most %d dims", TT_MAX_DIMS);
    tt_type t = tt_type_make(q->in[0]->dtype, a->dims, a->n_dims);
    int64_t n = tt_type_numel(&t), had = tt_type_numel(q->in[0]);
    if (n != had)
        return tt_infer_fail(q, err, "%lld elements do not fit dims of %lld", (long long)had,
                             (long long)n);
    out[0] = t;
    return TT_OK;
}

static int64_t units(const tt_dim *d)
{
    return d->unit > 0 ? d->size / d->unit : d->size;
}

typedef struct letters { /* the letters of the dims of input and output in the rule */
    char of[2][TT_MAX_DIMS][24];
} letters;

/* The number of elements per index of t's dim d, in the group that ends before dim `end`. */
static int64_t span_of(const tt_type *t, int d, int end)
{
    int64_t n = 1;
    for (int i = d + 1; i < end; i++)
        n *= t->dims[i].size;
    return n;
}

/* Finds the next group: dims [i, *ie) and [j, *je) with equal products, without size-1 dims at the
 * ends. */
static void next_group(const tt_type *x, const tt_type *y, int i, int j, int *ie, int *je)
{
    int64_t p = x->dims[i].size, r = y->dims[j].size;
    int a = i + 1, c = j + 1;
    while (p != r) {
        if (p < r && a < x->n_dims)
            p *= x->dims[a++].size;
        else if (p > r && c < y->n_dims)
            r *= y->dims[c++].size;
        else
            break; /* not reached when the numbers of elements agree */
    }
    *ie = a;
    *je = c;
}

/* Does a part of `fine`, which begins with a unit of `coarse`, begin with a unit of its own? */
static bool counts(const tt_dim *coarse, int64_t coarse_span, const tt_dim *fine, int64_t fine_span)
{
    const int64_t unit = coarse->unit * coarse_span, own = fine->unit * fine_span;
    return unit % own == 0 && coarse->size % coarse->unit == 0;
}

/* Letters for dim i of x and dim j of y, the first of a group that ends before ie and je. */
static void match_group(const tt_type *x, const tt_type *y, int i, int j, int ie, int je, char name,
                        letters *l)
{
    const tt_dim *dx = &x->dims[i], *dy = &y->dims[j];
    const int64_t sx = span_of(x, i, ie), sy = span_of(y, j, je);
    char *tx = l->of[0][i], *ty = l->of[1][j];
    const size_t size = sizeof l->of[0][0];
    if (units(dx) == units(dy) && dx->unit * sx == dy->unit * sy) {
        snprintf(tx, size, "%c", name);
        snprintf(ty, size, "%c", name);
    } else if (counts(dy, sy, dx, sx)) {
        snprintf(tx, size, "%c=(%c0 !%c1)", name, name, name);
        snprintf(ty, size, "%c0", name);
    } else if (counts(dx, sx, dy, sy)) {
        snprintf(tx, size, "%c0", name);
        snprintf(ty, size, "%c=(%c0 !%c1)", name, name, name);
    }
}

/* x and y have as many elements; where these are none, no group of dims says where they are. */
static void match(const tt_type *x, const tt_type *y, letters *l)
{
    int i = 0, j = 0;
    if (!tt_type_numel(x))
        return;
    for (char name = 'a';; name++) {
        while (i < x->n_dims && x->dims[i].size == 1)
            i++;
        while (j < y->n_dims && y->dims[j].size == 1)
            j++;
        if (i >= x->n_dims)
            return;
        int ie = i, je = j;
        next_group(x, y, i, j, &ie, &je);
        match_group(x, y, i, j, ie, je, name, l);
        i = ie;
        j = je;
    }
}

static void rule_reshape(const tt_shape_query *q, char *rule, size_t size)
{
    const tt_attrs_dims *a = q->attrs;
    tt_rule_text t = {.s = rule, .size = size};
    tt_type y = tt_type_make(q->in[0]->dtype, a->dims, a->n_dims);
    letters l = {{{{0}}}};
    match(q->in[0], &y, &l);
    for (int side = 0; side < 2; side++) {
        int n = side == 0 ? q->in[0]->n_dims : y.n_dims;
        if (side == 1)
            tt_rule_add(&t, " ->");
        for (int i = 0; i < n; i++) {
            if (l.of[side][i][0])
                tt_rule_add(&t, " %s", l.of[side][i]);
            else
                tt_rule_add(&t, " !%c%d", side == 0 ? 'u' : 'v', i);
        }
    }
}

static void vjp_reshape(tt_builder *b, tt_vjp *c)
{
    const tt_type *x = tt_value_type(c->in[0]);
    c->din[0] = tt_reshape(b, c->dout[0], x->dims, x->n_dims);
}

static tt_cost cost_reshape(const tt_shape_query *q, const tt_type *out)
{
    (void)q;
    (void)out;
    return (tt_cost){0}; /* a view moves nothing */
}

const tt_op_def tt_op_reshape = {.struct_size = sizeof(tt_op_def),
                                 .name = "reshape",
                                 .operands = "x → dims",
                                 .attributes = "tt_attrs_dims",
                                 .doc = "the elements of x, in the same order, under other dims",
                                 .flags = TT_OP_VIEW | TT_OP_NAMES_DIMS,
                                 .linear_inputs = 1,
                                 .attrs_size = sizeof(tt_attrs_dims),
                                 .n_out = 1,
                                 .infer = infer_reshape,
                                 .rule_for = rule_reshape,
                                 .vjp = vjp_reshape,
                                 .cost = cost_reshape};

tt_value *tt_reshape(tt_builder *b, tt_value *x, const tt_dim *dims, int n_dims)
{
    if (n_dims < 0 || n_dims > TT_MAX_DIMS)
        return tt_builder_fail(b, TT_EINVAL, "reshape: a value has at most %d dims, not %d",
                               TT_MAX_DIMS, n_dims);
    if (tt_builder_lacks_list(b, dims, n_dims, "reshape: the list of dims"))
        return tt_placeholder(b);
    tt_attrs_dims a = {.n_dims = n_dims};
    for (int i = 0; i < n_dims; i++)
        a.dims[i] = dims[i];
    return tt_emit1(b, "reshape", x, &a);
}
