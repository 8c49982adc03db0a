/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "base/thread.h"
#include "launch/peers_impl.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* The other side of the copies' connections: takes the copies of the node whose neighbour this one is, and gives copies
 * to nodes that have lost theirs. Who connects has to say within some seconds that it is of this start. */

#define MOST_CALLERS 64

typedef enum caller_state { FREE, PENDING, RUNS } caller_state;

typedef struct caller {
    tt_peers *p;
    caller_state state;
    tt_node_link l;
    int64_t since_ns;
    tt_peers_message first; /* what it says first */
    size_t n;               /* bytes of it */
    pthread_t thread;
    atomic_bool ended; /* the thread has nothing left to do */
} caller;

typedef struct server {
    tt_peers *p;
    caller callers[MOST_CALLERS];
    int64_t n_refused, tell_at;
} server;

/* ---- copies that arrive ---- */

static const char *take_blocks(tt_node_link *l, const tt_peers_item *i, int slot,
                               const tt_peers_limit *w)
{
    const int64_t bytes = i->head->bytes;
    uint8_t *to = i->all + TT_PEER_PAGE + slot * bytes,
            *other = i->all + TT_PEER_PAGE + !slot * bytes;
    for (int64_t at = 0; at < bytes; at += TT_PEERS_BLOCK) {
        const size_t n = (size_t)TT_MIN(TT_PEERS_BLOCK, bytes - at);
        uint8_t block = 0;
        const char *why = tt_peers_get(l, &block, 1, w);
        if (!why && block == TT_PEERS_BYTES)
            why = tt_peers_get(l, to + at, n, w);
        if (why)
            return why;
        if (block == TT_PEERS_OTHER)
            memcpy(to + at, other + at, n);
        if (block > TT_PEERS_BYTES)
            return "what it says is not of this run";
    }
    return NULL;
}

/* The bytes of the slot have arrived. Whether they are those that were sent. */
static bool complete(const tt_peers_item *i, int slot, int64_t step)
{
    tt_peer_head *h = i->head;
    tt_peer_slot *s = &h->slots[slot];
    if (tt_peer_check(h, slot, i->all + TT_PEER_PAGE + slot * h->bytes) != s->check)
        return false;
    atomic_store(&s->step, step);
    return true;
}

static const char *take_offer(tt_node_link *l, tt_peers *p, const tt_peers_message *m,
                              const tt_peers_limit *w)
{
    tt_peers_item *i = tt_peers_find(p, m->rank);
    tt_peers_message ack = {.start = p->s.start, .what = TT_PEERS_ACK, .rank = m->rank, .step = -1};
    const tt_peers_copy *c = &m->copy;
    if (!i || i->role != TT_PEERS_HELD || m->what != TT_PEERS_OFFER || m->start != p->s.start)
        return "what it says is not of this run";
    if (atomic_load(&i->head->magic) == TT_PEER_MAGIC)
        tt_peer_drop_after(i->head, c->step);
    if (c->step < 0)
        return tt_peers_say(l, ack, w);
    if ((atomic_load(&i->head->magic) != TT_PEER_MAGIC || i->head->layout != c->layout ||
         i->head->bytes != c->bytes || !tt_peers_map_all(i)) &&
        !tt_peers_make_room(i, c->layout, c->bytes))
        return "there is no memory";
    tt_peers_expect(i->head, m->slot, c);
    const char *why = take_blocks(l, i, m->slot, w);
    if (why)
        return why;
    if (complete(i, m->slot, c->step))
        ack.step = c->step;
    return tt_peers_say(l, ack, w);
}

