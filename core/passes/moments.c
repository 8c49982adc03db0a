/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/rewrite.h"
#include "passes/measure.h"
#include "passes/update_impl.h"
#include <string.h>
#include <ttrun/quantize.h>

/* What an optimizer reads and writes: its states, which may be stored in few bits, and its parameters. */

/* States in float8 or dynamic codes have a scale for each 256 elements of a row; those of fewer elements
 * than FEW_ELEMENTS in a parameter stay f32. As torchao's 8-bit optimizers do, whose blocks pass over the ends
 * of rows. A block may be cut over ranks: its maximum is that of all. */
#define BLOCK_ELEMENTS 256
#define FEW_ELEMENTS 4096
static const tt_quantize_opts low_state = {.struct_size = sizeof low_state,
                                           .format = TT_LOW_E4M3,
                                           .rule = TT_SCALE_F32,
                                           .block_rows = 1,
                                           .block_cols = BLOCK_ELEMENTS};

static tt_value *read_stored(tt_builder *b, tt_state *s)
{
    tt_value *v = tt_state_read(b, s);
    return s->offloaded ? tt_load(b, v, 0, (int)s->type.dims[0].size) : v;
}

/* A state, as f32: it may be stored as bf16, float8 or codes. */
static tt_value *read_moment(tt_builder *b, tt_state *s)
{
    tt_value *v = read_stored(b, s);
    if (!s->scale)
        return tt_cast(b, v, tt_dtype_accumulate(s->type.dtype));
    tt_value *scale = read_stored(b, s->scale);
    s->as_read = s->type.dtype == TT_U8
                     ? tt_decode8_blocks(b, v, scale, BLOCK_ELEMENTS, s->positive)
                     : tt_dequantize(b, v, scale, &low_state);
    return s->as_read;
}

/* ---- parameters and states of few bits (R20) ---- */

/* Keys of these dims where the state is stored, so that each rank computes its own alone. */
static tt_value *random_keys(tt_builder *b, const tt_state *s, tt_type t, const uint64_t *streams)
{
    tt_attrs_random_keys a = {.n_streams = t.dims[0].size, .streams = streams};
    tt_placement place = s->place;
    t.dtype = TT_F32;
    for (int d = 0; d < t.n_dims; d++)
        if (t.dims[d].size == 1 && s->type.dims[d].size != 1)
            place.n[d] = 0;
    for (int d = 0; d < t.n_dims; d++)
        if (!place.n[d])
            memset(place.atom[d], 0, sizeof place.atom[d]);
    a.dims.n_dims = t.n_dims;
    memcpy(a.dims.dims, t.dims, sizeof t.dims);
    tt_node *n = tt_node_new(b, &tt_op_random_keys, NULL, 0, &t, &place, 1);
    n->attrs = tt_arena_dup(tt_builder_graph(b)->arena, &a, sizeof a);
    return n->out[0];
}

/* A number in [0,1) for each element of v, of the stack's members from `first` on: of the stream
 * "<parameter>.<state>" of each member (a parameter itself: "<parameter>.value"). They depend on the
 * step and on the element's index in the parameter. All elements of a row share a key, and so do those
 * of a column. */
static tt_value *random_members(tt_builder *b, const tt_state *s, int first, const tt_value *v)
{
    tt_arena *arena = tt_builder_graph(b)->arena;
    tt_type rows = s->type, columns = s->type;
    const int n = (int)v->type.dims[0].size, last = s->type.n_dims - 1;
    const char *what = s->suffix ? s->suffix : "value";
    rows.dims[0] = columns.dims[0] = v->type.dims[0];
    uint64_t *streams = tt_arena_array(arena, (size_t)n + 1, sizeof *streams);
    for (int i = 0; i < n; i++) {
        const char *name =
            tt_arena_printf(arena, "%s.%s", s->stack->members[first + i]->name, what);
        streams[i] = tt_hash64(name, strlen(name), 0);
    }
    if (last > 0)
        rows.dims[last] = TT_DIM(1, NULL);
    for (int d = 0; d < TT_MAXV(last, 1); d++)
        columns.dims[d] = TT_DIM(1, NULL);
    static const uint64_t column_stream = 0;
    tt_value *u[2] = {random_keys(b, s, rows, streams), random_keys(b, s, columns, &column_stream)};
    tt_op(b, "keyed_uniform", u, 2, NULL, u, 1);
    return u[0];
}

