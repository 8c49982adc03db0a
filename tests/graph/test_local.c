/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/llama.c"
#include "graph/sim.c"

/* Ops with TT_OP_LOCAL: their rules place them, and their decompositions run on the ranks' own parts.
 * On every mesh the shards of every node are its global value; no operand, inner value or result is
 * communicated; a rule that the decomposition cannot keep is an error. */

#define HEADS 24
#define HD 2
#define WIDTH 10

static tt_value *column(tt_builder *b, tt_value *x) /* [n] to [n, 1] */
{
    const tt_dim dims[2] = {tt_value_type(x)->dims[0], TT_DIM(1, NULL)};
    return tt_reshape(b, x, dims, 2);
}

static tt_value *square(tt_builder *b, tt_value *x)
{
    return tt_mul(b, x, x);
}

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

static void check_pass(void *user, const char *pass, built *x)
{
    if (!strcmp(pass, "describe") || !strcmp(pass, "pieces"))
        return;
    sim *s = sim_run(x->g, NULL);
    if (s->failure[0])
        fail_msg("%s, after %s: %s", (const char *)user, pass, s->failure);
    sim_free(s);
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

static int64_t ranks_of(const mesh_case *m, const char *prefix)
{
    int64_t n = 1;
    for (int i = 0; i < 4 && m->atoms[i].name; i++)
        if (!strncmp(m->atoms[i].name, prefix, strlen(prefix)))
            n *= m->atoms[i].size;
    return n;
}

static void run_job(const job *j, const char *context, after_pass after)
{
    built x;
    tt_error err = {0};
    const char *bad = build_job(j, NULL, after, (void *)(uintptr_t)context, &x, &err);
    if (bad)
        fail_msg("%s: %s: %s", context, bad, err.text);
    built_free(&x);
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
        run_job(&j, mesh->name, check_local);
        job heads = j; /* Ulysses: one sequence for all cp ranks, which cut the heads instead */
        heads.lines = data;
        heads.context = TT_CONTEXT_HEADS;
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
        run_job(&j, mesh->name, check_pass);
        j.recompute = (tt_recompute_opts){
            .mode = i % 2 ? TT_RECOMPUTE_FULL : TT_RECOMPUTE_SELECTIVE, .fetches = true};
        j.n_stages = 2;
        j.fuse = true;
        run_job(&j, mesh->name, check_pass);
        j.n_stages = 0;
        j.lines = ranks_of(mesh, "dp_") * ranks_of(mesh, "cp") * 90; /* more rows than a chunk */
        j.tokens = j.lines * 3;
        j.chunk_bytes = 1;
        j.can_accumulate = true;
        if (mesh->atoms[1].name == NULL)
            run_job(&j, mesh->name, check_pass);
    }
}

/* ---- derivatives ---- */

/* The gradient of a parameter on one rank, computed in f32. */
static double *gradient(const job *j, const char *name, tt_arena *a, int64_t *n)
{
    const sim_opts narrow = {.narrow = true};
    built x;
    tt_error err = {0};
    const char *bad = build_job(j, "update", NULL, NULL, &x, &err);
    if (bad)
        fail_msg("%s: %s", bad, err.text);
    sim *s = sim_run(x.g, &narrow);
    sim_require(s);
    double *g = sim_param(s, name, "grad", n);
    g = tt_arena_dup(a, g, (size_t)*n * sizeof *g);
    sim_free(s);
    built_free(&x);
    return g;
}

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

/* ---- one op after a linear: y = op(x w^T), with w cut over tp ---- */

typedef struct single {
    const tt_op_def *def;
} single;

