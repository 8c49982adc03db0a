/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/builder_impl.h"
#include "graph/ops/internal.h"
#include <math.h>
#include <string.h>
#include <ttrun/option.h>
#include <ttrun/quantize.h>

/* tt_quantize, tt_dequantize and tt_hadamard, written as other ops, so that every backend has them and
 * the placement rules insert the maxima over ranks. A dim of blocks is seen as two dims, [blocks, elements
 * of a block]; a dim that ends within a block is padded with zeros first. Scales are computed as torchao
 * does (https://github.com/pytorch/ao: float8_utils.py, mx_tensor.py, nvfp4_tensor.py). */

typedef struct low_format {
    tt_dtype dtype;
    int mantissa;    /* fraction bits */
    int largest_exp; /* of the largest number */
    double largest, normal;
} low_format;

static const low_format formats[] = {
    [TT_LOW_E4M3] = {TT_F8E4M3, 3, 8,  448.0,   0x1p-6 },
    [TT_LOW_E5M2] = {TT_F8E5M2, 2, 15, 57344.0, 0x1p-14},
    [TT_LOW_E2M1] = {TT_F8E4M3, 1, 2,  6.0,     1.0    },
};

/* How x is seen: all its dims but the last two, and for each of these one dim, or two if it has blocks. */
typedef struct blocks {
    tt_type whole;              /* of x */
    tt_dim dims[TT_MAX_DIMS];   /* of x in blocks */
    tt_dim scales[TT_MAX_DIMS]; /* the same with size 1 where a scale is shared */
    tt_dim apart[TT_MAX_DIMS];  /* the scales' own dims, as many as x has */
    int n;
    int64_t pad[2]; /* elements after those of the last two dims */
} blocks;

/* The label of a dim whose elements are blocks. Heads must divide over the ranks that cut them, blocks of
 * several heads or of a part of one need not: they are cut as kv_heads are, only where they divide. */
static const char *block_label(const tt_dim *x)
{
    return x->label && !strcmp(x->label, "heads") ? "kv_heads" : x->label;
}

/* Dim d of x in blocks of `size` elements; 0: all of them. */
static void add_dim(blocks *v, int d, int64_t size, int64_t *pad)
{
    const tt_dim x = v->whole.dims[d], one = TT_DIM(1, NULL);
    if (size == 1) {
        v->apart[d] = v->dims[v->n] = v->scales[v->n] = x;
        v->n++;
    } else if (size <= 0 || size >= x.size) {
        v->dims[v->n] = x;
        v->apart[d] = v->scales[v->n++] = one;
    } else {
        const int64_t n = (x.size + size - 1) / size;
        *pad = n * size - x.size;
        const bool of_units = x.unit % size == 0 && !*pad;
        tt_dim outer = TT_DIM(n, of_units ? x.label : block_label(&x));
        if (of_units)
            outer.unit = x.unit / size;
        if (x.lines > 1 && !*pad && n % x.lines == 0)
            outer.lines = x.lines;
        v->apart[d] = v->dims[v->n] = v->scales[v->n] = outer;
        v->dims[++v->n] = TT_DIM(size, NULL);
        v->scales[v->n++] = one;
    }
}

static blocks see(const tt_type *x, int64_t rows, int64_t cols)
{
    blocks v = {.whole = *x};
    const int r = x->n_dims - 2;
    for (int d = 0; d < r; d++)
        add_dim(&v, d, 1, &v.pad[0]);
    add_dim(&v, r, rows, &v.pad[0]);
    add_dim(&v, r + 1, cols, &v.pad[1]);
    return v;
}

static tt_value *to_blocks(tt_builder *b, const blocks *v, tt_value *x)
{
    const int r = v->whole.n_dims - 2;
    for (int i = 0; i < 2; i++)
        if (v->pad[i]) {
            tt_type t = *tt_value_type(x);
            tt_dim *d = &t.dims[r + i];
            if (block_label(d) != d->label) {
                *d = TT_DIM(d->size, block_label(d));
                x = tt_reshape(b, x, t.dims, t.n_dims);
            }
            x = tt_pad(b, x, r + i, 0, v->pad[i], 0.0);
        }
    return v->n == v->whole.n_dims ? x : tt_reshape(b, x, v->dims, v->n);
}

