/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_TESTS_GRAPH_LOCAL_H
#define TT_TESTS_GRAPH_LOCAL_H
#include "graph/llama.c"
#include "graph/sim.c"

/* What the tests of TT_OP_LOCAL share: a job of a model with one op, run on a mesh and compared with its
 * global values after each pass, and gradients. */

#define WIDTH 10

static inline tt_value *column(tt_builder *b, tt_value *x) /* [n] to [n, 1] */
{
    const tt_dim dims[2] = {tt_value_type(x)->dims[0], TT_DIM(1, NULL)};
    return tt_reshape(b, x, dims, 2);
}

static inline tt_value *square(tt_builder *b, tt_value *x)
{
    return tt_mul(b, x, x);
}

static inline void check_pass(void *user, const char *pass, built *x)
{
    if (!strcmp(pass, "describe") || !strcmp(pass, "pieces"))
        return;
    sim *s = sim_run(x->g, NULL);
    if (s->failure[0])
        fail_msg("%s, after %s: %s", (const char *)user, pass, s->failure);
    sim_free(s);
}

static inline int64_t ranks_of(const mesh_case *m, const char *prefix)
{
    int64_t n = 1;
    for (int i = 0; i < 4 && m->atoms[i].name; i++)
        if (!strncmp(m->atoms[i].name, prefix, strlen(prefix)))
            n *= m->atoms[i].size;
    return n;
}

static inline void run_job(const job *j, const char *context, after_pass after)
{
    built x;
    tt_error err = {0};
    const char *bad = build_job(j, NULL, after, (void *)(uintptr_t)context, &x, &err);
    if (bad)
        fail_msg("%s: %s: %s", context, bad, err.text);
    built_free(&x);
}

/* The gradient of a parameter on one rank; stop, o: as build_job and sim_run have them. */
static inline double *gradient_by(const job *j, const char *stop, const sim_opts *o,
                                  const char *name, tt_arena *a, int64_t *n)
{
    built x;
    tt_error err = {0};
    const char *bad = build_job(j, stop, NULL, NULL, &x, &err);
    if (bad)
        fail_msg("%s: %s", bad, err.text);
    sim *s = sim_run(x.g, o);
    sim_require(s);
    double *g = sim_param(s, name, "grad", n);
    g = tt_arena_dup(a, g, (size_t)*n * sizeof *g);
    sim_free(s);
    built_free(&x);
    return g;
}

/* Computed in f32. */
static inline double *gradient(const job *j, const char *name, tt_arena *a, int64_t *n)
{
    const sim_opts narrow = {.narrow = true};
    return gradient_by(j, "update", &narrow, name, a, n);
}

/* ---- one op after a linear: y = op(x w^T), with w cut over tp ---- */

typedef struct single {
    const tt_op_def *def;
} single;

static inline void describe_single(tt_builder *b, const void *user)
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

static inline job single_job(const tt_op_def *const *def, const single *m, const char *mesh)
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

static inline tt_status infer_same(const tt_shape_query *q, tt_type *out, tt_error *err)
{
    (void)err;
    out[0] = *q->in[0];
    return TT_OK;
}

static inline tt_status infer_row(const tt_shape_query *q, tt_type *out, tt_error *err)
{
    (void)err;
    out[0] = *q->in[0];
    out[0].n_dims = 1;
    return TT_OK;
}

#define DECOMPOSE(name)                                                                            \
    static inline void name(tt_builder *b, const tt_shape_query *q, tt_value *const *in,           \
                            tt_value **outs)
#define LOCAL_OP(infer_, rule_, flags_, decompose_)                                                \
    .struct_size = sizeof(tt_op_def), .name = "op", .doc = "", .rule = rule_,                      \
    .flags = TT_OP_LOCAL | (flags_), .n_out = 1, .infer = infer_, .decompose = decompose_

DECOMPOSE(itself)
{
    (void)b, (void)q;
    outs[0] = in[0];
}

DECOMPOSE(halved)
{
    (void)q;
    outs[0] = tt_scale(b, in[0], 0.5);
}

#endif
