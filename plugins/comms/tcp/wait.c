/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "tcp.h"
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ttrun/patience.h>
#include <unistd.h>

/* Stopping all ranks together, and the thread that hears from the other ranks and writes the messages
 * between stages. */

static void tell_others(tcp_end *e)
{
    if (atomic_exchange(&e->told, 1))
        return;
    for (int i = 0; i < e->world; i++)
        if (i != e->rank && e->peers[i].fd >= 0)
            (void)!send(e->peers[i].fd, &e->why, sizeof e->why, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void ask(tcp_end *e, const char *why)
{
    pthread_mutex_lock(&e->lock);
    if (!atomic_load(&e->asked)) {
        snprintf(e->why.text, TEXT, "%.*s", TEXT - 1, why);
        tcp_seal(&e->why, TEXT);
        atomic_store(&e->asked, 1);
    }
    pthread_mutex_unlock(&e->lock);
}

void tcp_abort_run(void *self, const char *why)
{
    ask(self, why);
    tell_others(self);
}

static void lost(tcp_end *e, int rank)
{
    char text[TEXT];
    snprintf(text, sizeof text,
             "rank %d on %s was lost: its connection has ended (killed, out of memory, or the "
             "network?); start again to continue from the last checkpoint",
             rank, e->peers[rank].host);
    tcp_abort_run(e, text);
}

/* Mostly that rank says why, or its control connection ends as well. If it does neither, this connection alone was lost:
 * the network has cut it, or its beginning has changed on the way and the other rank has taken another one. */
void tcp_ended(tcp_end *e, int rank, double *since)
{
    const double now = tcp_now();
    if (!*since)
        *since = now;
    else if (now - *since > 1e-9 * (double)tt_patience(TT_RANK_MOMENT_NS))
        lost(e, rank);
}

tt_status tcp_check(tcp_end *e, tt_error *err)
{
    tt_error why = {0};
    if (!atomic_load(&e->asked) && e->stopped && e->stopped(e->user, &why) != TT_OK)
        tcp_abort_run(e, strncmp(why.text, "stopped: ", 9) ? why.text : why.text + 9);
    if (!atomic_load(&e->asked))
        return TT_OK;
    tell_others(e);
    return TT_FAIL(err, TT_ECOMM, "stopped: %s", e->why.text);
}

static void hear(tcp_end *e, int rank)
{
    tcp_peer *p = &e->peers[rank];
    const ssize_t k = recv(p->fd, (char *)&p->in + p->n_in, sizeof p->in - p->n_in, MSG_DONTWAIT);
    if (k < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (k <= 0) {
        if (!p->left && !atomic_load(&e->closing))
            lost(e, rank);
        p->left = true;
        return;
    }
    p->n_in += (size_t)k;
    if (p->n_in < sizeof p->in)
        return;
    p->n_in = 0;
    if (!tcp_is_sealed(&p->in, TEXT))
        tcp_damage_text(e, rank, "what a rank said last", p->in.text);
    p->in.text[TEXT - 1] = 0;
    if (!p->in.text[0]) {
        p->left = true;
        return;
    }
    ask(e, p->in.text);
    tell_others(e); /* the rank that told us may have ended before it told everyone */
}

void tcp_hear(tcp_end *e)
{
    for (int i = 0; i < e->world; i++)
        if (e->peers[i].fd >= 0 && !e->peers[i].left)
            hear(e, i);
}

void *tcp_watch(void *end)
{
    tcp_end *e = end;
    struct pollfd *f = calloc((size_t)e->world + 1, sizeof *f);
    while (f && !atomic_load(&e->closing)) {
        bool busy = false;
        char drop[64];
        f[e->world] = (struct pollfd){e->wake, POLLIN, 0};
        for (int i = 0; i < e->world; i++)
            f[i] = (struct pollfd){e->peers[i].left ? -1 : e->peers[i].fd, POLLIN, 0};
        pthread_mutex_lock(&e->lock);
        for (tt_comm *c = e->groups; c; c = c->next)
            for (int i = 0; i < c->p.n; i++)
                busy = (i != c->p.me && tcp_write_box(c, i)) || busy;
        pthread_mutex_unlock(&e->lock);
        poll(f, (nfds_t)e->world + 1, busy ? 1 : 100);
        if (f[e->world].revents)
            (void)!read(e->wake, drop, sizeof drop);
        for (int i = 0; i < e->world; i++)
            if (f[i].fd >= 0 && f[i].revents)
                hear(e, i);
        tcp_accept(e); /* a rank that connects waits for an answer */
    }
    free(f);
    return NULL;
}
