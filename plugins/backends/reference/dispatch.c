/* SPDX-License-Identifier: Apache-2.0 */
#include "reference.h"
#include <string.h>

/* Rows of experts that are cut over ranks (docs/design/experts.md). B parts of the tokens, in G groups of P;
 * M places per part, in P bins. */

static size_t row_bytes(const tt_tensor *t)
{
    return (size_t)t->shape[t->n_dims - 1] * tt_dtype_size(t->dtype);
}

/* Copies row `from` of x to row `to` of y. */
static void copy_row(const tt_tensor *x, int64_t from, const tt_tensor *y, int64_t to)
{
    const size_t bytes = row_bytes(x);
    memcpy((char *)y->data + (size_t)to * bytes, (const char *)x->data + (size_t)from * bytes,
           bytes);
}

/* Rows of one part of a tensor whose parts are equal. */
static int64_t part_rows(const tt_tensor *t, int64_t parts)
{
    const int64_t width = t->shape[t->n_dims - 1];
    return parts && width ? tt_tensor_numel(t) / width / parts : 0;
}

tt_status ref_dispatch_sort(void *backend, const tt_kernel_call *c, tt_error *err)
{
    const tt_tensor *assign = &c->in[0], *counts = &c->out[1];
    const int64_t parts = c->out[0].shape[0], m = c->out[0].shape[1], experts = counts->shape[2],
                  members = counts->global[1], local = experts / members,
                  slots = parts ? tt_tensor_numel(assign) / parts : 0,
                  first = ((const tt_attrs_dims *)c->attrs)->dims[4].size;
    int32_t *places = c->out[0].data, *n = counts->data;
    (void)backend, (void)err;
    for (int64_t b = 0; b < parts; b++)
        for (int64_t p = 0; p < members; p++) {
            int32_t *bin = places + b * m + p * (m / members);
            int64_t at = -first;
            for (int64_t i = 0; i < m / members; i++)
                bin[i] = -1;
            for (int64_t e = p * local; e < (p + 1) * local; e++) {
                n[b * experts + e] = 0;
                for (int64_t s = 0; s < slots; s++) {
                    if (ref_index(assign, b * slots + s) != e)
                        continue;
                    if (at >= 0 && at < m / members) {
                        bin[at] = (int32_t)s;
                        n[b * experts + e]++;
                    }
                    at++;
                }
            }
        }
    return TT_OK;
}

/* How many places count: where the graph counts the rows, there are fewer rows than places. */
static int64_t places_of(const tt_tensor *places, const tt_tensor *rows)
{
    const int64_t n = part_rows(rows, 1), all = tt_tensor_numel(places);
    return n < all ? n : all;
}

tt_status ref_dispatch_gather(void *backend, const tt_kernel_call *c, tt_error *err)
{
    const tt_tensor *x = &c->in[0], *places = &c->in[1];
    const int64_t parts = places->shape[0], m = places->shape[1], n = part_rows(x, parts);
    (void)backend, (void)err;
    ref_clear(&c->out[0]);
    for (int64_t i = 0; i < places_of(places, &c->out[0]); i++)
        if (ref_index(places, i) >= 0)
            copy_row(x, i / m * n + ref_index(places, i), &c->out[0], i);
    return TT_OK;
}

tt_status ref_dispatch_scatter(void *backend, const tt_kernel_call *c, tt_error *err)
{
    const tt_tensor *places = &c->in[1], *y = &c->out[0];
    const int64_t parts = places->shape[0], m = places->shape[1], n = part_rows(y, parts);
    (void)backend, (void)err;
    ref_clear(y);
    for (int64_t i = 0; i < places_of(places, &c->in[0]); i++)
        if (ref_index(places, i) >= 0)
            copy_row(&c->in[0], i, y, i / m * n + ref_index(places, i));
    return TT_OK;
}

/* For each slot that counts [G,P,E] knows: its row of dispatch_pack's result, and its place in [B,M]. experts: the
 * expert of each row of the result is stored; otherwise rows are copied, `back`: from rows to places. */
static void dispatch_walk(const tt_tensor *counts, int64_t rows, int64_t m, const tt_tensor *x,
                          const tt_tensor *y, bool back, int32_t *experts)
{
    const int64_t groups = counts->shape[0], senders = counts->shape[1], n = counts->shape[2],
                  local = counts->global[2] / counts->global[1], bins = n / local,
                  each = groups > 0 ? rows / (groups * bins) : 0;
    for (int64_t g = 0; g < groups; g++)
        for (int64_t e = 0; e < n; e++)
            for (int64_t s = 0; s < senders; s++) {
                const int64_t bin = e / local;
                int64_t row = (g * bins + bin) * each,
                        place = (g * senders + s) * m + bin * (m / bins);
                for (int64_t f = bin * local; f <= e; f++)
                    for (int64_t t = 0; t < senders; t++) {
                        const int64_t here = ref_index(counts, (g * senders + t) * n + f);
                        row += f < e || t < s ? here : 0;
                        place += f < e && t == s ? here : 0;
                    }
                for (int64_t i = 0; i < ref_index(counts, (g * senders + s) * n + e); i++) {
                    if (experts)
                        experts[row + i] = (int32_t)(counts->begin[2] + e);
                    else
                        copy_row(x, back ? row + i : place + i, y, back ? place + i : row + i);
                }
            }
}

tt_status ref_dispatch_pack(void *backend, const tt_kernel_call *c, tt_error *err)
{
    (void)backend, (void)err;
    ref_clear(&c->out[0]);
    dispatch_walk(&c->in[1], c->out[0].shape[0], c->in[0].shape[1], &c->in[0], &c->out[0], false,
                  NULL);
    return TT_OK;
}

tt_status ref_dispatch_unpack(void *backend, const tt_kernel_call *c, tt_error *err)
{
    (void)backend, (void)err;
    ref_clear(&c->out[0]);
    dispatch_walk(&c->in[1], c->in[0].shape[0], c->out[0].shape[1], &c->in[0], &c->out[0], true,
                  NULL);
    return TT_OK;
}

tt_status ref_dispatch_expert(void *backend, const tt_kernel_call *c, tt_error *err)
{
    int32_t *expert = c->out[0].data;
    (void)backend, (void)err;
    for (int64_t i = 0; i < c->out[0].shape[0]; i++)
        expert[i] = -1;
    dispatch_walk(&c->in[0], c->out[0].shape[0], 0, NULL, NULL, false, expert);
    return TT_OK;
}
