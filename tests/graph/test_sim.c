/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/sim.h"
#include <math.h>

#include "graph/llama.c"
#include "graph/sim.c"
#include "tier.h"

/* After every pass, on every mesh: each node's shards equal its global value; the results of a step
 * (loss, norm, gradients, parameters) equal one rank's; and one rank's gradients equal finite
 * differences. */

#define TOLERANCE 1e-9 /* f64 values: about 1e6 roundings */

typedef struct results {
    tt_arena *arena;
    const job *j;
    const char *context;
    double worst;
    int graphs, nodes;
    /* one rank's, after the last pass */
    const built *ref;
    const sim *ref_sim;
} results;

static void compare(results *r, const char *what, const double *a, const double *b, int64_t n)
{
    double scale = 1e-3, worst = 0;
    for (int64_t i = 0; i < n; i++) {
        const double d = fabs(a[i] - b[i]);
        if (fabs(b[i]) > scale)
            scale = fabs(b[i]);
        if (!(d <= worst))
            worst = d;
    }
    if (!(worst / scale <= TOLERANCE))
        fail_msg("%s: %s differs by %.3g", r->context, what, worst / scale);
    if (worst / scale > r->worst)
        r->worst = worst / scale;
}

static void compare_states(results *r, const built *x, const sim *s, bool updated)
{
    for (size_t i = 0; i < x->g->params.n; i++) {
        const char *name = x->g->params.items[i]->name;
        char what[200];
        int64_t n;
        snprintf(what, sizeof what, "gradient of %s", name);
        const double *a = sim_param(s, name, "grad", &n);
        compare(r, what, a, sim_param(r->ref_sim, name, "grad", NULL), n);
        if (!updated)
            continue;
        snprintf(what, sizeof what, "updated %s", name);
        a = sim_param(s, name, NULL, &n);
        compare(r, what, a, sim_param(r->ref_sim, name, NULL, NULL), n);
    }
    int64_t n;
    if (updated) {
        const double *a = sim_state(s, TT_METRIC_NORM, &n);
        compare(r, "norm", a, sim_state(r->ref_sim, TT_METRIC_NORM, NULL), n);
    }
    if (!r->j->metrics)
        return;
    const double *a = sim_state(s, TT_METRIC_LOSS, &n);
    compare(r, "loss", a, sim_state(r->ref_sim, TT_METRIC_LOSS, NULL), n);
    a = sim_state(s, TT_METRIC_LOSS_MAX, &n);
    compare(r, "largest loss", a, sim_state(r->ref_sim, TT_METRIC_LOSS_MAX, NULL), n);
}

static void compare_outputs(results *r, const built *x, const sim *s)
{
    sim *whole = sim_run(x->described, NULL);
    sim_require(whole);
    for (size_t i = 0; i < tt_map_size(x->described->outputs); i++) {
        const char *name = tt_map_key(x->described->outputs, i);
        int64_t n;
        const double *a = sim_value(s, tt_map_get(x->g->outputs, name), &n);
        compare(r, name, a, sim_value(whole, tt_map_value(x->described->outputs, i), NULL), n);
    }
    sim_free(whole);
}

static void check_pass(void *user, const char *pass, built *x)
{
    results *r = user;
    if (!strcmp(pass, "describe") || (!strcmp(pass, "metrics") && !r->j->metrics) ||
        (!strcmp(pass, "async_tp") && !r->j->async_tp))
        return;
    if (!strcmp(pass, "async_tp")) {
        assert_true(x->g->async_tp.gathers >= 4 * r->j->c.L && !x->g->async_tp.whole);
        assert_true(x->g->async_tp.reductions >= 4 * r->j->c.L);
    }
    sim *s = sim_run(x->g, NULL);
    if (s->failure[0])
        fail_msg("%s, after %s: %s", r->context, pass, s->failure);
    r->graphs++;
    r->nodes += s->n_nodes;
    if (s->worst > r->worst)
        r->worst = s->worst;
    if (!strcmp(pass, "place"))
        compare_outputs(r, x, s);
    const bool backward = strcmp(pass, "place") && strcmp(pass, "metrics");
    if (backward && r->ref_sim)
        compare_states(r, x, s, strcmp(pass, "autodiff") != 0);
    sim_free(s);
}

