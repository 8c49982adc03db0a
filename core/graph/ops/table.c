/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/ops/internal.h"
#include <stdlib.h>
#include <string.h>

/* The table of the core's ops, sorted by name, and the search in it and in the plugins' ops. */

static const tt_op_def *const core_ops[] = {
#define TT_CORE_OP(name) &tt_op_##name,
#include "graph/ops/ops.def"
#undef TT_CORE_OP
};

const tt_op_def *const *tt_core_ops(size_t *n)
{
    *n = sizeof core_ops / sizeof core_ops[0];
    return core_ops;
}

static int compare(const void *key, const void *element)
{
    const tt_op_def *const *op = element;
    return strcmp(key, (*op)->name);
}

static const tt_op_def *find_core(const tt_op_table *t, const char *name)
{
    const tt_op_def *const *found = NULL;
    if (t->n_core > 0)
        found = bsearch(name, t->core, t->n_core, sizeof t->core[0], compare);
    return found != NULL ? *found : NULL;
}

bool tt_op_is_fusible(const tt_op_table *t, const tt_op_def *def)
{
    return (def->flags & TT_OP_POINTWISE) && find_core(t, def->name) == def;
}

const tt_op_def *tt_op_find(const tt_op_table *t, const char *name)
{
    const tt_op_def *found = find_core(t, name);
    if (found != NULL)
        return found;
    for (size_t i = 0; i < t->n_extra; i++)
        if (strcmp(t->extra[i]->name, name) == 0)
            return t->extra[i];
    if (t->lookup != NULL)
        return t->lookup(t->lookup_user, name);
    return NULL;
}
