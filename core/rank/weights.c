/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/rewrite.h"
#include "rank/codes.h"
#include "rank/magnitudes.h"
#include "setup/foreign.h"
#include "setup/param_match.h"
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

static bool is_of_optimizer(const char *name)
{
    return !strncmp(name, "optimizer.", 10);
}

const char *tt_rank_state_name(tt_arena *a, const char *param, const char *suffix)
{
    return tt_arena_printf(a, "optimizer.state.%s.%s", param, suffix);
}

/* buffers: include the buffers, which are not parameters: the model's, and with the optimizer those of
 * the update (the loss scale). Returns how many. */
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
        const char *name = t[i].suffix ? tt_rank_state_name(a, t[i].name, t[i].suffix)
                           : t[i].param && t[i].param->codes ? tt_codes_tensor(a, t[i].param)
                                                             : t[i].name;
        to_piece(&t[i], name, &p[k++]);
        p[k - 1].exact = t[i].suffix || (t[i].param && t[i].param->absmax_of);
    }
    for (size_t i = 0; i < n_more; i++)
        if (optimizer || !is_of_optimizer(more[i].name)) {
            to_piece(&more[i], more[i].name, &p[k++]);
            p[k - 1].exact = true;
        }
    *out = p;
    return k;
}

/* The data of the pieces of weights that have an average becomes the average's. */
static void take_averages(const tt_rank *r, tt_arena *a, tt_ckpt_piece *p, size_t n)
{
    tt_exec_tensor *t;
    const size_t k = tt_exec_tensors(r->exec, a, &t);
    tt_map *averages = tt_map_new(a);
    for (size_t i = 0; i < k; i++)
        if (t[i].evaluated)
            tt_map_set(averages, t[i].name, &t[i]);
    for (size_t i = 0; i < n; i++) {
        const tt_exec_tensor *average = tt_map_get(averages, p[i].name);
        if (average)
            to_piece(average, p[i].name, &p[i]);
    }
}

size_t tt_rank_pieces(const tt_rank *r, tt_arena *a, bool optimizer, tt_ckpt_piece **out)
{
    const size_t n = pieces(r, a, optimizer, true, out);
    if (!optimizer)
        take_averages(r, a, *out, n);
    return n;
}

/* The names of the pieces of frozen parameters. */
static tt_map *frozen_pieces(const tt_graph *g, tt_arena *a)
{
    tt_map *m = tt_map_new(a);
    for (size_t i = 0; i < g->params.n; i++) {
        tt_param_info *p = g->params.items[i];
        if (p->frozen || p->absmax_of)
            tt_map_set(m, p->codes ? tt_codes_tensor(a, p) : p->name, p);
    }
    return m;
}

