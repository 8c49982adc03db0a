/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_DATA_H
#define TT_DATA_H
#include "base/base.h"
#include <ttrun/dataloader.h>

/* core/data: the order of data lives here. Global sample number g (from 0, over the whole run) →
 * epoch g / n_samples and a place in it, through a seeded permutation of the epoch where shuffled:
 * a pure function, so the loader's state is g. */

typedef struct tt_order {
    int64_t n_samples;
    uint64_t seed;
    bool shuffle;
    bool endless; /* the loader draws by itself (a mixture): sample g is g, whatever its epoch */
} tt_order;
int64_t tt_order_sample(const tt_order *o, int64_t g, int64_t *epoch);

/* The inputs a loader gives beside ids, labels, pos and seg. */
typedef struct tt_inputs {
    tt_input_info items[TT_MAX_INPUTS];
    int n;
} tt_inputs;
/* A loader's table, checked. config: as its open() gets it. */
tt_status tt_inputs_of(const tt_dataloader_vt *vt, const void *config, tt_inputs *out,
                       tt_error *err);
int tt_inputs_find(const tt_inputs *t, const char *name); /* -1 = none */
bool tt_inputs_equal(const tt_inputs *a, const tt_inputs *b);
/* What input i of the table is, for messages: "loss_weight (f32 per token)". */
void tt_input_print(const tt_input_info *i, char *text, size_t size);

/* One micro-batch of one data rank as flat token arrays: [n_samples_here * seq_len]. */
typedef struct tt_batch {
    int64_t n_tokens, seq_len;
    int32_t *ids, *labels, *pos, *seg;
    int64_t counted;           /* labels >= 0 */
    const tt_inputs *inputs;   /* NULL = none */
    void *more[TT_MAX_INPUTS]; /* by their table: [n_tokens], or [n_samples_here] */
} tt_batch;

/* A stream of steps for one data rank: the global batch of step s is samples s*G … s*G+G-1; data
 * rank r of R takes the r-th contiguous slice, micro-batch after micro-batch of `local` samples
 * (contract). A prefetch thread stays `depth` steps ahead; buffers are allocated once. */
typedef struct tt_stream tt_stream;
typedef struct tt_stream_opts {
    const tt_dataloader_vt *loader;
    void *loader_self;
    const char *loader_name; /* in errors; may be NULL */
    tt_order order;
    int64_t seq_len, local, micro_batches,
        global_batch; /* local * micro_batches * data_world == global_batch */
    int data_rank, data_world;
    int64_t first_sample; /* g of the first step's first sample */
    int64_t n_steps;      /* -1 = without end; a stream never reads past */
    bool once;          /* behind the epoch's last sample come samples whose labels do not count */
    int64_t vocab_size; /* ids outside are an error naming the sample */
    int depth;          /* 0 = no thread, read in place */
    const tt_inputs *inputs; /* of the loader's own; NULL = none */
} tt_stream_opts;
tt_status tt_stream_new(const tt_stream_opts *o, tt_stream **out, tt_error *err);
/* The next step's micro-batches (array of opts.micro_batches), valid until the next call; epoch of
 * its first sample. */
tt_status tt_stream_next(tt_stream *s, const tt_batch **micro, int64_t *epoch, tt_error *err);
void tt_stream_free(tt_stream *s); /* stops and joins the thread */

#endif
