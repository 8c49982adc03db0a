/* SPDX-License-Identifier: Apache-2.0 */
#include "interchange/interchange_impl.h"
#include <stdlib.h>
#include <string.h>

/* Translates tensor names to those of other programs. */

/* Translates by one row: "model.layers.7.x" to "blk.7.x"; a star in the row stands for digits. */
static const char *renamed(tt_arena *a, const tt_name_table *t, const tt_tensor_name *row,
                           const char *name)
{
    const char *star = strchr(row->ours, '*'), *to = strchr(row->theirs, '*');
    if (!star || !to)
        return strcmp(row->ours, name) ? NULL : row->theirs;
    const size_t head = (size_t)(star - row->ours);
    if (strncmp(row->ours, name, head))
        return NULL;
    const size_t digits = strspn(name + head, "0123456789");
    if (!digits || strcmp(name + head + digits, star + 1))
        return NULL;
    const long long block = strtoll(name + head, NULL, 10);
    if (t->late && block >= t->n_blocks)
        return tt_arena_printf(a, "%s%lld%s", t->late, block - t->n_blocks, to + 1);
    return tt_arena_printf(a, "%.*s%.*s%s", (int)(to - row->theirs), row->theirs, (int)digits,
                           name + head, to + 1);
}

const char *tt_name_next(tt_arena *a, const tt_name_table *t, const char *name, size_t *at,
                         void *row, size_t size)
{
    const char *found = NULL;
    while (*at < t->n && !found) {
        const void *there = (const char *)t->names + (*at)++ * t->stride;
        memset(row, 0, size);
        memcpy(row, there, TT_MIN(t->stride, size));
        found = renamed(a, t, there, name);
    }
    return found;
}

const char *tt_name_there(tt_arena *a, const tt_name_table *t, const char *name, bool zeros,
                          size_t *at, tt_titan_name *row)
{
    const char *found;
    do
        found = tt_name_next(a, t, name, at, row, sizeof *row);
    while (found && (row->zeros != 0) != zeros);
    return found;
}

void tt_meta_names(const tt_setup *s, tt_name_table *out)
{
    const tt_model_meta *m = tt_setup_model_meta(s->model.component);
    *out = (tt_name_table){0};
    if (m)
        *out = (tt_name_table){.names = m->names, .n = m->n_names, .stride = m->name_size};
}

tt_status tt_titan_names(const tt_setup *s, tt_name_table *out, tt_error *err)
{
    const tt_component *c = s->model.component;
    const tt_model_titan *m = tt_setup_model_titan(c);
    const char *blocks = tt_model_blocks_option(c);
    const int64_t *n = blocks ? tt_part_value(c, s->model.config, blocks, TT_OPT_INT) : NULL;
    tt_meta_names(s, out);
    if (!m)
        return TT_OK;
    *out = (tt_name_table){.names = m->names, .n = m->n_names, .stride = m->name_size};
    if (n && TT_HAS(m, tt_model_titan, late) && m->late) {
        out->late = m->late;
        out->n_blocks = *n;
    }
    return TT_HAS(m, tt_model_titan, check) && m->check ? m->check(s->model.config, err) : TT_OK;
}

tt_status tt_head_dim_of(const tt_setup *s, const char *param, int64_t *out, tt_error *err)
{
    *out = 0;
    for (size_t i = 0; i < s->graph->params.n; i++)
        if (!strcmp(s->graph->params.items[i]->name, param))
            *out = s->graph->params.items[i]->type.dims[0].unit;
    if (*out < 2 || *out % 2)
        return TT_FAIL(err, TT_EINVAL, "model %s: the rows of '%s' are not cut into heads",
                       s->model.name, param);
    return TT_OK;
}