static tt_value *from_blocks(tt_builder *b, const blocks *v, tt_value *x)
{
    tt_type t = v->whole;
    const int r = t.n_dims - 2;
    for (int i = 0; i < 2; i++)
        if (v->pad[i])
            t.dims[r + i] =
                TT_DIM(t.dims[r + i].size + v->pad[i], block_label(&v->whole.dims[r + i]));
    if (v->n != t.n_dims)
        x = tt_reshape(b, x, t.dims, t.n_dims);
    bool differs = false; /* in the heads that a padded dim has */
    for (int i = 0; i < 2; i++)
        if (v->pad[i]) {
            const tt_dim *d = &v->whole.dims[r + i];
            x = tt_slice(b, x, r + i, 0, d->size);
            differs = differs || block_label(d) != d->label || d->unit != 1 || d->lines != 1;
        }
    return differs ? tt_reshape(b, x, v->whole.dims, v->whole.n_dims) : x;
}

static tt_value *number(tt_builder *b, double value)
{
    return tt_const(b, value, TT_F32);
}

/* The largest |x| of each block: f32, in dims of size 1 where x has a block's elements. */
static tt_value *block_amax(tt_builder *b, const blocks *v, tt_value *x)
{
    x = tt_abs(b, x);
    for (int d = v->n - 1; d >= 0; d--)
        if (v->scales[d].size == 1 && v->dims[d].size != 1)
            x = tt_max(b, x, d, 1);
    return x;
}

/* ---- scales: *times is what x is multiplied by, the result what q is multiplied by ---- */

static tt_value *scale_f32(tt_builder *b, const low_format *f, tt_value *amax, bool pow2,
                           tt_value **times)
{
    tt_value *least = tt_less_equal(b, amax, number(b, (double)1e-12f));
    tt_value *m = tt_select(b, least, number(b, (double)(float)(f->largest / 1e-12)),
                            tt_div(b, number(b, f->largest), amax));
    *times = pow2 ? tt_floor_pow2(b, m) : m;
    return tt_div(b, number(b, 1.0), *times);
}

static tt_value *scale_mx_floor(tt_builder *b, const low_format *f, tt_value *amax,
                                tt_value **times)
{
    tt_value *p = tt_mul(b, tt_floor_pow2(b, amax), number(b, ldexp(1.0, -f->largest_exp)));
    p = tt_clamp(b, p, 0x1p-126, ldexp(1.0, 128 - f->largest_exp)); /* the upper end: of infinity */
    *times = tt_div(b, number(b, 1.0), p);
    return p;
}

static tt_value *scale_mx_rceil(tt_builder *b, const low_format *f, tt_value *amax,
                                tt_value **times)
{
    tt_value *d = tt_mul(b, amax, number(b, (double)(1.0f / (float)f->largest)));
    tt_value *p = tt_floor_pow2(b, d), *two = number(b, 2.0);
    p = tt_select(b, tt_less(b, p, d), tt_mul(b, p, two), p);
    p = tt_clamp(b, p, 0x1p-126, 0x1p127);
    tt_value *none = tt_less_equal(b, d, number(b, 0x1p-127)); /* the block rounds to 0 */
    *times = tt_select(b, none, number(b, 1.0), tt_div(b, number(b, 1.0), p));
    return p;
}

/* A scale in e4m3 for each block, relative to one for the tensor, whose largest block has 448. */
static tt_value *scale_nv(tt_builder *b, const low_format *f, tt_value *amax, tt_value **times)
{
    tt_value *all = amax, *one = number(b, 1.0), *zero = number(b, 0.0);
    for (int d = tt_value_type(amax)->n_dims - 1; d >= 0; d--)
        all = tt_max(b, all, d, 1);
    tt_value *whole = tt_div(b, all, number(b, 448.0 * f->largest));
    whole = tt_select(b, tt_equal(b, all, zero), one, whole);
    tt_value *s = tt_div(b, tt_div(b, amax, number(b, f->largest)), whole);
    s = tt_cast(b, tt_cast(b, tt_clamp(b, s, 0x1p-6, 448.0), TT_F8E4M3), TT_F32);
    *times = tt_div(b, tt_div(b, one, whole), s);
    return tt_mul(b, s, whole);
}

