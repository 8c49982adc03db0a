/* SPDX-License-Identifier: Apache-2.0 */
#include "interchange/interchange_impl.h"
#include "passes/expert_replicas.h"
#include <string.h>
#include <ttrun/codes.h>

/* What became of the tensors of a step folder that an exporter has written in another form: one that no load has copied is in no
 * file of it. */

typedef struct model_tensors {
    tt_map *exported; /* name → the name of the parameter, or the buffer's */
    tt_map *own;      /* names of buffers that the model has for itself alone */
} model_tensors;

static void list_tensors(const tt_setup *s, tt_arena *a, model_tensors *out)
{
    const tt_graph *g = s->graph;
    *out = (model_tensors){.exported = tt_map_new(a), .own = tt_map_new(a)};
    for (size_t i = 0; i < g->params.n; i++) {
        const tt_param_info *p = g->params.items[i];
        void *of = (void *)(uintptr_t)(p->absmax_of ? p->absmax_of->name : p->name);
        tt_map_set(out->exported, p->name, of);
        if (p->codes)
            tt_map_set(out->exported, tt_arena_printf(a, "%s.%s", p->name, tt_codes_name(p->codes)),
                       of);
    }
    for (size_t i = 0; i < g->states.n; i++) {
        tt_state *b = g->states.items[i];
        if (b->kind == TT_STATE_BUFFER && !b->of_trainer && !b->of_converter)
            tt_map_set(b->exported ? out->exported : out->own, b->name, (void *)(uintptr_t)b->name);
    }
}

/* Is it what a run keeps beside the model to go on with? The graph of an export need not have it. */
static bool is_of_training(const char *name)
{
    return !strncmp(name, "optimizer.", 10) || !strncmp(name, "converters.", 11) ||
           strstr(name, TT_EXPERT_LOAD);
}

typedef struct unwritten {
    TT_VEC(const char *) forgotten; /* of the model: an error */
    TT_VEC(const char *) foreign;   /* an error unless the user leaves them out */
    size_t n_left;                  /* of the model, on purpose */
} unwritten;

/* Returns how many tensors are written. without: names of parameters; the values are not NULL. */
static size_t find_unwritten(const tt_setup *s, const tt_ckpt_reader *r, const tt_map *without,
                             tt_arena *a, unwritten *out)
{
    model_tensors model;
    size_t written = 0;
    list_tensors(s, a, &model);
    for (size_t i = 0; i < tt_ckpt_n_tensors(r); i++) {
        const char *name = tt_ckpt_tensor_at(r, i).name;
        const char *of = tt_map_get(model.exported, name);
        if (tt_ckpt_was_read(r, name))
            written++;
        else if (of && !(without && tt_map_get(without, of)))
            tt_vec_push(a, &out->forgotten, name);
        else if (of || tt_map_get(model.own, name))
            out->n_left++;
        else if (!is_of_training(name))
            tt_vec_push(a, &out->foreign, name);
    }
    return written;
}

tt_status tt_export_check(const tt_setup *s, const tt_ckpt_reader *r, const char *step_folder,
                          const tt_map *without, tt_tensor_counts *counts, tt_error *err)
{
    tt_arena *a = tt_arena_new();
    tt_status st = TT_OK;
    unwritten u = {0};
    const size_t written = find_unwritten(s, r, without, a, &u), n = u.foreign.n;
    const char *foreign = n ? tt_names_fold(a, u.foreign.items, n) : "";
    if (u.forgotten.n)
        st = TT_FAIL(
            err, TT_EUNSUPPORTED,
            "%s: %zu tensor%s of model %s would not be in the export, or a part of %s: %s; ttrun "
            "ckpt export --to dcp writes all",
            step_folder, u.forgotten.n, u.forgotten.n > 1 ? "s" : "", s->model.name,
            u.forgotten.n > 1 ? "each" : "it", tt_names_fold(a, u.forgotten.items, u.forgotten.n));
    else if (n && s->core.checkpoint.initial_load_strict)
        st = TT_FAIL(err, TT_EINVAL,
                     "%s: %zu tensor%s not of this model: %s; ttrun ckpt export with the run's own "
                     "model.args and converters writes %s, checkpoint.initial_load_strict false "
                     "leaves %s out",
                     step_folder, n, n > 1 ? "s are" : " is", foreign, n > 1 ? "them" : "it",
                     n > 1 ? "them" : "it");
    else if (n)
        tt_log(TT_INFO, "checkpoint", "%s: %zu tensor%s not of this model ignored: %s", step_folder,
               n, n > 1 ? "s" : "", foreign);
    if (counts) {
        counts->taken = written;
        counts->left = u.n_left + n;
    }
    tt_arena_free(a);
    return st;
}