static void build_or_fail(const job *j, const char *last, after_pass after, void *user, built *x,
                          const char *context)
{
    tt_error err = {0};
    const char *bad = build_job(j, last, after, user, x, &err);
    if (bad)
        fail_msg("%s: %s: %s", context, bad, err.text);
}

static void check_job(const job *j, results *r)
{
    char context[200];
    job one = *j;
    built ref, x;
    one.mesh = mesh_named("1");
    one.n_stages = 1;
    if (!one.lines)
        one.lines = data_ranks(j->mesh);
    snprintf(context, sizeof context, "%s, %lld tokens%s%s%s%s, %d stages", j->mesh->name,
             (long long)j->tokens, j->no_sp ? " no SP" : "", j->c.tied ? " tied" : "",
             j->c.bias ? " bias" : "", j->c.qk_norm ? " qk_norm" : "", j->n_stages);
    r->j = j;
    r->context = context;
    build_or_fail(&one, "update", NULL, NULL, &ref, context);
    sim *s = sim_run(ref.g, NULL);
    sim_require(s);
    r->ref_sim = s;
    build_or_fail(j, NULL, check_pass, r, &x, context);
    r->ref_sim = NULL;
    sim_free(s);
    built_free(&ref);
    built_free(&x);
}

static void report(const char *what, const results *r)
{
    print_message("%s: %d graphs, %d nodes, worst %.1e\n", what, r->graphs, r->nodes, r->worst);
}

/* ---- the matrix of the specification ---- */

static void matrix(const char *only_tp, int variant)
{
    static const llama variants[] = {
        LLAMA_DEFAULT,
        {19, 10, 6, 2, 4, 14, 2, true,  false, false},
        {19, 10, 6, 2, 4, 14, 2, false, true,  true }
    };
    results r = {0};
    for (size_t m = 0; m < TT_COUNT(mesh_cases); m++) {
        const mesh_case *mesh = &mesh_cases[m];
        const bool tp = strstr(mesh->name, "tp") != NULL;
        if (only_tp && !tp)
            continue;
        const int lines = data_ranks(mesh);
        const int64_t tokens[] = {12, 7 * lines, 13 * lines};
        for (int t = 0; t < 3; t++) {
            if (tokens[t] % lines || (t == 2 && variant) || (t && only_tp && variant) ||
                !in_tier(m, (size_t)(t + variant), 2))
                continue;
            job j = {.c = variants[variant],
                     .mesh = mesh,
                     .tokens = tokens[t],
                     .no_sp = only_tp != NULL,
                     .metrics = true,
                     .optimizer = variant ? "adamw" : NULL,
                     .max_norm = 0.1,
                     .fuse = true,
                     .can_accumulate = true};
            if (mesh->tp2x2)
                j.c.H = 8;
            check_job(&j, &r);
        }
    }
    report("matrix", &r);
}

static void test_matrix_plain(void **state)
{
    (void)state;
    matrix(NULL, 0);
}

static void test_matrix_tied(void **state)
{
    (void)state;
    matrix(NULL, 1);
}

static void test_matrix_bias_head_norm(void **state)
{
    (void)state;
    matrix(NULL, 2);
}

static void test_matrix_without_sequence_parallel(void **state)
{
    (void)state;
    for (int v = 0; v < 3; v++)
        matrix("tp", v);
}