/* To the node before this one, as belongs_here has found: what there is of its ranks. */
static const char *say_what_is_here(caller *c, const tt_peers_limit *w)
{
    tt_peers *p = c->p;
    const char *why = NULL;
    for (int k = 0; k < c->first.n && !why; k++) {
        const int rank = c->first.rank + k;
        const tt_peers_item *i = tt_peers_find(p, rank);
        tt_peers_message m = {.start = p->s.start, .what = TT_PEERS_HAS, .rank = rank};
        for (int slot = 0; slot < TT_PEER_SLOTS; slot++) {
            m.had[slot].step = -1;
            if (atomic_load(&i->head->magic) != TT_PEER_MAGIC)
                continue;
            const tt_peers_copy x = tt_peers_copy_of(i->head, slot);
            m.had[slot] = (tt_peers_had){x.layout, x.check, x.bytes, x.step};
        }
        why = tt_peers_say(&c->l, m, w);
    }
    return why;
}

static const char *receive_copies(caller *c)
{
    tt_peers_message m;
    const tt_peers_limit w = {c->p->stop_fd, tt_patience_ms(TT_PEER_IDLE_NS)},
                         between = {c->p->stop_fd, -1},
                         short_time = {-1, tt_patience_ms(TT_PEER_BYE_NS)};
    const char *why = say_what_is_here(c, &w);
    while (!why) {
        why = tt_peers_hear(&c->l, &m, &between);
        if (why && poll(&(struct pollfd){c->p->stop_fd, POLLIN, 0}, 1, 0) > 0) {
            const tt_peers_message bye = {.start = c->p->s.start, .what = TT_PEERS_BYE};
            (void)tt_peers_say(&c->l, bye, &short_time);
        }
        if (!why)
            why = take_offer(&c->l, c->p, &m, &w);
    }
    return why;
}

/* ---- copies that are given back ---- */

/* A descriptor of the memory of a rank, which stays open when the item is closed; -1: there is no such copy. */
static int open_copy(tt_peers *p, const tt_peers_message *wants, int *slot, tt_peers_copy *out)
{
    int fd = -1;
    pthread_mutex_lock(&p->lock);
    const tt_peers_item *i = tt_peers_find_any(p, wants->rank);
    *slot = i ? tt_peer_slot_of(i->head, wants->step) : -1;
    if (*slot >= 0) {
        *out = tt_peers_copy_of(i->head, *slot);
        fd = fcntl(i->fd, F_DUPFD_CLOEXEC, 0);
    }
    pthread_mutex_unlock(&p->lock);
    return fd;
}

static const char *give_bytes(caller *c, int fd, int slot, int64_t bytes, const tt_peers_limit *w)
{
    const char *why = NULL;
    char *block = malloc((size_t)TT_PEERS_BLOCK);
    if (!block)
        return "there is no memory";
    for (int64_t at = 0; at < bytes && !why; at += TT_PEERS_BLOCK) {
        const size_t n = (size_t)TT_MIN(TT_PEERS_BLOCK, bytes - at);
        if (pread(fd, block, n, TT_PEER_PAGE + slot * bytes + at) != (ssize_t)n)
            why = "the copy is gone";
        else
            why = tt_peers_put(&c->l, block, n, w);
    }
    free(block);
    return why;
}

static const char *give_copies(caller *c)
{
    const tt_peers_limit w = {c->p->stop_fd, tt_patience_ms(TT_PEER_IDLE_NS)};
    tt_peers_message m = c->first;
    const char *why = NULL;
    while (!why) {
        int slot;
        tt_peers_message gives = {
            .start = c->p->s.start, .what = TT_PEERS_GIVES, .rank = m.rank, .copy.step = -1};
        const int fd = open_copy(c->p, &m, &slot, &gives.copy);
        why = tt_peers_say(&c->l, gives, &w);
        if (!why && fd >= 0)
            why = give_bytes(c, fd, slot, gives.copy.bytes, &w);
        if (fd >= 0)
            close(fd);
        if (!why)
            why = tt_peers_hear(&c->l, &m, &w);
        if (!why && (m.what != TT_PEERS_WANTS || m.start != c->p->s.start))
            why = "what it says is not of this run";
    }
    return why;
}

/* ---- who connects ---- */

static void *caller_thread(void *arg)
{
    caller *c = arg;
    if (c->first.what == TT_PEERS_SENDS)
        (void)receive_copies(c); /* the other side says why, and connects again */
    else
        (void)give_copies(c);
    shutdown(c->l.fd, SHUT_RDWR);
    atomic_store(&c->ended, true);
    return NULL;
}

