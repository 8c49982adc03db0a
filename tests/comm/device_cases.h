/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_TESTS_DEVICE_CASES_H
#define TT_TESTS_DEVICE_CASES_H
#include <stdlib.h>
#include <string.h>

/* What every communicator of device memory must do: collectives of every dtype against tt_reduce_members
 * and plain loops, and messages. The file that includes this one has a `member` with its rank, the number
 * of ranks, the group `all`, three buffers of ROOM bytes, pinned memory and a device, the tables dvt and
 * lvt, dev_sync, MUST and EXPECT. */

static const tt_dtype dtypes[] = {TT_F32, TT_BF16, TT_F64, TT_I32, TT_I64};

/* Finite, and such that the order of a sum changes its bits. */
static inline void put_value(void *at, tt_dtype t, int64_t i, int rank)
{
    const uint32_t h = (uint32_t)(rank * 7919 + i * 104729) * 2654435761u;
    const float f = (float)(int32_t)h * (rank % 2 ? 1e-3f : 1.7f);
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    if (t == TT_F32)
        ((float *)at)[i] = f;
    if (t == TT_F64)
        ((double *)at)[i] = (double)f / 3;
    if (t == TT_I32)
        ((int32_t *)at)[i] = (int32_t)(h >> 8);
    if (t == TT_I64)
        ((int64_t *)at)[i] = (int64_t)h * 3;
    if (t == TT_BF16)
        ((uint16_t *)at)[i] = (uint16_t)(u >> 16);
}

/* What a reduction of all members' values is. */
static inline void reduced(const member *m, void *out, int64_t n, tt_dtype t, tt_reduce op)
{
    const void *xs[MOST];
    char *x[MOST];
    tt_error err;
    for (int r = 0; r < m->n; r++) {
        xs[r] = x[r] = calloc((size_t)n + 1, 8);
        for (int64_t i = 0; i < n; i++)
            put_value(x[r], t, i, r);
    }
    (void)tt_reduce_members(out, xs, m->n, n, t, op, &err);
    for (int r = 0; r < m->n; r++)
        free(x[r]);
}

static inline tt_status move(const member *m, void *to, const void *from, size_t bytes,
                             tt_error *err)
{
    return dvt->copy(m->d.self, m->d.q[0], to, from, bytes, err);
}
/* Work before and after each call, which must not overlap with what others read. */
static inline tt_status spoil(const member *m, void *at, tt_error *err)
{
    return dvt->fill(m->d.self, m->d.q[0], at, 0x7fc17fc1u, ROOM, err);
}
static inline tt_status take(const member *m, const void *from, tt_error *err) /* to p */
{
    TT_TRY(move(m, m->p, from, ROOM, err));
    return dev_sync(&m->d, 0, err);
}
static inline tt_status give(const member *m, void *to, tt_dtype t, int64_t n,
                             tt_error *err) /* by p + ROOM */
{
    for (int64_t i = 0; i < n; i++)
        put_value(m->p + ROOM, t, i, m->rank);
    TT_TRY(spoil(m, to, err));
    TT_TRY(move(m, to, m->p + ROOM, (size_t)n * tt_dtype_size(t), err));
    return dev_sync(&m->d, 0, err);
}

static inline int64_t counts_of(int n, int round, int64_t *counts)
{
    int64_t all = 0;
    for (int i = 0; i < n; i++)
        all += counts[i] = (round * 31 + i * 57) % 4 == 1 ? 0 : (round * 97 + i * 131) % 300;
    return all;
}

static inline void reductions(member *m)
{
    char *want = calloc(ROOM, 1);
    for (int round = 0; round < 10; round++) {
        const tt_dtype t = dtypes[round % 5];
        const tt_reduce op = round % 3 == 2 ? TT_MAX : TT_SUM;
        const size_t size = tt_dtype_size(t);
        int64_t counts[MOST], at = 0;
        const int64_t n = counts_of(m->n, round, counts);
        for (int i = 0; i < m->rank; i++)
            at += counts[i];
        reduced(m, want, n, t, op);
        MUST(give(m, m->a, t, n, E));
        MUST(lvt->reduce_scatter(m->all, m->a, m->b, counts, t, op, E));
        MUST(lvt->all_reduce(m->all, m->a, n, t, op, E));
        MUST(move(m, m->c, m->b, ROOM, E));
        MUST(take(m, m->c, E));
        EXPECT(!memcmp(m->p, want + (size_t)at * size, (size_t)counts[m->rank] * size));
        MUST(take(m, m->a, E));
        EXPECT(!memcmp(m->p, want, (size_t)n * size));
        MUST(lvt->barrier(m->all, E));
    }
    free(want);
}

