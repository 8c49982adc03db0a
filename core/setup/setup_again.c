/* SPDX-License-Identifier: Apache-2.0 */
#include "setup/setup_impl.h"

/* The setup of a job that runs, once more with other converters. It is made from the resolved job, so
 * every check of a start is made again. */

/* Blocks stay on their stages: other converters may make other stages equally long, but a rank takes over the
 * parameters that it has. */
static void keep_stages(const tt_graph *old, tt_setup *out)
{
    if (!old || !old->block_stage || old->n_stages != out->n_stages)
        return;
    int *begin = tt_arena_array(out->arena, (size_t)out->n_stages, sizeof *begin);
    for (int stage = 0; stage < out->n_stages; stage++)
        while (begin[stage] < old->n_blocks && old->block_stage[begin[stage]] < stage)
            begin[stage]++;
    out->stage_begin = begin;
}

static tt_status again(const tt_setup *old, const tt_setup_opts *with, const char *converters,
                       int64_t at, tt_arena *a, tt_setup *out, tt_error *err)
{
    const tt_override list = {"converters", converters};
    tt_setup_opts o = *with;
    tt_job *job = NULL;
    tt_str text = {0};
    tt_job_print(old->job, false, &text);
    tt_status s = tt_job_load_text(a, "the running job", tt_str_get(&text), text.n, &list,
                                   converters ? 1 : 0, &job, err);
    tt_str_free(&text);
    o.compile = false;
    if (s == TT_OK)
        s = tt_setup_make(&o, old->registry, job, a, out, err);
    out->converters_at = at;
    if (s == TT_OK)
        keep_stages(old->graph, out);
    return s == TT_OK ? tt_setup_compile(out, with, err) : s;
}

tt_status tt_setup_again(const tt_setup *old, const char *converters, int64_t at, tt_arena *a,
                         tt_setup *out, tt_error *err)
{
    return again(old, old->opts, converters, at, a, out, err);
}

/* ---- the programs of a schedule ---- */

tt_status tt_setup_plan_change(const tt_setup *s, int64_t at, tt_arena *a, tt_setup **out,
                               tt_plan ***plans, tt_error *err)
{
    tt_setup_opts *o = tt_arena_alloc(a, sizeof *o);
    tt_error why = {0};
    *o = *s->opts;
    o->quiet = true;
    *out = tt_arena_alloc(a, sizeof **out);
    tt_status st = again(s, o, NULL, at, a, *out, &why);
    if (st == TT_OK)
        st = tt_setup_plan_all(*out, a, plans, &why);
    return st == TT_OK
               ? st
               : TT_FAIL(err, st, "the program from step %lld on, where the converters change: %s",
                         (long long)at + 1, why.text);
}

/* Compiles and plans the program for `at` completed steps, and forgets it. */
static tt_status check_change(const tt_setup *s, int64_t at, tt_error *err)
{
    tt_arena *a = tt_arena_new();
    tt_setup *next;
    tt_plan **plans;
    const tt_status st = tt_setup_plan_change(s, at, a, &next, &plans, err);
    tt_arena_free(a);
    return st;
}

tt_status tt_setup_check_changes(const tt_setup *s, tt_error *err)
{
    const int64_t first = s->converters_at;
    for (int64_t at = tt_converters_change(s, first); at >= 0; at = tt_converters_change(s, at)) {
        bool known = tt_converters_equal(s, at, first);
        for (int64_t k = tt_converters_change(s, first); k < at && !known;
             k = tt_converters_change(s, k))
            known = tt_converters_equal(s, at, k);
        if (!known)
            TT_TRY(check_change(s, at, err));
    }
    return TT_OK;
}
