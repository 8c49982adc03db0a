/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/builder_impl.h"
#include <math.h>
#include <string.h>

/* What a builder keeps while describe() runs: scopes and blocks, inputs, parameters, outputs. */

tt_builder *tt_builder_new(tt_arena *a, const tt_builder_opts *o)
{
    tt_builder *b = tt_arena_alloc(a, sizeof *b);
    b->arena = a;
    b->opts = *o;
    b->block = -1;
    b->scope = "";
    b->g = tt_arena_alloc(a, sizeof *b->g);
    b->g->arena = a;
    b->when = tt_when_intern(b->g, (tt_when){.region = TT_FORWARD});
    b->g->ops = o->ops;
    b->g->n_stages = 1;
    b->g->tokens = o->tokens;
    b->g->sequences = o->sequences;
    b->g->precision = o->precision;
    b->g->context = o->context;
    b->g->line = o->line;
    b->g->alignment = o->alignment ? o->alignment : TT_ALIGNMENT;
    b->g->outputs = tt_map_new(a);
    b->inputs = tt_map_new(a);
    b->param_values = tt_map_new(a);
    b->rules = tt_map_new(a);
    b->last_fetch = tt_map_new(a);
    return b;
}

tt_builder *tt_builder_new_placed(tt_arena *a, const tt_builder_opts *o, const tt_mesh *m,
                                  const tt_label_table *t)
{
    tt_builder *b = tt_builder_new(a, o);
    b->g->placed = true;
    b->g->mesh = m;
    b->g->labels = t;
    return b;
}

tt_graph *tt_builder_graph(tt_builder *b)
{
    return b->g;
}

bool tt_builder_lacks(tt_builder *b, const void *p, const char *what)
{
    if (!p)
        tt_builder_fail(b, TT_EINVAL, "%s is NULL", what);
    return !p;
}

bool tt_builder_lacks_list(tt_builder *b, const void *list, int n, const char *what)
{
    return n > 0 && tt_builder_lacks(b, list, what);
}

bool tt_builder_lacks_result(tt_builder *b, tt_value **p, const char *what)
{
    if (p)
        *p = tt_placeholder(b);
    return tt_builder_lacks(b, p, what);
}

/* ---- scopes and blocks ---- */

static const char *scope_name(tt_builder *b, const char *fmt, va_list ap)
{
    if (tt_builder_lacks(b, fmt, "the name of a scope or block"))
        return b->scope;
    char *name = tt_arena_vprintf(b->arena, fmt, ap);
    return b->scope[0] ? tt_arena_printf(b->arena, "%s.%s", b->scope, name) : name;
}

void tt_scope(tt_builder *b, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    tt_vec_push(b->arena, &b->scopes, b->scope);
    b->scope = scope_name(b, fmt, ap);
    va_end(ap);
}

void tt_scope_end(tt_builder *b)
{
    if (!b->scopes.n) {
        tt_builder_fail(b, TT_EINVAL, "tt_scope_end without tt_scope");
        return;
    }
    b->scope = b->scopes.items[--b->scopes.n];
}

void tt_block(tt_builder *b, const char *fmt, ...)
{
    if (tt_local_refuses(b, "tt_block"))
        return;
    if (b->in_block) {
        tt_builder_fail(b, TT_EINVAL, "tt_block inside a block: blocks do not nest");
        return;
    }
    va_list ap;
    va_start(ap, fmt);
    tt_vec_push(b->arena, &b->scopes, b->scope);
    b->scope = scope_name(b, fmt, ap);
    va_end(ap);
    b->in_block = true;
    b->block = b->g->n_blocks++;
}

void tt_block_end(tt_builder *b)
{
    if (!b->in_block) {
        tt_builder_fail(b, TT_EINVAL, "tt_block_end without tt_block");
        return;
    }
    b->in_block = false;
    b->block = -1;
    tt_scope_end(b);
}

const char *tt_dropout_stream(tt_builder *b, const char *name)
{
    return tt_arena_printf(b->arena, "%s.%s", b->scope, name);
}

