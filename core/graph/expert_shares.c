/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/graph.h"
#include "graph/rows.h"
#include <math.h>

/* How the slots of a layer are spread over experts and ranks, for estimates. */

#define STEPS 60 /* of a bisection: more than a double's digits */

/* The sum of i^-a, i from 1 to n. */
static double power_sum(double a, int64_t n)
{
    double sum = 0;
    for (int64_t i = 1; i <= n; i++)
        sum += pow((double)i, -a);
    return sum;
}

/* The exponent of the power law whose first of n experts has the share `first`. */
static double exponent_of(double first, int64_t n)
{
    double lo = 0, hi = 64;
    for (int i = 0; i < STEPS; i++) {
        const double mid = (lo + hi) / 2;
        if (power_sum(mid, n) * first > 1)
            lo = mid;
        else
            hi = mid;
    }
    return lo;
}

void tt_expert_shares(tt_expert_replicas r, double ranks, double skew, double *hot, double *busiest)
{
    const double n = (double)r.of, s = TT_MIN(TT_MAXV(skew, 1.0), ranks);
    *hot = 0;
    *busiest = s / ranks;
    if (r.n < 1 || r.of < 1)
        return;
    const double others =
        n > 1 ? (n / ranks - 1) / (n - 1) : 0; /* share of the rest, but the first */
    const double first = others < 1 ? (s / ranks - others) / (1 - others) : 1 / n;
    const double a = s > 1 ? exponent_of(TT_MIN(TT_MAXV(first, 1 / n), 1.0), r.of) : 0;
    const double all = power_sum(a, r.of), most = r.n < r.of ? pow((double)r.n + 1, -a) / all : 0;
    *hot = power_sum(a, r.n) / all;
    const double rest = r.n + 1 < r.of ? (1 - *hot - most) / (n - (double)r.n - 1) : 0;
    *busiest = most + TT_MAXV(n / ranks - 1, 0.0) * TT_MAXV(rest, 0.0);
    *busiest = TT_MIN(TT_MAXV(*busiest, (1 - *hot) / ranks), 1 - *hot);
}

static double ranks_of_ep(const tt_graph *g)
{
    const tt_axis *ep = tt_mesh_axis(g->mesh, "ep");
    return ep ? tt_mesh_degree(g->mesh, &ep->atoms) : 1;
}

double tt_expert_rows_share(const tt_graph *g, double skew, bool later)
{
    const double parts = ranks_of_ep(g), room = g->expert_room;
    double hot, s;
    tt_expert_shares(g->replicas, parts, skew, &hot, &s);
    s *= parts;
    if (tt_expert_passes(room, (int64_t)parts) == 1)
        return s / parts;
    return later ? TT_MAXV(s - room, 0.0) / (parts - room) : TT_MIN(s, room) / room;
}

double tt_replica_rows_share(const tt_graph *g, double skew)
{
    double hot, busiest;
    tt_expert_shares(g->replicas, ranks_of_ep(g), skew, &hot, &busiest);
    return hot;
}
