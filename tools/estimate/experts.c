/* SPDX-License-Identifier: Apache-2.0 */
#include "estimate/summary_impl.h"
#include "graph/rows.h"
#include <string.h>

/* What the summary says of experts that are cut over ranks: the rows of a layer on a rank, the bytes of
 * the all-to-alls by axis, and the time of a step where routing is balanced and where it is skewed. */

typedef struct expert_use {
    int parts;       /* the ranks of ep; 1: experts are not cut */
    bool sends_rows; /* messages have the rows only, and not all that there is room for */
    int passes;      /* of a layer, at most */
    int64_t room, rows,
        skewed;  /* of a layer on a rank, room in its first pass; skewed: on the busiest one */
    double sent; /* bytes of all-to-alls per step that a rank sends */
    tt_step_time time; /* with skewed routing */
} expert_use;

static bool is_all_to_all(const tt_traffic *t)
{
    return !strncmp(t->name, "all_to_all over ", 16);
}

static int64_t skewed_rows(const tt_graph *g, const expert_use *u, double skew)
{
    double hot, balanced, skewed;
    tt_expert_shares(g->replicas, u->parts, 1, &hot, &balanced);
    tt_expert_shares(g->replicas, u->parts, skew, &hot, &skewed);
    return balanced > 0 ? (int64_t)((double)u->rows * skewed / balanced + 0.5) : 0;
}

static expert_use use_of(const tt_plan_counts *c)
{
    const tt_axis *ep = tt_mesh_axis(&c->s->mesh, "ep");
    expert_use u = {.parts = ep ? tt_mesh_degree(&c->s->mesh, &ep->atoms) : 1};
    for (size_t i = 0; u.parts > 1 && i < c->g->nodes.n; i++) {
        const tt_node *n = c->g->nodes.items[i];
        const tt_value *v = n->n_out ? n->out[0] : NULL;
        u.sends_rows = u.sends_rows || tt_node_sends_rows(n);
        if (n->op != &tt_op_dispatch_pack || strcmp(v->type.dims[0].label, TT_LABEL_ROWS) != 0)
            continue;
        const int64_t room =
            tt_chunk(c->g->mesh, &v->type.dims[0], v->place.atom[0], v->place.n[0]);
        u.room = TT_MAXV(u.room, room);
    }
    const double skew = TT_MIN(TT_MAXV(c->s->opts->expert_skew, 1.0), (double)u.parts);
    u.passes = tt_expert_passes(c->g->expert_room, u.parts);
    u.rows = (int64_t)((double)u.room * tt_expert_rows_share(c->g, 1, false) + 0.5);
    u.skewed = skewed_rows(c->g, &u, skew);
    for (int i = 0; i < c->n; i++)
        u.sent += is_all_to_all(&c->t[i]) ? c->t[i].bytes : 0;
    if (c->machine && c->s->opts->expert_skew > 0) {
        c->s->graph->expert_skew = skew;
        tt_step_time_of(c->s, c->machine, &u.time);
        c->s->graph->expert_skew = 0;
    }
    return u;
}

/* Adds up the rows of the table of traffic that have the name of row `at`, which is the first of them. */
static bool sum_of_axis(const tt_plan_counts *c, int at, double *bytes)
{
    *bytes = 0;
    for (int i = 0; i < c->n; i++) {
        if (strcmp(c->t[i].name, c->t[at].name) != 0)
            continue;
        if (i < at)
            return false;
        *bytes += c->t[i].bytes;
    }
    return true;
}

/* The weights of the replicas of a layer on a rank, of the layer with most. */
static double replica_bytes(const tt_plan_counts *c)
{
    double bytes = 0, most = 0;
    int block = -1;
    for (size_t i = 0; i < c->g->nodes.n; i++) {
        const tt_node *n = c->g->nodes.items[i];
        const char *label =
            n->n_in > 1 && n->op == &tt_op_grouped_linear ? n->in[1]->type.dims[0].label : NULL;
        if (!label || strcmp(label, TT_LABEL_REPLICAS) != 0 || n->when->region != TT_FORWARD)
            continue;
        bytes = n->block == block ? bytes : 0;
        block = n->block;
        bytes +=
            (double)tt_type_numel(&n->in[1]->type) * (double)tt_dtype_size(n->in[1]->type.dtype);
        most = TT_MAXV(most, bytes);
    }
    return most;
}

