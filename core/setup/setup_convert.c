/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/graph.h"
#include "graph/op.h"
#include "setup/param_match.h"
#include "setup/setup_impl.h"
#include <string.h>
#include <ttrun/converter.h>

/* The job's converters, in order: which of them are asked about a layer or a product, by filter, roles and
 * steps. */

typedef struct filter_entry {
    const char *text;
    const char *tag;     /* "tag:norm" → "norm" */
    tt_pattern *pattern; /* NULL: a word */
    bool matched;        /* what a converter was asked about */
} filter_entry;

typedef struct tt_converting {
    const char *key;
    filter_entry *filter;
    size_t n_filter;
    unsigned roles; /* bit r: the products of role r */
    int64_t from, to;
    tt_error fault;                             /* the first pattern that failed on a name */
    int64_t linears, asked[TT_N_PRODUCT_ROLES]; /* of the graph that was compiled last: offered */
    int64_t layers, done[TT_N_PRODUCT_ROLES];   /* and converted */
    tt_map *forward; /* the parameters whose layers' forward products are */
} tt_converting;

static const tt_converter_vt *vtable(const tt_setup *s, int i)
{
    return s->converters[i].component->vtable;
}

static bool has_product(const tt_converter_vt *vt)
{
    return TT_HAS(vt, tt_converter_vt, product) && vt->product;
}

static uint32_t converter_flags(const tt_setup *s, int i)
{
    const tt_converter_vt *vt = vtable(s, i);
    return TT_HAS(vt, tt_converter_vt, flags) ? vt->flags : 0;
}

static const char *shown_name(void *user, int i)
{
    const tt_setup *s = user;
    return tt_arena_printf(s->arena, "converters[%d] (%s)", i, s->converters[i].name);
}

bool tt_converter_active(const tt_setup *s, int i, int64_t steps_done)
{
    const tt_converting *c = &s->converting[i];
    return steps_done >= c->from && steps_done < c->to;
}

int64_t tt_converters_change(const tt_setup *s, int64_t after)
{
    const int64_t end = tt_setup_by_epoch(s) ? INT64_MAX : s->core.training.steps;
    int64_t next = end;
    for (int i = 0; i < s->n_converters; i++) {
        const tt_converting *c = &s->converting[i];
        if (c->from > after)
            next = TT_MIN(next, c->from);
        if (c->to > after)
            next = TT_MIN(next, c->to);
    }
    return next < end ? next : -1;
}

bool tt_converters_equal(const tt_setup *s, int64_t a, int64_t b)
{
    for (int i = 0; i < s->n_converters; i++)
        if (tt_converter_active(s, i, a) != tt_converter_active(s, i, b))
            return false;
    return true;
}

/* ---- the keys that every converter has ---- */

/* A name of a parameter has none of these, so a text that has one is a regular expression. */
static bool is_expression(const char *text)
{
    return strpbrk(text, "^$*+?()[]{}|\\") != NULL;
}

static tt_status make_filter(tt_setup *s, tt_converting *c, const tt_strings *words, tt_error *err)
{
    const char *key = tt_arena_printf(s->arena, "%s.filter", c->key);
    tt_error why = {0};
    c->filter = tt_arena_array(s->arena, words->n + 1, sizeof *c->filter);
    c->n_filter = words->n;
    for (size_t k = 0; k < words->n; k++) {
        filter_entry *f = &c->filter[k];
        f->text = words->items[k];
        if (!*f->text)
            return tt_job_fail(s->job, key, err,
                               "\"\" matches every name, so nothing would be converted");
        if (!strncmp(f->text, "tag:", 4))
            f->tag = f->text + 4;
        else if (is_expression(f->text) &&
                 tt_pattern_new(s->arena, f->text, &f->pattern, &why) != TT_OK)
            return tt_job_fail(s->job, key, err, "\"%.60s\" is not a regular expression: %s",
                               f->text, why.text);
    }
    return TT_OK;
}

