/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_DATA_H
#define TT_DATA_H
#include "base/base.h"
#include <ttrun/dataloader.h>

/* core/data decides the order of samples. Sample number g, counted from 0 over the whole run, is in
 * epoch g / n_samples; if the data is shuffled, a seeded permutation of the epoch gives its index.
 * This is a pure function, so g is the whole state of the data. */

typedef struct tt_order {
    int64_t n_samples;
    uint64_t seed;
    bool own_seed; /* the job gives it for this loader; else it follows from training.seed */
    int64_t place; /* of a mixture's source in its list: each has another seed */
    bool shuffle;
    bool endless; /* the loader itself draws samples (a mixture): index g is g for every epoch */
} tt_order;
/* The index of sample g in its epoch; *epoch: the epoch's number. */
int64_t tt_order_sample(const tt_order *o, int64_t g, int64_t *epoch);

/* Runs whose batches end with the epoch (epochs.c): a step has the next `batch` samples, or those that
 * are left of its epoch. Such a run's state is the number of its next sample too. */
typedef struct tt_epochs {
    int64_t n_samples, batch; /* per epoch; per step. Both >= 1 */
} tt_epochs;
int64_t tt_epoch_steps(const tt_epochs *e);           /* per epoch */
int64_t tt_epoch_rest(const tt_epochs *e, int64_t g); /* samples of the step that begins with g */
/* *g: the first sample of step k >= 0 of a run that begins with sample `first`. */
tt_status tt_epoch_sample(const tt_epochs *e, int64_t first, int64_t k, int64_t *g, tt_error *err);
/* *samples: what a run of so many epochs takes; a part of an epoch is ceil(part * steps) steps. */
tt_status tt_epochs_samples(const tt_epochs *e, double epochs, int64_t *samples, tt_error *err);
/* The steps that take the samples [from, to). */
int64_t tt_epochs_steps(const tt_epochs *e, int64_t from, int64_t to);

/* The inputs of a loader besides ids, labels, pos and seg, and after them those that the core computes
 * from the labels for a loss that asks (tt_inputs_add_weights). */
typedef struct tt_inputs {
    tt_input_info items[TT_MAX_INPUTS];
    int n, n_of_loader;
} tt_inputs;
/* The weights of tokens by the number n of counted labels of their document: 1/n and 1/sqrt(n). */
#define TT_INPUT_MEAN_WEIGHTS "document_weights"
#define TT_INPUT_ROOT_WEIGHTS "document_root_weights"
/* Adds the input `name`, f32 per token, which tt_stream_opts.reference fills. */
tt_status tt_inputs_add_reference(tt_inputs *t, const char *name, tt_error *err);
/* Adds one of these, if `name` is its name; fails if name is no input of f32. */
tt_status tt_inputs_add_weights(tt_inputs *t, const char *name, tt_error *err);
/* Reads and checks a loader's table of inputs. config: the one that its open() gets. */
tt_status tt_inputs_of(const tt_dataloader_vt *vt, const void *config, tt_inputs *out,
                       tt_error *err);
int tt_inputs_find(const tt_inputs *t, const char *name); /* -1 = none */
bool tt_inputs_equal(const tt_inputs *a, const tt_inputs *b);
/* Writes an input for messages: "loss_weight (f32 per token)". */
void tt_input_print(const tt_input_info *i, char *text, size_t size);

/* One micro-batch of one data rank as flat token arrays, each [n_tokens]. */
typedef struct tt_batch {
    int64_t n_tokens, seq_len;
    int64_t first_token; /* place of the first token in the step's global batch: token_index */
    int32_t *ids, *labels, *pos, *seg;
    int64_t counted;           /* labels >= 0 */
    double weight;             /* what the loss is divided by: the sum of weights, or counted */
    const tt_inputs *inputs;   /* NULL = none */
    void *more[TT_MAX_INPUTS]; /* by their table: [n_tokens], or [n_samples_here] */
} tt_batch;

/* The stream of one data rank's steps. The global batch of step s is samples s*G … s*G+G-1, where G
 * is global_batch, or with by_epoch as tt_epoch_sample() says. Data rank r takes the r-th contiguous
 * slice of it, micro-batch after micro-batch of `local` samples. A prefetch thread stays `depth` steps ahead; buffers are allocated once. */
typedef struct tt_stream tt_stream;
typedef struct tt_stream_opts {
    const tt_dataloader_vt *loader;
    void *loader_self;
    const char *loader_name; /* in errors; may be NULL */
    tt_order order;
    /* local * micro_batches * data_world == global_batch */
    int64_t seq_len, local, micro_batches, global_batch;
    int data_rank, data_world;
    int64_t first_sample; /* g of the first step's first sample */
    int64_t n_steps;      /* -1 = no end; the stream never reads samples of later steps */
    bool by_epoch;        /* samples of a batch after its epoch's last have no label that counts */
    int64_t vocab_size;   /* an id outside is an error that names the sample */
    int depth;            /* 0 = no thread: tt_stream_next reads */
    const tt_inputs *inputs; /* the loader's other inputs; NULL = none */
    /* Values of the input number reference_input, [n_samples][seq_len] by a sample's index; NULL: zeros. */
    const float *reference;
    int reference_input;
    const char *weights; /* the input whose sum the loss is divided by; NULL = labels count 1 */
    bool one_segment;    /* the loader promises it: a sample that is not is an error */
} tt_stream_opts;
tt_status tt_stream_new(const tt_stream_opts *o, tt_stream **out, tt_error *err);
/* *micro: the next step's micro-batches, [opts.micro_batches], valid until the next call; *epoch:
 * the epoch of its first sample. */
tt_status tt_stream_next(tt_stream *s, const tt_batch **micro, int64_t *epoch, tt_error *err);
void tt_stream_free(tt_stream *s); /* stops and joins the thread */

#endif