/* The rows of the busiest rank over the mean, with this load of ranks without replicas. */
static double with_replicas(const tt_graph *g, double ranks, double skew)
{
    double hot, busiest;
    tt_expert_shares(g->replicas, ranks, skew, &hot, &busiest);
    return busiest * ranks + hot;
}

static void replicas_text(const tt_plan_counts *c, tt_str *o)
{
    const tt_axis *ep = tt_mesh_axis(&c->s->mesh, "ep");
    const double ranks = ep ? tt_mesh_degree(&c->s->mesh, &ep->atoms) : 1,
                 skew = TT_MIN(TT_MAXV(c->s->opts->expert_skew, 1.0), ranks);
    if (!c->g->replicas.n)
        return;
    tt_str_printf(
        o, "  %-10s%lld of %lld experts of a layer on each rank: weights of %.1f MiB per layer%s",
        "replicas", (long long)c->g->replicas.n, (long long)c->g->replicas.of,
        replica_bytes(c) / (1 << 20), c->g->replicas.per_step ? ", once per step" : "");
    if (c->s->opts->expert_skew > 0)
        tt_str_printf(o, ";\n            busiest rank %.3g times the mean, %.3g without",
                      with_replicas(c->g, ranks, skew), skew);
    tt_str_addc(o, '\n');
}

void tt_experts_text(const tt_plan_counts *c, tt_str *o)
{
    const expert_use u = use_of(c);
    double bytes;
    if (!u.room)
        return;
    tt_str_printf(o,
                  "experts     over %d ranks: each has room for %lld rows per layer, and %lld\n"
                  "            of balanced routing",
                  u.parts, (long long)u.room, (long long)u.rows);
    if (u.passes > 1)
        tt_str_printf(o, "; what is beyond takes %d more pass%s at most", u.passes - 1,
                      u.passes > 2 ? "es" : "");
    tt_str_addc(o, '\n');
    for (int i = 0; i < c->n; i++)
        if (is_all_to_all(&c->t[i]) && sum_of_axis(c, i, &bytes))
            tt_str_printf(o,
                          u.sends_rows ? "  %-10s%.1f MiB %s, %d times that at most\n"
                                       : "  %-10s%.1f MiB %s; 1/%d of them is rows\n",
                          "sent", bytes / (1 << 20), c->t[i].name, u.parts);
    replicas_text(c, o);
    if (!(c->s->opts->expert_skew > 0))
        return;
    tt_str_printf(o, "  %-10s%lld rows on the busiest rank; ", "skewed", (long long)u.skewed);
    if (u.skewed > u.room)
        tt_str_printf(o, "%lld of them in\n            later passes",
                      (long long)(u.skewed - u.room));
    else
        tt_str_printf(o, "%s\n            room already",
                      u.sends_rows ? "memory has that" : "memory and messages have that");
    if (c->machine)
        tt_str_printf(o, "; %.4g s per step, balanced %.4g", u.time.step, c->time.step);
    tt_str_addc(o, '\n');
}

void tt_experts_json(const tt_plan_counts *c, tt_str *o)
{
    const expert_use u = use_of(c);
    if (!u.room)
        return;
    tt_str_printf(o,
                  ",\"experts\":{\"ranks\":%d,\"room\":%lld,\"balanced_rows\":%lld,"
                  "\"passes\":%d,\"all_to_all_bytes_sent\":%.0f",
                  u.parts, (long long)u.room, (long long)u.rows, u.passes, u.sent);
    if (c->s->opts->expert_skew > 0)
        tt_str_printf(o, ",\"skewed_rows\":%lld", (long long)u.skewed);
    if (c->s->opts->expert_skew > 0 && c->machine)
        tt_str_printf(o, ",\"skewed_step_time_s\":%.6g", u.time.step);
    if (c->g->replicas.n)
        tt_str_printf(o, ",\"replicas\":%lld,\"replica_bytes\":%.0f", (long long)c->g->replicas.n,
                      replica_bytes(c));
    tt_str_addc(o, '}');
}