/* ---- inputs, outputs, losses ---- */

/* The placement of an input: a rank has the sequences of its data rank (R4). A part of them costs
 * nothing; an op that needs more of an input costs an all-gather. */
static tt_placement input_placement(const tt_builder *b)
{
    tt_placement p = {0};
    const tt_axis *dp = b->g->placed ? tt_mesh_axis(b->g->mesh, "dp") : NULL;
    if (!dp)
        return p;
    p.n[0] = (uint8_t)tt_prefix_dividing(b->g->mesh, &dp->atoms, b->g->sequences);
    for (int i = 0; i < p.n[0]; i++)
        p.atom[0][i] = dp->atoms.atom[i];
    return p;
}

static void no_such_input(tt_builder *b, const char *name)
{
    tt_str have = {0};
    tt_str_add(&have, "ids, labels, pos, seg, token_index");
    for (int i = 0; i < b->opts.n_inputs; i++)
        tt_str_printf(&have, ", %s", b->opts.inputs[i].name);
    tt_builder_fail(b, TT_EINVAL, "there is no input \"%s\": %s gives %s", name,
                    b->opts.inputs ? "the dataloader" : "a batch without a dataloader",
                    tt_str_get(&have));
    tt_str_free(&have);
}

/* The dtype and dim of an input; false: there is no input of this name. */
static bool input_type(tt_builder *b, const char *name, tt_type *t)
{
    static const char *const given[] = {"ids", "labels", "pos", "seg", "token_index"};
    const size_t n = strcspn(name, TT_INPUT_SPREAD TT_INPUT_SHIFT TT_INPUT_COPY);
    t->dtype = TT_I32;
    t->dims[0] = tt_dim_make(b->g->tokens, TT_LABEL_TOKENS, 1, b->g->sequences);
    for (size_t i = 0; i < TT_COUNT(given); i++)
        if (strlen(given[i]) == n && !strncmp(name, given[i], n))
            return true;
    if (b->opts.use == TT_BUILD_GENERATE &&
        !strncmp(name, TT_INPUT_LONGER, strlen(TT_INPUT_LONGER)))
        return true;
    const tt_input_info *x = NULL;
    tt_input_info opened;
    for (int i = 0; i < b->opts.n_inputs && !x; i++)
        if (strlen(b->opts.inputs[i].name) == n && !strncmp(name, b->opts.inputs[i].name, n))
            x = &b->opts.inputs[i];
    if (!x && b->opts.open_input &&
        b->opts.open_input(b->opts.open_user, tt_arena_strn(b->arena, name, n), &opened))
        x = &opened;
    if (!x) {
        no_such_input(b, name);
        return false;
    }
    t->dtype = x->dtype;
    if (x->per_sample && (!name[n] || name[n] == TT_INPUT_COPY[0]))
        t->dims[0] = TT_DIM(b->g->sequences, NULL);
    return true;
}

tt_value *tt_input_per_token(tt_builder *b, const char *name)
{
    if (tt_builder_lacks(b, name, "tt_input_per_token: the name"))
        return tt_placeholder(b);
    for (int i = 0; i < b->opts.n_inputs; i++)
        if (b->opts.inputs[i].per_sample && !strcmp(b->opts.inputs[i].name, name))
            return tt_input(b, tt_arena_printf(b->arena, "%s" TT_INPUT_SPREAD, name));
    return tt_input(b, name);
}

tt_value *tt_input_shifted(tt_builder *b, const char *name, int k)
{
    if (tt_builder_lacks(b, name, "tt_input_shifted: the name"))
        return tt_placeholder(b);
    tt_value *v = b->failed ? NULL : tt_input_per_token(b, name); /* it is there, and per token */
    if (k < 0)
        return tt_builder_fail(b, TT_EINVAL, "tt_input_shifted: %d tokens ahead", k);
    if (!v || !k || strchr(v->node->input_name, TT_INPUT_SPREAD[0]))
        return v ? v : tt_placeholder(b); /* a sample's value is that of all its tokens */
    return tt_input(b, tt_arena_printf(b->arena, "%s" TT_INPUT_SHIFT "%d", name, k));
}

