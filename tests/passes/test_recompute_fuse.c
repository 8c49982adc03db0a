/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/sim.h"

#include "graph/llama.c"
#include "graph/sim.c"

/* R11: recomputed values equal saved ones, and fused ops equal unfused ones, in every bit of a
 * step's results, in f32. */

static const sim_opts narrow = {.narrow = true};

static void build_or_fail(const job *j, const char *last, built *x)
{
    tt_error err = {0};
    const char *bad = build_job(j, last, NULL, NULL, x, &err);
    if (bad)
        fail_msg("%s: %s", bad, err.text);
}

static void assert_same_bits(const sim *a, const sim *b, const char *what)
{
    assert_int_equal(a->g->states.n, b->g->states.n);
    for (size_t i = 0; i < a->g->states.n; i++)
        for (int r = 0; r < a->mesh->world; r++) {
            const tt_tensor *x = state_local(a, a->g->states.items[i], r),
                            *y = state_local(b, b->g->states.items[i], r);
            if (sim_bytes(x) != sim_bytes(y) || memcmp(x->data, y->data, sim_bytes(x)))
                fail_msg("%s: state %s differs on rank %d", what, a->g->states.items[i]->name, r);
        }
}

static void compare_jobs(const job *a, const job *b, const char *what)
{
    built x, y;
    build_or_fail(a, NULL, &x);
    build_or_fail(b, NULL, &y);
    sim *s = sim_run(x.g, &narrow), *t = sim_run(y.g, &narrow);
    sim_require(s);
    sim_require(t);
    assert_same_bits(s, t, what);
    sim_free(s);
    sim_free(t);
    built_free(&x);
    built_free(&y);
}

static job llama_job(const char *mesh)
{
    job j = {
        .c = {19, 10, 6, 2, 4, 14, 2, false, true, true},
        .mesh = mesh_named(mesh),
        .metrics = true,
        .optimizer = "adamw",
        .max_norm = 0.1
    };
    j.tokens = 7 * data_ranks(j.mesh);
    return j;
}

static const char *const meshes[] = {"1", "fsdp2 tp2 cp2", "hsdp2x2", "tp3"};

static void test_recomputed_equals_kept_bitwise(void **state)
{
    (void)state;
    for (size_t m = 0; m < TT_COUNT(meshes); m++)
        for (int mode = 0; mode < 3; mode++)
            for (int fetches = 0; fetches < 2; fetches++) {
                const job a = llama_job(meshes[m]);
                job b = a;
                b.recompute =
                    (tt_recompute_opts){.mode = (tt_recompute_mode)mode, .fetches = fetches};
                compare_jobs(&a, &b, meshes[m]);
            }
}

/* The values of a block's forward that the backward reads directly. With full recomputation
 * these are only the block's inputs. */
static int kept_values(const tt_graph *g, bool fetched)
{
    int n = 0;
    bool *seen = calloc((size_t)g->n_values + 1, sizeof *seen);
    for (size_t i = 0; i < g->nodes.n; i++) {
        const tt_node *e = g->nodes.items[i];
        for (int j = 0;
             e->when->region == TT_BACKWARD && e->role != TT_NODE_EXPANDED && j < e->n_in; j++) {
            const tt_node *from = e->in[j]->node;
            if (from->when->region != TT_FORWARD || from->block < 0 || from->n_in == 0 ||
                seen[e->in[j]->id] || tt_value_root(e->in[j])->node->op == &tt_op_input)
                continue;
            seen[e->in[j]->id] = true;
            n += (from->op == &tt_op_fetch) == fetched;
        }
    }
    free(seen);
    return n;
}

static void test_recompute_keeps_less(void **state)
{
    (void)state;
    int kept[3], fetched[2] = {0};
    for (int mode = 0; mode < 3; mode++) {
        job j = llama_job("fsdp2 tp2 cp2");
        built x;
        j.recompute = (tt_recompute_opts){.mode = (tt_recompute_mode)mode};
        build_or_fail(&j, "recompute", &x);
        kept[mode] = kept_values(x.g, false);
        if (mode == TT_RECOMPUTE_NONE)
            fetched[0] = kept_values(x.g, true);
        built_free(&x);
    }
    job j = llama_job("fsdp2 tp2 cp2");
    built x;
    j.recompute.fetches = true;
    build_or_fail(&j, "recompute", &x);
    fetched[1] = kept_values(x.g, true);
    built_free(&x);
    print_message("values of blocks kept for the backward: none %d, selective %d, full %d; fetched "
                  "parameters: %d, refetched %d\n",
                  kept[0], kept[1], kept[2], fetched[0], fetched[1]);
    assert_true(kept[2] < kept[1] && kept[1] < kept[0]);
    assert_true(kept[2] <= 2); /* each block's input */
    assert_true(fetched[0] > 10 && fetched[1] == 0);
}