static void describe_single(tt_builder *b, const void *user)
{
    const single *m = user;
    const tt_dim D = TT_DIM(WIDTH, "embed"), F = TT_DIM(12, "ffn");
    tt_value *x = tt_embedding_w(b, tt_input(b, "ids"), weight(b, "embed", TT_DIM(19, "vocab"), D));
    tt_block(b, "0");
    tt_value *in = tt_linear_w(b, x, weight(b, "up", F, D)), *out[4];
    tt_op(b, m->def->name, &in, 1, NULL, out, m->def->n_out);
    tt_value *y = out[0];
    if (tt_value_type(y)->n_dims == 1)
        y = tt_mul(b, x, column(b, y));
    else
        y = tt_linear_w(b, y, weight(b, "down", D, F));
    for (int i = 1; i < m->def->n_out; i++)
        y = tt_mul(b, y, column(b, tt_sum(b, out[i], 1, 0)));
    tt_block_end(b);
    tt_value *z = tt_linear_w(b, tt_add(b, x, y), weight(b, "head", TT_DIM(19, "vocab"), D));
    tt_output(b, "logits", z);
    tt_output(b, "loss", tt_cross_entropy(b, z, tt_input(b, "labels")));
}

static job single_job(const tt_op_def *const *def, const single *m, const char *mesh)
{
    const int64_t lines = 2 * ranks_of(mesh_named(mesh), "dp_");
    return (job){.mesh = mesh_named(mesh),
                 .tokens = lines * 3,
                 .lines = lines,
                 .describe = describe_single,
                 .user = m,
                 .ops = def,
                 .n_ops = 1};
}

static tt_status infer_same(const tt_shape_query *q, tt_type *out, tt_error *err)
{
    (void)err;
    out[0] = *q->in[0];
    return TT_OK;
}

static tt_status infer_row(const tt_shape_query *q, tt_type *out, tt_error *err)
{
    (void)err;
    out[0] = *q->in[0];
    out[0].n_dims = 1;
    return TT_OK;
}

static tt_status infer_twice(const tt_shape_query *q, tt_type *out, tt_error *err)
{
    (void)err;
    out[0] = out[1] = *q->in[0];
    return TT_OK;
}

#define DECOMPOSE(name)                                                                            \
    static void name(tt_builder *b, const tt_shape_query *q, tt_value *const *in, tt_value **outs)
#define LOCAL_OP(infer_, rule_, flags_, decompose_)                                                \
    .struct_size = sizeof(tt_op_def), .name = "op", .doc = "", .rule = rule_,                      \
    .flags = TT_OP_LOCAL | (flags_), .n_out = 1, .infer = infer_, .decompose = decompose_

/* A contracted letter: the decomposition gives the partial sum that the rule says, and adds to it. */
DECOMPOSE(sum_of_rows)
{
    tt_value *one = tt_broadcast_to(b, tt_const(b, 1, TT_F32), q->in[0]->dims, 1);
    outs[0] = tt_add(b, one, tt_sum(b, in[0], 1, 0));
}

static void check_partial(void *user, const char *pass, built *x)
{
    bool found = false;
    check_pass(user, pass, x);
    for (size_t i = 0; i < x->g->nodes.n && !strcmp(pass, "place"); i++) {
        const tt_node *n = x->g->nodes.items[i];
        if (n->block < 0 || strcmp(n->op->name, "add") || n->out[0]->type.n_dims != 1)
            continue;
        found = true;
        assert_int_equal(n->out[0]->place.partial != 0, ranks_of(user, "tp") > 1);
    }
    assert_true(found || strcmp(pass, "place"));
}

static void test_a_contracted_letter_gives_a_partial_result(void **state)
{
    static const tt_op_def def = {LOCAL_OP(infer_row, "t f -> t", 0, sum_of_rows)};
    static const tt_op_def *const defs[] = {&def};
    static const single m = {&def};
    (void)state;
    for (size_t i = 0; i < TT_COUNT(mesh_cases); i++) {
        const job j = single_job(defs, &m, mesh_cases[i].name);
        built x;
        tt_error err = {0};
        const char *bad =
            build_job(&j, NULL, check_partial, (void *)(uintptr_t)&mesh_cases[i], &x, &err);
        if (bad)
            fail_msg("%s: %s: %s", mesh_cases[i].name, bad, err.text);
        built_free(&x);
    }
}

/* ---- an op with a derivative of its own ---- */

