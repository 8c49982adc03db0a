/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/local.h"
#include "tier.h"

/* Ops with TT_OP_LOCAL: their rules place them, and their decompositions run on the ranks' own parts.
 * Here retention, which mixes the tokens of a sequence: on every mesh the shards of every node are its
 * global value, and no operand, inner value or result is communicated. */

#define HEADS 24
#define HD 2

/* ---- retention: q, k, v [T, H*hd], seg [T] → y [T, H*hd] and the sum of y over heads ---- */

static tt_value *apart(tt_builder *b, tt_value *x)
{
    static const int perm[4] = {0, 2, 1, 3};
    const tt_dim *t = tt_value_type(x)->dims;
    const tt_dim dims[4] = {TT_DIM(t->lines, NULL), TT_DIM(t->size / t->lines, NULL),
                            TT_DIM(HEADS, NULL), TT_DIM(HD, NULL)};
    return tt_transpose(b, tt_reshape(b, x, dims, 4), perm);
}

/* Whole operands come first on purpose: what is cut must not be gathered for them. */
static tt_value *scores(tt_builder *b, tt_value *const *in)
{
    const tt_dim *t = tt_value_type(in[0])->dims;
    const tt_dim B = TT_DIM(t->lines, NULL), S = TT_DIM(t->size / t->lines, NULL),
                 H = TT_DIM(HEADS, NULL), one = TT_DIM(1, NULL);
    const tt_dim all[4] = {B, H, S, S}, query[4] = {B, one, S, one}, key[4] = {B, one, one, S},
                 heads[3] = {H, one, one};
    float slopes[HEADS];
    for (int h = 0; h < HEADS; h++)
        slopes[h] = 1.0f / (float)(h + 2);
    tt_value *s = tt_matmul(b, apart(b, in[0]), apart(b, in[1]), 0, 1);
    s = tt_mul(b, tt_const_array(b, slopes, heads, 3), s);
    tt_value *noise = tt_less(b, tt_const(b, 0.25, TT_F32), tt_random(b, all, 4, "noise", 0));
    tt_value *same = tt_equal(b, tt_reshape(b, in[3], query, 4), tt_reshape(b, in[3], key, 4));
    s = tt_select(b, noise, s, tt_broadcast_to(b, tt_const(b, 0.5, TT_F32), all, 4));
    return tt_mul(b, tt_cast(b, same, TT_F32), s);
}

static void write_retention(tt_builder *b, tt_value *const *in, tt_value **outs)
{
    static const int perm[4] = {0, 2, 1, 3};
    const tt_type *t = tt_value_type(in[0]);
    const tt_dim H = TT_DIM(HEADS, "heads");
    tt_value *y = tt_transpose(b, tt_matmul(b, scores(b, in), apart(b, in[2]), 0, 0), perm);
    const tt_dim split[3] = {t->dims[0], H, TT_DIM(HD, NULL)};
    outs[0] = tt_reshape(b, y, t->dims, 2);
    outs[1] = tt_sum(b, tt_sum(b, tt_reshape(b, y, split, 3), 2, 0), 1, 0);
}

static tt_status infer_retention(const tt_shape_query *q, tt_type *out, tt_error *err)
{
    (void)err;
    out[0] = out[1] = *q->in[0];
    out[1].n_dims = 1;
    return TT_OK;
}

static void decompose_retention(tt_builder *b, const tt_shape_query *q, tt_value *const *in,
                                tt_value **outs)
{
    (void)q;
    write_retention(b, in, outs);
}

#define RETENTION                                                                                  \
    .struct_size = sizeof(tt_op_def), .name = "retention", .doc = "",                              \
    .rule = "t=(b !q) h, t=(b !q) h, t=(b !q) h, t=(b !q) -> t=(b !q) h, t=(b !q)",                \
    .flags = TT_OP_LOCAL | TT_OP_MIXES_TOKENS, .n_out = 2, .infer = infer_retention,               \
    .decompose = decompose_retention
static const tt_op_def retention = {RETENTION};
static const tt_op_def *const retention_ops[] = {&retention};

typedef struct model {
    bool written_out; /* the model writes the ops itself */
} model;

static void describe_retention(tt_builder *b, const void *user)
{
    const model *m = user;
    const tt_dim D = TT_DIM(WIDTH, "embed"), H = TT_DIM_UNIT(HEADS * HD, "heads", HD);
    tt_value *x = tt_embedding_w(b, tt_input(b, "ids"), weight(b, "embed", TT_DIM(19, "vocab"), D));
    for (int i = 0; i < 2; i++) {
        tt_value *y[2];
        tt_block(b, "%d", i);
        tt_value *in[4] = {tt_linear_w(b, x, weight(b, "wq", H, D)),
                           tt_linear_w(b, x, weight(b, "wk", H, D)),
                           tt_linear_w(b, x, weight(b, "wv", H, D)), tt_input(b, "seg")};
        if (m->written_out)
            write_retention(b, in, y);
        else
            tt_op(b, "retention", in, 4, NULL, y, 2);
        x = tt_add(b, x, tt_linear_w(b, y[0], weight(b, "wo", D, H)));
        x = tt_mul(b, x, column(b, tt_tanh(b, y[1])));
        tt_block_end(b);
    }
    tt_value *z = tt_linear_w(b, x, weight(b, "head", TT_DIM(19, "vocab"), D));
    tt_output(b, "logits", z);
    tt_output(b, "loss", tt_cross_entropy(b, z, tt_input(b, "labels")));
}