static tt_status make_roles(tt_setup *s, tt_converting *c, const tt_strings *roles, bool own,
                            tt_error *err)
{
    const char *key = tt_arena_printf(s->arena, "%s.roles", c->key);
    if (own)
        c->roles = (1u << TT_N_PRODUCT_ROLES) - 1;
    else if (!roles->n)
        return tt_job_fail(s->job, key, err,
                           "is empty, so nothing would be converted; roles are forward, "
                           "grad_input, grad_weight");
    for (size_t k = 0; k < roles->n; k++) {
        int r = 0;
        while (r < TT_N_PRODUCT_ROLES && strcmp(roles->items[k], tt_product_roles[r]) != 0)
            r++;
        if (r == TT_N_PRODUCT_ROLES) {
            const char *near = tt_nearest(roles->items[k], tt_product_roles, TT_N_PRODUCT_ROLES);
            return tt_job_fail(s->job, key, err,
                               "no role \"%.60s\"%s%s%s; roles are forward, "
                               "grad_input, grad_weight",
                               roles->items[k], near ? " (did you mean " : "", near ? near : "",
                               near ? "?)" : "");
        }
        if (c->roles >> r & 1u)
            return tt_job_fail(s->job, key, err, "\"%s\" is listed twice", tt_product_roles[r]);
        c->roles |= 1u << r;
    }
    return TT_OK;
}

/* Reads the keys that every converter has. If a plugin has an option of the same name, the key is
 * the plugin's. */
static tt_status common_keys(tt_setup *s, int i, tt_error *err)
{
    const tt_component *k = s->converters[i].component;
    tt_converting *c = &s->converting[i];
    tt_converter_config given = {0};
    bool own_roles = false;
    const char **own = tt_arena_array(s->arena, k->n_options + 1, sizeof *own);
    for (size_t j = 0; j < k->n_options; j++) {
        own[j] = tt_component_option(k, j)->name;
        own_roles = own_roles || !strcmp(own[j], "roles");
    }
    TT_TRY(tt_converter_config_parse(s->job, c->key, own, &given, err));
    TT_TRY(make_filter(s, c, &given.filter, err));
    TT_TRY(make_roles(s, c, &given.roles, own_roles, err));
    c->from = given.from_step;
    c->to = given.to_step == INT64_MIN ? INT64_MAX : given.to_step;
    if (c->from >= c->to)
        return tt_job_fail(s->job, tt_arena_printf(s->arena, "%s.to_step", c->key), err,
                           "%lld is not above from_step %lld, so no step would be converted",
                           (long long)c->to, (long long)c->from);
    if ((converter_flags(s, i) & TT_CONVERTER_STORES) && (c->from > 0 || c->to != INT64_MAX))
        return tt_job_fail(
            s->job,
            tt_arena_printf(s->arena, "%s.%s", c->key, c->from > 0 ? "from_step" : "to_step"), err,
            "%s changes how weights are stored, which cannot change while the job "
            "runs: leave from_step and to_step out",
            s->converters[i].name);
    if (!has_product(vtable(s, i)) && !own_roles && c->roles != (1u << TT_N_PRODUCT_ROLES) - 1)
        return tt_job_fail(s->job, tt_arena_printf(s->arena, "%s.roles", c->key), err,
                           "%s replaces whole layers, not single products: leave roles out",
                           s->converters[i].name);
    return TT_OK;
}

tt_status tt_setup_converters(tt_setup *s, tt_error *err)
{
    static const char *const common[] = {"filter", "from_step", "to_step", "roles", NULL};
    size_t n = 0;
    TT_TRY(tt_setup_count_entries(s, "converters", &n, err));
    s->converting = tt_arena_array(s->arena, n + 1, sizeof *s->converting);
    for (int i = 0; i < (int)n; i++) {
        tt_converting *c = &s->converting[i];
        c->key = tt_arena_printf(s->arena, "converters[%d]", i);
        TT_TRY(tt_registry_part(s->registry, s->job, TT_KIND_CONVERTER, c->key, NULL, common,
                                s->arena, &s->converters[i], err));
        TT_TRY(common_keys(s, i, err));
    }
    s->n_converters = (int)n;
    return TT_OK;
}