static tt_value *scales(tt_builder *b, const tt_quantize_opts *o, tt_value *amax, tt_value **times)
{
    const low_format *f = &formats[o->format];
    switch (o->rule) {
    case TT_SCALE_MX_FLOOR:
        return scale_mx_floor(b, f, amax, times);
    case TT_SCALE_MX_RCEIL:
        return scale_mx_rceil(b, f, amax, times);
    case TT_SCALE_NV:
        return scale_nv(b, f, amax, times);
    default:
        return scale_f32(b, f, amax, o->rule == TT_SCALE_POW2, times);
    }
}

/* ---- rounding ---- */

/* x to a number of the format: the nearest, of two the even one; or with u in [0,1) the one away from 0
 * if u is at least 1 - the fraction of the way there. Every step is exact but the rounding. */
static tt_value *rounded(tt_builder *b, const low_format *f, tt_value *x, tt_value *u)
{
    tt_value *a = tt_minimum(b, tt_abs(b, x), number(b, f->largest));
    tt_value *unit = tt_mul(b, tt_maximum(b, tt_floor_pow2(b, a), number(b, f->normal)),
                            number(b, ldexp(1.0, -f->mantissa)));
    tt_value *t = tt_div(b, a, unit), *n = tt_round(b, t);
    if (u) {
        tt_value *one = number(b, 1.0);
        tt_value *low = tt_select(b, tt_less(b, t, n), tt_sub(b, n, one), n);
        tt_value *up = tt_less_equal(b, tt_sub(b, one, tt_sub(b, t, low)), u);
        n = tt_select(b, up, tt_add(b, low, one), low);
    }
    n = tt_mul(b, n, unit);
    return tt_select(b, tt_less(b, x, number(b, 0.0)), tt_neg(b, n), n);
}

/* A number in [0,1) for each element of x, from a random key for each row and one for each column: the
 * keys cost little, and a row of the token dim has its token's. */
static tt_value *uniform(tt_builder *b, const tt_type *x, const char *stream)
{
    tt_arena *arena = tt_builder_graph(b)->arena;
    tt_dim rows[TT_MAX_DIMS], cols[TT_MAX_DIMS];
    for (int d = 0; d < x->n_dims; d++) {
        rows[d] = d < x->n_dims - 1 ? x->dims[d] : TT_DIM(1, NULL);
        cols[d] = d < x->n_dims - 1 ? TT_DIM(1, NULL) : x->dims[d];
    }
    const char *of_rows = tt_arena_printf(arena, "%s.rows", stream);
    const char *of_cols = tt_arena_printf(arena, "%s.columns", stream);
    return tt_emit2(b, "keyed_uniform", tt_random(b, rows, x->n_dims, of_rows, 0),
                    tt_random(b, cols, x->n_dims, of_cols, 0), NULL);
}

/* ---- what is exported ---- */

static bool refused(tt_builder *b, const char *what, tt_value *x, const tt_quantize_opts *o)
{
    const tt_type *t = tt_value_type(x);
    if (t->n_dims < 2 || t->n_dims > TT_MAX_DIMS - 2 || !tt_dtype_is_float(t->dtype))
        tt_builder_fail(b, TT_EINVAL, "%s: the value must be a float of 2 to %d dims, not %s of %d",
                        what, TT_MAX_DIMS - 2, tt_dtype_name(t->dtype), t->n_dims);
    else if (!o || (unsigned)o->format >= TT_COUNT(formats) ||
             (unsigned)o->rule > (unsigned)TT_SCALE_NV || o->block_rows < 0 || o->block_cols < 0)
        tt_builder_fail(b, TT_EINVAL, "%s: the options name no format, rule or size of a block",
                        what);
    else
        return false;
    return true;
}

