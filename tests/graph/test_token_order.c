/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/sim.h"

#include "graph/sim.c"

/* Which described graphs need the tokens of a sequence in their order, and the op for which they do
 * (core/graph/token_order.c has the rules). */

#define TOKENS 12
#define WIDTH 10

typedef tt_value *(*model_fn)(tt_builder *b, tt_value *x); /* x [T,D], of the tokens */

static tt_value *constant(tt_builder *b, tt_dim first, tt_dim second)
{
    static const float numbers[TOKENS * WIDTH];
    const tt_dim dims[2] = {first, second};
    return tt_const_array(b, numbers, dims, 2);
}

static tt_value *per_position(tt_builder *b, tt_value *x)
{
    return tt_mul(b, x, constant(b, tt_value_type(x)->dims[0], TT_DIM(1, NULL)));
}

static tt_value *per_column(tt_builder *b, tt_value *x)
{
    return tt_mul(b, x, constant(b, TT_DIM(1, NULL), tt_value_type(x)->dims[1]));
}

static tt_value *of_tokens(tt_builder *b, tt_value *x)
{
    return tt_mul(b, x, tt_tanh(b, x));
}

static tt_value *number(tt_builder *b, tt_value *x)
{
    return tt_add(b, x, tt_broadcast_to(b, tt_const(b, 2, TT_F32), tt_value_type(x)->dims, 2));
}

static tt_value *sum(tt_builder *b, tt_value *x)
{
    return tt_sum(b, x, 0, 0);
}

static tt_value *first_tokens(tt_builder *b, tt_value *x)
{
    return tt_slice(b, x, 0, 0, 3);
}

static tt_value *first_columns(tt_builder *b, tt_value *x)
{
    return tt_slice(b, x, 1, 0, 3);
}

static tt_value *rolled(tt_builder *b, tt_value *x)
{
    return tt_roll(b, x, 0, 1);
}

static tt_value *largest_token(tt_builder *b, tt_value *x)
{
    return tt_argmax(b, x, 0, 0);
}

static tt_value *largest_column(tt_builder *b, tt_value *x)
{
    return tt_argmax(b, x, 1, 0);
}

static const char *order_of(model_fn model, tt_arena *a)
{
    tt_op_table ops = sim_ops();
    const tt_builder_opts o = {
        .ops = &ops, .tokens = TOKENS, .sequences = 1, .has_kernel = sim_has_kernel};
    const tt_dim table[2] = {TT_DIM(19, "vocab"), TT_DIM(WIDTH, "embed")};
    tt_error err = {0};
    tt_builder *b = tt_builder_new(a, &o);
    tt_value *w = tt_param(b, "embed", table, 2, NULL);
    model(b, tt_embedding_w(b, tt_input(b, "ids"), w));
    tt_graph_find_order(b);
    if (tt_builder_finish(b, &err) != TT_OK)
        fail_msg("%s", err.text);
    return tt_builder_graph(b)->ordered;
}

static void test_order_is_kept_where_places_matter(void **state)
{
    static const struct {
        const char *what;
        model_fn model;
        const char *op; /* NULL: tokens may be permuted */
    } cases[] = {
        {"a constant per position",       per_position,   "op mul"   },
        {"a constant per column",         per_column,     NULL       },
        {"another value of each token",   of_tokens,      NULL       },
        {"one number for all",            number,         NULL       },
        {"a sum over tokens",             sum,            NULL       },
        {"a slice of tokens",             first_tokens,   "op slice" },
        {"a slice of columns",            first_columns,  NULL       },
        {"tokens that move on",           rolled,         "op "      },
        {"the place of a token",          largest_token,  "op argmax"},
        {"the place in a row of a token", largest_column, NULL       },
    };
    (void)state;
    for (size_t i = 0; i < TT_COUNT(cases); i++) {
        tt_arena *a = tt_arena_new();
        const char *op = order_of(cases[i].model, a);
        if (!op != !cases[i].op || (op && strncmp(op, cases[i].op, strlen(cases[i].op))))
            fail_msg("%s: order for %s", cases[i].what, op ? op : "nothing");
        tt_arena_free(a);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order_is_kept_where_places_matter),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
