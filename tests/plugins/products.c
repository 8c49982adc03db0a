/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>
#include <ttrun/converter.h>

/* products.so, built by test_products.sh against the public headers alone. Each converter replaces
 * products and, with "file", writes a line for each: "layer role name [in,out]".
 *   same     the product itself, built anew: no bit may change
 *   powers   the same of operands that were divided by a power of two that their maximum gives,
 *            and multiplied by it: no bit may change either
 *   rolls    the same of an operand whose tokens were moved by one and back, for which a rank needs all
 *   gram     the same with a sum over all tokens, added and taken away
 *   times    the product times `factor`
 *   last     as times, with TT_CONVERTER_FINAL
 *   rough    the product of operands with 4 bits, whose scale is the tensor's maximum
 *   delayed  the same with the maximum of the last four steps, a state
 *   wrong    a result of another shape; wrong, rough, delayed and adapter are left out with -DSOUND
 *   adapter  linear(): the layer plus a layer of its own with parameters */

typedef struct {
    const char *file, *scope;
    double factor;
} config;

static const tt_option options[] = {
    TT_OPTION_MORE(config, file, TT_OPT_STRING, "null", 0, 0, NULL, TT_OPT_NULLABLE, NULL,
                   "where to write"),
    TT_OPTION(config, scope, TT_OPT_STRING, "\"adapter\"", 0, 0, "of the adapter's parameters"),
    TT_OPTION(config, factor, TT_OPT_FLOAT, "2.0", -1e3, 1e3, "factor on the product"),
};

static tt_value *op2(tt_builder *b, const char *op, tt_value *x, tt_value *y)
{
    tt_value *in[2] = {x, y}, *out = NULL;
    tt_op(b, op, in, 2, NULL, &out, 1);
    return out;
}

static tt_value *op3(tt_builder *b, const char *op, tt_value *x, tt_value *y, tt_value *counts)
{
    tt_value *in[3] = {x, y, counts}, *out = NULL;
    tt_op(b, op, in, 3, NULL, &out, 1);
    return out;
}

static tt_value *again(tt_builder *b, const tt_product *p, tt_value *x, tt_value *y)
{
    static const char *const one[] = {"linear", "linear_dx", "linear_dw"};
    static const char *const grouped[] = {"grouped_linear", "grouped_linear_dx",
                                          "grouped_linear_dw"};
    if (p->layer == TT_PRODUCT_LINEAR)
        return op2(b, one[p->role], x, y);
    if (p->layer == TT_PRODUCT_GROUPED)
        return op3(b, grouped[p->role], x, y, p->counts);
    return x; /* attention: an operand */
}

static void note(const config *c, const tt_product *p)
{
    static const char *const layers[] = {"linear", "grouped", "attention"};
    static const char *const roles[] = {"forward", "grad_input", "grad_weight"};
    FILE *f = c->file ? fopen(c->file, "a") : NULL;
    if (!f)
        return;
    fprintf(f, "%s %s %s [%lld,%lld]%s%s\n", layers[p->layer], roles[p->role], p->param,
            (long long)p->in, (long long)p->out, p->tags[0] ? " " : "", p->tags);
    fclose(f);
}

static tt_value *same(const void *self, tt_builder *b, const tt_product *p)
{
    note((const config *)self, p);
    return again(b, p, p->a, p->b);
}

/* The largest absolute value of the whole tensor, kept as one element per row and column. */
static tt_value *largest(tt_builder *b, tt_value *x)
{
    return tt_max(b, tt_max(b, tt_abs(b, tt_cast(b, x, TT_F32)), 1, 1), 0, 1);
}

