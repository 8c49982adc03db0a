/* SPDX-License-Identifier: Apache-2.0 */
#include "interchange/formats/dcp.h"
#include "interchange/interchange_impl.h"
#include <stdlib.h>
#include <string.h>
#include <ttrun/lr_scheduler.h>
#include <ttrun/optimizer.h>

/* Writes a step folder in torch.distributed.checkpoint's own form: parameters, optimizer states and their
 * steps and groups, and counts. Names are as torchtitan has them, with our names of parameters or, for
 * torchtitan itself, its own:
 *   <param>, optimizer.state.<param>.<state>, optimizer.state.<param>.step,
 *   optimizer.param_groups.<param>.<key>, lr_scheduler.last_epoch, train_state.step and .ntokens_seen */

typedef struct exporting {
    const tt_setup *s;
    tt_arena *arena;
    tt_ckpt_reader *reader;
    tt_dcp_writer *writer;
    bool titan;          /* false: our names */
    tt_name_table names; /* torchtitan's */
    tt_map *written;     /* names of tensors that are written */
    tt_map *params;      /* name → tt_param_info */
    tt_map *buffers;     /* names of exported buffers */
    tt_trainer_state state;
} exporting;

/* A parameter's name there, and how its elements are ordered there. */
static tt_status name_there(const exporting *x, const char *param, const char **name,
                            tt_layout *layout, tt_error *err)
{
    tt_titan_name row;
    size_t at = 0;
    *name = param;
    *layout = (tt_layout){0};
    if (!x->titan)
        return TT_OK;
    *name = tt_name_there(x->arena, &x->names, param, false, &at, &row);
    if (!*name)
        return TT_FAIL(err, TT_EUNSUPPORTED, "model %s: torchtitan has no name for '%s'",
                       x->s->model.name, param);
    return tt_layout_of(x->s, &row, param, layout, err);
}

/* Splits "optimizer.state.<param>.<state>"; NULL: it is no state of a parameter of the model. */
static const tt_param_info *param_of(const exporting *x, const char *name, const char **state)
{
    static const char prefix[] = "optimizer.state.";
    const size_t n = sizeof prefix - 1;
    const char *dot = strrchr(name, '.');
    *state = NULL;
    if (strncmp(name, prefix, n) != 0)
        return tt_map_get(x->params, name);
    if (!dot || dot < name + n)
        return NULL;
    *state = dot + 1;
    return tt_map_get(x->params, tt_arena_strn(x->arena, name + n, (size_t)(dot - name) - n));
}

static bool same_shape(const tt_param_info *p, const tt_ckpt_tensor *t)
{
    bool same = p->type.n_dims == t->n_dims;
    for (int d = 0; d < t->n_dims && same; d++)
        same = p->type.dims[d].size == t->shape[d];
    return same;
}

/* Fills out->name, and how the elements of a tensor of the step folder are ordered there. */
static tt_status place_there(const exporting *x, const tt_ckpt_tensor *t, tt_dcp_tensor *out,
                             tt_layout *layout, tt_error *err)
{
    const char *state = NULL;
    const tt_param_info *param = param_of(x, t->name, &state);
    *layout = (tt_layout){0};
    out->name = t->name;
    if (!param)
        return tt_map_get(x->buffers, t->name) ? name_there(x, t->name, &out->name, layout, err)
                                               : TT_OK;
    if (state && tt_dtype_size(out->dtype < TT_N_DTYPES ? out->dtype : TT_F32) == 1)
        return TT_FAIL(
            err, TT_EUNSUPPORTED,
            "'%s' is %s with scales beside it, which PyTorch's optimizers have not: train "
            "with optimizer.state_dtype float32 or bfloat16",
            t->name, t->dtype_name);
    TT_TRY(name_there(x, param->name, &out->name, layout, err));
    if (state)
        out->name = tt_arena_printf(x->arena, "optimizer.state.%s.%s", out->name, state);
    if (tt_layout_differs(layout) && t->n_dims && !same_shape(param, t))
        return TT_FAIL(
            err, TT_EUNSUPPORTED,
            "'%s' has another shape than its parameter, whose elements torchtitan has in "
            "another order",
            t->name);
    return TT_OK;
}

static bool is_step(const exporting *x, const char *name)
{
    const char *state = NULL;
    return param_of(x, name, &state) && state && !strcmp(state, "step");
}

static tt_status put_tensor(const exporting *x, const tt_dcp_tensor *t, tt_error *err)
{
    tt_map_set(x->written, t->name, x->written);
    return tt_dcp_put_tensor(x->writer, t, err);
}

