/* SPDX-License-Identifier: Apache-2.0 */
/* triangle: a rate that rises and falls linearly, again and again. Smith 2017, arXiv:1506.01186. */
#include <math.h>
#include <ttrun/lr_scheduler.h>

typedef struct {
    int64_t cycle; /* steps */
    double decay, low;
} config;

static const tt_option options[] = {
    {"cycle_steps",   "up and down again", TT_OPT_INT,   offsetof(config, cycle), "1000", 2, 1e15, NULL,
     0,                                                                                                     NULL},
    {"decay",         "of each peak",      TT_OPT_FLOAT, offsetof(config, decay), "1.0",  0, 1,    NULL, 0, NULL},
    {"min_lr_factor", "floor",             TT_OPT_FLOAT, offsetof(config, low),   "0.0",  0, 1,    NULL, 0, NULL},
};

static double factor_at(const void *cfg, int64_t step, int64_t total)
{
    const config *c = (const config *)cfg;
    const double cycle = floor((double)step / (double)c->cycle);
    const double part = (double)(step % c->cycle + 1) / (double)c->cycle; /* in (0, 1] */
    const double height = 1 - fabs(2 * part - 1);
    (void)total;
    return c->low + (1 - c->low) * height * pow(c->decay, cycle);
}

static const tt_lr_scheduler_vt vt = {sizeof(vt), factor_at};
static const tt_component parts[] = {TT_COMPONENT(
    TT_KIND_LR_SCHEDULER, "triangle", "cycles of a rising and falling rate", config, options, &vt)};
TT_PLUGIN("triangle", "1.0", parts);