/* x / p * p, where the tensor's maximum decides whether p is 2 or 4. */
static tt_value *by_power(tt_builder *b, tt_value *x)
{
    tt_value *two = tt_const(b, 2.0, TT_F32), *four = tt_const(b, 4.0, TT_F32);
    tt_value *p = tt_select(b, tt_less(b, tt_const(b, 0.25, TT_F32), largest(b, x)), two, four);
    return tt_cast(b, tt_mul(b, tt_div(b, tt_cast(b, x, TT_F32), p), p), tt_value_type(x)->dtype);
}

static tt_value *powers(const void *self, tt_builder *b, const tt_product *p)
{
    note((const config *)self, p);
    return again(b, p, by_power(b, p->a), p->b ? by_power(b, p->b) : NULL);
}

static tt_value *rolls(const void *self, tt_builder *b, const tt_product *p)
{
    (void)self;
    if (p->layer != TT_PRODUCT_LINEAR)
        return NULL;
    return again(b, p, tt_roll(b, tt_roll(b, p->a, 0, 1), 0, -1), p->b);
}

/* dy + (z - z), where z = dy · (dyᵀ · dy) needs all tokens at once. */
static tt_value *gram(const void *self, tt_builder *b, const tt_product *p)
{
    (void)self;
    if (p->layer != TT_PRODUCT_LINEAR || p->role != TT_PRODUCT_GRAD_INPUT)
        return NULL;
    tt_value *z = op2(b, "linear_dx", p->a, op2(b, "linear_dw", p->a, p->a));
    return again(b, p, tt_add(b, p->a, tt_sub(b, z, z)), p->b);
}

static tt_value *times(const void *self, tt_builder *b, const tt_product *p)
{
    const config *c = (const config *)self;
    note(c, p);
    return tt_scale(b, again(b, p, p->a, p->b), c->factor);
}

static tt_value *wrong(const void *self, tt_builder *b, const tt_product *p)
{
    (void)self;
    return p->layer == TT_PRODUCT_ATTENTION ? NULL : tt_sum_all(b, p->a);
}

/* x as an integer times the tensor's largest value over 7: 4 bits. */
static tt_value *rough(tt_builder *b, tt_value *x)
{
    tt_value *step = tt_scale(b, tt_maximum(b, largest(b, x), tt_const(b, 1e-30, TT_F32)), 1.0 / 7);
    tt_value *half = tt_const(b, 0.5, TT_F32);
    return tt_mul(b, tt_floor(b, tt_add(b, tt_div(b, tt_cast(b, x, TT_F32), step), half)), step);
}

static tt_value *four_bits(const void *self, tt_builder *b, const tt_product *p)
{
    (void)self;
    return again(b, p, rough(b, p->a), p->b ? rough(b, p->b) : NULL);
}

/* The largest value of this step moves to the front of the last four. */
static tt_value *shifted(tt_builder *b, tt_value *history, tt_value *stat, void *user)
{
    const tt_dim one = TT_DIM(1, NULL);
    tt_value *both[2] = {tt_reshape(b, stat, &one, 1), tt_slice(b, history, 0, 0, 3)};
    (void)user;
    return tt_concat(b, both, 2, 0);
}

/* x with 4 bits by the largest value of the last four steps; as it is in the first step. */
static tt_value *delayed_operand(tt_builder *b, const tt_product *p, const char *name, tt_value *x)
{
    const tt_dim four = TT_DIM(4, NULL);
    tt_value *history = tt_converter_state(b, p, name, &four, 1, NULL);
    tt_value *most = tt_max(b, history, 0, 1), *none = tt_const(b, 0.0, TT_F32);
    tt_value *step = tt_scale(b, tt_maximum(b, most, tt_const(b, 1e-30, TT_F32)), 1.0 / 7);
    tt_value *half = tt_const(b, 0.5, TT_F32), *f = tt_cast(b, x, TT_F32);
    tt_value *q = tt_mul(b, tt_floor(b, tt_add(b, tt_div(b, f, step), half)), step);
    tt_converter_update(b, history, largest(b, x), shifted, NULL);
    return tt_select(b, tt_less(b, none, most), q, f);
}

