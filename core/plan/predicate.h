/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_PREDICATE_H
#define TT_PREDICATE_H
#include <stdbool.h>
#include <stdint.h>

/* A predicate: in which of eight situations an instruction runs, a bit each.
 * Situation 0: first micro-batch of the step, first chunk of a loop (outside loops: always the
 * first). + 1: a later micro-batch. + 2: a later chunk. + 4: a measured step, which runs all that
 * other steps run, and more. */
typedef uint8_t tt_predicate;
#define TT_PRED_NEVER ((tt_predicate)0)
#define TT_PRED_ALWAYS ((tt_predicate)0xff)
#define TT_PRED_FIRST_MICRO ((tt_predicate)0x55)
#define TT_PRED_LATER_MICRO ((tt_predicate)0xaa)
#define TT_PRED_FIRST_CHUNK ((tt_predicate)0x33)
#define TT_PRED_LATER_CHUNK ((tt_predicate)0xcc)
#define TT_PRED_MEASURED ((tt_predicate)0xf0)
/* Of a measured step. */
static inline bool tt_predicate_holds(tt_predicate p, bool later_micro, bool later_chunk)
{
    return p >> (4 + later_micro + 2 * later_chunk) & 1;
}
/* Of a step that is not measured. */
static inline bool tt_predicate_usual(tt_predicate p, bool later_micro, bool later_chunk)
{
    return p >> (later_micro + 2 * later_chunk) & 1;
}

#endif