/* Larger than what is exchanged whole. */
static inline void large_reductions(member *m)
{
    static const int64_t sizes[] = {12000, 12001, 20001, 8193, 6000};
    static const tt_dtype types[] = {TT_F32, TT_F32, TT_BF16, TT_F32, TT_F64};
    char *want = calloc(ROOM, 1);
    for (int round = 0; round < 5; round++) {
        reduced(m, want, sizes[round], types[round], round == 3 ? TT_MAX : TT_SUM);
        MUST(give(m, m->a, types[round], sizes[round], E));
        MUST(lvt->all_reduce(m->all, m->a, sizes[round], types[round], round == 3 ? TT_MAX : TT_SUM,
                             E));
        MUST(take(m, m->a, E));
        EXPECT(!memcmp(m->p, want, (size_t)sizes[round] * tt_dtype_size(types[round])));
    }
    free(want);
}

static inline void gathers(member *m)
{
    for (int round = 0; round < 10; round++) {
        const tt_dtype t = dtypes[round % 5];
        const size_t size = tt_dtype_size(t);
        int64_t counts[MOST], get[MOST], send[MOST], mine = 0, n = counts_of(m->n, round, counts);
        char *want = calloc(ROOM, 1), *x = calloc(ROOM, 1), *to = want;
        for (int i = 0; i < m->n; i++) {
            for (int64_t k = 0; k < counts[i]; k++)
                put_value(x, t, k, i);
            memcpy(to, x, (size_t)counts[i] * size);
            to += (size_t)counts[i] * size;
            mine += i < m->rank ? counts[i] : 0;
        }
        MUST(give(m, m->a, t, counts[m->rank], E));
        MUST(spoil(m, m->b, E));
        if (round % 2) { /* in place */
            MUST(move(m, m->b + (size_t)mine * size, m->a, (size_t)counts[m->rank] * size, E));
            MUST(lvt->all_gather(m->all, m->b + (size_t)mine * size, m->b, counts, t, E));
        } else {
            MUST(lvt->all_gather(m->all, m->a, m->b, counts, t, E));
            MUST(spoil(m, m->a, E));
        }
        MUST(take(m, m->b, E));
        EXPECT(!memcmp(m->p, want, (size_t)n * size));
        /* member i sends (i + k) % 3 elements of its value to member k */
        to = want;
        n = 0;
        for (int k = 0; k < m->n; k++) {
            send[k] = (m->rank + k + round) % 3 * 5;
            get[k] = (k + m->rank + round) % 3 * 5;
            for (int64_t e = 0, first = 0; e < get[k]; e++) {
                for (int j = 0; e == 0 && j < m->rank; j++)
                    first += (k + j + round) % 3 * 5;
                put_value(x, t, first + e, k);
                memcpy(to, x + (size_t)(first + e) * size, size);
                to += size;
            }
            n += send[k];
        }
        MUST(give(m, m->a, t, n, E));
        MUST(lvt->all_to_all(m->all, m->a, send, m->b, get, t, E));
        MUST(spoil(m, m->a, E));
        MUST(take(m, m->b, E));
        EXPECT(!memcmp(m->p, want, (size_t)(to - want)));
        free(want);
        free(x);
    }
}

/* A ring: two messages fit in between; they grow. */
static inline void messages(member *m)
{
    const int to = (m->rank + 1) % m->n, from = (m->rank + m->n - 1) % m->n;
    char *x = calloc(ROOM, 1);
    if (m->n < 2) {
        free(x);
        return;
    }
    for (int round = 0; round < 6; round++) {
        const int64_t n = round < 2 ? 100 : 1000 + round * 7;
        MUST(give(m, m->a, TT_F32, 2 * n, E));
        MUST(lvt->send(m->all, to, m->a, 4 * n, E));
        MUST(lvt->send(m->all, to, m->a + 4 * n, 4 * n, E));
        MUST(spoil(m, m->a, E));
        MUST(lvt->recv(m->all, from, m->b, 4 * n, E));
        MUST(lvt->recv(m->all, from, m->b + 4 * n, 4 * n, E));
        MUST(take(m, m->b, E));
        for (int64_t i = 0; i < 2 * n; i++)
            put_value(x, TT_F32, i, from);
        EXPECT(!memcmp(m->p, x, (size_t)n * 8));
    }
    MUST(lvt->send(m->all, to, m->a, 0, E));
    MUST(lvt->recv(m->all, from, m->a, 0, E));
    free(x);
}

#endif
