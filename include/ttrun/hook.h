/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TTRUN_HOOK_H
#define TTRUN_HOOK_H
#include <ttrun/metrics.h>

/* A hook is called before and after every step, on rank 0 or, with all_ranks, on every rank. A hook
 * that fails ends the run with its error text. */

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tt_hook_env {
    size_t struct_size;
    const char *dump_folder; /* the run folder, which exists */
    int rank, world;
} tt_hook_env;

typedef struct tt_hook_vt {
    size_t struct_size;
    int all_ranks; /* 1: every rank opens one; 0: rank 0 alone */
    /* *self is the hook's own state, which close frees. [setup] */
    tt_status (*open)(const void *config, const tt_hook_env *env, void **self, tt_error *err);
    /* (optional) step counts from 1. [step] */
    tt_status (*before_step)(void *self, int64_t step, tt_error *err);
    /* (optional) r is valid during the call. [step] */
    tt_status (*after_step)(void *self, const tt_metrics_record *r, tt_error *err);
    void (*close)(void *self);
} tt_hook_vt;

#ifdef __cplusplus
}
#endif
#endif
