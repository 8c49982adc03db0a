/* SPDX-License-Identifier: Apache-2.0 */
#include "infer/adjust.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <ttrun/option.h>

#include <cmocka.h>

/* What a request changes of logits, beside the formulas of OpenAI's reference and of transformers'
 * RepetitionPenaltyLogitsProcessor. */

enum { VOCAB = 6, END = 3 };
static const float before[VOCAB] = {2.0f, -1.0f, 0.5f, 3.0f, -2.0f, -INFINITY};
static const int32_t prompt[] = {0, 0, 5}, text[] = {1, 1, 3}, ends[] = {END, 5};
static const tt_logit_bias bias[] = {
    {4, 10.0f},
    {0, -0.5f}
};

static void test_logits_are_changed_as_asked(void **state)
{
    static const struct {
        tt_adjust_opts o;
        float after[VOCAB];
    } rows[] = {
        {{0},                                                {2, -1, 0.5f, 3, -2, -INFINITY}        },
        {{.repetition = 1},                                  {2, -1, 0.5f, 3, -2, -INFINITY}        },
        {{.repetition = 2},                                  {1, -2, 0.5f, 1.5f, -2, -INFINITY}     },
        {{.presence = 0.5},                                  {2, -1.5f, 0.5f, 2.5f, -2, -INFINITY}  },
        {{.presence = -0.5},                                 {2, -0.5f, 0.5f, 3.5f, -2, -INFINITY}  },
        {{.frequency = 0.25},                                {2, -1.5f, 0.5f, 2.75f, -2, -INFINITY} },
        {{.repetition = 2, .presence = 0.5, .frequency = 1}, {1, -4.5f, 0.5f, 0, -2, -INFINITY}     },
        {{.bias = bias, .n_bias = 2},                        {1.5f, -1, 0.5f, 3, 8, -INFINITY}      },
        {{.repetition = 2, .bias = bias, .n_bias = 2},       {0.75f, -2, 0.5f, 1.5f, 8, -INFINITY}  },
        {{.min_new = 3},                                     {2, -1, 0.5f, 3, -2, -INFINITY}        },
        {{.min_new = 4},                                     {2, -1, 0.5f, -INFINITY, -2, -INFINITY}},
    };
    (void)state;
    for (size_t i = 0; i < TT_COUNT(rows); i++) {
        float logits[VOCAB];
        tt_adjust a;
        memcpy(logits, before, sizeof logits);
        assert_int_equal(tt_adjust_init(&a, &rows[i].o, VOCAB, prompt, TT_COUNT(prompt), NULL),
                         TT_OK);
        for (size_t k = 0; k < TT_COUNT(text); k++)
            tt_adjust_took(&a, text[k]);
        if (tt_adjust_is_needed(&a, TT_COUNT(text)))
            tt_adjust_logits(&a, logits, VOCAB, TT_COUNT(text), ends, TT_COUNT(ends));
        for (int k = 0; k < VOCAB; k++)
            if (logits[k] != rows[i].after[k])
                fail_msg("row %zu, id %d: %g, not %g", i, k, (double)logits[k],
                         (double)rows[i].after[k]);
        tt_adjust_free(&a);
    }
}

static void test_what_changes_nothing_is_not_needed(void **state)
{
    static const struct {
        tt_adjust_opts o;
        bool needed;
    } rows[] = {
        {{0},                         false},
        {{.repetition = 1},           false},
        {{.repetition = 1.1},         true },
        {{.presence = 0.1},           true },
        {{.frequency = -0.1},         true },
        {{.bias = bias, .n_bias = 1}, true },
        {{.min_new = 2},              false},
        {{.min_new = 3},              true },
    };
    (void)state;
    for (size_t i = 0; i < TT_COUNT(rows); i++) {
        tt_adjust a;
        assert_int_equal(tt_adjust_init(&a, &rows[i].o, VOCAB, prompt, 2, NULL), TT_OK);
        assert_int_equal(tt_adjust_is_needed(&a, 2), rows[i].needed);
        tt_adjust_free(&a);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_logits_are_changed_as_asked),
        cmocka_unit_test(test_what_changes_nothing_is_not_needed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