static void threefold(tt_builder *b, tt_vjp *c)
{
    c->din[0] = tt_scale(b, c->dout[0], 3);
    if (c->n_out > 1 && c->dout[1])
        c->din[0] = tt_add(b, c->din[0], tt_scale(b, c->dout[1], 5));
}

DECOMPOSE(itself)
{
    (void)b, (void)q;
    outs[0] = in[0];
}

DECOMPOSE(itself_twice)
{
    (void)b, (void)q;
    outs[0] = outs[1] = in[0];
}

DECOMPOSE(halved)
{
    (void)q;
    outs[0] = tt_scale(b, in[0], 0.5);
}

static void ratio_of_gradients(const tt_op_def *a, const tt_op_def *c, const char *mesh,
                               double wanted)
{
    const tt_op_def *const first[] = {a}, *const second[] = {c};
    const single m = {a}, n = {c};
    const job j = single_job(first, &m, mesh), k = single_job(second, &n, mesh);
    tt_arena *arena = tt_arena_new();
    int64_t count;
    const double *x = gradient(&j, "0.up", arena, &count), *y = gradient(&k, "0.up", arena, &count);
    double worst = 0, largest = 0;
    for (int64_t i = 0; i < count; i++) {
        worst = TT_MAXV(worst, fabs(x[i] - wanted * y[i]));
        largest = TT_MAXV(largest, fabs(y[i]));
    }
    assert_true(largest > 0);
    if (worst > 1e-5 * largest)
        fail_msg("%s: the gradient is not %g times the other", mesh, wanted);
    tt_arena_free(arena);
}

static void test_a_derivative_of_its_own_replaces_that_of_the_ops(void **state)
{
    static const tt_op_def plain = {LOCAL_OP(infer_same, "* -> *", 0, itself)},
                           own = {LOCAL_OP(infer_same, "* -> *", 0, itself), .vjp = threefold},
                           half = {LOCAL_OP(infer_same, "* -> *", 0, halved)},
                           half_own = {LOCAL_OP(infer_same, "* -> *", 0, halved), .vjp = threefold};
    static const char *const meshes[] = {"1", "tp2", "fsdp2 tp2 cp2"};
    (void)state;
    for (size_t i = 0; i < TT_COUNT(meshes); i++) {
        ratio_of_gradients(&own, &plain, meshes[i], 3);
        ratio_of_gradients(&half_own, &half, meshes[i], 6);
    }
}

/* Both outputs are the operand: each has the cotangent of its own readers. */
static void test_outputs_that_are_one_value_are_told_apart(void **state)
{
    static tt_op_def plain = {LOCAL_OP(infer_twice, "* -> *, *", 0, itself_twice)};
    static tt_op_def own = {LOCAL_OP(infer_twice, "* -> *, *", 0, itself_twice), .vjp = threefold};
    static const char *const meshes[] = {"tp2", "fsdp2 cp2"};
    plain.n_out = own.n_out = 2;
    (void)state;
    for (size_t i = 0; i < TT_COUNT(meshes); i++)
        for (int k = 0; k < 2; k++) {
            const tt_op_def *const defs[] = {k ? &own : &plain};
            const single m = {defs[0]};
            const job j = single_job(defs, &m, meshes[i]);
            run_job(&j, meshes[i], check_pass);
        }
    const tt_op_def *const defs[] = {&own};
    const single m = {&own};
    const job j = single_job(defs, &m, "1");
    built x;
    tt_error err = {0};
    assert_null(build_job(&j, "place", NULL, NULL, &x, &err));
    for (size_t i = 0; i < x.g->nodes.n; i++) {
        const tt_node *n = x.g->nodes.items[i];
        if (n->role != TT_NODE_EXPANDED)
            continue;
        assert_ptr_not_equal(n->out[0], n->out[1]);
        assert_ptr_not_equal(n->out[0], n->in[0]);
        assert_ptr_not_equal(n->out[1], n->in[0]);
    }
    built_free(&x);
}

/* The derivatives of inner ops keep cuts as the ops do, whatever the order of their operands. */
static tt_value *doubled(tt_builder *b, tt_value *const *xs, int n, void *user)
{
    (void)n, (void)user;
    return tt_scale(b, xs[0], 2);
}

