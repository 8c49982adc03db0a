/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "base/thread.h"
#include "launch/peers_impl.h"
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Sends the copies of this node's ranks to its neighbour. Of each of the two copies that the neighbour has, this side
 * keeps a hash per block, so what did not change (frozen parameters, a base of LoRA) is sent once. */

#define LOOK_MS 10      /* between two looks for a new copy */
#define TRY_MS 1000     /* between two tries to connect */
#define LATER_MS 5000   /* the same after a line has said that they fail */
#define MOST_CODES 4096 /* of blocks that need no bytes, until they are sent */

typedef struct rank_stream { /* what the neighbour has of one rank */
    const tt_peers_item *item;
    uint64_t layout;
    int64_t bytes;
    int64_t n_blocks;
    uint64_t *hash[TT_PEER_SLOTS];
    int64_t step[TT_PEER_SLOTS]; /* -1: nothing is known of this slot */
} rank_stream;

typedef struct sender {
    tt_peers *p;
    tt_peers_limit limit;
    tt_node_link l;
    rank_stream *streams;
    int n;
    char *out; /* bytes on their way to the connection */
    size_t n_out;
    int64_t since_ns; /* there is no connection since then */
    bool said_there, said_broken, said_slow, over;
    const char *why; /* the connection before has ended; NULL: it has not */
} sender;

/* ---- what the neighbour has ---- */

static void forget_slots(rank_stream *t)
{
    for (int i = 0; i < TT_PEER_SLOTS; i++)
        t->step[i] = -1;
}

static bool stream_of(rank_stream *t, uint64_t layout, int64_t bytes)
{
    const int64_t n = (bytes + TT_PEERS_BLOCK - 1) / TT_PEERS_BLOCK;
    if (t->layout == layout && t->bytes == bytes && t->hash[0])
        return true;
    forget_slots(t);
    t->layout = layout;
    t->bytes = bytes;
    t->n_blocks = n;
    for (int i = 0; i < TT_PEER_SLOTS; i++) {
        free(t->hash[i]);
        t->hash[i] = calloc((size_t)n + 1, sizeof **t->hash);
    }
    return t->hash[0] && t->hash[1];
}

/* The block of a copy in the rank's memory, which the rank may have made smaller. */
static bool read_block(const rank_stream *t, int slot, int64_t block, char *to, size_t *n)
{
    const int64_t at = block * TT_PEERS_BLOCK;
    *n = (size_t)TT_MIN(TT_PEERS_BLOCK, t->bytes - at);
    for (size_t got = 0; got < *n;) {
        const ssize_t k = pread(t->item->fd, to + got, *n - got,
                                TT_PEER_PAGE + slot * t->bytes + at + (int64_t)got);
        if (k <= 0 && errno != EINTR)
            return false;
        got += k > 0 ? (size_t)k : 0;
    }
    return true;
}

/* The neighbour has a copy that is here, too. */
static void match(sender *x, rank_stream *t, int slot, const tt_peers_had *had)
{
    tt_peer_head *h = t->item->head;
    const int own = tt_peer_slot_of(h, had->step);
    size_t n;
    if (own < 0)
        return;
    const tt_peers_copy c = tt_peers_copy_of(h, own);
    if (c.layout != had->layout || c.check != had->check || c.bytes != had->bytes ||
        !stream_of(t, c.layout, c.bytes))
        return;
    for (int64_t b = 0; b < t->n_blocks; b++) {
        if (!read_block(t, own, b, x->out, &n))
            return;
        t->hash[slot][b] = tt_hash64(x->out, n, 0);
    }
    if (atomic_load(&h->slots[own].step) != had->step)
        return;
    t->step[slot] = had->step;
    if (tt_peer_newest_of(h) == had->step)
        atomic_store(&h->sent, had->step);
}

/* ---- a copy ---- */

static const char *flush_out(sender *x)
{
    const char *why = x->n_out ? tt_peers_put(&x->l, x->out, x->n_out, &x->limit) : NULL;
    x->n_out = 0;
    return why;
}

static const char *send_blocks(sender *x, rank_stream *t, int from, int to)
{
    const char *why;
    size_t n;
    x->n_out = 0;
    for (int64_t b = 0; b < t->n_blocks; b++) {
        char *bytes = x->out + x->n_out + 1;
        if (!read_block(t, from, b, bytes, &n))
            return "a rank has replaced the copy";
        const uint64_t hash = tt_hash64(bytes, n, 0);
        const bool same = t->step[to] >= 0 && t->hash[to][b] == hash,
                   other = t->step[!to] >= 0 && t->hash[!to][b] == hash;
        x->out[x->n_out++] = same ? TT_PEERS_SAME : other ? TT_PEERS_OTHER : TT_PEERS_BYTES;
        t->hash[to][b] = hash;
        x->n_out += same || other ? 0 : n;
        if ((!same && !other) || x->n_out == MOST_CODES)
            if ((why = flush_out(x)))
                return why;
    }
    return flush_out(x);
}

