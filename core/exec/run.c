/* SPDX-License-Identifier: Apache-2.0 */
#include "comm/call_log.h"
#include "exec/debug.h"
#include "exec/twice.h"
#include <math.h>

/* The interpreter: runs the instructions of a section one after the other. */

enum { MEASURED = 4 }; /* of a situation: the step is measured */

typedef struct run { /* of a section */
    tt_exec *x;
    int micro;
    int situation;     /* of instructions, see tt_predicate */
    int64_t row, rows; /* the chunk of token rows, in a loop; rows < 0: not in one */
    tt_fill_fn fill;
    void *user;
} run;

/* The sum of the counts, at most the rows that there is room for. */
static int64_t count_rows(const run *r, const tt_bound_operand *o)
{
    const int32_t *at =
        (const int32_t *)(const void *)((const char *)o->tensor.data +
                                        (o->slot ? o->slot[r->micro] * o->slot_bytes : 0));
    int64_t n = 0;
    for (int64_t i = 0, all = tt_tensor_numel(&o->tensor); i < all; i++)
        n += at[i];
    return n;
}

/* The operands of an instruction, for this micro-batch and chunk. rows: of those that are counted. */
static tt_tensor *run_operands(const run *r, const tt_bound_operand *o, int n, int64_t rows,
                               tt_tensor *at)
{
    for (int i = 0; i < n; i++) {
        at[i] = o[i].tensor;
        if (o[i].counted)
            at[i].shape[0] = TT_MIN(rows, at[i].shape[0]);
        if (o[i].extent)
            at[i].shape[0] = r->x->rows[o[i].extent] * o[i].extent_rows;
        if (o[i].slot)
            at[i].data = (char *)at[i].data + o[i].slot[r->micro] * o[i].slot_bytes;
        if (r->rows < 0 || !o[i].rows)
            continue;
        at[i].shape[0] = r->rows;
        at[i].begin[0] += r->row;
        at[i].data = (char *)at[i].data + r->row * o[i].row_bytes;
    }
    return at;
}

static tt_status call_kernel(const run *r, const tt_bound *b, const tt_tensor *in, tt_tensor *out,
                             bool adds, tt_error *err)
{
    tt_exec_checked *k = &r->x->checked;
    const int64_t wrong = k->sums.wrong;
    const tt_kernel_call c = {.struct_size = sizeof c,
                              .op = b->kernel->op,
                              .in = in,
                              .n_in = b->n_in,
                              .out = out,
                              .n_out = b->n_out,
                              .attrs = b->instr->attrs,
                              .pool = r->x->o.pool,
                              .scratch = b->scratch,
                              .scratch_bytes = (size_t)b->instr->scratch_bytes,
                              .accumulate = adds,
                              .seed = r->x->seed_at,
                              .step = r->x->step_at,
                              .queue = tt_exec_mover(r->x)->queue,
                              .backend = r->x->o.device.backend,
                              .checks = r->x->o.check_products ? &k->sums : NULL};
    const tt_status s = TT_PLUGIN_CALL(b->kernel->run(r->x->o.device.backend, &c, err), err,
                                       "kernel", b->kernel->op);
    if (k->sums.wrong != wrong && !k->first) {
        k->first = b->instr;
        k->micro = r->micro;
    }
    return s;
}

tt_exec_checked tt_exec_take_checked(tt_exec *x)
{
    const tt_exec_checked k = x->checked;
    x->checked = (tt_exec_checked){.first = NULL};
    return k;
}

/* sum = xs[0] + xs[1] + … + xs[n - 1], in this order. */
static tt_status add_up(const tt_mover *m, float *sum, const float *xs, int n, tt_error *err)
{
    const void *parts[TT_MAX_PIECES];
    for (int i = 0; i < n;) {
        int k = 0;
        if (i)
            parts[k++] = sum;
        while (k < TT_MAX_PIECES && i < n)
            parts[k++] = xs + i++;
        TT_TRY(tt_move_reduce(m, sum, parts, k, 1, TT_F32, TT_SUM, err));
    }
    return TT_OK;
}

/* Each pipeline rank gives the terms that its stages have, and zeros for the other terms. Without
 * operands: an earlier instruction of the same event has computed the sum. */
