/* SPDX-License-Identifier: Apache-2.0 */
#include "random_test.h"
#include <ttrun/quantize.h>

#include "graph/llama.c"
#include "graph/sim.c"

/* Scales and quantized numbers are a function of the values alone: on every mesh the shards of every
 * node are its global value, for all recipes, with blocks that a mesh cuts and sizes that do not divide. */

typedef struct recipe {
    const char *name;
    tt_low_format format;
    tt_scale_rule rule;
    int64_t rows, cols;
    bool stochastic;
} recipe;

static const recipe recipes[] = {
    {"tensorwise",     TT_LOW_E4M3, TT_SCALE_F32,      0, 0, false},
    {"rowwise",        TT_LOW_E4M3, TT_SCALE_POW2,     1, 0, false},
    {"columns",        TT_LOW_E5M2, TT_SCALE_POW2,     0, 1, false},
    {"mx",             TT_LOW_E4M3, TT_SCALE_MX_RCEIL, 1, 4, false},
    {"mx of columns",  TT_LOW_E4M3, TT_SCALE_MX_FLOOR, 4, 1, false},
    {"blocks",         TT_LOW_E4M3, TT_SCALE_F32,      3, 5, false},
    {"nv",             TT_LOW_E2M1, TT_SCALE_NV,       2, 2, false},
    {"nv, stochastic", TT_LOW_E2M1, TT_SCALE_NV,       1, 4, true },
};

typedef struct sizes {
    int64_t ffn;
    const recipe *r;
} sizes;

/* x [T,F], quantized, with F cut by tp: an embedding has exact values on any mesh. */
static void describe(tt_builder *b, const void *user)
{
    const sizes *z = user;
    const tt_dim D = TT_DIM(10, "embed"), F = TT_DIM(z->ffn, "ffn"), V = TT_DIM(19, "vocab");
    const tt_quantize_opts o = {.struct_size = sizeof o,
                                .format = z->r->format,
                                .rule = z->r->rule,
                                .block_rows = z->r->rows,
                                .block_cols = z->r->cols,
                                .stochastic = z->r->stochastic,
                                .stream = "x"};
    tt_value *ids = tt_input(b, "ids"), *s = NULL;
    tt_value *x = tt_embedding_w(b, ids, weight(b, "wide", V, F));
    tt_value *q = tt_quantize(b, tt_stop_gradient(b, x), &o, &s);
    tt_value *y = tt_add(b, x, tt_dequantize(b, q, s, &o));
    y = tt_linear_w(b, y, weight(b, "down", D, F));
    y = tt_linear_w(b, y, weight(b, "head", V, D));
    tt_output(b, "logits", y);
    tt_output(b, "loss", tt_cross_entropy(b, y, tt_input(b, "labels")));
}

static void check_pass(void *user, const char *pass, built *x)
{
    static const sim_opts narrow = {.narrow = true};
    if (strcmp(pass, "place") && strcmp(pass, "lower"))
        return;
    sim *s = sim_run(x->g, &narrow);
    if (s->failure[0])
        fail_msg("%s, after %s: %s", (const char *)user, pass, s->failure);
    sim_free(s);
}

static void check_sizes(int64_t ffn, int64_t per_line)
{
    for (size_t m = 0; m < TT_COUNT(mesh_cases); m++)
        for (size_t i = 0; i < TT_COUNT(recipes); i++) {
            const sizes z = {ffn, &recipes[i]};
            char context[200];
            built x;
            tt_error err = {0};
            int64_t lines = 1;
            for (int a = 0; a < 4 && mesh_cases[m].atoms[a].name; a++)
                if (!strncmp(mesh_cases[m].atoms[a].name, "dp_", 3))
                    lines *= mesh_cases[m].atoms[a].size;
            const job j = {.mesh = &mesh_cases[m],
                           .tokens = lines * per_line,
                           .lines = lines,
                           .metrics = true,
                           .describe = describe,
                           .user = &z};
            snprintf(context, sizeof context, "%s on %s", recipes[i].name, mesh_cases[m].name);
            const char *bad = build_job(&j, NULL, check_pass, context, &x, &err);
            if (bad)
                fail_msg("%s: %s: %s", context, bad, err.text);
            built_free(&x);
        }
}

static void test_quantized_numbers_are_the_same_on_every_mesh(void **state)
{
    (void)state;
    check_sizes(24, 12);
}

static void test_where_blocks_do_not_divide(void **state)
{
    (void)state;
    check_sizes(14, 11);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_quantized_numbers_are_the_same_on_every_mesh),
        cmocka_unit_test(test_where_blocks_do_not_divide),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
