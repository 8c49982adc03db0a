/* SPDX-License-Identifier: Apache-2.0 */
#include "train/losses.h"
#include <stdlib.h>
#include <string.h>

tt_status tt_losses_open(tt_losses *l, tt_error *err)
{
    l->items = calloc(TT_MOST_LOSSES, sizeof *l->items); /* untouched pages take no memory */
    return l->items ? TT_OK : TT_FAIL(err, TT_ENOMEM, "no memory for the losses that are logged");
}

void tt_losses_close(tt_losses *l)
{
    free(l->items);
    *l = (tt_losses){0};
}

void tt_losses_add(tt_losses *l, tt_step_loss newest)
{
    const size_t half = TT_MOST_LOSSES / 2;
    if (l->n == TT_MOST_LOSSES) {
        memmove(l->items, l->items + half, half * sizeof *l->items);
        l->n = half;
    }
    l->items[l->n++] = newest;
}

void tt_losses_resume(tt_losses *l, const tt_trainer_state *from)
{
    l->n = 0;
    for (size_t i = 0; l->items && i < from->n_losses && from->losses[i].step <= from->step; i++)
        l->items[l->n++] = from->losses[i];
}
