/* SPDX-License-Identifier: Apache-2.0 */
#include "train/loop.h"
#include <math.h>

/* The load of experts, of models that have some: how evenly the tokens of a step are spread over the experts of
 * each layer. The program counts them over the whole batch (core/passes/expert_loads.c); the numbers
 * are made here, from whole numbers, so they are the same on every mesh that routes alike. */

#define WRITE_NS 30000000000 /* experts.json is written at most this often while the run goes on */

static const tt_expert_load *load_at(const tt_loop *l, size_t i)
{
    return i < l->s->graph->loads.n && l->s->graph->loads.items[i].metric
               ? &l->s->graph->loads.items[i]
               : NULL;
}

/* The counts in the newest step whose numbers are known; NULL: they are not on this rank. */
static const double *counts_of(const tt_loop *l, const tt_expert_load *e)
{
    const double *all = e ? tt_exec_metric_list(l->rank.exec, e->metric) : NULL;
    return all ? all + (int64_t)e->row * e->counts->type.dims[0].size : NULL;
}

/* The tokens of each expert of load i, if that is one of a layer; else NULL. */
static const double *layer_counts(const tt_loop *l, int i, const tt_expert_load **e)
{
    *e = load_at(l, (size_t)i);
    return *e && (*e)->of == TT_LOAD ? counts_of(l, *e) : NULL;
}

/* Loads of one assignment are of one layer. */
static int find_left(const tt_graph *g, const tt_expert_load *of)
{
    for (size_t i = 0; of->of == TT_LOAD && i < g->loads.n; i++)
        if (g->loads.items[i].of == TT_LOAD_OVERFLOW && g->loads.items[i].assign == of->assign)
            return (int)i + 1;
    return 0;
}

void tt_loop_experts_open(tt_loop *l)
{
    const tt_graph *g = l->s->graph;
    tt_arena *a = l->rank.arena; /* ranks may be threads, and share the setup's */
    l->experts.names = tt_arena_array(a, g->loads.n + 1, sizeof *l->experts.names);
    l->experts.n_names = l->main ? (int)g->loads.n : 0;
    l->experts.path = tt_path_join(a, l->s->core.dump_folder, "experts.json");
    l->experts.written_ns = tt_now_ns();
    l->experts.bounded = false;
    for (size_t i = 0; i < g->loads.n; i++) {
        const char *name = g->loads.items[i].name;
        if (!name)
            continue;
        l->experts.names[i] = (tt_expert_names){
            tt_arena_printf(a, "experts/%s/max_over_mean", name),
            tt_arena_printf(a, "experts/%s/entropy", name),
            tt_arena_printf(a, "experts/%s/overflow", name), find_left(g, &g->loads.items[i])};
        l->experts.bounded = l->experts.bounded || l->experts.names[i].left;
    }
}

/* Returns the sum of the counts. NaN: no token went to an expert. */
static double evenness(const double *counts, int64_t n, double *most_over_mean, double *entropy)
{
    double sum = 0, most = 0, h = 0;
    for (int64_t e = 0; e < n; e++) {
        sum += counts[e];
        most = fmax(most, counts[e]);
    }
    for (int64_t e = 0; e < n; e++)
        h -= counts[e] > 0 ? counts[e] / sum * log(counts[e] / sum) : 0;
    *most_over_mean = most * (double)n / sum;
    *entropy = sum > 0 ? (n > 1 ? h / log((double)n) : 1) : (double)NAN;
    return sum;
}

/* Of load `of` the slots that are sent, where its layer has replicas; NULL: it has none. */
static const double *sent_counts(const tt_loop *l, const tt_expert_load *of)
{
    const tt_graph *g = l->s->graph;
    for (size_t i = 0; of->sent && i < g->loads.n; i++)
        if (g->loads.items[i].of == TT_LOAD_SENT && g->loads.items[i].assign == of->assign)
            return counts_of(l, load_at(l, i));
    return NULL;
}

/* The rows of the busiest rank of ep over the mean, if the slots `counts` of n experts are computed where `sent`
 * of them is sent, and the others, of replicas, on each rank alike. */
