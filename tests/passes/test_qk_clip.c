/* SPDX-License-Identifier: Apache-2.0 */
#include "passes/passes.h"
#include "passes/qk_clip.h"
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <ttrun/model.h>

#include <cmocka.h>

/* Which rows of which parameters QK-clip multiplies, in models that write attention otherwise than those of
 * plugins/models: one weight for queries, keys and values, heads that are interleaved, positions on a part of a
 * head; and what is refused. */

enum { T = 8, D = 12, H = 3, HD = 4 };

typedef struct described {
    tt_arena *a;
    tt_op_table ops;
    tt_builder *b;
    tt_value *x; /* [T,D] */
} described;

static void begin(described *m)
{
    *m = (described){.a = tt_arena_new()};
    m->ops.core = tt_core_ops(&m->ops.n_core);
    const tt_builder_opts o = {.ops = &m->ops, .tokens = T, .sequences = 1};
    m->b = tt_builder_new(m->a, &o);
    m->x = tt_embedding(m->b, tt_input(m->b, "ids"), "embed", TT_DIM(7, "vocab"),
                        TT_DIM(D, "embed"), NULL);
}

static tt_dim heads_dim(const char *label)
{
    return TT_DIM_UNIT(H * HD, label, HD);
}

/* Part i of three of x [T,3*H*HD]. */
static tt_value *third(tt_builder *b, tt_value *x, int i)
{
    const tt_dim dims[2] = {tt_value_type(x)->dims[0], heads_dim("heads")};
    x = tt_slice(b, x, 1, i * H * HD, (i + 1) * H * HD);
    return tt_reshape(b, x, dims, 2);
}

static tt_value *project(described *m, const char *name)
{
    return tt_linear(m->b, m->x, name, heads_dim("heads"), NULL);
}

static tt_status find(described *m, tt_error *err)
{
    if (tt_builder_error(m->b))
        fail_msg("%s", tt_builder_error(m->b)->text);
    return tt_qk_clip_find(tt_builder_graph(m->b), 100, err);
}

static const tt_qk_param *found(const described *m, const char *name)
{
    const tt_qk_clip *c = tt_builder_graph(m->b)->qk_clip;
    for (size_t i = 0; i < c->params.n; i++)
        if (!strcmp(c->params.items[i].param->name, name))
            return &c->params.items[i];
    return NULL;
}

static void expect_refused(described *m, const char *words)
{
    tt_error err = {0};
    assert_int_equal(find(m, &err), TT_EUNSUPPORTED);
    if (!strstr(err.text, words))
        fail_msg("\"%s\" has no \"%s\"", err.text, words);
    tt_arena_free(m->a);
}

/* One weight and one bias for queries, keys and values; the first half of each head is rotated. */
static void test_one_weight_for_all_three(void **state)
{
    described m;
    tt_error err = {0};
    (void)state;
    begin(&m);
    const tt_rope_opts rope = {.head_dim = HD, .rotary_dim = HD / 2};
    tt_value *all =
        tt_linear(m.b, m.x, "qkv", TT_DIM(3 * H * HD, "heads"), &(tt_linear_opts){.bias = 1});
    tt_value *q = tt_rope(m.b, tt_scale(m.b, third(m.b, all, 0), 0.3), tt_input(m.b, "pos"), &rope),
             *k = tt_rope(m.b, third(m.b, all, 1), tt_input(m.b, "pos"), &rope);
    tt_output(m.b, "logits", tt_attention(m.b, q, k, third(m.b, all, 2), HD, NULL));
    assert_int_equal(find(&m, &err), TT_OK);
    const tt_qk_param *both[] = {found(&m, "qkv.weight"), found(&m, "qkv.bias")};
    for (int i = 0; i < 2; i++) {
        assert_non_null(both[i]);
        assert_int_equal(both[i]->n_rows, 3 * H * HD);
        assert_int_equal(both[i]->bias, i == 1);
        for (int r = 0; r < 3 * H * HD; r++) {
            assert_int_equal(both[i]->power[r], r < 2 * H * HD ? 1 : 0);
            if (both[i]->power[r])
                assert_int_equal(both[i]->head[r], r % (H * HD) / HD);
        }
    }
    tt_arena_free(m.a);
}