void tt_setup_only_converter(tt_setup *s, const tt_part *p)
{
    s->n_converters = p != NULL;
    if (!p)
        return;
    s->converters[0] = *p;
    s->converting = tt_arena_array(s->arena, 1, sizeof *s->converting);
    s->converting[0] = (tt_converting){
        .key = "converters[0]", .roles = (1u << TT_N_PRODUCT_ROLES) - 1, .to = INT64_MAX};
}

/* ---- asking ---- */

static bool entry_matches(tt_converting *c, const filter_entry *f, const char *name,
                          const char *tags)
{
    bool yes = false;
    tt_error why = {0};
    if (f->tag)
        return tt_has_tag(tags, f->tag);
    if (!f->pattern)
        return strstr(name, f->text) != NULL;
    if (tt_pattern_match(f->pattern, name, &yes, &why) != TT_OK && c->fault.code == TT_OK)
        TT_FAIL(&c->fault, TT_EINVAL, "\"%.60s\" on %s: %s", f->text, name, why.text);
    return yes;
}

static bool leaves_out(tt_converting *c, const char *name, const char *tags)
{
    for (size_t k = 0; k < c->n_filter; k++)
        if (entry_matches(c, &c->filter[k], name, tags))
            return c->filter[k].matched = true;
    return false;
}

static tt_value *convert_linear(void *user, tt_builder *b, int first, const char *param,
                                tt_value *x, tt_value *w)
{
    const tt_setup *s = user;
    const tt_param_info *info = w->node ? w->node->param : NULL;
    const char *name = info ? info->name : param; /* the full name: param lacks the scope */
    for (int i = first; i < s->n_converters; i++) {
        tt_converting *c = &s->converting[i];
        if (!vtable(s, i)->linear || !tt_converter_active(s, i, s->converters_at) ||
            leaves_out(c, name, info ? info->tags : ""))
            continue;
        const int was = tt_builder_converting(b, i);
        const char *what = tt_builder_context(b, shown_name(user, i));
        tt_value *y = vtable(s, i)->linear(s->converters[i].config, b, name, x, w);
        tt_builder_context(b, what);
        tt_builder_converting(b, was);
        c->linears++;
        c->layers += y != NULL;
        if (y)
            return y;
    }
    return NULL;
}

/* A parameter that a converter's linear() declared is shown to the converters after it. */
static tt_value *convert_product(void *user, int i, tt_builder *b, const tt_product *p,
                                 const tt_param_info *info)
{
    const tt_setup *s = user;
    const tt_converter_vt *vt = vtable(s, i);
    tt_converting *c = &s->converting[i];
    if (!has_product(vt) || !tt_converter_active(s, i, s->converters_at) ||
        !(c->roles >> p->role & 1u) || (info && info->converter > i) ||
        leaves_out(c, p->param, p->tags))
        return NULL;
    const char *what = tt_builder_context(b, shown_name(user, i));
    const char *owner = tt_builder_owner(b, s->converters[i].name);
    tt_value *y = vt->product(s->converters[i].config, b, p);
    tt_builder_owner(b, owner);
    tt_builder_context(b, what);
    if (y == p->a && p->layer == TT_PRODUCT_ATTENTION)
        y = NULL; /* the operand as it was */
    c->asked[p->role]++;
    c->done[p->role] += y != NULL;
    if (y && p->role == TT_PRODUCT_FORWARD && p->layer != TT_PRODUCT_ATTENTION)
        tt_map_set(c->forward, p->param, c);
    return y;
}

/* Converters check what was described. */
static void described(void *user, tt_builder *b)
{
    const tt_setup *s = user;
    const tt_graph *g = tt_builder_graph(b);
    const char **names = tt_arena_array(s->arena, g->params.n + 1, sizeof *names);
    for (size_t i = 0; i < g->params.n; i++)
        names[i] = g->params.items[i]->name;
    for (int i = 0; i < s->n_converters; i++) {
        const tt_converter_vt *vt = vtable(s, i);
        if (!tt_converter_active(s, i, s->converters_at) ||
            !TT_HAS(vt, tt_converter_vt, described) || !vt->described)
            continue;
        const char *what = tt_builder_context(b, shown_name(user, i));
        vt->described(s->converters[i].config, b, names, g->params.n);
        tt_builder_context(b, what);
    }
}

