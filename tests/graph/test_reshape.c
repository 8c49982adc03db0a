/* SPDX-License-Identifier: Apache-2.0 */
#include "random_test.h"

#include "graph/llama.c"
#include "graph/sim.c"

/* Dims that are split and merged keep their cut (R3). In models that are written with reshapes a data
 * rank computes its own sequences and a tensor rank its own heads. On every mesh the shards of every
 * node are its global value, also for sizes that do not divide. */

static void check_pass(void *user, const char *pass, built *x)
{
    if (!strcmp(pass, "describe") || !strcmp(pass, "pieces"))
        return;
    sim *s = sim_run(x->g, NULL);
    if (s->failure[0])
        fail_msg("%s, after %s: %s", (const char *)user, pass, s->failure);
    sim_free(s);
}

static void check_job(const job *j, const char *context, after_pass after)
{
    built x;
    tt_error err = {0};
    const char *bad = build_job(j, NULL, after, (void *)(uintptr_t)context, &x, &err);
    if (bad)
        fail_msg("%s: %s: %s", context, bad, err.text);
    built_free(&x);
}

static tt_value *split(tt_builder *b, tt_value *x, int n, tt_dim p, tt_dim q, tt_dim r, tt_dim s)
{
    const tt_dim dims[4] = {p, q, r, s};
    return tt_reshape(b, x, dims, n);
}

static tt_value *with_loss(tt_builder *b, tt_value *x, tt_dim D)
{
    tt_value *z = tt_linear_w(b, x, weight(b, "head", TT_DIM(19, "vocab"), D));
    tt_output(b, "logits", z);
    tt_output(b, "loss", tt_cross_entropy(b, z, tt_input(b, "labels")));
    return z;
}

/* ---- attention of ops: [tokens, heads*hd] to [sequences, heads, positions, hd] and back ---- */

typedef struct attention {
    int64_t heads, hd, lines, tokens;
    const char *sequence_label, *head_label;
} attention;

static tt_value *apart(tt_builder *b, const attention *a, tt_value *x)
{
    static const int perm[4] = {0, 2, 1, 3};
    x = split(b, x, 4, TT_DIM(a->lines, a->sequence_label), TT_DIM(a->tokens / a->lines, NULL),
              TT_DIM(a->heads, a->head_label), TT_DIM(a->hd, NULL));
    return tt_transpose(b, x, perm);
}

static void describe_attention(tt_builder *b, const void *user)
{
    static const int perm[4] = {0, 2, 1, 3};
    const attention *a = user;
    const tt_dim D = TT_DIM(10, "embed"), H = TT_DIM_UNIT(a->heads * a->hd, "heads", a->hd);
    tt_value *x = tt_embedding_w(b, tt_input(b, "ids"), weight(b, "embed", TT_DIM(19, "vocab"), D));
    const tt_dim T = tt_value_type(x)->dims[0];
    tt_block(b, "0");
    tt_value *q = apart(b, a, tt_linear_w(b, x, weight(b, "wq", H, D)));
    tt_value *k = apart(b, a, tt_linear_w(b, x, weight(b, "wk", H, D)));
    tt_value *v = apart(b, a, tt_linear_w(b, x, weight(b, "wv", H, D)));
    tt_value *y = tt_softmax(b, tt_scale(b, tt_matmul(b, q, k, 0, 1), 0.5));
    y = tt_transpose(b, tt_matmul(b, y, v, 0, 0), perm);
    y = split(b, y, 2, T, H, T, T);
    x = tt_add(b, x, tt_linear_w(b, y, weight(b, "wo", D, H)));
    tt_block_end(b);
    with_loss(b, x, D);
}

/* A data rank gathers no activation over the data ranks, a tensor rank no heads, and the products of
 * attention are cut over both. */
