/* SPDX-License-Identifier: Apache-2.0 */
#include "interchange/interchange.h"
#include "train/train.h"
#include <string.h>

/* Parameters and optimizer states as checkpoint pieces: named boxes of global tensors. */

static void to_piece(const tt_exec_tensor *t, const char *name, tt_ckpt_piece *p)
{
    *p = (tt_ckpt_piece){.name = name,
                         .dtype = t->tensor.dtype,
                         .n_dims = t->tensor.n_dims,
                         .data = t->tensor.data,
                         .owner = t->owner};
    p->box = tt_box_of_tensor(&t->tensor);
    for (int d = 0; d < t->tensor.n_dims; d++)
        p->global[d] = t->tensor.global[d];
}

/* buffers: include the model's buffers, which are not parameters. Returns how many. */
static size_t pieces(const tt_rank *r, tt_arena *a, bool optimizer, bool buffers,
                     tt_ckpt_piece **out)
{
    tt_exec_tensor *t, *more = NULL;
    size_t k = 0;
    const size_t n = tt_exec_tensors(r->exec, a, &t);
    const size_t n_more = buffers ? tt_exec_buffers(r->exec, a, &more) : 0;
    tt_ckpt_piece *p = tt_arena_array(a, n + n_more + 1, sizeof *p);
    for (size_t i = 0; i < n; i++) {
        if (t[i].suffix && !optimizer)
            continue;
        const char *name = t[i].suffix
                               ? tt_arena_printf(a, "optimizer.state.%s.%s", t[i].name, t[i].suffix)
                               : t[i].name;
        to_piece(&t[i], name, &p[k++]);
    }
    for (size_t i = 0; i < n_more; i++)
        to_piece(&more[i], more[i].name, &p[k++]);
    *out = p;
    return k;
}

size_t tt_rank_pieces(const tt_rank *r, tt_arena *a, bool optimizer, tt_ckpt_piece **out)
{
    return pieces(r, a, optimizer, true, out);
}

static bool is_of_optimizer(const char *name)
{
    return !strncmp(name, "optimizer.", 10);
}

static void report_others(const tt_rank *r, const tt_ckpt_reader *reader, tt_arena *a)
{
    const tt_graph *g = r->s->graph;
    tt_map *used = tt_map_new(a);
    for (size_t i = 0; i < g->params.n; i++)
        tt_map_set(used, g->params.items[i]->name, used);
    for (size_t i = 0; i < g->states.n; i++)
        if (g->states.items[i]->kind == TT_STATE_BUFFER)
            tt_map_set(used, g->states.items[i]->name, used);
    tt_ckpt_log_others(reader, used, is_of_optimizer);
}

tt_status tt_rank_load(tt_rank *r, const char *step_folder, bool optimizer, bool report,
                       tt_error *err)
{
    tt_arena *a = tt_arena_new();
    tt_ckpt_reader *reader = NULL;
    tt_ckpt_piece *p;
    const size_t n = tt_rank_pieces(r, a, optimizer, &p);
    tt_status s = tt_ckpt_open(step_folder, &reader, err);
    if (s == TT_OK)
        s = tt_ckpt_load(reader, p, n, err);
    if (s == TT_OK && report)
        report_others(r, reader, a);
    if (reader)
        tt_ckpt_close(reader);
    tt_arena_free(a);
    return s;
}

tt_status tt_rank_load_hf(tt_rank *r, const char *folder, bool report, tt_error *err)
{
    tt_arena *a = tt_arena_new();
    tt_ckpt_piece *p;
    const size_t n = pieces(r, a, false, false, &p);
    const tt_status s = tt_setup_load_hf(r->s, folder, p, n, report, err);
    tt_arena_free(a);
    return s;
}
