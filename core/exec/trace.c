/* SPDX-License-Identifier: Apache-2.0 */
#include "cost/cost.h"
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

static size_t events_of_list(const tt_instr_list *l, size_t times, size_t chunks)
{
    size_t n = 0;
    for (int i = 0; i < l->n; i++) /* of an async collective the call and the wait */
        n += times * (l->items[i].node->map ? chunks : l->items[i].flight ? 2 : 1);
    return n;
}

/* Events of a step. A loop over token chunks repeats its instructions once a chunk. */
static size_t events_of_step(const tt_exec *x)
{
    const tt_graph *g = x->o.plan->graph;
    const size_t micros = (size_t)x->o.plan->schedule->n_micro,
                 chunks =
                     g->chunk_rows ? (size_t)((g->tokens + g->chunk_rows - 1) / g->chunk_rows) : 1;
    size_t n = events_of_list(&x->epilogue, 1, 1) + events_of_list(&x->update, 1, 1);
    for (int c = 0; c < x->n_code && n < MOST_EVENTS; c++) {
        for (int k = 0; k < TT_N_PARTS; k++)
            n += events_of_list(&x->code[c].part[k], micros, chunks);
        for (int k = 0; k < 2; k++)
            n += events_of_list(&x->code[c].recv[k], micros, 1);
    }
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

/* The operand as the instruction had it: one chunk's rows in a chunk loop. */
static tt_tensor tensor_of(const tt_operand *o, int64_t rows)
{
    tt_tensor t = o->tensor;
    if (o->rows && rows >= 0)
        t.shape[0] = rows;
    return t;
}

static double bytes_of(const tt_operand *o, int64_t rows)
{
    const tt_tensor t = tensor_of(o, rows);
    return (double)tt_tensor_numel(&t) * (double)tt_dtype_size(t.dtype);
}

static tt_work kernel_work(const tt_graph *g, const tt_trace_event *e)
{
    const tt_instr *i = e->instr;
    tt_tensor in[TT_MAX_INS], out[TT_MAX_OUTS];
    double bytes = 0;
    for (int j = 0; j < i->n_in; j++) {
        in[j] = tensor_of(&i->in[j], e->rows);
        bytes += bytes_of(&i->in[j], e->rows);
    }
    for (int j = 0; j < i->n_out; j++) {
        out[j] = tensor_of(&i->out[j], e->rows);
        bytes += bytes_of(&i->out[j], e->rows);
    }
    tt_work w = tt_node_work_of(g, i->node, in, out);
    if (!i->node->op->cost)
        w.bytes = bytes;
    if (e->adds && (i->node->op->flags & TT_OP_ADDS_ROWS))
        w.bytes += 2 * TT_MAXV(bytes_of(&i->in[0], e->rows), bytes_of(&i->in[1], e->rows)) -
                   bytes_of(&i->out[0], e->rows);
    else if (e->adds && i->n_out)
        w.bytes += bytes_of(&i->out[0], e->rows); /* what was there is read */
    return w;
}

/* A step that sends nothing: what it reads and writes. A join copies what does not lie there. */
static double moved_by(const tt_trace_event *e)
{
    const tt_instr *i = e->instr;
    const bool join = i->node->step->kind == TT_STEP_JOIN;
    double bytes = join ? 0 : bytes_of(&i->out[0], e->rows);
    for (int j = 0; j < i->n_in; j++)
        if (!join || i->node->in[j]->within != i->node->out[0])
            bytes += (join ? 2 : 1) * bytes_of(&i->in[j], e->rows);
    return bytes;
}

static tt_work work_of(const tt_graph *g, const tt_trace_event *e)
{
    const tt_instr *i = e->instr;
    const double in = i->n_in ? bytes_of(&i->in[0], e->rows) : 0;
    const double out = i->n_out ? bytes_of(&i->out[0], e->rows) : 0;
    if (e->wait)
        return (tt_work){0};
    switch (i->kind) {
    case TT_INSTR_COLLECTIVE: /* what this rank sends */
        return (tt_work){.bytes = tt_step_is_local(i->node->step->kind)
                                      ? moved_by(e)
                                      : tt_node_work(g, i->node).sent};
    case TT_INSTR_ACCUMULATE:
        if (e->adds)
            return (tt_work){.flops = in / (double)tt_dtype_size(i->in[0].tensor.dtype),
                             .bytes = in + 2 * out};
        return (tt_work){.bytes = in + out};
    case TT_INSTR_KERNEL:
        return kernel_work(g, e);
    default:
        return (tt_work){.bytes = in + out};
    }
}

static const char *class_of(const tt_trace_event *e)
{
    const tt_instr *i = e->instr;
    if (e->wait)
        return "wait";
    switch (i->kind) {
    case TT_INSTR_COLLECTIVE:
        return i->node->step ? tt_step_kind_name(i->node->step->kind) : "collective";
    case TT_INSTR_SEND:
        return "send";
    case TT_INSTR_RECV:
        return "recv";
    default:
        break;
    }
    if (i->node->op != &tt_op_fused)
        return i->node->op->name;
    static const char *const fused[] = {"fused, forward", "fused, backward", "fused, epilogue",
                                        "fused, optimizer"};
    return fused[i->node->region];
}

size_t tt_exec_trace_sums(const tt_exec *x, const tt_machine *limit, tt_op_sum *sums, size_t n,
                          size_t cap)
{
    const tt_trace *t = x->recording;
    for (size_t e = 0; t && e < t->n; e++) {
        const tt_trace_event *v = &t->events[e];
        const char *name = class_of(v);
        const bool beside = v->queue > 0;
        size_t k = 0;
        while (k < n && (sums[k].beside != beside || strcmp(sums[k].op, name)))
            k++;
        if (k == cap)
            continue;
        if (k == n)
            sums[n++] = (tt_op_sum){.op = name, .beside = beside};
        const tt_work w = work_of(x->o.plan->graph, v);
        sums[k].calls++;
        sums[k].ns += v->end_ns - v->begin_ns;
        sums[k].flops += w.flops;
        sums[k].bytes += w.bytes;
        if (!tt_instr_communicates(v->instr))
            sums[k].bound_s += tt_work_seconds(&w, limit);
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

static const char *const region_names[] = {"forward", "backward", "epilogue", "update"};

/* "f32[2048,256]", of what an instruction writes (or, sending, reads). */
static void print_shape(const tt_trace_event *e, tt_str *o)
{
    const tt_instr *i = e->instr;
    const tt_operand *p = i->n_out ? &i->out[0] : i->n_in ? &i->in[0] : NULL;
    if (!p)
        return;
    tt_str_printf(o, ",\"shape\":\"%s[", tt_dtype_name(p->tensor.dtype));
    for (int d = 0; d < p->tensor.n_dims; d++)
        tt_str_printf(
            o, "%s%lld", d ? "," : "",
            (long long)(d == 0 && p->rows && e->rows >= 0 ? e->rows : p->tensor.shape[d]));
    tt_str_add(o, "]\"");
}

static void print_event(const tt_exec *x, const tt_trace_event *e, tt_str *args, tt_str *out)
{
    const tt_work w = work_of(x->o.plan->graph, e);
    tt_str_clear(args);
    tt_str_add(args, "{\"scope\":");
    tt_str_json(args, e->instr->node->scope ? e->instr->node->scope : "");
    print_shape(e, args);
    tt_str_printf(args, ",\"flops\":%.0f,\"bytes\":%.0f,\"micro_batch\":%d,\"stage\":%d}", w.flops,
                  w.bytes, e->micro, e->instr->node->stage);
    tt_trace_slice(
        out, x->o.dist->rank, e->queue ? x->recording->n_workers + e->queue : 0, class_of(e),
        tt_instr_communicates(e->instr) ? "communication" : region_names[e->instr->node->region],
        e->begin_ns, e->end_ns, tt_str_get(args));
}

/* A wait, and what ran beside, is of the phase it stands in. */
static bool tells_phase(const tt_trace_event *e)
{
    return !e->queue && !e->wait;
}

/* Where the run of events of one region, stage and micro-batch ends that begins at `at`. */
static size_t run_end(const tt_trace *t, size_t at, int64_t *end_ns)
{
    const tt_trace_event *a = &t->events[at];
    size_t end = at;
    for (; end < t->n; end++) {
        const tt_trace_event *e = &t->events[end];
        if (tells_phase(e) &&
            (e->instr->node->region != a->instr->node->region ||
             e->instr->node->stage != a->instr->node->stage || e->micro != a->micro))
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
            tt_trace_slice(out, x->o.dist->rank, w + 1, class_of(&t->events[s->tag]), "worker",
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
    for (size_t q = 0; q < x->queues.n; q++) {
        tt_str_printf(out,
                      "{\"ph\":\"M\",\"pid\":%d,\"tid\":%d,\"name\":\"thread_name\",\"args\":"
                      "{\"name\":\"communication over",
                      rank, t->n_workers + 1 + (int)q);
        for (int a = 0; a < x->o.mesh->n_atoms; a++)
            if (x->queues.items[q].atoms >> a & 1)
                tt_str_printf(out, " %s", x->o.mesh->atom_name[a]);
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
        const size_t end = run_end(t, at, &end_ns);
        const tt_node *n = t->events[at].instr->node;
        tt_str_clear(&args);
        tt_str_printf(&args, "{\"micro_batch\":%d,\"stage\":%d,\"ops\":%zu}", t->events[at].micro,
                      n->stage, end - at);
        tt_trace_slice(out, x->o.dist->rank, 0, region_names[n->region], "phase",
                       t->events[at].begin_ns, end_ns, tt_str_get(&args));
        for (; at < end; at++)
            print_event(x, &t->events[at], &args, out);
    }
    print_workers(x, t, &args, out);
    tt_str_free(&args);
}
