/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/sim.h"
#include <math.h>

#include "graph/llama.c"
#include "graph/sim.c"

/* The models that autodiff refuses, and its messages; frozen and tied parameters, stop_gradient,
 * custom derivatives, loss terms. */

#define D_ TT_DIM(10, "embed")
#define V_ TT_DIM(19, "vocab")

static tt_value *table(tt_builder *b, const char *name, int frozen)
{
    const tt_dim dims[] = {V_, D_};
    const tt_param_opts o = {.frozen = frozen};
    return tt_param(b, name, dims, 2, &o);
}

static void finish_model(tt_builder *b, tt_value *x)
{
    tt_value *z = tt_linear_w(b, x, table(b, "head", 0));
    tt_output(b, "logits", z);
    tt_output(b, "loss", tt_cross_entropy(b, z, tt_input(b, "labels")));
}

static const char *error_of(void (*describe)(tt_builder *, const void *), char text[1020])
{
    const job j = {.mesh = mesh_named("1"), .tokens = 12, .describe = describe};
    built x;
    tt_error err = {0};
    const char *bad = build_job(&j, "autodiff", NULL, NULL, &x, &err);
    assert_non_null(bad);
    assert_string_equal(bad, "autodiff");
    strcpy(text, err.text);
    assert_null(strchr(text, '\n'));
    built_free(&x);
    return text;
}

static void describe_no_vjp(tt_builder *b, const void *user)
{
    (void)user;
    tt_value *x = tt_embedding_w(b, tt_input(b, "ids"), table(b, "embed", 0));
    tt_value *dx = NULL, *ins[2] = {x, x};
    tt_scope(b, "odd");
    tt_op(b, "gelu_bwd", ins, 2, NULL, &dx, 1); /* it has neither a vjp nor a decomposition */
    tt_scope_end(b);
    finish_model(b, dx);
}

static void test_op_without_derivative_is_named_with_a_parameter(void **state)
{
    char text[1020];
    (void)state;
    error_of(describe_no_vjp, text);
    assert_non_null(strstr(text, "gelu_bwd"));
    assert_non_null(strstr(text, "odd"));
    assert_non_null(strstr(text, "embed"));
}

static void describe_unused(tt_builder *b, const void *user)
{
    (void)user;
    tt_value *x = tt_embedding_w(b, tt_input(b, "ids"), table(b, "embed", 0));
    tt_output(b, "aside", tt_linear_w(b, x, table(b, "aside", 0)));
    finish_model(b, x);
}

static void test_parameter_without_influence_is_named(void **state)
{
    char text[1020];
    (void)state;
    error_of(describe_unused, text);
    assert_non_null(strstr(text, "aside"));
    assert_non_null(strstr(text, "freeze"));
}

static void describe_stopped(tt_builder *b, const void *user)
{
    (void)user;
    tt_value *x = tt_embedding_w(b, tt_input(b, "ids"), table(b, "embed", 0));
    finish_model(b, tt_stop_gradient(b, x));
}

static void test_parameter_behind_stop_gradient_is_named(void **state)
{
    char text[1020];
    (void)state;
    error_of(describe_stopped, text);
    assert_non_null(strstr(text, "embed"));
}

static const double *gradient(const job *j, const char *name, built *x, sim **s, int64_t *n)
{
    tt_error err = {0};
    const char *bad = build_job(j, NULL, NULL, NULL, x, &err);
    if (bad)
        fail_msg("%s: %s", bad, err.text);
    *s = sim_run(x->g, NULL);
    sim_require(*s);
    return sim_param(*s, name, "grad", n);
}

static void describe_frozen(tt_builder *b, const void *user)
{
    finish_model(b, tt_embedding_w(b, tt_input(b, "ids"), table(b, "embed", *(const int *)user)));
}

static void test_frozen_parameter_has_no_gradient_and_stays(void **state)
{
    (void)state;
    int frozen = 1;
    const job j = {.mesh = mesh_named("fsdp2 tp2"),
                   .tokens = 14,
                   .describe = describe_frozen,
                   .user = &frozen,
                   .optimizer = "adamw"};
    built x;
    sim *s;
    gradient(&j, "head", &x, &s, NULL);
    int64_t n;
    const double *now = sim_param(s, "embed", NULL, &n);
    double was[190];
    const tt_param_info *p = x.g->params.items[0];
    assert_int_equal(n, 190);
    assert_null(p->stack->grad);
    sim_feed(x.g, "embed", &p->type, 0, was);
    assert_memory_equal(now, was, sizeof was);
    sim_free(s);
    built_free(&x);
}

