/* SPDX-License-Identifier: Apache-2.0 */
#include "exec/exec_impl.h"

/* How inputs come to a device. On the host an INPUT writes to its value itself. */

static size_t input_at(const tt_exec *x, const tt_bound *b, int micro)
{
    return b->input + (size_t)micro * (size_t)tt_program_input_stride(x->p, b->instr);
}

tt_status tt_exec_bind_input(tt_exec *x, tt_bound *b, tt_error *err)
{
    const int64_t all = tt_program_input_bytes(x->p);
    if (all < 0)
        return TT_FAIL(err, TT_ENOMEM, "the inputs of %d micro-batches are too large",
                       x->p->n_micro);
    b->input = (size_t)tt_program_input_at(x->p, b->instr);
    x->inputs.bytes = (size_t)all;
    return TT_OK;
}

tt_status tt_exec_open_inputs(tt_exec *x, tt_error *err)
{
    tt_input_stage *in = &x->inputs;
    const tt_device *d = &x->o.device;
    void *p = NULL;
    if (!in->bytes)
        return TT_OK;
    TT_TRY(tt_device_queue_new(d, true, &in->queue, err));
    TT_TRY(tt_device_event_new(d, false, &in->copied, err));
    TT_TRY(tt_device_event_new(d, false, &in->read, err));
    TT_TRY(tt_device_alloc_pinned(d, in->bytes, &p, err));
    in->pinned = p;
    TT_TRY(tt_device_alloc(d, in->bytes, &p, err));
    in->device = p;
    return TT_OK;
}

void tt_exec_free_inputs(tt_exec *x)
{
    tt_input_stage *in = &x->inputs;
    const tt_device *d = &x->o.device;
    tt_device_queue_free(d, in->queue);
    tt_device_event_free(d, in->copied);
    tt_device_event_free(d, in->read);
    tt_device_free_pinned(d, in->pinned, in->bytes);
    tt_device_free(d, in->device, in->bytes);
}

static tt_status send_input(tt_exec *x, const tt_bound *b, int micro, tt_fill_fn fill, void *user,
                            tt_error *err)
{
    const tt_bound_operand *o = &b->out[0];
    const size_t at = input_at(x, b, micro);
    tt_tensor t = o->tensor;
    if (o->extent)
        t.shape[0] = x->rows[o->extent] * o->extent_rows;
    TT_TRY(fill(user, b->instr->input, micro, t.begin[0], t.begin[0] + t.shape[0],
                (int32_t *)(void *)(x->inputs.pinned + at), err));
    return tt_device_copy(&x->o.device, x->inputs.queue, x->inputs.device + at,
                          x->inputs.pinned + at, (size_t)tt_tensor_bytes(&t), err);
}

tt_status tt_exec_send_inputs(tt_exec *x, tt_fill_fn fill, void *user, tt_error *err)
{
    const tt_program *p = x->p;
    tt_input_stage *in = &x->inputs;
    if (!in->bytes)
        return TT_OK;
    TT_TRY(tt_exec_await(x, in->copied, err)); /* pinned memory is free again */
    TT_TRY(tt_device_wait(&x->o.device, in->queue, in->read, err));
    for (int i = 0; i < p->n_calls; i++) {
        const tt_section *s = &p->sections[p->calls[i].section];
        for (int k = s->begin; k < s->end; k++)
            if (x->code[k].kind == TT_INSTR_INPUT && x->code[k].predicate >> !p->calls[i].first & 1)
                TT_TRY(send_input(x, &x->code[k], p->calls[i].micro, fill, user, err));
    }
    TT_TRY(tt_device_record(&x->o.device, in->copied, in->queue, err));
    return tt_device_wait(&x->o.device, tt_exec_mover(x)->queue, in->copied, err);
}

tt_status tt_exec_take_input(tt_exec *x, const tt_bound *b, const tt_tensor *out, int micro,
                             tt_error *err)
{
    const char *from = x->inputs.device + input_at(x, b, micro);
    return tt_move_copy(tt_exec_mover(x), out->data, from, (size_t)tt_tensor_bytes(out), err);
}

tt_status tt_exec_inputs_read(tt_exec *x, tt_error *err)
{
    return x->inputs.bytes
               ? tt_device_record(&x->o.device, x->inputs.read, tt_exec_mover(x)->queue, err)
               : TT_OK;
}
