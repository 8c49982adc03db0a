/* SPDX-License-Identifier: Apache-2.0 */
#include "nccl.h"
#include <string.h>

/* Collectives. Sums are ordered: the members exchange their parts, and the backend's kernel adds them in
 * the order of members, which gives the bits of every other transport. The bytes that a member sends are
 * those of a ring. */

#define SMALL_BYTES 32768 /* an all-reduce of fewer bytes is one exchange of the whole */
#define PIECE_MULTIPLE 64 /* elements */
#define SCRATCH_ALIGN 256

tt_status nccl_check_queue(const tt_comm *g, const char *op, tt_error *err)
{
    return g->queue ? TT_OK
                    : TT_FAIL(err, TT_EINVAL, "nccl: %s before the group was put on a queue", op);
}

static ncclDataType_t type_of(tt_dtype t)
{
    switch (t) {
    case TT_F32:
        return (ncclDataType_t)NCCL_FLOAT32;
    case TT_F64:
        return (ncclDataType_t)NCCL_FLOAT64;
    case TT_I32:
        return (ncclDataType_t)NCCL_INT32;
    case TT_I64:
        return (ncclDataType_t)NCCL_INT64;
    case TT_BF16:
        return (ncclDataType_t)NCCL_BFLOAT16;
    case TT_F16:
        return (ncclDataType_t)NCCL_FLOAT16;
    default:
        return (ncclDataType_t)NCCL_UINT8; /* of one byte */
    }
}

static int64_t sum(const int64_t *counts, int n)
{
    int64_t s = 0;
    for (int i = 0; i < n; i++)
        s += counts[i];
    return s;
}

static cudaStream_t stream_of(const tt_comm *g)
{
    return (cudaStream_t)(void *)g->queue; /* of the backend cuda */
}

/* ---- a call ---- */

typedef struct call {
    tt_comm *g;
    const char *op;
    nccl_call *watched;
    ncclResult_t r; /* of the functions of NCCL so far */
} call;

static tt_status call_begin(call *c, tt_comm *g, const char *op, tt_error *err)
{
    *c = (call){.g = g, .op = op};
    return nccl_call_begins(g, op, &c->watched, err);
}

static tt_status call_end(const call *c, tt_status s, tt_error *err)
{
    return s == TT_OK ? nccl_call_ends(c->g, c->op, c->watched, err) : s;
}

/* Between the two, functions of NCCL are called with the link locked. */
static tt_status exchange_begin(call *c, tt_error *err)
{
    pthread_mutex_lock(&c->g->link->lock);
    if (!c->g->link->comm) {
        pthread_mutex_unlock(&c->g->link->lock);
        TT_TRY(nccl_world_status(c->g->world, err));
        return TT_FAIL(err, TT_ECOMM, "nccl: the group does not exist any more");
    }
    c->r = nccl.ncclGroupStart();
    return TT_OK;
}

static tt_status exchange_end(call *c, tt_error *err)
{
    const ncclResult_t r = nccl.ncclGroupEnd();
    pthread_mutex_unlock(&c->g->link->lock);
    const bool failed = (int)c->r != NCCL_SUCCESS && (int)c->r != NCCL_IN_PROGRESS;
    return nccl_settle(c->g, c->g->link, failed ? c->r : r, c->op, err);
}

static void note(call *c, ncclResult_t r)
{
    if ((int)c->r == NCCL_SUCCESS || (int)c->r == NCCL_IN_PROGRESS)
        c->r = r;
}

static void put_send(call *c, const void *p, int64_t n, tt_dtype t, int to)
{
    if (n && to != c->g->me)
        note(c, nccl.ncclSend(p, (size_t)n, type_of(t), to, c->g->link->comm, stream_of(c->g)));
}

static void put_recv(call *c, void *p, int64_t n, tt_dtype t, int from)
{
    if (n && from != c->g->me)
        note(c, nccl.ncclRecv(p, (size_t)n, type_of(t), from, c->g->link->comm, stream_of(c->g)));
}

