/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_DATA_MIXTURE_H
#define TT_DATA_MIXTURE_H
#include "data/data.h"

/* Several loaders as one. Which source sample g is from, and which sample of it, are pure functions
 * of g and the weights, so the state of a mixture is g as that of a loader is. */

/* g → source and index. After any g, source i was drawn g·w[i]/Σw times, within 2. */
typedef struct tt_mix tt_mix;
/* weights [n] > 0 and finite, n >= 1; ratios beyond 2^60 are cut there. Arena memory. */
tt_mix *tt_mix_new(tt_arena *a, const double *weights, int n);
/* *index: how often the source was drawn before. O(log n), more where weights are far apart. */
void tt_mix_at(const tt_mix *m, int64_t g, int *source, int64_t *index);

typedef struct tt_mixture_source {
    const tt_dataloader_vt *vt;
    void *self;
    const char *name;
    double weight;
    tt_order order; /* its own epochs: one that ends begins anew, the others go on */
} tt_mixture_source;

typedef struct tt_mixture {
    tt_mix *mix;
    tt_mixture_source *sources; /* [n] */
    int n;
    int64_t n_samples; /* an epoch: as many samples as all sources have */
} tt_mixture;
/* Where sample g >= 0 is from, of any epoch; *epoch: of that source. */
int64_t tt_mixture_find(const tt_mixture *m, int64_t g, int *source, int64_t *epoch);
/* For a vtable: n_samples and read, of any g >= 0. */
int64_t tt_mixture_samples(void *mixture);
tt_status tt_mixture_read(void *mixture, int64_t g, tt_sample *out, tt_error *err);

#endif
