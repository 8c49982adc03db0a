/* SPDX-License-Identifier: Apache-2.0 */
#include "passes/passes.h"
#include <ttrun/backend.h>

/* Whether the backend's kernel takes a node. The call has the whole tensors' shapes: a pass decides
 * for all ranks at once. */

bool tt_pass_supports(bool (*supports)(void *user, const tt_kernel_call *c), void *user,
                      const tt_node *n, bool accumulates)
{
    tt_tensor in[TT_MAX_INS], out[TT_MAX_OUTS];
    if (!supports)
        return true;
    TT_ASSERT(n->n_in <= TT_MAX_INS && n->n_out <= TT_MAX_OUTS);
    for (int i = 0; i < n->n_in; i++)
        tt_whole_tensor(&n->in[i]->type, &in[i]);
    for (int i = 0; i < n->n_out; i++)
        tt_whole_tensor(&n->out[i]->type, &out[i]);
    const tt_kernel_call c = {.struct_size = sizeof c,
                              .op = n->op->name,
                              .in = in,
                              .n_in = n->n_in,
                              .out = out,
                              .n_out = n->n_out,
                              .attrs = n->attrs,
                              .accumulate = accumulates};
    return supports(user, &c);
}
