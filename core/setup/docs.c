/* SPDX-License-Identifier: Apache-2.0 */
#include "setup/setup.h"

/* Collects all option tables that a job may use: the core's, and one section per component. */

static const char *section_of(tt_kind k)
{
    switch (k) {
    case TT_KIND_MODEL:
        return "model.args";
    case TT_KIND_TOKENIZER:
        return "tokenizer";
    case TT_KIND_DATALOADER:
        return "dataloader";
    case TT_KIND_LOSS:
        return "loss";
    case TT_KIND_OPTIMIZER:
        return "optimizer";
    case TT_KIND_LR_SCHEDULER:
        return "lr_scheduler";
    case TT_KIND_METRICS:
        return "metrics.sinks[]";
    case TT_KIND_CONVERTER:
        return "converters[]";
    case TT_KIND_HOOK:
        return "hooks[]";
    case TT_KIND_COMM:
        return "comm.args";
    case TT_KIND_BACKEND:
        return "backend";
    default:
        return NULL;
    }
}

tt_status tt_setup_docs(tt_registry *r, tt_arena *a, tt_section_doc **out, size_t *n_out,
                        tt_error *err)
{
    size_t n;
    const tt_section_doc *core = tt_core_config_docs(&n);
    TT_VEC(tt_section_doc) all = {0};
    tt_str faults = {0};
    for (size_t i = 0; i < n; i++)
        tt_vec_push(a, &all, core[i]);
    tt_vec_push(a, &all, *tt_console_doc());
    for (int k = TT_KIND_TRAIN_SPEC; k < TT_KIND_END; k++) {
        const tt_component **c;
        size_t m = 0;
        const tt_status s = section_of((tt_kind)k)
                                ? tt_registry_all(r, (tt_kind)k, a, &c, &m, &faults, err)
                                : TT_OK;
        if (s != TT_OK) {
            tt_str_free(&faults);
            return s;
        }
        for (size_t i = 0; i < m; i++) {
            const tt_section_doc d = {
                section_of((tt_kind)k), c[i]->name,        c[i]->doc, c[i]->options,
                c[i]->n_options,        c[i]->option_size, NULL};
            tt_vec_push(a, &all, d);
            tt_section_doc host = d;
            host.key = "comm.host_args"; /* the same plugin beside another one: comm.host */
            if (k == TT_KIND_COMM)
                tt_vec_push(a, &all, host);
        }
    }
    tt_str_free(&faults);
    *out = all.items;
    *n_out = all.n;
    return TT_OK;
}
