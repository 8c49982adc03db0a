/* SPDX-License-Identifier: Apache-2.0 */
#include "data/mixture.h"
#include "setup/setup_impl.h"
#include <stdlib.h>
#include <string.h>

/* dataloader.mixture: a list of loaders with weights. They become one component whose vtable draws
 * from them, so the rest of ttrun sees an ordinary loader. */

typedef struct {
    tt_part *parts;   /* [n] */
    double *weights;  /* [n] */
    tt_order *orders; /* [n] */
    tt_mix *mix;
    int n;
    tt_component component;
    tt_dataloader_vt vt;
} mixture_config;

/* ---- the loader ---- */

static void close_mixture(void *self)
{
    tt_mixture *m = self;
    for (int i = 0; m && i < m->n; i++)
        if (m->sources[i].self)
            m->sources[i].vt->close(m->sources[i].self);
    if (m)
        free(m->sources);
    free(m);
}

/* Raises a loader's error at the loader's entry: "dataloader.path: …" becomes
 * "dataloader.mixture[1].path: …". */
static tt_status fail_at(int i, const char *text, tt_status code, tt_error *err)
{
    static const char start[] = "dataloader.";
    const bool has_key = strncmp(text, start, sizeof start - 1) == 0;
    if (code == TT_ESIGNAL)
        return TT_FAIL(err, code, "%s", text);
    return TT_FAIL(err, code, "dataloader.mixture[%d]%s%s", i, has_key ? "." : ": ",
                   has_key ? text + sizeof start - 1 : text);
}

static tt_status open_sources(const mixture_config *g, const tt_dataloader_env *env, tt_mixture *m,
                              tt_error *err)
{
    for (int i = 0; i < g->n; i++) {
        tt_mixture_source *s = &m->sources[i];
        tt_error why = {0};
        *s = (tt_mixture_source){g->parts[i].component->vtable, NULL, g->parts[i].name,
                                 g->weights[i], g->orders[i]};
        const tt_status status = TT_PLUGIN_CALL(
            s->vt->open(g->parts[i].config, env, &s->self, &why), &why, "dataloader", s->name);
        if (status != TT_OK)
            return fail_at(i, why.text, status, err);
        s->order.n_samples = s->vt->n_samples(s->self);
        if (s->order.n_samples < 1)
            return fail_at(i, "the loader has no sample", TT_EINVAL, err);
        if (!tt_add_i64(m->n_samples, s->order.n_samples, &m->n_samples))
            return fail_at(i, "the sources have more samples than 2^63", TT_EINVAL, err);
    }
    return TT_OK;
}

static tt_status open_mixture(const void *config, const tt_dataloader_env *env, void **self,
                              tt_error *err)
{
    const mixture_config *g = config;
    double sum = 0;
    tt_mixture *m = calloc(1, sizeof *m);
    if (m)
        m->sources = calloc((size_t)g->n, sizeof *m->sources);
    if (!m || !m->sources) {
        close_mixture(m);
        return TT_FAIL(err, TT_ENOMEM, "out of memory for %d sources", g->n);
    }
    m->n = g->n;
    m->mix = g->mix;
    const tt_status s = open_sources(g, env, m, err);
    if (s != TT_OK) {
        close_mixture(m);
        return s;
    }
    for (int i = 0; i < m->n; i++)
        sum += m->sources[i].weight;
    for (int i = 0; i < m->n; i++)
        tt_log(TT_INFO, "data",
               "mixture[%d]: %s, %.4g %% of the samples, %lld samples per epoch of it", i,
               m->sources[i].name, 100 * m->sources[i].weight / sum,
               (long long)m->sources[i].order.n_samples);
    *self = m;
    return TT_OK;
}

static void add_count(int64_t *all, int64_t n)
{
    if (*all >= 0 && (n < 0 || !tt_add_i64(*all, n, all)))
        *all = -1;
}

tt_dataloader_info tt_loader_info(const tt_dataloader_vt *vt, void *self)
{
    tt_dataloader_info i = {.struct_size = sizeof i,
                            .files = -1,
                            .documents = -1,
                            .tokens = -1,
                            .text_bytes = -1,
                            .padding = -1};
    if (TT_HAS(vt, tt_dataloader_vt, info) && vt->info)
        vt->info(self, &i);
    return i;
}