/* When attention runs in a ring, selective recomputation saves the results of each step of the
 * ring and of each merge, as it does for matrix products; only pointwise ops are recomputed. */
static void test_selective_recompute_of_a_ring_keeps_attention_and_its_merging(void **state)
{
    static const char *const kept[] = {"linear", "attention", "attention_merge"};
    (void)state;
    job j = llama_job("cp3");
    built x;
    int merges = 0, again = 0;
    j.context = TT_CONTEXT_RING;
    j.recompute.mode = TT_RECOMPUTE_SELECTIVE;
    build_or_fail(&j, "recompute", &x);
    for (size_t i = 0; i < x.g->nodes.n; i++) {
        const tt_node *n = x.g->nodes.items[i];
        merges += !strcmp(n->op->name, "attention_merge");
        again += n->when->recomputed;
        for (size_t k = 0; n->when->recomputed && k < TT_COUNT(kept); k++)
            assert_string_not_equal(n->op->name, kept[k]);
    }
    assert_int_equal(merges, 2 * 2); /* layers, steps of the ring after the first */
    assert_true(again > 0);
    built_free(&x);
}

static void test_fused_equals_unfused_bitwise(void **state)
{
    (void)state;
    for (size_t m = 0; m < TT_COUNT(meshes); m++)
        for (int accumulate = 0; accumulate < 2; accumulate++) {
            const job a = llama_job(meshes[m]);
            job b = a;
            b.fuse = true;
            b.can_accumulate = accumulate;
            b.recompute = (tt_recompute_opts){.mode = TT_RECOMPUTE_SELECTIVE, .fetches = true};
            compare_jobs(&a, &b, meshes[m]);
        }
}

static void test_fusion_shrinks_the_graph(void **state)
{
    (void)state;
    const job a = llama_job("fsdp2 tp2 cp2");
    job b = a;
    b.fuse = true;
    built x, y;
    build_or_fail(&a, NULL, &x);
    build_or_fail(&b, NULL, &y);
    int fused = 0;
    for (size_t i = 0; i < y.g->nodes.n; i++)
        fused += !strcmp(y.g->nodes.items[i]->op->name, "fused");
    print_message("%zu nodes, fused %zu, %d of them fused\n", x.g->nodes.n, y.g->nodes.n, fused);
    assert_true(fused > 5 && y.g->nodes.n < x.g->nodes.n);
    built_free(&x);
    built_free(&y);
}

/* ---- random pointwise graphs ---- */

static uint32_t random_below(uint64_t seed, int *at, uint32_t n)
{
    uint32_t u[4];
    tt_rng_u32x4(tt_rng_key_make(seed, "pointwise", 0), (uint64_t)(*at)++, u);
    return u[0] % n;
}

static tt_value *random_op(tt_builder *b, uint64_t seed, int *at, tt_value **v, int n)
{
    tt_value *x = v[random_below(seed, at, (uint32_t)n)],
             *y = v[random_below(seed, at, (uint32_t)n)];
    switch (random_below(seed, at, 10)) {
    case 0:
        return tt_add(b, x, y);
    case 1:
        return tt_sub(b, x, y);
    case 2:
        return tt_mul(b, x, tt_tanh(b, y));
    case 3:
        return tt_div(b, x, tt_add(b, tt_mul(b, y, y), tt_const(b, 1, TT_F32)));
    case 4:
        return tt_maximum(b, x, tt_scale(b, y, 0.7));
    case 5:
        return tt_silu(b, x);
    case 6:
        return tt_sigmoid(b, x);
    case 7:
        return tt_gelu_tanh(b, x);
    case 8:
        return tt_select(b, tt_less(b, x, y), x, tt_scale(b, y, 0.3));
    default:
        return tt_scale(b, x, 1.0 / 3);
    }
}

