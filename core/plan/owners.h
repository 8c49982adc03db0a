/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_PLAN_OWNERS_H
#define TT_PLAN_OWNERS_H
#include "base/base.h"

/* For the verifiers: a map from the bytes of a space to who wrote them last. A piece is halved until
 * each part has one owner, so that a write costs little in a plan of many layers, too. */

#define TT_OWNER_UNKNOWN (-2) /* all bytes at first; owners are numbers of the caller's choice */

typedef struct tt_owner_piece {
    int owner; /* MIXED: see its halves */
    int half;  /* index of the lower one, the upper one is next; 0: never halved */
} tt_owner_piece;

typedef struct tt_owners {
    tt_arena *a;
    TT_VEC(tt_owner_piece) pieces; /* the first is the whole space */
    int64_t bytes, span; /* span: a power of two, so that halves end where memory is aligned */
} tt_owners;

void tt_owners_init(tt_owners *m, tt_arena *a, int64_t bytes);
void tt_owners_forget(tt_owners *m);
/* false: not inside the space. */
bool tt_owners_write(tt_owners *m, int64_t begin, int64_t bytes, int owner);
bool tt_owners_hold(const tt_owners *m, int64_t begin, int64_t bytes, int owner);
/* Outside the space: that of the nearest byte. */
int tt_owner_at(const tt_owners *m, int64_t begin);

#endif
