/* SPDX-License-Identifier: Apache-2.0 */
#include "../../plugins/converters/low.h"
#include "graph/rewrite.h"
#include "graph/sim.h"

#include "graph/llama.c"
#include "graph/sim.c"
#include "tier.h"

/* The pass convert among the other passes, with the products of the recipes in plugins/converters/low.h:
 * on every mesh the shards of every node are its whole value; parameters that are fetched once per step
 * and experts are converted likewise; and in the loop over token chunks stays what runs chunk by chunk. */

typedef struct recipe {
    const char *name;
    tt_low_format format;
    tt_scale_rule rule;
    int64_t along, across, across_w;
} recipe;

static const recipe recipes[] = {
    {"tensorwise", TT_LOW_E4M3, TT_SCALE_F32,      0, 0, 0},
    {"rowwise",    TT_LOW_E4M3, TT_SCALE_POW2,     0, 1, 1},
    {"mxfp8",      TT_LOW_E4M3, TT_SCALE_MX_RCEIL, 4, 1, 1},
    {"blockwise",  TT_LOW_E4M3, TT_SCALE_F32,      5, 1, 5},
    {"nvfp4",      TT_LOW_E2M1, TT_SCALE_NV,       2, 1, 2},
};

static tt_value *low(void *user, int i, tt_builder *b, const tt_product *p,
                     const tt_param_info *param)
{
    const recipe *r = user;
    (void)i;
    (void)param;
    if (p->layer == TT_PRODUCT_ATTENTION)
        return NULL;
    const tt_quantize_opts of_a = low_blocks(p, LOW_A, r->format, r->rule, r->along, r->across);
    const tt_quantize_opts of_b = low_blocks(p, LOW_B, r->format, r->rule, r->along,
                                             low_is_weight(p, LOW_B) ? r->across_w : r->across);
    return low_scaled_product(b, p, p->a, &of_a, p->b, &of_b);
}

static bool not_final(void *user, int i)
{
    (void)user;
    (void)i;
    return false;
}

static const char *name_of(void *user, int i)
{
    (void)user;
    (void)i;
    return "converters[0] (test)";
}

typedef tt_value *(*product_fn)(void *user, int i, tt_builder *b, const tt_product *p,
                                const tt_param_info *param);

static tt_convert_opts one(product_fn product, const void *user)
{
    return (tt_convert_opts){1, product, not_final, name_of, (void *)(uintptr_t)user};
}

static void build_or_fail(const job *j, after_pass after, void *user, built *x, const char *what)
{
    tt_error err = {0};
    const char *bad = build_job(j, NULL, after, user, x, &err);
    if (bad)
        fail_msg("%s: %s: %s", what, bad, err.text);
}

/* ---- meshes ---- */

/* Every float is f64 in the sim, so that no sum's order flips a rounding. */
static void check_pass(void *user, const char *pass, built *x)
{
    if (strcmp(pass, "convert") && strcmp(pass, "lower"))
        return;
    sim *s = sim_run(x->g, &(sim_opts){0});
    if (s->failure[0])
        fail_msg("%s, after %s: %s", (const char *)user, pass, s->failure);
    sim_free(s);
}

static void test_shards_of_converted_products_are_the_whole_on_every_mesh(void **state)
{
    (void)state;
    for (size_t m = 0; m < TT_COUNT(mesh_cases); m++)
        for (size_t i = 0; i < TT_COUNT(recipes); i++) {
            char what[100];
            built x;
            if (!in_tier(m, i, 2))
                continue;
            const tt_convert_opts o = one(low, &recipes[i]);
            const int lines = data_ranks(&mesh_cases[m]);
            const job j = {
                .c = {.V = 19, .D = 10, .H = 12, .K = 2, .hd = 2, .F = 14, .L = 1},
                .mesh = &mesh_cases[m],
                .tokens = (int64_t)lines * 12,
                .metrics = true,
                .convert = &o
            };
            snprintf(what, sizeof what, "%s on %s", recipes[i].name, mesh_cases[m].name);
            build_or_fail(&j, check_pass, what, &x, what);
            built_free(&x);
        }
}

/* ---- parameters that are fetched once per step ---- */

