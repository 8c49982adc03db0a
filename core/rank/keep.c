/* SPDX-License-Identifier: Apache-2.0 */
#include "base/pool.h"
#include "rank/magnitudes.h"
#include "rank/rank.h"
#include <string.h>

/* A program takes over the states of another one, by name: parameters, optimizer states, buffers. */

#define COPY_GRAIN ((int64_t)1 << 20) /* bytes that a thread takes at a time */

typedef struct copying {
    char *to;
    const char *from;
} copying;

static void copy_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const copying *c = arg;
    (void)thread;
    memcpy(c->to + begin, c->from + begin, (size_t)(end - begin));
}

static tt_status copy_tensor(const tt_rank *next, const tt_rank *old, const tt_tensor *to,
                             const tt_tensor *from, tt_error *err)
{
    void *host = NULL;
    if (tt_device_is_host(&next->device)) {
        copying c = {to->data, from->data};
        tt_parallel_for(next->pool, tt_tensor_bytes(to), COPY_GRAIN, copy_range, &c);
        return TT_OK;
    }
    TT_TRY(tt_exec_map(old->exec, from, true, &host, err));
    return tt_exec_unmap(next->exec, to, host, true, err); /* which frees the copy */
}

static bool same_box(const tt_tensor *a, const tt_tensor *b)
{
    bool same = a->n_dims == b->n_dims && a->dtype == b->dtype;
    for (int d = 0; same && d < a->n_dims; d++)
        same = a->shape[d] == b->shape[d] && a->begin[d] == b->begin[d] &&
               a->global[d] == b->global[d];
    return same;
}

static const char *kept_key(tt_arena *a, const tt_program_param *p)
{
    return tt_arena_printf(a, "%s\n%s", p->name, p->suffix ? p->suffix : "");
}

/* By key: the number of the parameter, plus 1. */
static tt_map *numbers_of(const tt_program *p, tt_arena *a)
{
    tt_map *m = tt_map_new(a);
    for (int i = 0; i < p->n_params; i++)
        if (!p->params[i].transient)
            tt_map_set(m, kept_key(a, &p->params[i]), (void *)(intptr_t)(i + 1));
    return m;
}

static void count_new(const tt_program_param *p, bool had, tt_kept *k)
{
    if (p->suffix || p->transient)
        return;
    k->kept += had;
    k->added += !had;
    if (!had && !k->added_first)
        k->added_first = p->name;
}

static tt_status keep_param(const tt_rank *next, const tt_rank *old, int i, int was, tt_error *err)
{
    const tt_program_param *p = &next->plan->program->params[i];
    tt_tensor to, from;
    if (!tt_exec_param(next->exec, i, &to))
        return TT_OK;
    if (was < 0)
        return p->init ? tt_rank_init_param(next, i, &to, err) : TT_OK;
    if (!tt_exec_param(old->exec, was, &from) || !same_box(&to, &from))
        return TT_FAIL(
            err, TT_EUNSUPPORTED,
            "%s%s%s would lie elsewhere or have another type, so its values cannot be kept",
            p->name, p->suffix ? "." : "", p->suffix ? p->suffix : "");
    if (to.data == from.data)
        return TT_OK;
    return copy_tensor(next, old, &to, &from, err);
}

/* Parameters, their states and buffers. */
static tt_status keep_params(const tt_rank *next, const tt_rank *old, tt_arena *a, tt_kept *k,
                             tt_error *err)
{
    const tt_program *p = next->plan->program, *q = old->plan->program;
    const tt_map *had = numbers_of(q, a), *has = numbers_of(p, a);
    for (int i = 0; i < p->n_params; i++) {
        const int was = (int)(intptr_t)tt_map_get(had, kept_key(a, &p->params[i])) - 1;
        count_new(&p->params[i], was >= 0, k);
        TT_TRY(keep_param(next, old, i, was, err));
    }
    for (int i = 0; i < q->n_params; i++) {
        const tt_program_param *x = &q->params[i];
        if (x->suffix || x->transient || tt_map_get(has, kept_key(a, x)))
            continue;
        k->dropped++;
        k->dropped_first = k->dropped_first ? k->dropped_first : x->name;
    }
    return TT_OK;
}

/* What begins as something else: magnitudes as norms of weights, then states as their parameters. */
static tt_status keep_all(const tt_rank *next, const tt_rank *old, tt_arena *a, tt_kept *k,
                          tt_error *err)
{
    const tt_program *q = old->plan->program;
    tt_dist d = old->dist;
    tt_map *states = tt_map_new(a);
    TT_TRY(tt_agree_or_go_on(&d, keep_params(next, old, a, k, err), err));
    TT_TRY(tt_rank_add_magnitudes(next, old, err));
    for (int i = 0; i < q->n_params; i++)
        if (q->params[i].suffix)
            tt_map_set(states, tt_rank_state_name(a, q->params[i].name, q->params[i].suffix),
                       states);
    return tt_rank_start_copies(next, states, err);
}

tt_status tt_rank_keep_states(const tt_rank *next, const tt_rank *old, tt_kept *out, tt_error *err)
{
    tt_arena *a = tt_arena_new();
    *out = (tt_kept){0};
    const tt_status s = keep_all(next, old, a, out, err);
    tt_arena_free(a);
    return s;
}