/* Sequences that cp cuts, with every way in which attention reads the other ranks' tokens. */
static void contexts(tt_context context, const char *what)
{
    static const char *const meshes[] = {"cp2",           "cp3",         "fsdp2 cp2",
                                         "fsdp2 tp2 cp2", "cp2 tp4=2x2", "cp2x2"};
    results r = {0};
    for (size_t m = 0; m < TT_COUNT(meshes); m++)
        for (int v = 0; v < 4; v++) {
            if (!in_tier(m, (size_t)v, 2))
                continue;
            job j = {.c = LLAMA_DEFAULT,
                     .mesh = mesh_named(meshes[m]),
                     .context = context,
                     .metrics = true,
                     .optimizer = v ? "adamw" : NULL,
                     .max_norm = 0.1,
                     .recompute = {.mode = v == 3 ? TT_RECOMPUTE_FULL : TT_RECOMPUTE_NONE},
                     .fuse = true,
                     .can_accumulate = true,
                     .n_stages = 1 + v / 2};
            j.c.H = strstr(meshes[m], "tp4") ? 16 : strstr(meshes[m], "cp3") ? 6 : 8;
            j.tokens = (v % 2 ? 7 : 13) * data_ranks(j.mesh);
            check_job(&j, &r);
            if (v != 1)
                continue;
            j.lines = 3 * data_ranks(j.mesh); /* which cp cuts somewhere inside */
            j.tokens *= 3;
            check_job(&j, &r);
        }
    report(what, &r);
}

static void test_heads_cut_instead_of_tokens(void **state)
{
    (void)state;
    contexts(TT_CONTEXT_HEADS, "ulysses");
}

static void test_keys_go_round_a_ring(void **state)
{
    (void)state;
    contexts(TT_CONTEXT_RING, "ring");
}

/* Async TP: gathers and reduce-scatters of rows in pieces, together with their products. */
static void test_async_tp_equals_one_rank(void **state)
{
    static const char *const meshes[] = {
        "tp2",           "tp3",         "fsdp2 tp2", "tp4=2x2",
        "fsdp2 tp2 cp2", "cp2 tp4=2x2", "fsdp3 tp2", "hsdp2 fsdp2 tp2 cp2"};
    static const int64_t lengths[] = {13, 7, 2, 3};
    results r = {0};
    (void)state;
    for (size_t m = 0; m < TT_COUNT(meshes); m++)
        for (int v = 0; v < 4; v++) {
            if (!in_tier(m, (size_t)v, 2))
                continue;
            job j = {
                .c = {19, 10, 6, 2, 4, 14, 2, v == 1, v == 2, v == 2},
                .mesh = mesh_named(meshes[m]),
                .metrics = true,
                .optimizer = v ? "adamw" : NULL,
                .max_norm = 0.1,
                .recompute = {.mode = v == 3 ? TT_RECOMPUTE_FULL : TT_RECOMPUTE_NONE},
                .fuse = v != 1,
                .can_accumulate = true,
                .n_stages = 1 + v / 2,
                .async_tp = true
            };
            j.tokens = lengths[v] * data_ranks(j.mesh);
            j.c.H = strstr(meshes[m], "tp4") ? 8 : 6;
            check_job(&j, &r);
        }
    report("async_tp", &r);
}

static void test_stages_with_transfers_equal_one_rank(void **state)
{
    static const char *const meshes[] = {"1", "fsdp2", "tp2", "fsdp2 tp2 cp2"};
    results r = {0};
    (void)state;
    for (size_t m = 0; m < TT_COUNT(meshes); m++)
        for (int stages = 2; stages <= 3; stages++)
            for (int tied = 0; tied < 2; tied++) {
                job j = {.c = LLAMA_DEFAULT,
                         .mesh = mesh_named(meshes[m]),
                         .n_stages = stages,
                         .metrics = true,
                         .optimizer = "adamw",
                         .max_norm = 0.1,
                         .fuse = true};
                j.tokens = 7 * data_ranks(j.mesh);
                j.c.L = 3;
                j.c.tied = tied;
                check_job(&j, &r);
            }
    report("stages", &r);
}

