/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/builder_impl.h"
#include "graph/metric_name.h"
#include <string.h>

/* Functions that describe() calls in addition to ops: outputs that a loss reads, terms of the loss,
 * metrics, and dropout, which depends on the use of the graph. This file is above core/graph/ops: it
 * builds with the public functions of <ttrun/builder.h>, as a model does. */

/* Can a and b not both be metrics? They are equal, or one ("a") would be both a number and the object
 * that holds the other ("a/b"). */
static bool metrics_clash(const char *a, const char *b)
{
    const size_t n = strcspn(a, "/"), m = strcspn(b, "/");
    return !strcmp(a, b) || (n == m && !strncmp(a, b, n) && (!a[n] || !b[m]));
}

static void add_metric(tt_builder *b, const char *name, tt_value *v, bool of_tokens)
{
    const tt_metric_entry e = {tt_arena_str(b->arena, name),
                               tt_arena_printf(b->arena, "metric.%s", name), v, of_tokens};
    for (size_t i = 0; i < b->g->metrics.n; i++)
        if (metrics_clash(b->g->metrics.items[i].name, name)) {
            tt_builder_fail(b, TT_EINVAL, "metric \"%s\": there is a metric \"%s\" already", name,
                            b->g->metrics.items[i].name);
            return;
        }
    if (b->g->metrics.n == TT_MAX_LOGGED) {
        tt_builder_fail(b, TT_EINVAL, "metric \"%s\": more than %d metrics", name, TT_MAX_LOGGED);
        return;
    }
    tt_vec_push(b->arena, &b->g->metrics, e);
}

void tt_log_metric(tt_builder *b, const char *name, tt_value *v)
{
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./-";
    if (tt_local_refuses(b, "tt_log_metric") ||
        tt_builder_lacks(b, name, "tt_log_metric: the name") ||
        tt_builder_lacks(b, v, "tt_log_metric: the value"))
        return;
    const char *own = tt_metric_own(name);
    if (own) {
        tt_builder_fail(b, TT_EINVAL,
                        "metric \"%s\": the training loop logs \"%s\" itself; choose another name",
                        name, own);
        return;
    }
    const bool of_tokens = v->type.n_dims == 1 && (v->type.dims[0].size == b->g->tokens ||
                                                   v->type.dims[0].size == b->g->sequences);
    if (v->type.n_dims != 0 && !of_tokens) {
        tt_builder_fail(b, TT_EINVAL, "metric \"%s\" must be a scalar, [tokens] or [samples]",
                        name);
        return;
    }
    if (!*name || strlen(name) > 64 || strspn(name, letters) != strlen(name)) {
        tt_builder_fail(b, TT_EINVAL,
                        "metric \"%.80s\": a name is 1 to 64 of a-z, 0-9, _, -, . and /", name);
        return;
    }
    v = tt_cast(b, v, TT_F32);
    add_metric(b, name, of_tokens ? tt_sum_all(b, v) : v, of_tokens);
}

tt_value *tt_get_output(tt_builder *b, const char *name)
{
    if (tt_local_refuses(b, "tt_get_output") ||
        tt_builder_lacks(b, name, "tt_get_output: the name"))
        return tt_placeholder(b);
    tt_value *v = tt_map_get(b->g->outputs, name);
    if (v) /* a loss is computed in f32 */
        return tt_cast(b, v, tt_dtype_accumulate(v->type.dtype));
    tt_str have = {0};
    for (size_t i = 0; i < tt_map_size(b->g->outputs); i++)
        tt_str_printf(&have, "%s%s", i ? ", " : "", tt_map_key(b->g->outputs, i));
    v = tt_builder_fail(b, TT_EINVAL, "the model has no output \"%s\" (it has: %s)", name,
                        have.n ? tt_str_get(&have) : "none");
    tt_str_free(&have);
    return v;
}

int tt_has_output(tt_builder *b, const char *name)
{
    return !tt_builder_error(b) && name && tt_map_get(b->g->outputs, name) != NULL;
}

