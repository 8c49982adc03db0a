/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_SEARCH_H
#define TT_SEARCH_H
#include "estimate/estimate.h"

/* plan --search: finds the meshes of a world that train a job fastest within a machine's memory. */

typedef struct tt_search_opts {
    const char *job, *spec; /* JOB.json; --spec or NULL */
    const tt_override *overrides;
    size_t n_overrides;
    tt_registry *registry;
    int world;
    const tt_machine *machine;
    double memory;      /* the limit in bytes per rank */
    int best;           /* how many meshes are wanted */
    double expert_skew; /* --moe-skew: rows of the busiest rank of ep over the mean; 0: balanced */
    bool all;           /* plan every mesh in full, whatever the estimates say */
    void (*progress)(void *user, int64_t done, int64_t total);
    void *user;
} tt_search_opts;

typedef struct tt_found {
    tt_mesh_degrees degrees;
    tt_step_time time;
    double bytes; /* of the fullest rank */
} tt_found;

typedef struct tt_search {
    tt_found *best; /* the meshes that fit, the fastest first */
    int n;
    bool experts;      /* the model has experts, or the job sets the degree of ep */
    tt_found smallest; /* if no mesh fits: the one with the least estimated memory */
    int meshes, refused, too_big, planned; /* too_big: among those examined; planned: in full */
    int64_t global_batch;                  /* the same for all meshes */
} tt_search;

/* Degrees that the job sets are kept; the others take every value, that of ep those which divide the
 * experts of the model. The global batch is the job's,
 * or local_batch_size samples per rank. Step time is linear in the number of layers, so on each
 * mesh it is first estimated from the model with one and with two layers per stage. Then meshes are
 * planned in full, fastest first, except those whose estimated memory is far too large, until the
 * rest is clearly slower than the meshes found. Fails if setup refuses the job on every mesh. */
tt_status tt_search_meshes(const tt_search_opts *o, tt_arena *a, tt_search *out, tt_error *err);
void tt_search_print(const tt_search_opts *o, const tt_search *s, bool json, tt_str *out);

#endif
