/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "base/thread.h"
#include "launch/peers_impl.h"
#include "train/peer.h"
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <ttrun/sockets.h>
#include <unistd.h>

/* ---- the memories ---- */

void tt_peers_unmap_all(tt_peers_item *i)
{
    if (i->all)
        munmap(i->all, i->n_mapped);
    i->all = NULL;
}

bool tt_peers_map_all(tt_peers_item *i)
{
    const size_t n = (size_t)tt_peer_size(i->head->bytes);
    if (i->all && i->n_mapped == n)
        return true;
    tt_peers_unmap_all(i);
    void *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_SHARED, i->fd, 0);
    if (p == MAP_FAILED)
        return false;
    i->all = p;
    i->n_mapped = n;
    return true;
}

bool tt_peers_make_room(tt_peers_item *i, uint64_t layout, int64_t bytes)
{
    tt_peers_unmap_all(i);
    return tt_peer_prepare(i->fd, i->head, layout, bytes) && tt_peers_map_all(i);
}

static void close_item(tt_peers_item *i)
{
    tt_peers_unmap_all(i);
    tt_peer_unmap_head(i->head);
    if (i->fd >= 0)
        close(i->fd);
    i->head = NULL;
    i->fd = -1;
}

tt_peers_item *tt_peers_find(tt_peers *p, int rank)
{
    for (int k = 0; k < p->n; k++)
        if ((p->items[k].role == TT_PEERS_OWN || p->items[k].role == TT_PEERS_HELD) &&
            p->items[k].rank == rank)
            return &p->items[k];
    return NULL;
}

tt_peers_item *tt_peers_find_any(tt_peers *p, int rank)
{
    for (int k = 0; k < p->n; k++)
        if (p->items[k].fd >= 0 && p->items[k].role != TT_PEERS_BEFORE && p->items[k].rank == rank)
            return &p->items[k];
    return NULL;
}

void tt_peers_drop_spare(tt_peers *p)
{
    pthread_mutex_lock(&p->lock);
    for (int k = 0; k < p->n; k++)
        if (p->items[k].role == TT_PEERS_SPARE)
            close_item(&p->items[k]);
    pthread_mutex_unlock(&p->lock);
}

void tt_peers_forget(tt_peers *p)
{
    for (int k = 0; k < p->n; k++)
        close_item(&p->items[k]);
    p->n = p->n_before = 0;
}

/* Keeps what has a copy to go on from. */
static void keep_step(tt_peers *p)
{
    int n = 0;
    for (int k = 0; k < p->n; k++) {
        tt_peers_item *i = &p->items[k];
        if (i->fd >= 0 && i->world == p->s.from_world && tt_peer_slot_of(i->head, p->s.step) >= 0) {
            tt_peer_drop_after(i->head, p->s.step);
            i->role = p->s.from_world == p->s.world ? TT_PEERS_SPARE : TT_PEERS_BEFORE;
            p->items[n++] = *i;
        } else {
            close_item(i);
        }
    }
    p->n = n;
}

/* The memory of a rank, which is made if it is not here. */
static bool take_item(tt_peers *p, int rank, tt_peers_role role)
{
    tt_peers_item *i = tt_peers_find_any(p, rank);
    if (!i) {
        tt_peers_item *more = realloc(p->items, ((size_t)p->n + 1) * sizeof *more);
        if (!more)
            return false;
        p->items = more;
        i = &more[p->n++];
        *i = (tt_peers_item){
            .rank = rank, .world = p->s.world, .fd = memfd_create("copies", MFD_CLOEXEC)};
        if (i->fd < 0 || !tt_peer_set_size(i->fd, TT_PEER_PAGE) ||
            !(i->head = tt_peer_map_head(i->fd)))
            return false;
    }
    i->role = role;
    tt_peers_unmap_all(i);
    atomic_store(&i->head->gated, 0);
    atomic_store(&i->head->sent, -1);
    atomic_store(&i->head->skipped, 0);
    return true;
}

/* ---- a start ---- */

static bool list_before(tt_peers *p)
{
    int *fds = realloc(p->before, ((size_t)p->n + 1) * sizeof *fds);
    p->n_before = 0;
    if (!fds)
        return false;
    p->before = fds;
    for (int k = 0; k < p->n; k++) {
        if (p->items[k].role != TT_PEERS_BEFORE)
            continue;
        tt_peer_keep_step(p->items[k].fd, p->s.step);
        fds[p->n_before++] = p->items[k].fd;
    }
    return true;
}

