/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_TESTS_MODEL_TEST_H
#define TT_TESTS_MODEL_TEST_H
#include "config/config.h"
#include "passes/compile.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* For tests that include a model's .c: its flavors as a job gets them, and the parameters that
 * describe() really declares. */

static inline tt_op_table model_ops(void)
{
    tt_op_table t = {0};
    t.core = tt_core_ops(&t.n_core);
    return t;
}

/* Option defaults, args_json over them. */
static inline void model_options(tt_arena *a, const char *args_json, const tt_option *table,
                                 size_t n, void *cfg)
{
    static const char text[] = "{\"model\": {}}";
    tt_job *job = NULL;
    tt_error err = {0};
    if (tt_job_load_text(a, "job.json", text, strlen(text), NULL, 0, &job, &err) != TT_OK ||
        tt_job_section(job, "model.args", table, n, sizeof *table, NULL, cfg, &err) != TT_OK ||
        tt_job_overlay(job, "flavor", args_json, table, n, sizeof *table, cfg, &err) != TT_OK)
        fail_msg("%s: %s", args_json, err.text);
}

/* The graph of describe() alone, on 2 lines of seq_len tokens; NULL and *err when it fails. */
static inline tt_graph *model_graph(tt_arena *a, const tt_model_vt *model, const void *cfg,
                                    int64_t seq_len, tt_error *err)
{
    const tt_op_table ops = model_ops();
    const tt_builder_opts o = {.ops = &ops, .tokens = 2 * seq_len, .sequences = 2};
    tt_builder *b = tt_builder_new(a, &o);
    model->describe(cfg, b);
    return tt_builder_finish(b, err) == TT_OK ? tt_builder_graph(b) : NULL;
}

static inline const tt_param_info *model_param(const tt_graph *g, const char *name)
{
    for (size_t i = 0; i < g->params.n; i++)
        if (!strcmp(g->params.items[i]->name, name))
            return g->params.items[i];
    fail_msg("no parameter %s", name);
    return NULL;
}

#endif