static const char *hear_ack(sender *x, const rank_stream *t, int64_t step)
{
    tt_peers_message m;
    const char *why = tt_peers_hear(&x->l, &m, &x->limit);
    if (why)
        return why;
    if (m.what == TT_PEERS_BYE) {
        x->over = true;
        return "its ranks have ended";
    }
    if (m.what != TT_PEERS_ACK || m.rank != t->item->rank)
        return "what it says is not of this run";
    return m.step == step ? NULL : "a copy arrived damaged";
}

static tt_peers_message message_of(const sender *x, tt_peers_what what, int rank)
{
    return (tt_peers_message){
        .start = x->p->s.start, .what = what, .rank = rank, .world = x->p->s.world, .step = -1};
}

static const char *send_copy(sender *x, rank_stream *t, int from)
{
    tt_peer_head *h = t->item->head;
    tt_peers_message m = message_of(x, TT_PEERS_OFFER, t->item->rank);
    m.copy = tt_peers_copy_of(h, from);
    const int64_t step = m.copy.step;
    if (step < 0)
        return NULL;
    if (!stream_of(t, m.copy.layout, m.copy.bytes))
        return "there is no memory";
    for (int i = 0; i < TT_PEER_SLOTS; i++)
        t->step[i] = t->step[i] > step ? -1 : t->step[i];
    const int to = t->step[0] > t->step[1];
    m.slot = to;
    const char *why = tt_peers_say(&x->l, m, &x->limit);
    if (!why)
        why = send_blocks(x, t, from, to);
    if (!why)
        why = hear_ack(x, t, step);
    t->step[to] = why ? -1 : step;
    if (!why)
        atomic_store(&h->sent, step);
    return why;
}

/* The rank has not taken the copies that it had. */
static const char *send_drop(sender *x, rank_stream *t)
{
    tt_peers_message m = message_of(x, TT_PEERS_OFFER, t->item->rank);
    m.copy.step = -1;
    forget_slots(t);
    atomic_store(&t->item->head->sent, -1);
    const char *why = tt_peers_say(&x->l, m, &x->limit);
    return why ? why : hear_ack(x, t, -1);
}

/* Once: from now on this node may be lost. */
static void say_there(sender *x)
{
    int64_t step = INT64_MAX;
    for (int k = 0; k < x->n; k++)
        step = TT_MIN(step, atomic_load(&x->streams[k].item->head->sent));
    if (x->said_there || step < 0)
        return;
    x->said_there = true;
    tt_log(TT_INFO, "peers", "node %d's copies of step %lld are at %s port %d, too", x->p->s.me,
           (long long)step, x->p->s.neighbour, x->p->s.neighbour_port);
}

/* Says once that the network, or the other node, is slow. */
static void say_slow(sender *x, const tt_peer_head *h)
{
    if (x->said_slow || !atomic_load(&h->skipped))
        return;
    x->said_slow = true;
    tt_log(TT_INFO, "peers",
           "node %d's copies take longer to %s than checkpoint.peer_copy_interval; those that are "
           "due meanwhile "
           "are left out",
           x->p->s.me, x->p->s.neighbour);
}

/* Sends what is new. *any: there was something. */
static const char *send_new(sender *x, bool *any)
{
    const char *why = NULL;
    *any = false;
    for (int k = 0; k < x->n && !why; k++) {
        rank_stream *t = &x->streams[k];
        tt_peer_head *h = t->item->head;
        const int64_t newest = tt_peer_newest_of(h), sent = atomic_load(&h->sent);
        if (newest == sent)
            continue;
        *any = true;
        if (newest < 0 && atomic_load(&h->slots[0].step) < 0 &&
            atomic_load(&h->slots[1].step) < 0) {
            why = send_drop(x, t);
            continue;
        }
        const int from = tt_peer_slot_of(h, newest);
        if (from >= 0)
            why = send_copy(x, t, from);
        if (!why && newest > x->p->s.step)
            tt_peers_drop_spare(x->p);
        say_slow(x, h);
    }
    if (!why)
        say_there(x);
    return why;
}

/* ---- the connection ---- */

static void gate(sender *x, bool on)
{
    for (int k = 0; k < x->n; k++)
        atomic_store(&x->streams[k].item->head->gated, on);
}

