/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/local.h"
#include "tier.h"
#include <math.h>

/* An op that has a kernel and no vjp: the kernel runs in the forward, and the derivative is that of the
 * decomposition. On every mesh the shards of every node are its global value, and gradients are those
 * of the op without the kernel. */

#define ROWS 3 /* tokens of a sequence */
#define HIDDEN 12

/* ---- blend: x, g [T, C], w [C] → y = tanh(x) w s, with s the sum of g over the tokens of the sequence,
 * and z = g². As a local op it is placed by its rule; else part by part. ---- */

static tt_value *sequence_sum(tt_builder *b, tt_value *g)
{
    const tt_dim *d = tt_value_type(g)->dims;
    const tt_dim apart[3] = {TT_DIM(d[0].lines, NULL), TT_DIM(d[0].size / d[0].lines, NULL), d[1]};
    tt_value *s = tt_sum(b, tt_reshape(b, g, apart, 3), 1, 1);
    return tt_reshape(b, tt_broadcast_to(b, s, apart, 3), d, 2);
}

DECOMPOSE(blend)
{
    (void)q;
    outs[0] = tt_mul(b, tt_mul(b, tt_tanh(b, in[0]), sequence_sum(b, in[1])), in[2]);
    outs[1] = square(b, in[1]);
}

static tt_status infer_two(const tt_shape_query *q, tt_type *out, tt_error *err)
{
    (void)err;
    out[0] = out[1] = *q->in[0];
    return TT_OK;
}

static tt_status run_blend(void *backend, const tt_kernel_call *c, tt_error *err)
{
    const double *x = c->in[0].data, *g = c->in[1].data, *w = c->in[2].data;
    double *y = c->out[0].data, *z = c->out[1].data;
    const int64_t rows = c->in[0].shape[0], n = c->in[0].shape[1];
    (void)backend;
    if (c->in[0].dtype != TT_F64 || rows % ROWS)
        return TT_FAIL(err, TT_EINVAL, "blend: whole sequences in f64");
    for (int64_t t = 0; t < rows; t++)
        for (int64_t i = 0; i < n; i++) {
            double s = 0;
            for (int64_t k = t / ROWS * ROWS; k < t / ROWS * ROWS + ROWS; k++)
                s += g[k * n + i];
            y[t * n + i] = tanh(x[t * n + i]) * s * w[i];
            z[t * n + i] = g[t * n + i] * g[t * n + i];
        }
    return TT_OK;
}

#define BLEND(flags_)                                                                              \
    {                                                                                              \
        .struct_size = sizeof(tt_op_def), .name = "blend", .doc = "",                              \
        .rule = "t=(b !q) h, t=(b !q) h, h -> t=(b !q) h, t=(b !q) h",                             \
        .flags = TT_OP_MIXES_TOKENS | (flags_), .n_out = 2, .infer = infer_two, .decompose = blend \
    }
static const tt_op_def local_blend = BLEND(TT_OP_LOCAL), plain_blend = BLEND(0);
static const tt_kernel blend_kernel = {sizeof(blend_kernel), "blend", run_blend, NULL, 0, 0, NULL};

typedef struct model {
    bool one_output; /* z is not read: no cotangent comes from there */
    bool frozen;     /* w has no gradient */
    bool stopped;    /* x has none */
} model;

static void describe_blend(tt_builder *b, const void *user)
{
    const model *m = user;
    const tt_dim D = TT_DIM(WIDTH, "embed"), F = TT_DIM(HIDDEN, "ffn");
    const tt_param_opts o = {.frozen = m->frozen};
    tt_value *x = tt_embedding_w(b, tt_input(b, "ids"), weight(b, "embed", TT_DIM(19, "vocab"), D));
    for (int i = 0; i < 2; i++) {
        tt_value *y[2];
        tt_block(b, "%d", i);
        tt_value *up = tt_linear_w(b, x, weight(b, "up", F, D));
        tt_value *in[3] = {m->stopped ? tt_stop_gradient(b, up) : up, up,
                           tt_param(b, "scale", &F, 1, &o)};
        tt_op(b, "blend", in, 3, NULL, y, 2);
        tt_value *h = m->one_output ? y[0] : tt_add(b, y[0], y[1]);
        x = tt_add(b, x, tt_linear_w(b, h, weight(b, "down", D, F)));
        tt_block_end(b);
    }
    tt_value *z = tt_linear_w(b, x, weight(b, "head", TT_DIM(19, "vocab"), D));
    tt_output(b, "logits", z);
    tt_output(b, "loss", tt_cross_entropy(b, z, tt_input(b, "labels")));
}

static job blend_job(const mesh_case *mesh, const tt_op_def *const *op, const model *m)
{
    const int64_t lines = ranks_of(mesh, "dp_") * ranks_of(mesh, "cp");
    return (job){.mesh = mesh,
                 .tokens = lines * ROWS,
                 .lines = lines,
                 .describe = describe_blend,
                 .user = m,
                 .ops = op,
                 .n_ops = 1};
}