static void mixture_info(void *self, tt_dataloader_info *out)
{
    const tt_mixture *m = self;
    tt_dataloader_info all = {.struct_size = sizeof all, .padding = -1};
    for (int i = 0; i < m->n; i++) {
        const tt_mixture_source *s = &m->sources[i];
        const tt_dataloader_info one = tt_loader_info(s->vt, s->self);
        add_count(&all.files, one.files);
        add_count(&all.documents, one.documents);
        add_count(&all.tokens, one.tokens);
        add_count(&all.text_bytes, one.text_bytes);
        if (one.padding >= 0)
            all.padding = TT_MAXV(all.padding, (int64_t)0) + one.padding;
    }
    *out = all;
}

/* ---- from the job ---- */

/* Returns "name" and the component's own keys, which the table with `weight` ignores. */
static const char *const *keys_of(tt_arena *a, const tt_component *c)
{
    const char **keys = tt_arena_array(a, c->n_options + 2, sizeof *keys);
    keys[0] = "name";
    for (size_t i = 0; i < c->n_options; i++)
        keys[i + 1] = tt_component_option(c, i)->name;
    return keys;
}

static bool has_option(const tt_component *c, const char *name)
{
    for (size_t i = 0; i < c->n_options; i++)
        if (!strcmp(tt_component_option(c, i)->name, name))
            return true;
    return false;
}

/* The keys of an entry that are not its loader's. */
typedef struct {
    double weight;
    bool shuffle;
    int64_t seed;
} source_row;
static const tt_option source_rows[] = {
    TT_OPTION(source_row, weight, TT_OPT_FLOAT, "1", 1e-9, 1e9, "share of the samples"),
    TT_OPTION(source_row, shuffle, TT_OPT_BOOL, "true", 0, 0, "as in the section"),
    TT_OPTION_MORE(source_row, seed, TT_OPT_INT, "null", 0, 9007199254740992.0, NULL,
                   TT_OPT_NULLABLE, NULL, "as in the section"),
};

static tt_status read_source(tt_setup *s, const char *key, const char *fallback, bool shuffle,
                             tt_part *part, source_row *r, tt_error *err)
{
    static const char *const ignore[] = {"name", "weight", "shuffle", "seed", NULL};
    tt_job *job = s->job;
    const char *name = NULL, *at = tt_arena_printf(s->arena, "%s.name", key);
    const char *nested = tt_arena_printf(s->arena, "%s.mixture", key);
    const char *base = shuffle ? "{}" : "{\"shuffle\": false}";
    const tt_component *c;
    tt_option rows[TT_COUNT(source_rows)];
    size_t n = 0;
    tt_error why = {0};
    *r = (source_row){.seed = INT64_MIN};
    if (tt_job_has(job, nested))
        return tt_job_fail(
            job, nested, err,
            "a mixture cannot contain another one: list its sources in the outer one");
    TT_TRY(tt_job_string(job, at, fallback, &name, err));
    if (!name)
        return tt_job_fail(job, key, err, "needs a \"name\", the dataloader of this source");
    if (tt_registry_find(s->registry, TT_KIND_DATALOADER, name, &c, &why) != TT_OK)
        return tt_job_fail(job, tt_job_has(job, at) ? at : key, err, "%s", why.text);
    void *config = tt_arena_alloc(s->arena, TT_MAXV(c->config_size, (size_t)1));
    const bool own = tt_part_value(c, config, "shuffle", TT_OPT_BOOL) != NULL;
    for (size_t i = 0; i < TT_COUNT(source_rows); i++)
        if (!has_option(c, source_rows[i].name))
            rows[n++] = source_rows[i];
    TT_TRY(tt_job_section_over(job, key, "the mixture's section", own ? base : "{}", c->options,
                               c->n_options, c->option_size, ignore, config, err));
    TT_TRY(tt_job_section_over(job, key, "the mixture's section", own ? "{}" : base, rows, n,
                               sizeof *rows, keys_of(s->arena, c), r, err));
    *part = (tt_part){c, config, c->name, tt_registry_file(s->registry, c)};
    return TT_OK;
}

