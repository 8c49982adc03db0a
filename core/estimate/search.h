/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_SEARCH_H
#define TT_SEARCH_H
#include "estimate/estimate.h"

/* plan --search: which meshes of a world train a job fastest on a machine, within its memory. */

typedef struct tt_search_opts {
    const char *job, *spec; /* JOB.json; --spec or NULL */
    const tt_override *overrides;
    size_t n_overrides;
    tt_registry *registry;
    int world;
    const tt_machine *machine;
    double memory; /* bytes a rank may need */
    int best;      /* so many are wanted */
    bool all;      /* plan every mesh in full, whatever the estimates say */
    void (*progress)(void *user, int64_t done, int64_t total);
    void *user;
} tt_search_opts;

typedef struct tt_found {
    tt_mesh_degrees degrees;
    tt_step_time time;
    double bytes; /* of the fullest rank */
} tt_found;

typedef struct tt_search {
    tt_found *best; /* those that fit, the fastest first */
    int n;
    tt_found smallest; /* where none fits: the one that needs least, as estimated */
    int meshes, refused, too_big, planned; /* too_big: of those looked at; planned: in full */
    int64_t global_batch;                  /* the same for all */
} tt_search;

/* Degrees that the job sets stay; the others take every value. The batch of a step is the job's, or
 * local_batch_size samples a rank. The time of a step is estimated on each mesh from the model with
 * one and two layers a stage, being linear in them; then, fastest first, meshes are planned in
 * full, those apart whose memory is estimated so and is far too much, until what is left is well
 * slower than what was found. Fails where the job is refused on every mesh. */
tt_status tt_search_meshes(const tt_search_opts *o, tt_arena *a, tt_search *out, tt_error *err);
void tt_search_print(const tt_search_opts *o, const tt_search *s, bool json, tt_str *out);

#endif
