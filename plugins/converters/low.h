/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_PLUGIN_LOW_H
#define TT_PLUGIN_LOW_H
#include <float.h>
#include <ttrun/converter.h>
#include <ttrun/quantize.h>

/* What the recipes of low precision share: quantizing the two operands of a product, and the product of
 * the quantized numbers. An operand has blocks `along` the dim over which the product sums and `across`
 * it, whatever its layout is. */

typedef enum low_side { LOW_A, LOW_B } low_side;

/* Is the sum over the rows of this operand? Otherwise it is over its columns. */
static inline int low_sums_rows(const tt_product *p, low_side side)
{
    return p->role == TT_PRODUCT_GRAD_WEIGHT || (p->role == TT_PRODUCT_GRAD_INPUT && side == LOW_B);
}

/* Is this operand the layer's gradient dy, or its weight? If it is none of them, it is the input x. */
static inline int low_is_gradient(const tt_product *p, low_side side)
{
    return side == LOW_A && p->role != TT_PRODUCT_FORWARD;
}
static inline int low_is_weight(const tt_product *p, low_side side)
{
    return side == LOW_B && p->role != TT_PRODUCT_GRAD_WEIGHT;
}

/* Blocks of `along` by `across` elements; 0: all of them. */
static inline tt_quantize_opts low_blocks(const tt_product *p, low_side side, tt_low_format format,
                                          tt_scale_rule rule, int64_t along, int64_t across)
{
    const int rows = low_sums_rows(p, side);
    tt_quantize_opts o = {0};
    o.struct_size = sizeof o;
    o.format = format;
    o.rule = rule;
    o.block_rows = rows ? along : across;
    o.block_cols = rows ? across : along;
    return o;
}

static inline tt_value *low_product(tt_builder *b, const tt_product *p, tt_value *x, tt_value *y)
{
    static const char *const ops[2][3] = {
        {"linear",         "linear_dx",         "linear_dw"        },
        {"grouped_linear", "grouped_linear_dx", "grouped_linear_dw"}
    };
    tt_value *in[3] = {x, y, p->counts}, *out = NULL;
    tt_op(b, ops[p->layer][p->role], in, p->counts ? 3 : 2, NULL, &out, 1);
    return out;
}

/* The scales of an operand with one block along the sum, [1 or n, 1] or [1, 1 or n], as a factor of the
 * product's rows (LOW_A) or columns (LOW_B). */
static inline tt_value *low_factor(tt_builder *b, const tt_product *p, low_side side, tt_value *s)
{
    static const int swap[] = {1, 0};
    const int is_row = low_sums_rows(p, side), wants_row = side == LOW_B;
    return is_row == wants_row ? s : tt_transpose(b, s, swap);
}

/* Is it one scale for the whole tensor? */
static inline int low_is_one(const tt_value *s)
{
    const tt_type *t = tt_value_type(s);
    return t->n_dims == 2 && t->dims[0].size == 1 && t->dims[1].size == 1;
}

/* The product times the scales of one operand. A sum over ranks stays pending, so that a gradient is
 * reduced to its shards and not to the whole. */
static inline tt_value *low_times(tt_builder *b, const tt_product *p, tt_value *product,
                                  low_side side, tt_value *s)
{
    tt_value *in[2] = {product,
                       low_is_one(s) ? tt_reshape(b, s, NULL, 0) : low_factor(b, p, side, s)};
    tt_value *out = NULL;
    tt_op(b, "scale_by", in, 2, NULL, &out, 1);
    return out;
}

/* Moves the power of two of one, a scale of a whole tensor, to the other operand's scales: a sum times either of
 * them would be infinite where large numbers meet small ones, whose product is not. No bit changes otherwise. */
static inline void low_balance(tt_builder *b, tt_value **one, tt_value **other)
{
    tt_value *least = tt_const(b, (double)FLT_MIN, TT_F32);
    tt_value *most = tt_const(b, (double)FLT_MAX, TT_F32);
    tt_value *power = tt_maximum(b, tt_floor_pow2(b, *one), least);
    *one = tt_div(b, *one, power);
    *other = tt_minimum(b, tt_mul(b, *other, tt_reshape(b, power, NULL, 0)), most);
}

/* The product of x and y, quantized by ox and oy. Where each has one scale along the sum, and one of them one
 * for the tensor, the scales multiply the sum, as torch._scaled_mm does; otherwise they multiply the numbers,
 * which are then not rounded again if scales are powers of 2. */
static inline tt_value *low_scaled_product(tt_builder *b, const tt_product *p, tt_value *x,
                                           const tt_quantize_opts *ox, tt_value *y,
                                           const tt_quantize_opts *oy)
{
    tt_value *sx = NULL, *sy = NULL;
    tt_value *qx = tt_quantize(b, x, ox, &sx), *qy = tt_quantize(b, y, oy, &sy);
    const int along_x = !(low_sums_rows(p, LOW_A) ? ox->block_rows : ox->block_cols);
    const int along_y = !(low_sums_rows(p, LOW_B) ? oy->block_rows : oy->block_cols);
    if (p->layer != TT_PRODUCT_LINEAR || !along_x || !along_y ||
        !(low_is_one(sx) || low_is_one(sy)))
        return low_product(b, p, tt_dequantize(b, qx, sx, ox), tt_dequantize(b, qy, sy, oy));
    if (low_is_one(sx))
        low_balance(b, &sx, &sy);
    else
        low_balance(b, &sy, &sx);
    tt_value *sum = low_product(b, p, tt_cast(b, qx, TT_F32), tt_cast(b, qy, TT_F32));
    return low_times(b, p, low_times(b, p, sum, LOW_A, sx), LOW_B, sy);
}

#endif
