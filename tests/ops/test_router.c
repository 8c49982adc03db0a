/* SPDX-License-Identifier: Apache-2.0 */
#include "cases.h"

#include "../../plugins/models/moe.h"

/* Every form of the router of plugins/models/moe_router.h against loops that are written out: choices, weights,
 * and the derivatives of the weights, which are differences of the loops' values. */

enum { T = 9, D = 5, MOST_E = 12, MOST_K = 12 };

static const tt_backend_vt *backend;

typedef struct form {
    int64_t E, k;
    int score;
    bool after, norm, bias;
    double scale;
    int64_t groups, limit;
    int group_score;
} form;

static double score_of(const form *f, const double *logits, int e)
{
    double sum = 0, most = logits[0];
    if (f->score == MOE_SIGMOID)
        return 1 / (1 + exp(-logits[e]));
    if (f->score == MOE_SQRT_SOFTPLUS)
        return sqrt(log1p(exp(logits[e])));
    for (int i = 1; i < f->E; i++)
        most = logits[i] > most ? logits[i] : most;
    for (int i = 0; i < f->E; i++)
        sum += exp(logits[i] - most);
    return exp(logits[e] - most) / sum;
}

/* How many of v[0..n) are larger than v[i], the lower index first among equals. */
static int place_of(const double *v, int n, int i)
{
    int larger = 0;
    for (int j = 0; j < n; j++)
        larger += v[j] > v[i] || (!(v[j] < v[i]) && j < i);
    return larger;
}

static double group_of(const form *f, const double *v, int size)
{
    double first = -1e9, second = -1e9;
    for (int i = 0; i < size; i++) {
        second = v[i] > first ? first : v[i] > second ? v[i] : second;
        first = v[i] > first ? v[i] : first;
    }
    return f->group_score == MOE_GROUP_MAX || size < 2 ? first : first + second;
}

/* The chosen experts of a token, the best one first. */
static void choose(const form *f, const double *logits, const double *bias, int *chosen)
{
    double v[MOST_E], group[MOST_E];
    const int G = f->groups > 1 ? (int)f->groups : 1, size = (int)f->E / G;
    for (int e = 0; e < f->E; e++)
        v[e] = (f->after ? logits[e] : score_of(f, logits, e)) + (f->bias ? bias[e] : 0);
    for (int g = 0; g < G; g++)
        group[g] = group_of(f, v + g * size, size);
    for (int g = 0; g < G; g++)
        for (int i = 0; G > 1 && place_of(group, G, g) >= f->limit && i < size; i++)
            v[g * size + i] = -1e30;
    for (int e = 0; e < f->E; e++) {
        const int at = place_of(v, (int)f->E, e);
        if (at < f->k)
            chosen[at] = e;
    }
}

static void weigh(const form *f, const double *logits, const int *chosen, double *w)
{
    double sum = 0;
    for (int j = 0; j < f->k; j++) {
        w[j] = f->after ? exp(logits[chosen[j]]) : score_of(f, logits, chosen[j]);
        sum += w[j];
    }
    for (int j = 0; j < f->k; j++)
        w[j] *= f->scale / (f->after || f->norm ? sum : 1);
}

/* The derivative of the sum over j of c[j] w[j]. */
static void differentiate(const form *f, double *logits, const int *chosen, const double *c,
                          double *d)
{
    const double h = 1e-5;
    for (int e = 0; e < f->E; e++) {
        double w[2][MOST_K];
        const double at = logits[e];
        d[e] = 0;
        for (int side = 0; side < 2; side++) {
            logits[e] = side ? at + h : at - h;
            weigh(f, logits, chosen, w[side]);
        }
        logits[e] = at;
        for (int j = 0; j < f->k; j++)
            d[e] += c[j] * (w[1][j] - w[0][j]) / (2 * h);
    }
}

typedef struct routed { /* values of the graph */
    double x[T * D], weight[MOST_E * D], bias[MOST_E], c[T * MOST_K];
} routed;

static void read_all(const eval *e, const tt_value *v, double *to)
{
    const tt_tensor *t = &e->tensors[v->id];
    for (int64_t i = 0; i < tt_tensor_numel(t); i++)
        to[i] = get(t, i);
}

static void check_token(const form *f, const eval *e, const routed *v, const moe_routing *r, int t,
                        const tt_value *dx, double *dw)
{
    double logits[MOST_E] = {0}, w[MOST_K], d[MOST_E], at[D] = {0};
    int chosen[MOST_K] = {0};
    for (int i = 0; i < f->E; i++)
        for (int j = 0; j < D; j++)
            logits[i] += v->x[t * D + j] * v->weight[i * D + j];
    choose(f, logits, v->bias, chosen);
    weigh(f, logits, chosen, w);
    for (int j = 0; j < f->k; j++) {
        assert_int_equal((int)get(&e->tensors[r->assign->id], t * f->k + j), chosen[j]);
        assert_true(fabs(get(&e->tensors[r->weights->id], t * f->k + j) - w[j]) < 2e-6 * f->scale);
    }
    differentiate(f, logits, chosen, v->c + t * f->k, d);
    for (int i = 0; i < f->E; i++)
        for (int j = 0; j < D; j++) {
            at[j] += d[i] * v->weight[i * D + j];
            dw[i * D + j] += d[i] * v->x[t * D + j];
        }
    for (int j = 0; j < D; j++)
        assert_true(fabs(get(&e->tensors[dx->id], t * D + j) - at[j]) < 2e-5 * f->scale);
}

