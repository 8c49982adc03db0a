/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TTRUN_HOOK_H
#define TTRUN_HOOK_H
#include <ttrun/metrics.h>

/* A hook: called around every step on rank 0 (or every rank where all_ranks). A failing hook ends
 * the run with its text. */

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tt_hook_env {
    size_t struct_size;
    const char *dump_folder;
    int rank, world;
} tt_hook_env;

typedef struct tt_hook_vt {
    size_t struct_size;
    int all_ranks;
    tt_status (*open)(const void *config, const tt_hook_env *env, void **self, tt_error *err);
    tt_status (*before_step)(void *self, int64_t step, tt_error *err);              /* (optional) */
    tt_status (*after_step)(void *self, const tt_metrics_record *r, tt_error *err); /* (optional) */
    void (*close)(void *self);
} tt_hook_vt;

#ifdef __cplusplus
}
#endif
#endif
