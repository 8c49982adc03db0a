/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "base/base.h"
/* after that: */
#define PAIR_PIECE 512 /* for 2 to 4 members 128 to 256 bytes each */
#define LARGEST 16
#include "../../plugins/comms/mpi/messages.c"
#include "../../plugins/comms/tcp/pairwise.c"
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

/* Data of more than one piece, in the comms "tcp" and "mpi": their files, with pieces of some bytes instead of megabytes
 * and a gigabyte, on a transport between threads and on what stands for MPI. */

enum { MOST = 4, LONGEST = 700 };

/* ---- the transport: a message stays with its sender until it is received ---- */

static struct slot {
    const void *send;
    void *recv;
    size_t n_send, n_recv; /* 0: there is none */
} slots[MOST][MOST];       /* [a][b]: what a sends to b; what a receives from b */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static _Atomic int n_wrong;

static tt_status check(tt_comm *c, tt_error *err)
{
    (void)c, (void)err;
    return TT_OK;
}

static void clear(tt_comm *c)
{
    (void)c;
}

static void post(tt_comm *c, int i, const void *send, size_t n_send, void *recv, size_t n_recv)
{
    pthread_mutex_lock(&lock);
    slots[c->p.me][i] = (struct slot){send, recv, n_send, n_recv};
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

static tt_status wait_for_all(tt_comm *c, tt_error *err)
{
    const int me = c->p.me;
    (void)err;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < c->p.n; i++) {
        struct slot *mine = &slots[me][i], *theirs = &slots[i][me];
        while (mine->n_recv && !theirs->n_send)
            pthread_cond_wait(&changed, &lock);
        if (!mine->n_recv)
            continue;
        n_wrong += mine->n_recv != theirs->n_send;
        memcpy(mine->recv, theirs->send, TT_MIN(mine->n_recv, theirs->n_send));
        mine->n_recv = theirs->n_send = 0;
        pthread_cond_broadcast(&changed);
    }
    for (int i = 0; i < c->p.n; i++)
        while (slots[me][i].n_send)
            pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
    return TT_OK;
}

static tt_status heads(tt_comm *c, tt_error *err)
{
    for (int i = 0; i < c->p.n; i++)
        if (i != c->p.me)
            post(c, i, &c->p.out[i], sizeof(pair_head), &c->p.in[i], sizeof(pair_head));
    return wait_for_all(c, err);
}

static const pair_transport transport = {
    .check = check, .clear = clear, .post = post, .wait = wait_for_all, .heads = heads};

/* ---- a group of threads ---- */

typedef struct member {
    pthread_t thread;
    tt_comm comm;
    int n;
    void (*fn)(struct member *);
} member;

static void *member_main(void *arg)
{
    static const int ranks[MOST] = {0, 1, 2, 3};
    member *m = arg;
    m->comm.p.t = &transport;
    n_wrong += pair_open(&m->comm.p, ranks, m->n, m->comm.p.me, NULL) != TT_OK;
    m->fn(m);
    pair_close(&m->comm.p);
    return NULL;
}

static void run(void (*fn)(member *))
{
    for (int n = 1; n <= MOST; n++) {
        member members[MOST] = {0};
        n_wrong = 0;
        for (int i = 0; i < n; i++) {
            members[i].comm.p.me = i;
            members[i].n = n;
            members[i].fn = fn;
            assert_int_equal(pthread_create(&members[i].thread, NULL, member_main, &members[i]), 0);
        }
        for (int i = 0; i < n; i++)
            pthread_join(members[i].thread, NULL);
        if (n_wrong)
            fail_msg("%d members: %d numbers or statuses are wrong", n, n_wrong);
    }
}

/* Small integers, whose sums are exact. */
static float number(int rank, int64_t k)
{
    return (float)((rank * 1000 + k * 7) % 1013);
}

/* Uneven, one of them 0: in bytes 0 to 11 pieces. */
static int64_t count_of(int i)
{
    static const int64_t counts[MOST] = {LONGEST, 0, 33, 130};
    return counts[i];
}

static void gathers(member *m)
{
    int64_t counts[MOST], at = 0;
    float send[LONGEST], recv[MOST * LONGEST] = {0};
    for (int i = 0; i < m->n; i++)
        counts[i] = count_of(i);
    for (int k = 0; k < LONGEST; k++)
        send[k] = number(m->comm.p.me, k);
    n_wrong += pair_all_gather(&m->comm, send, recv, counts, TT_F32, NULL) != TT_OK;
    for (int i = 0; i < m->n; at += counts[i++])
        for (int64_t k = 0; k < counts[i]; k++)
            n_wrong += (int)recv[at + k] != (int)number(i, k);
}

static int sum_at(const member *m, int64_t k)
{
    float sum = 0;
    for (int i = 0; i < m->n; i++)
        sum += number(i, k);
    return (int)sum;
}

static void reductions(member *m)
{
    int64_t counts[MOST], at = 0;
    float all[MOST * LONGEST], mine[LONGEST];
    for (int i = 0; i < m->n; i++)
        counts[i] = count_of(i);
    for (int k = 0; k < MOST * LONGEST; k++)
        all[k] = number(m->comm.p.me, k);
    n_wrong += pair_reduce_scatter(&m->comm, all, mine, counts, TT_F32, TT_SUM, NULL) != TT_OK;
    for (int i = 0; i < m->comm.p.me; i++)
        at += counts[i];
    for (int64_t k = 0; k < counts[m->comm.p.me]; k++)
        n_wrong += (int)mine[k] != sum_at(m, at + k);
    n_wrong += pair_all_reduce(&m->comm, all, LONGEST, TT_F32, TT_SUM, NULL) != TT_OK;
    for (int k = 0; k < LONGEST; k++)
        n_wrong += (int)all[k] != sum_at(m, k);
}

