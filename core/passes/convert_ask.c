/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/op.h"
#include "graph/rewrite.h"
#include "passes/convert_impl.h"

/* What the pass convert and the placing of attention share: checks of what a converter returns, and
 * attention's operands, which are converted one by one. */

bool tt_convert_has_shape(tt_builder *b, const tt_convert_opts *o, int i, const tt_product *p,
                          const tt_value *y, const tt_type *t)
{
    char got[256], want[256];
    bool same = y->type.n_dims == t->n_dims && tt_dtype_is_float(y->type.dtype);
    for (int d = 0; same && d < t->n_dims; d++)
        same = y->type.dims[d].size == t->dims[d].size;
    if (same)
        return true;
    tt_type_print(&y->type, got, sizeof got);
    tt_type_print(t, want, sizeof want);
    tt_builder_fail(b, TT_EINVAL, "%s: product() of %s returned %s, must be %s",
                    o->name(o->user, i), p->param, got, want);
    return false;
}

tt_value *tt_convert_with_dtype(tt_builder *b, tt_value *y, tt_dtype to)
{
    const tt_attrs_cast a = {.to = to};
    if (y->place.partial_max) {
        tt_placement whole = y->place;
        whole.partial = 0;
        whole.partial_max = 0;
        y = tt_redistribute(b, y, &whole);
    }
    if (y->type.dtype == to)
        return y;
    const bool was = tt_builder_follow(b, true);
    tt_op(b, "cast", &y, 1, &a, &y, 1);
    tt_builder_follow(b, was);
    return y;
}

void tt_convert_check_final(tt_builder *b, const tt_convert_opts *o, int i, const tt_product *p,
                            const tt_param_info *info)
{
    for (int k = i + 1; k < o->n; k++) {
        const tt_value *y = o->product(o->user, k, b, p, info);
        if (y && y != p->a && !tt_builder_error(b))
            tt_builder_fail(b, TT_EINVAL,
                            "%s converts the product %s of %s, which %s has converted and no other "
                            "may change: list it before, or leave the layer out by filter or roles",
                            o->name(o->user, k), tt_product_roles[p->role], p->param,
                            o->name(o->user, i));
    }
}

/* ---- operands of attention ---- */

static const char *const operands[] = {"q", "k", "v", "dout"};

void tt_convert_describe_operand(tt_builder *b, int operand, tt_value *v, const char *scope,
                                 tt_product *p)
{
    const tt_dim *d = &v->type.dims[v->type.n_dims - 1];
    *p = (tt_product){.struct_size = sizeof *p,
                      .role = operand < 3 ? TT_PRODUCT_FORWARD : TT_PRODUCT_GRAD_INPUT,
                      .layer = TT_PRODUCT_ATTENTION,
                      .param =
                          tt_arena_printf(tt_builder_graph(b)->arena, "%s%s%s", scope ? scope : "",
                                          scope && *scope ? "." : "", operands[operand]),
                      .tags = "",
                      .in = d->unit,
                      .out = d->size / d->unit,
                      .a = v};
}

tt_value *tt_convert_ask_operand(tt_builder *b, const tt_convert_opts *o, tt_product *p)
{
    const tt_type t = p->a->type;
    tt_value *made = NULL;
    for (int i = 0; i < o->n; i++) {
        tt_value *y = o->product(o->user, i, b, p, NULL);
        if (tt_builder_error(b) || !y || y == p->a)
            continue;
        if (!tt_convert_has_shape(b, o, i, p, y, &t))
            return NULL;
        if (o->is_final(o->user, i))
            tt_convert_check_final(b, o, i, p, NULL);
        p->a = made = tt_convert_with_dtype(b, y, t.dtype);
    }
    return made;
}

tt_value *tt_convert_operand(tt_builder *b, const tt_convert_opts *o, int operand, tt_value *v)
{
    tt_product p;
    v = tt_to_stage(b, v);
    if (tt_builder_error(b))
        return v;
    tt_convert_describe_operand(b, operand, v, tt_builder_scope(b), &p);
    tt_builder_inner(b, true);
    tt_value *y = tt_convert_ask_operand(b, o, &p);
    tt_builder_inner(b, false);
    return y ? tt_straight_through(b, v, y) : v;
}
