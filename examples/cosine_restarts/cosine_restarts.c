/* SPDX-License-Identifier: Apache-2.0 */
/* cosine_restarts: SGDR. Cycles of cosine decay, each `factor` times as long as the one before,
 * after a linear warm-up. Loshchilov & Hutter 2017, arXiv:1608.03983, eq. 5. */
#include <math.h>
#include <ttrun/lr_scheduler.h>

typedef struct {
    int64_t warmup, cycle; /* steps */
    double factor, low;
} config;

static const tt_option options[] = {
    {"warmup_steps",  "linear",     TT_OPT_INT,   offsetof(config, warmup), "0",    0, 1e15, NULL, 0, NULL},
    {"cycle_steps",   "of cycle 1", TT_OPT_INT,   offsetof(config, cycle),  "1000", 1, 1e15, NULL, 0,
     NULL                                                                                                 },
    {"factor",        "growth",     TT_OPT_FLOAT, offsetof(config, factor), "2.0",  1, 100,  NULL, 0, NULL},
    {"min_lr_factor", "floor",      TT_OPT_FLOAT, offsetof(config, low),    "0.0",  0, 1,    NULL, 0, NULL},
};

static double factor_at(const void *cfg, int64_t step, int64_t total)
{
    const config *c = (const config *)cfg;
    double t = (double)(step - c->warmup), length = (double)c->cycle;
    (void)total;
    if (t < 0)
        return (double)(step + 1) / (double)(c->warmup + 1);
    for (; c->factor > 1 && t >= length; length *= c->factor)
        t -= length;
    t = fmod(t, length);
    return c->low + (1 - c->low) * 0.5 * (1 + cos(3.14159265358979323846 * t / length));
}

static const tt_lr_scheduler_vt vt = {sizeof(vt), factor_at};
static const tt_component parts[] = {
    TT_COMPONENT(TT_KIND_LR_SCHEDULER, "cosine_restarts", "cosine cycles", config, options, &vt)};
TT_PLUGIN("cosine_restarts", "1.0", parts);
