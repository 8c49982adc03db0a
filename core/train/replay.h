/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_REPLAY_H
#define TT_REPLAY_H
#include "train/loop.h"

/* What replay.c uses of replay_next.c and replicas.c. [collective] */

/* Micro-batches of a step, on two ranks each. */
tt_status tt_replay_on_next(tt_loop *l, tt_feed *feed, tt_error *err);
/* checks.c: of the products that were checked since the last call. feed: they are of micro-batches, which
 * can run again; NULL: of the update. */
tt_status tt_replay_check_products(tt_loop *l, tt_feed *feed, tt_error *err);
/* Ends the run if what several ranks have is not equal to the bit. */
tt_status tt_replay_compare_replicas(tt_loop *l, tt_error *err);
void tt_replay_print_ranks(const bool *of, int world, tt_str *out); /* "1, 3" */

#endif
