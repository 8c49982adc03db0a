/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "base/thread.h"
#include "launch/nodes_machines.h"
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <ttrun/sockets.h>
#include <unistd.h>

static int n_links(const tt_machines *n)
{
    return n->o.me ? 1 : n->o.n;
}

void tt_nodes_watch(const tt_machines *n, int fd)
{
    struct epoll_event e = {.events = EPOLLIN, .data.fd = fd};
    epoll_ctl(n->epoll, EPOLL_CTL_ADD, fd, &e);
}

tt_node_message tt_nodes_message(const tt_machines *n, tt_node_what what, tt_status s,
                                 const char *text)
{
    tt_node_message m = {.magic = TT_NODE_MAGIC,
                         .start = n->start,
                         .what = what,
                         .node = n->o.me,
                         .nodes = n->o.n,
                         .least = n->o.least,
                         .nproc = n->o.nproc,
                         .status = s};
    snprintf(m.host, sizeof m.host, "%s", n->host);
    snprintf(m.version, sizeof m.version, "%s", TT_BUILD_VERSION);
    snprintf(m.digest, sizeof m.digest, "%s", n->o.digest);
    snprintf(m.id, sizeof m.id, "%s", n->o.id);
    snprintf(m.text, sizeof m.text, "%s", text);
    m.copies_port = n->peers ? tt_peers_port(n->peers) : 0;
    m.copies_step = -1;
    return m;
}

void tt_nodes_tell(tt_machines *n, const tt_node_message *m)
{
    for (int i = n->o.me ? 0 : 1; i < n_links(n); i++)
        tt_node_send(&n->links[i], *m);
}

tt_status tt_nodes_open(const tt_nodes_opts *o, const tt_launch_signals *signals, tt_machines **out,
                        tt_error *err)
{
    tt_machines *n = calloc(1, sizeof *n);
    if (!n)
        return TT_FAIL(err, TT_ENOMEM, "no memory for %d nodes", o->n);
    *n = (tt_machines){.o = *o, .signals = signals, .listener = -1, .blamed = -1};
    gethostname(n->host, sizeof n->host - 1);
    n->links = calloc((size_t)o->n, sizeof *n->links);
    n->ended = calloc((size_t)o->n, sizeof *n->ended);
    n->how = calloc((size_t)o->n, sizeof *n->how);
    n->place = calloc((size_t)o->n, sizeof *n->place);
    n->epoll = epoll_create1(EPOLL_CLOEXEC);
    tt_status s = TT_OK;
    if (!n->links || !n->ended || !n->how || !n->place || n->epoll < 0)
        s = TT_FAIL(err, TT_ENOMEM, "no memory for %d nodes", o->n);
    for (int i = 0; n->links && i < o->n; i++)
        n->links[i].fd = -1;
    for (int i = 0; i < TT_NODES_PENDING; i++)
        n->waiting[i].l.fd = -1;
    if (s == TT_OK)
        tt_nodes_watch(n, signals->fd);
    if (s == TT_OK && !o->me)
        s = tt_node_listen(o->address, o->port, &n->listener, err);
    if (s == TT_OK && !o->me && !tt_socket_is_loopback(o->address) && !getenv("TTRUN_COMM_SECRET"))
        tt_log(TT_WARN, "nodes",
               "TTRUN_COMM_SECRET is not set: whoever reaches port %d may join this run; set it to "
               "the "
               "same text on all nodes, unless nobody else is in their network",
               o->port);
    if (s == TT_OK)
        *out = n;
    else
        tt_nodes_close(n);
    return s;
}

void tt_nodes_close(tt_machines *n)
{
    if (!n)
        return;
    for (int i = 0; n->links && i < n->o.n; i++)
        tt_node_drop(&n->links[i]);
    for (int i = 0; i < TT_NODES_PENDING; i++)
        tt_node_drop(&n->waiting[i].l);
    for (int i = 0; n->stock && i < n->o.n; i++)
        free(n->stock[i].items);
    tt_peers_close(n->peers);
    if (n->listener >= 0)
        close(n->listener);
    if (n->epoll >= 0)
        close(n->epoll);
    free(n->links);
    free(n->ended);
    free(n->how);
    free(n->place);
    free(n->stock);
    free(n->fetches);
    free(n);
}

bool tt_nodes_is_first(const tt_machines *n)
{
    return n->o.me == 0;
}

int tt_nodes_fd(const tt_machines *n)
{
    return n->epoll;
}

int tt_nodes_first_rank(const tt_machines *n)
{
    return n->my_place * n->local;
}

int tt_nodes_ranks(const tt_machines *n)
{
    return n->local;
}

/* ---- while ranks run ---- */

static void node_lost(tt_machines *n, int node)
{
    tt_node_message *m = &n->how[node];
    tt_node_drop(&n->links[node]);
    if (!n->o.me && n->place[node] < 0)
        tt_log(TT_INFO, "nodes", "node %d on %s has left; it had no ranks", node, m->host);
    if (n->ended[node])
        return;
    n->ended[node] = true;
    m->status = TT_ECOMM;
    m->end = TT_NODE_LOST;
    snprintf(m->text, sizeof m->text,
             "node %d on %s was lost: its ttrun or its machine has ended, or the network", node,
             m->host[0] ? m->host : n->o.address);
}

static void stop_others(tt_machines *n)
{
    const tt_node_message m = tt_nodes_message(n, TT_NODE_STOP, TT_ECOMM, "");
    if (!n->stopping && !n->o.me)
        tt_nodes_tell(n, &m);
    n->stopping = true;
}

