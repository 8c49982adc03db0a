/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/ops/internal.h"

/* reshape: the same elements in row-major order under other dims. Dims that match one to one keep
 * their cut. Where one dim of unit u stands against several, [n, a, b] with a*b = u and n its
 * units, the major one keeps it: heads split from head_dim. All others must be whole. */

static tt_status infer(const tt_shape_query *q, tt_type *out, tt_error *err)
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

/* One dim of unit u against n > 1 dims: does the first of them hold its units? */
static bool major_matches(const tt_dim *one, const tt_dim *many, int n)
{
    int64_t rest = many[0].unit;
    for (int i = 1; i < n; i++)
        rest *= many[i].size;
    return one->unit == rest && units(one) == units(&many[0]);
}

typedef struct letters {
    char of[2][TT_MAX_DIMS]; /* of the input's and output's dims; 0 = its own, whole */
} letters;

/* The next dims [i, *ie) and [j, *je) with equal products, size-1 dims at their ends left out. */
static void next_group(const tt_type *x, const tt_type *y, int i, int j, int *ie, int *je)
{
    int64_t p = i < x->n_dims ? x->dims[i].size : 1, r = j < y->n_dims ? y->dims[j].size : 1;
    int a = i + (i < x->n_dims), c = j + (j < y->n_dims);
    while (p != r) {
        if (p < r && a < x->n_dims)
            p *= x->dims[a++].size;
        else if (p > r && c < y->n_dims)
            r *= y->dims[c++].size;
        else
            break; /* not reached when the numbers of elements agree and none is 0 */
    }
    *ie = a;
    *je = c;
}

static void match(const tt_type *x, const tt_type *y, letters *l)
{
    int i = 0, j = 0;
    char next = 'a';
    for (;;) {
        while (i < x->n_dims && x->dims[i].size == 1)
            i++;
        while (j < y->n_dims && y->dims[j].size == 1)
            j++;
        if (i >= x->n_dims || j >= y->n_dims)
            return;
        int ie = i, je = j;
        next_group(x, y, i, j, &ie, &je);
        int n = ie - i, m = je - j;
        bool shared = false;
        if (n == 1 && m == 1)
            shared =
                units(&x->dims[i]) == units(&y->dims[j]) && x->dims[i].lines == y->dims[j].lines;
        else if (n == 1)
            shared = major_matches(&x->dims[i], &y->dims[j], m);
        else if (m == 1)
            shared = major_matches(&y->dims[j], &x->dims[i], n);
        if (shared)
            l->of[0][i] = l->of[1][j] = next++;
        i = ie;
        j = je;
    }
}

static void rule_for(const tt_shape_query *q, char *rule, size_t size)
{
    const tt_attrs_dims *a = q->attrs;
    tt_rule_text t = {.s = rule, .size = size};
    tt_type y = tt_type_make(q->in[0]->dtype, a->dims, a->n_dims);
    letters l = {{{0}}};
    match(q->in[0], &y, &l);
    for (int side = 0; side < 2; side++) {
        int n = side == 0 ? q->in[0]->n_dims : y.n_dims;
        if (side == 1)
            tt_rule_add(&t, " ->");
        for (int i = 0; i < n; i++) {
            if (l.of[side][i])
                tt_rule_add(&t, " %c", l.of[side][i]);
            else
                tt_rule_add(&t, " !%c%d", side == 0 ? 'u' : 'v', i);
        }
    }
}

static void vjp(tt_builder *b, tt_vjp *c)
{
    const tt_type *x = tt_value_type(c->in[0]);
    c->din[0] = tt_reshape(b, c->dout[0], x->dims, x->n_dims);
}

static tt_cost cost(const tt_shape_query *q, const tt_type *out)
{
    (void)q;
    (void)out;
    return (tt_cost){0}; /* nothing moves where it is a view */
}

const tt_op_def tt_op_reshape = {.struct_size = sizeof(tt_op_def),
                                 .name = "reshape",
                                 .operands = "x → dims",
                                 .attributes = "tt_attrs_dims",
                                 .doc = "the same elements under other dims",
                                 .flags = TT_OP_VIEW | TT_OP_NAMES_DIMS,
                                 .linear_inputs = 1,
                                 .attrs_size = sizeof(tt_attrs_dims),
                                 .n_out = 1,
                                 .infer = infer,
                                 .rule_for = rule_for,
                                 .vjp = vjp,
                                 .cost = cost};

tt_value *tt_reshape(tt_builder *b, tt_value *x, const tt_dim *dims, int n_dims)
{
    if (n_dims < 0 || n_dims > TT_MAX_DIMS)
        return tt_builder_fail(b, TT_EINVAL, "reshape: a value has at most %d dims, not %d",
                               TT_MAX_DIMS, n_dims);
    tt_attrs_dims a = {.n_dims = n_dims};
    for (int i = 0; i < n_dims; i++)
        a.dims[i] = dims[i];
    return tt_emit1(b, "reshape", x, &a);
}
