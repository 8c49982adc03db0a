/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/kernels.h"
#include <string.h>

const tt_kernel *tt_find_kernel(const tt_kernels *k, void *self, const char *op)
{
    for (size_t i = 0; i < k->plugins.n; i++)
        if (strcmp(k->plugins.items[i]->op, op) == 0)
            return k->plugins.items[i];
    return k->backend->kernel(self, op);
}