/* Reads what the other nodes say. */
static void hear_nodes(tt_machines *n)
{
    for (int i = n->o.me ? 0 : 1; i < n_links(n); i++) {
        tt_node_link *l = &n->links[i];
        int got = 0;
        while (l->fd >= 0 && (got = tt_node_read(l)) > 0) {
            if (l->in.what == TT_NODE_STOP)
                stop_others(n);
            if (l->in.what == TT_NODE_COPIES && !n->o.me)
                tt_nodes_take_stock(n, i, &l->in);
            if (l->in.what != TT_NODE_ENDED || n->ended[i])
                continue;
            char host[64];
            memcpy(host, n->how[i].host, sizeof host);
            n->how[i] = l->in;
            memcpy(n->how[i].host, host, sizeof host);
            n->ended[i] = true;
            n->stopped = n->stopped ? n->stopped : l->in.stopped;
            if (l->in.status && l->in.status != TT_ESIGNAL)
                stop_others(n);
        }
        if (l->fd >= 0 && got < 0) {
            const bool had_ranks = n->o.me || n->place[i] >= 0;
            node_lost(n, i);
            if (had_ranks)
                stop_others(n);
        }
    }
    if (n->running)
        tt_nodes_take_in(n);
}

bool tt_nodes_must_end(void *nodes)
{
    tt_machines *n = nodes;
    hear_nodes(n);
    return n->stopping;
}

void tt_nodes_environment(const tt_machines *n, int local_rank)
{
    static const char *const of_mpi[] = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"};
    const struct {
        const char *name;
        long long value;
    } numbers[] = {
        {"RANK",              tt_nodes_first_rank(n) + local_rank},
        {"TTRUN_RANK",        tt_nodes_first_rank(n) + local_rank},
        {"WORLD_SIZE",        n->world                           },
        {"TTRUN_WORLD",       n->world                           },
        {"LOCAL_RANK",        local_rank                         },
        {"TTRUN_LOCAL_RANK",  local_rank                         },
        {"LOCAL_WORLD_SIZE",  n->local                           },
        {"TTRUN_LOCAL_WORLD", n->local                           },
        {"GROUP_RANK",        n->my_place                        },
        {"MASTER_PORT",       n->o.port + 1                      },
    };
    char text[32];
    for (size_t i = 0; i < TT_COUNT(of_mpi); i++) /* they are this process's, not its ranks' */
        unsetenv(of_mpi[i]);
    for (size_t i = 0; i < TT_COUNT(numbers); i++) {
        snprintf(text, sizeof text, "%lld", numbers[i].value);
        setenv(numbers[i].name, text, 1);
    }
    snprintf(text, sizeof text, "%016llx", (unsigned long long)n->start);
    setenv("TTRUN_START", text, 1);
    setenv("MASTER_ADDR", n->o.address, 1);
    unsetenv("TORCHELASTIC_USE_AGENT_STORE");
}

/* ---- how they ended ---- */

static tt_node_end end_of(tt_status s, bool died, const tt_error *err)
{
    if (s == TT_OK)
        return TT_NODE_FINE;
    if (died)
        return TT_NODE_DIED;
    if (!err->text[0])
        return TT_NODE_ASKED;
    if (s == TT_ESIGNAL)
        return TT_NODE_STOPPED;
    return s == TT_ECOMM ? TT_NODE_FOLLOWS : TT_NODE_FAILED;
}

static tt_status first_failure(tt_machines *n, tt_error *err)
{
    int first = 0;
    for (int i = 1; i < n->o.n; i++)
        if (n->place[i] >= 0 && n->how[i].end < n->how[first].end)
            first = i;
    n->blamed = n->how[first].end <= TT_NODE_FAILED ? first : -1;
    const tt_node_message *m = &n->how[first];
    *err = (tt_error){.code = (tt_status)m->status};
    if (!m->status || !m->text[0])
        return err->code;
    if (m->end == TT_NODE_LOST)
        return TT_FAIL(err, err->code, "%s", m->text);
    return TT_FAIL(err, err->code, "node %d on %s: %s", first, m->host, m->text);
}

tt_status tt_nodes_ended(tt_machines *n, tt_status s, bool died, int *stopped, tt_error *err)
{
    if (n->peers)
        tt_peers_end(n->peers);
    tt_nodes_tell_stock(n, NULL);
    tt_node_message mine = tt_nodes_message(n, TT_NODE_ENDED, s, s == TT_OK ? "" : err->text);
    mine.end = end_of(s, died, err);
    mine.stopped = *stopped;
    if (n->o.me) {
        tt_nodes_tell(n, &mine);
        return s;
    }
    n->how[0] = mine;
    n->ended[0] = true;
    if (s != TT_OK && s != TT_ESIGNAL)
        stop_others(n);
    int64_t until = 0;
    for (bool all = false; !all;) {
        struct pollfd f = {n->epoll, POLLIN, 0};
        hear_nodes(n);
        until = n->stopping && !until ? tt_now_ns() + tt_patience(TT_NODE_END_NS) : until;
        all = true;
        for (int i = 1; i < n->o.n; i++) {
            if (!n->ended[i] && until && tt_now_ns() > until)
                node_lost(n, i);
            all = all && n->ended[i];
        }
        if (!all)
            poll(&f, 1, 20);
        while (tt_launch_signals_next(n->signals))
            continue;
    }
    n->running = false;
    *stopped = *stopped ? *stopped : n->stopped;
    return first_failure(n, err);
}

void tt_nodes_finish(tt_machines *n, tt_status s, const tt_error *err)
{
    const tt_node_message m = tt_nodes_message(n, TT_NODE_OVER, s, s == TT_OK ? "" : err->text);
    tt_nodes_tell(n, &m);
}
