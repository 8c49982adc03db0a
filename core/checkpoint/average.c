/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/internal.h"
#include <string.h>

/* Weights that a run averages over its steps (training.ema_decay, or an optimizer that averages by itself).
 * trainer.json names the optimizer's state that has them, and who wants weights reads that state under the
 * parameter's name. */

static void take_average(tt_ckpt_reader *r, const char *averaged)
{
    static const char prefix[] = "optimizer.state.";
    const size_t n = tt_map_size(r->entries), begins = sizeof prefix - 1, ends = strlen(averaged);
    for (size_t i = 0; i < n; i++) {
        tt_entry *e = tt_map_value(r->entries, i);
        const size_t length = e->name ? strlen(e->name) : 0;
        if (length <= begins + ends + 1 || strncmp(e->name, prefix, begins) ||
            strcmp(e->name + length - ends, averaged) || e->name[length - ends - 1] != '.')
            continue;
        const char *param = tt_arena_strn(r->arena, e->name + begins, length - begins - ends - 1);
        if (!tt_map_get(r->entries, param))
            continue;
        tt_entry *mean = tt_arena_dup(r->arena, e, sizeof *e);
        mean->name = param;
        tt_map_set(r->entries, param, mean);
    }
}

tt_status tt_ckpt_open_weights(const char *step_folder, tt_ckpt_reader **out, tt_error *err)
{
    tt_trainer_state st;
    TT_TRY(tt_ckpt_open(step_folder, out, err));
    tt_arena *a = tt_arena_new();
    tt_status s = TT_OK;
    if ((*out)->has_manifest) {
        s = tt_ckpt_read_state(step_folder, a, &st, err);
        if (s == TT_OK && st.averaged)
            take_average(*out, st.averaged);
    }
    tt_arena_free(a);
    if (s != TT_OK) {
        tt_ckpt_close(*out);
        *out = NULL;
    }
    return s;
}
