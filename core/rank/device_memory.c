/* SPDX-License-Identifier: Apache-2.0 */
#include "rank/device_memory.h"
#include "device/device.h"
#include "rank/host_memory.h"
#include "rank/rank.h"

/* The memory of a rank whose backend has a device: the device's, and pinned memory of the host. */

int64_t tt_comm_scratch_of(const tt_setup *s, const tt_program *p)
{
    const tt_comm_vt *vt = s->data_comm.component ? s->data_comm.component->vtable : NULL;
    struct {
        int64_t mask, bytes;
    } groups[TT_MAX_STEPS * TT_MAX_ATOMS] = {{0}};
    int64_t sum = 0;
    int n = 0;
    if (!vt || !TT_HAS(vt, tt_comm_vt, scratch_bytes) || !vt->scratch_bytes)
        return 0;
    for (int i = 0; i < p->n; i++) {
        const tt_instr *c = &p->instrs[i];
        const int kind = c->kind == TT_INSTR_COLLECTIVE ? (int)c->step->kind : -1;
        if (!c->n_out || (kind != TT_STEP_REDUCE_SCATTER && kind != TT_STEP_ALL_REDUCE))
            continue;
        const tt_operand *out = &p->operands[c->out[0]];
        const int64_t size = (int64_t)tt_dtype_size(out->tensor.dtype),
                      bytes = vt->scratch_bytes(
                          s->data_comm.config, tt_mesh_degree(p->mesh, &c->step->atoms),
                          kind == TT_STEP_ALL_REDUCE, out->bytes / size, out->tensor.dtype);
        const int64_t mask = tt_atom_list_mask(&c->step->atoms);
        int k = 0;
        while (k < n && groups[k].mask != mask)
            k++;
        if (k == n && n < (int)TT_COUNT(groups))
            groups[n++].mask = mask;
        if (k < n && bytes > groups[k].bytes) {
            sum += bytes - groups[k].bytes;
            groups[k].bytes = bytes;
        }
    }
    return sum;
}

static void add_program(const tt_setup *s, tt_device_use *u, const tt_program *p)
{
    const int64_t comm = tt_comm_scratch_of(s, p);
    u->comm += comm;
    u->device += comm;
    const tt_program_memory m = tt_program_memory_of(p);
    u->device += m.device;
    u->inputs += m.inputs;
    u->scalars += m.scalars;
    u->messages = TT_MAXV(u->messages, m.messages);
    u->offloaded += m.offloaded;
    u->activations += m.activations;
}

tt_status tt_device_use_of(const tt_setup *s, const tt_plan *p, tt_device_use *out, tt_error *err)
{
    tt_arena *a = tt_arena_new();
    tt_device_use u = {.saving = tt_save_bytes(s, p),
                       .staging = tt_program_memory_of(p->program).staging};
    tt_plan *eval;
    tt_status st = TT_OK;
    add_program(s, &u, p->program);
    if (s->eval_graph && s->eval_graph != s->graph && p->graph == s->graph) {
        st = tt_setup_plan(s, s->eval_graph, s->eval_schedule, p->pp_rank, a, &eval, err);
        if (st == TT_OK)
            add_program(s, &u, eval->program);
    }
    u.device += u.messages;
    u.pinned = u.inputs + u.scalars + u.staging + u.offloaded + u.activations + u.saving;
    if (st == TT_OK)
        *out = u;
    tt_arena_free(a);
    return st;
}

tt_status tt_device_memory_check(const tt_setup *s, const tt_plan *p, const tt_device *d,
                                 tt_error *err)
{
    const tt_program_memory m = tt_program_memory_of(p->program);
    const double need = (double)(m.device + m.messages + tt_comm_scratch_of(s, p->program)),
                 gib = 1.0 / (1 << 30);
    uint64_t left = 0, all = 0;
    TT_TRY(tt_device_memory(d, &left, &all, err));
    if (need <= (double)left)
        return TT_OK;
    const bool trains = tt_rank_trains(s, p);
    const char *what = trains ? "lower training.local_batch_size or training.seq_len, set "
                                "activation_checkpoint.mode or activation_checkpoint.offload, "
                                "or take a smaller model"
                              : "take fewer or shorter texts at once, or a smaller model";
    return tt_job_fail(s->job, trains && tt_job_has(s->job, "training") ? "training" : "", err,
                       "takes %.3f GiB of the device's memory per rank, and %.3f of its %.3f are "
                       "free; %s (ttrun plan shows what takes it)",
                       gib * need, gib * (double)left, gib * (double)all, what);
}
