/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_PASSES_OFFLOAD_H
#define TT_PASSES_OFFLOAD_H
#include "passes/recompute.h"

/* offload_values: values of the forward wait for their backward in host memory. */

#define TT_OFFLOAD_LEAST_BYTES 4096 /* a smaller copy costs more than it frees */

typedef enum tt_offload_mode {
    TT_OFFLOAD_NONE,
    TT_OFFLOAD_AUTO,  /* those whose copies hide behind computation on the machine */
    TT_OFFLOAD_ALL,   /* all that a block keeps, but not the last block of a stage */
    TT_OFFLOAD_SHARES /* of each block as much as tt_offload_opts.shares says */
} tt_offload_mode;
typedef struct tt_offload_opts {
    tt_offload_mode mode;
    int64_t most_bytes; /* of a micro-batch's values of a stage; 0 = any number */
    int ahead;          /* they are copied back so many blocks before they are read; at least 1 */
    const tt_machine *machine; /* for AUTO and SHARES */
    tt_offload_shares shares;  /* for SHARES: what the recompute pass has found */
} tt_offload_opts;
tt_status tt_pass_offload_values(tt_graph *g, const tt_offload_opts *o, tt_error *err);
/* Whether a copy of so many bytes takes at least as long as two kernels take to start: a shorter one is
 * not worth its place among those that hide. */
bool tt_offload_worth(const tt_machine *m, int64_t bytes);
/* After the pass: notes in the described blocks what is offloaded of each, which is no longer kept on
 * the device. */
void tt_offload_describe(const tt_graph *g, const tt_machine *m, tt_recompute_found *found);

#endif