static void describe_random(tt_builder *b, const void *user)
{
    const uint64_t seed = *(const uint64_t *)user;
    const tt_dim F = TT_DIM(14, "ffn"), D = TT_DIM(10, "embed"), V = TT_DIM(19, "vocab"),
                 table[] = {V, D}, up[] = {F, D}, down[] = {D, F};
    tt_value *v[40];
    int at = 0, n = 0;
    tt_value *h = tt_embedding_w(b, tt_input(b, "ids"), tt_param(b, "embed", table, 2, NULL));
    v[n++] = tt_linear_w(b, h, tt_param(b, "up", up, 2, NULL));
    v[n++] = tt_add(b, v[0], tt_param(b, "bias", &F, 1, NULL));
    while (n < 30) {
        v[n] = random_op(b, seed, &at, v, n);
        n++;
    }
    tt_value *y = v[n - 1];
    for (int i = 2; i < n; i += 3) /* several values live past the chain */
        y = tt_add(b, y, tt_scale(b, v[i], 0.1));
    y = tt_linear_w(b, tt_tanh(b, y), tt_param(b, "down", down, 2, NULL));
    tt_value *z = tt_linear_w(b, tt_add(b, h, y), tt_param(b, "head", table, 2, NULL));
    tt_output(b, "logits", z);
    tt_output(b, "loss", tt_cross_entropy(b, z, tt_input(b, "labels")));
}

/* Matrix products among pointwise ops: products that several pointwise ops read, that are summed
 * with one another, or that both pointwise ops and products read; and any of these with RoPE. */
static void describe_products(tt_builder *b, const void *user)
{
    const uint64_t seed = *(const uint64_t *)user;
    const tt_rope_opts rope = {.head_dim = 2, .theta = 100};
    const tt_dim F = TT_DIM_UNIT(14, "ffn", 2), D = TT_DIM(10, "embed"), V = TT_DIM(19, "vocab"),
                 table[] = {V, D}, up[] = {F, D}, down[] = {D, F},
                 square[] = {F, TT_DIM_UNIT(14, NULL, 2)};
    tt_value *v[40];
    char name[16];
    int at = 0, n = 0;
    tt_value *h = tt_embedding_w(b, tt_input(b, "ids"), tt_param(b, "embed", table, 2, NULL));
    v[n++] = tt_linear_w(b, h, tt_param(b, "up", up, 2, NULL));
    v[n++] = tt_add(b, v[0], tt_param(b, "bias", &F, 1, NULL));
    while (n < 24) {
        snprintf(name, sizeof name, "w%d", n);
        const uint32_t kind = random_below(seed, &at, 4);
        if (kind < 2) {
            tt_value *x = v[random_below(seed, &at, (uint32_t)n)];
            v[n] = tt_linear_w(b, tt_tanh(b, x), tt_param(b, name, square, 2, NULL));
            if (kind && n < 23) {
                v[n + 1] = tt_rope(b, v[n], tt_input(b, "pos"), &rope);
                if (random_below(seed, &at, 2)) /* else the product has other readers */
                    v[n] = v[n + 1];
                n++;
            }
        } else {
            v[n] = random_op(b, seed, &at, v, n);
        }
        n++;
    }
    tt_value *y = v[n - 1];
    for (int i = 1; i < n; i++)
        y = tt_add(b, y, tt_scale(b, v[i], 0.1));
    y = tt_linear_w(b, tt_tanh(b, y), tt_param(b, "down", down, 2, NULL));
    tt_value *z = tt_linear_w(b, tt_add(b, h, y), tt_param(b, "head", table, 2, NULL));
    tt_output(b, "logits", z);
    tt_output(b, "loss", tt_cross_entropy(b, z, tt_input(b, "labels")));
}

/* The second reader of the second product moves before the first reader of the first product,
 * although it reads the first product, too. */
static void describe_pulled(tt_builder *b, const void *user)
{
    const tt_dim D = TT_DIM(10, "embed"), V = TT_DIM(19, "vocab"), table[] = {V, D},
                 square[] = {D, TT_DIM(10, NULL)};
    tt_value *w[5];
    char name[16];
    (void)user;
    for (int i = 0; i < 5; i++) {
        snprintf(name, sizeof name, "w%d", i);
        w[i] = tt_param(b, name, square, 2, NULL);
    }
    tt_value *h = tt_embedding_w(b, tt_input(b, "ids"), tt_param(b, "embed", table, 2, NULL));
    tt_value *p = tt_linear_w(b, h, w[0]), *q = tt_linear_w(b, h, w[1]);
    tt_value *x = tt_linear_w(b, tt_tanh(b, q), w[2]);
    tt_value *y = tt_linear_w(b, tt_tanh(b, p), w[3]);
    tt_value *z = tt_linear_w(b, tt_mul(b, p, q), w[4]);
    z = tt_linear_w(b, tt_add(b, tt_add(b, x, y), z), tt_param(b, "head", table, 2, NULL));
    tt_output(b, "logits", z);
    tt_output(b, "loss", tt_cross_entropy(b, z, tt_input(b, "labels")));
}

static int count(const job *j, const char *op)
{
    built x;
    int n = 0;
    build_or_fail(j, NULL, &x);
    for (size_t i = 0; i < x.g->nodes.n; i++)
        n += !strcmp(x.g->nodes.items[i]->op->name, op);
    built_free(&x);
    return n;
}

