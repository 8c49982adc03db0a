/* SPDX-License-Identifier: Apache-2.0 */
#include "adamw.h"
#include <math.h>
#include <stdbool.h>
#include <string.h>
#include <ttrun/arrays.h>

/* soap: Adam in the eigenbases of Shampoo's preconditioners (Vyas et al. 2024, arXiv:2409.11321), in the order of
 * the authors' code (https://github.com/nikhilvyas/SOAP):
 *   m += (1-b1)*(g-m);  v = b2*v + (1-b2)*(Lᵀ g R)²;  n = L (Lᵀ m R / (sqrt(v)+eps)) Rᵀ
 *   p -= lr*sqrt(1-b2^t)/(1-b1^t) * n;  p *= 1 - lr*wd
 *   GL += (1-bs)*(g gᵀ-GL);  GR += (1-bs)*(gᵀ g-GR);  every precondition_frequency updates L = QR(GL L), R = QR(GR R)
 * The first call only makes L and R, of eigenvectors; the t-th update is that of call t + 1. m is kept in the
 * parameter's own basis: it need not be turned when L and R change. A side with more than max_precond_dim
 * rows or columns, or that is the vocabulary, is not turned, and parameters of one dim have Adam's update. Matrices are whole on a rank:
 * where a mesh cuts them, a stack's members are shared out among the ranks, with their states. */

typedef struct {
    double lr, beta1, beta2, shampoo_beta, eps, weight_decay;
    int64_t precondition_frequency, max_precond_dim;
    bool correct_bias, normalize_grads;
} config;

static const tt_option options[] = {
    TT_OPTION(config, lr, TT_OPT_FLOAT, "3e-3", 0, 1e38,
              "learning rate, scaled by the lr_scheduler"),
    TT_OPTION(config, beta1, TT_OPT_FLOAT, "0.95", 0, 0.9999999999, "decay of the mean gradient"),
    TT_OPTION(config, beta2, TT_OPT_FLOAT, "0.95", 0, 0.9999999999,
              "decay of the mean squared gradient in the eigenbases"),
    TT_OPTION_MORE(config, shampoo_beta, TT_OPT_FLOAT, "null", 0, 0.9999999999, NULL,
                   TT_OPT_NULLABLE, NULL, "decay of the preconditioners; null = beta2"),
    TT_OPTION(config, eps, TT_OPT_FLOAT, "1e-8", 0, 1,
              "added to the denominator; a larger one brings meshes closer (numerics.md, SOAP)"),
    TT_OPTION(config, weight_decay, TT_OPT_FLOAT, "0.01", 0, 1e6, "decoupled weight decay"),
    TT_OPTION(config, precondition_frequency, TT_OPT_INT, "10", 1, 1e9,
              "updates between two steps of the eigenbases"),
    TT_OPTION(config, max_precond_dim, TT_OPT_INT, "10000", 0, 1e9,
              "sides of a matrix with more rows or columns have no preconditioner, and that of the "
              "vocabulary has none"),
    TT_OPTION(config, correct_bias, TT_OPT_BOOL, "true", 0, 0, "Adam's bias corrections"),
    TT_OPTION(config, normalize_grads, TT_OPT_BOOL, "false", 0, 0,
              "divide each parameter's update by its root mean square"),
};

/* Numbers of one update, f32 [n,1,..]. */
typedef struct {
    tt_value *how; /* of the op eigenbasis */
    tt_value *m_keep, *m_add, *v_keep, *v_add;
    tt_value *rate, *keep; /* of the step; what weight decay leaves of the parameter */
} numbers;

static tt_value *f32(tt_builder *b, double x)
{
    return tt_const(b, x, TT_F32);
}

/* 0 in the first call, else the corrected rate, computed in f64. */
static tt_value *rate_of(tt_builder *b, const config *c, tt_value *lr, tt_value *calls)
{
    if (!c->correct_bias)
        return lr;
    tt_value *t = tt_cast(b, tt_maximum(b, calls, f32(b, 1)), TT_F64), *one = adamw_f64(b, 1);
    tt_value *first = tt_sub(b, one, tt_pow(b, adamw_f64(b, c->beta1), t));
    tt_value *second = tt_sub(b, one, tt_pow(b, adamw_f64(b, c->beta2), t));
    return tt_div(b, tt_mul(b, lr, tt_sqrt(b, second)), first);
}

static numbers numbers_of(const config *c, tt_builder *b, const tt_update *u)
{
    numbers k;
    tt_value *calls = tt_optimizer_number(b, u, "calls"), *zero = f32(b, 0), *one = f32(b, 1);
    tt_value *first = tt_equal(b, calls, zero);
    tt_value *due = tt_equal(b, tt_mod(b, calls, f32(b, (double)c->precondition_frequency)), zero);
    k.how = tt_select(b, first, f32(b, 2), tt_cast(b, due, TT_F32));
    k.m_keep = tt_select(b, first, one, f32(b, c->beta1));
    k.m_add = tt_select(b, first, zero, f32(b, 1 - c->beta1));
    k.v_keep = tt_select(b, first, one, f32(b, c->beta2));
    k.v_add = tt_select(b, first, zero, f32(b, 1 - c->beta2));
    k.rate = tt_select(b, first, zero, tt_cast(b, rate_of(b, c, u->lr, calls), TT_F32));
    tt_value *keep = tt_sub(b, adamw_f64(b, 1), tt_mul(b, u->lr, adamw_f64(b, c->weight_decay)));
    k.keep = tt_select(b, first, one, tt_cast(b, keep, TT_F32));
    tt_assign(b, calls, tt_add(b, calls, one));
    return k;
}

