/* SPDX-License-Identifier: Apache-2.0 */
#include "setup/param_match.h"
#include "setup/setup_impl.h"
#include <stdlib.h>
#include <string.h>

/* Finds out what setup must know about a model before its graph is compiled: the names of its
 * blocks and of what comes after them, and its key/value heads. All of it is read from the graph
 * that describe() writes. */

static int64_t gcd(int64_t a, int64_t b)
{
    while (b) {
        const int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

static int64_t kv_heads(const tt_graph *g)
{
    int64_t n = 0;
    for (size_t i = 0; i < g->params.n; i++) {
        const tt_type *t = &g->params.items[i]->whole;
        for (int d = 0; d < t->n_dims; d++)
            if (t->dims[d].label && !strcmp(t->dims[d].label, "kv_heads") && t->dims[d].unit > 0)
                n = gcd(n, t->dims[d].size / t->dims[d].unit);
    }
    return n;
}

/* The experts of its layers, or what divides the numbers of all of them; 0: it has none. */
static int64_t n_experts(const tt_graph *g)
{
    int64_t n = 0;
    for (size_t i = 0; i < g->params.n; i++) {
        const tt_type *t = &g->params.items[i]->whole;
        for (int d = 0; d < t->n_dims; d++)
            if (t->dims[d].label && !strcmp(t->dims[d].label, "experts"))
                n = gcd(n, t->dims[d].size);
    }
    return n;
}

/* The length of the common beginning of a name and a scope, in whole words between dots. */
static size_t common(const char *name, size_t n, const char *scope)
{
    size_t same = 0;
    for (size_t i = 0; i <= n; i++) {
        const bool ends = i == n || name[i] == '.';
        if (ends && (!scope[i] || scope[i] == '.'))
            same = i;
        if (i == n || name[i] != scope[i])
            break;
    }
    return same;
}

/* The names of blocks: the common beginning of the scopes of a block's nodes. */
static const char **block_names(const tt_graph *g, tt_arena *a)
{
    const size_t blocks = (size_t)g->n_blocks;
    const char **names = tt_arena_array(a, blocks + 1, sizeof *names);
    size_t *length = tt_arena_array(a, blocks + 1, sizeof *length);
    for (size_t i = 0; i < g->nodes.n; i++) {
        const tt_node *n = g->nodes.items[i];
        if (n->block < 0)
            continue;
        const char *scope = n->scope ? n->scope : "", **name = &names[n->block];
        size_t *size = &length[n->block];
        *size = *name ? common(*name, *size, scope) : strlen(scope);
        *name = *name ? *name : scope;
    }
    for (size_t i = 0; i < blocks; i++)
        names[i] = names[i] ? tt_arena_strn(a, names[i], length[i]) : "";
    return names;
}

static int after_blocks(const tt_graph *g)
{
    int at = 0;
    for (int i = 0; i < (int)g->nodes.n; i++)
        if (g->nodes.items[i]->block >= 0)
            at = i + 1;
    return at;
}

static bool reads(const tt_graph *g, int begin, int end, const tt_param_info *p)
{
    for (int i = begin; i < end; i++)
        for (int k = 0; k < g->nodes.items[i]->n_in; k++)
            if (g->nodes.items[i]->in[k]->node->param == p)
                return true;
    return false;
}

static void find_head(const tt_graph *g, tt_model_shape *s, tt_arena *a)
{
    const int at = after_blocks(g), end = (int)g->nodes.n;
    s->head = tt_arena_array(a, g->params.n + 1, sizeof *s->head);
    for (size_t i = 0; i < g->params.n; i++)
        if (reads(g, at, end, g->params.items[i]) && !reads(g, 0, at, g->params.items[i]))
            s->head[s->n_head++] = g->params.items[i]->name;
}

void tt_setup_shape(tt_setup *s)
{
    const tt_model_vt *vt = s->model.component->vtable;
    const tt_builder_opts o = {
        .ops = &s->ops,
        .tokens = s->core.training.seq_len,
        .sequences = 1,
        .precision = {TT_F32, TT_F32, TT_F32}
    };
    tt_builder *b = tt_builder_new(s->arena, &o);
    vt->describe(s->model.config, b);
    if (tt_builder_finish(b, NULL) != TT_OK)
        return; /* compiling the graph will report why */
    const tt_graph *g = tt_builder_graph(b);
    tt_model_shape *m = &s->shape;
    m->described = g;
    m->n_blocks = g->n_blocks;
    m->kv_heads = kv_heads(g);
    m->experts = n_experts(g);
    m->blocks = block_names(g, s->arena);
    find_head(g, m, s->arena);
}

/* Measured on models of 100 to 10000 layers: graph, programs and proofs of one op of describe(). */
#define PLAN_BYTES_PER_OP 10e3

tt_status tt_setup_check_size(const tt_setup *s, double have, tt_error *err)
{
    const tt_graph *g = s->shape.described;
    const double ops = g ? (double)g->nodes.n : 0, need = ops * PLAN_BYTES_PER_OP, gib = 1 << 30;
    if (need <= have / 2)
        return TT_OK;
    const char *option = tt_model_blocks_option(s->model.component);
    return TT_FAIL(err, TT_EINVAL,
                   "model %s: %d blocks of %.0f ops together: planning them takes about %.1f GiB, "
                   "and this machine has %.1f; take fewer layers%s%s",
                   s->model.name, g->n_blocks, ops, need / gib, have / gib,
                   option ? ", model.args." : "", option ? option : "");
}

/* ---- names a job gives ---- */

/* Whether the words of `name` occur in `full`, from the start of a word on. more: `full` must go on
 * after them. */
static bool within(const char *full, const char *name, bool more)
{
    const size_t n = strlen(name);
    for (const char *p = full; p; p = strchr(p, '.'), p += p != NULL)
        if (!strncmp(p, name, n) && (p[n] == '.' || (!more && !p[n])))
            return true;
    return false;
}

int tt_setup_block(const tt_setup *s, const char *name)
{
    for (int i = 0; i < s->shape.n_blocks; i++)
        for (const char *p = s->shape.blocks[i]; p && *p; p = strchr(p, '.'), p += p != NULL) {
            const size_t n = strlen(p);
            if (!strncmp(name, p, n) && (!name[n] || name[n] == '.'))
                return i;
        }
    static const char any[] = "layers."; /* the n-th block of any model */
    const char *digits = name + sizeof any - 1;
    if (strncmp(name, any, sizeof any - 1) || *digits < '0' || *digits > '9')
        return -1;
    char *end;
    const long n = strtol(digits, &end, 10);
    return (!*end || *end == '.') && n < 1 << 20 ? (int)n : -1;
}

static bool has_param(const tt_setup *s, const char *name)
{
    const tt_graph *g = s->shape.described;
    for (size_t i = 0; g && i < g->params.n; i++)
        if (!strcmp(g->params.items[i]->name, name))
            return true;
    return false;
}

bool tt_setup_is_head(const tt_setup *s, const char *name)
{
    for (size_t i = 0; i < s->shape.n_head; i++)
        if (within(s->shape.head[i], name, true))
            return true;
    /* also accept the names of Meta's files; a tied head is not a parameter of its own */
    const tt_model_meta *m = tt_setup_model_meta(s->model.component);
    for (size_t i = 0; m && i < m->n_names; i++) {
        const tt_tensor_name *row = (const void *)((const char *)m->names + i * m->name_size);
        bool head = !strchr(row->ours, '*') && !has_param(s, row->ours);
        for (size_t k = 0; !head && k < s->shape.n_head; k++)
            head = !strcmp(s->shape.head[k], row->ours);
        if (head && (within(row->theirs, name, true) || within(row->ours, name, true)))
            return true;
    }
    return false;
}

bool tt_param_has_tokens(const tt_param_info *p)
{
    const char *label = p->whole.n_dims ? p->whole.dims[0].label : NULL;
    return label && !strcmp(label, "vocab") && !p->codes;
}
