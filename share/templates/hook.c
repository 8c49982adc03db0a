/* SPDX-License-Identifier: Apache-2.0 */
/* @NAME@: ends the run if the loss exceeds a limit after a number of steps. */
#include <stdlib.h>
#include <string.h>
#include <ttrun/hook.h>

typedef struct {
    int64_t after;
    double limit;
} config;

static const tt_option options[] = {
    {"after_step", "first looked at", TT_OPT_INT,   offsetof(config, after), "100",   0, 1e15, NULL, 0,
     NULL},
    {"max_loss",   "the limit",       TT_OPT_FLOAT, offsetof(config, limit), "100.0", 0, 1e30, NULL, 0,
     NULL},
};

static tt_status open_hook(const void *cfg, const tt_hook_env *env, void **self, tt_error *err)
{
    config *c = (config *)malloc(sizeof *c);
    (void)env;
    if (!c)
        return TT_FAIL(err, TT_ENOMEM, "no memory for the hook");
    *c = *(const config *)cfg;
    *self = c;
    return TT_OK;
}

static tt_status after_step(void *self, const tt_metrics_record *r, tt_error *err)
{
    const config *c = (const config *)self;
    for (size_t i = 0; i < r->n_metrics; i++)
        if (r->step > c->after && strcmp(r->metrics[i].name, "loss") == 0 &&
            r->metrics[i].value > c->limit)
            return TT_FAIL(err, TT_ENUMERIC, "@NAME@: the loss %g of step %lld exceeds %g",
                           r->metrics[i].value, (long long)r->step, c->limit);
    return TT_OK;
}

static void close_hook(void *self)
{
    free(self);
}

static const tt_hook_vt vt = {
    sizeof(vt),
    0 /* on rank 0 only */,
    open_hook,
    NULL /* before_step */,
    after_step,
    close_hook,
    NULL /* start */,
    NULL /* after_backward */,
    NULL /* saved */,
    NULL /* validated */,
    NULL /* end */,
};
static const tt_component components[] = {
    TT_COMPONENT(TT_KIND_HOOK, "@NAME@", "a limit of the loss", config, options, &vt),
};
TT_PLUGIN("@NAME@", "0.1", components);
