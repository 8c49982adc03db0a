/* SPDX-License-Identifier: Apache-2.0 */
#include "exec/dead.h"
#include "heap.h"
#include "tier.h"
#include <math.h>

/* debug.poison: dead bytes are NaN, canaries follow every space, and the high-water mark is
 * measured. A run with it is bitwise equal to a run without, so nothing reads dead bytes; and its
 * high-water mark is the plan's, to the byte. */

/* More rows of logits than a piece of the loop over tokens. */
#define LOOP                                                                                       \
    "model.args.vocab_size 4100 model.args.n_layers 1 training.local_batch_size 1 "                \
    "training.seq_len 300"

static void poisoned_is_normal(const char *mesh, const char *more)
{
    steps normal, poisoned;
    char text[500];
    snprintf(text, sizeof text, "%s%s%s", mesh, *mesh ? " " : "", more);
    steps_run(text, 2, &normal);
    assert_true(isfinite(normal.loss[1]) && normal.loss[1] > 0);
    strcat(text, " debug.poison true");
    steps_run(text, 2, &poisoned);
    steps_same_bits(&normal, &poisoned, text);
}

static void test_poisoned_run_is_the_normal_run(void **state)
{
    static const char *const backends[] = {
        "backend.name cpu", /* small enough for the slow backend: */
        "backend.name reference training.seq_len 7 model.args.dim 24 model.args.hidden_dim 37"};
    (void)state;
    for (size_t k = 0; k < TT_COUNT(backends); k++)
        for (size_t i = 0; i < TT_COUNT(job_meshes); i++)
            poisoned_is_normal(job_meshes[i], backends[k]);
    poisoned_is_normal(LOOP, backends[0]);
}

/* And after the step all of it is poison. The last job has a loop over tokens. */
static void test_high_water_is_the_plan(void **state)
{
    (void)state;
    for (size_t i = 0; i <= TT_COUNT(job_meshes); i++) {
        steps s;
        char text[500];
        const char *mesh = i < TT_COUNT(job_meshes) ? job_meshes[i] : LOOP;
        snprintf(text, sizeof text, "%s%sdebug.poison true", mesh, *mesh ? " " : "");
        dead_left = 0;
        steps_after = dead_look;
        steps_run(text, 1, &s);
        steps_after = NULL;
        if (dead_left)
            fail_msg("%s: %lld dead bytes are not poison", text, (long long)dead_left);
        int64_t used = 0, planned = 0;
        for (int r = 0; r < 16; r++) {
            assert_true(s.ranks[r].high_water <= s.ranks[r].planned);
            used = TT_MAXV(used, s.ranks[r].high_water);
            planned = TT_MAXV(planned, s.ranks[r].planned);
        }
        if (used != planned)
            fail_msg("%s: %lld bytes used, %lld planned", text, (long long)used,
                     (long long)planned);
    }
    steps s;
    steps_run("", 1, &s);
    assert_int_equal(s.ranks[0].high_water, 0); /* measured only with poison */
}

/* One rank's executor, which a test can break. */
static tt_rank open_rank(job *j, const char *overrides, bool apart)
{
    tt_rank r;
    tt_dist d = {.world = 1};
    tt_error err = {0};
    job_open(j, overrides);
    j->setup.apart = apart;
    if (tt_rank_open(&j->setup, &d, false, &r, &err) != TT_OK)
        fail_msg("%s", err.text);
    assert_int_equal(tt_rank_init_params(&r, &err), TT_OK);
    return r;
}

static void test_canary_names_the_op(void **state)
{
    job j;
    steps s = {0};
    (void)state;
    tt_rank r = open_rank(&j, "debug.poison true", false);
    s.setup = &j.setup;
    for (int at = 0; at < 256; at += 85) {
        tt_error err = {0};
        uint8_t *canary = r.exec->space[TT_SPACE_STATE] + r.plan->bytes[TT_SPACE_STATE] + at;
        assert_int_equal(steps_one(&s, &r, 0, 0, &err), TT_OK);
        *canary ^= 1;
        assert_int_equal(steps_one(&s, &r, 1, 0, &err), TT_EINTERNAL);
        assert_non_null(strstr(err.text, "wrote behind the state memory"));
        *canary ^= 1;
    }
    tt_rank_close(&r);
    job_close(&j);
}

static void test_far_write_is_found_at_the_end_of_the_step(void **state)
{
    job j;
    steps s = {0};
    tt_error err = {0};
    (void)state;
    tt_rank r = open_rank(&j, "debug.poison true", false);
    s.setup = &j.setup;
    assert_int_equal(steps_one(&s, &r, 0, 0, &err), TT_OK);
    r.exec->space[TT_SPACE_WORK][r.plan->bytes[TT_SPACE_WORK] + TT_CANARY_BYTES - 1] ^= 1;
    assert_int_equal(steps_one(&s, &r, 1, 0, &err), TT_EINTERNAL);
    assert_non_null(strstr(err.text, "memory that it was not given"));
    tt_rank_close(&r);
    job_close(&j);
}

/* If a value dies where it is made and not after its last reader, the run must show it: by NaN
 * in the loss or by an error. */
static void test_early_death_changes_the_result(void **state)
{
    int n = 0, seen = 0;
    steps right;
    (void)state;
    steps_run("", 1, &right);
    for (int skip_n = 0; skip_n < 12; skip_n += is_long() ? 1 : 2) {
        job j;
        steps s = {0};
        tt_error err = {0};
        /* except for a value whose bytes an output takes over: these bytes stay alive */
        tt_rank r = open_rank(&j, "debug.poison true debug.disable_fusion true", true);
        const tt_section *f = tt_program_section(r.plan->program, 0, TT_SECTION_F);
        tt_instr *all = r.plan->program->instrs;
        int left = skip_n;
        for (tt_instr *dies = all + f->begin, *e; dies < all + f->end; dies++) {
            if (!dies->n_last_used || dies->kind == TT_INSTR_END_LOOP)
                continue;
            for (e = all + f->begin; e < dies; e++)
                if (e->kind == TT_INSTR_KERNEL && e->out[0] == dies->last_used[0] &&
                    strcmp(e->scope, "metrics") && left-- == 0) { /* in neither number */
                    e->last_used = dies->last_used;
                    e->n_last_used = 1;
                    n++;
                    s.setup = &j.setup;
                    const tt_status st = steps_one(&s, &r, 0, 0, &err);
                    seen += st != TT_OK || memcmp(&s.loss[0], &right.loss[0], sizeof(double)) ||
                            memcmp(&s.norm[0], &right.norm[0], sizeof(double));
                }
        }
        tt_rank_close(&r);
        job_close(&j);
    }
    assert_true(n > 5);
    assert_int_equal(seen, n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_poisoned_run_is_the_normal_run),
        cmocka_unit_test(test_high_water_is_the_plan),
        cmocka_unit_test(test_canary_names_the_op),
        cmocka_unit_test(test_far_write_is_found_at_the_end_of_the_step),
        cmocka_unit_test(test_early_death_changes_the_result),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