static void constant_first(tt_builder *b, tt_value *const *xs, int n, tt_value *y, tt_value *dy,
                           tt_value **dxs, void *user)
{
    const tt_type *t = tt_value_type(y);
    (void)xs, (void)n, (void)user;
    dxs[0] = tt_mul(b, tt_broadcast_to(b, tt_const(b, 2, TT_F32), t->dims, t->n_dims), dy);
}

DECOMPOSE(doubled_by_hand)
{
    (void)q;
    outs[0] = tt_custom_vjp(b, in, 1, doubled, constant_first, NULL);
}

static void check_backward(void *user, const char *pass, built *x)
{
    tt_lower_step steps[TT_MAX_STEPS];
    check_pass(user, pass, x);
    for (size_t i = 0; i < x->g->nodes.n && !strcmp(pass, "autodiff"); i++) {
        const tt_node *n = x->g->nodes.items[i];
        const tt_value *v = n->n_out ? n->out[0] : NULL;
        if (n->op != &tt_op_redistribute || v->type.n_dims != 2 || v->type.dims[1].size != 12 ||
            v->type.dims[0].size != x->g->tokens)
            continue;
        const int k = tt_lower(&x->mesh, v->type.dims, 2, &n->in[0]->place, &v->place, steps);
        for (int at = 0; at < k; at++)
            if (steps[at].kind != TT_STEP_SLICE)
                fail_msg("%s: node %d communicates a cotangent", (const char *)user, n->id);
    }
}

static void test_derivatives_of_inner_ops_keep_the_cut(void **state)
{
    static const tt_op_def def = {LOCAL_OP(infer_same, "* -> *", 0, doubled_by_hand)};
    static const tt_op_def *const defs[] = {&def};
    static const single m = {&def};
    static const char *const meshes[] = {"tp2", "fsdp2 tp2", "tp4=2x2"};
    (void)state;
    for (size_t i = 0; i < TT_COUNT(meshes); i++) {
        const job j = single_job(defs, &m, meshes[i]);
        run_job(&j, meshes[i], check_backward);
    }
}

static void test_an_op_without_gradient_has_none(void **state)
{
    static const tt_op_def def = {LOCAL_OP(infer_same, "* -> *", TT_OP_NO_GRADIENT, halved)};
    static const tt_op_def *const defs[] = {&def};
    static const single m = {&def};
    const job j = single_job(defs, &m, "tp2");
    built x;
    tt_error err = {0};
    (void)state;
    const char *bad = build_job(&j, NULL, NULL, NULL, &x, &err);
    assert_string_equal(bad, "autodiff");
    assert_non_null(strstr(err.text, "parameter 0.up does not influence the loss"));
    built_free(&x);
}

/* ---- errors ---- */

DECOMPOSE(softmax_of_rows)
{
    (void)q;
    outs[0] = tt_softmax(b, in[0]);
}

DECOMPOSE(root_of_sum)
{
    (void)q;
    outs[0] = tt_sqrt(b, square(b, tt_sum(b, in[0], 1, 0)));
}

DECOMPOSE(merged_rows)
{
    const tt_dim all = TT_DIM(q->in[0]->dims[0].size * q->in[0]->dims[1].size, NULL);
    outs[0] = tt_reshape(b, tt_silu(b, tt_reshape(b, in[0], &all, 1)), q->in[0]->dims, 2);
}

DECOMPOSE(largest_of_rows)
{
    (void)q;
    outs[0] = tt_sum(b, in[0], 1, 0);
}

DECOMPOSE(nothing)
{
    (void)b, (void)q, (void)in, (void)outs;
}

DECOMPOSE(as_integers)
{
    (void)q;
    outs[0] = tt_cast(b, in[0], TT_I32);
}

DECOMPOSE(a_parameter)
{
    outs[0] = tt_add(b, in[0], tt_param(b, "bias", &q->in[0]->dims[1], 1, NULL));
}

