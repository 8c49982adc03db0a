/* SPDX-License-Identifier: Apache-2.0 */
#include "infer/calls.h"
#include "passes/passes.h"
#include <string.h>

tt_status tt_calls_open(tt_calls *c, tt_exec *exec, const tt_graph *graph, tt_arena *a,
                        tt_error *err)
{
    const size_t tokens = (size_t)graph->tokens;
    *c = (tt_calls){.exec = exec, .graph = graph};
    c->ids = tt_arena_array(a, tokens, sizeof *c->ids);
    c->pos = tt_arena_array(a, tokens, sizeof *c->pos);
    c->slot = tt_arena_array(a, tokens, sizeof *c->slot);
    c->longer = tt_arena_array(a, tokens, sizeof *c->longer);
    TT_TRY(tt_exec_state_tensor(exec, TT_METRIC_LOGITS, &c->logits, err));
    c->most_pick = c->logits.shape[0];
    c->pick = tt_arena_array(a, (size_t)c->most_pick, sizeof *c->pick);
    for (size_t i = 0; i < tokens; i++)
        c->pos[i] = (int32_t)i;
    return TT_OK;
}

void tt_calls_clear(tt_calls *c)
{
    c->n = c->n_pick = 0;
}

void tt_calls_add(tt_calls *c, int32_t id, int64_t pos, int64_t slot, bool longer)
{
    c->n = c->graph->slots ? c->n : pos;
    c->ids[c->n] = id;
    c->pos[c->n] = (int32_t)pos;
    c->longer[c->n] = longer;
    c->slot[c->n++] = (int32_t)slot;
}

void tt_calls_pick(tt_calls *c)
{
    c->pick[c->n_pick++] = (int32_t)(c->n - 1);
}

static tt_status calls_fill(void *user, const char *input, int micro, int64_t begin, int64_t end,
                            int32_t *dst, tt_error *err)
{
    const tt_calls *c = user;
    const bool pick = !strcmp(input, TT_INPUT_PICK);
    if (!strcmp(input, "token_index")) { /* a model that draws random numbers itself: rows differ */
        for (int64_t i = begin; i < end; i++)
            dst[i - begin] = (int32_t)i;
        return TT_OK;
    }
    const int32_t *src = pick                                                        ? c->pick
                         : !strcmp(input, "ids")                                     ? c->ids
                         : !strcmp(input, "pos")                                     ? c->pos
                         : !strncmp(input, TT_INPUT_LONGER, strlen(TT_INPUT_LONGER)) ? c->longer
                                                                                     : c->slot;
    (void)micro;
    if (end > (pick              ? c->n_pick
               : c->graph->slots ? c->n
                                 : c->graph->tokens) ||
        !strcmp(input, "labels"))
        return TT_FAIL(err, TT_EINTERNAL, "the input %s is not known to generation", input);
    memcpy(dst, src + begin, (size_t)(end - begin) * sizeof *dst);
    return TT_OK;
}

tt_status tt_calls_run(tt_calls *c, tt_error *err)
{
    if (c->graph->slots) /* without a cache all rows are computed */
        tt_exec_set_rows(c->exec, c->n, c->n_pick);
    return tt_exec_micro_batches(c->exec, ++c->n_calls, calls_fill, c, err);
}

tt_status tt_calls_map(const tt_calls *c, int64_t row, int64_t n, tt_tensor *t,
                       const float **logits, tt_error *err)
{
    const int64_t vocab = c->logits.shape[1], first = c->graph->slots ? row : c->pick[row];
    void *data;
    *t = (tt_tensor){.data = (float *)c->logits.data + first * vocab, .dtype = TT_F32, .n_dims = 1};
    t->shape[0] = t->global[0] = n * vocab;
    TT_TRY(tt_exec_map(c->exec, t, true, &data, err));
    *logits = data;
    return TT_OK;
}

tt_status tt_calls_unmap(const tt_calls *c, const tt_tensor *t, const float *logits, tt_error *err)
{
    return tt_exec_unmap(c->exec, t, (void *)(uintptr_t)logits, false, err);
}