static void check_local(void *user, const char *pass, built *x)
{
    tt_lower_step steps[TT_MAX_STEPS];
    int products = 0;
    check_pass(user, pass, x);
    if (strcmp(pass, "place") && strcmp(pass, "autodiff"))
        return;
    for (size_t i = 0; i < x->g->nodes.n; i++) {
        const tt_node *n = x->g->nodes.items[i];
        const tt_value *v = n->out[0];
        if (!strcmp(n->op->name, "matmul")) {
            products++;
            for (int d = 0; d < 2; d++)
                for (int k = 0; k < v->place.n[d]; k++)
                    assert_int_equal(d == 1,
                                     !strncmp(x->mesh.atom_name[v->place.atom[d][k]], "tp", 2));
            assert_int_equal(v->place.n[0] + v->place.n[1], x->mesh.n_atoms);
        }
        if (n->op != &tt_op_redistribute || n->in[0]->type.n_dims < 2 || n->block < 0 ||
            n->in[0]->type.dims[0].size % x->g->tokens)
            continue;
        const int k =
            tt_lower(&x->mesh, v->type.dims, v->type.n_dims, &n->in[0]->place, &v->place, steps);
        for (int s = 0; s < k; s++)
            for (int a = 0; steps[s].kind == TT_STEP_ALL_GATHER && a < steps[s].atoms.n; a++)
                if (strncmp(x->mesh.atom_name[steps[s].atoms.atom[a]], "tp", 2) ||
                    v->type.dims[1].size != 10) /* sequence parallelism gathers [tokens, embed] */
                    fail_msg("%s: node %d gathers an activation over %s", (const char *)user, n->id,
                             x->mesh.atom_name[steps[s].atoms.atom[a]]);
    }
    assert_int_equal(products, !strcmp(pass, "place") ? 2 : 6);
}

static int64_t ranks_of(const mesh_case *m, const char *prefix)
{
    int64_t n = 1;
    for (int i = 0; i < 4 && m->atoms[i].name; i++)
        if (!strncmp(m->atoms[i].name, prefix, strlen(prefix)))
            n *= m->atoms[i].size;
    return n;
}

static void test_attention_of_ops_keeps_its_cut(void **state)
{
    static const char *const labels[][2] = {
        {NULL,        NULL   },
        {"sequences", "heads"},
        {"batch",     "h"    },
        {"samples",   "heads"}
    };
    (void)state;
    for (size_t m = 0; m < TT_COUNT(mesh_cases); m++)
        for (size_t l = m % 2; l < TT_COUNT(labels); l += 2) {
            const mesh_case *mesh = &mesh_cases[m];
            attention a = {
                .heads = 12, .hd = 2, .sequence_label = labels[l][0], .head_label = labels[l][1]};
            a.lines = ranks_of(mesh, "dp_") * ranks_of(mesh, "cp");
            a.tokens = a.lines * 11;
            const job j = {.mesh = mesh,
                           .tokens = a.tokens,
                           .lines = a.lines,
                           .metrics = true,
                           .describe = describe_attention,
                           .user = &a};
            check_job(&j, mesh->name, check_local);
        }
}

/* If sequences do not divide over cp or heads over tp, they are gathered, and the values are right. */
static void test_attention_of_ops_where_nothing_divides(void **state)
{
    (void)state;
    for (size_t m = 0; m < TT_COUNT(mesh_cases); m++) {
        const mesh_case *mesh = &mesh_cases[m];
        attention a = {.heads = ranks_of(mesh, "tp"), .hd = 3};
        a.lines = ranks_of(mesh, "dp_");
        a.tokens = a.lines * 7;
        const job j = {.mesh = mesh,
                       .tokens = a.tokens,
                       .lines = a.lines,
                       .describe = describe_attention,
                       .user = &a};
        check_job(&j, mesh->name, check_pass);
    }
}

/* ---- random chains of reshapes ---- */

typedef struct chain {
    int64_t tokens, width;
    uint64_t seed;
} chain;

static int primes_of(int64_t n, int64_t *out, int k)
{
    for (int64_t p = 2; n > 1; p++)
        for (; n % p == 0; n /= p)
            out[k++] = p;
    return k;
}

static tt_dim random_dim(test_rng *rng, int64_t size)
{
    static const char *const labels[] = {NULL,    "sequences", "ffn",    "kv_heads",
                                         "vocab", "other",     "tokens", NULL};
    int64_t unit = 1, primes[64];
    const int n = primes_of(size, primes, 0);
    for (int i = 0; i < n; i++)
        unit *= random_int(rng, 0, 3) ? 1 : primes[i];
    return TT_DIM_UNIT(size, labels[random_int(rng, 0, 7)], unit);
}