DECOMPOSE(a_buffer)
{
    outs[0] = tt_add(b, in[0], tt_buffer(b, "bias", &q->in[0]->dims[1], 1, NULL));
}

DECOMPOSE(an_output)
{
    tt_output(b, "other", in[0]);
    itself(b, q, in, outs);
}

DECOMPOSE(a_block)
{
    tt_block(b, "inner");
    tt_block_end(b);
    itself(b, q, in, outs);
}

DECOMPOSE(a_metric)
{
    tt_log_metric(b, "inside", tt_const(b, 1, TT_F32));
    itself(b, q, in, outs);
}

/* linear_inputs promises that the sum of a partial operand may wait. */
static void describe_partial(tt_builder *b, const void *user)
{
    const tt_dim D = TT_DIM(WIDTH, "embed"), F = TT_DIM(12, "ffn");
    tt_value *x = tt_embedding_w(b, tt_input(b, "ids"), weight(b, "embed", TT_DIM(19, "vocab"), D));
    tt_block(b, "0");
    tt_value *f = tt_linear_w(b, x, weight(b, "up", F, D)), *y;
    f = tt_sum(b, f, 1, 0); /* partial over tp */
    tt_op(b, ((const single *)user)->def->name, &f, 1, NULL, &y, 1);
    tt_block_end(b);
    x = tt_mul(b, x, column(b, y));
    tt_value *z = tt_linear_w(b, x, weight(b, "head", TT_DIM(19, "vocab"), D));
    tt_output(b, "logits", z);
    tt_output(b, "loss", tt_cross_entropy(b, z, tt_input(b, "labels")));
}

DECOMPOSE(scaled_and_shifted)
{
    outs[0] = tt_add(b, tt_random(b, q->in[0]->dims, 1, "noise", 0), tt_scale(b, in[0], 0.5));
}

DECOMPOSE(square_of_it)
{
    (void)q;
    outs[0] = square(b, in[0]);
}

static void check_pending(void *user, const char *pass, built *x)
{
    int pending = 0;
    check_pass(user, pass, x);
    for (size_t i = 0; i < x->g->nodes.n && !strcmp(pass, "place"); i++) {
        const tt_node *n = x->g->nodes.items[i];
        pending += n->block == 0 && !strcmp(n->op->name, "scale") && n->out[0]->place.partial;
    }
    assert_true(pending == 1 || strcmp(pass, "place"));
}

static void test_a_partial_operand_passes_through_if_the_op_is_linear(void **state)
{
    static const tt_op_def def = {LOCAL_OP(infer_same, "* -> *", 0, scaled_and_shifted),
                                  .linear_inputs = 1},
                           bad = {LOCAL_OP(infer_same, "* -> *", 0, square_of_it),
                                  .linear_inputs = 1};
    static const char *const meshes[] = {"tp2", "fsdp2 tp2", "tp4=2x2"};
    (void)state;
    for (size_t i = 0; i < TT_COUNT(meshes); i++)
        for (int k = 0; k < 2; k++) {
            const tt_op_def *const defs[] = {k ? &bad : &def};
            const single m = {defs[0]};
            job j = single_job(defs, &m, meshes[i]);
            built x;
            tt_error err = {0};
            j.describe = describe_partial;
            j.no_sp = true; /* otherwise tp cuts the tokens */
            if (!k) {
                run_job(&j, meshes[i], check_pending);
                continue;
            }
            assert_non_null(build_job(&j, "place", NULL, NULL, &x, &err));
            assert_non_null(strstr(err.text, "its linear_inputs let an operand be a partial sum "
                                             "over tp"));
            assert_non_null(strstr(err.text, "but mul in its decomposition needs the sum: clear "
                                             "the bit, or write a decomposition that is linear"));
            built_free(&x);
        }
}

