/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "base/pool.h"
#include "train/bandwidth.h"
#include "train/bubble.h"
#include "train/loop.h"
#include "train/memory_snapshot.h"
#include "train/trace.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

/* Profiles. A traced step is written to step-N.json; all ranks are in one file, each as a process
 * of the trace. Over all traced steps there is a table by class of op against the roofline of this
 * machine, on the console and in ops.jsonl for `ttrun report`. */

#define MOST_CLASSES 192

typedef struct tt_profile {
    const char *folder;
    tt_arena *arena;
    tt_machine limit;  /* of this machine, measured with the threads of one rank */
    char backend[256]; /* the backend's description of its matmul kernels */
    tt_str text;
    int64_t begin_ns;
    double data_before; /* l->t.data when the step began */
    bool recording;
    int64_t steps, step_ns; /* traced so far */
    tt_op_sum sums[MOST_CLASSES];
    size_t n_sums;
    tt_bubble bubble; /* sums over the traced steps */
} tt_profile;

/* ---- the machine's limits ---- */

/* The speed of f32 matmuls and of matmuls in the job's dtype, as measured here. */
static void measure_limits(tt_loop *l, tt_machine *out)
{
    const tt_backend_vt *vt = l->s->backend.component->vtable;
    void *self = l->rank.backend;
    const tt_dtype dtype = l->s->graph->precision.compute;
    *out = (tt_machine){.name = "this machine",
                        .memory_bandwidth = vt->host_memory ? tt_stream_bandwidth(l->rank.pool) : 0,
                        .matmul_efficiency = 1,
                        .attention_efficiency = 1,
                        .memory_efficiency = 1};
    if (!vt->peak_flops)
        return;
    out->flops_f32 = vt->peak_flops(self, TT_F32);
    if (dtype == TT_BF16)
        out->flops_bf16 = vt->peak_flops(self, dtype);
    if (dtype == TT_F16)
        out->flops_f16 = vt->peak_flops(self, dtype);
    out->flops_vector = out->flops_f32;
    if (TT_HAS(vt, tt_backend_vt, peak_vector_flops) && vt->peak_vector_flops)
        out->flops_vector = vt->peak_vector_flops(self);
}

/* "f32 products 1029.3, other arithmetic 429.7 GFLOP/s, memory 58.5 GB/s (…)"; of a device, whose
 * bandwidth the host does not measure, "…, memory bandwidth not known". */
static void print_limits(const tt_machine *m, tt_str *o)
{
    static const tt_dtype products[] = {TT_F32, TT_BF16, TT_F16};
    const char *comma = "";
    for (size_t i = 0; i < TT_COUNT(products); i++) {
        if (tt_machine_flops(m, products[i]) <= 0)
            continue;
        tt_str_printf(o, "%s%s products %.1f", comma, tt_dtype_name(products[i]),
                      1e-9 * tt_machine_flops(m, products[i]));
        comma = ", ";
    }
    if (m->flops_vector > 0)
        tt_str_printf(o, "%sother arithmetic %.1f", comma, 1e-9 * m->flops_vector);
    tt_str_add(o, m->flops_vector > 0 || *comma ? " GFLOP/s, " : "arithmetic not known, ");
    if (m->memory_bandwidth > 0)
        tt_str_printf(o, "memory %.1f GB/s (four reads, three writes)", 1e-9 * m->memory_bandwidth);
    else
        tt_str_add(o, "memory bandwidth not known");
}

/* ---- when ---- */

tt_status tt_loop_profile_open(tt_loop *l, tt_error *err)
{
    const tt_profiling_config *c = &l->s->core.profiling;
    tt_arena *a = tt_arena_new();
    tt_profile *p = tt_arena_alloc(a, sizeof *p);
    p->arena = a;
    p->folder = tt_path_join(a, l->s->core.dump_folder, c->save_traces_folder);
    l->profile = p;
    TT_TRY(tt_exec_trace_open(l->rank.exec, err));
    if (!l->main)
        return TT_OK;
    measure_limits(l, &p->limit);
    const tt_backend_vt *vt = l->s->backend.component->vtable;
    vt->describe(l->rank.backend, p->backend, sizeof p->backend);
    return tt_mkdirs(p->folder, err);
}

