/* SPDX-License-Identifier: Apache-2.0 */
#include "train/trace.h"
#include <string.h>

/* Reads the record of a traced step (core/exec/record.c): sums by class of op, and the events of
 * the Chrome trace format. */

int64_t tt_trace_dropped(const tt_trace *t)
{
    int64_t n = t->dropped;
    for (int i = 0; i < t->n_workers; i++)
        n += (int64_t)t->pool.workers[i].dropped;
    return n;
}

/* ---- what an event cost ---- */

static tt_instr_cost cost_of(const tt_trace *t, const tt_trace_event *e, const struct tt_machine *m)
{
    return e->wait ? (tt_instr_cost){0}
                   : tt_instr_cost_of(t->program, e->instr, e->rows, e->adds, m);
}

static tt_section_kind section_of(const tt_trace *t, const tt_instr *i)
{
    const int at = (int)(i - t->program->instrs);
    int s = 0;
    while (at >= t->program->sections[s].end)
        s++;
    return t->program->sections[s].kind;
}

static const char *phase_of(const tt_trace *t, const tt_trace_event *e)
{
    return tt_section_phase(section_of(t, e->instr));
}

static const char *class_of(const tt_trace *t, const tt_trace_event *e)
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
    switch (section_of(t, i)) {
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

size_t tt_trace_sums(const tt_trace *t, const struct tt_machine *limit, tt_op_sum *sums, size_t n,
                     size_t cap)
{
    for (size_t e = 0; e < t->n; e++) {
        const tt_trace_event *v = &t->events[e];
        const char *name = class_of(t, v);
        const bool concurrent = v->queue > 0;
        size_t k = 0;
        while (k < n && (sums[k].concurrent != concurrent || strcmp(sums[k].op, name)))
            k++;
        if (k == cap)
            continue;
        if (k == n)
            sums[n++] = (tt_op_sum){.op = name, .concurrent = concurrent};
        const tt_instr_cost c = cost_of(t, v, limit);
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

/* "f32[2048,256]": what an instruction writes or, if it writes nothing, reads. */
static void print_shape(const tt_trace *t, const tt_trace_event *e, tt_str *o)
{
    const tt_instr *i = e->instr;
    const int *at = i->n_out ? i->out : i->in;
    if (!i->n_out && !i->n_in)
        return;
    const tt_operand *p = &t->program->operands[*at];
    tt_str_printf(o, ",\"shape\":\"%s[", tt_dtype_name(p->tensor.dtype));
    for (int d = 0; d < p->tensor.n_dims; d++)
        tt_str_printf(
            o, "%s%lld", d ? "," : "",
            (long long)(d == 0 && p->rows && e->rows >= 0 ? e->rows : p->tensor.shape[d]));
    tt_str_add(o, "]\"");
}

static void print_event(const tt_trace *t, const tt_trace_event *e, tt_str *args, tt_str *out)
{
    const tt_instr_cost c = cost_of(t, e, NULL);
    tt_str_clear(args);
    tt_str_add(args, "{\"scope\":");
    tt_str_json(args, e->instr->scope);
    print_shape(t, e, args);
    tt_str_printf(args, ",\"flops\":%.0f,\"bytes\":%.0f,\"micro_batch\":%d,\"stage\":%d}", c.flops,
                  c.bytes, e->micro, e->instr->stage);
    tt_trace_slice(out, t->rank, e->queue ? t->n_workers + e->queue : 0, class_of(t, e),
                   tt_instr_communicates(e->instr) ? "communication" : phase_of(t, e), e->begin_ns,
                   e->end_ns, tt_str_get(args));
}

/* A wait, and a call in another queue, belongs to the phase in which it stands. */
static bool tells_phase(const tt_trace_event *e)
{
    return !e->queue && !e->wait;
}

/* The end of the events from `at` on that are of one phase, stage and micro-batch. */
static size_t phase_end(const tt_trace *t, size_t at, int64_t *end_ns)
{
    const tt_trace_event *a = &t->events[at];
    size_t end = at;
    for (; end < t->n; end++) {
        const tt_trace_event *e = &t->events[end];
        if (tells_phase(e) && (phase_of(t, e) != phase_of(t, a) ||
                               e->instr->stage != a->instr->stage || e->micro != a->micro))
            break;
        if (!e->queue)
            *end_ns = e->end_ns;
    }
    return end;
}

static void print_workers(const tt_trace *t, tt_str *args, tt_str *out)
{
    for (int w = 0; w < t->n_workers; w++)
        for (size_t i = 0; i < t->pool.workers[w].n; i++) {
            const tt_pool_slice *s = &t->pool.workers[w].items[i];
            if (s->tag < 0 || (size_t)s->tag >= t->n)
                continue; /* of an event for which there was no room, or that failed */
            tt_str_clear(args);
            tt_str_printf(args, "{\"pieces\":%d}", (int)s->pieces);
            tt_trace_slice(out, t->rank, w + 1, class_of(t, &t->events[s->tag]), "worker",
                           s->begin_ns, s->end_ns, tt_str_get(args));
        }
}

static bool ran_queue(const tt_trace *t, int queue)
{
    for (size_t i = 0; i < t->n; i++)
        if (t->events[i].queue == queue)
            return true;
    return false;
}

static void print_names(const tt_trace *t, tt_str *out)
{
    const int rank = t->rank;
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
    for (int q = 0; q < t->program->n_queues; q++) {
        const uint16_t atoms = tt_atom_list_mask(&t->program->queues[q].atoms);
        if (!ran_queue(t, q + 1))
            continue;
        const int copies = t->program->queues[q].copies;
        tt_str_printf(out,
                      "{\"ph\":\"M\",\"pid\":%d,\"tid\":%d,\"name\":\"thread_name\",\"args\":"
                      "{\"name\":\"%s",
                      rank, t->n_workers + 1 + q,
                      copies == 1   ? "copies to the device"
                      : copies == 2 ? "copies to host memory"
                                    : "communication over");
        for (int a = 0; a < t->program->mesh->n_atoms; a++)
            if (atoms >> a & 1)
                tt_str_printf(out, " %s", t->program->mesh->atom_name[a]);
        tt_str_add(out, "\"}},\n");
    }
}

void tt_trace_print(const tt_trace *t, tt_str *out)
{
    tt_str args = {0};
    print_names(t, out);
    for (size_t at = 0; at < t->n;) {
        int64_t end_ns = 0;
        if (!tells_phase(&t->events[at])) {
            print_event(t, &t->events[at++], &args, out);
            continue;
        }
        const size_t end = phase_end(t, at, &end_ns);
        const tt_trace_event *e = &t->events[at];
        tt_str_clear(&args);
        tt_str_printf(&args, "{\"micro_batch\":%d,\"stage\":%d,\"ops\":%zu}", e->micro,
                      e->instr->stage, end - at);
        tt_trace_slice(out, t->rank, 0, phase_of(t, e), "phase", e->begin_ns, end_ns,
                       tt_str_get(&args));
        for (; at < end; at++)
            print_event(t, &t->events[at], &args, out);
    }
    print_workers(t, &args, out);
    tt_str_free(&args);
}
