/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_LOSSES_H
#define TT_LOSSES_H
#include "checkpoint/checkpoint.h"

/* Rank 0: the newest losses that were logged, which each checkpoint has. */
typedef struct tt_losses {
    tt_step_loss *items; /* room for TT_MOST_LOSSES; NULL: another rank */
    size_t n;
} tt_losses;

tt_status tt_losses_open(tt_losses *l, tt_error *err);
void tt_losses_close(tt_losses *l);
/* When there is no room, the older half goes. */
void tt_losses_add(tt_losses *l, tt_step_loss newest);
void tt_losses_resume(tt_losses *l, const tt_trainer_state *from);

#endif