static void test_parameters_fetched_once_per_step_are_converted_likewise(void **state)
{
    static const char *const meshes[] = {"fsdp2", "fsdp2 tp2", "hsdp2x2"};
    /* not compared node by node: 448 over a maximum that is 0, or 1e-17 by rounding, may be infinite */
    const sim_opts so = {.micro_batches = 2, .unchecked = true};
    (void)state;
    for (size_t m = 0; m < TT_COUNT(meshes); m++)
        for (size_t i = 0; i < TT_COUNT(recipes); i++) {
            const tt_convert_opts o = one(low, &recipes[i]);
            job j = {.c = LLAMA_DEFAULT, .mesh = mesh_named(meshes[m]), .convert = &o};
            built x, y;
            int64_t n = 0, n2 = 0;
            int gathered = 0;
            j.tokens = 12 * data_ranks(j.mesh);
            build_or_fail(&j, NULL, NULL, &x, meshes[m]);
            j.hoist = true;
            build_or_fail(&j, NULL, NULL, &y, meshes[m]);
            sim *s = sim_run(x.g, &so), *t = sim_run(y.g, &so);
            if (s->failure[0] || t->failure[0])
                fail_msg("%s on %s: %s, hoisted: %s", recipes[i].name, meshes[m], s->failure,
                         t->failure);
            for (size_t k = 0; k < y.g->states.n; k++)
                gathered += y.g->states.items[k]->kind == TT_STATE_GATHERED;
            assert_true(gathered > 10);
            for (size_t p = 0; p < x.g->params.n; p++) {
                const char *name = x.g->params.items[p]->name;
                const double *a = sim_param(s, name, NULL, &n), *b = sim_param(t, name, NULL, &n2);
                assert_int_equal(n, n2);
                for (int64_t k = 0; k < n; k++)
                    if (!(fabs(a[k] - b[k]) <= 1e-9 * (1 + fabs(a[k]))))
                        fail_msg("%s on %s: %s[%d] is %.12g, hoisted %.12g", recipes[i].name,
                                 meshes[m], name, (int)k, a[k], b[k]);
            }
            sim_free(s);
            sim_free(t);
            built_free(&x);
            built_free(&y);
        }
}

/* ---- experts ---- */

enum { EXPERTS = 4 };

/* Tokens go to expert id mod E. The experts' dim is that of the label "experts", which the axis ep cuts. */
static void describe_experts(tt_builder *b, const void *user)
{
    const tt_dim V = TT_DIM(19, "vocab"), D = TT_DIM(10, "embed"), F = TT_DIM(14, "ffn");
    const tt_dim E = TT_DIM(EXPERTS, "experts"), up[] = {E, F, D}, down[] = {E, D, F};
    tt_value *ids = tt_input(b, "ids"), *order, *counts;
    (void)user;
    tt_value *x = tt_embedding_w(b, ids, weight(b, "embed", V, D));
    const tt_dim T = tt_value_type(x)->dims[0], slot[] = {T, TT_DIM(1, NULL)};
    tt_value *expert = tt_mod(b, ids, tt_const(b, EXPERTS, TT_I32));
    tt_expert_sort(b, tt_reshape(b, expert, slot, 2), EXPERTS, &order, &counts);
    tt_value *rows = tt_gather(b, x, order);
    rows = tt_tanh(b, tt_grouped_linear(b, rows, tt_param(b, "up", up, 3, NULL), counts));
    rows = tt_grouped_linear(b, rows, tt_param(b, "down", down, 3, NULL), counts);
    x = tt_add(b, x, tt_scatter_add(b, rows, order, T));
    tt_value *z = tt_linear_w(b, x, weight(b, "head", V, D));
    tt_output(b, "logits", z);
    tt_output(b, "loss", tt_cross_entropy(b, z, tt_input(b, "labels")));
}

static void test_experts_on_meshes(void **state)
{
    static const mesh_case meshes[] = {
        {"1",         {{"tp", 1}},                  false},
        {"ep2",       {{"ep", 2}},                  false},
        {"ep4",       {{"ep", 4}},                  false},
        {"fsdp2 ep2", {{"dp_shard", 2}, {"ep", 2}}, false},
        {"ep2 tp2",   {{"ep", 2}, {"tp", 2}},       false},
        {"fsdp2 tp2", {{"dp_shard", 2}, {"tp", 2}}, false},
    };
    (void)state;
    for (size_t m = 0; m < TT_COUNT(meshes); m++)
        for (size_t i = 0; i < TT_COUNT(recipes); i++) {
            char what[100];
            built x;
            const tt_convert_opts o = one(low, &recipes[i]);
            const job j = {.mesh = &meshes[m],
                           .tokens = 12 * data_ranks(&meshes[m]),
                           .metrics = true,
                           .describe = describe_experts,
                           .convert = &o};
            snprintf(what, sizeof what, "experts, %s on %s", recipes[i].name, meshes[m].name);
            build_or_fail(&j, check_pass, what, &x, what);
            built_free(&x);
        }
}

/* ---- attention ---- */