/* Dims of tokens * width elements: often T and W split or merged, often anything. */
static int random_dims(test_rng *rng, const chain *c, tt_dim *dims)
{
    int64_t primes[128], size = 1;
    int n = primes_of(c->width, primes, primes_of(c->tokens, primes, 0)), k = 0;
    for (int i = n - 1, any = random_int(rng, 0, 1); any && i > 0; i--) {
        const int at = random_int(rng, 0, i);
        const int64_t p = primes[i];
        primes[i] = primes[at];
        primes[at] = p;
    }
    for (int i = 0; i < n; i++) {
        size *= primes[i];
        if (i + 1 < n && (k == TT_MAX_DIMS - 2 || random_int(rng, 0, 2)))
            continue;
        dims[k++] = random_dim(rng, size);
        size = 1;
    }
    if (!random_int(rng, 0, 3))
        dims[k++] = TT_DIM(1, NULL);
    return k;
}

static void describe_chain(tt_builder *b, const void *user)
{
    const chain *c = user;
    test_rng rng = {.key = tt_rng_key_make(c->seed, "reshape", 0)};
    const tt_dim D = TT_DIM(c->width, "embed");
    tt_value *x = tt_embedding_w(b, tt_input(b, "ids"), weight(b, "embed", TT_DIM(19, "vocab"), D));
    const tt_dim T = tt_value_type(x)->dims[0];
    for (int i = 0; i < 4; i++) {
        tt_dim dims[TT_MAX_DIMS];
        int n = random_dims(&rng, c, dims), perm[TT_MAX_DIMS], back[TT_MAX_DIMS];
        x = tt_silu(b, tt_reshape(b, x, dims, n));
        for (int d = 0; d < n; d++)
            perm[d] = d;
        for (int d = n - 1; d > 0; d--) {
            const int at = random_int(&rng, 0, d), p = perm[d];
            perm[d] = perm[at];
            perm[at] = p;
        }
        for (int d = 0; d < n; d++)
            back[perm[d]] = d;
        tt_value *y = tt_transpose(b, tt_silu(b, tt_transpose(b, x, perm)), back);
        x = tt_add(b, x, tt_mul(b, y, tt_sum(b, y, random_int(&rng, 0, n - 1), 1)));
    }
    with_loss(b, split(b, x, 2, T, D, T, D), D);
}

static void test_random_reshapes_on_random_meshes(void **state)
{
    (void)state;
    test_rng rng = {.key = tt_rng_key_make(7, "meshes", 0)};
    for (int i = 0; i < 80; i++) {
        const mesh_case *mesh = &mesh_cases[random_int(&rng, 0, TT_COUNT(mesh_cases) - 1)];
        const int64_t lines = ranks_of(mesh, "dp_") * random_int(&rng, 1, 3);
        const chain c = {.tokens = lines * random_int(&rng, 2, 7),
                         .width = random_int(&rng, 2, 24),
                         .seed = (uint64_t)i};
        const job j = {.mesh = mesh,
                       .tokens = c.tokens,
                       .lines = lines,
                       .no_sp = random_int(&rng, 0, 1),
                       .describe = describe_chain,
                       .user = &c};
        char context[200];
        snprintf(context, sizeof context, "chain %d on %s, %lld tokens of width %lld", i,
                 mesh->name, (long long)c.tokens, (long long)c.width);
        check_job(&j, context, check_pass);
    }
}

/* ---- an update that splits what FSDP cut through a head ---- */

static void describe_split_update(const void *config, tt_builder *b, const tt_update *u)
{
    const tt_type *t = tt_value_type(u->param);
    const tt_dim *d = t->dims;
    tt_value *g = u->grad;
    (void)config;
    if (t->n_dims == 3 && d[1].unit > 1) {
        g = split(b, g, 4, d[0], TT_DIM(d[1].size / d[1].unit, "heads"), TT_DIM(d[1].unit, NULL),
                  d[2]);
        g = tt_sub(b, g, tt_mean(b, g, 2, 1));
        g = tt_reshape(b, g, d, 3);
    }
    tt_assign(b, u->param, tt_add(b, u->param, tt_scale(b, g, -0.1)));
}
static const tt_optimizer_vt split_vt = {sizeof split_vt, describe_split_update, NULL};

static void test_an_update_may_split_a_parameter_into_heads(void **state)
{
    (void)state;
    for (size_t m = 0; m < TT_COUNT(mesh_cases); m++) {
        const mesh_case *mesh = &mesh_cases[m];
        const job j = {
            .c = {19, 10, 12, 2, 4, 14, 1, false, false, false},
            .mesh = mesh,
            .tokens = 13 * data_ranks(mesh),
            .update = &split_vt
        };
        check_job(&j, mesh->name, check_pass);
    }
}