static const char *greet(sender *x)
{
    const char *why;
    tt_peers_message m = message_of(x, TT_PEERS_SENDS, x->streams[0].item->rank);
    m.n = x->n;
    if ((why = tt_peers_say(&x->l, m, &x->limit)))
        return why;
    for (int k = 0; k < x->n; k++) {
        rank_stream *t = &x->streams[k];
        forget_slots(t);
        atomic_store(&t->item->head->sent, -1);
        if ((why = tt_peers_hear(&x->l, &m, &x->limit)))
            return why;
        if (m.what != TT_PEERS_HAS || m.rank != t->item->rank)
            return "what it says is not of this run";
        for (int i = 0; i < TT_PEER_SLOTS; i++)
            match(x, t, i, &m.had[i]);
    }
    return NULL;
}

static bool sender_rest(const sender *x, int ms)
{
    struct pollfd f[2] = {
        {x->p->stop_fd, POLLIN, 0},
        {x->l.fd,       POLLIN, 0}
    };
    poll(f, x->l.fd >= 0 ? 2 : 1, ms);
    return !f[0].revents;
}

static void say_broken(sender *x, const char *why)
{
    const bool again = x->l.fd >= 0;
    if (x->said_broken)
        return;
    x->said_broken = true;
    x->said_there = false; /* to be said when they get there again */
    tt_log(TT_WARN, "peers",
           again ? "the connection to %s port %d, over which copies of the states go, has ended: "
                   "%s; it is made "
                   "again"
                 : "no copies of the states are kept at %s port %d: %s; training goes on, and this "
                   "is tried again",
           x->p->s.neighbour, x->p->s.neighbour_port, why);
}

/* Without a connection: tries to make one. */
static void try_connect(sender *x)
{
    const tt_peers_start *s = &x->p->s;
    x->l = tt_node_connect(s->neighbour, s->neighbour_port, x->p->stop_fd);
    const char *why = x->l.fd < 0 ? "it does not answer" : greet(x);
    if (!why) {
        gate(x, true);
        if (x->why)
            say_broken(x, x->why);
        x->why = NULL;
        return;
    }
    tt_node_drop(&x->l);
    if (tt_now_ns() - x->since_ns > tt_patience(TT_PEER_SAY_NS))
        say_broken(x, x->why ? x->why : why);
    sender_rest(x, x->said_broken ? LATER_MS : TRY_MS);
}

static void lose_connection(sender *x, const char *why)
{
    gate(x, false);
    tt_node_drop(&x->l);
    x->why = why;
    x->since_ns = tt_now_ns();
}

static bool is_lost(const sender *x)
{
    char byte;
    const ssize_t k = recv(x->l.fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    return k >= 0 || (errno != EAGAIN && errno != EINTR);
}

/* Between two copies the neighbour says only that it has ended. */
static const char *hear_between(sender *x)
{
    tt_peers_message m;
    const char *why = tt_peers_hear(&x->l, &m, &x->limit);
    x->over = !why && m.what == TT_PEERS_BYE;
    return why ? why : "what it says is not of this run";
}

static bool sender_open(sender *x)
{
    const tt_peers_start *s = &x->p->s;
    x->n = s->local;
    x->streams = calloc((size_t)x->n, sizeof *x->streams);
    x->out = malloc(MOST_CODES + 1 + (size_t)TT_PEERS_BLOCK);
    for (int k = 0; x->streams && k < x->n; k++)
        x->streams[k].item = tt_peers_find(x->p, s->place * s->local + k);
    return x->streams && x->out;
}

static void sender_close(sender *x)
{
    gate(x, false);
    tt_node_drop(&x->l);
    for (int k = 0; k < x->n; k++)
        for (int i = 0; i < TT_PEER_SLOTS; i++)
            free(x->streams[k].hash[i]);
    free(x->streams);
    free(x->out);
}

void *tt_peers_sender(void *peers)
{
    tt_peers *p = peers;
    sender x = {.p = p, .since_ns = tt_now_ns()};
    x.limit = (tt_peers_limit){p->stop_fd, tt_patience_ms(TT_PEER_IDLE_NS)};
    x.l.fd = -1;
    if (!sender_open(&x)) {
        x.n = x.streams ? x.n : 0;
        say_broken(&x, "there is no memory");
        x.over = true;
    }
    while (!x.over && sender_rest(&x, 0)) {
        if (x.l.fd < 0) {
            try_connect(&x);
            continue;
        }
        bool any;
        const char *why = is_lost(&x) ? hear_between(&x) : send_new(&x, &any);
        if (why)
            lose_connection(&x, why);
        else if (!any)
            sender_rest(&x, LOOK_MS);
    }
    sender_close(&x);
    return NULL;
}