static void test_broken_promises_are_told(void **state)
{
    static const struct {
        tt_op_def def;
        const char *mesh, *text;
    } cases[] = {
        {{LOCAL_OP(infer_same, "t f -> t f", 0, softmax_of_rows)},
         "tp2",                                                                       "in 0: op op (TT_OP_LOCAL): its rule \"t f -> t f\" lets tp cut letter f, but softmax in "
         "its decomposition needs f32[6 tokens, 12 ffn] in another placement: write !f in the "
         "rule, or a "
         "decomposition that keeps the cut"                                                                                                                  },
        {{LOCAL_OP(infer_row, "t f -> t", 0, root_of_sum)},
         "tp2",                                                                       "its rule \"t f -> t\" lets tp cut letter f, which makes a partial sum, but mul in its "
         "decomposition needs the sum: write !f in the rule, or a decomposition that is linear in "
         "the sum"                                                                                                                                           },
        {{LOCAL_OP(infer_same, "t f -> t f", 0, merged_rows)},
         "fsdp2 tp2",                                                                 "its rule \"t f -> t f\" lets tp cut letter f, but reshape in its decomposition needs"},
        {{LOCAL_OP(infer_row, "t f -> t", 0, largest_of_rows), .reduce_max = 1},
         "tp2",                                                                       "by its rule \"t f -> t\" output 0 is {} Pmax(tp), but its decomposition gives {} P(tp); "
         "over tp, letter f it leaves a "
         "sum over ranks: change the rule or the decomposition"                                                                                              },
        {{LOCAL_OP(infer_same, "t f -> t f", 0, nothing)},
         "tp2",                                                                       "op op (TT_OP_LOCAL): its decomposition leaves output 0 NULL"                         },
        {{LOCAL_OP(infer_same, "t f -> t f", 0, as_integers)},
         "tp2",                                                                       "its decomposition gives i32[6 tokens, 12 ffn] as output 0, but its infer says f32[6 "
         "tokens, 12 ffn]"                                                                                                                                   },
        {{LOCAL_OP(infer_row, "t f -> t", 0, halved)},
         "1",                                                                         "as output 0, but its infer says f32[6 tokens]: cast or reshape it"                   },
        {{LOCAL_OP(infer_same, "t f -> t f", 0, a_parameter)},
         "1",                                                                         "its decomposition calls tt_param, which only describe() may call: make the value an "
         "operand of the op"                                                                                                                                   },
        {{LOCAL_OP(infer_same, "t f -> t f", 0, a_buffer)},                      "1", "calls tt_buffer"                                                                     },
        {{LOCAL_OP(infer_same, "t f -> t f", 0, an_output)},                     "1", "calls tt_output"                                                                     },
        {{LOCAL_OP(infer_same, "t f -> t f", 0, a_block)},                       "1", "calls tt_block"                                                                      },
        {{LOCAL_OP(infer_same, "t f -> t f", 0, a_metric)},                      "1", "calls tt_log_metric"                                                                 },
    };
    (void)state;
    for (size_t i = 0; i < TT_COUNT(cases); i++) {
        const tt_op_def *const defs[] = {&cases[i].def};
        const single m = {defs[0]};
        const job j = single_job(defs, &m, cases[i].mesh);
        built x;
        tt_error err = {0};
        const char *bad = build_job(&j, "place", NULL, NULL, &x, &err);
        assert_non_null(bad);
        assert_string_equal(bad, "place");
        if (!strstr(err.text, cases[i].text))
            fail_msg("\"%s\" is not in \"%s\"", cases[i].text, err.text);
        built_free(&x);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_decomposition_keeps_the_cut_of_its_operands),
        cmocka_unit_test(test_a_decomposition_is_right_under_every_pass),
        cmocka_unit_test(test_the_derivative_is_that_of_the_ops_written_out),
        cmocka_unit_test(test_a_contracted_letter_gives_a_partial_result),
        cmocka_unit_test(test_a_derivative_of_its_own_replaces_that_of_the_ops),
        cmocka_unit_test(test_outputs_that_are_one_value_are_told_apart),
        cmocka_unit_test(test_derivatives_of_inner_ops_keep_the_cut),
        cmocka_unit_test(test_an_op_without_gradient_has_none),
        cmocka_unit_test(test_a_partial_operand_passes_through_if_the_op_is_linear),
        cmocka_unit_test(test_broken_promises_are_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