/* Marks v for the pass narrow. */
static tt_value *mark(const tt_builder *b, tt_value *v, const tt_quantize_opts *o)
{
    if (!tt_builder_error(b) && TT_HAS(o, tt_quantize_opts, before_gather))
        v->node->before_gather = o->before_gather != 0;
    return v;
}

tt_value *tt_amax(tt_builder *b, tt_value *x, const tt_quantize_opts *o)
{
    if (refused(b, "tt_amax", x, o))
        return x;
    x = tt_cast(b, x, TT_F32);
    const blocks v = see(tt_value_type(x), o->block_rows, o->block_cols);
    tt_value *amax = mark(b, block_amax(b, &v, to_blocks(b, &v, x)), o);
    return v.n == v.whole.n_dims ? amax : tt_reshape(b, amax, v.apart, v.whole.n_dims);
}

/* The inverse of what the caller multiplies by. */
static tt_value *given_scale(tt_builder *b, const blocks *v, tt_value *given, tt_value **times)
{
    *times = tt_reshape(b, given, v->scales, v->n);
    return tt_div(b, number(b, 1.0), *times);
}

tt_value *tt_quantize(tt_builder *b, tt_value *x, const tt_quantize_opts *o, tt_value **scale)
{
    if (tt_builder_lacks_result(b, scale, "tt_quantize: the pointer to the scale") ||
        tt_builder_lacks(b, x, "tt_quantize: the value") || refused(b, "tt_quantize", x, o))
        return tt_placeholder(b);
    if (o->stochastic && !(o->stream && o->stream[0]))
        return tt_builder_fail(b, TT_EINVAL,
                               "tt_quantize: stochastic rounding needs the name of a stream");
    return tt_quantize_by(b, x, o, o->stochastic ? uniform(b, tt_value_type(x), o->stream) : NULL,
                          scale);
}

tt_value *tt_quantize_by(tt_builder *b, tt_value *x, const tt_quantize_opts *o, tt_value *u,
                         tt_value **scale)
{
    const low_format *f = &formats[o->format];
    x = tt_cast(b, x, TT_F32);
    const blocks v = see(tt_value_type(x), o->block_rows, o->block_cols);
    tt_value *parts = to_blocks(b, &v, x), *times = NULL;
    tt_value *given = TT_HAS(o, tt_quantize_opts, times) ? o->times : NULL;
    tt_value *s =
        given ? given_scale(b, &v, given, &times) : scales(b, o, block_amax(b, &v, parts), &times);
    *scale = tt_reshape(b, s, v.apart, v.whole.n_dims);
    tt_value *y = from_blocks(b, &v, tt_mul(b, parts, times));
    if (given)
        y = tt_clamp(b, y, -f->largest, f->largest);
    if (u || o->format == TT_LOW_E2M1)
        y = rounded(b, f, y, u);
    return mark(b, tt_cast(b, y, f->dtype), o);
}

tt_value *tt_dequantize(tt_builder *b, tt_value *q, tt_value *scale, const tt_quantize_opts *o)
{
    if (tt_builder_lacks(b, q, "tt_dequantize: the value") ||
        tt_builder_lacks(b, scale, "tt_dequantize: the scale") || refused(b, "tt_dequantize", q, o))
        return tt_placeholder(b);
    q = tt_cast(b, q, TT_F32);
    const blocks v = see(tt_value_type(q), o->block_rows, o->block_cols);
    tt_value *s = tt_reshape(b, scale, v.scales, v.n);
    return from_blocks(b, &v, tt_mul(b, to_blocks(b, &v, q), s));
}

/* ---- dynamic codes ---- */

