/* SPDX-License-Identifier: Apache-2.0 */
#include "interchange/formats/dcp.h"
#include "interchange/import_impl.h"
#include <math.h>
#include <string.h>

/* Folders of torch.distributed.checkpoint with parameters, optimizer states and counts. Names, where P is
 * any prefix that ends with a dot, or nothing ("model.", "app.model."):
 *   P<param>                        parameters, by our names or torchtitan's
 *   P state.<param>.<state>         "optimizer.state.tok_embeddings.weight.exp_avg", and .step
 *   train_state.step, .ntokens_seen counts; .samples_seen is ours (ckpt export --to dcp)
 * optimizer.param_groups.*, lr_scheduler.* and dataloader.* are not read: the job says what they say. */

/* Does `name` end with `tail`, at its begin or after a dot? *head gets the length before it. */
static bool ends_at_dot(const char *name, const char *tail, size_t *head)
{
    const size_t n = strlen(name), k = strlen(tail);
    if (!tt_ends_with(name, tail))
        return false;
    *head = n - k;
    return n == k || name[n - k - 1] == '.';
}

/* The shortest prefix that a tensor's name has there; NULL: there is no such tensor. */
static const char *prefix_of(const import *im, const char *name)
{
    const char *found = NULL;
    size_t shortest = SIZE_MAX, head = 0;
    for (size_t i = 0; i < tt_ckpt_n_tensors(im->reader); i++) {
        const char *there = tt_ckpt_tensor_at(im->reader, i).name;
        if (ends_at_dot(there, name, &head) && head < shortest) {
            shortest = head;
            found = tt_arena_strn(im->arena, there, head);
        }
    }
    return found;
}

tt_status tt_import_open_dcp(import *im, tt_error *err)
{
    const char *first = im->n ? im->params[0].name : "", *prefix = NULL, *there;
    tt_name_table *names = tt_arena_alloc(im->arena, sizeof *names);
    tt_titan_name row;
    size_t at = 0;
    TT_TRY(tt_ckpt_open(im->folder, &im->reader, err));
    if (im->from == TT_IMPORT_DCP)
        prefix = prefix_of(im, first);
    if (!prefix) {
        TT_TRY(tt_titan_names(im->s, names, err));
        while (!prefix && (there = tt_name_there(im->arena, names, first, false, &at, &row)))
            prefix = prefix_of(im, there);
        if (prefix || im->from == TT_IMPORT_TITAN)
            im->names = names;
    }
    im->prefix = prefix ? prefix : ""; /* without: the first load names what is not there */
    return TT_OK;
}

/* ---- optimizer states ---- */

/* Splits "P state.<param>.<state>" by the names of the parameters. */
static const tt_import_tensor *param_of_state(const tt_map *params, tt_arena *a, const char *name,
                                              size_t *head, const char **state)
{
    const char *dot = strrchr(name, '.');
    for (const char *at = dot ? strstr(name, "state.") : NULL; at; at = strstr(at + 1, "state.")) {
        const char *param = at + 6;
        if ((at > name && at[-1] != '.') || dot <= param)
            continue;
        const tt_import_tensor *t =
            tt_map_get(params, tt_arena_strn(a, param, (size_t)(dot - param)));
        if (!t)
            continue;
        *head = (size_t)(param - name);
        *state = dot + 1;
        return t;
    }
    return NULL;
}

/* The parameters by their names in the folder, without the prefix. */
static tt_map *params_there(const import *im)
{
    tt_map *params = tt_map_new(im->arena);
    for (size_t i = 0; i < im->n; i++)
        tt_map_set(params, im->tensors.items[i].there + strlen(im->prefix),
                   tt_arena_dup(im->arena, &im->tensors.items[i], sizeof(tt_import_tensor)));
    return params;
}

/* A state of the parameter's shape has its rows in the parameter's order. */
static tt_status add_state(import *im, const tt_ckpt_tensor *there, const tt_import_tensor *param,
                           const char *state, tt_error *err)
{
    tt_import_tensor t = {.there = there->name, .n_dims = there->n_dims};
    int64_t shape[TT_MAX_DIMS] = {0};
    tt_layout_shape(&param->layout, param->n_dims, param->dims, shape);
    const bool same = there->n_dims == param->n_dims &&
                      !memcmp(there->shape, shape, sizeof(int64_t) * (size_t)param->n_dims);
    if (tt_layout_differs(&param->layout) && !same && there->n_dims)
        return TT_FAIL(
            err, TT_EUNSUPPORTED,
            "%s: '%s' has not the shape of the model's parameter: give the model's sizes "
            "by JOB.json, or by --model.flavor and --model.args (a state of another shape than its "
            "parameter, whose elements are in another order there, is not read)",
            im->folder, there->name);
    if (same)
        t.layout = param->layout;
    t.name = tt_arena_printf(im->arena, "optimizer.state.%s.%s", param->name, state);
    tt_layout_shape(&t.layout, there->n_dims, there->shape, t.dims);
    tt_vec_push(im->arena, &im->tensors, t);
    return TT_OK;
}

/* optimizer.state_dict() without get_optimizer_state_dict() names parameters by numbers. */
static void log_numbered(const import *im)
{
    for (size_t i = 0; i < tt_ckpt_n_tensors(im->reader); i++) {
        const char *name = tt_ckpt_tensor_at(im->reader, i).name, *at = strstr(name, "state.");
        if (at && (at == name || at[-1] == '.') && at[6] >= '0' && at[6] <= '9' &&
            at[6 + strspn(at + 6, "0123456789")] == '.') {
            tt_log(
                TT_WARN, "checkpoint",
                "%s: its optimizer states are named by numbers ('%s') and are left out; save them "
                "by torch.distributed.checkpoint.state_dict.get_optimizer_state_dict",
                im->folder, name);
            return;
        }
    }
}

