/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_CONFIG_TEST_H
#define TT_CONFIG_TEST_H
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "config/job_core.h"

/* Shared by the tests of core/config: an arena per test, and jobs from text. */

static inline int arena_setup(void **state)
{
    *state = tt_arena_new();
    return 0;
}

static inline int arena_teardown(void **state)
{
    tt_arena_free(*state);
    return 0;
}

#define CONFIG_TEST(f) cmocka_unit_test_setup_teardown(f, arena_setup, arena_teardown)

/* A job from text called job.json and overrides "key", "value", …, NULL. */
static inline tt_status load(tt_arena *a, const char *text, const char *const *pairs, tt_job **job,
                             tt_error *err)
{
    tt_override o[16] = {
        {NULL, NULL}
    };
    size_t n = 0;
    for (; pairs && pairs[2 * n]; n++)
        o[n] = (tt_override){pairs[2 * n], pairs[2 * n + 1]};
    return tt_job_load_text(a, "job.json", text, strlen(text), o, n, job, err);
}

static inline tt_job *must_load(tt_arena *a, const char *text, const char *const *pairs)
{
    tt_error err = {0};
    tt_job *job = NULL;
    if (load(a, text, pairs, &job, &err) != TT_OK)
        fail_msg("%s", err.text);
    return job;
}

/* The core's sections of a job, to the end. */
static inline tt_status parse_core(tt_arena *a, const char *text, const char *const *pairs,
                                   tt_core_config *c, tt_error *err)
{
    tt_job *job;
    TT_TRY(load(a, text, pairs, &job, err));
    TT_TRY(tt_core_config_parse(job, c, err));
    return tt_job_finish(job, err);
}

#define PAIRS(...)                                                                                 \
    (const char *const[])                                                                          \
    {                                                                                              \
        __VA_ARGS__, NULL                                                                          \
    }

#endif