/* The rows of a head are apart: element j of head h is row j H + h. */
static void test_interleaved_heads(void **state)
{
    static const int swapped[] = {0, 2, 1};
    described m;
    tt_error err = {0};
    (void)state;
    begin(&m);
    tt_value *q = project(&m, "q");
    const tt_dim apart[3] = {tt_value_type(q)->dims[0], TT_DIM(HD, NULL), TT_DIM(H, NULL)},
                 joined[2] = {apart[0], heads_dim("heads")};
    q = tt_reshape(m.b, tt_transpose(m.b, tt_reshape(m.b, q, apart, 3), swapped), joined, 2);
    tt_output(m.b, "logits", tt_attention(m.b, q, project(&m, "k"), project(&m, "v"), HD, NULL));
    assert_int_equal(find(&m, &err), TT_OK);
    for (int r = 0; r < H * HD; r++)
        assert_true(found(&m, "q.weight")->head[r] == r % H &&
                    found(&m, "q.weight")->power[r] == 1 &&
                    found(&m, "k.weight")->head[r] == r / HD);
    assert_null(found(&m, "v.weight"));
    tt_arena_free(m.a);
}

/* Keys that are read elsewhere stay as they are, and the queries have the whole factor. */
static void test_keys_that_are_values_stay(void **state)
{
    described m;
    tt_error err = {0};
    (void)state;
    begin(&m);
    tt_value *k = project(&m, "k");
    tt_output(m.b, "logits", tt_attention(m.b, project(&m, "q"), k, k, HD, NULL));
    assert_int_equal(find(&m, &err), TT_OK);
    assert_null(found(&m, "k.weight"));
    for (int r = 0; r < H * HD; r++)
        assert_int_equal(found(&m, "q.weight")->power[r], 2);
    tt_arena_free(m.a);
}

/* Of the elements that positions mix, only some are read: which factor the others have, nobody knows. Such keys stay
 * as they are, and such queries are refused. One head, whose elements are the first or the last of those. */
static void test_a_part_of_what_positions_mix(void **state)
{
    const tt_rope_opts rope = {.head_dim = 2 * HD};
    const tt_dim head = TT_DIM_UNIT(HD, "heads", HD), twice = TT_DIM_UNIT(2 * HD, "heads", 2 * HD);
    (void)state;
    for (int last = 0; last < 2; last++)
        for (int queries = 0; queries < 2; queries++) {
            described m;
            tt_error err = {0};
            begin(&m);
            tt_value *part = tt_linear(m.b, m.x, "part", twice, NULL),
                     *whole = tt_linear(m.b, m.x, "whole", head, NULL);
            part = tt_rope(m.b, part, tt_input(m.b, "pos"), &rope);
            const tt_dim dims[2] = {tt_value_type(part)->dims[0], head};
            part = tt_reshape(m.b, tt_slice(m.b, part, 1, last * HD, (last + 1) * HD), dims, 2);
            tt_output(m.b, "logits",
                      tt_attention(m.b, queries ? part : whole, queries ? whole : part,
                                   tt_linear(m.b, m.x, "v", head, NULL), HD, NULL));
            if (queries) {
                expect_refused(&m, "elements with different factors are mixed by op rope");
                continue;
            }
            assert_int_equal(find(&m, &err), TT_OK);
            assert_null(found(&m, "part.weight"));
            for (int r = 0; r < HD; r++)
                assert_int_equal(found(&m, "whole.weight")->power[r], 2);
            tt_arena_free(m.a);
        }
}

