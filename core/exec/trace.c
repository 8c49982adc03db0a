/* SPDX-License-Identifier: Apache-2.0 */
#include "exec/exec_impl.h"
#include <stdlib.h>
#include <string.h>

/* Traces. The main thread notes each instruction, and, when it has waited for it, what a queue's
 * thread did; the pool's workers each tt_parallel_for they took
 * part in (base/pool.h); costs and names are looked up when the trace is written, not before. */

struct tt_trace {
    tt_trace_event *events;
    size_t n, cap;
    int64_t dropped;
    tt_pool_tracer pool;
    int n_workers;
};

#define MOST_EVENTS ((size_t)1 << 20) /* 40 MB: a step of more says what it dropped */
#define SLICES_PER_EVENT 4            /* tt_parallel_for an op, about */

/* ---- recording ---- */

/* Of a loop each instruction once a chunk; of a collective on its own queue the call and the
 * wait. */
static size_t events_of_section(const tt_program *p, const tt_section *s)
{
    size_t n = 0, times = 1;
    for (int i = s->begin; i < s->end; i++) {
        if (p->instrs[i].kind == TT_INSTR_LOOP)
            times = (size_t)p->most_chunks;
        if (p->instrs[i].kind == TT_INSTR_END_LOOP)
            times = 1;
        n += times;
    }
    return n;
}

static size_t events_of_step(const tt_exec *x)
{
    const tt_program *p = x->p;
    size_t n = events_of_section(p, &p->sections[p->epilogue]) +
               events_of_section(p, &p->sections[p->update]);
    for (int s = 0; s < p->epilogue && n < MOST_EVENTS; s++)
        n += (size_t)p->n_micro * events_of_section(p, &p->sections[s]);
    return TT_MIN(n, MOST_EVENTS);
}

tt_status tt_exec_trace_open(tt_exec *x, tt_error *err)
{
    tt_trace *t = calloc(1, sizeof *t);
    if (!t)
        return TT_FAIL(err, TT_ENOMEM, "no memory to trace");
    t->cap = events_of_step(x);
    t->n_workers = tt_pool_threads(x->o.pool) - 1;
    t->events = calloc(t->cap + 1, sizeof *t->events);
    t->pool.workers = calloc((size_t)t->n_workers + 1, sizeof *t->pool.workers);
    bool whole = t->events && t->pool.workers;
    for (int i = 0; whole && i < t->n_workers; i++) {
        tt_pool_slices *w = &t->pool.workers[i];
        w->cap = SLICES_PER_EVENT * t->cap + 1;
        w->items = calloc(w->cap, sizeof *w->items);
        whole = w->items != NULL;
    }
    if (!whole) {
        const size_t events = t->cap;
        tt_exec_trace_free(t);
        return TT_FAIL(
            err, TT_ENOMEM,
            "no memory to trace %zu ops a step on %d threads; set profiling.enable false", events,
            tt_pool_threads(x->o.pool));
    }
    x->recording = t;
    return tt_exec_item_times_open(x, err);
}

void tt_exec_trace_free(tt_trace *t)
{
    if (!t)
        return;
    for (int i = 0; t->pool.workers && i < t->n_workers; i++)
        free(t->pool.workers[i].items);
    free(t->pool.workers);
    free(t->events);
    free(t);
}

void tt_exec_trace(tt_exec *x, bool on)
{
    tt_trace *t = x->recording;
    x->trace = on ? t : NULL;
    tt_pool_trace(x->o.pool, on && t ? &t->pool : NULL);
    if (!on || !t)
        return;
    tt_exec_item_times_clear(x);
    t->n = 0;
    t->dropped = 0;
    for (int i = 0; i < t->n_workers; i++)
        t->pool.workers[i].n = t->pool.workers[i].dropped = 0;
}

void tt_exec_trace_next(tt_trace *t)
{
    t->pool.tag = t->n < t->cap ? (int32_t)t->n : -1;
}

void tt_exec_trace_add(tt_trace *t, const tt_trace_event *e)
{
    if (t->n < t->cap)
        t->events[t->n++] = *e;
    else
        t->dropped++;
}

int64_t tt_exec_trace_dropped(const tt_exec *x)
{
    const tt_trace *t = x->recording;
    int64_t n = t ? t->dropped : 0;
    for (int i = 0; t && i < t->n_workers; i++)
        n += (int64_t)t->pool.workers[i].dropped;
    return n;
}

/* ---- what an event cost ---- */