/* The scales of s: a state of their own, whose rows are those of s. */
static tt_state *scale_state(tt_builder *b, const tt_state *s)
{
    tt_graph *g = tt_builder_graph(b);
    const int last = s->type.n_dims - 1;
    tt_type t = s->type;
    tt_placement place = s->place;
    t.dtype = TT_F32;
    t.dims[last] = TT_DIM((t.dims[last].size + BLOCK_ELEMENTS - 1) / BLOCK_ELEMENTS, NULL);
    place.n[last] = 0;
    memset(place.atom[last], 0, sizeof place.atom[last]);
    tt_state *scale = tt_state_new(
        g, TT_STATE_OPTIMIZER, tt_arena_printf(g->arena, "%s_block_scale", s->name), &t, &place);
    scale->suffix = tt_arena_printf(g->arena, "%s_block_scale", s->suffix);
    scale->stack = s->stack;
    scale->stages = s->stages;
    scale->offloaded = s->offloaded;
    scale->first = s->first;
    return scale;
}

static tt_dtype stored_as(const tt_type *t, tt_dtype asked)
{
    int64_t member = 1;
    for (int d = 1; d < t->n_dims; d++)
        member *= t->dims[d].size;
    if (asked == TT_BF16 || (tt_dtype_size(asked) == 1 && member >= FEW_ELEMENTS))
        return asked;
    return tt_dtype_accumulate(t->dtype);
}

/* What an optimizer keeps: of the parameter's dims and the job's dtype, or as dynamic codes, and never negative
 * or not; a copy of it in f32; one number. */
typedef enum moment_kind { MOMENT, COPY, NUMBER } moment_kind;
typedef struct moment_form {
    moment_kind kind;
    bool dynamic8, positive, whole;
    int64_t rows, cols; /* in place of the parameter's; 0: its own */
} moment_form;

/* R13's whole(rows, cols): [stack, rows{dp}] → [stack{dp}, rows]. */
static void make_whole(tt_placement *place, int n_dims)
{
    for (int d = n_dims - 2; d < n_dims; d++) {
        for (int i = 0; i < place->n[d]; i++)
            place->atom[0][place->n[0]++] = place->atom[d][i];
        place->n[d] = 0;
        memset(place->atom[d], 0, sizeof place->atom[d]);
    }
}

static tt_state *new_moment(tt_graph *g, const tt_update_impl *i, const char *full,
                            const char *name, const moment_form *form)
{
    /* f32 for bf16 parameters, too, unless the job says otherwise: rounded to nearest, a running mean
     * in bf16 would not move where its rate is below 2^-9, so tt_assign rounds it stochastically. */
    tt_type t = i->stack->param->type;
    tt_placement place = i->stack->param->place;
    const moment_kind kind = form->kind;
    const tt_dtype asked = form->dynamic8 && i->dtype != TT_F8E4M3 ? TT_U8 : i->dtype;
    t.dtype = kind == MOMENT && !form->rows && !form->cols ? stored_as(&t, asked) : TT_F32;
    t.dims[0].size = i->n;
    for (int d = 1; kind == NUMBER && d < t.n_dims; d++) {
        t.dims[d] = TT_DIM(1, NULL);
        place.n[d] = 0;
        memset(place.atom[d], 0, sizeof place.atom[d]);
    }
    if (form->whole)
        make_whole(&place, t.n_dims);
    if (form->rows > 0)
        t.dims[t.n_dims - 2] = TT_DIM(form->rows, NULL);
    if (form->cols > 0)
        t.dims[t.n_dims - 1] = TT_DIM(form->cols, NULL);
    tt_state *s = tt_state_new(g, TT_STATE_OPTIMIZER, full, &t, &place);
    s->suffix = tt_arena_str(g->arena, name);
    s->stack = i->stack;
    s->stages = i->stack->param->stages;
    s->offloaded = i->offload && !form->whole; /* a load takes members, which ranks share out */
    s->first = i->first;
    s->copies = kind == COPY;
    s->positive = form->positive;
    return s;
}