static void check_random_graphs(void (*describe)(tt_builder *, const void *), uint64_t seeds)
{
    int ropes = 0, fused = 0;
    for (uint64_t seed = 1; seed <= seeds; seed++) {
        job a = {.mesh = mesh_named(seed % 2 ? "1" : "fsdp2 tp2"),
                 .tokens = 14,
                 .metrics = true,
                 .optimizer = "adamw",
                 .describe = describe,
                 .user = &seed};
        job b = a;
        char what[32];
        b.fuse = b.can_accumulate = true;
        snprintf(what, sizeof what, "seed %d", (int)seed);
        compare_jobs(&a, &b, what);
        ropes += count(&a, "rope");
        fused += count(&b, "linear_fused_rope");
        assert_int_equal(count(&b, "linear_fused_rope") + count(&b, "rope"), count(&a, "rope"));
    }
    if (ropes) {
        print_message("%d of %d rotations in a product\n", fused, ropes);
        assert_true(fused > 0 && fused < ropes);
    }
}

static void test_random_pointwise_graphs_fuse_bitwise(void **state)
{
    (void)state;
    check_random_graphs(describe_random, 40);
}

static void test_random_products_fuse_bitwise(void **state)
{
    (void)state;
    check_random_graphs(describe_products, 60);
}

static void test_epilogue_may_take_a_reader_of_an_earlier_product(void **state)
{
    (void)state;
    check_random_graphs(describe_pulled, 2);
}

/* Sums of products, residuals, activations: if the first reader of a product is pointwise, no
 * pointwise kernel reads the product alone. */
static void test_epilogue_leaves_no_product_to_a_pointwise_node(void **state)
{
    (void)state;
    for (size_t m = 0; m < TT_COUNT(meshes); m++) {
        job j = llama_job(meshes[m]);
        built x;
        int products = 0, left = 0;
        j.fuse = j.can_accumulate = true;
        build_or_fail(&j, NULL, &x);
        for (size_t i = 0; i < x.g->nodes.n; i++) {
            const tt_node *n = x.g->nodes.items[i];
            products += strstr(n->op->name, "_fused") != NULL;
            for (int k = 0; (n->op->flags & TT_OP_POINTWISE) && k < n->n_in; k++)
                left += !strcmp(n->in[k]->node->op->name, "linear") ||
                        (!strcmp(n->in[k]->node->op->name, "linear_dx") &&
                         n->in[k]->node->when->region == n->when->region);
        }
        print_message("%s: %d products with an epilogue, %d read by a pointwise node\n", meshes[m],
                      products, left);
        assert_true(products >= 3 * 2); /* blocks: swiglu, its derivative, sums of two and three */
        assert_int_equal(left, 0);
        built_free(&x);
    }
}

/* An optimizer assigns a state in the middle of its update: a chain that read the old state may
 * not move behind the assignment. */
static void describe_eager(const void *config, tt_builder *b, const tt_update *u)
{
    (void)config;
    tt_value *m = tt_optimizer_state(b, u, "exp_avg");
    tt_value *old = tt_scale(b, m, 3);
    tt_value *next = tt_add(b, tt_scale(b, m, 0.5), u->grad);
    tt_assign(b, m, next);
    tt_assign(b, u->param, tt_sub(b, u->param, tt_add(b, old, u->grad)));
}

static void test_fusion_reads_state_before_it_is_assigned(void **state)
{
    static const tt_optimizer_vt eager_vt = {sizeof eager_vt, describe_eager, NULL};
    (void)state;
    for (size_t m = 0; m < TT_COUNT(meshes); m++) {
        const job a = {
            .c = LLAMA_DEFAULT, .mesh = mesh_named(meshes[m]), .tokens = 28, .update = &eager_vt};
        job b = a;
        b.fuse = true;
        compare_jobs(&a, &b, meshes[m]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_recomputed_equals_kept_bitwise),
        cmocka_unit_test(test_recompute_keeps_less),
        cmocka_unit_test(test_selective_recompute_of_a_ring_keeps_attention_and_its_merging),
        cmocka_unit_test(test_fused_equals_unfused_bitwise),
        cmocka_unit_test(test_fusion_shrinks_the_graph),
        cmocka_unit_test(test_fusion_reads_state_before_it_is_assigned),
        cmocka_unit_test(test_random_pointwise_graphs_fuse_bitwise),
        cmocka_unit_test(test_random_products_fuse_bitwise),
        cmocka_unit_test(test_epilogue_may_take_a_reader_of_an_earlier_product),
        cmocka_unit_test(test_epilogue_leaves_no_product_to_a_pointwise_node),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
