/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "exec/job.h"
#include "folder_test.h"
#include "train/saver.h"
#include <sched.h>

/* A saver of one rank that other ranks could have joined, so that a save stays in flight, written and not
 * published, until the caller says that all have written. */

typedef struct saving {
    job j;
    tt_threads *threads;
    tt_dist dist;
    tt_rank rank;
    tt_saver *saver;
    char folder[TEST_FOLDER];
} saving;

static void must(tt_status s, const tt_error *err)
{
    if (s != TT_OK)
        fail_msg("%s", err->text);
}

static void open_saving(saving *s)
{
    tt_error err = {0};
    memset(s, 0, sizeof *s);
    assert_true(test_folder("saver", s->folder));
    job_open(&s->j, "model.args.n_layers 1 training.seq_len 8");
    must(tt_threads_new(1, 0, &s->threads, &err), &err);
    must(tt_threads_join(s->threads, 0, &s->dist, &err), &err);
    must(tt_rank_open(&s->j.setup, &s->dist, false, &s->rank, &err), &err);
    must(tt_rank_init_params(&s->rank, &err), &err);
    const tt_saver_opts o = {
        .rank = &s->rank,
        .folder = s->folder,
        .state = {.job_json = "{}",
                  .model_fingerprint = s->j.setup.model_fingerprint,
                  .tokenizer_fingerprint = "",
                  .world = 1},
        .background = true,
        .weights_as = TT_N_DTYPES
    };
    must(tt_saver_new(&o, &s->saver, &err), &err);
}

static void close_saving(saving *s)
{
    assert_true(tt_saver_free(s->saver));
    tt_rank_close(&s->rank);
    tt_dist_leave(&s->dist);
    tt_threads_free(s->threads);
    job_close(&s->j);
}

static void start(saving *s, int64_t step)
{
    tt_error err = {0};
    const tt_trainer_state st = {.step = step, .validation_due = true};
    must(tt_saver_start(s->saver, &st, TT_SAVE_WHOLE, &err), &err);
    while (tt_saver_poll(s->saver) == 2)
        sched_yield();
    assert_int_equal(tt_saver_poll(s->saver), 1);
}

static void publish(saving *s)
{
    tt_error err = {0};
    must(tt_saver_finish(s->saver, &err), &err);
}

/* Whether the checkpoint says that the validation after its step is due. */
static bool due(const saving *s, int64_t step)
{
    tt_trainer_state st = {0};
    tt_error err = {0};
    const char *at = tt_arena_printf(s->j.arena, "%s/step-%lld", s->folder, (long long)step);
    must(tt_ckpt_read_state(at, s->j.arena, &st, &err), &err);
    return st.validation_due;
}

static void test_a_checkpoint_says_that_its_validation_has_ended(void **state)
{
    saving s;
    (void)state;
    open_saving(&s);
    start(&s, 1); /* the validation has not ended */
    publish(&s);
    assert_true(due(&s, 1));
    start(&s, 2); /* it ends while the save is in flight; that of step 1 too, which is published */
    tt_saver_validated(s.saver, 1);
    tt_saver_validated(s.saver, 2);
    publish(&s);
    assert_false(due(&s, 1));
    assert_false(due(&s, 2));
    start(&s, 3); /* a validation of another step, while this one is in flight */
    tt_saver_validated(s.saver, 2);
    publish(&s);
    assert_true(due(&s, 3));
    tt_saver_validated(s.saver, 3); /* after it */
    assert_false(due(&s, 3));
    close_saving(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_checkpoint_says_that_its_validation_has_ended),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