/* The router's weight and its bias, which moe_route() makes, become leaves with random values. */
static tt_value *made_leaf(eval *e, const tt_op_def *op, double most)
{
    for (size_t i = e->g->nodes.n; i-- > 0;) {
        const tt_node *n = e->g->nodes.items[i];
        if (n->op != op)
            continue;
        e->leaves[e->n_leaves++] = (leaf){.v = n->out[0], .lo = -most, .hi = most};
        return n->out[0];
    }
    return NULL;
}

static void check_form(const form *f)
{
    static const moe_init init;
    const moe_config config = {.experts = f->E,
                               .top_k = f->k,
                               .score = f->score,
                               .softmax_after_top_k = f->after,
                               .norm_topk_prob = f->norm,
                               .route_scale = f->scale,
                               .groups = f->groups,
                               .group_limit = f->limit,
                               .group_score = f->group_score,
                               .choice_bias = f->bias};
    eval e;
    routed v = {0};
    double dw[MOST_E * D] = {0};
    eval_init(&e, backend, false);
    tt_value *x = leaf_of(&e, TT_F32, -1, 1, 2, DIMS(N(T), N(D))), *grads[24];
    tt_value *c = leaf_of(&e, TT_F32, -1, 1, 2, DIMS(N(T), N(f->k)));
    moe_routing r = moe_route(e.b, &config, &moe_names_qwen, &init, x);
    tt_value *weight = made_leaf(&e, &tt_op_param, 2);
    tt_value *bias = f->bias ? made_leaf(&e, &tt_op_state, 0.5) : NULL;
    eval_backward(&e, &r.weights, &c, 1, grads);
    eval_prepare(&e);
    eval_run(&e, e.g->nodes.n);
    read_all(&e, x, v.x);
    read_all(&e, c, v.c);
    read_all(&e, weight, v.weight);
    if (bias)
        read_all(&e, bias, v.bias);
    for (int t = 0; t < T; t++)
        check_token(f, &e, &v, &r, t, grads[0], dw);
    for (int i = 0; i < f->E * D; i++)
        assert_true(fabs(get(&e.tensors[grads[2]->id], i) - dw[i]) < 1e-4 * f->scale);
    eval_release(&e);
}

/* Scores, normalised or not, scaled, with a bias and groups; odd numbers of experts, k = E, one choice. */
static void test_router_forms_equal_loops(void **state)
{
    (void)state;
    for (int score = MOE_SOFTMAX; score <= MOE_SQRT_SOFTPLUS; score++)
        for (int bits = 0; bits < 8; bits++) {
            const bool norm = bits & 1, bias = bits & 2, groups = bits & 4;
            const double scale = norm ? 2.5 : 1;
            const form odd = {7, 3, score, false, norm, bias, scale, 1, 1, 0};
            const form grouped = {12, 4, score, false, norm, bias, scale, 4, 2, (bits >> 1) & 1};
            const form all = {5, 5, score, false, norm, bias, scale, 0, 0, 0};
            const form one = {6, 1, score, false, norm, bias, scale, 3, 1, MOE_GROUP_TOP2};
            check_form(groups ? &grouped : &odd);
            check_form(groups ? &one : &all);
        }
}

static void test_router_of_softmax_after_the_choice_equals_loops(void **state)
{
    static const form all[] = {
        {7,  3,  MOE_SOFTMAX, true, false, false, 1,   0, 0, 0             },
        {7,  3,  MOE_SOFTMAX, true, true,  true,  1.5, 0, 0, 0             },
        {12, 4,  MOE_SOFTMAX, true, false, true,  1,   4, 2, MOE_GROUP_MAX },
        {12, 6,  MOE_SOFTMAX, true, false, false, 1,   3, 2, MOE_GROUP_TOP2},
        {12, 12, MOE_SOFTMAX, true, false, false, 1,   1, 1, 0             },
    };
    (void)state;
    for (size_t i = 0; i < TT_COUNT(all); i++)
        check_form(&all[i]);
}

int main(void)
{
    backend = backend_load("reference");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_router_forms_equal_loops),
        cmocka_unit_test(test_router_of_softmax_after_the_choice_equals_loops),
    };
    return cmocka_run_group_tests_name("router", tests, NULL, NULL);
}