/* Returns whether the builder has failed. */
static bool lacks_name(tt_builder *b, const tt_update *u, const char *name)
{
    return tt_builder_error(b) || tt_builder_lacks(b, u, "a state of an optimizer: the update") ||
           tt_builder_lacks(b, name, "a state of an optimizer: the name");
}

static tt_value *moment(tt_builder *b, const tt_update *u, const char *name,
                        const moment_form *form)
{
    if (lacks_name(b, u, name))
        return tt_placeholder(b);
    const tt_update_impl *i = (const tt_update_impl *)(const void *)u;
    tt_graph *g = tt_builder_graph(b);
    const char *full =
        i->n == i->stack->n
            ? tt_arena_printf(g->arena, "stack.%d.%s", i->stack->id, name)
            : tt_arena_printf(g->arena, "stack.%d.%s.%d", i->stack->id, name, i->first);
    if (i->known && tt_graph_state(g, TT_STATE_OPTIMIZER, full))
        return read_moment(b, tt_graph_state(g, TT_STATE_OPTIMIZER, full));
    if (tt_graph_state(g, TT_STATE_OPTIMIZER, full))
        return tt_builder_fail(b, TT_EEXIST, "optimizer state \"%s\" is asked for twice", name);
    tt_state *s = new_moment(g, i, full, name, form);
    s->scale = tt_dtype_size(s->type.dtype) == 1 ? scale_state(b, s) : NULL;
    return read_moment(b, s);
}

tt_value *tt_optimizer_state(tt_builder *b, const tt_update *u, const char *name)
{
    return moment(b, u, name, &(moment_form){.kind = MOMENT});
}

tt_value *tt_optimizer_state_as(tt_builder *b, const tt_update *u, const char *name,
                                const tt_state_opts *o)
{
    tt_state_opts all = {.struct_size = sizeof all};
    if (lacks_name(b, u, name) || tt_builder_lacks(b, o, "tt_optimizer_state_as: the options"))
        return tt_placeholder(b);
    memcpy(&all, o, TT_MIN(o->struct_size, sizeof all));
    const moment_form form = {.kind = MOMENT,
                              .dynamic8 = all.dynamic8,
                              .positive = all.positive,
                              .whole = all.whole,
                              .rows = all.rows,
                              .cols = all.cols};
    if (all.whole ? tt_value_type(u->param)->n_dims < 3 : all.rows > 0 || all.cols > 0)
        return tt_builder_fail(b, TT_EINVAL,
                               "optimizer state \"%s\": whole is for matrices, and rows and cols "
                               "of its own are for whole ones",
                               name);
    return moment(b, u, name, &form);
}

tt_value *tt_optimizer_copy(tt_builder *b, const tt_update *u, const char *name)
{
    return moment(b, u, name, &(moment_form){.kind = COPY});
}

tt_value *tt_optimizer_number(tt_builder *b, const tt_update *u, const char *name)
{
    return moment(b, u, name, &(moment_form){.kind = NUMBER});
}

void tt_optimizer_evaluate(tt_builder *b, const tt_update *u, tt_value *copy)
{
    const tt_update_impl *i = (const tt_update_impl *)(const void *)u;
    if (tt_builder_error(b) || tt_builder_lacks(b, u, "tt_optimizer_evaluate: the update") ||
        tt_builder_lacks(b, copy, "tt_optimizer_evaluate: the copy"))
        return;
    const tt_graph *g = tt_builder_graph(b);
    tt_state *s =
        copy->node->op == &tt_op_load ? copy->node->in[0]->node->state : copy->node->state;
    if (!s || !s->copies || s->stack != i->stack) {
        tt_builder_fail(b, TT_EINVAL, "tt_optimizer_evaluate: this is no copy of the stack");
        return;
    }
    for (size_t k = 0; k < g->states.n; k++) {
        const tt_state *other = g->states.items[k];
        if (other != s && other->evaluated && other->stack == s->stack && other->first == s->first)
            tt_builder_fail(
                b, TT_EINVAL,
                "%s and %s would both be evaluated: the optimizer averages by itself, so "
                "leave training.ema_decay out",
                other->suffix, s->suffix);
    }
    s->evaluated = !i->live;
}

