/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_SWAP_H
#define TT_SWAP_H
#include "train/ctl.h"
#include "train/train.h"
#include <pthread.h>
#include <stdatomic.h>

/* swap.c: other converters for a run that goes on, by schedule (from_step, to_step) or by `ttrun ctl`
 * (set converters, reload). */

struct tt_loop;
typedef struct tt_next tt_next;

/* Shared by the ranks of a process. */
typedef struct tt_swaps {
    pthread_mutex_t lock;
    pthread_mutex_t registry; /* held while a setup is made: it opens plugins */
    tt_registry *registry_of; /* of the plugins */
    int ranks;                /* of this process */
    tt_next *newest;
} tt_swaps;
void tt_swaps_init(tt_swaps *w, int ranks, tt_registry *registry);
void tt_swaps_release(tt_swaps *w);

/* What the next program is made for. */
typedef struct tt_swap_ask {
    const char *converters; /* JSON; NULL: those of the job that runs */
    const char *reload;     /* a converter whose file is opened again; NULL: none */
    int64_t at;             /* completed steps */
    bool scheduled;         /* it takes over after `at` steps; else as soon as all ranks have it */
} tt_swap_ask;

/* What is left to do after a take-over while the next steps run: on a thread of its own. */
typedef struct tt_swap_after {
    pthread_t thread;
    bool has_thread;
    struct tt_loop *l;
    tt_rank old;                     /* the programs to be freed */
    tt_next *was, *now;              /* their setup, NULL: that of the start; and that in use */
    const tt_setup *s;               /* run.json describes it; NULL: this rank does not write it */
    tt_str backend, changes, answer; /* answer: to ttrun ctl */
    uint64_t command;                /* its number; 0: nobody waits for an answer */
} tt_swap_after;

typedef struct tt_swap {   /* of one rank */
    tt_next *using, *next; /* the setup in use, NULL: that of the start; and the one that is made */
    tt_next *
        first; /* what the run was opened with, if it is not the start's: data and sinks point to it */
    int64_t number;     /* of swaps that were begun */
    int64_t tried;      /* scheduled changes up to here were made or refused */
    const char *of_job; /* the job's converters as JSON, with the defaults of their options */
    const char *list;   /* those in use, likewise; another text: `ttrun ctl` has set them */
    tt_swap_ask ask;    /* of the next one: only `at` and `scheduled` */
    uint64_t command;   /* the number of what asked for it, on rank 0; 0: the schedule */
    pthread_t thread;
    bool has_thread;
    _Atomic bool done;
    int64_t waits_for; /* the step of the save that it waits for; 0: it has not met one */
    tt_status status;  /* of the thread, when it is done */
    tt_error err;
    tt_rank rank; /* with the next programs */
    tt_swap_after after;
} tt_swap;

void tt_swap_init(struct tt_loop *l); /* before anything else of this file */
/* Begins to make the next program, in place of one that is being made. All ranks call this after the same
 * step. command: the number of the one that asks for it, on rank 0; 0: none. */
void tt_swap_begin(struct tt_loop *l, const tt_swap_ask *ask, uint64_t command);
void tt_swap_drop(struct tt_loop *l);
/* 1: a program that `ttrun ctl` asked for is not made yet on this rank. */
int32_t tt_swap_poll(const struct tt_loop *l);
/* Whether the program that `ttrun ctl` asked for takes over after this step. It waits for one save that is in flight, so
 * that the loop does not, but not for the next one: a run that saves all the time would never get it. made: all ranks
 * have it; saving: a rank still saves. All ranks give the same answer. */
bool tt_swap_has_turn(struct tt_loop *l, bool made, bool saving);
/* The next program takes over, or all ranks drop it and a line says why; or it is begun again, if its schedule has
 * changed since it was begun. The step is settled.
 * [collective] */
tt_status tt_swap_take_over(struct tt_loop *l, tt_error *err);
/* Waits until nothing of a take-over is left to do. */
void tt_swap_settle(struct tt_loop *l);
/* Says why the converters stay as they are, to the log and to `ttrun ctl`. Rank 0. */
void tt_swap_say_refused(struct tt_loop *l, uint64_t command, tt_status s, const tt_error *e);
/* Begins to make the program of the next scheduled change, unless another one is being made. */
void tt_swap_plan_ahead(struct tt_loop *l);
bool tt_swap_due(const struct tt_loop *l); /* a scheduled change follows this step */
/* Before the first step: the program for `step` completed steps, with these converters (JSON; NULL: the
 * job's). [collective] */
tt_status tt_swap_to_step(struct tt_loop *l, const char *converters, int64_t step, tt_error *err);
void tt_swap_close(struct tt_loop *l); /* after the rank is closed */

#endif