static bool arrange(tt_peers *p)
{
    const tt_peers_start *s = &p->s;
    const int before = (s->place + s->nodes - 1) % s->nodes;
    keep_step(p);
    int *fds = realloc(p->fds, (size_t)s->local * sizeof *fds);
    if (!fds || !list_before(p))
        return false;
    p->fds = fds;
    for (int k = 0; k < s->local; k++) {
        const int rank = s->place * s->local + k;
        if (!take_item(p, rank, TT_PEERS_OWN) ||
            (s->nodes > 1 && !take_item(p, before * s->local + k, TT_PEERS_HELD)))
            return false;
        fds[k] = tt_peers_find(p, rank)->fd;
    }
    if (s->nodes < 2)
        tt_peers_drop_spare(p);
    return true;
}

const int *tt_peers_begin(tt_peers *p, const tt_peers_start *s)
{
    uint64_t ignored;
    p->s = *s;
    if (read(p->stop_fd, &ignored, sizeof ignored) < 0 && errno != EAGAIN)
        return NULL;
    if (!arrange(p)) {
        tt_log(TT_WARN, "peers", "checkpoint.peer_copy_interval: no copies are kept: %s",
               strerror(errno));
        tt_peers_forget(p);
        return NULL;
    }
    p->serves = s->nodes > 1 && tt_thread_start(&p->server, tt_peers_server, p) == 0;
    tt_peers_fetch_all(p);
    p->sends = s->nodes > 1 && tt_thread_start(&p->sender, tt_peers_sender, p) == 0;
    return p->fds;
}

void tt_peers_end(tt_peers *p)
{
    const uint64_t one = 1;
    if (write(p->stop_fd, &one, sizeof one) != sizeof one)
        return;
    if (p->sends)
        pthread_join(p->sender, NULL);
    if (p->serves)
        pthread_join(p->server, NULL);
    p->sends = p->serves = false;
}

const int *tt_peers_before(const tt_peers *p, int *n)
{
    *n = p->n_before;
    return p->before;
}

/* One node has all ranks then: no thread looks at the items. */
void tt_peers_tidy(tt_peers *p)
{
    if (!p->n_before || p->s.nodes > 1 || tt_peer_newest(p->fds, p->s.local) < 0)
        return;
    tt_peer_forget(p->before, p->n_before); /* ranks have them open */
    p->n_before = 0;
    for (int k = 0; k < p->n; k++)
        if (p->items[k].role == TT_PEERS_BEFORE)
            close_item(&p->items[k]);
}

int tt_peers_stock(const tt_peers *p, tt_node_copy *out, int most)
{
    int n = 0;
    for (int k = 0; k < p->n && n < most; k++) {
        const tt_peers_item *i = &p->items[k];
        if (i->fd < 0 || tt_peer_newest_of(i->head) < 0)
            continue;
        out[n] = (tt_node_copy){.rank = i->rank, .world = i->world};
        for (int slot = 0; slot < TT_PEER_SLOTS; slot++)
            out[n].steps[slot] = atomic_load(&i->head->slots[slot].step);
        n++;
    }
    return n;
}

/* ---- life ---- */

tt_peers *tt_peers_open(const char *address)
{
    struct sockaddr_storage a = {0};
    socklen_t n = sizeof a;
    tt_peers *p = calloc(1, sizeof *p);
    if (!p)
        return NULL;
    pthread_mutex_init(&p->lock, NULL);
    p->listener = tt_socket_listen_at(address, 0);
    p->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (p->listener < 0 || p->stop_fd < 0 || getsockname(p->listener, (struct sockaddr *)&a, &n)) {
        tt_log(TT_WARN, "peers", "checkpoint.peer_copy_interval: no copies are kept: %s",
               strerror(errno));
        tt_peers_close(p);
        return NULL;
    }
    const struct sockaddr_in6 *six = (const void *)&a;
    const struct sockaddr_in *four = (const void *)&a;
    p->port = ntohs(a.ss_family == AF_INET6 ? six->sin6_port : four->sin_port);
    return p;
}

void tt_peers_close(tt_peers *p)
{
    if (!p)
        return;
    tt_peers_forget(p);
    if (p->listener >= 0)
        close(p->listener);
    if (p->stop_fd >= 0)
        close(p->stop_fd);
    pthread_mutex_destroy(&p->lock);
    free(p->items);
    free(p->fds);
    free(p->before);
    free(p);
}

int tt_peers_port(const tt_peers *p)
{
    return p->port;
}
