/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/builder_impl.h"
#include "graph/ops/internal.h"
#include <math.h>

/* rope: rotary positions on x [T, heads*head_dim] at pos i32 [T]. Su et al. 2021, arXiv:2104.09864.
 * The angles are computed in f64, cos and sin rounded to f32. Linear in x; its derivative is the
 * rotation by the negative angle. */

static bool divisors_ok(const tt_rope_opts *o)
{
    for (int64_t j = 0; o->divisors && j < o->rotary_dim / 2; j++)
        if (!(o->divisors[j] > 0.0) || !isfinite(o->divisors[j]))
            return false;
    return o->divisors != NULL;
}

static tt_status infer_rope(const tt_shape_query *q, tt_type *out, tt_error *err)
{
    const tt_rope_opts *o = &((const tt_attrs_rope *)q->attrs)->opts;
    TT_TRY(tt_want_inputs(q, 2, 2, err));
    TT_TRY(tt_want_rank(q, 0, "x", 2, err));
    TT_TRY(tt_want_float(q, 0, "x", err));
    TT_TRY(tt_want_rank(q, 1, "pos", 1, err));
    TT_TRY(tt_want_i32(q, 1, "pos", err));
    TT_TRY(tt_want_equal(q, 0, 0, 1, 0, err));
    const tt_dim *d = &q->in[0]->dims[1];
    if (o->head_dim <= 0 || d->size % o->head_dim != 0)
        return tt_infer_fail(q, err, "x's last dim must be a multiple of head_dim %lld",
                             (long long)o->head_dim);
    if (d->label != NULL && d->unit % o->head_dim != 0)
        return tt_infer_fail(
            q, err,
            "x's last dim \"%s\" must have head_dim %lld as its unit, not %lld (TT_DIM_UNIT)",
            d->label, (long long)o->head_dim, (long long)d->unit);
    if (o->rotary_dim <= 0 || o->rotary_dim > o->head_dim || o->rotary_dim % 2 != 0)
        return tt_infer_fail(q, err, "rotary_dim %lld must be even and at most head_dim %lld",
                             (long long)o->rotary_dim, (long long)o->head_dim);
    if (!(o->theta > 0.0) || !(o->factor > 0.0) || !isfinite(o->theta) || !isfinite(o->factor))
        return tt_infer_fail(q, err, "theta %g and factor %g must be positive", o->theta,
                             o->factor);
    if ((unsigned)o->scaling > TT_ROPE_LONGROPE)
        return tt_infer_fail(q, err, "unknown scaling %d", (int)o->scaling);
    if (o->scaling == TT_ROPE_LONGROPE && !divisors_ok(o))
        return tt_infer_fail(q, err, "longrope needs rotary_dim/2 = %lld positive divisors",
                             (long long)(o->rotary_dim / 2));
    if (o->scaling == TT_ROPE_LLAMA3 && !(o->high_freq_factor >= o->low_freq_factor))
        return tt_infer_fail(q, err, "high_freq_factor %g is below low_freq_factor %g",
                             o->high_freq_factor, o->low_freq_factor);
    out[0] = *q->in[0];
    return TT_OK;
}

static void vjp_rope(tt_builder *b, tt_vjp *c)
{
    tt_attrs_rope a = *(const tt_attrs_rope *)c->attrs;
    a.inverse = !a.inverse;
    if (c->want[0])
        c->din[0] = tt_emit2(b, "rope", c->dout[0], c->in[1], &a);
}

static tt_cost cost_rope(const tt_shape_query *q, const tt_type *out)
{
    return tt_cost_make(q, out, 1, 3.0 * tt_numel(&out[0]));
}

static void print_rope(const void *attrs, char *text, size_t size)
{
    static const char *const scaling[] = {"", " linear", " llama3", " yarn", " longrope"};
    const tt_attrs_rope *a = attrs;
    const unsigned s = (unsigned)a->opts.scaling;
    snprintf(text, size, "head_dim=%lld theta=%g%s%s%s", (long long)a->opts.head_dim, a->opts.theta,
             s < TT_COUNT(scaling) ? scaling[s] : "", a->opts.interleaved ? " interleaved" : "",
             a->inverse ? " inverse" : "");
}

const tt_op_def tt_op_rope = {.struct_size = sizeof(tt_op_def),
                              .name = "rope",
                              .operands = "x f[T,H*hd], pos i[T] → [T,H*hd]",
                              .attributes = "tt_attrs_rope",
                              .doc = "rotary position embedding: pairs of elements of each head "
                                     "are rotated by pos times the pair's frequency (tt_rope_opts)",
                              .rule = "t h, t -> t h",
                              .linear_inputs = 1,
                              .attrs_size = sizeof(tt_attrs_rope),
                              .flags = TT_OP_ROTARY,
                              .n_out = 1,
                              .infer = infer_rope,
                              .vjp = vjp_rope,
                              .cost = cost_rope,
                              .print_attrs = print_rope};

static double or_default(double v, double otherwise)
{
    return v == 0.0 ? otherwise : v;
}

/* What the papers recommend. */
static double attention_factor(const tt_rope_opts *o)
{
    if (!(o->factor > 1.0))
        return 1.0;
    return o->scaling == TT_ROPE_LONGROPE
               ? sqrt(1.0 + log(o->factor) / log(o->original_max_position))
               : 0.1 * log(o->factor) + 1.0;
}

tt_value *tt_rope(tt_builder *b, tt_value *x, tt_value *pos, const tt_rope_opts *opts)
{
    if (opts == NULL)
        return tt_builder_fail(b, TT_EINVAL, "rope: options with head_dim are needed");
    tt_attrs_rope a = {.opts = *opts};
    tt_rope_opts *o = &a.opts;
    if (o->rotary_dim == 0)
        o->rotary_dim = o->head_dim;
    o->theta = or_default(o->theta, 10000.0);
    o->factor = or_default(o->factor, 1.0);
    o->low_freq_factor = or_default(o->low_freq_factor, 1.0);
    o->high_freq_factor = or_default(o->high_freq_factor, 4.0);
    o->original_max_position = or_default(o->original_max_position, 8192.0);
    o->beta_fast = or_default(o->beta_fast, 32.0);
    o->beta_slow = or_default(o->beta_slow, 1.0);
    o->attention_factor = or_default(o->attention_factor, attention_factor(o));
    if (o->scaling == TT_ROPE_LONGROPE && o->divisors && o->rotary_dim > 0)
        o->divisors =
            tt_arena_dup(b->arena, o->divisors, (size_t)(o->rotary_dim / 2) * sizeof *o->divisors);
    else
        o->divisors = NULL;
    return tt_emit2(b, "rope", x, pos, &a);
}