/* After autodiff the op is there twice, one for each block, and the forward has no part of it. */
static void check_kernels(void *user, const char *pass, built *x)
{
    int kernels = 0, parts = 0;
    check_pass(user, pass, x);
    if (strcmp(pass, "autodiff"))
        return;
    for (size_t i = 0; i < x->g->nodes.n; i++) {
        const tt_node *n = x->g->nodes.items[i];
        kernels += !strcmp(n->op->name, "blend");
        parts += !strcmp(n->op->name, "tanh") && n->when->region == TT_FORWARD;
    }
    assert_int_equal(kernels, 2);
    assert_int_equal(parts, 0);
}

static const tt_op_def *const tables[2][1] = {{&local_blend}, {&plain_blend}};

static void test_every_mesh_has_the_derivative_of_the_decomposition(void **state)
{
    static const model m = {false};
    (void)state;
    sim_own_kernel = &blend_kernel;
    for (size_t k = 0; k < 2; k++)
        for (size_t i = 0; i < TT_COUNT(mesh_cases); i++) {
            job j = blend_job(&mesh_cases[i], tables[k], &m);
            if (!in_tier(i, k, 4))
                continue;
            run_job(&j, j.mesh->name, check_kernels);
            j.recompute = (tt_recompute_opts){
                .mode = i % 8 < 4 ? TT_RECOMPUTE_FULL : TT_RECOMPUTE_SELECTIVE, .fetches = true};
            j.n_stages = 2;
            j.fuse = true;
            run_job(&j, j.mesh->name, check_kernels);
        }
}

/* Both sum the same terms in f64; the kernel's order of the sum over a sequence may be another. */
static void compare(const job *j, const char *name, tt_arena *a)
{
    int64_t n, m;
    double sum = 0;
    sim_own_kernel = &blend_kernel;
    const double *x = gradient_by(j, NULL, NULL, name, a, &n);
    sim_own_kernel = NULL;
    const double *y = gradient_by(j, NULL, NULL, name, a, &m);
    assert_int_equal(n, m);
    for (int64_t i = 0; i < n; i++) {
        sum += fabs(y[i]);
        if (!(fabs(x[i] - y[i]) <= 1e-12))
            fail_msg("%s of %s: element %d: %g, not %g", name, j->mesh->name, (int)i, x[i], y[i]);
    }
    assert_true(sum > 1e-6);
}

static void test_gradients_are_those_without_the_kernel(void **state)
{
    static const model models[] = {
        {false}, {.one_output = true}, {.frozen = true}, {.stopped = true}};
    static const char *const meshes[] = {"1", "fsdp2 tp2"};
    static const char *const names[] = {"embed", "0.up", "1.down", "0.scale"};
    (void)state;
    tt_arena *a = tt_arena_new();
    for (size_t i = 0; i < TT_COUNT(models); i++)
        for (size_t k = 0; k < TT_COUNT(meshes); k++) {
            const job j = blend_job(mesh_named(meshes[k]), tables[(i + k) % 2], &models[i]);
            for (size_t p = 0; p < TT_COUNT(names) - models[i].frozen; p++)
                compare(&j, names[p], a);
        }
    tt_arena_free(a);
}

/* ---- errors ---- */

DECOMPOSE(nothing)
{
    (void)b, (void)q, (void)in, (void)outs;
}

DECOMPOSE(narrower)
{
    (void)q;
    outs[0] = outs[1] = tt_sum(b, in[0], 1, 0);
}

static void test_what_has_no_derivative_says_what_to_add(void **state)
{
    static const model m = {.one_output = true};
    static const struct {
        void (*decompose)(tt_builder *, const tt_shape_query *, tt_value *const *, tt_value **);
        const char *says;
    } cases[] = {
        {NULL,     "op blend in \"1\" has no derivative, but parameter"            },
        {NULL,     "give the op a vjp or a decompose, whose derivative it then has"},
        {nothing,  "op blend: its decomposition leaves output 0 NULL"              },
        {narrower, "op blend: its decomposition gives f32["                        }
    };
    (void)state;
    sim_own_kernel = &blend_kernel;
    for (size_t i = 0; i < TT_COUNT(cases); i++) {
        tt_op_def def = plain_blend;
        const tt_op_def *const table[] = {&def};
        built x;
        tt_error err = {0};
        def.decompose = cases[i].decompose;
        const job j = blend_job(mesh_named("1"), table, &m);
        assert_string_equal(build_job(&j, NULL, NULL, NULL, &x, &err), "autodiff");
        if (!strstr(err.text, cases[i].says))
            fail_msg("case %d: %s", (int)i, err.text);
        built_free(&x);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_mesh_has_the_derivative_of_the_decomposition),
        cmocka_unit_test(test_gradients_are_those_without_the_kernel),
        cmocka_unit_test(test_what_has_no_derivative_says_what_to_add),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