static tt_status copy(const tt_comm *g, void *to, const void *from, size_t bytes, tt_error *err)
{
    if (!bytes || to == from)
        return TT_OK;
    return NCCL_DEVICE(g->world, copy, g->queue, to, from, bytes, err);
}

/* At least `bytes`; when it grows, the host waits until nothing uses the old memory. */
static tt_status scratch_of(tt_comm *g, size_t bytes, tt_error *err)
{
    nccl_world *w = g->world;
    void *p = NULL;
    if (bytes <= g->scratch_bytes)
        return TT_OK;
    if (g->scratch) {
        TT_TRY(NCCL_DEVICE(w, record, g->idle, g->queue, err));
        TT_TRY(NCCL_DEVICE(w, sync, g->idle, err));
        w->env.device->free(w->env.backend, g->scratch);
        g->scratch = NULL;
        g->scratch_bytes = 0;
    }
    TT_TRY(NCCL_DEVICE(w, alloc, bytes, &p, err));
    g->scratch = p;
    g->scratch_bytes = bytes;
    return TT_OK;
}

/* out = parts[0] op parts[1] op … of n elements each; out may be parts[0] or parts[1]. */
static tt_status reduce(tt_comm *g, void *out, int64_t n, tt_dtype t, tt_reduce op, tt_error *err)
{
    const tt_kernel *k = g->world->env.reduce_members;
    const tt_attrs_reduce_members a = {.op = (int32_t)op};
    tt_tensor in[64], y = {.data = out, .dtype = t, .n_dims = 1};
    y.shape[0] = y.global[0] = n;
    /* More than 64 members: the sum so far is the first of the next. */
    for (int at = 0; n && at < g->n;) {
        int k_in = 0;
        if (at)
            in[k_in++] = y;
        for (; k_in < 64 && at < g->n; at++, k_in++) {
            in[k_in] = y;
            in[k_in].data = (void *)(uintptr_t)g->parts[at];
        }
        const tt_kernel_call c = {.struct_size = sizeof c,
                                  .op = TT_OP_REDUCE_MEMBERS,
                                  .in = in,
                                  .n_in = k_in,
                                  .out = &y,
                                  .n_out = 1,
                                  .attrs = &a,
                                  .queue = g->queue,
                                  .backend = g->world->env.backend};
        TT_TRY(k->run(g->world->env.backend, &c, err));
    }
    return TT_OK;
}

/* ---- gathers ---- */

static bool all_equal(const tt_comm *g, const int64_t *counts)
{
    for (int i = 1; i < g->n; i++)
        if (counts[i] != counts[0])
            return false;
    return true;
}

static tt_status nccl_gather(call *c, const void *send, char *recv, const int64_t *counts,
                             tt_dtype t, tt_error *err)
{
    tt_comm *g = c->g;
    char *own = recv + nccl_bytes(sum(counts, g->me), t), *to = recv;
    const bool equal = all_equal(g, counts);
    if (!sum(counts, g->n))
        return TT_OK;
    TT_TRY(exchange_begin(c, err));
    if (equal)
        note(c, nccl.ncclAllGather(send, recv, (size_t)counts[0], type_of(t), g->link->comm,
                                   stream_of(g)));
    for (int i = 0; !equal && i < g->n; i++) {
        put_send(c, send, counts[g->me], t, i);
        put_recv(c, to, counts[i], t, i);
        to += nccl_bytes(counts[i], t);
    }
    TT_TRY(exchange_end(c, err));
    return equal ? TT_OK : copy(g, own, send, nccl_bytes(counts[g->me], t), err);
}

tt_status nccl_all_gather(tt_comm *g, const void *send, void *recv, const int64_t *counts,
                          tt_dtype dtype, tt_error *err)
{
    call c;
    TT_TRY(call_begin(&c, g, "all_gather", err));
    return call_end(&c, nccl_gather(&c, send, recv, counts, dtype, err), err);
}

