/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_SWAP_H
#define TT_SWAP_H
#include "train/train.h"
#include <pthread.h>
#include <stdatomic.h>

/* swap.c: other converters for a run that goes on, by schedule (from_step, to_step) or by `ttrun ctl`. */

struct tt_loop;
typedef struct tt_next tt_next;

/* Shared by the ranks of a process. */
typedef struct tt_swaps {
    pthread_mutex_t lock;
    pthread_mutex_t registry; /* held while a setup is made: it opens plugins */
    int ranks;                /* of this process */
    tt_next *newest;
} tt_swaps;
void tt_swaps_init(tt_swaps *w, int ranks);
void tt_swaps_release(tt_swaps *w);

typedef struct tt_swap {   /* of one rank */
    tt_next *using, *next; /* the setup in use, NULL: that of the start; and the one that is made */
    tt_next *
        first; /* what the run was opened with, if it is not the start's: data and sinks point to it */
    int64_t number; /* of swaps that were begun */
    int64_t at;     /* the steps that the next one is made for */
    int64_t tried;  /* scheduled changes up to here were made or refused */
    bool
        scheduled; /* the next one takes over after `at` steps; else as soon as all ranks have it */
    pthread_t thread;
    bool has_thread;
    _Atomic bool done;
    tt_status status; /* of the thread, when it is done */
    tt_error err;
    tt_rank rank; /* with the next programs */
} tt_swap;

/* Begins to make the next program, in place of one that is being made. converters: JSON; NULL: those of the
 * job. All ranks call this after the same step. */
void tt_swap_begin(struct tt_loop *l, const char *converters, int64_t at, bool scheduled);
void tt_swap_drop(struct tt_loop *l);
/* 1: a program that `ttrun ctl` asked for is not made yet on this rank. */
int32_t tt_swap_poll(const struct tt_loop *l);
/* The next program takes over, or all ranks drop it and a line says why. The step is settled.
 * [collective] */
tt_status tt_swap_take_over(struct tt_loop *l, tt_error *err);
/* Begins to make the program of the next scheduled change, unless another one is being made. */
void tt_swap_plan_ahead(struct tt_loop *l);
bool tt_swap_due(const struct tt_loop *l); /* a scheduled change follows this step */
/* Before the first step: the program for `step` completed steps. [collective] */
tt_status tt_swap_to_step(struct tt_loop *l, int64_t step, tt_error *err);
void tt_swap_close(struct tt_loop *l); /* after the rank is closed */

#endif