tt_value *tt_input(tt_builder *b, const char *name)
{
    tt_type t = {.n_dims = 1};
    if (tt_builder_lacks(b, name, "tt_input: the name") || b->failed || !input_type(b, name, &t))
        return tt_placeholder(b);
    const char *key = tt_arena_printf(b->arena, "%s@%d", name, b->when->stage);
    tt_value *v = tt_map_get(b->inputs, key);
    if (v)
        return v;
    const tt_placement p = input_placement(b);
    tt_node *n = tt_node_new(b, &tt_op_input, NULL, 0, &t, &p, 1);
    tt_when w = *n->when;
    w.region = TT_FORWARD; /* the host fills it before the forward; the backward reads it, too */
    n->when = tt_when_intern(b->g, w);
    n->block = -1;
    n->input_name = tt_arena_str(b->arena, name);
    tt_map_set(b->inputs, key, n->out[0]);
    return n->out[0];
}

void tt_output(tt_builder *b, const char *name, tt_value *v)
{
    if (tt_local_refuses(b, "tt_output") || tt_builder_lacks(b, name, "tt_output: the name") ||
        tt_builder_lacks(b, v, "tt_output: the value"))
        return;
    tt_map_set(b->g->outputs, name, v);
}

/* ---- parameters ---- */

static tt_param_info *param_info(tt_builder *b, const char *full, const tt_type *t,
                                 const tt_param_opts *o)
{
    static const tt_param_opts none;
    if (!o)
        o = &none;
    tt_param_info *p = tt_arena_alloc(b->arena, sizeof *p);
    p->name = full;
    p->type = p->whole = *t;
    p->init = o->init;
    if (p->init.kind == TT_INIT_TRUNC_NORMAL) {
        if (p->init.a <= 0)
            p->init.a = 0.02;
        if (p->init.lo == 0 && p->init.hi == 0)
            p->init.lo = -2, p->init.hi = 2;
    }
    p->tags = o->tags ? tt_arena_str(b->arena, o->tags) : "";
    p->frozen = o->frozen != 0;
    p->group = -1;
    p->converter = b->converting;
    p->declared = 1;
    p->stages = 1;
    p->n_storage = o->n_storage;
    tt_storage *st = tt_arena_array(b->arena, o->n_storage, sizeof *st);
    for (size_t i = 0; i < o->n_storage; i++) {
        st[i] = o->storage[i];
        st[i].name = tt_arena_str(b->arena, o->storage[i].name ? o->storage[i].name : full);
    }
    p->storage = st;
    p->number = (int)b->g->params.n;
    tt_vec_push(b->arena, &b->g->params, p);
    return p;
}

static bool is_used(const tt_graph *g, const tt_value *v)
{
    for (size_t i = 0; i < g->nodes.n; i++)
        for (int k = 0; k < g->nodes.items[i]->n_in; k++)
            if (g->nodes.items[i]->in[k] == v)
                return true;
    return false;
}

/* A converter declares a parameter that the model or another converter has: two adapters of one layer. */
static tt_value *declared_by_another(tt_builder *b, const tt_param_info *p)
{
    if (!p->converter)
        return tt_builder_fail(b, TT_EINVAL, "parameter %s is the model's: choose another name",
                               p->name);
    return tt_builder_fail(
        b, TT_EINVAL,
        "parameter %s is that of converters[%d] already: leave this layer to one "
        "of the two converters, by their targets or filter",
        p->name, p->converter - 1);
}