static void end_caller(caller *c)
{
    if (c->state == RUNS) {
        shutdown(c->l.fd, SHUT_RDWR);
        pthread_join(c->thread, NULL);
    }
    if (c->state != FREE)
        tt_node_drop(&c->l);
    c->state = FREE;
}

static void refuse_caller(server *s, caller *c)
{
    if (++s->n_refused >= s->tell_at) {
        tt_log(TT_WARN, "peers",
               "refused %lld connection%s of no node of this start, the last from %s: another "
               "TTRUN_COMM_SECRET or "
               "ttrun, or no ttrun",
               (long long)s->n_refused, s->n_refused > 1 ? "s" : "", c->l.from);
        s->tell_at = s->n_refused * 10;
    }
    end_caller(c);
}

static bool belongs_here(const server *s, caller *c)
{
    const tt_peers_start *now = &s->p->s;
    const tt_peers_message *m = &c->first;
    const int before = (now->place + now->nodes - 1) % now->nodes;
    if (!tt_peers_is_right(&c->l, m) || m->start != now->start || m->world != now->world)
        return false;
    return m->what == TT_PEERS_WANTS ||
           (m->what == TT_PEERS_SENDS && m->n == now->local && m->rank == before * now->local);
}

static void run_caller(server *s, caller *c)
{
    for (int k = 0; k < MOST_CALLERS && c->first.what == TT_PEERS_SENDS; k++)
        if (s->callers[k].state == RUNS && s->callers[k].first.what == TT_PEERS_SENDS)
            end_caller(&s->callers[k]); /* the connection before this one is broken */
    c->state = RUNS;
    atomic_store(&c->ended, false);
    if (tt_thread_start(&c->thread, caller_thread, c)) {
        c->state = PENDING;
        end_caller(c);
    }
}

/* Reads more of what it says first. */
static void hear_first(server *s, caller *c)
{
    const ssize_t k = recv(c->l.fd, (char *)&c->first + c->n, sizeof c->first - c->n, MSG_DONTWAIT);
    c->n += k > 0 ? (size_t)k : 0;
    if (c->n == sizeof c->first && belongs_here(s, c))
        run_caller(s, c);
    else if (c->n == sizeof c->first)
        refuse_caller(s, c);
    else if ((k == 0 || (k < 0 && errno != EAGAIN && errno != EINTR)) && !c->n)
        end_caller(c); /* it has said nothing */
    else if (k == 0 || (k < 0 && errno != EAGAIN && errno != EINTR) ||
             tt_now_ns() - c->since_ns > tt_patience(TT_NODE_HELLO_NS))
        refuse_caller(s, c);
}

/* A free place, or that of the caller that has been silent longest; NULL: all give or take copies. */
static caller *caller_place(server *s)
{
    caller *oldest = NULL;
    for (int k = 0; k < MOST_CALLERS; k++) {
        caller *c = &s->callers[k];
        if (c->state == FREE)
            return c;
        if (c->state == PENDING && (!oldest || c->since_ns < oldest->since_ns))
            oldest = c;
    }
    if (oldest)
        refuse_caller(s, oldest);
    return oldest;
}

static void accept_callers(server *s)
{
    for (int k = 0; k < MOST_CALLERS; k++) {
        caller *c = caller_place(s);
        const tt_node_link l = c ? tt_node_accept(s->p->listener) : (tt_node_link){.fd = -1};
        if (l.fd < 0)
            return;
        c->p = s->p;
        c->l = l;
        c->n = 0;
        c->since_ns = tt_now_ns();
        c->state = PENDING;
    }
}