static tt_status run_stage_sum(tt_exec *x, const tt_bound *b, const tt_tensor *in,
                               const tt_tensor *out, tt_error *err)
{
    const tt_mover *m = tt_exec_mover(x);
    float *all = b->scratch;
    if (b->n_in) {
        TT_TRY(tt_device_fill(&m->device, m->queue, all, 0, (size_t)b->n_in * sizeof *all, err));
        for (int j = 0; j < b->n_in; j++)
            if (in[j].data)
                TT_TRY(tt_move_copy(m, all + j, in[j].data, sizeof *all, err));
        TT_TRY(x->o.dist->data_vt->all_reduce(x->pipeline.comm, all, b->n_in, TT_F32, TT_SUM, err));
        TT_TRY(add_up(m, b->sum, all, b->n_in, err));
    }
    return tt_move_copy(m, out[0].data, b->sum, sizeof *b->sum, err);
}

static tt_status run_exchange(const tt_exec *x, const tt_bound *b, const tt_tensor *in,
                              const tt_tensor *out, tt_error *err)
{
    const tt_queue *q = &x->queues[b->queue];
    const tt_exchange_call c = {.vt = x->o.dist->data_vt,
                                .comm = b->queue ? q->comm : b->exchange->group.comm,
                                .mover = &q->mover,
                                .in = in,
                                .n_in = b->n_in,
                                .out = out,
                                .scratch = b->scratch,
                                .alignment = x->p->alignment,
                                .clear = x->o.detect_nan};
    return tt_exchange_run(b->exchange, &c, err);
}

static tt_status run_kind(const run *r, const tt_bound *b, tt_tensor *in, tt_tensor *out, bool adds,
                          tt_error *err)
{
    tt_exec *x = r->x;
    const tt_comm_vt *vt = x->o.dist->data_vt;
    const tt_mover *m = tt_exec_mover(x);
    switch ((tt_instr_kind)b->kind) {
    case TT_INSTR_KERNEL:
        return call_kernel(r, b, in, out, adds, err);
    case TT_INSTR_COLLECTIVE:
    case TT_INSTR_LOCAL:
        TT_TRY(tt_exec_use_queue(x, b->queue, err));
        return run_exchange(x, b, in, out, err);
    case TT_INSTR_SEND:
        return vt->send(x->pipeline.comm, b->instr->peer, in->data, tt_tensor_bytes(in), err);
    case TT_INSTR_RECV:
        return vt->recv(x->pipeline.comm, b->instr->peer, out->data, tt_tensor_bytes(out), err);
    case TT_INSTR_STAGE_SUM:
        return run_stage_sum(x, b, in, out, err);
    case TT_INSTR_COPY:
        TT_TRY(tt_exec_use_queue(x, b->queue, err));
        return tt_move_copy(&x->queues[b->queue].mover, out->data, in->data,
                            (size_t)tt_tensor_bytes(in), err);
    case TT_INSTR_FILL:
        return tt_move_fill(m, out, b->exchange->reduce, err);
    case TT_INSTR_INPUT:
        if (!tt_device_is_host(&m->device))
            return tt_exec_take_input(x, b, out, r->micro, err);
        return r->fill(r->user, b->instr->input, r->micro, out->begin[0],
                       out->begin[0] + out->shape[0], out->data, err);
    default:
        return TT_OK;
    }
}

/* What two runs agree on is right: the third, if it equals one of the others. */
static tt_status run_twice(const run *r, const tt_bound *b, tt_tensor *in, tt_tensor *out,
                           bool adds, tt_error *err)
{
    tt_exec *x = r->x;
    uint64_t hash[3];
    int n = 0;
    TT_TRY(tt_exec_keep(x, out, b->n_out, err));
    while (n < 2 || (n < 3 && (b->communicates || hash[0] != hash[1]))) {
        if (n)
            TT_TRY(tt_exec_restore(x, out, b->n_out, err));
        TT_TRY(run_kind(r, b, in, out, adds, err));
        TT_TRY(tt_exec_hash_out(x, out, b->n_out, &hash[n++], err));
    }
    tt_exec_note_runs(x, b, hash, n);
    return TT_OK;
}

