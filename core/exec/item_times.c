/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "exec/exec_impl.h"
#include <stdlib.h>
#include <time.h>

/* What each item of this rank's program took in a traced step: on the wall, and of the main
 * thread's own time, which others on the same cores do not lengthen. */

struct tt_item_times {
    tt_item_time *items;
    int n, cap;
    int64_t begin_ns, begin_cpu_ns, messages_before; /* of the item that runs */
};

static int64_t cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

tt_status tt_exec_item_times_open(tt_exec *x, tt_error *err)
{
    const int n = x->p->n_calls;
    tt_item_times *t = calloc(1, sizeof *t);
    if (t)
        t->items = calloc((size_t)n + 1, sizeof *t->items);
    if (!t || !t->items) {
        tt_exec_item_times_free(t);
        return TT_FAIL(err, TT_ENOMEM, "no memory to time %d actions; set profiling.enable false",
                       n);
    }
    t->cap = n;
    x->item_times = t;
    return TT_OK;
}

void tt_exec_item_times_free(tt_item_times *t)
{
    if (t)
        free(t->items);
    free(t);
}

void tt_exec_item_times_clear(tt_exec *x)
{
    if (x->item_times)
        x->item_times->n = 0;
}

void tt_exec_item_begins(const tt_exec *x)
{
    tt_item_times *t = x->item_times;
    t->messages_before = x->message_ns;
    t->begin_ns = tt_now_ns();
    t->begin_cpu_ns = cpu_ns();
}

void tt_exec_item_ends(const tt_exec *x, const tt_item *i)
{
    tt_item_times *t = x->item_times;
    const int64_t cpu = cpu_ns() - t->begin_cpu_ns;
    if (t->n < t->cap)
        t->items[t->n++] =
            (tt_item_time){i, t->begin_ns, tt_now_ns(), x->message_ns - t->messages_before, cpu};
}

const tt_item_time *tt_exec_item_times(const tt_exec *x, int *n)
{
    *n = x->item_times ? x->item_times->n : 0;
    return x->item_times ? x->item_times->items : NULL;
}
