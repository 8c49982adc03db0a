/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_NEXT_H
#define TT_NEXT_H
#include "train/loop.h"

/* next.c: the setup of the next program, which the ranks of a process share. */

struct tt_next {
    int64_t number;
    int users;  /* ranks of this process that have not dropped it; protected by the swaps' lock */
    int takers; /* ranks whose programs before it are freed; likewise */
    char *converters;           /* JSON; NULL: as they were */
    char *reload;               /* a converter; NULL: none */
    tt_plugin_version *version; /* of its file; NULL: none, or the old one is closed */
    uint64_t file_hash;         /* of the new version's */
    const char *list;           /* the converters of the setup, as JSON */
    int64_t at;
    pthread_mutex_t lock; /* of what follows, while it is made */
    bool made, taken;
    tt_status status;
    tt_error err;
    tt_arena *arena;
    tt_setup setup;
};

/* The setup of this rank's next swap: the n-th of every rank is the same. */
tt_next *tt_next_join(tt_loop *l, const tt_swap_ask *ask);
/* Makes it, or waits until another rank of the process has. */
tt_status tt_next_make(tt_loop *l, tt_next *n, tt_error *err);
/* This rank has freed the programs before it. When all ranks have, the old version of a plugin that it
 * has reloaded is closed. */
void tt_next_taken(tt_loop *l, tt_next *n);
/* The last rank frees it; if it did not take over, the new version of a plugin is closed, too. NULL is
 * allowed. */
void tt_next_drop(tt_loop *l, tt_next *n);
/* The converters of a setup's job as JSON, with the defaults of their options. */
const char *tt_next_list(const tt_setup *s, tt_arena *a);

#endif
