/* SPDX-License-Identifier: Apache-2.0 */
#include "estimate/summary_impl.h"
#include "rank/rank.h"
#include "train/peer_index.h"
#include "train/peer_memory.h"
#include <string.h>

/* The length of a tensor's name in checkpoints: "optimizer.state.NAME.exp_avg", "NAME.nf4". */
static int64_t name_bytes(const tt_program_param *p)
{
    const size_t n = strlen(p->name) + 1;
    if (p->suffix)
        return (int64_t)(n + strlen("optimizer.state..") + strlen(p->suffix));
    if (p->info && p->info->codes)
        return (int64_t)(n + 1 + strlen(tt_codes_name(p->info->codes)));
    return (int64_t)n;
}

int64_t tt_estimate_copies(const tt_setup *s, const tt_plan *plan)
{
    const tt_checkpoint_config *c = &s->core.checkpoint;
    const tt_program *p = plan->program;
    int64_t n = 0, names = 0, data = 0;
    if (!c->peer_copy_interval || !c->enable || c->load_only || !tt_rank_trains(s, plan))
        return 0;
    for (int i = 0; i < p->n_params; i++) {
        const tt_program_param *t = &p->params[i];
        if (t->transient || t->offset < 0)
            continue;
        n++;
        names += name_bytes(t);
        data += tt_tensor_bytes(&t->tensor);
    }
    return tt_peer_size(tt_peer_pages(tt_peer_index_bytes(n, names) + data));
}
