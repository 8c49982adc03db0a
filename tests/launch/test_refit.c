/* SPDX-License-Identifier: Apache-2.0 */
#include "launch/refit.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* The mesh that a supervisor takes for as many ranks as there are. */

static const tt_refit_job plain = {.pp = 1,
                                   .dp_replicate = 1,
                                   .dp_shard = -1,
                                   .cp = 1,
                                   .tp = 1,
                                   .ep = 1,
                                   .local_batch = 1,
                                   .global_batch = 24};

static void fits(const tt_refit_job *j, int most, int replicate, int shard)
{
    tt_refit m;
    tt_error err = {0};
    if (tt_refit_mesh(j, 1, most, 8, &m, &err) != TT_OK)
        fail_msg("%d ranks: %s", most, err.text);
    assert_int_equal(m.dp_replicate, replicate);
    assert_int_equal(m.dp_shard, shard);
    assert_int_equal(m.world, replicate * shard * j->pp * j->cp * j->tp);
    assert_true(m.world <= most);
}

static void refuses(const tt_refit_job *j, int least, int most, const char *text)
{
    tt_refit m;
    tt_error err = {0};
    assert_int_equal(tt_refit_mesh(j, least, most, most, &m, &err), TT_EINVAL);
    if (!strstr(err.text, text))
        fail_msg("\"%s\" lacks \"%s\"", err.text, text);
}

static void test_the_rest_shrinks_first(void **state)
{
    (void)state;
    fits(&plain, 8, 1, 8);
    fits(&plain, 7, 1, 6); /* 7 does not divide 24 */
    fits(&plain, 5, 1, 4);
    fits(&plain, 1, 1, 1);
    tt_refit_job j = plain;
    j.dp_replicate = 2;
    fits(&j, 8, 2, 4);
    fits(&j, 7, 2, 3);
    fits(&j, 5, 2, 2);
    fits(&j, 1, 1, 1);
}

/* Fewer replicas leave each rank's part of the parameters as it is. */
static void test_replicas_shrink_before_an_explicit_shard(void **state)
{
    (void)state;
    tt_refit_job j = plain;
    j.dp_replicate = 4;
    j.dp_shard = 2;
    fits(&j, 8, 4, 2);
    fits(&j, 7, 3, 2);
    fits(&j, 3, 3, 1); /* three ranks are more than two */
    fits(&j, 2, 1, 2);
    fits(&j, 1, 1, 1);
}

static void test_no_degree_grows(void **state)
{
    (void)state;
    tt_refit_job j = plain;
    j.dp_shard = 2;
    fits(&j, 8, 1, 2);
}

static void test_other_degrees_are_kept(void **state)
{
    (void)state;
    tt_refit_job j = plain;
    j.tp = 2;
    j.pp = 2;
    fits(&j, 8, 1, 2);
    fits(&j, 7, 1, 1);
    refuses(&j, 1, 3, "no mesh of 1 to 3 ranks keeps pp 2 × cp 1 × tp 2");
    j = plain;
    j.ep = 4; /* of dp_shard: 6 ranks have no 4 groups of experts */
    fits(&j, 8, 1, 8);
    fits(&j, 7, 1, 4);
    refuses(&j, 1, 3, "(ep 4)");
}

static void test_the_global_batch_is_kept(void **state)
{
    (void)state;
    tt_refit m;
    tt_refit_job j = plain;
    j.local_batch = 3;
    j.global_batch = -1; /* of 8 ranks, however many there are now */
    assert_int_equal(tt_refit_mesh(&j, 1, 5, 8, &m, NULL), TT_OK);
    assert_int_equal(m.global_batch, 24);
    assert_int_equal(m.world, 4);
    j.global_batch = 10;
    refuses(&j, 1, 8, "divides the global batch of 10 samples");
    j.global_batch = 9;
    assert_int_equal(tt_refit_mesh(&j, 2, 8, 8, &m, NULL), TT_OK);
    assert_int_equal(m.world, 3);
    refuses(&j, 4, 8, "no mesh of 4 to 8 ranks");
}

static void test_nonsense_is_refused(void **state)
{
    (void)state;
    tt_refit_job j = plain;
    j.dp_shard = 0;
    refuses(&j, 1, 8, "no mesh");
    j = plain;
    j.tp = j.cp = j.pp = 1000000;
    refuses(&j, 1, 8, "no mesh");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_rest_shrinks_first),
        cmocka_unit_test(test_replicas_shrink_before_an_explicit_shard),
        cmocka_unit_test(test_no_degree_grows),
        cmocka_unit_test(test_other_degrees_are_kept),
        cmocka_unit_test(test_the_global_batch_is_kept),
        cmocka_unit_test(test_nonsense_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
