/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/internal.h"
#include <string.h>

/* trainer.json: what is accepted prints and reads back, and from then on prints the same. (Not at
 * once: a job may spell a number in several ways, and -0.0 prints as -0, which reads as the integer
 * 0.) */

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    tt_arena *a = tt_arena_new();
    tt_trainer_state s;
    tt_manifest m;
    tt_error err = {0};
    tt_str once = {0}, twice = {0}, again = {0};
    if (tt_state_parse(a, "fuzz", (const char *)bytes, n, &s, &m, &err) == TT_OK) {
        TT_ASSERT(tt_state_print(&s, &m, &once, &err) == TT_OK);
        TT_ASSERT(tt_state_parse(a, "once", once.s, once.n, &s, &m, &err) == TT_OK);
        TT_ASSERT(tt_state_print(&s, &m, &twice, &err) == TT_OK);
        TT_ASSERT(tt_state_parse(a, "twice", twice.s, twice.n, &s, &m, &err) == TT_OK);
        TT_ASSERT(tt_state_print(&s, &m, &again, &err) == TT_OK);
        TT_ASSERT(strcmp(twice.s, again.s) == 0);
    } else {
        TT_ASSERT(err.text[0]);
    }
    tt_str_free(&once);
    tt_str_free(&twice);
    tt_str_free(&again);
    tt_arena_free(a);
    return 0;
}
