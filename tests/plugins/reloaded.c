/* SPDX-License-Identifier: Apache-2.0 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <ttrun/converter.h>
#include <unistd.h>

/* reloaded.so, for test_reload.sh: a third party's converter, which is built again and again while a job
 * runs. NAME: its name; BY: what it multiplies a layer's result by, 1: it converts nothing. HOLD: a file; while it
 * is there, no run makes a program with the converter, and HOLD.made says that one waits. The other macros make plugins
 * that must be refused. Built against the public headers alone. */

#ifndef NAME
#define NAME "mine"
#endif
#ifndef BY
#define BY 1.0
#endif
#ifdef WRONG_ABI
#undef TT_ABI_MAJOR
#define TT_ABI_MAJOR 99
#endif

int tt_no_such_function(void);

typedef struct {
    double unused;
} config;

static const tt_option options[] = {
    TT_OPTION(config, unused, TT_OPT_FLOAT, "0", 0, 1, "nothing"),
};

#ifdef HOLD
static void
hold(void) /* in a run, a thread makes it; `ttrun ctl` looks at the list in its first one */
{
    while (gettid() != getpid() && access(HOLD, F_OK) == 0) {
        FILE *f = fopen(HOLD ".made", "w");
        if (f)
            fclose(f);
        nanosleep(&(struct timespec){0, 2000000}, NULL); /* between two looks */
    }
}
#endif

static tt_value *linear(const void *self, tt_builder *b, const char *name, tt_value *x, tt_value *w)
{
    (void)self;
    (void)name;
#ifdef HOLD
    hold();
#endif
#ifdef CRASHES
    *(volatile int *)NULL = 1;
#endif
#ifdef EXITS
    exit(0);
#endif
#ifdef MISSING
    return tt_no_such_function() ? x : w;
#endif
#ifdef BROKEN
    return tt_add(b, tt_linear_w(b, x, w), tt_linear(b, x, "odd", TT_DIM(3, "odd"), NULL));
#endif
    return BY > 0.99 && BY < 1.01 ? NULL : tt_scale(b, tt_linear_w(b, x, w), BY);
}

static const tt_converter_vt vt = {.struct_size = sizeof(vt), .linear = linear};
static const tt_component components[] = {
    TT_COMPONENT(TT_KIND_CONVERTER, NAME, "multiplies what a layer gives", config, options, &vt),
};
TT_PLUGIN("reloaded", "1.0", components);
