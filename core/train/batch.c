/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/copies.h"
#include "train/train.h"
#include <stdlib.h>
#include <string.h>

/* Fills the graph's inputs from a micro-batch: each array of the batch is found by the input's
 * name. */

typedef struct batch_array {
    const void *data;
    bool per_sample;
    bool spread;   /* the array has one element per sample, but the graph reads one per token */
    int64_t ahead; /* the graph reads the element of so many tokens further on */
    int32_t fill;  /* where that is of another document */
} batch_array;

static bool find_array(const tt_batch *b, const char *input, batch_array *out)
{
    const char *plus = strchr(input, TT_INPUT_SHIFT[0]);
    char base[80];
    if (plus) {
        snprintf(base, sizeof base, "%.*s", (int)(plus - input), input);
        if (!find_array(b, base, out))
            return false;
        out->ahead = strtoll(plus + 1, NULL, 10);
        out->fill = strcmp(base, "labels") ? 0 : -100;
        return true;
    }
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
            *out = (batch_array){.data = given[i].data};
            return true;
        }
    const char *at = strchr(input, TT_INPUT_SPREAD[0]);
    snprintf(name, sizeof name, "%.*s", (int)(at ? at - input : (ptrdiff_t)strlen(input)), input);
    const int i = tt_inputs_find(b->inputs, name);
    if (i >= 0)
        *out = (batch_array){.data = b->more[i],
                             .per_sample = !at && b->inputs->items[i].per_sample,
                             .spread = at != NULL};
    return i >= 0;
}

/* [begin, end) of the input that the core itself provides. */
static tt_status fill_token_index(const tt_feed *f, const tt_batch *b, int64_t begin, int64_t end,
                                  int32_t *dst, tt_error *err)
{
    const int32_t *from = f->order ? f->order->from : NULL;
    const int64_t own = begin - f->offset;
    if (own < 0 || end - f->offset > b->n_tokens)
        return TT_FAIL(err, TT_EINTERNAL,
                       "input token_index: tokens [%lld, %lld) belong to another rank",
                       (long long)begin, (long long)end);
    for (int64_t i = 0; i < end - begin; i++)
        dst[i] = (int32_t)(uint32_t)(b->first_token + (from ? from[own + i] : own + i));
    return TT_OK;
}

/* The element of `ahead` tokens after token i, if that is of the same sample and document. */
static int32_t element_ahead(const tt_batch *b, const batch_array *p, int64_t i)
{
    const int64_t j = i + p->ahead;
    const bool same = j < b->n_tokens && i / b->seq_len == j / b->seq_len &&
                      b->seg[i] == b->seg[j] && b->pos[j] - b->pos[i] == p->ahead;
    return same ? ((const int32_t *)p->data)[j] : p->fill;
}

tt_status tt_feed_fill(void *feed, const char *input, int micro, int64_t begin, int64_t end,
                       int32_t *dst, tt_error *err)
{
    const tt_feed *f = feed;
    const tt_batch *b = &f->micro[micro * TT_MAXV(f->interleaved, 1) + tt_input_copy(input)];
    char name[96]; /* without the suffix of the copy */
    snprintf(name, sizeof name, "%.*s", (int)strcspn(input, TT_INPUT_COPY), input);
    input = name;
    if (!strcmp(input, "token_index"))
        return fill_token_index(f, b, begin, end, dst, err);
    batch_array p;
    if (!find_array(b, input, &p))
        return TT_FAIL(err, TT_EINTERNAL, "the batch has no input %s", input);
    const int64_t size = p.per_sample ? b->seq_len : 1; /* tokens per element */
    const int32_t *src = p.data, *from = f->order ? f->order->from : NULL;
    begin -= f->offset / size;
    end -= f->offset / size;
    if (begin < 0 || end > b->n_tokens / size)
        return TT_FAIL(err, TT_EINTERNAL, "input %s: %s [%lld, %lld) belong to another rank", input,
                       p.per_sample ? "samples" : "tokens", (long long)begin, (long long)end);
    if (p.ahead) {
        for (int64_t i = begin; i < end; i++)
            dst[i - begin] = element_ahead(b, &p, from ? from[i] : i);
    } else if (p.spread) {
        for (int64_t i = begin; i < end; i++) /* reordering keeps a token within its sample */
            dst[i - begin] = src[i / b->seq_len];
    } else if (p.per_sample || !from) {
        memcpy(dst, src + begin, (size_t)(end - begin) * sizeof *dst);
    } else {
        for (int64_t i = begin; i < end; i++)
            dst[i - begin] = src[from[i]];
    }
    return TT_OK;
}