static tt_value *delayed(const void *self, tt_builder *b, const tt_product *p)
{
    (void)self;
    return again(b, p, delayed_operand(b, p, "a", p->a),
                 p->b ? delayed_operand(b, p, "b", p->b) : NULL);
}

/* "…self_attn.q_proj.weight" → "q_proj" */
static void short_name(const char *name, char *out, size_t size)
{
    const char *end = strrchr(name, '.'), *begin = end;
    size_t n;
    while (begin && begin > name && begin[-1] != '.')
        begin--;
    n = begin ? (size_t)(end - begin) : 0;
    n = n < size ? n : size - 1;
    memcpy(out, begin ? begin : name, n);
    out[n] = 0;
}

static tt_value *adapter(const void *self, tt_builder *b, const char *name, tt_value *x,
                         tt_value *w)
{
    const config *c = (const config *)self;
    FILE *f = c->file ? fopen(c->file, "a") : NULL;
    const tt_dim rank = TT_DIM(4, NULL), out = tt_value_type(w)->dims[0];
    char own[64];
    if (f) {
        fprintf(f, "layer %s\n", name);
        fclose(f);
    }
    short_name(name, own, sizeof own);
    tt_scope(b, "%s_%s", c->scope, own);
    tt_value *y = tt_linear(b, tt_linear(b, x, "a", rank, NULL), "b", out, NULL);
    tt_scope_end(b);
    return tt_add(b, tt_linear_w(b, x, w), tt_scale(b, y, c->factor));
}

static const tt_converter_vt same_vt = {.struct_size = sizeof(same_vt), .product = same};
static const tt_converter_vt powers_vt = {.struct_size = sizeof(powers_vt), .product = powers};
static const tt_converter_vt rolls_vt = {.struct_size = sizeof(rolls_vt), .product = rolls};
static const tt_converter_vt gram_vt = {.struct_size = sizeof(gram_vt), .product = gram};
static const tt_converter_vt times_vt = {.struct_size = sizeof(times_vt), .product = times};
static const tt_converter_vt last_vt = {
    .struct_size = sizeof(last_vt), .product = times, .flags = TT_CONVERTER_FINAL};
static const tt_converter_vt wrong_vt = {.struct_size = sizeof(wrong_vt), .product = wrong};
static const tt_converter_vt rough_vt = {.struct_size = sizeof(rough_vt), .product = four_bits};
static const tt_converter_vt delayed_vt = {.struct_size = sizeof(delayed_vt), .product = delayed};
static const tt_converter_vt adapter_vt = {.struct_size = sizeof(adapter_vt), .linear = adapter};
static const tt_component components[] = {
    TT_COMPONENT(TT_KIND_CONVERTER, "same", "no change", config, options, &same_vt),
    TT_COMPONENT(TT_KIND_CONVERTER, "powers", "no change", config, options, &powers_vt),
    TT_COMPONENT(TT_KIND_CONVERTER, "rolls", "no change", config, options, &rolls_vt),
    TT_COMPONENT(TT_KIND_CONVERTER, "gram", "no change", config, options, &gram_vt),
    TT_COMPONENT(TT_KIND_CONVERTER, "times", "a factor", config, options, &times_vt),
#ifndef SOUND
    TT_COMPONENT(TT_KIND_CONVERTER, "wrong", "a wrong shape", config, options, &wrong_vt),
    TT_COMPONENT(TT_KIND_CONVERTER, "rough", "4 bits", config, options, &rough_vt),
    TT_COMPONENT(TT_KIND_CONVERTER, "delayed", "4 bits", config, options, &delayed_vt),
    TT_COMPONENT(TT_KIND_CONVERTER, "adapter", "a layer more", config, options, &adapter_vt),
#endif
    TT_COMPONENT(TT_KIND_CONVERTER, "last", "a factor, final", config, options, &last_vt),
};
TT_PLUGIN("products", "1.0", components);
