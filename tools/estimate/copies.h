/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_ESTIMATE_COPIES_H
#define TT_ESTIMATE_COPIES_H
#include "setup/setup.h"

/* The memory of the copies of states that a supervisor keeps (checkpoint.peer_copy_interval; train/peer.h), which has
 * this layout: a page, then so many copies of whole pages: an index, with a record and a name for each tensor, and
 * the tensors' data. */

#define TT_COPIES_PAGE ((int64_t)4096)
#define TT_COPIES_KEPT 2
#define TT_COPIES_INDEX ((int64_t)40)   /* bytes that an index begins with */
#define TT_COPIES_RECORD ((int64_t)168) /* of a tensor */

static inline int64_t tt_copies_pages(int64_t bytes) /* in whole pages */
{
    return (bytes + TT_COPIES_PAGE - 1) / TT_COPIES_PAGE * TT_COPIES_PAGE;
}

/* Bytes of host memory for this rank's copies, if a supervisor starts the run; 0: the job keeps none. */
int64_t tt_plan_copies(const tt_setup *s, const tt_plan *p);

#endif