static void test_queries_that_are_read_elsewhere_are_refused(void **state)
{
    described m;
    (void)state;
    begin(&m);
    tt_value *q = project(&m, "q");
    tt_value *y = tt_attention(m.b, q, project(&m, "k"), project(&m, "v"), HD, NULL);
    tt_output(m.b, "logits", tt_add(m.b, y, q));
    expect_refused(&m, "what their weights compute is also read by op add");
    begin(&m);
    q = project(&m, "q");
    y = tt_attention(m.b, q, project(&m, "k"), project(&m, "v"), HD, NULL);
    tt_output(m.b, "logits", tt_add(m.b, y, project(&m, "q"))); /* the same weight again */
    expect_refused(&m, "their weights are also read by op linear");
    begin(&m);
    q = project(&m, "q");
    const tt_dim by_head[2] = {TT_DIM(T * H, NULL), TT_DIM(HD, NULL)}; /* no rows of tokens */
    tt_output(m.b, "logits", tt_attention(m.b, q, project(&m, "k"), project(&m, "v"), HD, NULL));
    tt_output(m.b, "queries", tt_reshape(m.b, q, by_head, 2));
    expect_refused(&m, "what their weights compute is also read by op reshape");
}

/* A weight that is read in another dtype is found behind its cast, which is no other reader. */
static void test_weights_behind_casts(void **state)
{
    described m;
    tt_error err = {0};
    (void)state;
    begin(&m);
    const tt_dim dims[2] = {heads_dim("heads"), TT_DIM(D, "embed")};
    tt_value *w = tt_cast(m.b, tt_param(m.b, "w.weight", dims, 2, NULL), TT_F16);
    tt_value *q = tt_linear_w(m.b, tt_cast(m.b, m.x, TT_F16), w);
    tt_value *y =
        tt_attention(m.b, tt_cast(m.b, q, TT_F32), project(&m, "k"), project(&m, "v"), HD, NULL);
    tt_output(m.b, "logits", y);
    if (find(&m, &err) != TT_OK)
        fail_msg("%s", err.text);
    assert_non_null(found(&m, "w.weight"));
    tt_arena_free(m.a);
}

static void test_other_ops_are_refused(void **state)
{
    described m;
    (void)state;
    begin(&m);
    tt_output(m.b, "logits",
              tt_attention(m.b, tt_tanh(m.b, project(&m, "q")), project(&m, "k"), project(&m, "v"),
                           HD, NULL));
    expect_refused(&m, "no factor of their weights goes through op tanh");
    begin(&m);
    tt_value *q = project(&m, "q");
    tt_output(m.b, "logits",
              tt_attention(m.b, tt_mul(m.b, q, tt_sigmoid(m.b, project(&m, "gate"))),
                           project(&m, "k"), project(&m, "v"), HD, NULL));
    expect_refused(&m, "they are a product of two activations");
    begin(&m);
    tt_output(m.b, "logits", m.x);
    expect_refused(&m, "the model has no attention");
}

static void test_two_attentions_in_a_scope_are_refused(void **state)
{
    described m;
    (void)state;
    begin(&m);
    tt_value *y = tt_attention(m.b, project(&m, "q"), project(&m, "k"), project(&m, "v"), HD, NULL);
    tt_output(m.b, "logits", tt_attention(m.b, project(&m, "q2"), project(&m, "k2"), y, HD, NULL));
    expect_refused(&m, "two attention ops");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_weight_for_all_three),
        cmocka_unit_test(test_interleaved_heads),
        cmocka_unit_test(test_keys_that_are_values_stay),
        cmocka_unit_test(test_a_part_of_what_positions_mix),
        cmocka_unit_test(test_queries_that_are_read_elsewhere_are_refused),
        cmocka_unit_test(test_weights_behind_casts),
        cmocka_unit_test(test_other_ops_are_refused),
        cmocka_unit_test(test_two_attentions_in_a_scope_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