/* With a learned bias by distance, whose gradient comes from another op, or without. */
static void describe_attention(tt_builder *b, const void *user)
{
    const tt_dim V = TT_DIM(19, "vocab"), D = TT_DIM(10, "embed"), H = TT_DIM_UNIT(8, "heads", 4),
                 far[] = {TT_DIM(2, "heads"), TT_DIM(5, NULL)};
    const tt_attention_opts o = {.bias = user ? tt_param(b, "bias", far, 2, NULL) : NULL};
    tt_value *x = tt_embedding_w(b, tt_input(b, "ids"), weight(b, "embed", V, D));
    tt_value *q = tt_linear_w(b, x, weight(b, "wq", H, D)),
             *k = tt_linear_w(b, x, weight(b, "wk", H, D)),
             *v = tt_linear_w(b, x, weight(b, "wv", H, D));
    x = tt_linear_w(b, tt_attention(b, q, k, v, 4, &o), weight(b, "wo", D, H));
    tt_value *z = tt_linear_w(b, x, weight(b, "head", V, D));
    tt_output(b, "logits", z);
    tt_output(b, "loss", tt_cross_entropy(b, z, tt_input(b, "labels")));
}

static tt_value *bounded_dout(void *user, int i, tt_builder *b, const tt_product *p,
                              const tt_param_info *param)
{
    (void)user;
    (void)i;
    (void)param;
    return p->layer == TT_PRODUCT_ATTENTION && p->role == TT_PRODUCT_GRAD_INPUT ? tt_tanh(b, p->a)
                                                                                : NULL;
}

static void test_derivatives_of_attention_read_the_converted_gradient(void **state)
{
    const tt_convert_opts o = one(bounded_dout, NULL);
    (void)state;
    for (int biased = 0; biased < 2; biased++) {
        const job j = {.mesh = mesh_named("1"),
                       .tokens = 12,
                       .describe = describe_attention,
                       .user = biased ? &o : NULL,
                       .convert = &o};
        built x;
        int n_read = 0;
        build_or_fail(&j, NULL, NULL, &x, biased ? "attention with a bias" : "attention");
        for (size_t i = 0; i < x.g->nodes.n; i++) {
            const tt_node *n = x.g->nodes.items[i];
            if (n->op != (biased ? &tt_op_attention_bias_bwd : &tt_op_attention_bwd))
                continue;
            const tt_value *dout = n->in[5];
            while (tt_node_is_cast(dout->node))
                dout = dout->node->in[0];
            assert_string_equal(dout->node->op->name, "tanh");
            n_read++;
        }
        assert_int_equal(n_read, 1);
        built_free(&x);
    }
}

/* ---- the loop over token chunks: of the head's products ---- */

static tt_value *plain(tt_builder *b, const tt_product *p, tt_value *x, tt_value *y)
{
    return low_product(b, p, x, y);
}

/* A scale for each row of x and dy: chunks have the rows of their own. */
static tt_value *rows(void *user, int i, tt_builder *b, const tt_product *p,
                      const tt_param_info *param)
{
    return p->role == TT_PRODUCT_GRAD_WEIGHT ? NULL : low((void *)(uintptr_t)user, i, b, p, param);
}

/* The weight's gradient is a sum over the chunks. What is made of it, here 0.75 of it and then 0.5, is
 * made of the whole sum. */
static tt_value *scaled_sum(void *user, int i, tt_builder *b, const tt_product *p,
                            const tt_param_info *param)
{
    (void)user;
    (void)i;
    (void)param;
    if (p->layer != TT_PRODUCT_LINEAR || p->role != TT_PRODUCT_GRAD_WEIGHT)
        return NULL;
    return tt_scale(b, tt_tanh(b, tt_scale(b, plain(b, p, p->a, p->b), 0.75)), 0.5);
}

/* dy + z - z, where z = dy (c dy'dy): rows that read something made of a sum over all tokens. */
static tt_value *rows_of_scaled_sum(void *user, int i, tt_builder *b, const tt_product *p,
                                    const tt_param_info *param)
{
    const tt_product dw = {.role = TT_PRODUCT_GRAD_WEIGHT};
    (void)user;
    (void)i;
    (void)param;
    if (p->layer != TT_PRODUCT_LINEAR || p->role != TT_PRODUCT_GRAD_INPUT)
        return NULL;
    tt_value *sum = tt_scale(b, plain(b, &dw, p->a, p->a), 0.5);
    tt_value *z = plain(b, p, p->a, sum);
    return plain(b, p, tt_add(b, p->a, tt_sub(b, z, z)), p->b);
}

