/* SPDX-License-Identifier: Apache-2.0 */
#include "base/number.h"
#include "train/ctl.h"
#include <math.h>
#include <unistd.h>

/* What `ttrun ctl RUN_DIR status` prints. */

static void json_number(tt_str *o, const char *key, double v)
{
    tt_str_printf(o, ",\"%s\":", key);
    tt_str_json_number(o, v);
}

static void status_json(const tt_ctl_opts *p, const tt_ctl_numbers *n, const char *state, tt_str *o)
{
    tt_str_add(o, "{\"run\":");
    tt_str_json(o, p->folder);
    tt_str_printf(o, ",\"pid\":%ld,\"state\":\"%s\",\"step\":%lld,\"steps\":%lld,\"epoch\":%lld",
                  (long)getpid(), state, (long long)n->step, (long long)n->steps,
                  (long long)n->epoch);
    json_number(o, "loss", n->loss);
    json_number(o, "loss_max", n->loss_max);
    json_number(o, "grad_norm", n->norm);
    json_number(o, "lr", n->lr);
    json_number(o, "lr_base", n->lr_base);
    tt_str_printf(o, ",\"n_tokens_seen\":%lld", (long long)n->tokens_seen);
    json_number(o, "tps", n->tps);
    json_number(o, "tps_global", n->tps_global);
    json_number(o, "mem_gib", tt_memory_most() / (1 << 30));
    json_number(o, "time_left_s", n->seconds_left);
    tt_str_printf(o, ",\"world\":%d,\"converters\":%s}\n", p->world, p->converters);
}

static void row(tt_str *o, const char *name, const char *fmt, double v)
{
    char text[64];
    snprintf(text, sizeof text, fmt, v); /* NOLINT: a constant of this file */
    tt_str_printf(o, "%-12s %s\n", name, isnan(v) ? "-" : text);
}

static void time_row(tt_str *o, double seconds)
{
    const long long s = isnan(seconds) ? 0 : (long long)fmin(seconds, 1e15);
    if (isnan(seconds))
        tt_str_add(o, "time left    -\n");
    else
        tt_str_printf(o, "time left    %lld:%02lld:%02lld\n", s / 3600, s / 60 % 60, s % 60);
}

static void status_table(const tt_ctl_opts *p, const tt_ctl_numbers *n, const char *state,
                         tt_str *o)
{
    char step[48], steps[48], memory[24];
    tt_grouped(step, sizeof step, (double)n->step, 0);
    tt_grouped(steps, sizeof steps, (double)n->steps, 0);
    tt_str_printf(o, "%-12s %s\n%-12s %s, process %ld, %d rank%s\n%-12s %s / %s, epoch %lld\n",
                  "run", p->folder, "state", state, (long)getpid(), p->world,
                  p->world == 1 ? "" : "s", "step", step, steps, (long long)n->epoch);
    row(o, "loss", "%.5f", n->loss);
    row(o, "grad_norm", "%.4f", n->norm);
    row(o, "lr", "%.4g", n->lr);
    tt_grouped(step, sizeof step, isnan(n->tps) ? 0 : n->tps, 0);
    tt_str_printf(o, "%-12s %s per rank\n", "tokens/s", step);
    tt_str_printf(o, "%-12s %s\n", "memory", tt_memory_text(memory, tt_memory_most() / (1 << 30)));
    time_row(o, n->seconds_left);
    tt_str_printf(o, "%-12s %s\n", "converters", p->converters);
}

void tt_ctl_print_status(const tt_ctl_opts *o, const tt_ctl_numbers *n, const char *state,
                         bool json, tt_str *out)
{
    if (json)
        status_json(o, n, state, out);
    else
        status_table(o, n, state, out);
}