/* y = x^3 with the derivative 1: a straight-through estimator. */
static tt_value *cube(tt_builder *b, tt_value *const *xs, int n, void *user)
{
    (void)n, (void)user;
    return tt_mul(b, xs[0], tt_mul(b, xs[0], xs[0]));
}

static void straight(tt_builder *b, tt_value *const *xs, int n, tt_value *y, tt_value *dy,
                     tt_value **dxs, void *user)
{
    (void)xs, (void)n, (void)y;
    dxs[0] = tt_scale(b, dy, *(const double *)user);
}

static double slope = 1;

static void describe_custom(tt_builder *b, const void *user)
{
    (void)user;
    tt_value *x = tt_embedding_w(b, tt_input(b, "ids"), table(b, "embed", 0));
    finish_model(b, tt_custom_vjp(b, &x, 1, cube, straight, &slope));
}

static void check_replaced(void (*describe)(tt_builder *, const void *))
{
    static const char *const meshes[] = {"1", "fsdp2 tp2", "tp2"};
    for (size_t m = 0; m < TT_COUNT(meshes); m++) {
        double first[190];
        for (int twice = 0; twice < 2; twice++) {
            const job j = {.mesh = mesh_named(meshes[m]), .tokens = 14, .describe = describe};
            built x;
            sim *s;
            int64_t n;
            slope = twice ? 2 : 1;
            const double *g = gradient(&j, "embed", &x, &s, &n);
            double sum = 0;
            for (int64_t i = 0; i < n; i++) {
                if (twice)
                    assert_true(fabs(g[i] - 2 * first[i]) <= 1e-12);
                first[i] = g[i];
                sum += fabs(g[i]);
            }
            assert_true(sum > 1e-3);
            sim_free(s);
            built_free(&x);
        }
    }
}

/* The function is one op. Where tensor parallelism shards the vocabulary, this op is expanded:
 * neither the op nor the nodes of its expansion may be differentiated by their own rules as
 * well. */
static tt_value *losses(tt_builder *b, tt_value *const *xs, int n, void *user)
{
    (void)n, (void)user;
    return tt_cross_entropy(b, xs[0], tt_input(b, "labels"));
}

static void towards_zero(tt_builder *b, tt_value *const *xs, int n, tt_value *y, tt_value *dy,
                         tt_value **dxs, void *user)
{
    (void)n, (void)y, (void)dy;
    dxs[0] = tt_scale(b, xs[0], *(const double *)user);
}

static void describe_custom_expanded(tt_builder *b, const void *user)
{
    (void)user;
    tt_value *x = tt_embedding_w(b, tt_input(b, "ids"), table(b, "embed", 0));
    tt_value *z = tt_linear_w(b, x, table(b, "head", 0));
    tt_output(b, "logits", z);
    tt_output(b, "loss", tt_custom_vjp(b, &z, 1, losses, towards_zero, &slope));
}

static void test_custom_derivative_replaces_the_inner_ones(void **state)
{
    (void)state;
    check_replaced(describe_custom);
    check_replaced(describe_custom_expanded);
}

/* The function's first op reads a parameter itself: fake quantisation of a weight. */
static void describe_custom_param(tt_builder *b, const void *user)
{
    (void)user;
    tt_value *w = table(b, "embed", 0);
    finish_model(
        b, tt_embedding_w(b, tt_input(b, "ids"), tt_custom_vjp(b, &w, 1, cube, straight, &slope)));
}

static void test_custom_derivative_of_a_parameter_reaches_it(void **state)
{
    static const char *const meshes[] = {"1", "fsdp2 tp2"};
    (void)state;
    for (size_t m = 0; m < TT_COUNT(meshes); m++) {
        const job j = {
            .mesh = mesh_named(meshes[m]), .tokens = 14, .describe = describe_custom_param};
        built x;
        sim *s;
        int64_t n;
        double sum = 0;
        slope = 1;
        const double *g = gradient(&j, "embed", &x, &s, &n);
        for (int64_t i = 0; i < n; i++)
            sum += fabs(g[i]);
        assert_true(sum > 1e-3);
        sim_free(s);
        built_free(&x);
    }
}

