/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/plan_impl.h"
#include <stdlib.h>
#include <string.h>

/* Proof of a plan by an abstract run: work memory is a map from 64-byte line to the value that wrote it last; a reader must
 * find its own value in every line it covers. Independent of how the planner chose offsets. */

typedef struct checker {
    const tt_plan *p;
    int *line;     /* owner of each line of work: value id + 1; scratch: -1 */
    int *slot;     /* of one slot */
    int64_t n_lines, n_slot_lines;
    bool slots;
} checker;

static int *lines_of(checker *c, const tt_loc *l, int64_t bytes, int64_t *first, int64_t *n)
{
    *first = l->offset / TT_PLAN_ALIGN;
    *n = (bytes + TT_PLAN_ALIGN - 1) / TT_PLAN_ALIGN;
    const bool slot = l->space == TT_SPACE_SLOT;
    if (*first < 0 || *first + *n > (slot ? c->n_slot_lines : c->n_lines)) return NULL;
    return slot ? c->slot : c->line;
}

static const char *write_value(checker *c, const tt_value *v)
{
    v = tt_plan_alias(v);
    const tt_loc *l = &c->p->value[v->id];
    if (l->space != TT_SPACE_WORK && l->space != TT_SPACE_SLOT) return NULL;
    int64_t first, n;
    int *m = lines_of(c, l, tt_plan_bytes(c->p->graph, &v->type, &v->place), &first, &n);
    if (!m) return "a value lies outside its space";
    for (int64_t i = 0; i < n; i++)
        m[first + i] = v->id + 1;
    return NULL;
}

static const char *read_value(checker *c, const tt_value *v)
{
    v = tt_plan_alias(v);
    const tt_loc *l = &c->p->value[v->id];
    if (l->space == TT_SPACE_NONE) return "a value that is read has no place";
    if (l->space == TT_SPACE_STATE) return NULL;
    int64_t first, n;
    const int *m = lines_of(c, l, tt_plan_bytes(c->p->graph, &v->type, &v->place), &first, &n);
    if (!m) return "a value lies outside its space";
    for (int64_t i = 0; i < n; i++)
        if (m[first + i] != v->id + 1) return "a value is overwritten before it is read";
    return NULL;
}

static const char *run_list(checker *c, tt_node *const *nodes, int n)
{
    const char *bad = NULL;
    for (int i = 0; i < n; i++)
        if (nodes[i]->op == &tt_op_input && !bad) bad = write_value(c, nodes[i]->out[0]);
    for (int i = 0; !bad && i < n; i++) {
        const tt_node *e = nodes[i];
        const int64_t at = c->p->scratch[e->id];
        if (e->op == &tt_op_input) continue;
        if (at >= 0) {
            const int64_t k = (c->p->scratch_bytes[e->id] + TT_PLAN_ALIGN - 1) / TT_PLAN_ALIGN;
            if (at / TT_PLAN_ALIGN + k > c->n_lines) return "scratch lies outside its space";
            for (int64_t j = 0; j < k; j++)
                c->line[at / TT_PLAN_ALIGN + j] = -1;
        }
        for (int j = 0; !bad && j < e->n_out; j++)
            bad = write_value(c, e->out[j]);
        for (int j = 0; !bad && j < e->n_in; j++)
            if (e->op == &tt_op_transfer ||
                (e->op == &tt_op_stage_sum && !tt_plan_here(c->p, e->in[j]->node->stage)))
                continue;
            else
                bad = read_value(c, e->in[j]); /* after the write: outputs must not lie on inputs */
    }
    return bad;
}

static const char *sent_values(checker *c, const tt_stage_plan *s, tt_region region)
{
    const tt_graph *g = c->p->graph;
    const char *bad = NULL;
    for (size_t i = 0; !bad && i < g->nodes.n; i++) {
        const tt_node *t = g->nodes.items[i];
        if (t->op == &tt_op_transfer && t->region == region && t->in[0]->node->stage == s->stage)
            bad = read_value(c, t->in[0]);
    }
    return bad;
}

tt_status tt_plan_verify(const tt_plan *p, tt_error *err)
{
    const char *bad = NULL;
    for (int i = 0; !bad && i < p->n_stages; i++) {
        const tt_stage_plan *s = &p->stages[i];
        checker c = {.p = p, .slots = s->n_slots > 1};
        c.n_lines = p->bytes[TT_SPACE_WORK] / TT_PLAN_ALIGN;
        c.n_slot_lines = s->slot_bytes / TT_PLAN_ALIGN;
        c.line = calloc((size_t)c.n_lines + 1, sizeof *c.line);
        c.slot = calloc((size_t)c.n_slot_lines + 1, sizeof *c.slot);
        if (!c.line || !c.slot) {
            free(c.line);
            free(c.slot);
            return TT_FAIL(err, TT_ENOMEM, "no memory to check a plan of %lld bytes",
                           (long long)p->bytes[TT_SPACE_WORK]);
        }
        bad = run_list(&c, s->forward, s->n_forward);
        if (!bad) bad = sent_values(&c, s, TT_FORWARD);
        if (c.slots) /* between them other micro-batches use the work space */
            memset(c.line, 0xff, (size_t)c.n_lines * sizeof *c.line);
        if (!bad) bad = run_list(&c, s->backward, s->n_backward);
        if (!bad) bad = sent_values(&c, s, TT_BACKWARD);
        if (!bad) bad = run_list(&c, s->epilogue, s->n_epilogue);
        if (!bad) bad = run_list(&c, s->update, s->n_update);
        free(c.line);
        free(c.slot);
    }
    return bad ? TT_FAIL(err, TT_EINTERNAL, "memory plan: %s", bad) : TT_OK;
}
