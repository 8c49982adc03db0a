/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_HOOKS_H
#define TT_HOOKS_H
#include "base/base.h"
#include <ttrun/metrics.h>

typedef struct tt_loop tt_loop;

/* hooks.c */
tt_status tt_loop_open_hooks(tt_loop *l, tt_error *err);
/* status: of the run; why: with a status that is not TT_OK. */
void tt_loop_close_hooks(tt_loop *l, tt_status status, const tt_error *why);
tt_status tt_loop_hooks_start(tt_loop *l, tt_error *err);
tt_status tt_loop_hooks_before(tt_loop *l, tt_error *err);
tt_status tt_loop_hooks_backward(tt_loop *l, tt_error *err);
tt_status tt_loop_hooks_after(tt_loop *l, const tt_metrics_record *r, tt_error *err);
tt_status tt_loop_hooks_validated(tt_loop *l, const tt_metrics_record *r, tt_error *err);
void tt_loop_hooks_save(tt_loop *l); /* a save of this step begins */
/* The save has ended, and with it perhaps an export. loop: tt_loop. */
tt_status tt_loop_hooks_saved(void *loop, int64_t step, bool model_only, bool snapshot,
                              tt_error *err);
tt_status tt_loop_hooks_exported(tt_loop *l, int64_t step, tt_error *err);

#endif