static void note_time(const run *r, const tt_bound *b, int64_t t0, bool adds)
{
    tt_exec *x = r->x;
    const int64_t t1 = tt_now_ns();
    if (b->communicates) {
        x->comm_ns += t1 - t0;
        x->comm.axes[b->communicates - 1].ns += t1 - t0;
    }
    if (b->kind == TT_INSTR_SEND || b->kind == TT_INSTR_RECV)
        x->message_ns += t1 - t0;
    if (x->trace)
        tt_trace_add(x->trace,
                     &(tt_trace_event){b->instr, t0, t1, r->rows, r->micro, 0, false, adds});
}

static tt_status run_instr(const run *r, const tt_bound *b, tt_error *err)
{
    tt_exec *x = r->x;
    if (!(b->predicate >> r->situation & 1))
        return TT_OK;
    if (b->kind == TT_INSTR_WAIT || b->kind == TT_INSTR_RECORD)
        return tt_exec_event(x, b, r->micro, err);
    const int64_t rows = b->counts ? count_rows(r, b->counts) : 0;
    tt_tensor *in = run_operands(r, b->in, b->n_in, rows, x->args);
    tt_tensor *out = run_operands(r, b->out, b->n_out, rows, x->args + b->n_in);
    const bool twice = tt_exec_runs_twice(x, b);
    if (x->trail)
        TT_TRY(tt_exec_add_to_trail(x, b, in, err));
    if (b->pending && !twice)
        return tt_exec_begin(b->pending, b, in, out, r->micro, err);
    const bool host = tt_device_is_host(&x->o.device), adds = b->adds >> r->situation & 1,
               timed = b->kind != TT_INSTR_ADOPT && (x->trace || b->communicates);
    const int64_t t0 = timed && host ? tt_now_ns() : 0;
    if (timed && !host)
        TT_TRY(tt_exec_mark_begin(x, b, err));
    if (x->trace)
        tt_trace_next(x->trace);
    if (b->communicates)
        tt_called_name(b->instr->scope, b->instr->op);
    if ((twice ? run_twice : run_kind)(r, b, in, out, adds, err) != TT_OK ||
        (x->o.sync && tt_exec_sync(x, err) != TT_OK))
        return tt_exec_name_step(x, b->instr, err);
    if (x->o.detect_nan && b->n_out)
        TT_TRY(tt_exec_check_finite(x, b->instr, out, b->n_out, r->micro, err));
    if (timed && host)
        note_time(r, b, t0, adds);
    else if (timed)
        TT_TRY(tt_exec_mark_end(
            x, b, &(tt_trace_event){b->instr, 0, 0, r->rows, r->micro, b->queue, false, adds},
            err));
    if (!x->o.poison)
        return TT_OK;
    TT_TRY(tt_exec_after(x, b, out, err));
    return tt_exec_poison_last_used(x, b->instr, err);
}

/* Runs the instructions between LOOP and END_LOOP once per chunk of token rows; on a rank without
 * tokens once, on no rows. */
static tt_status run_loop(const run *outer, const tt_bound *loop, int first, tt_error *err)
{
    const tt_exec *x = outer->x;
    const int64_t total = loop->n_in ? loop->in[0].tensor.shape[0] : 0, chunk = x->p->chunk_rows;
    const int end = loop->instr->end;
    run r = *outer;
    for (r.row = 0; r.row == 0 || r.row < total; r.row += chunk) {
        r.rows = TT_MIN(chunk, total - r.row);
        r.situation = outer->situation + (r.row ? 2 : 0);
        for (int i = first; i < end; i++)
            TT_TRY(run_instr(&r, &x->code[i], err));
    }
    return x->o.poison ? tt_exec_poison_last_used(x, x->code[end].instr, err) : TT_OK;
}

/* The condition is one of the metrics, which the host knows if it has waited for them. */
static bool section_runs(const tt_exec *x, const tt_section *s)
{
    const tt_program_state *ok = s->only_if < 0 ? NULL : &x->p->states[s->only_if];
    return !ok || x->pulling || *(const float *)(const void *)(x->scalars + ok->offset) != 0;
}

static tt_status run_instrs(const run *r, int begin, int end, tt_error *err)
{
    const tt_exec *x = r->x;
    for (int i = begin; i < end; i++) {
        const tt_bound *b = &x->code[i];
        if (b->kind != TT_INSTR_LOOP) {
            TT_TRY(run_instr(r, b, err));
            continue;
        }
        TT_TRY(run_loop(r, b, i + 1, err));
        i = b->instr->end;
    }
    return TT_OK;
}