/* ---- no elements ---- */

static void describe_empty(tt_builder *b, const void *user)
{
    const tt_dim D = TT_DIM(10, "embed"), none = TT_DIM(0, NULL);
    tt_value *x = tt_embedding_w(b, tt_input(b, "ids"), weight(b, "embed", TT_DIM(19, "vocab"), D));
    const tt_dim T = tt_value_type(x)->dims[0];
    tt_value *y = split(b, tt_slice(b, x, 1, 3, 3), 2, none, T, T, T);
    (void)user;
    y = split(b, y, 3, TT_DIM(5, NULL), T, none, T);
    y = split(b, y, 4, TT_DIM(3, NULL), TT_DIM(4, NULL), none, T);
    y = split(b, y, 2, T, none, T, T);
    tt_value *both[] = {x, y};
    with_loss(b, tt_concat(b, both, 2, 1), D);
}

static void test_a_reshape_of_no_elements(void **state)
{
    (void)state;
    for (size_t m = 0; m < TT_COUNT(mesh_cases); m++) {
        const job j = {
            .c = {19, 10, 12, 2, 4, 14, 1, false, false, false},
            .mesh = &mesh_cases[m],
            .tokens = 4 * data_ranks(&mesh_cases[m]),
            .no_sp = true,
            .describe = describe_empty
        };
        check_job(&j, mesh_cases[m].name, check_pass);
    }
}

/* The letters that input and output share: groups of dims with equal products, without dims of size 1 between them. Of
 * no elements there is none. */
static void test_the_rule_of_a_reshape(void **state)
{
    static const struct {
        int64_t x[4], y[4]; /* -1: no further dim */
        const char *rule;
    } cases[] = {
        {{6, 10, -1},   {6, 2, 5, -1}, " a b=(b0 !b1) -> a b0 !v2"},
        {{6, 2, 5, -1}, {6, 10, -1},   " a b0 !u2 -> a b=(b0 !b1)"},
        {{6, 1, 5, -1}, {1, 6, 5, -1}, " a !u1 b -> !v0 a b"      },
        {{6, 1, -1},    {6, -1},       " a !u1 -> a"              },
        {{6, -1},       {1, 6, 1, -1}, " a -> !v0 a !v2"          },
        {{1, -1},       {-1},          " !u0 ->"                  },
        {{-1},          {1, 1, -1},    " -> !v0 !v1"              },
        {{0, 5, -1},    {0, -1},       " !u0 !u1 -> !v0"          },
        {{0, -1},       {0, 5, -1},    " !u0 -> !v0 !v1"          },
        {{0, 5, 7, -1}, {0, 1, -1},    " !u0 !u1 !u2 -> !v0 !v1"  },
        {{5, 0, -1},    {3, 4, 0, -1}, " !u0 !u1 -> !v0 !v1 !v2"  },
    };
    (void)state;
    for (size_t i = 0; i < TT_COUNT(cases); i++) {
        tt_attrs_dims to = {0};
        tt_type x = {.dtype = TT_F32};
        char rule[200] = "";
        for (; cases[i].x[x.n_dims] >= 0; x.n_dims++)
            x.dims[x.n_dims] = TT_DIM(cases[i].x[x.n_dims], NULL);
        for (; cases[i].y[to.n_dims] >= 0; to.n_dims++)
            to.dims[to.n_dims] = TT_DIM(cases[i].y[to.n_dims], NULL);
        const tt_type *in[] = {&x};
        const tt_shape_query q = {.struct_size = sizeof q, .in = in, .n_in = 1, .attrs = &to};
        tt_op_reshape.rule_for(&q, rule, sizeof rule);
        assert_string_equal(rule, cases[i].rule);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_attention_of_ops_keeps_its_cut),
        cmocka_unit_test(test_attention_of_ops_where_nothing_divides),
        cmocka_unit_test(test_random_reshapes_on_random_meshes),
        cmocka_unit_test(test_a_reshape_of_no_elements),
        cmocka_unit_test(test_the_rule_of_a_reshape),
        cmocka_unit_test(test_an_update_may_split_a_parameter_into_heads),
    };
    return cmocka_run_group_tests_name("reshape", tests, NULL, NULL);
}