static tt_instr_cost cost_of(const tt_exec *x, const tt_trace_event *e, const struct tt_machine *m)
{
    return e->wait ? (tt_instr_cost){0} : tt_instr_cost_of(x->p, e->instr, e->rows, e->adds, m);
}

static tt_section_kind section_of(const tt_exec *x, const tt_instr *i)
{
    const int at = (int)(i - x->p->instrs);
    int s = 0;
    while (at >= x->p->sections[s].end)
        s++;
    return x->p->sections[s].kind;
}

static const char *phase_of(const tt_exec *x, const tt_trace_event *e)
{
    return tt_section_phase(section_of(x, e->instr));
}

static const char *class_of(const tt_exec *x, const tt_trace_event *e)
{
    const tt_instr *i = e->instr;
    if (e->wait)
        return "wait";
    if (i->step)
        return tt_step_kind_name(i->step->kind);
    if (i->kind == TT_INSTR_SEND || i->kind == TT_INSTR_RECV)
        return tt_instr_kind_name((tt_instr_kind)i->kind);
    if (!i->fused)
        return i->op;
    switch (section_of(x, i)) {
    case TT_SECTION_EPILOGUE:
        return "fused, epilogue";
    case TT_SECTION_UPDATE:
        return "fused, optimizer";
    case TT_SECTION_F:
        return "fused, forward";
    default:
        return "fused, backward";
    }
}

size_t tt_exec_trace_sums(const tt_exec *x, const struct tt_machine *limit, tt_op_sum *sums,
                          size_t n, size_t cap)
{
    const tt_trace *t = x->recording;
    for (size_t e = 0; t && e < t->n; e++) {
        const tt_trace_event *v = &t->events[e];
        const char *name = class_of(x, v);
        const bool concurrent = v->queue > 0;
        size_t k = 0;
        while (k < n && (sums[k].concurrent != concurrent || strcmp(sums[k].op, name)))
            k++;
        if (k == cap)
            continue;
        if (k == n)
            sums[n++] = (tt_op_sum){.op = name, .concurrent = concurrent};
        const tt_instr_cost c = cost_of(x, v, limit);
        sums[k].calls++;
        sums[k].ns += v->end_ns - v->begin_ns;
        sums[k].flops += c.flops;
        sums[k].bytes += c.bytes;
        sums[k].bound_s += c.seconds;
    }
    return n;
}

/* ---- as text ---- */

void tt_trace_slice(tt_str *out, int pid, int tid, const char *name, const char *cat,
                    int64_t begin_ns, int64_t end_ns, const char *args_json)
{
    const int64_t dur = TT_MAXV(end_ns - begin_ns, (int64_t)0);
    tt_str_printf(out,
                  "{\"ph\":\"X\",\"pid\":%d,\"tid\":%d,\"ts\":%lld.%03d,\"dur\":%lld.%03d,"
                  "\"name\":",
                  pid, tid, (long long)(begin_ns / 1000), (int)(begin_ns % 1000),
                  (long long)(dur / 1000), (int)(dur % 1000));
    tt_str_json(out, name);
    if (cat) {
        tt_str_add(out, ",\"cat\":");
        tt_str_json(out, cat);
    }
    if (args_json)
        tt_str_printf(out, ",\"args\":%s", args_json);
    tt_str_add(out, "},\n");
}

/* "f32[2048,256]", of what an instruction writes (or, sending, reads). */
static void print_shape(const tt_exec *x, const tt_trace_event *e, tt_str *o)
{
    const tt_instr *i = e->instr;
    const int *at = i->n_out ? i->out : i->in;
    if (!i->n_out && !i->n_in)
        return;
    const tt_operand *p = &x->p->operands[*at];
    tt_str_printf(o, ",\"shape\":\"%s[", tt_dtype_name(p->tensor.dtype));
    for (int d = 0; d < p->tensor.n_dims; d++)
        tt_str_printf(
            o, "%s%lld", d ? "," : "",
            (long long)(d == 0 && p->rows && e->rows >= 0 ? e->rows : p->tensor.shape[d]));
    tt_str_add(o, "]\"");
}

static void print_event(const tt_exec *x, const tt_trace_event *e, tt_str *args, tt_str *out)
{
    const tt_instr_cost c = cost_of(x, e, NULL);
    tt_str_clear(args);
    tt_str_add(args, "{\"scope\":");
    tt_str_json(args, e->instr->scope);
    print_shape(x, e, args);
    tt_str_printf(args, ",\"flops\":%.0f,\"bytes\":%.0f,\"micro_batch\":%d,\"stage\":%d}", c.flops,
                  c.bytes, e->micro, e->instr->stage);
    tt_trace_slice(out, x->o.dist->rank, e->queue ? x->recording->n_workers + e->queue : 0,
                   class_of(x, e),
                   tt_instr_communicates(e->instr) ? "communication" : phase_of(x, e), e->begin_ns,
                   e->end_ns, tt_str_get(args));
}

