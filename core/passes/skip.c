/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/rewrite.h"
#include "passes/passes.h"

tt_state *tt_trainer_number(tt_graph *g, const char *name, double value)
{
    const tt_placement whole = {0};
    const tt_type f32 = {.dtype = TT_F32};
    tt_state *s = tt_state_new(g, TT_STATE_BUFFER, name, &f32, &whole);
    s->init = (tt_init){.kind = TT_INIT_CONSTANT, .a = value};
    s->of_trainer = true;
    s->stages = g->n_stages < 64 ? (UINT64_C(1) << g->n_stages) - 1 : UINT64_MAX;
    return s;
}

void tt_skip_make(tt_graph *g)
{
    if (!g->skipped)
        g->skipped = tt_trainer_number(g, "optimizer.skipped_steps", 0);
}

tt_value *tt_steps_done(tt_builder *b)
{
    const tt_graph *g = tt_builder_graph(b);
    if (!g->skipped)
        return NULL;
    return tt_sub(b, tt_state_read(b, g->step), tt_cast(b, tt_state_read(b, g->skipped), TT_F64));
}

void tt_skip_update(tt_builder *b, tt_value *const *ok)
{
    const tt_graph *g = tt_builder_graph(b);
    uint64_t below =
        0; /* a rank with several stages has one count, so the lowest of them changes it */
    for (int st = 0; g->skipped && st < g->n_stages; st++) {
        if (!ok[st])
            continue;
        tt_builder_at(b, TT_EPILOGUE, st, -1, "skip");
        tt_builder_replicated(b, below);
        tt_value *skips = tt_sub(b, tt_const(b, 1, TT_F32), ok[st]);
        tt_state_assign(b, g->skipped, tt_add(b, tt_state_read(b, g->skipped), skips));
        tt_builder_replicated(b, 0);
        below |= UINT64_C(1) << st;
    }
}
