/* SPDX-License-Identifier: Apache-2.0 */
#include "exec/exec_impl.h"
#include <string.h>

/* The interpreter: a flat list of bound instructions per stage and region. */

typedef struct run {
    tt_exec *x;
    int micro;
    bool first;        /* accumulators are stored to, not added to */
    int64_t row, rows; /* of the token-chunk loop; rows < 0: not in it */
    tt_fill_fn fill;
    void *user;
} run;

static tt_tensor *operands(const run *r, const tt_operand *o, int n, tt_tensor *at)
{
    for (int i = 0; i < n; i++) {
        at[i] = o[i].tensor;
        if (o[i].extent)
            at[i].shape[0] = r->x->rows[o[i].extent];
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

static tt_status call_kernel(const run *r, tt_instr *i, const tt_tensor *in, int n_in,
                             tt_tensor *out, int accumulate, tt_error *err)
{
    const tt_kernel_call c = {.struct_size = sizeof c,
                              .op = i->kernel->op,
                              .in = in,
                              .n_in = n_in,
                              .out = out,
                              .n_out = i->n_out,
                              .attrs = i->node->attrs,
                              .pool = r->x->o.pool,
                              .scratch = i->scratch,
                              .scratch_bytes = i->scratch_bytes,
                              .accumulate = accumulate,
                              .seed = r->x->o.seed,
                              .step = r->x->step};
    return TT_PLUGIN_CALL(i->kernel->run(r->x->o.backend_self, &c, err), err, "kernel",
                          i->kernel->op);
}

static size_t bytes_of(const tt_tensor *t)
{
    return (size_t)tt_tensor_numel(t) * tt_dtype_size(t->dtype);
}

static tt_status stage_sum(tt_exec *x, tt_instr *i, const tt_tensor *in, const tt_tensor *out,
                           tt_error *err)
{
    float *all = i->scratch;
    if (i->twin) {
        *(float *)out[0].data = *i->sum;
        return TT_OK;
    }
    *i->sum = 0;
    memset(all, 0, (size_t)i->n_in * sizeof *all);
    for (int j = 0; j < i->n_in; j++)
        if (in[j].data)
            all[j] = *(const float *)in[j].data;
    TT_TRY(x->o.dist->vt->all_reduce(x->pipeline.comm, all, i->n_in, TT_F32, TT_SUM, err));
    for (int j = 0; j < i->n_in; j++) /* in stage order: the other terms were zeros */
        *i->sum += all[j];
    *(float *)out[0].data = *i->sum;
    return TT_OK;
}

/* Does the output hold what this is added to? */
static bool adds(const run *r, const tt_instr *i)
{
    if (i->sums && r->rows >= 0 && r->row > 0)
        return true;
    return (i->adds || i->kind == TT_INSTR_ACCUMULATE) && (!r->first || i->again);
}

static tt_status accumulate(const run *r, tt_instr *i, const tt_tensor *in, tt_tensor *out,
                            tt_error *err)
{
    if (!adds(r, i)) {
        memcpy(out[0].data, in[0].data, bytes_of(&in[0]));
        return TT_OK;
    }
    const tt_tensor both[2] = {out[0], in[0]};
    return call_kernel(r, i, both, 2, out, 0, err);
}

static tt_status step(const run *r, tt_instr *i, tt_error *err)
{
    tt_exec *x = r->x;
    if (i->n_waits)
        TT_TRY(tt_exec_land(i->waits, i->n_waits, err));
    if (i->node->once && !r->first)
        return TT_OK;
    tt_tensor *in = operands(r, i->in, i->n_in, x->args);
    tt_tensor *out = operands(r, i->out, i->n_out, x->args + i->n_in);
    if (i->flight)
        return tt_exec_take_off(i->flight, i, &in[0], &out[0], r->micro, err);
    const bool timed = x->trace || tt_instr_communicates(i);
    const int64_t t0 = timed ? tt_now_ns() : 0;
    tt_status s = TT_OK;
    if (x->trace)
        tt_exec_trace_next(x->trace);
    switch (i->kind) {
    case TT_INSTR_KERNEL:
        s = call_kernel(r, i, in, i->n_in, out, adds(r, i), err);
        break;
    case TT_INSTR_COLLECTIVE:
        s = tt_exec_run_collective(x, i, &in[0], &out[0], i->collective->group.comm, err);
        break;
    case TT_INSTR_SEND:
        s = x->o.dist->vt->send(x->pipeline.comm, i->peer, in[0].data, (int64_t)bytes_of(&in[0]),
                                err);
        break;
    case TT_INSTR_RECV:
        s = x->o.dist->vt->recv(x->pipeline.comm, i->peer, out[0].data, (int64_t)bytes_of(&out[0]),
                                err);
        break;
    case TT_INSTR_STAGE_SUM:
        s = stage_sum(x, i, in, out, err);
        break;
    case TT_INSTR_ACCUMULATE:
        s = accumulate(r, i, in, out, err);
        break;
    case TT_INSTR_ASSIGN:
        memmove(out[0].data, in[0].data, bytes_of(&in[0]));
        break;
    case TT_INSTR_INPUT:
        s = r->fill(r->user, i->input, r->micro, out[0].begin[0], out[0].begin[0] + out[0].shape[0],
                    out[0].data, err);
        break;
    }
    if (s != TT_OK)
        return tt_exec_name_step(x, i, err);
    if (x->o.detect_nan && i->n_out)
        TT_TRY(tt_exec_check_finite(x, i, out, i->n_out, r->micro, err));
    if (timed) {
        const int64_t t1 = tt_now_ns();
        if (tt_instr_communicates(i))
            x->comm_ns += t1 - t0;
        if (i->kind == TT_INSTR_SEND || i->kind == TT_INSTR_RECV)
            x->message_ns += t1 - t0;
        if (x->trace)
            tt_exec_trace_add(
                x->trace, &(tt_trace_event){i, t0, t1, r->rows, r->micro, 0, false, adds(r, i)});
    }
    return x->o.poison ? tt_exec_after(x, i, out, r->rows < 0, err) : TT_OK;
}

static int64_t loop_rows(const tt_instr_list *l, int first, int end)
{
    for (int i = first; i < end; i++) {
        for (int j = 0; j < l->items[i].n_in; j++)
            if (l->items[i].in[j].rows)
                return l->items[i].in[j].tensor.shape[0];
    }
    return 0;
}

/* Instructions [first, end) once for every chunk of token rows; a rank without tokens runs them
 * once, on none. */
static tt_status run_loop(const run *outer, tt_instr_list *l, int first, int end, tt_error *err)
{
    const int64_t total = loop_rows(l, first, end), chunk = outer->x->o.plan->graph->chunk_rows;
    run r = *outer;
    for (r.row = 0; r.row == 0 || r.row < total; r.row += chunk) {
        r.rows = TT_MIN(chunk, total - r.row);
        for (int i = first; i < end; i++)
            TT_TRY(step(&r, &l->items[i], err));
    }
    for (int i = first; outer->x->o.poison && i < end; i++)
        tt_exec_bury(r.x, &l->items[i]);
    return TT_OK;
}

static tt_status run_list(const run *r, tt_instr_list *l, tt_error *err)
{
    for (int i = 0; i < l->n; i++) {
        int end = i;
        while (end < l->n && l->items[end].node->map)
            end++;
        if (end > i) {
            TT_TRY(run_loop(r, l, i, end, err));
            i = end - 1;
        } else {
            TT_TRY(step(r, &l->items[i], err));
        }
    }
    return tt_exec_land(l->waits, l->n_waits, err);
}

static tt_stage_code *code_of(tt_exec *x, int stage)
{
    for (int i = 0; i < x->n_code; i++)
        if (x->code[i].stage == stage)
            return &x->code[i];
    return NULL;
}

typedef struct feed {
    tt_fill_fn fill;
    void *user;
} feed;

static tt_status run_part(tt_exec *x, tt_stage_code *c, tt_stage_part part, int micro,
                          const feed *f, tt_error *err)
{
    const run r = {x, micro, micro == c->first[part != TT_PART_F], 0, -1, f->fill, f->user};
    return run_list(&r, &c->part[part], err);
}

/* Behind their last reader slots are dead. */
static void bury_slots(const tt_exec *x, const tt_action *a)
{
    const tt_stage_plan *s = tt_plan_stage(x->o.plan, a->stage);
    for (int h = 0; h < TT_N_HOLDS; h++) {
        const bool last = a->kind == TT_ACTION_B ||
                          (a->kind == TT_ACTION_I ? h == TT_HOLD_SLOT : h != TT_HOLD_SLOT);
        if (a->kind != TT_ACTION_F && last && s->in_slots)
            tt_exec_poison(x->space[TT_SPACE_SLOT + h] + s->slot_base[h] +
                               s->slot[h][a->micro] * s->slot_bytes[h],
                           (size_t)s->slot_bytes[h]);
    }
}

static tt_status run_item(tt_exec *x, const tt_item *i, const feed *f, tt_error *err)
{
    const tt_action *a = &i->action;
    const bool forward = a->kind == TT_ACTION_F;
    if (i->kind == TT_ITEM_RECV) {
        const run r = {x, a->micro, false, 0, -1, NULL, NULL};
        return run_list(&r, &code_of(x, a->stage + (forward ? 1 : -1))->recv[!forward], err);
    }
    if (i->kind != TT_ITEM_RUN) /* a part sends what it made when it ends */
        return TT_OK;
    tt_stage_code *c = code_of(x, a->stage);
    if (forward)
        return run_part(x, c, TT_PART_F, a->micro, f, err);
    if (a->kind != TT_ACTION_W)
        TT_TRY(run_part(x, c, TT_PART_I, a->micro, f, err));
    if (a->kind != TT_ACTION_I)
        TT_TRY(run_part(x, c, TT_PART_W, a->micro, f, err));
    if (x->o.poison)
        bury_slots(x, a);
    return TT_OK;
}

tt_status tt_exec_micro_batches(tt_exec *x, int64_t step_number, tt_fill_fn fill, void *user,
                                tt_error *err)
{
    const tt_programs *p = x->o.plan->programs;
    const feed f = {fill, user};
    x->step = step_number;
    x->comm_ns = 0;
    for (int i = 0; i < p->n_items[x->pp]; i++) {
        const tt_item *item = &p->items[x->pp][i];
        if (x->trace)
            tt_exec_item_begins(x);
        TT_TRY(run_item(x, item, &f, err));
        if (x->trace)
            tt_exec_item_ends(x, item);
    }
    return TT_OK;
}

static tt_status run_step_list(tt_exec *x, tt_instr_list *l, tt_error *err)
{
    const run r = {x, 0, true, 0, -1, NULL, NULL};
    return run_list(&r, l, err);
}

tt_status tt_exec_epilogue(tt_exec *x, tt_error *err)
{
    TT_TRY(run_step_list(x, &x->epilogue, err));
    return x->o.poison ? tt_exec_check_untouched(x, err) : TT_OK;
}

tt_status tt_exec_update(tt_exec *x, tt_error *err)
{
    return run_step_list(x, &x->update, err);
}

double tt_exec_comm_seconds(const tt_exec *x)
{
    return 1e-9 * (double)x->comm_ns;
}
