/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/op.h"
#include <stdlib.h>
#include <string.h>
#include <ttrun/backend.h>

/* Finds ops by name in a table of ops, and reads the traits of an op. A plugin's definition may be older
 * than a trait, and shorter: then the op does not have the trait. */

static int compare_op_name(const void *key, const void *element)
{
    const tt_op_def *const *op = element;
    return strcmp(key, (*op)->name);
}

static const tt_op_def *find_core(const tt_op_table *t, const char *name)
{
    const tt_op_def *const *found = NULL;
    if (t->n_core > 0)
        found = bsearch(name, t->core, t->n_core, sizeof t->core[0], compare_op_name);
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

/* ---- traits ---- */

tt_op_class tt_op_class_of(const tt_op_def *op)
{
    if (TT_HAS(op, tt_op_def, cls) && op->cls != TT_CLASS_OTHER)
        return op->cls;
    return op->flags & TT_OP_POINTWISE ? TT_CLASS_POINTWISE : TT_CLASS_OTHER;
}

int tt_op_lookup_table(const tt_op_def *op)
{
    return tt_op_class_of(op) == TT_CLASS_LOOKUP && TT_HAS(op, tt_op_def, table) ? op->table : -1;
}

int tt_op_counted_by(const tt_op_def *op)
{
    return TT_HAS(op, tt_op_def, counted_by) ? op->counted_by : 0;
}

double tt_op_immediate(const tt_op_def *op, const void *attrs)
{
    return TT_HAS(op, tt_op_def, immediate) && op->immediate ? op->immediate(attrs) : 0;
}

/* The op with this name and this size of attributes, or NULL. */
static const tt_op_def *op_form(const tt_op_table *t, const char *name, size_t attrs_size)
{
    const tt_op_def *found = name ? tt_op_find(t, name) : NULL;
    return found && found->attrs_size == attrs_size ? found : NULL;
}

const tt_op_def *tt_op_ring_form(const tt_op_table *t, const tt_op_def *op)
{
    const tt_op_def *ring =
        op_form(t, TT_HAS(op, tt_op_def, ring_form) ? op->ring_form : NULL, op->attrs_size);
    return ring && ring->n_out == op->n_out ? ring : NULL;
}

const tt_op_def *tt_op_epilogue_form(const tt_op_table *t, const tt_op_def *op)
{
    if (op->attrs_size || op->n_out != 1)
        return NULL;
    return op_form(t, TT_HAS(op, tt_op_def, epilogue_form) ? op->epilogue_form : NULL,
                   sizeof(tt_fused_product));
}

const tt_op_def *tt_op_rope_form(const tt_op_table *t, const tt_op_def *op)
{
    if (op->attrs_size != sizeof(tt_fused_product))
        return NULL;
    return op_form(t, TT_HAS(op, tt_op_def, rope_form) ? op->rope_form : NULL,
                   sizeof(tt_fused_rope));
}
