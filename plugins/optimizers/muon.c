/* SPDX-License-Identifier: Apache-2.0 */
#include "adamw.h"
#include <math.h>
#include <stdbool.h>
#include <string.h>

/* muon: momentum whose matrices are orthogonalized (Jordan et al. 2024,
 * https://kellerjordan.github.io/posts/muon), in the order of torch.optim.Muon:
 *   buf += (1-mu)*(g-buf);  m = nesterov ? g + mu*(buf-g) : buf;  p *= 1 - lr*wd;
 *   p -= lr * adjust(rows, columns) * orthogonal(m)
 * orthogonal() makes all singular values of a matrix about 1, by a few products with itself. It needs
 * whole matrices: where a mesh cuts their rows or columns, the matrices of a stack are shared out among the
 * ranks, so that each is orthogonalized once. Embeddings, the head, norms and biases are updated by AdamW.
 * A matrix is the last two dims of a parameter: experts have one each. */

typedef struct {
    double lr, momentum, weight_decay, eps;
    bool nesterov, split_heads;
    const char *update, *polynomial, *dtype, *adjust_lr_fn;
    int64_t ns_steps;
    double adamw_lr, adamw_beta1, adamw_beta2, adamw_eps, adamw_weight_decay;
} config;

static const tt_option options[] = {
    TT_OPTION(config, lr, TT_OPT_FLOAT, "1e-3", 0, 1e38,
              "learning rate of the matrices, scaled by the lr_scheduler"),
    TT_OPTION(config, momentum, TT_OPT_FLOAT, "0.95", 0, 0.9999999999, "decay of the momentum"),
    TT_OPTION(config, nesterov, TT_OPT_BOOL, "true", 0, 0, "look ahead along the momentum"),
    TT_OPTION(config, weight_decay, TT_OPT_FLOAT, "0.1", 0, 1e6, "decoupled weight decay"),
    TT_OPTION_MORE(config, adjust_lr_fn, TT_OPT_ENUM, "\"original\"", 0, 0,
                   "original|match_rms_adamw|spectral_unclamped", 0, NULL,
                   "factor on lr of a matrix of R rows and C columns: sqrt(max(1, R/C)), "
                   "0.2 sqrt(max(R, C)), with which AdamW's rates can be used, or sqrt(R/C)"),
    TT_OPTION_MORE(
        config, polynomial, TT_OPT_ENUM, "\"newton_schulz\"", 0, 0, "newton_schulz|polar_express",
        0, NULL,
        "newton_schulz: the same step ns_steps times, torch.optim.Muon's; polar_express: "
        "five different steps, which come nearer to singular values of 1 "
        "(arXiv:2505.16932)"),
    TT_OPTION(config, ns_steps, TT_OPT_INT, "5", 1, 99,
              "steps of the orthogonalization; polar_express repeats its last one"),
    TT_OPTION_MORE(config, dtype, TT_OPT_ENUM, "\"bfloat16\"", 0, 0, "bfloat16|float32", 0, NULL,
                   "of the orthogonalization, and of what ranks exchange for it"),
    TT_OPTION(config, eps, TT_OPT_FLOAT, "1e-7", 0, 1, "smallest norm that a matrix is divided by"),
    TT_OPTION(config, split_heads, TT_OPT_BOOL, "false", 0, 0,
              "orthogonalize each head of an attention's q, k and v projections by itself; o_proj "
              "stays whole"),
    TT_OPTION_MORE(config, update, TT_OPT_ENUM, "\"auto\"", 0, 0, "auto|muon|adamw", 0, NULL,
                   "auto: AdamW for embeddings, the head and parameters of one dim; for "
                   "param_groups that shall have another"),
    TT_OPTION_MORE(config, adamw_lr, TT_OPT_FLOAT, "null", 0, 1e38, NULL, TT_OPT_NULLABLE,
                   "adamw.lr", "learning rate of what AdamW updates; null = lr"),
    TT_OPTION_MORE(config, adamw_beta1, TT_OPT_FLOAT, "0.9", 0, 0.9999999999, NULL, 0,
                   "adamw.beta1", "AdamW: decay of the mean gradient"),
    TT_OPTION_MORE(config, adamw_beta2, TT_OPT_FLOAT, "0.95", 0, 0.9999999999, NULL, 0,
                   "adamw.beta2", "AdamW: decay of the mean squared gradient"),
    TT_OPTION_MORE(config, adamw_eps, TT_OPT_FLOAT, "1e-8", 0, 1, NULL, 0, "adamw.eps",
                   "AdamW: added to the denominator"),
    TT_OPTION_MORE(config, adamw_weight_decay, TT_OPT_FLOAT, "null", 0, 1e6, NULL, TT_OPT_NULLABLE,
                   "adamw.weight_decay", "AdamW: decoupled weight decay; null = weight_decay"),
};

