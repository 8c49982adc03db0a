/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_PLUGIN_CHECK_H
#define TT_PLUGIN_CHECK_H
#include "config/config.h"
#include "plugin/registry.h"

/* ttrun plugins check FILE: runs stages, each in its own process with a time limit, so that a
 * plugin that crashes or hangs fails only that stage. */

typedef struct tt_check_opts {
    const char *const *plugin_dirs; /* where the plugins that complete a job are looked for */
    size_t n_plugin_dirs;
    bool only_plugin_dirs;        /* and nowhere else */
    const tt_override *overrides; /* of the test jobs */
    size_t n_overrides;
    bool json, verbose;
} tt_check_opts;

typedef struct tt_check_job {
    const tt_check_opts *opts;
    const char *file;
    tt_registry *registry; /* FILE and the plugins found as usual; opened in the stage's process */
    const tt_plugin *plugin; /* FILE's descriptor */
    tt_str *note;            /* for the stage's line: what it found */
} tt_check_job;

/* Returns TT_OK, or an error whose text says what is wrong with the plugin. TT_EUNSUPPORTED: the
 * stage says nothing about plugins of these kinds. */
typedef tt_status (*tt_check_stage_fn)(const tt_check_job *job, tt_error *err);

typedef struct tt_check_stage {
    const char *name;
    int seconds; /* limit */
    tt_check_stage_fn run;
} tt_check_stage;

/* Runs all stages and adds a line for each to out (or one JSON object); TT_OK when none failed,
 * else the first failure, which names the file. */
tt_status tt_plugin_check(const tt_check_opts *o, const char *file, tt_str *out, tt_error *err);

#endif