static tt_status transpose(call *c, const char *send, const int64_t *send_counts, char *recv,
                           const int64_t *recv_counts, tt_dtype t, tt_error *err)
{
    tt_comm *g = c->g;
    char *own_to = recv + nccl_bytes(sum(recv_counts, g->me), t);
    const char *own_from = send + nccl_bytes(sum(send_counts, g->me), t);
    if (send_counts[g->me] != recv_counts[g->me])
        return TT_FAIL(err, TT_ECOMM,
                       "nccl: all_to_all: a member sends %lld elements to itself and "
                       "expects %lld",
                       (long long)send_counts[g->me], (long long)recv_counts[g->me]);
    TT_TRY(exchange_begin(c, err));
    for (int i = 0; i < g->n; i++) {
        put_send(c, send, send_counts[i], t, i);
        put_recv(c, recv, recv_counts[i], t, i);
        send += nccl_bytes(send_counts[i], t);
        recv += nccl_bytes(recv_counts[i], t);
    }
    TT_TRY(exchange_end(c, err));
    return copy(g, own_to, own_from, nccl_bytes(send_counts[g->me], t), err);
}

tt_status nccl_all_to_all(tt_comm *g, const void *send, const int64_t *send_counts, void *recv,
                          const int64_t *recv_counts, tt_dtype dtype, tt_error *err)
{
    call c;
    TT_TRY(call_begin(&c, g, "all_to_all", err));
    return call_end(&c, transpose(&c, send, send_counts, recv, recv_counts, dtype, err), err);
}

/* ---- reductions ---- */

static size_t part_stride(int64_t n, tt_dtype t)
{
    return (nccl_bytes(n, t) + SCRATCH_ALIGN - 1) / SCRATCH_ALIGN * SCRATCH_ALIGN;
}

/* Member i gets part i of what all send, as the list g->parts; its own part stays where it is, and the
 * place for it in the scratch is free. */
static tt_status gather_parts(call *c, const char *send, const int64_t *counts, tt_dtype t,
                              tt_error *err)
{
    tt_comm *g = c->g;
    const size_t stride = part_stride(counts[g->me], t);
    TT_TRY(scratch_of(g, stride * (size_t)g->n, err));
    TT_TRY(exchange_begin(c, err));
    for (int i = 0; i < g->n; i++) {
        char *place = g->scratch ? g->scratch + stride * (size_t)i : NULL;
        g->parts[i] = i == g->me ? send : place;
        put_send(c, send, counts[i], t, i);
        put_recv(c, place, counts[g->me], t, i);
        send += nccl_bytes(counts[i], t);
    }
    return exchange_end(c, err);
}

static tt_status scatter(call *c, const void *send, void *recv, const int64_t *counts, tt_dtype t,
                         tt_reduce op, tt_error *err)
{
    tt_comm *g = c->g;
    if (g->world->config.reduction == NCCL_FAST && all_equal(g, counts)) {
        TT_TRY(exchange_begin(c, err));
        note(c, nccl.ncclReduceScatter(send, recv, (size_t)counts[0], type_of(t),
                                       (ncclRedOp_t)(op == TT_MAX ? NCCL_MAX : NCCL_SUM),
                                       g->link->comm, stream_of(g)));
        return exchange_end(c, err);
    }
    TT_TRY(gather_parts(c, send, counts, t, err));
    return reduce(g, recv, counts[g->me], t, op, err);
}

tt_status nccl_reduce_scatter(tt_comm *g, const void *send, void *recv, const int64_t *counts,
                              tt_dtype dtype, tt_reduce op, tt_error *err)
{
    call c;
    TT_TRY(tt_reduce_members(NULL, NULL, 0, 0, dtype, op, err)); /* can it be reduced? */
    TT_TRY(call_begin(&c, g, "reduce_scatter", err));
    return call_end(&c, scatter(&c, send, recv, counts, dtype, op, err), err);
}

/* A small one: everyone gets all inputs. */
static tt_status reduce_whole(call *c, void *buf, int64_t n, tt_dtype t, tt_reduce op,
                              tt_error *err)
{
    tt_comm *g = c->g;
    const size_t stride = nccl_bytes(n, t);
    TT_TRY(scratch_of(g, stride * (size_t)g->n, err));
    TT_TRY(exchange_begin(c, err));
    note(c,
         nccl.ncclAllGather(buf, g->scratch, (size_t)n, type_of(t), g->link->comm, stream_of(g)));
    TT_TRY(exchange_end(c, err));
    for (int i = 0; i < g->n; i++)
        g->parts[i] = g->scratch + stride * (size_t)i;
    return reduce(g, buf, n, t, op, err);
}

