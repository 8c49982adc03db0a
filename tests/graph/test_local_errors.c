/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/local.h"

/* An op with TT_OP_LOCAL whose decomposition does not keep what its rule or its flags promise is an error;
 * linear_inputs is a promise that a sum may wait. */

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
        cmocka_unit_test(test_a_partial_operand_passes_through_if_the_op_is_linear),
        cmocka_unit_test(test_broken_promises_are_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