/* The first value that a custom function reads is stored as the ops inside need it. An op
 * outside that needs it in the same placement reads the same copy, and the gradient of that copy
 * must not be lost. */
static tt_value *project(tt_builder *b, tt_value *const *xs, int n, void *user)
{
    (void)n, (void)user;
    return tt_linear_w(b, xs[0], table(b, "inside", 1));
}

static void no_gradient(tt_builder *b, tt_value *const *xs, int n, tt_value *y, tt_value *dy,
                        tt_value **dxs, void *user)
{
    (void)b, (void)xs, (void)n, (void)y, (void)dy, (void)dxs, (void)user;
}

static void describe_shared(tt_builder *b, const void *user)
{
    (void)user;
    tt_value *x = tt_embedding_w(b, tt_input(b, "ids"), table(b, "embed", 0));
    tt_value *inside = tt_custom_vjp(b, &x, 1, project, no_gradient, NULL);
    tt_value *z = tt_add(b, inside, tt_linear_w(b, x, table(b, "head", 0)));
    tt_output(b, "logits", z);
    tt_output(b, "loss", tt_cross_entropy(b, z, tt_input(b, "labels")));
}

static void test_value_read_inside_and_outside_a_custom_function_keeps_its_gradient(void **state)
{
    static const char *const meshes[] = {"1", "tp2", "fsdp2 tp2"};
    double alone[190];
    (void)state;
    for (size_t m = 0; m < TT_COUNT(meshes); m++) {
        const job j = {.mesh = mesh_named(meshes[m]), .tokens = 14, .describe = describe_shared};
        built x;
        sim *s;
        int64_t n;
        const double *g = gradient(&j, "embed", &x, &s, &n);
        assert_int_equal(n, 190);
        for (int64_t i = 0; m && i < n; i++)
            assert_true(fabs(g[i] - alone[i]) <= 1e-9);
        memcpy(alone, g, sizeof alone);
        sim_free(s);
        built_free(&x);
    }
}

/* An auxiliary loss made by the builder: weight * mean of v over counted tokens, and a scalar. */
static void describe_terms(tt_builder *b, const void *user)
{
    const double w = *(const double *)user;
    tt_value *x = tt_embedding_w(b, tt_input(b, "ids"), table(b, "embed", 0));
    if (w != 0) {
        tt_loss_term(b, "tokens", tt_sum(b, tt_mul(b, x, x), 1, 0), w);
        tt_loss_term(b, "scalar", tt_scale(b, tt_sum_squares(b, x), 1.0 / 28), w);
    }
    finish_model(b, x);
}

static void test_loss_terms_add_their_gradients(void **state)
{
    (void)state;
    static const char *const meshes[] = {"1", "fsdp2 tp2", "hsdp2x2", "tp2", "fsdp2 cp2"};
    double whole[190];
    for (size_t m = 0; m < TT_COUNT(meshes); m++) {
        double weight[2] = {0, 0.5};
        double plain[190];
        for (int k = 0; k < 2; k++) {
            const job j = {.mesh = mesh_named(meshes[m]),
                           .tokens = 28,
                           .describe = describe_terms,
                           .user = &weight[k]};
            built x;
            sim *s;
            int64_t n;
            const double *g = gradient(&j, "embed", &x, &s, &n);
            double e[190], count[19] = {0}, ids[64];
            tt_type t = {.dtype = TT_I32, .n_dims = 1};
            t.dims[0].size = 28;
            sim_feed(x.g, "embed", &x.g->params.items[0]->type, 0, e);
            sim_feed(x.g, "ids", &t, 0, ids);
            for (int i = 0; i < 28; i++)
                count[(int)ids[i]]++;
            for (int64_t i = 0; i < n; i++) /* both terms: w/28 Σ_t 2x */
                if (k && fabs(g[i] - plain[i] - 2 * 0.5 / 28 * 2 * e[i] * count[i / 10]) > 1e-9)
                    fail_msg("%s: element %d: %g", meshes[m], (int)i, g[i] - plain[i]);
            memcpy(plain, g, sizeof plain);
            if (m == 0)
                memcpy(whole, g, sizeof whole);
            sim_free(s);
            built_free(&x);
        }
        for (int i = 0; i < 190; i++)
            assert_true(fabs(plain[i] - whole[i]) < 1e-9 || data_ranks(mesh_named(meshes[m])) > 1);
    }
}