static tt_status run_part(const run *r, const tt_graph_part *part, tt_captured *c, tt_error *err)
{
    tt_exec *x = r->x;
    if (c && !c->graph) {
        tt_error why = {0};
        TT_TRY(tt_exec_capture_begin(x, c, err));
        if (x->graphs.capturing)
            tt_exec_capture_end(x, c, run_instrs(r, part->begin, part->end, &why), &why);
    }
    return c && c->graph ? tt_exec_launch(x, c, err) : run_instrs(r, part->begin, part->end, err);
}

/* call: of tt_program.calls, behind which stand the epilogue and the update. */
static tt_status run_section(const run *r, int section, int call, tt_error *err)
{
    tt_exec *x = r->x;
    const tt_graphs *g = &x->graphs;
    const tt_section *s = &x->p->sections[section];
    if (!section_runs(x, s))
        return TT_OK;
    if (!g->on || x->trace || x->measured || x->twice || x->trail)
        return run_instrs(r, s->begin, s->end, err);
    const int first = g->first_part[section], n = g->first_part[section + 1] - first;
    for (int k = 0; k < n; k++)
        TT_TRY(run_part(r, &g->parts.items[first + k],
                        tt_exec_graph(x, g->uses.items[g->first_use[call] + k]), err));
    return TT_OK;
}

tt_status tt_exec_micro_batches(tt_exec *x, int64_t step_number, tt_fill_fn fill, void *user,
                                tt_error *err)
{
    const tt_program *p = x->p;
    tt_exec_set_step(x, step_number);
    x->overflow.code = TT_OK;
    TT_TRY(tt_exec_push_scalars(x, err));
    TT_TRY(tt_exec_times_begin(x, err));
    TT_TRY(tt_exec_send_inputs(x, fill, user, err));
    x->comm_ns = 0;
    for (int i = 0; i < x->comm.n; i++)
        x->comm.axes[i].ns = 0;
    for (int i = 0; i < p->n_calls; i++) {
        const tt_call *c = &p->calls[i];
        const run r = {x, c->micro, !c->first + (x->measured ? MEASURED : 0), 0, -1, fill, user};
        if (x->trace && (i == 0 || c[-1].item != c->item))
            TT_TRY(tt_trace_item_begins(x, err));
        TT_TRY(run_section(&r, c->section, i, err));
        if (x->o.poison && c->ends)
            TT_TRY(tt_exec_poison_slots(x, c, err));
        if (x->trace && (i + 1 == p->n_calls || c[1].item != c->item))
            TT_TRY(tt_trace_item_ends(x, c->item, err));
    }
    return tt_exec_inputs_read(x, err);
}

static tt_status run_once(tt_exec *x, int section, int call, tt_error *err)
{
    const run r = {x, 0, x->measured ? MEASURED : 0, 0, -1, NULL, NULL};
    TT_TRY(tt_exec_push_scalars(x, err));
    return run_section(&r, section, call, err);
}

tt_status tt_exec_epilogue(tt_exec *x, tt_error *err)
{
    TT_TRY(run_once(x, x->p->epilogue, x->p->n_calls, err));
    TT_TRY(tt_exec_pull_metrics(x, err));
    tt_exec_times_end_step(x);
    if (!x->o.late)
        TT_TRY(tt_exec_finish_metrics(x, err));
    return x->o.poison ? tt_exec_check_untouched(x, err) : TT_OK;
}

bool tt_exec_metrics_late(const tt_exec *x)
{
    return x->pulling;
}

tt_status tt_exec_finish_metrics(tt_exec *x, tt_error *err)
{
    if (!x->pulling)
        return TT_OK;
    TT_TRY(tt_exec_wait_metrics(x, err));
    return tt_exec_times_read_comm(x, err);
}

tt_status tt_exec_update(tt_exec *x, tt_error *err)
{
    return run_once(x, x->p->update, x->p->n_calls + 1, err);
}

double tt_exec_comm_seconds(const tt_exec *x)
{
    return x->times.in_graphs ? (double)NAN : 1e-9 * (double)x->comm_ns;
}