static double busiest_rank(const tt_loop *l, const double *counts, const double *sent, int64_t n)
{
    const tt_axis *ep = tt_mesh_axis(&l->s->mesh, "ep");
    const int64_t ranks = ep ? tt_mesh_degree(&l->s->mesh, &ep->atoms) : 1;
    double most = 0, all = 0, rest = 0;
    for (int64_t e = 0; e < n; e++) {
        all += counts[e];
        rest += counts[e] - sent[e];
    }
    for (int64_t e = 0; e < n; e += n / ranks) {
        double rows = rest / (double)ranks;
        for (int64_t i = e; i < e + n / ranks; i++)
            rows += sent[i];
        most = fmax(most, rows);
    }
    return most * (double)ranks / all;
}

/* Two numbers over all layers: the load of ranks as it is, and as it would be without replicas. */
static size_t put_ranks(const tt_loop *l, tt_metric *out)
{
    double with = 0, without = 0, layers = 0;
    for (int i = 0; i < l->experts.n_names; i++) {
        const tt_expert_load *e;
        const double *counts = layer_counts(l, i, &e), *sent = counts ? sent_counts(l, e) : NULL;
        if (!sent)
            continue;
        with += busiest_rank(l, counts, sent, e->counts->type.dims[0].size);
        without += busiest_rank(l, counts, counts, e->counts->type.dims[0].size);
        layers++;
    }
    if (!(layers > 0))
        return 0;
    out[0] = (tt_metric){"experts/ranks_max_over_mean", with / layers};
    out[1] = (tt_metric){"experts/ranks_without_replicas", without / layers};
    return 2;
}

size_t tt_loop_experts(tt_loop *l, tt_metric *out)
{
    const size_t n_means = l->experts.bounded ? 3 : 2;
    size_t n = n_means, layers = 0;
    double most = 0, entropy = 0, overflow = 0;
    for (int i = 0; i < l->experts.n_names; i++) {
        const tt_expert_names *names = &l->experts.names[i];
        const tt_expert_load *e;
        const double *counts = layer_counts(l, i, &e);
        double a, b;
        if (!counts)
            continue;
        const double sum = evenness(counts, e->counts->type.dims[0].size, &a, &b);
        out[n++] = (tt_metric){names->most, a};
        out[n++] = (tt_metric){names->entropy, b};
        most += a;
        entropy += b;
        layers++;
        const double *left = names->left ? counts_of(l, load_at(l, (size_t)names->left - 1)) : NULL;
        if (!left)
            continue;
        out[n++] = (tt_metric){names->overflow, *left / sum};
        overflow += *left / sum;
    }
    if (!layers)
        return 0;
    const tt_metric means[] = {
        {"experts/max_over_mean", most / (double)layers    },
        {"experts/entropy",       entropy / (double)layers },
        {"experts/overflow",      overflow / (double)layers}
    };
    for (size_t i = 0; i < n_means; i++)
        out[i] = means[i];
    return n + put_ranks(l, out + n);
}

static void put_layer(tt_str *o, const tt_expert_load *e, const double *counts, bool first)
{
    tt_str_add(o, first ? "\n " : ",\n ");
    tt_str_add(o, "{\"name\":");
    tt_str_json(o, e->name);
    tt_str_add(o, ",\"tokens\":[");
    for (int64_t k = 0; k < e->counts->type.dims[0].size; k++)
        tt_str_printf(o, k ? ",%.0f" : "%.0f", counts[k]);
    tt_str_add(o, "]}");
}

tt_status tt_loop_experts_write(tt_loop *l, bool last, tt_error *err)
{
    const int64_t now = tt_now_ns();
    bool any = false;
    tt_str text = {0};
    if (!l->main || !l->known_step || (!last && now - l->experts.written_ns < WRITE_NS))
        return TT_OK;
    l->experts.written_ns = now;
    tt_str_printf(&text, "{\"step\":%lld,\"layers\":[", (long long)l->known_step);
    for (int i = 0; i < l->experts.n_names; i++) {
        const tt_expert_load *e;
        const double *counts = layer_counts(l, i, &e);
        if (!counts)
            continue;
        put_layer(&text, e, counts, !any);
        any = true;
    }
    tt_str_add(&text, "]}\n");
    const tt_status s =
        any ? tt_write_file_atomic(l->experts.path, tt_str_get(&text), text.n, err) : TT_OK;
    tt_str_free(&text);
    return s;
}