/* A wait, and what ran concurrently, is of the phase it stands in. */
static bool tells_phase(const tt_trace_event *e)
{
    return !e->queue && !e->wait;
}

/* Where the run of events of one phase, stage and micro-batch ends that begins at `at`. */
static size_t run_end(const tt_exec *x, size_t at, int64_t *end_ns)
{
    const tt_trace *t = x->recording;
    const tt_trace_event *a = &t->events[at];
    size_t end = at;
    for (; end < t->n; end++) {
        const tt_trace_event *e = &t->events[end];
        if (tells_phase(e) && (phase_of(x, e) != phase_of(x, a) ||
                               e->instr->stage != a->instr->stage || e->micro != a->micro))
            break;
        if (!e->queue)
            *end_ns = e->end_ns;
    }
    return end;
}

static void print_workers(const tt_exec *x, const tt_trace *t, tt_str *args, tt_str *out)
{
    for (int w = 0; w < t->n_workers; w++)
        for (size_t i = 0; i < t->pool.workers[w].n; i++) {
            const tt_pool_slice *s = &t->pool.workers[w].items[i];
            if (s->tag < 0 || (size_t)s->tag >= t->n)
                continue; /* of an op there was no room for, or of one that failed */
            tt_str_clear(args);
            tt_str_printf(args, "{\"pieces\":%d}", (int)s->pieces);
            tt_trace_slice(out, x->o.dist->rank, w + 1, class_of(x, &t->events[s->tag]), "worker",
                           s->begin_ns, s->end_ns, tt_str_get(args));
        }
}

static void print_names(const tt_exec *x, const tt_trace *t, tt_str *out)
{
    const int rank = x->o.dist->rank;
    tt_str_printf(out,
                  "{\"ph\":\"M\",\"pid\":%d,\"tid\":0,\"name\":\"process_name\",\"args\":{\"name\":"
                  "\"rank %d\"}},\n{\"ph\":\"M\",\"pid\":%d,\"tid\":0,\"name\":"
                  "\"process_sort_index\",\"args\":{\"sort_index\":%d}},\n",
                  rank, rank, rank, rank);
    for (int w = 0; w <= t->n_workers; w++) {
        tt_str_printf(out,
                      "{\"ph\":\"M\",\"pid\":%d,\"tid\":%d,\"name\":\"thread_name\",\"args\":"
                      "{\"name\":\"",
                      rank, w);
        if (w)
            tt_str_printf(out, "worker %d\"}},\n", w);
        else
            tt_str_add(out, "main\"}},\n");
    }
    for (int q = 0; q < x->p->n_queues; q++) {
        if (!x->queues[q].async)
            continue;
        tt_str_printf(out,
                      "{\"ph\":\"M\",\"pid\":%d,\"tid\":%d,\"name\":\"thread_name\",\"args\":"
                      "{\"name\":\"communication over",
                      rank, t->n_workers + 1 + q);
        for (int a = 0; a < x->p->mesh->n_atoms; a++)
            if (x->queues[q].atoms >> a & 1)
                tt_str_printf(out, " %s", x->p->mesh->atom_name[a]);
        tt_str_add(out, "\"}},\n");
    }
}

void tt_exec_trace_events(const tt_exec *x, tt_str *out)
{
    const tt_trace *t = x->recording;
    tt_str args = {0};
    if (!t)
        return;
    print_names(x, t, out);
    for (size_t at = 0; at < t->n;) {
        int64_t end_ns = 0;
        if (!tells_phase(&t->events[at])) {
            print_event(x, &t->events[at++], &args, out);
            continue;
        }
        const size_t end = run_end(x, at, &end_ns);
        const tt_trace_event *e = &t->events[at];
        tt_str_clear(&args);
        tt_str_printf(&args, "{\"micro_batch\":%d,\"stage\":%d,\"ops\":%zu}", e->micro,
                      e->instr->stage, end - at);
        tt_trace_slice(out, x->o.dist->rank, 0, phase_of(x, e), "phase", e->begin_ns, end_ns,
                       tt_str_get(&args));
        for (; at < end; at++)
            print_event(x, &t->events[at], &args, out);
    }
    print_workers(x, t, &args, out);
    tt_str_free(&args);
}
