/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/schedule_impl.h"
#include <stdlib.h>

/* The checker: every action occurs once, on its stage's rank, after the actions of its own stage
 * that it depends on; each stage's micro-batches ascend (P5); and no rank waits for ever. */

int tt_action_to(const tt_schedule *s, const tt_action *a)
{
    const int to = a->kind == TT_ACTION_F ? a->stage + 1 : a->stage - 1;
    return a->kind != TT_ACTION_W && to >= 0 && to < s->n_stages ? to : -1;
}

int tt_action_needs(const tt_schedule *s, const tt_action *a, tt_action out[2])
{
    int n = 0;
    if (a->kind == TT_ACTION_F) {
        if (a->stage)
            out[n++] = (tt_action){TT_ACTION_F, a->stage - 1, a->micro};
        return n;
    }
    if (a->kind == TT_ACTION_W) {
        out[n++] = (tt_action){TT_ACTION_I, a->stage, a->micro};
        return n;
    }
    out[n++] = (tt_action){TT_ACTION_F, a->stage, a->micro};
    if (a->stage < s->n_stages - 1)
        out[n++] = (tt_action){TT_ACTION_I, a->stage + 1, a->micro};
    return n;
}

static tt_status at(const tt_schedule *s, int rank, const tt_action *a, const char *what,
                    tt_error *err)
{
    return TT_FAIL(err, TT_EINVAL, "schedule %s, rank %d, %d%c%d: %s", s->name, rank, a->stage,
                   TT_ACTION_LETTERS[a->kind], a->micro, what);
}

typedef struct checker {
    const tt_schedule *s;
    uint8_t *seen; /* by (stage, micro-batch): bit a kind */
    int *last;     /* by stage: the last micro-batch forward, and the last accumulated */
    bool bits;
} checker;

static size_t place(const tt_schedule *s, const tt_action *a)
{
    return (size_t)a->stage * (size_t)s->n_micro + (size_t)a->micro;
}

/* F accumulates losses; B and W accumulate gradients. */
static const char *check_ascent(checker *c, const tt_action *a)
{
    if (!c->bits || a->kind == TT_ACTION_I)
        return NULL;
    int *last = &c->last[2 * a->stage + (a->kind != TT_ACTION_F)];
    if (*last > a->micro)
        return "micro-batches of a stage do not ascend, so sums depend on the schedule";
    *last = a->micro;
    return NULL;
}

static const char *check_action(checker *c, int rank, const tt_action *a)
{
    const tt_schedule *s = c->s;
    if (a->stage < 0 || a->stage >= s->n_stages || a->micro < 0 || a->micro >= s->n_micro ||
        (unsigned)a->kind >= TT_N_ACTIONS)
        return "does not belong to this schedule";
    if (s->stage_rank[a->stage] != rank)
        return "is on another rank than its stage";
    uint8_t *seen = &c->seen[place(s, a)];
    if (*seen >> a->kind & 1)
        return "stands twice";
    if (a->kind != TT_ACTION_F && !(*seen >> TT_ACTION_F & 1))
        return "comes before its forward";
    if (a->kind == TT_ACTION_W && !(*seen >> TT_ACTION_I & 1))
        return "comes before its I";
    *seen |= (uint8_t)(1u << a->kind);
    return check_ascent(c, a);
}

static tt_status check_lists(checker *c, tt_error *err)
{
    const tt_schedule *s = c->s;
    for (int r = 0; r < s->n_ranks; r++)
        for (int i = 0; i < s->n_actions[r]; i++) {
            const char *bad = check_action(c, r, &s->actions[r][i]);
            if (bad)
                return at(s, r, &s->actions[r][i], bad, err);
        }
    const uint8_t f = 1u << TT_ACTION_F, whole = f | 1u << TT_ACTION_B,
                  split = f | 1u << TT_ACTION_I | 1u << TT_ACTION_W;
    for (int k = 0; k < s->n_stages; k++)
        for (int m = 0; m < s->n_micro; m++) {
            const tt_action a = {TT_ACTION_F, k, m};
            const uint8_t seen = c->seen[place(s, &a)];
            if (seen != whole && seen != split)
                return TT_FAIL(
                    err, TT_EINVAL,
                    "schedule %s: stage %d, micro-batch %d: an action is missing or too "
                    "many (has%s%s%s%s; needs F and B, or F, I and W)",
                    s->name, k, m, seen & f ? " F" : "", seen >> TT_ACTION_B & 1 ? " B" : "",
                    seen >> TT_ACTION_I & 1 ? " I" : "", seen >> TT_ACTION_W & 1 ? " W" : "");
        }
    return TT_OK;
}

tt_status tt_schedule_check(const tt_schedule *s, bool bits, tt_error *err)
{
    tt_arena *a = tt_arena_new();
    checker c = {.s = s, .bits = bits};
    double makespan, bubble;
    c.seen = tt_arena_array(a, (size_t)s->n_stages * (size_t)s->n_micro, 1);
    c.last = tt_arena_array(a, 2 * (size_t)s->n_stages, sizeof *c.last);
    tt_status st = check_lists(&c, err);
    if (st == TT_OK)
        st = tt_schedule_time(s, &(tt_costs){0}, &makespan, &bubble, err);
    tt_arena_free(a);
    return st;
}