/* a x + b (x xᵀ) x + c (x xᵀ)² x. Sources: torch.optim.Muon; Amsel et al. 2025, arXiv:2505.16932, with
 * their margin of 1.01 and 2 % in the norm. */
typedef struct {
    double a, b, c;
} quintic;

static const quintic newton_schulz[] = {
    {3.4445, -4.775, 2.0315}
};
static const quintic polar_express[] = {
    {8.156554524902461,  -22.48329292557795,  15.878769915207462 },
    {4.042929935166739,  -2.808917465908714,  0.5000178451051316 },
    {3.8916678022926607, -2.772484153217685,  0.5060648178503393 },
    {3.285753657755655,  -2.3681294933425376, 0.46449024233003106},
    {2.3465413258596377, -1.7097828382687081, 0.42323551169305323},
};

static double size_of(const tt_value *x, int from_end)
{
    const tt_type *t = tt_value_type(x);
    return (double)t->dims[t->n_dims - from_end].size;
}

/* x divided by the Frobenius norm of each matrix, in x's dtype */
static tt_value *normalized(tt_builder *b, const config *c, tt_value *x, bool polar)
{
    const tt_dtype dtype = tt_value_type(x)->dtype;
    tt_value *f = tt_cast(b, x, TT_F32);
    tt_value *norm = tt_sqrt(b, tt_sum(b, tt_sum(b, tt_mul(b, f, f), -1, 1), -2, 1));
    if (polar)
        norm = tt_add(b, tt_scale(b, norm, 1.01), tt_const(b, 1e-6, TT_F32));
    norm = tt_cast(b, tt_cast(b, norm, dtype), TT_F32);
    norm = tt_maximum(b, norm, tt_const(b, c->eps, TT_F32));
    return tt_cast(b, tt_div(b, f, norm), dtype);
}

/* One step, on the side of x that has fewer rows or columns. Sums of products are rounded once. */
static tt_value *step(tt_builder *b, tt_value *x, const quintic *q, bool tall)
{
    const tt_dtype dtype = tt_value_type(x)->dtype;
    tt_value *gram = tt_matmul(b, x, x, tall, !tall); /* [..,k,k], k the smaller of rows, columns */
    tt_value *square = tt_cast(b, tt_matmul(b, gram, gram, 0, 0), TT_F32);
    tt_value *y = tt_add(b, tt_scale(b, tt_cast(b, gram, TT_F32), q->b), tt_scale(b, square, q->c));
    y = tt_cast(b, y, dtype);
    y = tall ? tt_matmul(b, x, y, 0, 0) : tt_matmul(b, y, x, 0, 0);
    y = tt_add(b, tt_scale(b, tt_cast(b, x, TT_F32), q->a), tt_cast(b, y, TT_F32));
    return tt_cast(b, y, dtype);
}

static tt_value *orthogonal(tt_builder *b, const config *c, tt_value *x)
{
    const bool polar = strcmp(c->polynomial, "polar_express") == 0;
    const bool tall = size_of(x, 2) > size_of(x, 1);
    const quintic *q = polar ? polar_express : newton_schulz;
    const int64_t n = polar ? (int64_t)TT_COUNT(polar_express) : 1;
    x = normalized(b, c, x, polar);
    for (int64_t i = 0; i < c->ns_steps; i++)
        x = step(b, x, &q[i < n ? i : n - 1], tall);
    return x;
}

static double adjust(const config *c, double rows, double cols)
{
    if (strcmp(c->adjust_lr_fn, "match_rms_adamw") == 0)
        return 0.2 * sqrt(fmax(rows, cols));
    const double ratio = rows / cols;
    return sqrt(strcmp(c->adjust_lr_fn, "original") == 0 ? fmax(1, ratio) : ratio);
}

/* Does d hold heads of more than one element? */
static bool holds_heads(const tt_dim *d)
{
    return d->label && strstr(d->label, "heads") && d->unit > 1 && d->size > d->unit;
}