/* Of the values with four dims, none is communicated; both products of a block and what is random are
 * cut over every atom. */
static void check_local(void *user, const char *pass, built *x)
{
    tt_lower_step steps[TT_MAX_STEPS];
    int products = 0, random = 0;
    check_pass(user, pass, x);
    if (strcmp(pass, "autodiff"))
        return;
    for (size_t i = 0; i < x->g->nodes.n; i++) {
        const tt_node *n = x->g->nodes.items[i];
        const tt_value *v = n->n_out ? n->out[0] : NULL;
        const bool product = !strcmp(n->op->name, "matmul"),
                   is_random = !strcmp(n->op->name, "random") && v->place.n[0] + v->place.n[1] > 0;
        products += product;
        random += is_random;
        if (product || is_random)
            assert_int_equal(v->place.n[0] + v->place.n[1], x->mesh.n_atoms);
        if (n->op != &tt_op_redistribute || v->type.n_dims < 3)
            continue;
        const int k =
            tt_lower(&x->mesh, v->type.dims, v->type.n_dims, &n->in[0]->place, &v->place, steps);
        for (int s = 0; s < k; s++)
            if (steps[s].kind != TT_STEP_SLICE)
                fail_msg("%s: node %d is communicated (%s)", (const char *)user, n->id,
                         tt_step_kind_name(steps[s].kind));
    }
    assert_int_equal(products, 12);
    assert_int_equal(random, 2);
}

static void test_a_decomposition_keeps_the_cut_of_its_operands(void **state)
{
    static const model m = {false};
    (void)state;
    for (size_t i = 1; i < TT_COUNT(mesh_cases); i++) {
        const mesh_case *mesh = &mesh_cases[i];
        const int64_t data = ranks_of(mesh, "dp_"), cp = ranks_of(mesh, "cp");
        const job j = {.mesh = mesh,
                       .tokens = data * cp * 6,
                       .lines = data * cp,
                       .describe = describe_retention,
                       .user = &m,
                       .ops = retention_ops,
                       .n_ops = 1};
        if (in_tier(i, 0, 2))
            run_job(&j, mesh->name, check_local);
        job heads = j; /* Ulysses: one sequence for all cp ranks, which cut the heads instead */
        heads.lines = data;
        heads.context = TT_CONTEXT_HEADS;
        if (in_tier(i, 1, 2))
            run_job(&heads, mesh->name, check_local);
    }
}

/* Where sequences do not divide, the operands are gathered as for a kernel, and the values are right;
 * so they are under recomputation, in stages, with the loop over token chunks and without labels. */
static void test_a_decomposition_is_right_under_every_pass(void **state)
{
    static const model m = {false};
    (void)state;
    for (size_t i = 0; i < TT_COUNT(mesh_cases); i++) {
        const mesh_case *mesh = &mesh_cases[i];
        job j = {.mesh = mesh,
                 .tokens = ranks_of(mesh, "dp_") * 7,
                 .lines = ranks_of(mesh, "dp_"),
                 .metrics = true,
                 .describe = describe_retention,
                 .user = &m,
                 .ops = retention_ops,
                 .n_ops = 1};
        if (in_tier(i, 0, 2))
            run_job(&j, mesh->name, check_pass);
        j.recompute = (tt_recompute_opts){
            .mode = i % 2 ? TT_RECOMPUTE_FULL : TT_RECOMPUTE_SELECTIVE, .fetches = true};
        j.n_stages = 2;
        j.fuse = true;
        if (in_tier(i, 1, 2))
            run_job(&j, mesh->name, check_pass);
        j.n_stages = 0;
        j.lines = ranks_of(mesh, "dp_") * ranks_of(mesh, "cp") * 90; /* more rows than a chunk */
        j.tokens = j.lines * 3;
        j.chunk_bytes = 1;
        j.can_accumulate = true;
        if (mesh->atoms[1].name == NULL && in_tier(i, 0, 2))
            run_job(&j, mesh->name, check_pass);
    }
}

/* ---- derivatives ---- */

static void test_the_derivative_is_that_of_the_ops_written_out(void **state)
{
    static const model op = {false}, ops = {true};
    (void)state;
    tt_arena *a = tt_arena_new();
    job j = {.mesh = mesh_named("1"),
             .tokens = 21,
             .lines = 3,
             .describe = describe_retention,
             .user = &op,
             .ops = retention_ops,
             .n_ops = 1};
    static const char *const names[] = {"embed", "0.wq", "1.wv", "head"};
    for (size_t i = 0; i < TT_COUNT(names); i++) {
        int64_t n, m;
        j.user = &op;
        const double *x = gradient(&j, names[i], a, &n);
        j.user = &ops;
        const double *y = gradient(&j, names[i], a, &m);
        double sum = 0;
        assert_int_equal(n, m);
        for (int64_t k = 0; k < n; k++)
            sum += x[k] * x[k];
        assert_true(sum > 0);
        assert_memory_equal(x, y, (size_t)n * sizeof *x);
    }
    tt_arena_free(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_decomposition_keeps_the_cut_of_its_operands),
        cmocka_unit_test(test_a_decomposition_is_right_under_every_pass),
        cmocka_unit_test(test_the_derivative_is_that_of_the_ops_written_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
