/* SPDX-License-Identifier: Apache-2.0 */
#include "base/base.h"
#include "base/reserve.h"
#include <stdlib.h>
#include <ttrun/tokenizer.h>

tt_status tt_ids_push(tt_ids *list, int32_t id, tt_error *err)
{
    if (list->n == list->cap) {
        const size_t cap = list->cap ? list->cap + list->cap / 2 : 256;
        int32_t *ids =
            cap <= SIZE_MAX / sizeof *ids ? tt_reserve_realloc(list->ids, cap * sizeof *ids) : NULL;
        if (!ids)
            return TT_FAIL(err, TT_ENOMEM, "out of memory growing a list of %zu token ids to %zu",
                           list->n, cap);
        list->ids = ids;
        list->cap = cap;
    }
    list->ids[list->n++] = id;
    return TT_OK;
}

void tt_ids_free(tt_ids *list)
{
    free(list->ids);
    *list = (tt_ids){0};
}