/* m [n,..,R,C] orthogonalized, f32 */
static tt_value *orthogonalized(tt_builder *b, const config *c, tt_value *m, double *factor)
{
    const tt_type t = *tt_value_type(m);
    const int rows = t.n_dims - 2;
    const bool heads = c->split_heads && t.n_dims < TT_MAX_DIMS && holds_heads(&t.dims[rows]);
    tt_dim dims[TT_MAX_DIMS]; /* [n,..,heads,R,C] */
    tt_value *x = tt_cast(b, m, strcmp(c->dtype, "float32") == 0 ? TT_F32 : TT_BF16);
    x = tt_whole_matrices(b, x);
    if (heads) {
        memcpy(dims, t.dims, sizeof(tt_dim) * (size_t)rows);
        dims[rows] = TT_DIM(t.dims[rows].size / t.dims[rows].unit, t.dims[rows].label);
        dims[rows + 1] = TT_DIM(t.dims[rows].unit, NULL);
        dims[rows + 2] = t.dims[rows + 1];
        x = tt_reshape(b, x, dims, t.n_dims + 1);
    }
    *factor = adjust(c, size_of(x, 2), size_of(x, 1));
    x = orthogonal(b, c, x);
    return tt_cast(b, heads ? tt_reshape(b, x, t.dims, t.n_dims) : x, TT_F32);
}

static void update_matrices(tt_builder *b, const config *c, const tt_update *u)
{
    tt_value *buf = tt_optimizer_state(b, u, "momentum_buffer"), *g = u->grad;
    tt_value *buf1 = adamw_lerp(b, buf, g, 1.0 - c->momentum);
    tt_value *m = c->nesterov ? adamw_lerp(b, g, buf1, c->momentum) : buf1;
    double factor = 1;
    tt_value *x = orthogonalized(b, c, m, &factor);
    tt_value *p = adamw_decay(b, u->param, u->lr, c->weight_decay);
    tt_value *lr = tt_cast(b, tt_mul(b, u->lr, adamw_f64(b, factor)), TT_F32);
    tt_assign(b, buf, buf1);
    tt_assign(b, u->param, tt_sub(b, p, tt_mul(b, x, lr)));
}

static bool has_tag(const char *tags, const char *tag)
{
    const size_t n = strlen(tag);
    for (const char *at = strstr(tags, tag); at; at = strstr(at + 1, tag))
        if ((at == tags || at[-1] == ',') && (at[n] == ',' || !at[n]))
            return true;
    return false;
}

/* Is the stack one of weights of hidden layers? */
static bool is_hidden(const tt_update *u)
{
    const tt_type *t = tt_value_type(u->param);
    for (int d = 1; d < t->n_dims; d++)
        if (t->dims[d].label && strcmp(t->dims[d].label, "vocab") == 0)
            return false;
    return !has_tag(u->tags[0], "embedding") && size_of(u->param, 1) > 1 &&
           size_of(u->param, 2) > 1;
}

static void describe_update(const void *cfg, tt_builder *b, const tt_update *u)
{
    const config *c = cfg;
    const bool matrices = tt_value_type(u->param)->n_dims > 2; /* dim 0 is the stack */
    if (!matrices && strcmp(c->update, "muon") == 0) {
        tt_builder_fail(b, TT_EINVAL, "optimizer.update muon: %s has one dim, and is no matrix",
                        u->names[0]);
        return;
    }
    if (matrices &&
        (strcmp(c->update, "muon") == 0 || (strcmp(c->update, "auto") == 0 && is_hidden(u)))) {
        update_matrices(b, c, u);
        return;
    }
    const double decay = isnan(c->adamw_weight_decay) ? c->weight_decay : c->adamw_weight_decay;
    const adamw_config adam = {c->adamw_beta1, c->adamw_beta2, c->adamw_eps, decay, 0};
    tt_value *lr = u->lr;
    if (!isnan(c->adamw_lr) && c->lr > 0)
        lr = tt_mul(b, lr, adamw_f64(b, c->adamw_lr / c->lr));
    adamw_update(b, u, u->grad, &adam, lr);
}

static const tt_optimizer_vt vt = {sizeof vt, describe_update, "lr"};

static const tt_component components[] = {
    TT_COMPONENT(TT_KIND_OPTIMIZER, "muon",
                 "momentum with orthogonalized matrices; AdamW for embeddings, head and norms",
                 config, options, &vt),
};

TT_PLUGIN("muon", "1.0", components);
