/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/sim.h"
#include "passes/narrow.h"
#include <ttrun/quantize.h>

#include "graph/llama.c"
#include "graph/sim.c"

/* A weight that is quantized before it is gathered: the gather carries float8, and where nothing is gathered nothing is built. */

static void describe(tt_builder *b, const void *user)
{
    const tt_dim D = TT_DIM(10, "embed"), F = TT_DIM(24, "ffn"), V = TT_DIM(19, "vocab");
    const tt_quantize_opts o = {
        .struct_size = sizeof o, .format = TT_LOW_E4M3, .rule = TT_SCALE_F32};
    (void)user;
    tt_value *x = tt_embedding_w(b, tt_input(b, "ids"), weight(b, "wide", V, F)), *s = NULL;
    tt_value *q = tt_quantize(b, weight(b, "down", D, F), &o, &s);
    x = tt_linear_w(b, x, tt_dequantize(b, q, s, &o));
    x = tt_linear_w(b, x, weight(b, "head", V, D));
    tt_output(b, "logits", x);
    tt_output(b, "loss", tt_cross_entropy(b, x, tt_input(b, "labels")));
}

/* Builds the model on a mesh and narrows it. Returns how many nodes that adds. */
static int narrowed(const char *mesh, built *x, int *n_fetches_of_float8)
{
    const job j = {.mesh = mesh_named(mesh), .tokens = 24, .describe = describe};
    const tt_narrow_opts o = {0};
    tt_error err = {0};
    const char *bad = build_job(&j, "place", NULL, NULL, x, &err);
    const size_t before = bad ? 0 : x->g->nodes.n;
    for (size_t i = 0; i < before; i++) /* as a converter's tt_quantize() */
        x->g->nodes.items[i]->before_gather = x->g->nodes.items[i]->out[0]->type.dtype == TT_F8E4M3;
    if (bad || tt_pass_narrow(x->b, &o, &err) != TT_OK)
        fail_msg("%s: %s: %s", mesh, bad ? bad : "narrow", err.text);
    *n_fetches_of_float8 = 0;
    for (size_t i = 0; i < x->g->nodes.n; i++)
        *n_fetches_of_float8 += x->g->nodes.items[i]->op == &tt_op_fetch &&
                                x->g->nodes.items[i]->out[0]->type.dtype == TT_F8E4M3;
    return (int)x->g->nodes.n - (int)before;
}

static void test_a_gather_carries_float8(void **state)
{
    built x;
    int n = 0;
    (void)state;
    narrowed("fsdp2", &x, &n);
    assert_int_equal(n, 1);
    built_free(&x);
}

static void test_what_is_not_gathered_stays(void **state)
{
    static const char *const meshes[] = {"1", "tp2"};
    (void)state;
    for (size_t i = 0; i < TT_COUNT(meshes); i++) {
        built x;
        int n = 0;
        assert_int_equal(narrowed(meshes[i], &x, &n), 0);
        assert_int_equal(n, 0);
        built_free(&x);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_gather_carries_float8),
        cmocka_unit_test(test_what_is_not_gathered_stays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