static void test_micro_batches_are_summed(void **state)
{
    const sim_opts two = {.micro_batches = 2};
    (void)state;
    job j = {.c = LLAMA_DEFAULT,
             .mesh = mesh_named("fsdp2 tp2 cp2"),
             .tokens = 14,
             .metrics = true,
             .optimizer = "sgd"},
        one = j;
    built x, ref;
    one.mesh = mesh_named("1");
    one.lines = 2;
    build_or_fail(&j, NULL, NULL, NULL, &x, "two micro-batches");
    build_or_fail(&one, NULL, NULL, NULL, &ref, "two micro-batches");
    sim *s = sim_run(x.g, &two), *t = sim_run(ref.g, &two);
    sim_require(s);
    sim_require(t);
    results r = {.j = &j, .context = "two micro-batches", .ref_sim = t};
    compare_states(&r, &x, s, true);
    sim_free(s);
    sim_free(t);
    built_free(&x);
    built_free(&ref);
}

/* ---- finite differences on one rank ---- */

static struct {
    const char *param;
    double step;
} nudge;

static double direction(const char *name, int64_t i)
{
    return tt_normal_quantile(tt_rng_uniform(tt_rng_key_make(1, name, 99), (uint64_t)i));
}

static void nudged_feed(const tt_graph *g, const char *name, const tt_type *t, int micro,
                        double *out)
{
    sim_feed(g, name, t, micro, out);
    if (nudge.param && !strcmp(name, nudge.param))
        for (int64_t i = 0; i < tt_type_numel(t); i++)
            out[i] += nudge.step * direction(name, i);
}

static double loss_at(const built *x, const char *param, double step)
{
    const sim_opts o = {.feed = nudged_feed, .unchecked = true};
    nudge.param = param;
    nudge.step = step;
    sim *s = sim_run(x->g, &o);
    nudge.param = NULL;
    sim_require(s);
    const double loss = sim_state(s, TT_METRIC_LOSS, NULL)[0] / (double)x->g->tokens;
    sim_free(s);
    return loss;
}

static void test_gradients_are_finite_differences(void **state)
{
    const double h = 3e-4; /* fourth order: error h^4 = 8e-15 against 1e-16 / h of rounding */
    int n_params = 0;
    (void)state;
    for (int tied = 0; tied < 2; tied++) {
        job j = {
            .c = {19, 10, 6, 2, 4, 14, 2, tied, true, true},
            .mesh = mesh_named("1"),
            .tokens = 12,
            .metrics = true
        };
        built x;
        build_or_fail(&j, "autodiff", NULL, NULL, &x, "finite differences");
        sim *s = sim_run(x.g, NULL);
        sim_require(s);
        for (size_t i = 0; i < x.g->params.n; i++, n_params++) {
            const char *p = x.g->params.items[i]->name;
            int64_t n;
            const double *g = sim_param(s, p, "grad", &n);
            double have = 0;
            for (int64_t k = 0; k < n; k++)
                have += g[k] * direction(p, k);
            const double want = (8 * (loss_at(&x, p, h) - loss_at(&x, p, -h)) -
                                 loss_at(&x, p, 2 * h) + loss_at(&x, p, -2 * h)) /
                                (12 * h);
            if (!(fabs(want - have) <= 1e-7 * fmax(1, fabs(want))))
                fail_msg("%s: gradient %.12g, finite differences %.12g", p, have, want);
        }
        sim_free(s);
        built_free(&x);
    }
    print_message("%d parameters\n", n_params);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gradients_are_finite_differences),
        cmocka_unit_test(test_matrix_plain),
        cmocka_unit_test(test_matrix_tied),
        cmocka_unit_test(test_matrix_bias_head_norm),
        cmocka_unit_test(test_matrix_without_sequence_parallel),
        cmocka_unit_test(test_heads_cut_instead_of_tokens),
        cmocka_unit_test(test_keys_go_round_a_ring),
        cmocka_unit_test(test_async_tp_equals_one_rank),
        cmocka_unit_test(test_stages_with_transfers_equal_one_rank),
        cmocka_unit_test(test_micro_batches_are_summed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
