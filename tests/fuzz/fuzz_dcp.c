/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/internal.h"
#include "interchange/formats/dcp.h"
#include <stdlib.h>
#include <string.h>

/* .metadata of torch.distributed.checkpoint: what is taken has chunks within their tensors, and names of
 * files without a folder. */

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    uint8_t *exact = malloc(n ? n : 1); /* its end is the end of the memory */
    tt_arena *a = tt_arena_new();
    tt_dcp d = {0};
    tt_error err = {0};
    if (exact && n)
        memcpy(exact, bytes, n);
    if (exact && tt_dcp_parse("fuzz", exact, n, a, &d, &err) == TT_OK) {
        for (size_t i = 0; i < d.items.n; i++) {
            const tt_dcp_item *t = &d.items.items[i];
            TT_ASSERT(t->at >= 0 && t->bytes >= 0 && !strchr(t->file, '/'));
            for (int k = 0; k < t->n_dims; k++)
                TT_ASSERT(t->begin[k] >= 0 && t->size[k] >= 0 &&
                          t->begin[k] <= INT64_MAX - t->size[k]);
        }
    } else {
        TT_ASSERT(!exact || (err.text[0] && !strchr(err.text, '\n')));
    }
    tt_arena_free(a);
    free(exact);
    return 0;
}
