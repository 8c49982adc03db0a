/* SPDX-License-Identifier: Apache-2.0 */
#include "exec/job.h"

/* What a program that takes over from another one has of its states: those of the same name that lie in the same
 * place and have the same type; all others are refused, not converted. */

typedef struct opened {
    job j;
    tt_rank r;
} opened;

static void open_rank(opened *o, const char *how)
{
    const tt_dist d = {.world = 1};
    tt_error err = {0};
    job_open(&o->j, how);
    if (tt_rank_open(&o->j.setup, &d, false, &o->r, &err) != TT_OK ||
        tt_rank_init_params(&o->r, &err) != TT_OK)
        fail_msg("%s: %s", how, err.text);
}

static void close_rank(opened *o)
{
    tt_rank_close(&o->r);
    job_close(&o->j);
}

static void test_states_are_kept_in_their_place_and_type_only(void **state)
{
    static const char elsewhere[] =
        " would lie elsewhere or have another type, so its values cannot be kept";
    static const struct {
        const char *next;
        bool kept;
        int added, dropped;
    } rows[] = {
        {"",                          true,  0, 0},
        {"model.args.n_layers 6",     true,  9, 0},
        {"model.args.n_layers 4",     true,  0, 9},
        {"training.dtype bfloat16",   false, 0, 0},
        {"model.args.hidden_dim 72",  false, 0, 0},
        {"model.args.vocab_size 264", false, 0, 0},
    };
    opened old;
    (void)state;
    open_rank(&old, "");
    for (size_t i = 0; i < TT_COUNT(rows); i++) {
        opened next;
        tt_kept k = {0};
        tt_error err = {0};
        open_rank(&next, rows[i].next);
        const tt_status st = tt_rank_keep_states(&next.r, &old.r, &k, &err);
        if ((st == TT_OK) != rows[i].kept)
            fail_msg("%s: %s", rows[i].next, st == TT_OK ? "kept" : err.text);
        if (st == TT_OK) {
            assert_int_equal(k.added, rows[i].added);
            assert_int_equal(k.dropped, rows[i].dropped);
        } else {
            assert_int_equal(st, TT_EUNSUPPORTED);
            assert_non_null(strstr(err.text, elsewhere));
        }
        close_rank(&next);
    }
    close_rank(&old);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_states_are_kept_in_their_place_and_type_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
