/* SPDX-License-Identifier: Apache-2.0 */
#include "estimate/summary_impl.h"

/* The programs of a job whose converters change by schedule (from_step, to_step), a row for each. While one
 * program replaces another, both lie in memory; the states are the same ones. */

#define INDENT 12

typedef struct change_row {
    const tt_setup *s;
    int64_t after;  /* completed steps from which on the program runs */
    int64_t bytes;  /* of the fullest rank, with the copy of a save */
    int64_t states; /* … of its parameters, optimizer and gradients, and of that copy */
    double sent;    /* bytes that the busiest rank sends in a step */
    double seconds; /* of a step on the machine */
} change_row;

static change_row row_of(const tt_plan_counts *c, tt_plan *const *plans, int n)
{
    const tt_plan *p = tt_plan_fullest(plans, n);
    change_row r = {.s = c->s,
                    .after = c->s->converters_at,
                    .bytes = tt_plan_rank_bytes(c, plans, p),
                    .states = p->bytes[TT_SPACE_STATE] + tt_plan_saving(c->s, p),
                    .seconds = c->time.step};
    for (int i = 0; i < c->n; i++)
        r.sent += c->t[i].bytes;
    return r;
}

static void change_names(const tt_setup *s, bool json, tt_str *o)
{
    bool some = false;
    for (int i = 0; i < s->n_converters; i++) {
        if (!tt_converter_active(s, i, s->converters_at))
            continue;
        tt_str_add(o, !some ? "" : json ? "," : ", ");
        if (json)
            tt_str_json(o, s->converters[i].name);
        else
            tt_str_add(o, s->converters[i].name);
        some = true;
    }
    if (!some && !json)
        tt_str_add(o, "none");
}

static void change_text(const tt_plan_counts *c, const change_row *r, tt_str *o)
{
    tt_str_printf(o, "%*s%10lld%12.3f%12.1f", INDENT, "", (long long)r->after + 1,
                  (double)r->bytes / (1 << 30), r->sent / (1 << 20));
    if (c->machine)
        tt_str_printf(o, "%12.4g", r->seconds);
    tt_str_add(o, "  ");
    change_names(r->s, false, o);
    tt_str_addc(o, '\n');
}

static void change_json(const tt_plan_counts *c, const change_row *r, tt_str *o)
{
    tt_str_printf(o, "{\"from_step\":%lld,\"converters\":[", (long long)r->after);
    change_names(r->s, true, o);
    tt_str_printf(o, "],\"peak\":%lld,\"bytes_sent\":%.0f,\"step_time_s\":", (long long)r->bytes,
                  r->sent);
    if (c->machine)
        tt_str_printf(o, "%.6g}", r->seconds);
    else
        tt_str_add(o, "null}");
}

/* last: the row before, and then this one. most: the bytes while two programs lie in memory. */
static tt_status add_row(const tt_plan_counts *first, int64_t at, bool json, change_row *last,
                         int64_t *most, tt_str *o, tt_error *err)
{
    tt_arena *a = tt_arena_new();
    tt_setup *s;
    tt_plan **plans;
    tt_plan_counts *c;
    tt_status st = tt_setup_plan_change(first->s, at, a, &s, &plans, err);
    if (st == TT_OK)
        st = tt_plan_count(s, plans, s->pipeline_ranks, first->machine, a, &c, err);
    if (st == TT_OK) {
        const change_row r = row_of(c, plans, s->pipeline_ranks);
        tt_str_add(o, json ? "," : "");
        (json ? change_json : change_text)(c, &r, o);
        *most = TT_MAXV(*most, last->bytes - last->states + r.bytes - r.states +
                                   TT_MAXV(last->states, r.states));
        *last = r;
    }
    tt_arena_free(a);
    return st;
}

tt_status tt_plan_changes(const tt_plan_counts *first, tt_plan *const *plans, int n, bool json,
                          tt_str *o, tt_error *err)
{
    const tt_setup *s = first->s;
    int64_t at = tt_converters_change(s, s->converters_at);
    if (at < 0)
        return TT_OK;
    int64_t most = 0;
    change_row r = row_of(first, plans, n);
    tt_str_add(o, json ? ",\"changes\":[" : "changes     first step  GiB a rank    MiB sent");
    if (!json)
        tt_str_add(o, first->machine ? "  s per step  converters\n" : "  converters\n");
    (json ? change_json : change_text)(first, &r, o);
    for (; at >= 0; at = tt_converters_change(s, at))
        TT_TRY(add_row(first, at, json, &r, &most, o, err));
    if (json)
        tt_str_printf(o, "],\"peak_at_changes\":%lld", (long long)most);
    else
        tt_str_printf(o, "%*swhile a program replaces another: %.3f GiB a rank\n", INDENT, "",
                      (double)most / (1 << 30));
    return TT_OK;
}
