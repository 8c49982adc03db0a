/* SPDX-License-Identifier: Apache-2.0 */
#include "estimate/copies.h"
#include "rank/rank.h"
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

int64_t tt_plan_copies(const tt_setup *s, const tt_plan *plan)
{
    const tt_checkpoint_config *c = &s->core.checkpoint;
    const tt_program *p = plan->program;
    int64_t index = TT_COPIES_INDEX, data = 0;
    if (!c->peer_copy_interval || !c->enable || c->load_only || !tt_rank_trains(s, plan))
        return 0;
    for (int i = 0; i < p->n_params; i++) {
        const tt_program_param *t = &p->params[i];
        if (t->transient || t->offset < 0)
            continue;
        index += TT_COPIES_RECORD + name_bytes(t);
        data += tt_tensor_bytes(&t->tensor);
    }
    const int64_t copy = tt_copies_pages(tt_copies_pages(index) + data);
    return TT_COPIES_PAGE + TT_COPIES_KEPT * copy;
}