/* A preconditioner of one side of a matrix. */
typedef struct {
    bool used;
    tt_value *gram, *basis; /* states [n,..,k,k] */
} side;

static side side_of(const config *c, tt_builder *b, const tt_update *u, const tt_dim *dim,
                    const char *gram, const char *basis)
{
    const int64_t size = dim->size;
    const bool words = dim->label && strcmp(dim->label, "vocab") == 0;
    side s = {.used = size <= c->max_precond_dim && size > 1 && !words};
    const tt_state_opts square = {
        .struct_size = sizeof square, .whole = 1, .rows = size, .cols = size};
    if (s.used) {
        s.gram = tt_optimizer_state_as(b, u, gram, &square);
        s.basis = tt_optimizer_state_as(b, u, basis, &square);
    }
    return s;
}

/* A whole matrix as plain rows and columns: a side of the preconditioners has no heads. */
static tt_value *plain(tt_builder *b, tt_value *x)
{
    tt_type t = *tt_value_type(x);
    for (int d = t.n_dims - 2; d < t.n_dims; d++)
        t.dims[d] = TT_DIM(t.dims[d].size, NULL);
    return tt_reshape(b, x, t.dims, t.n_dims);
}

/* x in the eigenbases, and back */
static tt_value *turned(tt_builder *b, const side *l, const side *r, tt_value *x, int back)
{
    const tt_type t = *tt_value_type(x);
    if (!l->used && !r->used)
        return x;
    x = plain(b, x);
    if (l->used)
        x = tt_matmul(b, l->basis, x, !back, 0);
    if (r->used)
        x = tt_matmul(b, x, r->basis, 0, back);
    return tt_reshape(b, x, t.dims, t.n_dims);
}

/* After the update, so that no gradient is turned by a basis made of it. */
static void advance(const config *c, tt_builder *b, const side *s, tt_value *product,
                    const numbers *k)
{
    const double beta = isnan(c->shampoo_beta) ? c->beta2 : c->shampoo_beta;
    if (!s->used)
        return;
    tt_value *gram = adamw_lerp(b, s->gram, product, 1 - beta);
    tt_assign(b, s->gram, gram);
    tt_dim matrices[TT_MAX_DIMS];
    const tt_type *t = tt_value_type(gram); /* [n,..,k,k]: of experts [n,experts,k,k] */
    for (int d = 0; d < t->n_dims; d++)
        matrices[d] = d < t->n_dims - 2 ? t->dims[d] : TT_DIM(1, NULL);
    tt_value *how = tt_broadcast_to(b, k->how, matrices, t->n_dims);
    tt_assign(b, s->basis, tt_eigenbasis(b, gram, s->basis, how));
}

static tt_value *normalized(tt_builder *b, tt_value *x)
{
    tt_value *sum = tt_mul(b, x, x);
    double n = 1;
    for (int d = tt_value_type(x)->n_dims - 1; d > 0; d--) {
        n *= (double)tt_value_type(x)->dims[d].size;
        sum = tt_sum(b, sum, d, 1);
    }
    tt_value *root = tt_sqrt(b, tt_scale(b, sum, 1 / n));
    return tt_div(b, x, tt_add(b, root, f32(b, 1e-30)));
}

static void describe_update(const void *cfg, tt_builder *b, const tt_update *u)
{
    const config *c = cfg;
    const tt_type t = *tt_value_type(u->param);
    const bool matrix = t.n_dims > 2; /* dim 0 is the stack */
    side l = {0}, r = {0};
    if (matrix) {
        l = side_of(c, b, u, &t.dims[t.n_dims - 2], "row_gram", "row_basis");
        r = side_of(c, b, u, &t.dims[t.n_dims - 1], "column_gram", "column_basis");
    }
    const bool turns = l.used || r.used;
    const tt_state_opts any = {.struct_size = sizeof any, .whole = turns},
                        square = {.struct_size = sizeof square, .positive = 1, .whole = turns};
    tt_value *m = tt_optimizer_state_as(b, u, "exp_avg", &any);
    tt_value *v = tt_optimizer_state_as(b, u, "exp_avg_sq", &square);
    tt_value *g = turns ? tt_whole_matrices(b, u->grad) : u->grad;
    const numbers k = numbers_of(c, b, u);
    tt_value *m1 = tt_add(b, tt_mul(b, m, k.m_keep), tt_mul(b, g, k.m_add));
    tt_value *projected = turned(b, &l, &r, g, 0);
    tt_value *v1 =
        tt_add(b, tt_mul(b, v, k.v_keep), tt_mul(b, tt_mul(b, projected, projected), k.v_add));
    tt_value *x = tt_div(b, turned(b, &l, &r, m1, 0), tt_add(b, tt_sqrt(b, v1), f32(b, c->eps)));
    x = turned(b, &l, &r, x, 1);
    if (c->normalize_grads)
        x = normalized(b, x);
    tt_assign(b, m, m1);
    tt_assign(b, v, v1);
    tt_value *p = tt_sub(b, u->param, tt_mul(b, x, k.rate));
    tt_assign(b, u->param, c->weight_decay > 0 ? tt_mul(b, p, k.keep) : p);
    if (turns)
        g = plain(b, g);
    if (l.used)
        advance(c, b, &l, tt_matmul(b, g, g, 0, 1), &k);
    if (r.used)
        advance(c, b, &r, tt_matmul(b, g, g, 1, 0), &k);
}

static const tt_optimizer_vt vt = {sizeof vt, describe_update, "lr"};

static const tt_component components[] = {
    TT_COMPONENT(TT_KIND_OPTIMIZER, "soap", "Adam in the eigenbases of Shampoo's preconditioners",
                 config, options, &vt),
};

TT_PLUGIN("soap", "1.0", components);
