/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/ops/internal.h"
#include <ttrun/arrays.h>

/* decode_codes: the numbers that codes stand for (<ttrun/codes.h>), rounded once to the dtype that is
 * asked for. Columns of NF4 keep their blocks: [out, blocks, 64]. */

static tt_status infer_codes(const tt_shape_query *q, tt_type *out, tt_error *err)
{
    const tt_attrs_codes *a = q->attrs;
    const bool nf4 = a->format == TT_CODES_NF4;
    TT_TRY(tt_want_inputs(q, 2, 2, err));
    TT_TRY(tt_want_rank(q, 0, "the codes", nf4 ? 3 : 2, err));
    TT_TRY(tt_want_rank(q, 1, "absmax", 2, err));
    TT_TRY(tt_want_equal(q, 0, 0, 1, 0, err));
    if (a->format != TT_CODES_NF4 && a->format != TT_CODES_INT8)
        return tt_infer_fail(q, err, "there is no format %d", (int)a->format);
    if (q->in[0]->dtype != TT_U8 || q->in[1]->dtype != TT_F32)
        return tt_infer_fail(q, err, "codes are u8 and absmax f32");
    if (nf4)
        TT_TRY(tt_want_equal(q, 0, 1, 1, 1, err));
    if (nf4 ? q->in[0]->dims[2].size != TT_NF4_BYTES : q->in[1]->dims[1].size != 1)
        return tt_infer_fail(q, err,
                             "codes are [out, blocks, 32] with absmax [out, blocks] (nf4), or "
                             "[out, in] with absmax [out, 1] (int8)");
    out[0] = *q->in[0];
    out[0].dtype = (tt_dtype)a->to;
    if (nf4)
        out[0].dims[2] = TT_DIM(TT_NF4_BLOCK, NULL);
    return TT_OK;
}

static void rule_codes(const tt_shape_query *q, char *rule, size_t size)
{
    const tt_attrs_codes *a = q->attrs;
    snprintf(rule, size, "%s",
             a->format == TT_CODES_NF4 ? "o n !c, o n -> o n !e" : "o i, o !u -> o i");
}

static tt_value *f32_const(tt_builder *b, double x)
{
    return tt_const(b, x, TT_F32);
}

/* [out, blocks, 32] bytes → [out, blocks, 64] codes in f32 */
static tt_value *nibbles(tt_builder *b, tt_value *bytes)
{
    const tt_type *t = tt_value_type(bytes);
    const tt_dim two = TT_DIM(2, NULL);
    tt_dim apart[4] = {t->dims[0], t->dims[1], t->dims[2], TT_DIM(1, NULL)};
    tt_value *x = tt_reshape(b, bytes, apart, 4);
    apart[3] = two;
    x = tt_broadcast_to(b, x, apart, 4);
    /* divided by 16 for the first, by 1 for the second */
    tt_value *place = tt_iota(b, &two, 1, 0, TT_F32);
    tt_value *by = tt_sub(b, f32_const(b, 16), tt_mul(b, place, f32_const(b, 15)));
    x = tt_mod(b, tt_floor_div(b, x, by), f32_const(b, 16));
    apart[2] = TT_DIM(TT_NF4_BLOCK, NULL);
    return tt_reshape(b, x, apart, 3);
}

/* Each code's level: of the 16 terms all but one are 0. */
static tt_value *level_of(tt_builder *b, tt_value *code)
{
    const float *levels = tt_nf4_levels();
    tt_value *y = NULL;
    for (int k = 0; k < 16; k++) {
        tt_value *is = tt_cast(b, tt_equal(b, code, f32_const(b, k)), TT_F32);
        tt_value *term = tt_mul(b, is, f32_const(b, (double)levels[k]));
        y = y ? tt_add(b, y, term) : term;
    }
    return y;
}

static void decompose_codes(tt_builder *b, const tt_shape_query *q, tt_value *const *in,
                            tt_value **outs)
{
    const tt_attrs_codes *a = q->attrs;
    tt_value *x = tt_cast(b, in[0], TT_F32), *s = in[1];
    if (a->format == TT_CODES_NF4) {
        x = tt_mul(b, level_of(b, nibbles(b, x)), tt_unsqueeze_last(b, s));
    } else { /* two's complement */
        tt_value *negative = tt_cast(b, tt_less(b, f32_const(b, 127), x), TT_F32);
        x = tt_sub(b, x, tt_mul(b, negative, f32_const(b, 256)));
        x = tt_mul(b, tt_mul(b, x, s), f32_const(b, (double)TT_INT8_STEP));
    }
    outs[0] = tt_cast(b, x, (tt_dtype)a->to);
}

static tt_cost cost_codes(const tt_shape_query *q, const tt_type *out)
{
    return tt_cost_move(q, out);
}

static void print_codes(const void *attrs, char *text, size_t size)
{
    const tt_attrs_codes *a = attrs;
    snprintf(text, size, "%s", a->format == TT_CODES_NF4 ? "nf4" : "int8");
}

const tt_op_def tt_op_decode_codes = {
    .struct_size = sizeof(tt_op_def),
    .name = "decode_codes",
    .operands = "codes u8, absmax f32 → numbers",
    .attributes = "tt_attrs_codes",
    .doc = "the numbers that codes of a weight stand for: nf4 [o,n,32], [o,n] → [o,n,64], int8 "
           "[o,i], [o,1] → [o,i]",
    .flags = TT_OP_NO_GRADIENT,
    .attrs_size = sizeof(tt_attrs_codes),
    .n_out = 1,
    .infer = infer_codes,
    .rule_for = rule_codes,
    .decompose = decompose_codes,
    .cost = cost_codes,
    .print_attrs = print_codes};
