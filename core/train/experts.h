/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_TRAIN_EXPERTS_H
#define TT_TRAIN_EXPERTS_H
#include "base/base.h"
#include <ttrun/metrics.h>

/* The load of the experts of each layer, which rank 0 logs (experts.c). */

struct tt_loop;

typedef struct tt_expert_names {
    const char *most, *entropy, *overflow; /* "experts/layers.3/max_over_mean"; NULL: not logged */
    int left; /* 1 + which of tt_graph.loads counts what the first pass left over; 0: it has one pass */
} tt_expert_names;

typedef struct tt_expert_log {
    tt_expert_names *names; /* by tt_graph.loads */
    int n_names;
    bool bounded;     /* some layer has several passes */
    const char *path; /* of experts.json */
    int64_t written_ns;
} tt_expert_log;

/* Makes their names. */
void tt_loop_experts_open(struct tt_loop *l);
/* Those of experts in the newest step whose numbers are known; returns how many. */
size_t tt_loop_experts(struct tt_loop *l, tt_metric *out);
/* experts.json, the tokens of each expert, now and then; last: of the newest step. */
tt_status tt_loop_experts_write(struct tt_loop *l, bool last, tt_error *err);

#endif
