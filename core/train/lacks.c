/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/checkpoint.h"
#include "train/train.h"
#include <string.h>

/* What a step folder leaves out: frozen parameters (checkpoint.save_frozen), or the optimizer's states
 * (checkpoint.last_save_model_only). */

tt_status tt_rank_lacks_frozen(const tt_rank *r, const char *step_folder, bool *lacks,
                               tt_error *err)
{
    const tt_graph *g = r->s->graph;
    tt_arena *a = tt_arena_new();
    tt_ckpt_reader *reader = NULL;
    const tt_status s = tt_ckpt_open(step_folder, &reader, err);
    *lacks = false;
    for (size_t i = 0; s == TT_OK && i < g->params.n && !*lacks; i++) {
        const tt_param_info *p = g->params.items[i];
        *lacks = !p->converter && !p->absmax_of && !tt_ckpt_has(reader, p->name) &&
                 !tt_ckpt_is_coded(reader, p->name);
    }
    if (reader)
        tt_ckpt_close(reader);
    tt_arena_free(a);
    return s;
}

tt_status tt_rank_lacks_states(const tt_rank *r, const char *step_folder, bool *lacks,
                               tt_error *err)
{
    static const char of_optimizer[] = "optimizer.";
    const tt_graph *g = r->s->graph;
    tt_ckpt_reader *reader = NULL;
    *lacks = false;
    for (size_t i = 0; i < g->states.n && !*lacks; i++)
        *lacks = g->states.items[i]->kind != TT_STATE_BUFFER;
    if (!*lacks)
        return TT_OK;
    TT_TRY(tt_ckpt_open(step_folder, &reader, err));
    for (size_t i = 0; i < tt_ckpt_n_tensors(reader) && *lacks; i++)
        *lacks =
            strncmp(tt_ckpt_tensor_at(reader, i).name, of_optimizer, sizeof of_optimizer - 1) != 0;
    tt_ckpt_close(reader);
    return TT_OK;
}
