/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_TESTS_PLAN_PLANNED_H
#define TT_TESTS_PLAN_PLANNED_H
#include "exec/job.h"
#include "plan/plan_impl.h"

/* Plans of small jobs, and an independent computation of their values' lifetimes. */

typedef struct planned {
    job j;
    tt_plan *p;
} planned;

/* Fills x where it lies: the graph points to the mesh in x->j.setup. */
static inline void open_plan(planned *x, const char *overrides, int pp_rank)
{
    tt_error err = {0};
    job_open(&x->j, overrides);
    if (tt_setup_plan(&x->j.setup, x->j.setup.graph, x->j.setup.schedule, pp_rank, x->j.arena,
                      &x->p, &err) != TT_OK)
        fail_msg("%s: %s", overrides, err.text);
}

/* Verifies the program of a plan that a test has changed. */
static inline tt_status verify_again(const tt_plan *p, tt_error *err)
{
    tt_arena *a = tt_arena_new();
    tt_program program;
    tt_program_make(p, NULL, a, &program);
    const tt_status s = tt_program_verify(&program, err);
    tt_arena_free(a);
    return s;
}

static inline void refused_as(const tt_plan *p, const char *words)
{
    tt_error err = {0};
    assert_int_equal(verify_again(p, &err), TT_EINTERNAL);
    if (!strstr(err.text, words))
        fail_msg("\"%s\" does not say \"%s\"", err.text, words);
}

/* An independent checker: the first and last use of each root on one timeline, then all pairs of
 * roots. */

typedef struct use {
    const tt_value *root;
    int first, last, phase_mask;
} use;

static inline void see(const tt_plan *p, use *u, const tt_value *v, int at, int phase)
{
    const tt_value *root = tt_plan_alias(v);
    if (p->value[root->id].space < TT_SPACE_SLOT)
        return;
    use *x = &u[root->id];
    if (!x->root)
        *x = (use){root, at, at, 0};
    x->first = TT_MIN(x->first, at);
    x->last = TT_MAXV(x->last, at);
    x->phase_mask |= 1 << phase;
}

static inline int phase_of(const tt_node *n)
{
    return n->when->region <= TT_BACKWARD ? (int)tt_node_part(n)
                                          : TT_N_PARTS + (n->when->region == TT_UPDATE);
}

static inline bool in_step_region(const tt_node *n)
{
    return n->when->region > TT_BACKWARD;
}

/* Times run over the graph's list. It covers a stage's nodes in micro-batches only or, for stage
 * < 0, the step regions of all stages of this rank. A value that another stage reads is sent at
 * the end of its part's list; inputs and messages exist before the list begins. */
static inline void collect(const tt_plan *p, int stage, use *u)
{
    const tt_graph *g = p->graph;
    int begin[TT_N_PARTS + 2], end[TT_N_PARTS + 2] = {0};
    memset(begin, 0xff, sizeof begin);
    for (size_t i = 0; i < g->nodes.n; i++) {
        const int k = phase_of(g->nodes.items[i]);
        if (g->nodes.items[i]->when->stage != stage)
            continue;
        if (begin[k] < 0)
            begin[k] = (int)i - 1;
        end[k] = (int)i;
    }
    for (size_t i = 0; i < g->nodes.n; i++) {
        const tt_node *n = g->nodes.items[i];
        if (in_step_region(n) != (stage < 0))
            continue;
        const int k = phase_of(n);
        for (int j = 0; j < n->n_in; j++) {
            const int from = n->in[j]->node->when->stage;
            if (stage < 0 ? !tt_plan_here(p, from) || !tt_plan_takes_part(p, n) : from != stage)
                continue;
            if (n->op == &tt_op_transfer && stage >= 0)
                see(p, u, n->in[j], end[k], k);
            else if (n->when->stage == stage || stage < 0)
                see(p, u, n->in[j], (int)i, k);
        }
        const bool ready = n->op == &tt_op_input || (n->op == &tt_op_transfer && stage >= 0);
        for (int j = 0; j < n->n_out; j++)
            if (stage < 0 ? tt_plan_here(p, n->when->stage) : n->when->stage == stage)
                see(p, u, n->out[j], ready ? begin[k] : (int)i, k);
    }
}

static inline int64_t space_bytes(const tt_plan *p, const tt_stage_plan *s, tt_space space)
{
    return tt_space_holds(space) ? s->slot_bytes[space - TT_SPACE_SLOT] : p->bytes[space];
}

/* Does v take over the bytes of `of`, where `of` is read last? */
static inline bool takes_over(const tt_plan *p, const tt_value *v, const use *of)
{
    const tt_node *n = v->node;
    const int i = p->in_place[n->id];
    return i >= 0 && v == n->out[0] && tt_plan_alias(n->in[i]) == of->root &&
           of->first < of->last && p->graph->nodes.items[of->last] == n;
}

static inline void no_two_alive_share_a_byte(const tt_plan *p, const char *what)
{
    const tt_graph *g = p->graph;
    for (int s = 0; s <= p->n_stages; s++) {
        const tt_stage_plan *sp = s < p->n_stages ? &p->stages[s] : NULL;
        use *u = calloc((size_t)g->n_values, sizeof *u);
        collect(p, sp ? sp->stage : -1, u);
        for (int a = 0; a < g->n_values; a++)
            for (int b = a + 1; b < g->n_values; b++) {
                if (!u[a].root || !u[b].root || p->value[a].space != p->value[b].space)
                    continue;
                if (u[a].first > u[b].last || u[b].first > u[a].last)
                    continue;
                if (takes_over(p, u[a].root, &u[b]) || takes_over(p, u[b].root, &u[a]))
                    continue;
                const int64_t x = p->value[a].offset, y = p->value[b].offset;
                const int64_t m = tt_plan_value_bytes(g, u[a].root),
                              n = tt_plan_value_bytes(g, u[b].root);
                if (x < y + n && y < x + m)
                    fail_msg("%s: values %d and %d share bytes", what, a, b);
                assert_true(x >= 0 && x + m <= space_bytes(p, sp, p->value[a].space));
            }
        free(u);
    }
}

#endif
