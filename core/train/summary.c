/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "train/train.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysinfo.h>

/* What a run will cost, before it runs. */

typedef struct traffic { /* of one axis and kind, a step, one rank */
    char name[64];
    int64_t calls;
    double bytes;
} traffic;

static void count_traffic(const tt_setup *s, const tt_plan *p, traffic *t, int *n, int cap)
{
    const tt_graph *g = p->graph;
    for (size_t i = 0; i < g->nodes.n; i++) {
        const tt_node *e = g->nodes.items[i];
        if (!e->step || e->step->kind == TT_STEP_SLICE || e->step->kind == TT_STEP_MASK) continue;
        char name[64];
        int len = snprintf(name, sizeof name, "%s over", tt_step_kind_name(e->step->kind));
        for (int k = 0; k < e->step->atoms.n && len < 48; k++)
            len += snprintf(name + len, sizeof name - (size_t)len, " %s",
                            g->mesh->atom_name[TT_ATOM(e->step->atoms.atom[k])]);
        int at = 0;
        while (at < *n && strcmp(t[at].name, name))
            at++;
        if (at == cap) continue;
        if (at == *n) {
            t[*n] = (traffic){{0}, 0, 0};
            snprintf(t[(*n)++].name, sizeof t->name, "%s", name);
        }
        const double times = e->region <= TT_BACKWARD ? (double)s->micro_batches : 1;
        t[at].calls += (int64_t)times;
        t[at].bytes += times * e->step->cost * (double)tt_dtype_size(e->out[0]->type.dtype);
    }
}

static int64_t total(const tt_plan *p)
{
    return p->bytes[TT_SPACE_STATE] + p->bytes[TT_SPACE_SLOT] + p->bytes[TT_SPACE_WORK];
}

/* A limit of the container is one file of a number, or of "max". */
static double container_limit(void)
{
    char *text = NULL;
    size_t n;
    double limit = 0;
    if (tt_read_file("/sys/fs/cgroup/memory.max", 4096, &text, &n, NULL) == TT_OK) limit = strtod(text, NULL);
    free(text);
    return limit > 0 ? limit : (double)INFINITY;
}

double tt_memory_here(void)
{
    struct sysinfo i;
    if (sysinfo(&i)) return (double)INFINITY;
    return TT_MIN(((double)i.totalram + (double)i.totalswap) * i.mem_unit, container_limit());
}

tt_status tt_memory_check(const tt_setup *s, const tt_plan *p, tt_error *err)
{
    const double need = (double)total(p) * s->world, have = tt_memory_here(), gib = 1.0 / (1 << 30);
    if (need <= have) return TT_OK;
    return tt_job_fail(s->job, tt_job_has(s->job, "training") ? "training" : "", err,
                       "takes %.1f GiB on %d rank%s, and there are %.1f here; lower local_batch_size or seq_len, set "
                       "activation_checkpoint.mode, or take a smaller model (ttrun plan shows what takes it)",
                       gib * need, s->world, s->world == 1 ? "" : "s", gib * have);
}

static const tt_plan *fullest(tt_plan *const *plans, int n)
{
    const tt_plan *p = plans[0];
    for (int i = 1; i < n; i++)
        if (total(plans[i]) > total(p)) p = plans[i];
    return p;
}