tt_value *tt_param(tt_builder *b, const char *name, const tt_dim *dims, int n_dims,
                   const tt_param_opts *opts)
{
    if (tt_local_refuses(b, "tt_param") || tt_builder_lacks(b, name, "tt_param: the name") ||
        tt_builder_lacks_list(b, dims, n_dims, "tt_param: the list of dims"))
        return tt_placeholder(b);
    if (b->g->placed)
        return tt_builder_fail(b, TT_EINVAL,
                               "parameter %s: only describe() and a converter's linear() declare "
                               "parameters",
                               name);
    const char *full = b->scope[0] ? tt_arena_printf(b->arena, "%s.%s", b->scope, name)
                                   : tt_arena_str(b->arena, name);
    if (n_dims < 0 || n_dims > TT_MAX_DIMS - 1)
        return tt_builder_fail(b, TT_EINVAL,
                               "parameter %s: it has %d dims; a parameter has at most %d", full,
                               n_dims, TT_MAX_DIMS - 1);
    tt_type t = {.dtype = b->opts.precision.param, .n_dims = n_dims};
    int64_t numel = 1;
    for (int i = 0; i < n_dims; i++) {
        t.dims[i] = dims[i];
        if (dims[i].size < 1 || dims[i].unit < 1 || dims[i].size % dims[i].unit ||
            !tt_mul_i64(numel, dims[i].size, &numel))
            return tt_builder_fail(b, TT_EINVAL,
                                   "parameter %s: dim %d of size %lld in units of %lld", full, i,
                                   (long long)dims[i].size, (long long)dims[i].unit);
    }
    tt_value *v = tt_map_get(b->param_values, full);
    if (v && v->node->param->converter != b->converting)
        return declared_by_another(b, v->node->param);
    if (v) {
        if (tt_type_has_dims(&v->type, dims, n_dims)) {
            v->node->param->declared += is_used(b->g, v);
            return v;
        }
        return tt_builder_fail(b, TT_EINVAL, "parameter %s is declared twice with other dims",
                               full);
    }
    if (tt_graph_state(b->g, TT_STATE_BUFFER, full))
        return tt_builder_fail(b, TT_EINVAL, "parameter %s: a buffer has that name", full);
    tt_placement p = {0};
    tt_type computed = t; /* the model sees the dtype that it computes in */
    computed.dtype = b->opts.precision.compute;
    tt_node *n = tt_node_new(b, &tt_op_param, NULL, 0, &computed, &p, 1);
    n->param = param_info(b, full, &t, opts);
    tt_map_set(b->param_values, full, n->out[0]);
    return n->out[0];
}

static tt_param_info *info_of(const tt_value *v)
{
    return v && v->node ? v->node->param : NULL;
}

double tt_param_adapter(tt_builder *b, tt_value *w, tt_value *a, tt_value *bb,
                        const tt_adapter_opts *opts)
{
    tt_param_info *of = info_of(w), *first = info_of(a), *second = info_of(bb);
    if (b->failed)
        return 1;
    const char *wrong = NULL;
    if (!of || !first || !second)
        wrong = "weight, a and b must be parameters";
    else if (of->whole.n_dims != 2 || first->type.n_dims != 2 || second->type.n_dims != 2 ||
             of->whole.dims[1].size != first->type.dims[1].size ||
             of->whole.dims[0].size != second->type.dims[0].size ||
             first->type.dims[0].size != second->type.dims[1].size)
        wrong = "the shapes are not w [out,in], a [r,in], b [out,r]";
    else if (of->adapter_a && of->adapter_a != first)
        wrong = "the weight has an adapter already; list one converter of this kind for it";
    if (wrong) {
        tt_builder_fail(b, TT_EINVAL, "adapter of %s: %s", of ? of->name : "a value", wrong);
        return 1;
    }
    const double r = (double)first->type.dims[0].size;
    of->adapter_a = first;
    of->adapter_b = second;
    first->adapter_of = second->adapter_of = of;
    of->adapter = *opts;
    of->adapter_scale = opts->alpha / (opts->rank_stabilized ? sqrt(r) : r);
    return of->adapter_scale;
}