static tt_status write_tensor(const exporting *x, const tt_ckpt_tensor *t, tt_error *err)
{
    tt_dcp_tensor out = {.dtype = tt_ckpt_dtype(x->reader, t->name), .n_dims = t->n_dims};
    tt_ckpt_piece p = {.name = t->name, .dtype = out.dtype, .n_dims = t->n_dims, .owner = true};
    tt_layout layout;
    if (is_step(x, t->name))
        return TT_OK; /* written from trainer.json */
    TT_TRY(place_there(x, t, &out, &layout, err));
    const size_t size = out.dtype < TT_N_DTYPES ? tt_dtype_size(out.dtype) : 0;
    int64_t bytes = (int64_t)size;
    for (int d = 0; d < t->n_dims; d++) {
        p.global[d] = p.box.end[d] = t->shape[d];
        if (!tt_mul_i64(bytes, t->shape[d], &bytes))
            return TT_FAIL(err, TT_EFORMAT, "'%s': its size overflows", t->name);
    }
    tt_layout_shape(&layout, t->n_dims, t->shape, out.shape);
    uint8_t *data = malloc((size_t)bytes * (tt_layout_differs(&layout) ? 2 : 1) + 1);
    if (!data)
        return TT_FAIL(err, TT_ENOMEM, "no memory for %lld bytes of '%s'", (long long)bytes,
                       t->name);
    p.data = data;
    out.data = data;
    tt_status s = bytes ? tt_ckpt_load(x->reader, &p, 1, err) : TT_OK;
    if (s == TT_OK && bytes && tt_layout_differs(&layout)) {
        tt_layout_store(&layout, data + bytes, data, t->n_dims, t->shape, size);
        out.data = data + bytes;
    }
    if (s == TT_OK)
        s = put_tensor(x, &out, err);
    free(data);
    return s;
}

/* Writes zeros for the vector that torchtitan's model has beside a parameter, if ours has none. */
static tt_status write_zeros(const exporting *x, const tt_param_info *p, tt_error *err)
{
    tt_titan_name row;
    size_t at = 0;
    tt_dcp_tensor t = {.dtype = TT_F32, .n_dims = 1, .shape = {p->whole.dims[0].size}};
    if (!x->titan || !p->whole.n_dims)
        return TT_OK;
    t.name = tt_name_there(x->arena, &x->names, p->name, true, &at, &row);
    if (!t.name || tt_map_get(x->written, t.name))
        return TT_OK;
    t.data = tt_arena_array(x->arena, (size_t)t.shape[0], sizeof(float));
    return put_tensor(x, &t, err);
}

/* ---- the optimizer's groups ---- */

/* A number among the optimizer's options; false: it has none of this name. */
static bool option_of(const tt_component *c, const void *config, const char *name, double *out)
{
    const double *x = tt_part_value(c, config, name, TT_OPT_FLOAT);
    if (x)
        *out = *x;
    return x != NULL;
}

static tt_status put_group_key(const exporting *x, const char *param, const char *key,
                               const tt_dcp_value *v, tt_error *err)
{
    return tt_dcp_put_value(
        x->writer, tt_arena_printf(x->arena, "optimizer.param_groups.%s.%s", param, key), v, err);
}

/* The keys that torch.optim.AdamW has beside its numbers, at its defaults. */
static tt_status put_defaults(const exporting *x, const char *param, tt_error *err)
{
    static const struct {
        const char *key;
        tt_dcp_value value;
    } keys[] = {
        {"amsgrad",                {TT_DCP_BOOL, 0, {0}}},
        {"maximize",               {TT_DCP_BOOL, 0, {0}}},
        {"capturable",             {TT_DCP_BOOL, 0, {0}}},
        {"differentiable",         {TT_DCP_BOOL, 0, {0}}},
        {"foreach",                {TT_DCP_NONE, 0, {0}}},
        {"fused",                  {TT_DCP_NONE, 0, {0}}},
        {"decoupled_weight_decay", {TT_DCP_BOOL, 1, {0}}}
    };
    for (size_t i = 0; i < TT_COUNT(keys); i++)
        TT_TRY(put_group_key(x, param, keys[i].key, &keys[i].value, err));
    return TT_OK;
}

/* The rate of the next step, as torch's scheduler has set it after its step. */
static double rate(const exporting *x, double base)
{
    return base * tt_setup_lr_factor(x->s, x->state.step, x->s->core.training.steps);
}

static tt_status write_group(const exporting *x, const tt_param_info *p, tt_error *err)
{
    static const char *const same[] = {"eps", "weight_decay", "momentum"};
    const tt_component *c = x->s->optimizer.component;
    const tt_group *g = &x->s->groups[tt_group_of((void *)(uintptr_t)x->s, p) + 1];
    const double base =
        (x->state.has_lr ? x->state.lr : *tt_optimizer_rate(c, x->s->optimizer.config)) *
        g->lr_factor;
    tt_dcp_value v = {.kind = TT_DCP_REAL};
    const char *name = NULL;
    tt_layout layout;
    TT_TRY(name_there(x, p->name, &name, &layout, err));
    v.real[0] = base;
    TT_TRY(put_group_key(x, name, "initial_lr", &v, err));
    v.real[0] = rate(x, base);
    TT_TRY(put_group_key(x, name, "lr", &v, err));
    for (size_t i = 0; i < TT_COUNT(same); i++)
        if (option_of(c, g->config, same[i], &v.real[0]))
            TT_TRY(put_group_key(x, name, same[i], &v, err));
    v.kind = TT_DCP_PAIR;
    if (!option_of(c, g->config, "beta1", &v.real[0]) ||
        !option_of(c, g->config, "beta2", &v.real[1]))
        return TT_OK;
    TT_TRY(put_group_key(x, name, "betas", &v, err));
    return put_defaults(x, name, err);
}