static void as_json(const tt_setup *s, const tt_plan *p, const traffic *t, int n, double bubble, tt_str *o)
{
    tt_str_printf(o, "{\"parameters\":%lld,\"flops_per_token\":", (long long)s->size.parameters);
    tt_str_json_number(o, s->size.flops_per_token);
    tt_str_printf(o, ",\"world\":%d,\"micro_batches\":%lld,\"global_batch_size\":%lld", s->world,
                  (long long)s->micro_batches, (long long)s->global_batch);
    tt_str_printf(o, ",\"bytes_per_rank\":{\"state\":%lld,\"slot\":%lld,\"work\":%lld,\"peak\":%lld}",
                  (long long)p->bytes[TT_SPACE_STATE], (long long)p->bytes[TT_SPACE_SLOT],
                  (long long)p->bytes[TT_SPACE_WORK], (long long)total(p));
    const double have = tt_memory_here();
    tt_str_add(o, ",\"memory_here\":");
    tt_str_json_number(o, have);
    tt_str_printf(o, ",\"fits\":%s", isinf(have) ? "null" : (double)total(p) * s->world <= have ? "true" : "false");
    tt_str_printf(o, ",\"step_time_s\":null,\"mfu\":null,\"bubble\":%.4f,\"communication\":[", bubble);
    for (int i = 0; i < n; i++) {
        tt_str_add(o, i ? ",{\"collective\":" : "{\"collective\":");
        tt_str_json(o, t[i].name);
        tt_str_printf(o, ",\"calls\":%lld,\"bytes_sent\":%.0f}", (long long)t[i].calls, t[i].bytes);
    }
    tt_str_add(o, "]}\n");
}

static void as_text(const tt_setup *s, const tt_plan *p, const traffic *t, int n, double bubble, tt_str *o)
{
    const double gib = 1.0 / (1 << 30);
    tt_str_printf(o, "model       %s %s, %lld parameters, %.4g FLOP a token\n", s->model.name, s->core.flavor,
                  (long long)s->size.parameters, s->size.flops_per_token);
    tt_str_printf(o, "ranks       %d", s->world);
    for (int i = 0; i < s->mesh.n_atoms; i++)
        tt_str_printf(o, "%s %s %d", i ? " ×" : ":", s->mesh.atom_name[i], (int)s->mesh.atom_size[i]);
    tt_str_printf(o, "\nstep        %lld samples of %lld tokens, %lld micro-batches of %lld a data rank\n",
                  (long long)s->global_batch, (long long)s->core.training.seq_len,
                  (long long)s->micro_batches, (long long)s->local);
    tt_str_printf(o, "memory      %.3f GiB on the fullest rank: state %.3f (parameters %.3f, optimizer %.3f, gradients %.3f), "
                     "slots %.3f, work %.3f\n",
                  gib * (double)total(p), gib * (double)p->bytes[TT_SPACE_STATE],
                  gib * (double)p->state_bytes_by_kind[TT_STATE_PARAM],
                  gib * (double)p->state_bytes_by_kind[TT_STATE_OPTIMIZER],
                  gib * (double)p->state_bytes_by_kind[TT_STATE_ACCUMULATOR],
                  gib * (double)p->bytes[TT_SPACE_SLOT], gib * (double)p->bytes[TT_SPACE_WORK]);
    const double have = tt_memory_here(), need = (double)total(p) * s->world;
    if (!isinf(have))
        tt_str_printf(o, "fits        %s: %.3f GiB with every rank on this machine, which has %.3f\n", need <= have ? "yes" : "NO",
                      gib * need, gib * have);
    if (s->n_stages > 1)
        tt_str_printf(o, "pipeline    %s, %d stages, bubble %.1f %%\n", s->schedule->name, s->n_stages, 100 * bubble);
    for (int i = 0; i < n; i++)
        tt_str_printf(o, "%s%-40s %6lld a step, %.1f MiB sent\n", i ? "            " : "network     ", t[i].name,
                      (long long)t[i].calls, t[i].bytes / (1 << 20));
    if (!n) tt_str_add(o, "network     none\n");
}

void tt_plan_report(const tt_setup *s, tt_plan *const *plans, int n, bool json, tt_str *out)
{
    traffic t[64];
    int n_t = 0;
    const tt_plan *p = fullest(plans, n);
    count_traffic(s, p, t, &n_t, (int)TT_COUNT(t));
    const double bubble = tt_schedule_bubble(s->schedule, 1, 2);
    if (json)
        as_json(s, p, t, n_t, bubble, out);
    else
        as_text(s, p, t, n_t, bubble, out);
}