/* A source's order has its own seed if it sets one. Otherwise the seed depends on the source's
 * place in the list, so that two sources of equal size get different orders. The first source has
 * the section's seed, like a loader without a mixture. */
static uint64_t seed_at(int64_t place, uint64_t seed)
{
    return place == 0 ? seed : tt_hash64(&place, sizeof place, seed);
}

static tt_order order_of(const tt_part *p, const source_row *r, int64_t place, uint64_t seed)
{
    const tt_dataloader_config c = {.shuffle = r->shuffle, .seed = r->seed};
    tt_order o = tt_setup_order(p, &c, seed_at(place, seed));
    o.place = place;
    return o;
}

void tt_mixture_set_seed(const tt_part *mixture, uint64_t seed)
{
    mixture_config *g = mixture->config;
    for (int i = 0; i < g->n; i++)
        if (!g->orders[i].own_seed)
            g->orders[i].seed = seed_at(g->orders[i].place, seed);
}

bool tt_part_is_mixture(const tt_part *p)
{
    return p->component && ((const tt_dataloader_vt *)p->component->vtable)->open == open_mixture;
}

tt_status tt_setup_mixture(tt_setup *s, const char *section, const char *fallback,
                           const tt_dataloader_config *c, uint64_t seed, tt_part *out,
                           tt_order *order, tt_error *err)
{
    mixture_config *g = tt_arena_alloc(s->arena, sizeof *g);
    const char *list = tt_arena_printf(s->arena, "%s.mixture", section), *name = NULL;
    size_t n = 0;
    TT_TRY(
        tt_job_string(s->job, tt_arena_printf(s->arena, "%s.name", section), fallback, &name, err));
    TT_TRY(tt_job_list(s->job, list, &n, err));
    if (n < 1 || n > 1024)
        return tt_job_fail(s->job, list, err, "%zu sources; a mixture has 1 to 1024", n);
    if (c->seed != INT64_MIN)
        seed = (uint64_t)c->seed;
    g->n = (int)n;
    g->parts = tt_arena_array(s->arena, n, sizeof *g->parts);
    g->weights = tt_arena_array(s->arena, n, sizeof *g->weights);
    g->orders = tt_arena_array(s->arena, n, sizeof *g->orders);
    g->vt = (tt_dataloader_vt){.struct_size = sizeof g->vt,
                               .open = open_mixture,
                               .close = close_mixture,
                               .n_samples = tt_mixture_samples,
                               .read = tt_mixture_read,
                               .info = mixture_info};
    for (size_t i = 0; i < n; i++) {
        const char *key = tt_arena_printf(s->arena, "%s[%zu]", list, i);
        source_row r;
        TT_TRY(read_source(s, key, name, c->shuffle, &g->parts[i], &r, err));
        g->weights[i] = r.weight;
        g->orders[i] = order_of(&g->parts[i], &r, (int64_t)i, seed);
        const tt_dataloader_vt *vt = g->parts[i].component->vtable;
        g->vt.needs_tokenizer |= vt->needs_tokenizer;
    }
    g->component = (tt_component){.struct_size = sizeof g->component,
                                  .kind = TT_KIND_DATALOADER,
                                  .name = "mixture",
                                  .doc = "draws from several loaders by weight",
                                  .vtable = &g->vt};
    g->mix = tt_mix_new(s->arena, g->weights, g->n);
    *out = (tt_part){&g->component, g, "mixture", NULL};
    *order = (tt_order){
        .seed = seed, .own_seed = c->seed != INT64_MIN, .shuffle = c->shuffle, .endless = true};
    return TT_OK;
}

int tt_mixture_size(const tt_part *mixture)
{
    return (int)((const mixture_config *)mixture->config)->n;
}

const tt_part *tt_mixture_part(const tt_part *mixture, int i)
{
    return &((const mixture_config *)mixture->config)->parts[i];
}
