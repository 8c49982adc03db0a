/* SPDX-License-Identifier: Apache-2.0 */
#include "passes/expert_replicas.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

/* How many replicas of experts fit: as many as are allowed, to the byte. One layer of 4 experts, each a matrix of
 * 10 by 10: a replica has weights of 200 bytes and gradients of 400. */

enum { EXPERTS = 4, REPLICA = 600 };

static tt_status choose(tt_replica_opts o, tt_expert_replicas *out, tt_error *err)
{
    static const tt_attrs_dims attrs = {.n_dims = 1, .dims = {{.size = EXPERTS}}};
    tt_arena *a = tt_arena_new();
    tt_value scores =
                 {
                     .type = {.n_dims = 2, .dims = {{.size = 16}, {.size = 2}}}
    },
             weights = {.type = {.n_dims = 3,
                                 .dims = {{.size = EXPERTS}, {.size = 10}, {.size = 10}}}},
             rows = {.id = 2}, counts = {.id = 3};
    tt_value *in[] = {&scores}, *out_of_route[] = {&rows, &counts},
             *operands[] = {&rows, &weights, &counts};
    tt_node route = {.op = &tt_op_expert_route,
                     .in = in,
                     .n_in = 1,
                     .out = out_of_route,
                     .n_out = 2,
                     .attrs = &attrs},
            product = {.op = &tt_op_grouped_linear, .in = operands, .n_in = 3};
    tt_graph g = {.arena = a};
    tt_vec_push(a, &g.nodes, &route);
    tt_vec_push(a, &g.nodes, &product);
    o.ranks = 2;
    o.stages = 1;
    o.compute = TT_BF16;
    const tt_status st = tt_replicas_choose(&g, &o, out, err);
    tt_arena_free(a);
    return st;
}

static void test_replicas_take_all_that_they_may(void **state)
{
    (void)state;
    for (int n = 1; n <= EXPERTS; n++) {
        tt_expert_replicas r;
        tt_error err = {0};
        char most[40];
        tt_replica_opts o = {.n = n, .micro_batches = 2, .most_bytes = n * REPLICA};
        assert_int_equal(choose(o, &r, &err), TT_OK);
        assert_int_equal(r.n, n);
        assert_true(r.per_step);
        o.most_bytes--;
        assert_int_equal(choose(o, &r, &err), TT_EINVAL);
        snprintf(most, sizeof most, "take %d at most", n - 1);
        assert_non_null(strstr(err.text, most));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_replicas_take_all_that_they_may),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
