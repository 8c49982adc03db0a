/* SPDX-License-Identifier: Apache-2.0 */
#include "interchange/interchange_impl.h"
#include <string.h>

/* Translates tensor names to those of other programs. */

/* Translates by one row: "model.layers.7.x" to "blk.7.x"; a star in the row stands for digits. */
static const char *renamed(tt_arena *a, const tt_tensor_name *row, const char *name)
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
    return tt_arena_printf(a, "%.*s%.*s%s", (int)(to - row->theirs), row->theirs, (int)digits,
                           name + head, to + 1);
}

const char *tt_name_there(tt_arena *a, const tt_tensor_name *names, size_t n, size_t stride,
                          const char *name, const tt_tensor_name **row)
{
    const char *found = NULL;
    for (size_t i = 0; i < n && !found; i++) {
        *row = (const void *)((const char *)names + i * stride);
        found = renamed(a, *row, name);
    }
    return found;
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