void tt_loss_term(tt_builder *b, const char *name, tt_value *v, double weight)
{
    if (tt_local_refuses(b, "tt_loss_term") ||
        tt_builder_lacks(b, name, "tt_loss_term: the name") ||
        tt_builder_lacks(b, v, "tt_loss_term: the value"))
        return;
    v = tt_cast(b, v, tt_dtype_accumulate(v->type.dtype));
    if (v->type.dtype != TT_F32 || v->type.n_dims > 1) {
        tt_builder_fail(b, TT_EINVAL, "loss term \"%s\" must be an f32 scalar or [tokens]", name);
        return;
    }
    tt_loss_entry e = {tt_arena_str(b->arena, name), v, weight};
    tt_vec_push(b->arena, &b->g->losses, e);
    const bool of_tokens = v->type.n_dims > 0;
    add_metric(b, tt_arena_printf(b->arena, "losses/%s", name), of_tokens ? tt_sum_all(b, v) : v,
               of_tokens);
}

tt_builder_use tt_builder_mode(const tt_builder *b)
{
    return b->opts.use;
}

/* How many leading dims are the token dim: 1, 2 if it is reshaped to sequences and positions, 0 if these
 * are other dims. */
static int token_dims(const tt_builder *b, const tt_dim *dims, int n_dims)
{
    const char *label = n_dims > 0 ? dims[0].label : NULL;
    if (!label || strcmp(label, TT_LABEL_TOKENS) != 0)
        return 0;
    if (dims[0].size == b->g->tokens)
        return 1;
    return n_dims > 1 && dims[0].size == b->g->sequences &&
                   dims[0].size * dims[1].size == b->g->tokens
               ? 2
               : 0;
}

tt_value *tt_random(tt_builder *b, const tt_dim *dims, int n_dims, const char *stream, int normal)
{
    if (tt_builder_lacks(b, stream, "tt_random: the name of the stream") ||
        tt_builder_lacks_list(b, dims, n_dims, "tt_random: the list of dims"))
        return tt_placeholder(b);
    if (n_dims < 0 || n_dims > TT_MAX_DIMS)
        return tt_builder_fail(b, TT_EINVAL, "random: a value has at most %d dims, not %d",
                               TT_MAX_DIMS, n_dims);
    tt_attrs_random a = {.stream = stream, .normal = !!normal};
    const int by_token = b->local ? 0 : token_dims(b, dims, n_dims);
    tt_value *index = by_token ? tt_input(b, "token_index") : NULL, *u = NULL;
    if (by_token)
        a.dims.dims[a.dims.n_dims++] = tt_value_type(index)->dims[0];
    for (int i = by_token; i < n_dims; i++)
        a.dims.dims[a.dims.n_dims++] = dims[i];
    tt_op(b, "random", &index, by_token ? 1 : 0, &a, &u, 1);
    return by_token == 2 ? tt_reshape(b, u, dims, n_dims) : u;
}

int64_t tt_builder_length(const tt_builder *b)
{
    if (b->opts.length > 0)
        return b->opts.length;
    return b->opts.sequences > 0 ? b->opts.tokens / b->opts.sequences : 0;
}

tt_value *tt_dropout(tt_builder *b, tt_value *x, double p, const char *name)
{
    if (tt_builder_lacks(b, x, "tt_dropout: the value") ||
        tt_builder_lacks(b, name, "tt_dropout: the name"))
        return tt_placeholder(b);
    if (b->failed || b->opts.use != TT_BUILD_TRAIN || p <= 0)
        return x;
    if (p >= 1)
        return tt_builder_fail(b, TT_EINVAL, "dropout \"%s\": p %g is not below 1", name, p);
    const char *stream = tt_dropout_stream(b, name);
    const tt_type *t = &x->type;
    tt_value *u = tt_random(b, t->dims, t->n_dims, stream, 0);
    tt_value *dropped = tt_less(b, u, tt_const(b, p, TT_F32));
    return tt_select(b, dropped, tt_const(b, 0, t->dtype), tt_scale(b, x, 1 / (1 - p)));
}
