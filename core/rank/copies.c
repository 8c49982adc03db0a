/* SPDX-License-Identifier: Apache-2.0 */
#include "rank/rank.h"
#include <string.h>
#include <ttrun/narrow.h>

/* States of an optimizer that start as the parameter does (tt_optimizer_copy): a mean of weights over
 * steps, or a second sequence of them. */

/* The parameter that t is a copy of; a rank has both or neither. */
static const tt_exec_tensor *original(const tt_exec_tensor *all, size_t n, const tt_exec_tensor *t)
{
    for (size_t i = 0; i < n; i++)
        if (!all[i].suffix && all[i].param == t->param)
            return &all[i];
    return NULL;
}

static void copy_numbers(const tt_tensor *from, const void *x, float *y)
{
    const int64_t n = tt_tensor_numel(from);
    const uint16_t *half = x;
    if (from->dtype == TT_F32)
        memcpy(y, x, (size_t)n * sizeof *y);
    for (int64_t i = 0; from->dtype == TT_BF16 && i < n; i++)
        y[i] = tt_from_bf16(half[i]);
}

static tt_status start_copy(const tt_rank *r, const tt_tensor *from, const tt_tensor *to,
                            tt_error *err)
{
    void *x = NULL, *y = NULL;
    tt_error ignored = {0};
    TT_TRY(tt_exec_map(r->exec, from, true, &x, err));
    tt_status s = tt_exec_map(r->exec, to, false, &y, err);
    if (s == TT_OK) {
        copy_numbers(from, x, y);
        s = tt_exec_unmap(r->exec, to, y, true, err);
    }
    const tt_status u = tt_exec_unmap(r->exec, from, x, false, s == TT_OK ? err : &ignored);
    return s == TT_OK ? u : s;
}

tt_status tt_rank_start_copies(const tt_rank *r, const tt_map *has, tt_error *err)
{
    tt_arena *a = tt_arena_new();
    tt_exec_tensor *t;
    const size_t n = tt_exec_tensors(r->exec, a, &t);
    tt_status s = TT_OK;
    for (size_t i = 0; s == TT_OK && i < n; i++) {
        const tt_exec_tensor *p = t[i].copies ? original(t, n, &t[i]) : NULL;
        if (p && !(has && tt_map_get(has, tt_rank_state_name(a, t[i].name, t[i].suffix))))
            s = start_copy(r, &p->tensor, &t[i].tensor, err);
    }
    tt_arena_free(a);
    return s;
}