size_t tt_rank_trained_pieces(const tt_rank *r, tt_arena *a, tt_ckpt_piece **out)
{
    const tt_map *frozen = frozen_pieces(r->s->graph, a);
    size_t kept = 0;
    const size_t n = pieces(r, a, true, true, out);
    for (size_t i = 0; i < n; i++)
        if (!tt_map_get(frozen, (*out)[i].name))
            (*out)[kept++] = (*out)[i];
    return kept;
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

/* optimizer.state_dtype may differ from that of the run that saved. */
static void report_converted(const tt_ckpt_reader *reader, const char *folder,
                             const tt_ckpt_piece *p, size_t n)
{
    tt_dtype from = TT_N_DTYPES, to = TT_N_DTYPES;
    for (size_t i = 0; i < n && from == to; i++)
        if (is_of_optimizer(p[i].name)) {
            to = p[i].dtype;
            from = tt_ckpt_dtype(reader, p[i].name);
            from = from == TT_N_DTYPES ? to : from; /* in no file: it has no elements */
        }
    if (from != to)
        tt_log(TT_INFO, "checkpoint", "%s: its optimizer states are %s, this run's are %s: %s",
               folder, tt_dtype_name(from), tt_dtype_name(to),
               tt_dtype_size(to) < tt_dtype_size(from) ? "rounded to nearest" : "the same values");
}

/* The base of QLoRA may be stored in another way than the run that saved did. */
static void report_codes(const tt_rank *r, const tt_ckpt_reader *reader, const char *folder,
                         const tt_codings *rounded)
{
    const tt_graph *g = r->s->graph;
    size_t decoded = 0;
    for (size_t i = 0; i < g->params.n; i++)
        decoded += !g->params.items[i]->codes && tt_ckpt_is_coded(reader, g->params.items[i]->name);
    if (rounded->n)
        tt_log(TT_INFO, "checkpoint", "%s: %zu weights are rounded to %s codes", folder, rounded->n,
               tt_codes_name(rounded->items[0].w->codes));
    if (decoded)
        tt_log(TT_INFO, "checkpoint", "%s: %zu weights, which it has as codes, are read as numbers",
               folder, decoded);
}

/* States in float8 or codes have scales beside them, and other dtypes have none: neither becomes the other. */
static tt_status check_converted(const tt_ckpt_reader *reader, const char *folder,
                                 const tt_ckpt_piece *p, size_t n, tt_error *err)
{
    for (size_t i = 0; i < n; i++) {
        const tt_dtype to = p[i].dtype,
                       from = is_of_optimizer(p[i].name) ? tt_ckpt_dtype(reader, p[i].name) : to;
        if (from != to && from != TT_N_DTYPES &&
            (tt_dtype_size(from) == 1 || tt_dtype_size(to) == 1))
            return TT_FAIL(err, TT_EINVAL,
                           "%s: its optimizer states are %s, this run's are %s, and neither is "
                           "read as the other: set optimizer.state_dtype as it was",
                           folder, tt_dtype_name(from), tt_dtype_name(to));
    }
    return TT_OK;
}

/* ---- pieces on the host ----
 * On a device the data of a piece is an address there. To be filled, pieces get host memory instead, as
 * many at a time as fit in LOAD_BYTES, and at least one; with the values on the device if some may not be
 * filled (checkpoint.initial_load_strict). */
#define LOAD_BYTES ((size_t)1 << 30)

typedef tt_status (*fill_pieces)(void *user, tt_ckpt_piece *p, size_t n, tt_error *err);

static tt_tensor flat_tensor(const tt_ckpt_piece *p)
{
    tt_tensor t = {.data = p->data, .dtype = p->dtype, .n_dims = 1};
    t.shape[0] = t.global[0] = tt_box_numel(&p->box, p->n_dims);
    return t;
}

/* Gives the first n pieces host memory; returns how many have come to that. */
static size_t map_pieces(const tt_rank *r, tt_ckpt_piece *p, size_t n, tt_status *st, tt_error *err)
{
    size_t i = 0;
    for (; *st == TT_OK && i < n; i++) {
        if (p[i].take)
            continue;
        const tt_tensor t = flat_tensor(&p[i]);
        void *host = NULL;
        *st = tt_exec_map(r->exec, &t, !r->s->core.checkpoint.initial_load_strict, &host, err);
        p[i].data = host;
    }
    return i;
}

static tt_status fill_on_host(const tt_rank *r, tt_ckpt_piece *p, size_t n, size_t most,
                              fill_pieces fill, void *user, tt_error *err)
{
    tt_arena *a = tt_arena_new();
    tt_status s = TT_OK;
    for (size_t at = 0, k; s == TT_OK && at < n; at += k) {
        tt_ckpt_piece *host = tt_arena_dup(a, p + at, (n - at) * sizeof *p);
        k = map_pieces(r, host, tt_ckpt_at_once(host, n - at, most), &s, err);
        if (s == TT_OK)
            s = fill(user, host, k, err);
        for (size_t i = 0; i < k; i++) {
            const tt_tensor t = flat_tensor(&p[at + i]);
            tt_error e = {0};
            if (host[i].take)
                continue;
            const tt_status u = tt_exec_unmap(r->exec, &t, host[i].data, s == TT_OK, &e);
            if (s == TT_OK && u != TT_OK) {
                *err = e;
                s = u;
            }
        }
    }
    tt_arena_free(a);
    return s;
}

static tt_status fill_all(const tt_rank *r, tt_ckpt_piece *p, size_t n, bool at_once,
                          fill_pieces fill, void *user, tt_error *err)
{
    if (tt_device_is_host(&r->device))
        return fill(user, p, n, err);
    return fill_on_host(r, p, n, at_once ? SIZE_MAX : LOAD_BYTES, fill, user, err);
}

static tt_status load_pieces(void *reader, tt_ckpt_piece *p, size_t n, tt_error *err)
{
    return tt_ckpt_load(reader, p, n, err);
}

/* ---- what a checkpoint need not have ---- */

/* Which pieces a folder of weights may lack: they keep their initial values. */
typedef enum lacking {
    RESUMED, /* what converters of this job declare or keep, the loss scale, and the optimizer's states of
              * parameters that were frozen */
    STARTED, /* the first two and the factors of adapters */
    TRAINED, /* as RESUMED, and parameters that are or were frozen, which keep the values that they have */
} lacking;

/* By name: the parameters. An optimizer's state belongs to the parameter that its name begins with. */
static tt_map *params_by_name(const tt_graph *g, tt_arena *a)
{
    tt_map *m = tt_map_new(a);
    for (size_t i = 0; i < g->params.n; i++)
        tt_map_set(m, g->params.items[i]->name, g->params.items[i]);
    return m;
}

static const char *param_name(const char *piece, tt_arena *a)
{
    static const char prefix[] = "optimizer.state.";
    if (strncmp(piece, prefix, sizeof prefix - 1))
        return piece;
    const char *name = piece + sizeof prefix - 1, *dot = strrchr(name, '.');
    return dot ? tt_arena_strn(a, name, (size_t)(dot - name)) : name;
}

/* By name: the parameters of which it has states of the optimizer, so they were trained. NULL: it has none at all. */
static tt_map *trained_there(const tt_ckpt_reader *reader, tt_arena *a)
{
    tt_map *m = NULL;
    const size_t n = tt_ckpt_n_tensors(reader);
    for (size_t i = 0; i < n; i++) {
        const char *name = tt_ckpt_tensor_at(reader, i).name, *param = param_name(name, a);
        if (param == name)
            continue;
        m = m ? m : tt_map_new(a);
        tt_map_set(m, param, m);
    }
    return m;
}

/* The states that start as their parameters, by their names in checkpoints: all, or those that a checkpoint
 * has. */
static tt_map *copies_by_name(const tt_rank *r, const tt_ckpt_reader *reader, tt_arena *a)
{
    tt_exec_tensor *t;
    const size_t n = tt_exec_tensors(r->exec, a, &t);
    tt_map *m = tt_map_new(a);
    for (size_t i = 0; i < n; i++) {
        const char *name = t[i].copies ? tt_rank_state_name(a, t[i].name, t[i].suffix) : NULL;
        if (name && (!reader || tt_ckpt_has(reader, name)))
            tt_map_set(m, name, &t[i]);
    }
    return m;
}

static void report_thawed(const tt_map *thawed, const char *folder)
{
    const size_t n = tt_map_size(thawed);
    if (n)
        tt_log(
            TT_INFO, "checkpoint",
            "%s: %zu parameter%s frozen when it was saved (%s%s): %s optimizer states begin anew",
            folder, n, n > 1 ? "s were" : " was", tt_map_key(thawed, 0), n > 1 ? ", …" : "",
            n > 1 ? "their" : "its");
}

/* Leaves out the pieces that the checkpoint may lack and lacks; returns how many are left. */
static size_t without_absent(const tt_rank *r, const tt_ckpt_reader *reader, tt_ckpt_piece *p,
                             size_t n, lacking which, const char *folder, bool report)
{
    const tt_graph *g = r->s->graph;
    tt_arena *a = tt_arena_new();
    const tt_map *params = params_by_name(g, a), *copies = copies_by_name(r, NULL, a),
                 *frozen = which == TRAINED ? frozen_pieces(g, a) : NULL,
                 *trained = which == STARTED ? NULL : trained_there(reader, a);
    tt_map *thawed = tt_map_new(a);
    const char *first = NULL;
    size_t kept = 0, added = 0, states = 0, begun = 0;
    for (size_t i = 0; i < n; i++) {
        const tt_state *buffer = tt_graph_state(g, TT_STATE_BUFFER, p[i].name);
        const tt_param_info *param = tt_map_get(params, param_name(p[i].name, a));
        const bool declared = param && param->converter;
        const bool copy = tt_map_get(copies, p[i].name) != NULL;
        const bool was_frozen = trained && param && !tt_map_get(trained, param->name);
        const bool may_lack = declared || copy ||
                              (buffer && (buffer->of_converter || buffer->of_trainer)) ||
                              (which == STARTED && param && param->adapter_of) ||
                              (was_frozen && (which == TRAINED || is_of_optimizer(p[i].name))) ||
                              (frozen && tt_map_get(frozen, p[i].name));
        if (!may_lack || tt_ckpt_has(reader, p[i].name)) {
            p[kept++] = p[i];
            continue;
        }
        begun += copy && !declared && !was_frozen;
        if (was_frozen && !declared && is_of_optimizer(p[i].name))
            tt_map_set(thawed, param->name, thawed);
        states += buffer && buffer->of_converter;
        if (declared && !is_of_optimizer(p[i].name)) {
            added++;
            first = first ? first : param->name;
        }
    }
    if (report && begun)
        tt_log(TT_INFO, "checkpoint",
               "%s: has no such copies of weights as this job keeps: %zu begin as the weights",
               folder, begun);
    if (report)
        report_thawed(thawed, folder);
    if (report && states)
        tt_log(TT_INFO, "checkpoint",
               "%s: has no state of this job's converters for %zu tensors: they begin anew", folder,
               states);
    if (report && added)
        tt_log(
            TT_INFO, "checkpoint",
            "converters: %zu parameters added, which the checkpoint has not (%s%s): initial values",
            added, first, added > 1 ? ", …" : "");
    tt_arena_free(a);
    return kept;
}

/* ---- what the folder that a run starts from need not have ---- */

/* The tensors that such a folder has, by graph, so that all ranks find the same ones absent. */
static size_t wanted_weights(const tt_graph *g, tt_arena *a, tt_ckpt_tensor **out)
{
    tt_ckpt_tensor *t = tt_arena_array(a, g->params.n + g->states.n + 1, sizeof *t);
    size_t n = 0;
    for (size_t i = 0; i < g->params.n; i++) {
        const tt_param_info *p = g->params.items[i];
        if (p->absmax_of || p->adapter_of || p->converter)
            continue;
        t[n] = (tt_ckpt_tensor){
            .name = p->name, .n_dims = p->whole.n_dims, .vocab = tt_param_has_tokens(p)};
        for (int d = 0; d < p->whole.n_dims; d++)
            t[n].shape[d] = p->whole.dims[d].size;
        n++;
    }
    for (size_t i = 0; i < g->states.n; i++) {
        const tt_state *s = g->states.items[i];
        if (s->kind != TT_STATE_BUFFER || s->of_converter || s->of_trainer ||
            is_of_optimizer(s->name))
            continue;
        t[n] = (tt_ckpt_tensor){.name = s->name, .n_dims = s->type.n_dims};
        for (int d = 0; d < s->type.n_dims; d++)
            t[n].shape[d] = s->type.dims[d].size;
        n++;
    }
    *out = t;
    return n;
}

/* The names of the pieces of a weight that is stored as codes are in the map if the weight is. */
static void add_codes(const tt_graph *g, tt_arena *a, tt_map *left_out)
{
    for (size_t i = 0; i < g->params.n; i++) {
        tt_param_info *p = g->params.items[i];
        if (!p->codes || !tt_map_get(left_out, p->name))
            continue;
        tt_map_set(left_out, tt_codes_tensor(a, p), p);
        tt_map_set(left_out, p->absmax->name, p);
    }
}

/* Leaves out the pieces of tensors that the folder does not have as the model wants them. */
static tt_status match_weights(const tt_rank *r, const tt_ckpt_reader *reader, tt_arena *a,
                               const tt_ckpt_matching *how, tt_ckpt_piece *p, size_t *n,
                               tt_error *err)
{
    tt_ckpt_tensor *wanted = NULL;
    tt_map *left_out = NULL;
    const size_t n_wanted = wanted_weights(r->s->graph, a, &wanted);
    size_t kept = 0;
    TT_TRY(tt_ckpt_match(reader, wanted, n_wanted, how, a, &left_out, err));
    add_codes(r->s->graph, a, left_out);
    for (size_t i = 0; i < *n; i++)
        if (!tt_map_get(left_out, p[i].name))
            p[kept++] = p[i];
    *n = kept;
    return TT_OK;
}

/* The rest of this rank's share of the files is read. If a hash differs, or a file cannot be read, that is the error,
 * whatever else has failed with the bytes that were read. */
static tt_status check_rest(tt_ckpt_reader *reader, const tt_load_opts *o, tt_status loaded,
                            tt_error *err)
{
    tt_error why = {0};
    const tt_status s = tt_ckpt_check_rest(reader, &why);
    return s == TT_OK ? loaded : TT_FAIL(err, s, "%s; %s", why.text, o->advice);
}

static tt_status fill_from(const tt_rank *r, tt_ckpt_reader *reader, tt_ckpt_piece *p, size_t n,
                           tt_error *err)
{
    if (!tt_device_is_host(&r->device))
        tt_ckpt_sort(reader, p, n);
    return fill_all(r, p, n, false, load_pieces, reader, err);
}

/* What is loaded from a reader, and how. */
typedef struct reading {
    const char *name; /* of the reader, for the log */
    const tt_load_opts *o;
    lacking which;
    const tt_ckpt_matching *how; /* of the weights that a run starts from; else NULL */
} reading;

static tt_status load_from(tt_rank *r, tt_ckpt_reader *reader, const reading *w, tt_error *err)
{
    tt_arena *a = tt_arena_new();
    tt_ckpt_piece *p;
    tt_codings codings = {0};
    tt_magnitudes norms = {0};
    size_t n = pieces(r, a, w->o->optimizer, true, &p);
    if (w->o->advice)
        tt_ckpt_check_share(reader, w->o->writers, r->dist.rank, r->dist.world);
    tt_status s = w->how ? tt_ckpt_rename(reader, w->how->rename, err) : TT_OK;
    if (s == TT_OK)
        s = tt_rank_take_floats(r, a, reader, w->which == TRAINED, &p, &n, &codings, err);
    if (s == TT_OK)
        s = tt_rank_measure(r, a, reader, &p, &n, &norms, err);
    if (s == TT_OK && w->how)
        s = match_weights(r, reader, a, w->how, p, &n, err);
    if (s == TT_OK) {
        n = without_absent(r, reader, p, n, w->which, w->name, w->o->report);
        s = check_converted(reader, w->name, p, n, err);
    }
    if (s == TT_OK)
        s = fill_from(r, reader, p, n, err);
    if (w->o->advice)
        s = check_rest(reader, w->o, s, err);
    s = tt_rank_measured(&norms, tt_rank_taken(&codings, s, err), err);
    if (s == TT_OK && w->o->optimizer)
        s = tt_rank_start_copies(r, copies_by_name(r, reader, a), err);
    if (s == TT_OK && w->o->report) {
        report_others(r, reader, a);
        report_converted(reader, w->name, p, n);
        report_codes(r, reader, w->name, &codings);
    }
    tt_arena_free(a);
    return s;
}

tt_status tt_rank_load_from(tt_rank *r, tt_ckpt_reader *reader, const char *name, tt_error *err)
{
    const tt_load_opts o = {.optimizer = true};
    const reading w = {.name = name, .o = &o, .which = RESUMED};
    return load_from(r, reader, &w, err);
}

static tt_status load_step(tt_rank *r, const char *step_folder, const tt_load_opts *o,
                           lacking which, const tt_ckpt_matching *how, tt_error *err)
{
    const reading w = {step_folder, o, which, how};
    tt_ckpt_reader *reader = NULL;
    TT_TRY((o->optimizer || !r->s->core.training.ema_evaluate
                ? tt_ckpt_open
                : tt_ckpt_open_weights)(step_folder, &reader, err));
    const tt_status s = load_from(r, reader, &w, err);
    tt_ckpt_close(reader);
    return s;
}

tt_status tt_rank_load(tt_rank *r, const char *step_folder, const tt_load_opts *o, tt_error *err)
{
    return load_step(r, step_folder, o, RESUMED, NULL, err);
}

tt_status tt_rank_load_trained(tt_rank *r, const char *step_folder, const tt_load_opts *o,
                               tt_error *err)
{
    return load_step(r, step_folder, o, TRAINED, NULL, err);
}

tt_status tt_rank_load_initial(tt_rank *r, const char *step_folder, const tt_ckpt_matching *how,
                               tt_error *err)
{
    const tt_load_opts o = {.report = how->report};
    return load_step(r, step_folder, &o, STARTED, how, err);
}

/* ---- folders of other programs ---- */

typedef struct foreign_folder {
    const tt_setup *s;
    const char *path;
    const tt_ckpt_matching *how;
    tt_foreign_load load;
} foreign_folder;

static tt_status load_foreign_pieces(void *user, tt_ckpt_piece *p, size_t n, tt_error *err)
{
    const foreign_folder *f = user;
    return f->load(f->s, f->path, p, n, f->how, err);
}

/* Fills the factors of adapters, or all other parameters and the buffers that such folders have. */
static tt_status load_foreign(tt_rank *r, const char *folder, bool adapters,
                              const tt_ckpt_matching *how, tt_error *err)
{
    tt_arena *a = tt_arena_new();
    const tt_map *params = params_by_name(r->s->graph, a);
    const tt_foreign *x = r->s->foreign;
    foreign_folder f = {r->s, folder, how, adapters ? x->load_adapter : x->load};
    tt_ckpt_piece *p;
    tt_codings codings = {0};
    tt_magnitudes norms = {0};
    size_t n = pieces(r, a, false, true, &p), k = 0;
    tt_status s = adapters ? TT_OK : tt_rank_take_floats(r, a, NULL, false, &p, &n, &codings, err);
    if (s == TT_OK && !adapters)
        s = tt_rank_measure(r, a, NULL, &p, &n, &norms, err);
    for (size_t i = 0; i < n; i++) {
        const tt_param_info *param = tt_map_get(params, p[i].name);
        const tt_state *buffer = tt_graph_state(r->s->graph, TT_STATE_BUFFER, p[i].name);
        if (buffer ? buffer->exported && !adapters : (param && param->adapter_of) == adapters)
            p[k++] = p[i];
    }
    if (s == TT_OK)
        s = fill_all(r, p, k, true, load_foreign_pieces, &f, err);
    s = tt_rank_measured(&norms, tt_rank_taken(&codings, s, err), err);
    tt_arena_free(a);
    return s;
}

tt_status tt_rank_load_hf(tt_rank *r, const char *folder, const tt_ckpt_matching *how,
                          tt_error *err)
{
    return load_foreign(r, folder, false, how, err);
}

tt_status tt_rank_load_adapter(tt_rank *r, const char *folder, bool report, tt_error *err)
{
    const tt_ckpt_matching how = {.report = report};
    return load_foreign(r, folder, true, &how, err);
}