/* Waits until somebody connects, a caller says something, or the start ends: false. */
static bool wait_for_callers(server *s)
{
    struct pollfd f[MOST_CALLERS + 2] = {
        {s->p->stop_fd,  POLLIN, 0},
        {s->p->listener, POLLIN, 0}
    };
    nfds_t n = 2;
    int ms = -1;
    for (int k = 0; k < MOST_CALLERS; k++) {
        if (s->callers[k].state == PENDING)
            f[n++] = (struct pollfd){s->callers[k].l.fd, POLLIN, 0};
        if (s->callers[k].state != FREE)
            ms = 1000;
    }
    poll(f, n, ms);
    return !f[0].revents;
}

void *tt_peers_server(void *peers)
{
    server *s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    s->p = peers;
    while (wait_for_callers(s)) {
        accept_callers(s);
        for (int k = 0; k < MOST_CALLERS; k++) {
            caller *c = &s->callers[k];
            if (c->state == PENDING)
                hear_first(s, c);
            else if (c->state == RUNS && atomic_load(&c->ended))
                end_caller(c);
        }
    }
    for (int k = 0; k < MOST_CALLERS; k++)
        end_caller(&s->callers[k]);
    free(s);
    return NULL;
}

/* ---- before the ranks start ---- */

static const char *fetch_copy(tt_peers *p, tt_node_link *l, int rank, const tt_peers_limit *w)
{
    tt_peers_item *i = tt_peers_find(p, rank);
    tt_peers_message m = {.start = p->s.start,
                          .what = TT_PEERS_WANTS,
                          .rank = rank,
                          .world = p->s.world,
                          .step = p->s.step};
    const char *why =
        i && i->role == TT_PEERS_OWN ? tt_peers_say(l, m, w) : "the rank is not one of this node";
    if (!why)
        why = tt_peers_hear(l, &m, w);
    if (why)
        return why;
    if (m.what != TT_PEERS_GIVES || m.rank != rank || m.copy.step != p->s.step)
        return "it does not have them any more";
    if (!tt_peers_make_room(i, m.copy.layout, m.copy.bytes))
        return "there is no memory";
    tt_peers_expect(i->head, 0, &m.copy);
    why = tt_peers_get(l, i->all + TT_PEER_PAGE, (size_t)m.copy.bytes, w);
    if (!why && !complete(i, 0, m.copy.step))
        why = "a copy arrived damaged";
    tt_peers_unmap_all(i); /* the rank may give it another size */
    return why;
}

/* The other node may not have begun to listen for this start. */
static tt_node_link reach(const tt_peers_fetch *f, const tt_peers_limit *w)
{
    const int64_t begin = tt_now_ns();
    for (;;) {
        const tt_node_link l = tt_node_connect(f->host, f->port, w->stop_fd);
        if (l.fd >= 0 || tt_now_ns() - begin > INT64_C(1000000) * w->idle_ms ||
            poll(&(struct pollfd){w->stop_fd, POLLIN, 0}, 1, 100) > 0)
            return l;
    }
}

void tt_peers_fetch_all(tt_peers *p)
{
    const tt_peers_start *s = &p->s;
    const tt_peers_limit w = {s->signal_fd, tt_patience_ms(TT_PEER_IDLE_NS)};
    tt_node_link l = {.fd = -1};
    int got = 0;
    for (int k = 0; k < s->n_fetches; k++) {
        const tt_peers_fetch *f = &s->fetches[k];
        const bool another = k && (f[-1].port != f->port || strcmp(f[-1].host, f->host));
        if (another)
            tt_node_drop(&l);
        if (l.fd < 0)
            l = reach(f, &w);
        const char *why = l.fd < 0 ? "it does not answer" : fetch_copy(p, &l, f->rank, &w);
        if (why) {
            tt_log(TT_WARN, "peers",
                   "node %d does not get the copies of step %lld from %s port %d: %s; the ranks go "
                   "on from a "
                   "checkpoint",
                   s->me, (long long)s->step, f->host, f->port, why);
            break;
        }
        got++;
    }
    tt_node_drop(&l);
    if (got && got == s->n_fetches)
        tt_log(TT_INFO, "peers", "node %d has got the copies of step %lld of %d rank%s back", s->me,
               (long long)s->step, got, got > 1 ? "s" : "");
}
