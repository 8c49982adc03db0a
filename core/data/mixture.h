/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_DATA_MIXTURE_H
#define TT_DATA_MIXTURE_H
#include "data/data.h"

/* A mixture makes one loader of several. The source of sample g and the sample's index in it are
 * pure functions of g and the weights, so g is the whole state, as it is for one loader. */

/* Maps g to source and index. Of the first g samples, g·w[i]/Σw are from source i, within 2. */
typedef struct tt_mix tt_mix;
/* weights [n] > 0 and finite, n >= 1; ratios above 2^60 count as 2^60. Owner: the arena. */
tt_mix *tt_mix_new(tt_arena *a, const double *weights, int n);
/* *index: the number of earlier samples from the same source. O(log n) for similar weights. */
void tt_mix_at(const tt_mix *m, int64_t g, int *source, int64_t *index);

typedef struct tt_mixture_source {
    const tt_dataloader_vt *vt;
    void *self;
    const char *name;
    double weight;
    tt_order order; /* a source has its own epochs: when one ends, that source starts its next */
} tt_mixture_source;

typedef struct tt_mixture {
    tt_mix *mix;
    tt_mixture_source *sources; /* [n] */
    int n;
    int64_t n_samples; /* samples per epoch of the mixture: the sum over its sources */
} tt_mixture;
/* Returns the index of sample g >= 0 in its source; *epoch: that source's epoch. */
int64_t tt_mixture_find(const tt_mixture *m, int64_t g, int *source, int64_t *epoch);
/* n_samples and read for a dataloader's vtable; g may be any number >= 0. */
int64_t tt_mixture_samples(void *mixture);
tt_status tt_mixture_read(void *mixture, int64_t g, tt_sample *out, tt_error *err);

#endif
