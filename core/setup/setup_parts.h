/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_SETUP_PARTS_H
#define TT_SETUP_PARTS_H
#include "data/data.h"
#include "graph/graph.h"
#include "plugin/registry.h"

/* What a setup (setup.h) consists of. */

#define TT_MAX_PARTS 16 /* hooks, converters, metrics; data sets of the validation */

/* token_order.c: the order of the tokens in the graph, if context parallelism cuts sequences over
 * ranks. */
typedef struct tt_token_order {
    const int32_t *from;           /* [local * seq_len]; NULL: in their order */
    double busiest, busiest_plain; /* keys that the busiest rank's queries may see, over the mean */
} tt_token_order;

/* shape.c: facts about the graph that describe() writes, before it is compiled; all zero if the
 * model could not be described. */
typedef struct tt_model_shape {
    const tt_graph *described;
    int n_blocks;
    int64_t kv_heads;    /* the gcd over all layers; 0: there are none */
    int64_t experts;     /* likewise */
    const char **blocks; /* [n_blocks]: "model.layers.3" */
    const char **head;   /* [n_head]: parameters that are read only after the last block */
    size_t n_head;
} tt_model_shape;

/* A data set of the validation. */
typedef struct tt_validation_set {
    const char *name;    /* in validation.datasets; NULL: validation.dataloader */
    const char *section; /* of the job */
    tt_part data;
    tt_order order; /* n_samples is set when the loader is open */
} tt_validation_set;

typedef struct tt_setup tt_setup;
/* rate.c: the steps of warm-up in a run of `total` steps; 0 where the scheduler has none that is known. */
int64_t tt_setup_warmup(const tt_setup *s, int64_t total);
/* notices.c: a warning if the warm-up takes half of a run of `total` steps, or more. */
void tt_setup_notice_warmup(const tt_setup *s, int64_t total);
/* data.c: after a setup whose training.seed is null; also where the order of data follows from it. */
void tt_setup_set_seed(tt_setup *s, int64_t seed);
/* setup_offload.c: the backend computes in memory of its own. */
bool tt_setup_has_device(const tt_setup *s);
/* setup_convert.c: the converter that replaces the product y = x w^T of the parameter w in the graph that was
 * compiled last; -1: none does. */
int tt_setup_converter_of(const tt_setup *s, const char *param);

#endif
