/* SPDX-License-Identifier: Apache-2.0 */
#include "train/peer_index.h"
#include "train/peer_memory.h"
#include <string.h>

/* tt_peer_index, a `record` per tensor, then their names, each with its final 0. */

typedef struct record {
    int64_t name; /* where it begins, from the index's begin */
    int32_t dtype, n_dims, owner, exact;
    int64_t global[TT_MAX_DIMS];
    int64_t begin[TT_MAX_DIMS], end[TT_MAX_DIMS];
} record;

int64_t tt_peer_piece_bytes(const tt_ckpt_piece *p)
{
    return tt_box_numel(&p->box, p->n_dims) * (int64_t)tt_dtype_size(p->dtype);
}

int64_t tt_peer_index_bytes(int64_t n, int64_t names)
{
    return tt_peer_pages((int64_t)sizeof(tt_peer_index) + n * (int64_t)sizeof(record) + names);
}

int64_t tt_peer_index_size(const tt_ckpt_piece *p, size_t n)
{
    int64_t names = 0;
    for (size_t i = 0; i < n; i++)
        names += (int64_t)strlen(p[i].name) + 1;
    return tt_peer_index_bytes((int64_t)n, names);
}

void tt_peer_index_write(const tt_peer_index *of, const tt_ckpt_piece *p, size_t n, void *to)
{
    const int64_t bytes = tt_peer_index_size(p, n);
    tt_peer_index head = *of;
    record *r = (void *)((char *)to + sizeof head);
    char *name = (char *)(r + n);
    head.bytes = bytes;
    head.n = (int64_t)n;
    memset(to, 0, (size_t)bytes);
    memcpy(to, &head, sizeof head);
    for (size_t i = 0; i < n; i++) {
        r[i].name = name - (char *)to;
        r[i].dtype = (int32_t)p[i].dtype;
        r[i].n_dims = p[i].n_dims;
        r[i].owner = p[i].owner;
        r[i].exact = p[i].exact;
        for (int d = 0; d < p[i].n_dims; d++) {
            r[i].global[d] = p[i].global[d];
            r[i].begin[d] = p[i].box.begin[d];
            r[i].end[d] = p[i].box.end[d];
        }
        name += strlen(strcpy(name, p[i].name)) + 1;
    }
}

/* *bytes: of its data. */
static bool is_valid(const record *r, const tt_peer_index *head, const char *copy, int64_t *bytes)
{
    if (r->name < (int64_t)sizeof *head || r->name >= head->bytes || r->dtype < 0 ||
        r->dtype >= TT_N_DTYPES || r->n_dims < 0 || r->n_dims > TT_MAX_DIMS ||
        !memchr(copy + r->name, 0, (size_t)(head->bytes - r->name)))
        return false;
    *bytes = (int64_t)tt_dtype_size((tt_dtype)r->dtype);
    for (int d = 0; d < r->n_dims; d++)
        if (r->begin[d] < 0 || r->end[d] < r->begin[d] || r->global[d] < r->end[d] ||
            !tt_mul_i64(*bytes, r->end[d] - r->begin[d], bytes))
            return false;
    return true;
}

static void to_piece(const record *r, const char *copy, int64_t at, tt_ckpt_piece *p)
{
    *p = (tt_ckpt_piece){.name = copy + r->name,
                         .dtype = (tt_dtype)r->dtype,
                         .n_dims = r->n_dims,
                         .data = (void *)(uintptr_t)(copy + at),
                         .owner = r->owner != 0,
                         .exact = r->exact != 0};
    for (int d = 0; d < r->n_dims; d++) {
        p->global[d] = r->global[d];
        p->box.begin[d] = r->begin[d];
        p->box.end[d] = r->end[d];
    }
}

bool tt_peer_index_read(const void *copy, int64_t n, tt_arena *a, tt_peer_index *out,
                        tt_ckpt_piece **pieces)
{
    tt_peer_index head;
    if (n < (int64_t)sizeof head)
        return false;
    memcpy(&head, copy, sizeof head);
    if (head.bytes < (int64_t)sizeof head || head.bytes > n || head.n < 0 ||
        head.n > (head.bytes - (int64_t)sizeof head) / (int64_t)sizeof(record) || head.rank < 0 ||
        head.rank >= head.world)
        return false;
    const record *r = (const void *)((const char *)copy + sizeof head);
    tt_ckpt_piece *p = tt_arena_array(a, (size_t)head.n + 1, sizeof *p);
    int64_t at = head.bytes, bytes = 0;
    for (int64_t i = 0; i < head.n; i++, at += bytes) {
        if (!is_valid(&r[i], &head, copy, &bytes) || bytes > n - at)
            return false;
        to_piece(&r[i], copy, at, &p[i]);
    }
    *out = head;
    *pieces = p;
    return true;
}
