/* SPDX-License-Identifier: Apache-2.0 */
#include "train/console.h"
#include "base/number.h"
#include "graph/graph.h"
#include "graph/metric_name.h"
#include <math.h>
#include <string.h>

static double metric(const tt_metrics_record *r, const char *name)
{
    for (size_t i = 0; i < r->n_metrics; i++)
        if (strcmp(r->metrics[i].name, name) == 0)
            return r->metrics[i].value;
    return (double)NAN;
}

void tt_console_step(const tt_metrics_record *r, tt_str *out)
{
    char tps[40], tflops[40];
    const double mfu = metric(r, "mfu");
    const double comm = metric(r, "time/comm_exposed") / metric(r, "time_s");
    tt_grouped(tps, sizeof tps, metric(r, "tps"), 0);
    tt_grouped(tflops, sizeof tflops, metric(r, "tflops"), 2);
    tt_str_printf(
        out, "step: %2lld  loss: %8.5f  grad_norm: %7.4f  memory: %5.2fGiB  tps: %s  tflops: %s",
        (long long)r->step, metric(r, "loss"), metric(r, "grad_norm"), metric(r, "mem_gib"), tps,
        tflops);
    if (isnan(mfu))
        tt_str_add(out, "  mfu: N/A");
    else
        tt_str_printf(out, "  mfu: %.1f%%", 100.0 * mfu);
    if (comm > 0) /* several ranks: the share of the time spent waiting for communication */
        tt_str_printf(out, "  comm: %.1f%%", 100.0 * comm);
    if (!isnan(metric(r, "lr")))
        tt_str_printf(out, "  lr: %.2e", metric(r, "lr"));
    for (size_t i = 0; i < r->n_metrics; i++)
        if (tt_metric_of_model(r->metrics[i].name))
            tt_str_printf(out, "  %s: %.4g", r->metrics[i].name, r->metrics[i].value);
}

void tt_console_validation(const tt_metrics_record *r, tt_str *out)
{
    const double memory = metric(r, "mem_gib");
    tt_str_printf(out, "validate step: %2lld  loss: %7.4f", (long long)r->step,
                  metric(r, "validation/loss"));
    for (size_t i = 0; i < r->n_metrics; i++) { /* "validation/wiki/loss" */
        const char *name = r->metrics[i].name, *last = strrchr(name, '/');
        if (!strncmp(name, "validation/", 11) && last > name + 11 && !strcmp(last, "/loss"))
            tt_str_printf(out, "  %.*s: %7.4f", (int)(last - name - 11), name + 11,
                          r->metrics[i].value);
    }
    if (!isnan(memory))
        tt_str_printf(out, "  memory: %5.2fGiB", memory);
}

/* ---- on a terminal ---- */

/* A field of the line; it has a fixed width, so that fields stay in their columns. */
typedef struct field {
    char text[96];
    int keep; /* fields with small numbers are left out first; of equal ones the last */
} field;
enum { OWN_FIELDS = 8, MOST_FIELDS = OWN_FIELDS + TT_MAX_LOGGED };

static int length(const field *f, int n)
{
    int sum = -2;
    for (int i = 0; i < n; i++)
        sum += f[i].text[0] ? 2 + (int)strlen(f[i].text) : 0;
    return sum;
}

/* Leaves out fields until the line fits. */
static void fit(field *f, int n, int width)
{
    while (length(f, n) >= width) {
        int least = -1;
        for (int i = 0; i < n; i++)
            if (f[i].text[0] && f[i].keep < 10 && (least < 0 || f[i].keep <= f[least].keep))
                least = i;
        if (least < 0)
            return;
        f[least].text[0] = 0;
    }
}

static void percent(field *f, const char *name, double part)
{
    if (part >= 0)
        snprintf(f->text, sizeof f->text, "%s: %4.1f%%", name, 100.0 * part);
}

/* What the model and the loss log, each by its whole name or, in brief, by the last part of it. Returns the number. */
static int fields_of_model(const tt_metrics_record *r, bool brief, field *f)
{
    int n = 0;
    for (size_t i = 0; i < r->n_metrics && n < TT_MAX_LOGGED; i++) {
        const char *name = r->metrics[i].name, *slash = strrchr(name, '/');
        if (!tt_metric_of_model(name))
            continue;
        snprintf(f[n].text, sizeof f[n].text, brief ? "%.80s: %.3g" : "%.80s: %8.4g",
                 brief && slash ? slash + 1 : name, r->metrics[i].value);
        f[n++].keep = 8;
    }
    return n;
}

static int console_fields(const tt_metrics_record *r, bool brief, bool ranks, field f[MOST_FIELDS])
{
    /* step, loss, gradient norm, learning rate, tokens per second, MFU, memory, communication */
    static const int keep[OWN_FIELDS] = {10, 10, 6, 7, 9, 5, 3, 4};
    char tps[40], tflops[40], memory[24];
    const double mfu = metric(r, "mfu"), lr = metric(r, "lr");
    const size_t n = sizeof f->text;
    memset(f, 0, MOST_FIELDS * sizeof *f);
    for (int i = 0; i < OWN_FIELDS; i++)
        f[i].keep = keep[i];
    tt_grouped(tps, sizeof tps, metric(r, "tps"), 0);
    tt_grouped(tflops, sizeof tflops, metric(r, "tflops"), 2);
    snprintf(f[0].text, n, brief ? "step: %4lld" : "step: %5lld", (long long)r->step);
    snprintf(f[1].text, n, brief ? "loss: %7.4f" : "loss: %8.5f", metric(r, "loss"));
    snprintf(f[2].text, n, brief ? "norm: %6.3f" : "grad_norm: %7.4f", metric(r, "grad_norm"));
    if (!isnan(lr))
        snprintf(f[3].text, n, brief ? "lr: %.1e" : "lr: %.2e", lr);
    snprintf(f[4].text, n, brief || !ranks ? "tps: %7s" : "tps/rank: %7s", tps);
    percent(&f[5], "mfu", mfu);
    if (isnan(mfu))
        snprintf(f[5].text, n, "tflops: %s", tflops);
    snprintf(f[6].text, n, brief ? "mem: %s" : "memory: %8s",
             tt_memory_text(memory, metric(r, "mem_gib")));
    if (ranks)
        percent(&f[7], "comm", metric(r, "time/comm_exposed") / metric(r, "time_s"));
    return OWN_FIELDS + fields_of_model(r, brief, f + OWN_FIELDS);
}

void tt_console_step_fit(const tt_metrics_record *r, int width, bool ranks, tt_str *out)
{
    field f[MOST_FIELDS];
    int n = console_fields(r, false, ranks, f);
    if (length(f, n) >= width)
        n = console_fields(r, true, ranks, f);
    fit(f, n, width);
    for (int i = 0; i < n; i++)
        if (f[i].text[0])
            tt_str_printf(out, "%s%s", i ? "  " : "", f[i].text);
}