void tt_param_magnitude(tt_builder *b, tt_value *w, tt_value *m)
{
    tt_param_info *of = info_of(w), *own = info_of(m);
    const char *wrong = NULL;
    if (b->failed)
        return;
    if (!of || !own || !of->adapter_a)
        wrong = "the weight must have an adapter, and its magnitude be a parameter";
    else if (own->whole.n_dims != 1 || own->whole.dims[0].size != of->whole.dims[0].size)
        wrong = "it has one element for each row of the weight";
    else if (of->magnitude && of->magnitude != own)
        wrong = "the weight has another one already";
    if (wrong) {
        tt_builder_fail(b, TT_EINVAL, "magnitude of %s: %s", of ? of->name : "a value", wrong);
        return;
    }
    of->magnitude = own;
    own->adapter_of = of;
}

/* The dims of codes [out, blocks, 32] or [out, in]; those of absmax [out, blocks]. */
static void codes_types(tt_codes format, const tt_type *w, tt_type *codes, tt_type *absmax)
{
    const int64_t blocks = tt_codes_blocks(format, w->dims[1].size);
    *codes = *absmax = (tt_type){.dtype = TT_F32, .n_dims = 2};
    codes->dtype = TT_U8;
    codes->dims[0] = absmax->dims[0] = w->dims[0];
    absmax->dims[1] = TT_DIM(blocks, NULL);
    codes->dims[1] = format == TT_CODES_NF4 ? absmax->dims[1] : w->dims[1];
    if (format == TT_CODES_NF4)
        codes->dims[codes->n_dims++] = TT_DIM(TT_NF4_BYTES, NULL);
}

void tt_param_store_codes(tt_builder *b, tt_value *w, tt_codes format)
{
    tt_param_info *p = info_of(w);
    const char *wrong = NULL;
    tt_type type;
    if (b->failed)
        return;
    if (!p || p->whole.n_dims != 2 || w->node->op != &tt_op_param)
        wrong = "only parameters of two dims are";
    else if (format != TT_CODES_NF4 && format != TT_CODES_INT8)
        wrong = "there is no such format";
    else if (p->codes)
        wrong = "it is already: list one converter of this kind for it";
    else if (p->declared > 1 || is_used(b->g, w))
        wrong = "another layer reads it too (a tied weight): leave this layer out";
    if (wrong) {
        tt_builder_fail(b, TT_EINVAL, "%s is not stored as codes: %s", p ? p->name : "a value",
                        wrong);
        return;
    }
    const tt_param_opts frozen = {.init = {.kind = TT_INIT_CONSTANT}, .tags = p->tags, .frozen = 1};
    p->codes = format;
    p->frozen = true;
    codes_types(format, &p->whole, &p->type, &type);
    p->absmax = param_info(b, tt_arena_printf(b->arena, "%s.absmax", p->name), &type, &frozen);
    p->absmax->absmax_of = p;
}

int tt_builder_block(const tt_builder *b)
{
    return b->block;
}

/* The scope of the layer: the parameter's full name without its last part. */
static const char *layer_of(tt_builder *b, const tt_value *w, const char *param)
{
    const char *full = info_of(w) ? info_of(w)->name : param, *dot = strrchr(full, '.');
    return dot ? tt_arena_strn(b->arena, full, (size_t)(dot - full)) : full;
}

tt_value *tt_builder_convert_linear(tt_builder *b, const char *param, tt_value *x, tt_value *w)
{
    if (b->failed || !b->opts.convert_linear)
        return NULL;
    tt_vec_push(b->arena, &b->scopes, b->scope);
    b->scope = layer_of(b, w, param);
    tt_value *y = b->opts.convert_linear(b->opts.convert_user, b, b->converting, param, x, w);
    tt_scope_end(b);
    return y;
}

tt_value *tt_builder_convert_nested(tt_builder *b, tt_value *x, tt_value *w)
{
    if (!b->converting || w->node == NULL || w->node->op != &tt_op_param)
        return NULL;
    return tt_builder_convert_linear(b, w->node->param->name, x, w);
}

int tt_builder_converting(tt_builder *b, int i)
{
    const int was = b->converting - 1;
    b->converting = i + 1;
    return was;
}