/* Elements of the largest piece; pieces are as equal as NCCL's all-gather wants them, if they can be. */
static int64_t piece_most(int n, int64_t count)
{
    const int64_t each = count / n;
    return count % n ? (each + PIECE_MULTIPLE) / PIECE_MULTIPLE * PIECE_MULTIPLE : each;
}

static int64_t nccl_piece(const tt_comm *g, int i, int64_t count)
{
    const int64_t each = piece_most(g->n, count), at = each * i;
    return at >= count ? 0 : count - at < each ? count - at : each;
}

/* Everyone sums one piece, in the scratch that its own input does not need, and sends it to all. */
static tt_status reduce_pieces(call *c, char *buf, int64_t count, tt_dtype t, tt_reduce op,
                               tt_error *err)
{
    tt_comm *g = c->g;
    int64_t *counts = g->pieces;
    for (int i = 0; i < g->n; i++)
        counts[i] = nccl_piece(g, i, count);
    TT_TRY(gather_parts(c, buf, counts, t, err));
    char *own = g->scratch + part_stride(counts[g->me], t) * (size_t)g->me;
    TT_TRY(reduce(g, own, counts[g->me], t, op, err));
    return nccl_gather(c, own, buf, counts, t, err);
}

/* NCCL's own sums need none: "fast", if parts are equal. */
int64_t nccl_scratch_bytes(const void *config, int n, int all_reduce, int64_t count, tt_dtype t)
{
    const nccl_config *c = config;
    if (c->reduction == NCCL_FAST || count <= 0)
        return 0;
    if (all_reduce && nccl_bytes(count, t) <= SMALL_BYTES)
        return (int64_t)nccl_bytes(count, t) * n;
    const int64_t most = piece_most(n, count), piece = most < count ? most : count;
    const int64_t own = all_reduce ? piece : count;
    return (int64_t)part_stride(own, t) * n;
}

static tt_status reduce_all(call *c, void *buf, int64_t count, tt_dtype t, tt_reduce op,
                            tt_error *err)
{
    tt_comm *g = c->g;
    if (!count)
        return TT_OK;
    if (g->world->config.reduction == NCCL_FAST) {
        TT_TRY(exchange_begin(c, err));
        note(c, nccl.ncclAllReduce(buf, buf, (size_t)count, type_of(t),
                                   (ncclRedOp_t)(op == TT_MAX ? NCCL_MAX : NCCL_SUM), g->link->comm,
                                   stream_of(g)));
        return exchange_end(c, err);
    }
    if (nccl_bytes(count, t) <= SMALL_BYTES)
        return reduce_whole(c, buf, count, t, op, err);
    return reduce_pieces(c, buf, count, t, op, err);
}

tt_status nccl_all_reduce(tt_comm *g, void *buf, int64_t count, tt_dtype dtype, tt_reduce op,
                          tt_error *err)
{
    call c;
    TT_TRY(tt_reduce_members(NULL, NULL, 0, 0, dtype, op, err)); /* can it be reduced? */
    TT_TRY(call_begin(&c, g, "all_reduce", err));
    return call_end(&c, reduce_all(&c, buf, count, dtype, op, err), err);
}

static tt_status all_arrive(call *c, tt_error *err)
{
    const tt_comm *g = c->g;
    TT_TRY(exchange_begin(c, err));
    note(c, nccl.ncclAllReduce(g->token, g->token, 1, (ncclDataType_t)NCCL_INT32,
                               (ncclRedOp_t)NCCL_MAX, g->link->comm, stream_of(g)));
    return exchange_end(c, err);
}

tt_status nccl_barrier(tt_comm *g, tt_error *err)
{
    call c;
    TT_TRY(call_begin(&c, g, "barrier", err));
    return call_end(&c, all_arrive(&c, err), err);
}
