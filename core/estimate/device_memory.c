/* SPDX-License-Identifier: Apache-2.0 */
#include "estimate/device_memory.h"
#include "device/device.h"

/* The memory of a rank whose backend has a device: the device's, and pinned memory of the host. */

bool tt_memory_is_apart(const tt_setup *s)
{
    return tt_device_of(s->backend.component->vtable, NULL).vt != NULL;
}

static void add_program(tt_device_use *u, const tt_program *p)
{
    const tt_program_memory m = tt_program_memory_of(p);
    u->device += m.device;
    u->inputs += m.inputs;
    u->scalars += m.scalars;
    u->messages = TT_MAXV(u->messages, m.messages);
    u->offloaded += m.offloaded;
}

tt_status tt_device_use_of(const tt_setup *s, const tt_plan *p, int64_t saving, tt_device_use *out,
                           tt_error *err)
{
    tt_arena *a = tt_arena_new();
    tt_device_use u = {.saving = saving, .staging = tt_program_memory_of(p->program).staging};
    tt_plan *eval;
    tt_status st = TT_OK;
    add_program(&u, p->program);
    if (s->eval_graph && s->eval_graph != s->graph && p->graph == s->graph) {
        st = tt_setup_plan(s, s->eval_graph, s->eval_schedule, p->pp_rank, a, &eval, err);
        if (st == TT_OK)
            add_program(&u, eval->program);
    }
    u.device += u.messages;
    u.pinned = u.inputs + u.scalars + u.staging + u.offloaded + u.saving;
    if (st == TT_OK)
        *out = u;
    tt_arena_free(a);
    return st;
}

tt_status tt_device_memory_check(const tt_setup *s, const tt_plan *p, const tt_device *d,
                                 tt_error *err)
{
    const tt_program_memory m = tt_program_memory_of(p->program);
    const double need = (double)(m.device + m.messages), gib = 1.0 / (1 << 30);
    uint64_t left = 0, all = 0;
    TT_TRY(tt_device_memory(d, &left, &all, err));
    if (need <= (double)left)
        return TT_OK;
    const char *what = p->update.n ? "lower training.local_batch_size or training.seq_len, set "
                                     "activation_checkpoint.mode, or take a smaller model"
                                   : "take fewer or shorter texts at once, or a smaller model";
    return tt_job_fail(s->job, p->update.n && tt_job_has(s->job, "training") ? "training" : "", err,
                       "takes %.3f GiB of the device's memory per rank, and %.3f of its %.3f are "
                       "free; %s (ttrun plan shows what takes it)",
                       gib * need, gib * (double)left, gib * (double)all, what);
}