tt_status tt_loop_open_profile(tt_loop *l, tt_error *err)
{
    return l->s->core.profiling.enable ? tt_loop_profile_open(l, err) : TT_OK;
}

tt_status tt_loop_profile_ask(tt_loop *l, tt_error *err)
{
    const int64_t t0 = tt_now_ns();
    if (!l->profile)
        TT_TRY(tt_loop_profile_open(l, err));
    l->t.begin_ns += tt_now_ns() - t0; /* does not count as part of the step */
    l->profile_step = l->step + 1;
    return TT_OK;
}

/* A cycle has `freq` steps, the last `active` of which are traced. Skipped steps and a number of cycles are this
 * start's; else a cycle ends at each multiple of freq. */
static bool profile_due(const tt_loop *l, int64_t step)
{
    const tt_profiling_config *c = &l->s->core.profiling;
    const int64_t from = c->skip_first || c->repeat ? l->began_step + c->skip_first : 0,
                  at = step - from - 1;
    if (!c->enable || at < 0)
        return false;
    if (!c->repeat && step == l->steps)
        return true;
    return at % c->freq >= c->freq - c->active && (!c->repeat || at / c->freq < c->repeat);
}

bool tt_loop_profiles(const tt_loop *l, int64_t step)
{
    return l->profile && (profile_due(l, step) || step == l->profile_step);
}

static bool traces(const tt_loop *l)
{
    return tt_rank_listed(l->s->core.profiling.ranks, l->rank.dist.rank) > 0;
}

void tt_loop_profile_begin(tt_loop *l)
{
    tt_profile *p = l->profile;
    tt_loop_memory_begin(l);
    if (!tt_loop_profiles(l, l->step))
        return;
    p->recording = true;
    p->begin_ns = tt_now_ns();
    p->data_before = l->t.data;
    if (traces(l))
        tt_exec_trace(l->rank.exec, true);
}

/* ---- the file of a step ---- */

static void print_header(const tt_loop *l, tt_str *o)
{
    const tt_profile *p = l->profile;
    tt_str_printf(o,
                  "{\"displayTimeUnit\":\"ms\",\"otherData\":{\"ttrun\":\"%s\",\"step\":%lld,"
                  "\"world\":%d,\"limits\":\"",
                  TT_BUILD_VERSION, (long long)l->step, l->s->world);
    print_limits(&p->limit, o);
    tt_str_printf(o, "\",\"dropped\":%lld},\n\"traceEvents\":[\n",
                  (long long)tt_trace_dropped(tt_exec_traced(l->rank.exec)));
}

static void print_step(const tt_loop *l, int64_t end_ns, tt_str *o)
{
    const tt_profile *p = l->profile;
    const int rank = l->rank.dist.rank;
    const int64_t data_ns = (int64_t)(1e9 * (l->t.data - p->data_before));
    char name[32], args[64];
    snprintf(name, sizeof name, "step %lld", (long long)l->step);
    snprintf(args, sizeof args, "{\"step\":%lld}", (long long)l->step);
    tt_trace_slice(o, rank, 0, name, "step", p->begin_ns, end_ns, args);
    tt_trace_slice(o, rank, 0, "data", "phase", p->begin_ns, p->begin_ns + data_ns, NULL);
    tt_trace_print(tt_exec_traced(l->rank.exec), o);
}

static tt_status append(const char *path, bool first, const tt_str *text, tt_error *err)
{
    int fd;
    TT_TRY(tt_open_own(path, O_WRONLY | O_CREAT | (first ? O_TRUNC : O_APPEND), 0666, &fd, err));
    FILE *f = fdopen(fd, first ? "w" : "a");
    const bool written = f && fwrite(tt_str_get(text), 1, text->n, f) == text->n;
    if ((f && fclose(f)) || !written)
        return TT_FAIL(err, TT_EIO, "%s: %s; is there room for traces?", path, strerror(errno));
    return TT_OK;
}

/* The ranks append to step-N.json.part one after the other; the last one renames it. [collective]
 */