/* For x of any dims but none; a block is a part of a row. */
tt_value *tt_encode8_blocks(tt_builder *b, tt_value *x, int64_t block, bool positive,
                            tt_value **scale)
{
    x = tt_cast(b, x, TT_F32);
    const blocks v = see(tt_value_type(x), 1, block);
    tt_value *parts = to_blocks(b, &v, x);
    tt_value *s = tt_maximum(b, block_amax(b, &v, parts), number(b, (double)1e-12f));
    *scale = tt_reshape(b, s, v.apart, v.whole.n_dims);
    x = from_blocks(b, &v, tt_div(b, parts, s));
    return tt_cast(b, tt_emit1(b, positive ? "encode8u" : "encode8", x, NULL), TT_U8);
}

tt_value *tt_decode8_blocks(tt_builder *b, tt_value *codes, tt_value *scale, int64_t block,
                            bool positive)
{
    tt_value *x = tt_cast(b, codes, TT_F32);
    x = tt_emit1(b, positive ? "decode8u" : "decode8", x, NULL);
    const blocks v = see(tt_value_type(x), 1, block);
    tt_value *s = tt_reshape(b, scale, v.scales, v.n);
    return from_blocks(b, &v, tt_mul(b, to_blocks(b, &v, x), s));
}

/* ---- the rotation ---- */

/* x in [0,16) as 0 and 1: whether bit i is set */
static tt_value *bit(tt_builder *b, tt_value *x, int i)
{
    tt_value *shifted = tt_floor_div(b, x, number(b, (double)(1 << i)));
    return tt_mod(b, shifted, number(b, 2.0));
}

/* [16,16]: (-1)^(bits that i and j share) / 4, column j times -1 where TransformerEngine's diagonal is. */
static tt_value *hadamard_matrix(tt_builder *b)
{
    const tt_dim dims[] = {TT_DIM(16, NULL), TT_DIM(16, NULL)};
    static const unsigned char negative[] = {3, 5, 6, 7, 8, 9, 10, 12, 14, 15};
    tt_value *i = tt_iota(b, dims, 2, 0, TT_F32), *j = tt_iota(b, dims, 2, 1, TT_F32);
    tt_value *shared = tt_mul(b, bit(b, i, 0), bit(b, j, 0));
    for (int k = 1; k < 4; k++)
        shared = tt_add(b, shared, tt_mul(b, bit(b, i, k), bit(b, j, k)));
    for (size_t k = 0; k < TT_COUNT(negative); k++) {
        tt_value *at = tt_equal(b, j, number(b, (double)negative[k]));
        shared = tt_add(b, shared, tt_cast(b, at, TT_F32));
    }
    tt_value *odd = tt_mod(b, shared, number(b, 2.0));
    return tt_sub(b, number(b, 0.25), tt_mul(b, odd, number(b, 0.5)));
}

tt_value *tt_hadamard(tt_builder *b, tt_value *x)
{
    const tt_quantize_opts o = {.block_rows = 16, .block_cols = 1};
    if (refused(b, "tt_hadamard", x, &o))
        return x;
    x = tt_cast(b, x, TT_F32);
    tt_type t = *tt_value_type(x);
    const int r = t.n_dims - 2;
    const int64_t pad = (16 - t.dims[r].size % 16) % 16;
    if (pad) {
        x = tt_pad(b, x, r, 0, pad, 0.0);
        t = *tt_value_type(x);
    }
    blocks v = see(&t, 16, 1);
    if (t.dims[r].size == 16) { /* one block, which see() leaves as it is */
        v.dims[r + 2] = v.dims[r + 1];
        v.dims[r + 1] = TT_DIM(16, NULL);
        v.dims[r] = TT_DIM(1, NULL);
        v.n++;
    }
    tt_dim dims[TT_MAX_DIMS];
    for (int d = 0; d <= r; d++)
        dims[d] = v.dims[d];
    dims[r + 1] = dims[r + 2] = TT_DIM(16, NULL);
    tt_value *h = tt_broadcast_to(b, hadamard_matrix(b), dims, v.n);
    return tt_reshape(b, tt_matmul(b, h, tt_reshape(b, x, v.dims, v.n), 0, 0), t.dims, t.n_dims);
}
