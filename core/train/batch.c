/* SPDX-License-Identifier: Apache-2.0 */
#include "train/train.h"
#include <string.h>

tt_status tt_feed_fill(void *feed, const char *input, int micro, int64_t begin, int64_t end,
                       int32_t *dst, tt_error *err)
{
    const tt_feed *f = feed;
    const tt_batch *b = &f->micro[micro];
    const int32_t *src = !strcmp(input, "ids")      ? b->ids
                         : !strcmp(input, "labels") ? b->labels
                         : !strcmp(input, "pos")    ? b->pos
                                                    : b->seg;
    begin -= f->offset;
    end -= f->offset;
    if (begin < 0 || end > b->n_tokens)
        return TT_FAIL(err, TT_EINTERNAL, "input %s: tokens [%lld, %lld) belong to another rank",
                       input, (long long)begin, (long long)end);
    if (!f->order || !f->order->from) {
        memcpy(dst, src + begin, (size_t)(end - begin) * sizeof *dst);
        return TT_OK;
    }
    for (int64_t i = begin; i < end; i++)
        dst[i - begin] = src[f->order->from[i]];
    return TT_OK;
}
