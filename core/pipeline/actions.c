/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/schedule_impl.h"

/* Functions with which the generators of schedules append actions. */

void tt_schedule_push(tt_schedule *s, int rank, tt_action_kind kind, int stage, int micro)
{
    s->actions[rank][s->n_actions[rank]++] = (tt_action){kind, stage, micro};
    s->splits = s->splits || kind == TT_ACTION_I;
}