/* The step of a parameter's states, as torch keeps it: a number of f32. */
static tt_status write_step(const exporting *x, const tt_param_info *p, tt_error *err)
{
    const float step = (float)x->state.step;
    const char *name = NULL;
    tt_layout layout;
    TT_TRY(name_there(x, p->name, &name, &layout, err));
    const tt_dcp_tensor t = {.name = tt_arena_printf(x->arena, "optimizer.state.%s.step", name),
                             .dtype = TT_F32,
                             .data = &step};
    return put_tensor(x, &t, err);
}

/* Groups and steps of the parameters that have states. */
static tt_status write_groups(const exporting *x, tt_error *err)
{
    tt_map *done = tt_map_new(x->arena);
    const char *state = NULL;
    for (size_t i = 0; i < tt_ckpt_n_tensors(x->reader); i++) {
        const tt_ckpt_tensor t = tt_ckpt_tensor_at(x->reader, i);
        const tt_param_info *p = param_of(x, t.name, &state);
        if (!p || !state || tt_map_get(done, p->name))
            continue;
        tt_map_set(done, p->name, done);
        TT_TRY(write_step(x, p, err));
        TT_TRY(write_group(x, p, err));
    }
    return TT_OK;
}

static tt_status write_counts(const exporting *x, tt_error *err)
{
    const int32_t step = (int32_t)TT_MIN(x->state.step, (int64_t)INT32_MAX);
    const tt_dcp_tensor counts[] = {
        {.name = "train_state.step",         .dtype = TT_I32, .data = &step                 },
        {.name = "train_state.ntokens_seen", .dtype = TT_I64, .data = &x->state.tokens_seen },
        {.name = "train_state.samples_seen", .dtype = TT_I64, .data = &x->state.samples_seen}
    };
    const tt_dcp_value epoch = {.kind = TT_DCP_INT, .integer = x->state.step};
    for (size_t i = 0; i < TT_COUNT(counts); i++)
        TT_TRY(put_tensor(x, &counts[i], err));
    return tt_dcp_put_value(x->writer, "lr_scheduler.last_epoch", &epoch, err);
}

static tt_status write_all(const exporting *x, tt_error *err)
{
    for (size_t i = 0; i < tt_ckpt_n_tensors(x->reader); i++) {
        const tt_ckpt_tensor t = tt_ckpt_tensor_at(x->reader, i);
        TT_TRY(write_tensor(x, &t, err));
    }
    for (size_t i = 0; i < x->s->graph->params.n; i++)
        TT_TRY(write_zeros(x, x->s->graph->params.items[i], err));
    TT_TRY(write_groups(x, err));
    TT_TRY(write_counts(x, err));
    return tt_dcp_finish(x->writer, err);
}

static void list_names(exporting *x)
{
    const tt_graph *g = x->s->graph;
    x->params = tt_map_new(x->arena);
    x->buffers = tt_map_new(x->arena);
    x->written = tt_map_new(x->arena);
    for (size_t i = 0; i < g->params.n; i++)
        tt_map_set(x->params, g->params.items[i]->name, g->params.items[i]);
    for (size_t i = 0; i < g->states.n; i++)
        if (g->states.items[i]->kind == TT_STATE_BUFFER && g->states.items[i]->exported)
            tt_map_set(x->buffers, g->states.items[i]->name, g->states.items[i]);
}

tt_status tt_setup_write_dcp(const tt_setup *s, const char *step_folder, bool titan,
                             const char *folder, tt_tensor_counts *counts, tt_error *err)
{
    exporting x = {.s = s, .arena = tt_arena_new(), .titan = titan};
    list_names(&x);
    tt_status st = titan ? tt_titan_names(s, &x.names, err) : TT_OK;
    if (st == TT_OK && titan && !x.names.n)
        st = TT_FAIL(err, TT_EUNSUPPORTED, "model %s has no names of torchtitan's; use --to dcp",
                     s->model.name);
    if (st == TT_OK)
        st = tt_ckpt_read_state(step_folder, x.arena, &x.state, err);
    if (st == TT_OK)
        st = tt_ckpt_open(step_folder, &x.reader, err);
    if (st == TT_OK)
        st = tt_remove_tree(folder, err);
    if (st == TT_OK)
        st = tt_dcp_create(folder, &x.writer, err);
    if (st == TT_OK)
        st = write_all(&x, err);
    if (st == TT_OK)
        st = tt_export_check(s, x.reader, step_folder, NULL, counts, err);
    if (counts)
        counts->made = tt_map_size(x.written);
    tt_dcp_close(x.writer);
    tt_ckpt_close(x.reader);
    if (st != TT_OK)
        (void)tt_remove_tree(folder, NULL);
    tt_arena_free(x.arena);
    return st;
}
