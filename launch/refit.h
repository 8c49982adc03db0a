/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_LAUNCH_REFIT_H
#define TT_LAUNCH_REFIT_H
#include "base/base.h"

/* --nproc MIN:MAX: the mesh for as many ranks as there are. The degrees of tp, cp, pp and ep are kept, and
 * so is the global batch: fewer data ranks make more micro-batches per step, and the curve stays the same.
 * Of the meshes that fit, the one with most ranks is taken. A data_parallel_shard_degree of -1 takes what
 * the others leave, so it shrinks first; then data_parallel_replicate_degree does, which keeps each rank's
 * part of the parameters; then an explicit data_parallel_shard_degree. None becomes larger than the job's. */

typedef struct tt_refit_job {
    int64_t pp, dp_replicate, dp_shard, cp, tp, ep; /* of the job; dp_shard -1: what is left */
    int64_t local_batch, global_batch; /* global_batch < 1: local_batch × data ranks */
} tt_refit_job;

typedef struct tt_refit {
    int world, dp_replicate, dp_shard;
    int64_t global_batch;
} tt_refit;

/* The mesh for at least `least` and at most `most` ranks. A global batch that the job leaves to the number of
 * ranks is that of `largest` ranks, however many there are now. */
tt_status tt_refit_mesh(const tt_refit_job *j, int least, int most, int largest, tt_refit *out,
                        tt_error *err);

#endif
