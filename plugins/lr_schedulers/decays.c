/* SPDX-License-Identifier: Apache-2.0 */
#include "warmup.h"
#include <string.h>

/* Schedules that decay from the end of the warm-up on, with step i from 0, W warm-up steps, T steps,
 * m = min_lr_factor and p = (i - W) / (T - W), as in transformers (optimization.py) and PyTorch:
 *   inverse_sqrt     sqrt(t / (i - W + t)), t = timescale, which is W, or 10000 without a warm-up
 *   polynomial       m + (1-m) (1-p)^power
 *   cosine_restarts  m + (1-m) (1 + cos(pi q))/2, q the part of the cycle that is over: of `cycles` equal ones,
 *                    or of cycles of first_cycle_steps steps, each cycle_factor times as long as the one before
 *                    (Loshchilov & Hutter 2017, arXiv:1608.03983)
 */

static const double pi = 3.14159265358979323846;

/* Past the end: the end. */
static double part_of(int64_t step, int64_t warmup, int64_t total)
{
    const double p = total > warmup ? (double)(step - warmup) / (double)(total - warmup) : 1.0;
    return p < 1.0 ? p : 1.0;
}

/* ---- inverse_sqrt ---- */

typedef struct {
    WARMUP_MEMBERS;
    double timescale;
} root_config;

static const tt_option root_options[] = {
    WARMUP_OPTIONS(root_config, "200"),
    TT_OPTION_MORE(
        root_config, timescale, TT_OPT_FLOAT, "null", 1, 1e15, NULL, TT_OPT_NULLABLE, NULL,
        "steps after the warm-up until the rate is that at its end times sqrt(1/2); null: "
        "as many as the warm-up has, or 10000 without one"),
};

static double root_factor(const void *cfg, int64_t step, int64_t total)
{
    const root_config *c = cfg;
    const int64_t warmup = warmup_length(c->warmup_steps, c->warmup_ratio, total);
    if (step < warmup)
        return warmup_factor(c->warmup_from_zero, step, warmup);
    const double t = !isnan(c->timescale) ? c->timescale : warmup > 0 ? (double)warmup : 10000.0;
    return sqrt(t / ((double)(step - warmup) + t));
}

/* ---- polynomial ---- */

typedef struct {
    WARMUP_MEMBERS;
    double power, min_lr_factor;
} polynomial_config;

static const tt_option polynomial_options[] = {
    WARMUP_OPTIONS(polynomial_config, "200"),
    TT_OPTION(polynomial_config, power, TT_OPT_FLOAT, "1.0", 1e-9, 1e3,
              "exponent of the part that is left; 1 is linear"),
    TT_OPTION(polynomial_config, min_lr_factor, TT_OPT_FLOAT, "0.0", 0, 1,
              "the decay ends at this part of the rate"),
};

static double polynomial_factor(const void *cfg, int64_t step, int64_t total)
{
    const polynomial_config *c = cfg;
    const int64_t warmup = warmup_length(c->warmup_steps, c->warmup_ratio, total);
    if (step < warmup)
        return warmup_factor(c->warmup_from_zero, step, warmup);
    const double left = 1.0 - part_of(step, warmup, total);
    return c->min_lr_factor + (1.0 - c->min_lr_factor) * pow(left, c->power);
}

/* ---- cosine_restarts ---- */

typedef struct {
    WARMUP_MEMBERS;
    int64_t cycles, first_cycle_steps;
    double cycle_factor, min_lr_factor;
} restarts_config;

static const tt_option restarts_options[] = {
    WARMUP_OPTIONS(restarts_config, "200"),
    TT_OPTION(restarts_config, cycles, TT_OPT_INT, "1", 1, 1e6,
              "equal cycles from the end of the warm-up to the end of the run"),
    TT_OPTION(restarts_config, first_cycle_steps, TT_OPT_INT, "0", 0, 1e15,
              "steps of the first cycle, in place of `cycles`; 0: `cycles` says"),
    TT_OPTION(restarts_config, cycle_factor, TT_OPT_FLOAT, "1.0", 1, 1e6,
              "with first_cycle_steps: each cycle is so many times as long as the one before"),
    TT_OPTION(restarts_config, min_lr_factor, TT_OPT_FLOAT, "0.0", 0, 1,
              "each cycle ends at this part of the rate"),
};

/* The part of its cycle that is over after n steps; cycle k begins after first (f^k - 1) / (f - 1) steps. */
static double part_of_cycle(double n, double first, double f)
{
    if (!(f > 1.0))
        return fmod(n, first) / first;
    /* the logarithm may be off by one at a cycle's first step */
    double k = floor(log(n / first * (f - 1.0) + 1.0) / log(f)), begin;
    k = fmax(0.0, k);
    while ((begin = first * (pow(f, k) - 1.0) / (f - 1.0)) > n)
        k--;
    while (n - begin >= first * pow(f, k))
        begin += first * pow(f, k++);
    return (n - begin) / (first * pow(f, k));
}

static double restarts_factor(const void *cfg, int64_t step, int64_t total)
{
    const restarts_config *c = cfg;
    const int64_t warmup = warmup_length(c->warmup_steps, c->warmup_ratio, total);
    double q = 0.0;
    if (step < warmup)
        return warmup_factor(c->warmup_from_zero, step, warmup);
    if (c->first_cycle_steps > 0)
        q = part_of_cycle((double)(step - warmup), (double)c->first_cycle_steps, c->cycle_factor);
    else
        q = fmod((double)c->cycles * part_of(step, warmup, total), 1.0);
    if (step >= total && !(q > 0.0))
        q = 1.0; /* no cycle begins at the end */
    return c->min_lr_factor + (1.0 - c->min_lr_factor) * 0.5 * (1.0 + cos(pi * q));
}

static const tt_lr_scheduler_vt root_vt = {sizeof root_vt, root_factor};
static const tt_lr_scheduler_vt polynomial_vt = {sizeof polynomial_vt, polynomial_factor};
static const tt_lr_scheduler_vt restarts_vt = {sizeof restarts_vt, restarts_factor};

static const tt_component components[] = {
    TT_COMPONENT(TT_KIND_LR_SCHEDULER, "inverse_sqrt",
                 "warm-up, then a rate that falls with the root of the steps", root_config,
                 root_options, &root_vt),
    TT_COMPONENT(TT_KIND_LR_SCHEDULER, "polynomial",
                 "warm-up, then a power of the part of the run that is left", polynomial_config,
                 polynomial_options, &polynomial_vt),
    TT_COMPONENT(TT_KIND_LR_SCHEDULER, "cosine_restarts",
                 "warm-up, then cosines that begin again (SGDR)", restarts_config, restarts_options,
                 &restarts_vt),
};

TT_PLUGIN("decays", "1.0", components);