static bool is_final(void *user, int i)
{
    return converter_flags(user, i) & TT_CONVERTER_FINAL;
}

void tt_setup_convert_opts(tt_setup *s, tt_compile_opts *o)
{
    bool linear = false, product = false;
    for (int i = 0; i < s->n_converters; i++) {
        tt_converting *c = &s->converting[i];
        c->linears = c->layers = 0;
        memset(c->asked, 0, sizeof c->asked);
        memset(c->done, 0, sizeof c->done);
        c->forward = tt_map_new(s->arena);
        if (!tt_converter_active(s, i, s->converters_at))
            continue;
        linear = linear || vtable(s, i)->linear;
        product = product || has_product(vtable(s, i));
    }
    o->convert_linear = linear ? convert_linear : NULL;
    o->convert_user = s;
    o->described = linear ? described : NULL;
    if (product)
        o->convert = (tt_convert_opts){s->n_converters, convert_product, is_final, shown_name, s};
}

/* ---- what came of it ---- */

int tt_setup_converter_of(const tt_setup *s, const char *param)
{
    for (int i = 0; i < s->n_converters; i++)
        if (s->converting[i].forward && tt_map_get(s->converting[i].forward, param))
            return i;
    return -1;
}

static void check_entry(const tt_setup *s, tt_converting *c, const filter_entry *f)
{
    const tt_graph *g = s->graph;
    for (size_t p = 0; p < g->params.n && !f->matched; p++)
        if (entry_matches(c, f, g->params.items[p]->name, g->params.items[p]->tags))
            return;
    if (f->matched)
        return;
    if (f->tag)
        tt_log(TT_WARN, "train", "%s.filter: no parameter has the tag \"%s\", so it has no effect",
               c->key, f->tag);
    else
        tt_log(TT_WARN, "train",
               "%s.filter: no parameter's name %s \"%s\" (names are like %s), so it has no effect",
               c->key, f->pattern ? "matches" : "contains", f->text,
               g->params.n ? g->params.items[0]->name : "(none)");
}

static void say_what(const tt_setup *s, int i)
{
    const tt_converting *c = &s->converting[i];
    int64_t products = 0;
    tt_str t = {0};
    for (int r = 0; r < TT_N_PRODUCT_ROLES; r++) {
        products += c->done[r];
        if (c->done[r])
            tt_str_printf(&t, "%s%lld of %lld %s", t.n ? ", " : "", (long long)c->done[r],
                          (long long)c->asked[r], tt_product_roles[r]);
    }
    if (c->layers)
        tt_log(TT_INFO, "train", "%s: replaces %lld of %lld layers", shown_name((void *)s, i),
               (long long)c->layers, (long long)c->linears);
    if (products)
        tt_log(TT_INFO, "train", "%s: converts products: %s", shown_name((void *)s, i),
               tt_str_get(&t));
    if (!products && !c->layers)
        tt_log(TT_WARN, "train", "%s converts nothing", shown_name((void *)s, i));
    tt_str_free(&t);
}

tt_status tt_setup_check_converters(const tt_setup *s, bool say, tt_error *err)
{
    for (int i = 0; i < s->n_converters; i++) {
        tt_converting *c = &s->converting[i];
        if (c->fault.code != TT_OK)
            return tt_job_fail(s->job, tt_arena_printf(s->arena, "%s.filter", c->key), err, "%s",
                               c->fault.text);
        for (size_t k = 0; say && k < c->n_filter; k++)
            check_entry(s, c, &c->filter[k]);
        if (say && tt_converter_active(s, i, s->converters_at))
            say_what(s, i);
    }
    if (say && s->n_converters && s->graph->unchunked)
        tt_log(TT_INFO, "train",
               "converters: the logits exist whole, not in chunks of tokens, because %s needs all "
               "tokens at once; a filter that leaves out the head saves this memory",
               s->graph->unchunked);
    return TT_OK;
}
