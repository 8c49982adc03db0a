/* SPDX-License-Identifier: Apache-2.0 */
#include "train/train.h"
#include <string.h>

/* A micro-batch's planes by the name of the graph's input. */

typedef struct plane {
    const void *data;
    bool per_sample;
    bool spread; /* per sample, asked for per token */
} plane;

static bool find_plane(const tt_batch *b, const char *input, plane *out)
{
    const struct {
        const char *name;
        const int32_t *data;
    } given[] = {
        {"ids",    b->ids   },
        {"labels", b->labels},
        {"pos",    b->pos   },
        {"seg",    b->seg   }
    };
    char name[80];
    for (size_t i = 0; i < TT_COUNT(given); i++)
        if (!strcmp(input, given[i].name)) {
            *out = (plane){given[i].data, false, false};
            return true;
        }
    const char *at = strchr(input, TT_INPUT_SPREAD[0]);
    snprintf(name, sizeof name, "%.*s", (int)(at ? at - input : (ptrdiff_t)strlen(input)), input);
    const int i = tt_inputs_find(b->inputs, name);
    if (i >= 0)
        *out = (plane){b->more[i], !at && b->inputs->items[i].per_sample, at != NULL};
    return i >= 0;
}

tt_status tt_feed_fill(void *feed, const char *input, int micro, int64_t begin, int64_t end,
                       int32_t *dst, tt_error *err)
{
    const tt_feed *f = feed;
    const tt_batch *b = &f->micro[micro];
    plane p;
    if (!find_plane(b, input, &p))
        return TT_FAIL(err, TT_EINTERNAL, "the batch has no input %s", input);
    const int64_t size = p.per_sample ? b->seq_len : 1; /* tokens of an element */
    const int32_t *src = p.data, *from = f->order ? f->order->from : NULL;
    begin -= f->offset / size;
    end -= f->offset / size;
    if (begin < 0 || end > b->n_tokens / size)
        return TT_FAIL(err, TT_EINTERNAL, "input %s: %s [%lld, %lld) are another rank's", input,
                       p.per_sample ? "samples" : "tokens", (long long)begin, (long long)end);
    if (p.spread) {
        for (int64_t i = begin; i < end; i++) /* a token's place stays within its sample */
            dst[i - begin] = src[i / b->seq_len];
    } else if (p.per_sample || !from) {
        memcpy(dst, src + begin, (size_t)(end - begin) * sizeof *dst);
    } else {
        for (int64_t i = begin; i < end; i++)
            dst[i - begin] = src[from[i]];
    }
    return TT_OK;
}