tt_value *tt_whole_matrices(tt_builder *b, tt_value *x)
{
    if (tt_builder_error(b) || tt_builder_lacks(b, x, "tt_whole_matrices: the value"))
        return tt_placeholder(b);
    if (x->type.n_dims < 3)
        return tt_builder_fail(b, TT_EINVAL,
                               "tt_whole_matrices: a stack of matrices has at least 3 "
                               "dims, not %d",
                               x->type.n_dims);
    tt_placement whole = x->place;
    make_whole(&whole, x->type.n_dims);
    return tt_redistribute(b, x, &whole);
}

static tt_state *in_blocks(tt_builder *b, const tt_value *target)
{
    tt_graph *g = tt_builder_graph(b);
    for (size_t i = 0; i < g->states.n; i++)
        if (g->states.items[i]->as_read == target)
            return g->states.items[i];
    return NULL;
}

static void assign_blocks(tt_builder *b, tt_state *s, tt_value *value)
{
    tt_value *scale;
    value = tt_redistribute(b, value, &s->place);
    if (s->type.dtype == TT_U8) /* to the nearest */
        value = tt_encode8_blocks(b, value, BLOCK_ELEMENTS, s->positive, &scale);
    else
        value = tt_quantize_by(b, value, &low_state, random_members(b, s, s->first, value), &scale);
    if (tt_builder_error(b))
        return;
    tt_state_assign(b, s, value);
    tt_state_assign(b, s->scale, scale);
}

/* In a measured update nothing is written: the change of the parameters is what counts. */
static void measure_change(tt_builder *b, const tt_node *n, tt_value *target, tt_value *value)
{
    const tt_state *s = n->state;
    if (s->kind != TT_STATE_PARAM)
        return;
    value = tt_redistribute(b, value, &s->place);
    tt_value *change = tt_sub(b, tt_cast(b, value, TT_F32), tt_cast(b, target, TT_F32));
    tt_measure_stack(b, TT_MEASURED_UPDATE, s->stack,
                     n->op == &tt_op_load ? n->accumulate_index : 0, change);
}

/* The factor on new values of parameters (QK-clip) is on an optimizer's copies of them, too. */
static tt_value *with_factor(tt_builder *b, const tt_state *s, tt_value *value)
{
    const bool has = s && s->stack && s->stack->factor;
    if (!has || (s->kind != TT_STATE_PARAM && !s->copies))
        return value;
    return tt_mul(b, tt_redistribute(b, value, &s->place), s->stack->factor);
}

void tt_assign(tt_builder *b, tt_value *target, tt_value *value)
{
    if (tt_builder_error(b) || tt_builder_lacks(b, target, "tt_assign: the target") ||
        tt_builder_lacks(b, value, "tt_assign: the value"))
        return;
    tt_state *low = in_blocks(b, target);
    if (low && !tt_builder_measures(b))
        assign_blocks(b, low, value);
    if (low)
        return;
    const tt_node *n = target->node;
    if (tt_node_is_cast(n)) /* bf16 that the optimizer reads as f32 */
        n = n->in[0]->node;
    value = with_factor(b, n->state, value);
    if (n->state && n->state->type.dtype == TT_BF16 && n->state->stack) {
        const bool part = n->state->kind == TT_STATE_PARAM && n->op == &tt_op_load;
        const int first = n->state->first + (part ? n->accumulate_index : 0);
        tt_value *u = random_members(b, n->state, first, value);
        value = tt_stochastic_round(b, tt_redistribute(b, value, &n->state->place), u);
    }
    if (n->state && tt_builder_measures(b))
        measure_change(b, n, target, value);
    else if (n->op == &tt_op_load)
        tt_state_assign_members(b, n->state, n->accumulate_index, value);
    else if (n->op == &tt_op_state)
        tt_state_assign(b, n->state, value);
    else
        tt_builder_fail(b, TT_EINVAL, "tt_assign: the target is neither a parameter nor a state");
}
