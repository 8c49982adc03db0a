/* SPDX-License-Identifier: Apache-2.0 */
#include "rank/host_memory.h"
#include "rank/rank.h"

int64_t tt_save_bytes(const tt_setup *s, const tt_plan *p)
{
    const tt_checkpoint_config *c = &s->core.checkpoint;
    if (!tt_rank_trains(s, p) || tt_checkpoint_off(c) || c->async_mode == TT_ASYNC_DISABLED)
        return 0;
    return p->state_bytes_by_kind[TT_STATE_PARAM] + p->state_bytes_by_kind[TT_STATE_OPTIMIZER] +
           p->bytes[TT_SPACE_PINNED];
}

double tt_saves_bytes(const tt_setup *s, double bytes, int n)
{
    double all = 0;
    for (size_t i = 0; i < s->graph->states.n; i++) {
        const tt_state *t = s->graph->states.items[i];
        if (t->kind == TT_STATE_PARAM || t->kind == TT_STATE_OPTIMIZER)
            all += (double)(tt_type_numel(&t->type) * (int64_t)tt_dtype_size(t->type.dtype));
    }
    return TT_MIN(bytes * n, all);
}

tt_status tt_host_memory_check(const tt_setup *s, const tt_plan *p, const tt_plan *eval,
                               tt_error *err)
{
    const double copies = tt_saves_bytes(s, (double)tt_save_bytes(s, p), s->ranks_here),
                 each = (double)tt_program_bytes(p->program) +
                        (eval ? (double)tt_program_bytes(eval->program) : 0),
                 need = each * s->ranks_here + copies, have = tt_memory_here(),
                 gib = 1.0 / (1 << 30);
    if (need <= have)
        return TT_OK;
    const double parameters = (double)p->state_bytes_by_kind[TT_STATE_PARAM];
    if (!tt_rank_trains(s, p)) /* nothing is trained: generate, eval */
        return TT_FAIL(
            err, TT_EINVAL,
            "the model takes %.1f GiB of memory, %.1f of these for its parameters, and there are "
            "%.1f here; take %sa smaller model, or a machine with more memory",
            gib * need, gib * parameters, gib * have,
            parameters < have ? "fewer or shorter texts at once, " : "");
    return tt_job_fail(
        s->job, tt_job_has(s->job, "training") ? "training" : "", err,
        "takes %.1f GiB on %d rank%s, and there are %.1f here; lower local_batch_size or seq_len, "
        "set activation_checkpoint.mode%s, or take a smaller model (ttrun plan shows what takes "
        "it)",
        gib * need, s->ranks_here, s->ranks_here == 1 ? "" : "s", gib * have,
        copies > 0 ? " or checkpoint.async_mode \"disabled\"" : "");
}