static tt_status write_trace(tt_loop *l, int64_t end_ns, tt_error *err)
{
    tt_profile *p = l->profile;
    const int rank = l->rank.dist.rank, world = l->s->world;
    char path[4096], part[4096];
    snprintf(path, sizeof path, "%s/step-%lld.json", p->folder, (long long)l->step);
    snprintf(part, sizeof part, "%s/step-%lld.json.part", p->folder, (long long)l->step);
    tt_str_clear(&p->text);
    if (rank == 0)
        print_header(l, &p->text);
    if (traces(l))
        print_step(l, end_ns, &p->text);
    if (rank == world - 1)
        tt_str_add(&p->text, "{\"ph\":\"M\",\"pid\":0,\"tid\":0,\"name\":\"process_labels\","
                             "\"args\":{\"labels\":\"ttrun\"}}\n]}\n");
    tt_status s = TT_OK;
    for (int r = 0; r < world && s == TT_OK; r++)
        s = tt_agree(&l->rank.dist, r == rank ? append(part, r == 0, &p->text, err) : TT_OK, err);
    if (s == TT_OK && rank == 0 && rename(part, path))
        s = TT_FAIL(err, TT_EIO, "%s: %s", path, strerror(errno));
    return tt_agree(&l->rank.dist, s, err);
}

/* ---- the table ---- */

static int slower_first(const void *a, const void *b)
{
    const tt_op_sum *x = a, *y = b;
    return x->ns != y->ns ? (x->ns < y->ns) - (x->ns > y->ns) : strcmp(x->op, y->op);
}

static tt_op_sum total_of(const tt_profile *p)
{
    tt_op_sum t = {.op = "all ops"};
    for (size_t i = 0; i < p->n_sums; i++) {
        if (p->sums[i].concurrent)
            continue;
        t.calls += p->sums[i].calls;
        t.ns += p->sums[i].ns;
        t.flops += p->sums[i].flops;
        t.bytes += p->sums[i].bytes;
        t.bound_s += p->sums[i].bound_s;
    }
    return t;
}

static void log_row(const tt_profile *p, const tt_op_sum *s)
{
    const double n = (double)p->steps, seconds = TT_MAXV(1e-9 * (double)s->ns, 1e-12);
    char roof[16] = "";
    if (s->bound_s > 0)
        snprintf(roof, sizeof roof, "%.1f", 100 * s->bound_s / seconds);
    char name[32];
    snprintf(name, sizeof name, "%s%s", s->op, s->concurrent ? ", concurrent" : "");
    tt_log(TT_INFO, "profile", "%-26s %9.1f %10.3f %7.1f %9.1f %8.1f %10s", name,
           (double)s->calls / n, 1e3 * seconds / n,
           100e9 * seconds / (double)TT_MAXV(p->step_ns, (int64_t)1), 1e-9 * s->flops / seconds,
           1e-9 * s->bytes / seconds, roof);
}

/* ---- the pipeline ---- */

static tt_status add_bubble(tt_loop *l, tt_error *err)
{
    tt_bubble *sum = &l->profile->bubble, b;
    if (l->s->schedule->n_ranks < 2 || strcmp(l->s->core.profiling.ranks, "all"))
        return TT_OK;
    TT_TRY(tt_bubble_measure(l->rank.exec, l->rank.plan, &l->rank.dist, &b, err));
    sum->planned += b.planned;
    sum->replayed += b.replayed;
    sum->measured += b.measured;
    return TT_OK;
}

static void log_bubble(const tt_loop *l)
{
    const tt_profile *p = l->profile;
    const double percent = 100 / (double)p->steps;
    if (l->s->schedule->n_ranks > 1 && !strcmp(l->s->core.profiling.ranks, "all"))
        tt_log(
            TT_INFO, "profile",
            "pipeline %s: bubble %.1f %% planned, %.1f %% simulated from measured parts, %.1f %% "
            "measured",
            l->s->schedule->name, percent * p->bubble.planned, percent * p->bubble.replayed,
            percent * p->bubble.measured);
}