/* dw + (s - s), where s = z'x is a sum over tokens of rows that read a sum over tokens. */
static tt_value *sum_of_sum(void *user, int i, tt_builder *b, const tt_product *p,
                            const tt_param_info *param)
{
    const tt_product dx = {.role = TT_PRODUCT_GRAD_INPUT};
    (void)user;
    (void)i;
    (void)param;
    if (p->layer != TT_PRODUCT_LINEAR || p->role != TT_PRODUCT_GRAD_WEIGHT)
        return NULL;
    tt_value *z = plain(b, &dx, p->a, plain(b, p, p->a, p->a)), *s = plain(b, p, z, p->b);
    return tt_add(b, plain(b, p, p->a, p->b), tt_sub(b, s, s));
}

static const struct {
    const char *name;
    product_fn product;
    bool loops;
} in_loop[] = {
    {"rows",                   rows,               true },
    {"something of a sum",     scaled_sum,         true },
    {"rows that read a sum",   rows_of_scaled_sum, false},
    {"a sum that reads a sum", sum_of_sum,         false},
};

static void same_states(const built *x, const built *y, const char *what)
{
    const sim_opts o = {.narrow = true, .unchecked = true};
    sim *s = sim_run(x->g, &o), *t = sim_run(y->g, &o);
    if (s->failure[0] || t->failure[0])
        fail_msg("%s: %s, in a loop: %s", what, s->failure, t->failure);
    for (size_t i = 0; i < x->g->states.n; i++)
        for (int r = 0; r < s->mesh->world; r++) {
            const tt_tensor *p = state_local(s, x->g->states.items[i], r),
                            *q = state_local(t, y->g->states.items[i], r);
            assert_int_equal(sim_bytes(p), sim_bytes(q));
            if (memcmp(p->data, q->data, sim_bytes(p)))
                fail_msg("%s: state %s differs", what, x->g->states.items[i]->name);
        }
    sim_free(s);
    sim_free(t);
}

/* No node before the loop's end may read what the loop sums, but nodes that only add to it. */
static void sums_are_read_after_the_loop(const built *x, const char *what)
{
    size_t end = 0;
    for (size_t i = 0; i < x->g->nodes.n; i++)
        if (x->g->nodes.items[i]->when->in_chunk_loop)
            end = i;
    for (size_t i = 0; i <= end; i++) {
        const tt_node *n = x->g->nodes.items[i];
        for (int j = 0; j < n->n_in; j++) {
            const tt_node *from = n->in[j]->node;
            if (from->when->in_chunk_loop && !tt_value_per_token(x->g, n->in[j]) &&
                (from->op == &tt_op_linear_dw || !n->when->in_chunk_loop))
                fail_msg("%s: node %d %s reads the sum %d of the loop", what, n->id, n->op->name,
                         from->id);
        }
    }
}

static void test_what_runs_chunk_by_chunk_stays_in_the_loop(void **state)
{
    static const char *const meshes[] = {"1", "fsdp2 tp2"};
    (void)state;
    for (size_t m = 0; m < TT_COUNT(meshes); m++)
        for (size_t k = 0; k < TT_COUNT(in_loop); k++) {
            char what[100];
            const tt_convert_opts o = one(in_loop[k].product, &recipes[1]);
            job j = {
                .c = {.V = 19, .D = 10, .H = 4, .K = 2, .hd = 4, .F = 14, .L = 1},
                .mesh = mesh_named(meshes[m]),
                .metrics = true,
                .optimizer = "adamw",
                .max_norm = 0.1,
                .fuse = true,
                .can_accumulate = true,
                .convert = &o
            };
            built x, y;
            snprintf(what, sizeof what, "%s on %s", in_loop[k].name, meshes[m]);
            j.tokens = 300 * data_ranks(j.mesh); /* more than the smallest chunk, 256 rows */
            build_or_fail(&j, NULL, NULL, &x, what);
            j.chunk_bytes = 1;
            build_or_fail(&j, NULL, NULL, &y, what);
            if ((y.g->chunk_rows == 256) != in_loop[k].loops ||
                (y.g->unchunked != NULL) == in_loop[k].loops)
                fail_msg("%s: chunks of %d rows, ended by %s", what, (int)y.g->chunk_rows,
                         y.g->unchunked ? y.g->unchunked : "nothing");
            sums_are_read_after_the_loop(&y, what);
            same_states(&x, &y, what);
            built_free(&x);
            built_free(&y);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shards_of_converted_products_are_the_whole_on_every_mesh),
        cmocka_unit_test(test_parameters_fetched_once_per_step_are_converted_likewise),
        cmocka_unit_test(test_experts_on_meshes),
        cmocka_unit_test(test_derivatives_of_attention_read_the_converted_gradient),
        cmocka_unit_test(test_what_runs_chunk_by_chunk_stays_in_the_loop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