/* Who reads the table: the first stage and the head; the last stage and the head; or the first stage twice, and a head of its own. */
enum { FIRST, LAST, FIRST_TWICE };

static void describe_tied(tt_builder *b, const void *user)
{
    const int by = *(const int *)user;
    const bool last = by == LAST;
    tt_value *w = table(b, "embed", 0), *other = by == FIRST ? w : table(b, "other", 0),
             *head = by == FIRST_TWICE ? other : w;
    tt_block(b, "first");
    tt_value *x = tt_embedding_w(b, tt_input(b, "ids"), last ? other : w);
    if (by == FIRST_TWICE)
        x = tt_add(b, x, tt_embedding_w(b, tt_input(b, "labels"), w));
    tt_block_end(b);
    tt_block(b, "second");
    if (last)
        x = tt_add(b, x, tt_embedding_w(b, tt_input(b, "ids"), w));
    tt_block_end(b);
    tt_value *z = tt_linear_w(b, x, head);
    tt_output(b, "logits", z);
    tt_output(b, "loss", tt_cross_entropy(b, z, tt_input(b, "labels")));
}

static int writers(const tt_graph *g, const char *param, bool *stores, bool *adds)
{
    int n = 0;
    for (size_t i = 0; i < g->nodes.n; i++) {
        const tt_node *e = g->nodes.items[i];
        const tt_state *s = e->accumulate_into           ? e->accumulate_into
                            : e->op == &tt_op_accumulate ? e->state
                                                         : NULL;
        if (!s || !s->stack || strcmp(s->stack->members[e->accumulate_index]->name, param))
            continue;
        *(e->accumulates ? adds : stores) = true;
        n++;
    }
    return n;
}

/* If nothing is reduced, each cotangent is added to the accumulator directly, and no second
 * table exists. If something is reduced, cotangents are summed first and reduced once. In a
 * pipeline, the cotangents of the forward's chunk loop and of the backward are one sum;
 * otherwise the bits would depend on the schedule. */
static void test_tied_gradients_are_added_in_place(void **state)
{
    static const struct {
        const char *mesh;
        int stages, by, writers;
    } cases[] = {
        {"1",     1, FIRST,       2},
        {"tp2",   1, FIRST,       2},
        {"fsdp2", 1, FIRST,       1},
        {"1",     2, LAST,        1},
        {"1",     1, LAST,        2},
        {"1",     1, FIRST_TWICE, 2},
        {"1",     2, FIRST_TWICE, 2},
        {"fsdp2", 2, FIRST_TWICE, 1},
    };
    (void)state;
    for (size_t c = 0; c < TT_COUNT(cases); c++) {
        job j = {.mesh = mesh_named(cases[c].mesh),
                 .describe = describe_tied,
                 .user = &cases[c].by,
                 .n_stages = cases[c].stages,
                 .chunk_bytes = 1,
                 .can_accumulate = true};
        j.tokens = 300 * data_ranks(j.mesh);
        built x;
        sim *s;
        gradient(&j, "embed", &x, &s, NULL);
        bool stores = false, adds = false;
        assert_int_equal(x.g->chunk_rows, 256);
        assert_int_equal(writers(x.g, "embed", &stores, &adds), cases[c].writers);
        assert_true(stores);
        assert_int_equal(adds, cases[c].writers > 1);
        for (size_t i = 0; cases[c].writers > 1 && i < x.g->nodes.n; i++) {
            const tt_node *e = x.g->nodes.items[i];
            assert_false(e->when->region == TT_BACKWARD && !strcmp(e->op->name, "add") &&
                         e->out[0]->type.dims[0].size == 19);
        }
        sim_free(s);
        built_free(&x);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_op_without_derivative_is_named_with_a_parameter),
        cmocka_unit_test(test_parameter_without_influence_is_named),
        cmocka_unit_test(test_parameter_behind_stop_gradient_is_named),
        cmocka_unit_test(test_frozen_parameter_has_no_gradient_and_stays),
        cmocka_unit_test(test_custom_derivative_replaces_the_inner_ones),
        cmocka_unit_test(test_custom_derivative_of_a_parameter_reaches_it),
        cmocka_unit_test(test_value_read_inside_and_outside_a_custom_function_keeps_its_gradient),
        cmocka_unit_test(test_loss_terms_add_their_gradients),
        cmocka_unit_test(test_tied_gradients_are_added_in_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