static void log_table(const tt_loop *l)
{
    tt_profile *p = l->profile;
    const tt_op_sum all = total_of(p);
    tt_str_clear(&p->text);
    print_limits(&p->limit, &p->text);
    tt_log(TT_INFO, "profile", "%lld step%s traced, %.3f ms each; traces in %s",
           (long long)p->steps, p->steps == 1 ? "" : "s",
           1e-6 * (double)p->step_ns / (double)p->steps, p->folder);
    if (!traces(l))
        return;
    tt_log(TT_INFO, "profile", "limits measured on rank 0 (%s): %s", p->backend,
           tt_str_get(&p->text));
    tt_log(TT_INFO, "profile", "%-26s %9s %10s %7s %9s %8s %10s", "op", "calls", "ms/step",
           "% step", "GFLOP/s", "GB/s", "% roofline");
    for (size_t i = 0; i < p->n_sums; i++)
        log_row(p, &p->sums[i]);
    log_row(p, &all);
    log_bubble(l);
}

/* ops.jsonl: one line about the machine, then one per op, the slowest first. */
static tt_status write_table(const tt_loop *l, tt_error *err)
{
    const tt_profile *p = l->profile;
    tt_str o = {0};
    char path[4096];
    tt_str_printf(&o, "{\"steps\":%lld,\"step_s\":%.9f,\"last_step\":%lld,\"limits\":\"",
                  (long long)p->steps, 1e-9 * (double)p->step_ns, (long long)l->step);
    print_limits(&p->limit, &o);
    tt_str_add(&o, "\"");
    if (l->s->schedule->n_ranks > 1 && !strcmp(l->s->core.profiling.ranks, "all"))
        tt_str_printf(&o, ",\"bubble\":{\"planned\":%.4f,\"replayed\":%.4f,\"measured\":%.4f}",
                      p->bubble.planned / (double)p->steps, p->bubble.replayed / (double)p->steps,
                      p->bubble.measured / (double)p->steps);
    tt_str_add(&o, "}\n");
    for (size_t i = 0; i < p->n_sums; i++) {
        const tt_op_sum *s = &p->sums[i];
        tt_str_add(&o, "{\"op\":");
        tt_str_json(&o, s->op);
        if (s->concurrent)
            tt_str_add(&o, ",\"concurrent\":true");
        tt_str_printf(&o, ",\"calls\":%lld,\"s\":%.9f,\"flops\":%.0f,\"bytes\":%.0f,\"bound_s\":",
                      (long long)s->calls, 1e-9 * (double)s->ns, s->flops, s->bytes);
        tt_str_json_number(&o, s->bound_s);
        tt_str_add(&o, "}\n");
    }
    snprintf(path, sizeof path, "%s/ops.jsonl", p->folder);
    const tt_status s = tt_write_file_atomic(path, tt_str_get(&o), o.n, err);
    tt_str_free(&o);
    return s;
}

tt_status tt_loop_profile_end(tt_loop *l, tt_error *err)
{
    tt_profile *p = l->profile;
    tt_loop_memory_end(l);
    if (!p || !p->recording)
        return TT_OK;
    const int64_t end = tt_now_ns();
    p->recording = false;
    if (traces(l)) {
        tt_exec_trace(l->rank.exec, false);
        TT_TRY(tt_exec_trace_times(l->rank.exec, err));
    }
    TT_TRY(write_trace(l, end, err));
    TT_TRY(add_bubble(l, err));
    p->steps++;
    p->step_ns += end - p->begin_ns;
    /* without the bandwidth an op's least time is not known */
    if (traces(l))
        p->n_sums = tt_trace_sums(tt_exec_traced(l->rank.exec),
                                  p->limit.memory_bandwidth > 0 ? &p->limit : NULL, p->sums,
                                  p->n_sums, TT_COUNT(p->sums));
    qsort(p->sums, p->n_sums, sizeof *p->sums, slower_first);
    if (l->main && traces(l))
        TT_TRY(write_table(l, err));
    l->t.begin_ns += tt_now_ns() - end; /* writing does not count as part of the step */
    if (l->ctl && l->step == l->profile_step)
        tt_ctl_answer(l->ctl, TT_CTL_PROFILE, TT_OK, "step %lld: %s/step-%lld.json",
                      (long long)l->step, p->folder, (long long)l->step);
    return TT_OK;
}

void tt_loop_close_profile(tt_loop *l)
{
    tt_profile *p = l->profile;
    tt_loop_memory_end(l); /* of a step that failed */
    if (!p)
        return;
    if (l->main && p->steps)
        log_table(l);
    tt_str_free(&p->text);
    tt_arena_free(p->arena);
    l->profile = NULL;
}
