/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_LAUNCH_START_H
#define TT_LAUNCH_START_H
#include "setup/setup.h"

/* How a run starts: in this process, as processes of this machine, or under a supervisor, here or on several machines; or
 * this process is one rank that a launcher has started. start.c decides, ranks.c runs the ranks that are in this process. */

#define TT_START_MOST_RANKS 4096 /* that one ttrun starts */

/* What the command line says. */
typedef struct tt_start_opts {
    const char *job; /* the job file; NULL: overrides are all of the job */
    const tt_override *overrides;
    size_t n_overrides;
    tt_error no_job; /* why there is no job to start; code TT_OK: there is one */
    tt_registry_opts plugins;
    const char *spec; /* --spec, or NULL */
    int nproc;        /* --nproc, 0: not given; of MIN:MAX, MAX */
    int nproc_least;  /* of --nproc MIN:MAX, MIN; 0: it is no range */
    bool no_resume, dry_run, json;
    int verbose; /* -v adds 1, -q subtracts 1 */
    /* the texts of options; NULL: not given */
    const char *max_restarts, *nnodes, *node_rank, *master_addr, *master_port, *rdzv_endpoint,
        *rdzv_id, *rdzv_timeout, *rdzv_last_call;
    /* the command line of ranks that are started, without the program and the command */
    const char *const *words;
    int n_words;
    tt_status (*print_plan)(void *user, const tt_setup *s,
                            tt_error *err); /* instead of a run, with dry_run */
    void *user;
    tt_arena *arena;
} tt_start_opts;

tt_status tt_start(const tt_start_opts *o, tt_error *err);

#endif