/* Elements from member a to member b. */
static int64_t sent(int a, int b)
{
    return (a * 131 + b * 67 + 90) % 300;
}

static void transposes(member *m)
{
    int64_t sends[MOST], recvs[MOST], at = 0;
    float send[MOST * 300], recv[MOST * 300];
    const int me = m->comm.p.me;
    for (int i = 0; i < m->n; i++) {
        sends[i] = sent(me, i);
        recvs[i] = sent(i, me);
        for (int64_t k = 0; k < sends[i]; k++)
            send[at++] = number(me * 5 + i, k);
    }
    n_wrong += pair_all_to_all(&m->comm, send, sends, recv, recvs, TT_F32, NULL) != TT_OK;
    at = 0;
    for (int i = 0; i < m->n; i++)
        for (int64_t k = 0; k < recvs[i]; k++)
            n_wrong += (int)recv[at++] != (int)number(i * 5 + me, k);
}

static void test_pieces_of_a_gather_find_their_places(void **state)
{
    (void)state;
    run(gathers);
}
static void test_pieces_of_reductions_find_their_places(void **state)
{
    (void)state;
    run(reductions);
}
static void test_pieces_of_a_transpose_find_their_places(void **state)
{
    (void)state;
    run(transposes);
}

/* ---- messages over MPI; a communicator is the number of its member ---- */

static struct sending {
    const void *p;
    int n, from, to, tag;
} sendings[64];
static int n_sendings, n_parts;

int MPI_Isend(const void *p, int n, MPI_Datatype type, int to, int tag, MPI_Comm c, MPI_Request *r)
{
    assert_int_equal(type, MPI_BYTE);
    assert_in_range(n, 1, LARGEST);
    n_parts += tag == TAG_MESSAGE;
    sendings[ *r = n_sendings++] = (struct sending){p, n, c, to, tag};
    return 0;
}

int MPI_Issend(const void *p, int n, MPI_Datatype type, int to, int tag, MPI_Comm c, MPI_Request *r)
{
    return MPI_Isend(p, n, type, to, tag, c, r);
}

int MPI_Irecv(void *p, int n, MPI_Datatype type, int from, int tag, MPI_Comm c, MPI_Request *r)
{
    int i = 0;
    assert_int_equal(type, MPI_BYTE);
    while (i < n_sendings &&
           (sendings[i].from != from || sendings[i].to != c || sendings[i].tag != tag))
        i++;
    assert_true(i < n_sendings);
    assert_int_equal(n, sendings[i].n);
    memcpy(p, sendings[i].p, (size_t)n);
    sendings[i].tag = 0; /* received */
    *r = 0;
    return 0;
}

int MPI_Wait(MPI_Request *r, MPI_Status *status)
{
    (void)r, (void)status;
    return 0;
}

int MPI_Testall(int n, MPI_Request *r, int *done, MPI_Status *status)
{
    (void)n, (void)r, (void)status;
    *done = 1;
    return 0;
}

int MPI_Cancel(MPI_Request *r)
{
    (void)r;
    return 0;
}

tt_status mpi_check(mpi_end *e, tt_error *err)
{
    (void)e, (void)err;
    return TT_OK;
}

tt_status mpi_wait(mpi_end *e, MPI_Request *r, int n, tt_error *err)
{
    (void)e, (void)r, (void)n, (void)err;
    return TT_OK;
}

static void test_parts_of_a_message_find_their_places(void **state)
{
    static const int64_t lengths[] = {1, 0, LARGEST, LARGEST + 1, 3 * LARGEST, 100, 5};
    tt_comm c[2] = {
        {.comm = 0, .p.n = 2},
        {.comm = 1, .p.n = 2}
    };
    char sends[100], recvs[100];
    (void)state;
    for (int i = 0; i < 2; i++)
        c[i].boxes = calloc(2, sizeof(outbox));
    for (int k = 0; k < 100; k++)
        sends[k] = (char)k;
    for (size_t i = 0; i < TT_COUNT(lengths); i++) {
        n_sendings = n_parts = 0;
        memset(recvs, -1, sizeof recvs);
        assert_int_equal(mpi_send(&c[0], 1, sends, lengths[i], NULL), TT_OK);
        assert_int_equal(mpi_recv(&c[1], 0, recvs, lengths[i], NULL), TT_OK);
        assert_int_equal(n_parts, (lengths[i] + LARGEST - 1) / LARGEST);
        assert_memory_equal(recvs, sends, (size_t)lengths[i]);
        assert_true(lengths[i] == 100 || recvs[lengths[i]] == -1);
    }
    for (int i = 0; i < 2; i++)
        mpi_free_boxes(&c[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pieces_of_a_gather_find_their_places),
        cmocka_unit_test(test_pieces_of_reductions_find_their_places),
        cmocka_unit_test(test_pieces_of_a_transpose_find_their_places),
        cmocka_unit_test(test_parts_of_a_message_find_their_places),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