/* A vector that another program's model has and ours has not changes nothing if it is zero. */
static tt_status take_zeros(const import *im, tt_map *used, const char *name, int64_t n,
                            tt_error *err)
{
    float *x = tt_arena_array(im->arena, (size_t)n + 1, sizeof *x);
    tt_ckpt_piece p = {.name = name, .dtype = TT_F32, .n_dims = 1, .data = x};
    p.global[0] = p.box.end[0] = n;
    if (tt_map_get(used, name) || !tt_ckpt_has(im->reader, name))
        return TT_OK;
    TT_TRY(tt_ckpt_load(im->reader, &p, 1, err));
    int64_t others = 0;
    for (int64_t i = 0; i < n; i++)
        others += x[i] < 0.0f || x[i] > 0.0f || x[i] != x[i];
    if (others)
        tt_log(TT_WARN, "checkpoint",
               "%s: '%s' is not zero, and the model has no such tensor, so it computes something "
               "else than there: choose the arguments of the model that give it one",
               im->folder, name);
    tt_map_set(used, name, used);
    return TT_OK;
}

tt_status tt_import_take_zeros(const import *im, tt_map *used, tt_error *err)
{
    for (size_t i = 0; i < im->n && im->names && !im->is_meta_release; i++) {
        tt_titan_name row;
        const char *there;
        size_t at = 0;
        while ((there = tt_name_there(im->arena, im->names, im->params[i].name, true, &at, &row)))
            TT_TRY(take_zeros(im, used, tt_arena_printf(im->arena, "%s%s", im->prefix, there),
                              im->params[i].dims[0], err));
    }
    return TT_OK;
}

tt_status tt_import_list_states(import *im, tt_error *err)
{
    const tt_map *params = params_there(im);
    for (size_t i = 0; i < tt_ckpt_n_tensors(im->reader); i++) {
        const tt_ckpt_tensor there = tt_ckpt_tensor_at(im->reader, i);
        size_t head = 0;
        const char *state = NULL;
        const tt_import_tensor *param =
            param_of_state(params, im->arena, there.name, &head, &state);
        if (!param)
            continue;
        if (!im->states)
            im->states = tt_arena_strn(im->arena, there.name, head);
        if (strcmp(state, "step") != 0)
            TT_TRY(add_state(im, &there, param, state, err));
    }
    if (!im->states)
        log_numbered(im);
    return TT_OK;
}

/* ---- counts ---- */

static tt_status read_count(const import *im, const char *name, int64_t *out, bool *found,
                            tt_error *err)
{
    double x = 0;
    TT_TRY(tt_dcp_number(im->reader, name, &x, found, err));
    if (*found && (!(x >= 0) || x > 9e15 || x != floor(x)))
        return TT_FAIL(err, TT_EFORMAT, "%s: '%s' is %g, not a count", im->folder, name, x);
    if (*found)
        *out = (int64_t)x;
    return TT_OK;
}

/* The step by the optimizer: that of the first parameter that has one. */
static tt_status step_of_optimizer(const import *im, int64_t *step, bool *found, tt_error *err)
{
    *found = false;
    for (size_t i = 0; i < im->n && !*found; i++) {
        const char *param = im->tensors.items[i].there + strlen(im->prefix);
        TT_TRY(read_count(im, tt_arena_printf(im->arena, "%s%s.step", im->states, param), step,
                          found, err));
    }
    return TT_OK;
}

/* Where the data goes on. Folders of others say it in pickles of Python's loaders; their tokens tell it,
 * if the job has the seq_len that they were trained with. */
static tt_status samples(const import *im, tt_trainer_state *state, tt_error *err)
{
    bool found = false;
    const int64_t length = im->s->core.training.seq_len,
                  batch = im->s->core.training.global_batch_size;
    TT_TRY(read_count(im, "train_state.samples_seen", &state->samples_seen, &found, err));
    if (found)
        return TT_OK;
    const char *how = "nothing there says how many: the data begins anew";
    state->samples_seen = 0;
    if (state->tokens_seen && length > 0) {
        state->samples_seen = state->tokens_seen / length;
        how = "its tokens by training.seq_len";
    } else if (batch > 0) {
        tt_mul_i64(state->step, batch, &state->samples_seen);
        how = "its steps by training.global_batch_size";
    }
    tt_log(TT_INFO, "checkpoint", "%s: step %lld, the data goes on after %lld samples (%s)",
           im->folder, (long long)state->step, (long long)state->samples_seen, how);
    return TT_OK;
}

tt_status tt_import_progress(const import *im, tt_trainer_state *state, tt_error *err)
{
    int64_t step = 0, of_optimizer = 0;
    bool has_step = false, has_tokens = false, has_own = false;
    if (!im->states)
        return TT_OK;
    TT_TRY(read_count(im, "train_state.step", &step, &has_step, err));
    TT_TRY(step_of_optimizer(im, &of_optimizer, &has_own, err));
    if (!has_step && !has_own)
        return TT_FAIL(
            err, TT_EFORMAT,
            "%s: it has optimizer states, but neither train_state.step nor a state named "
            "step",
            im->folder);
    state->step = has_step ? step : of_optimizer;
    if (has_step && has_own && step != of_optimizer)
        tt_log(TT_WARN, "checkpoint",
               "%s: train_state.step is %lld, the optimizer's is %lld: going on from %lld",
               im->folder, (long long)step, (long long)of_optimizer, (long long)step);
    TT_TRY(read_count(im, "train_state.ntokens_seen", &state->tokens_seen, &has_tokens, err));
    return samples(im, state, err);
}
