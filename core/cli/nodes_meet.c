/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "base/thread.h"
#include "cli/nodes_machines.h"
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/random.h>

/* The meeting of the nodes: node 0 takes in those that belong to this run, refuses all others, and goes on. */

#define SECOND_NS INT64_C(1000000000)
#define TELL_NS (5 * SECOND_NS)  /* until a line says for which nodes this one waits */
#define HELLO_NS (5 * SECOND_NS) /* how long a connection may take to say who it is */
#define MOST_AT_ONCE 64 /* taken each 10 ms, so that each has 40 ms at least however many come */
#define MOST_LINES 100  /* about nodes that differ, in a meeting */

/* Why a node that has connected may not take part; NULL: it may. */
static const char *what_differs(const tt_machines *n, const tt_node_message *m, char *text,
                                size_t size)
{
    const int k = m->node;
    if (strcmp(m->version, TT_BUILD_VERSION))
        snprintf(text, size, "node %d on %s is ttrun %s, node 0 is %s; install one on all", k,
                 m->host, m->version, TT_BUILD_VERSION);
    else if (m->nodes != n->o.n)
        snprintf(text, size, "node %d on %s was started with --nnodes %d, node 0 with %d", k,
                 m->host, m->nodes, n->o.n);
    else if (k < 1 || k >= n->o.n)
        snprintf(text, size, "%s says it is node %d; give --node_rank 1 to %d there", m->host, k,
                 n->o.n - 1);
    else if (n->links[k].fd >= 0)
        snprintf(text, size,
                 "%s and %s both say that they are node %d; give each machine its own --node_rank",
                 n->how[k].host, m->host, k);
    else if (m->nproc != n->o.nproc)
        snprintf(text, size,
                 "node %d on %s was started with --nproc %d, node 0 with %d; start as many ranks "
                 "on each",
                 k, m->host, m->nproc, n->o.nproc);
    else if (strcmp(m->digest, n->o.digest) && !m->status && n->cause.code == TT_OK)
        snprintf(text, size,
                 "node %d on %s has another job than node 0: give all nodes the same file and the "
                 "same options",
                 k, m->host);
    else
        return NULL;
    return text;
}

/* Closes a connection of no node; a line for the first, the tenth, the hundredth, and so on. */
static void refuse_link(tt_machines *n, tt_node_link *l)
{
    if (++n->n_refused >= n->tell_at) {
        tt_log(TT_WARN, "nodes",
               "refused %lld connection%s of no node of this run, the last from %s: another "
               "TTRUN_COMM_SECRET, --rdzv_id or ttrun, or no ttrun",
               (long long)n->n_refused, n->n_refused > 1 ? "s" : "", l->from);
        n->tell_at = n->n_refused * 10;
    }
    tt_node_drop(l);
}

/* A node that cannot be one of this run ends by this line; this one goes on to wait for the right one. */
static void refuse_node(tt_machines *n, tt_node_link *l, const char *why)
{
    tt_node_send(l, tt_nodes_message(n, TT_NODE_OVER, TT_EINVAL, why));
    tt_node_drop(l);
    if (strcmp(why, n->refused) && n->n_differing++ < MOST_LINES)
        tt_log(TT_WARN, "nodes", "refused: %s", why);
    snprintf(n->refused, sizeof n->refused, "%s", why);
}

/* Tells the nodes that are here why no ranks are started. */
static void tell_cause(tt_machines *n)
{
    for (int i = 1; i < n->o.n; i++)
        if (n->links[i].fd >= 0) {
            tt_node_send(&n->links[i],
                         tt_nodes_message(n, TT_NODE_OVER, n->cause.code, n->cause.text));
            tt_node_drop(&n->links[i]);
            n->ended[i] = true;
        }
}

/* Takes in a node that has said who it is. */
static void admit_node(tt_machines *n, tt_node_link *l)
{
    char text[512];
    const tt_node_message *m = &l->in;
    if (m->what != TT_NODE_JOIN || strcmp(m->id, n->o.id)) {
        refuse_link(n, l);
    } else if (what_differs(n, m, text, sizeof text)) {
        refuse_node(n, l, text);
    } else {
        n->how[m->node] = *m;
        n->links[m->node] = *l;
        tt_nodes_watch(n, l->fd);
        l->fd = -1;
        if (m->status && n->cause.code == TT_OK)
            tt_fail(&n->cause, (tt_status)m->status, "node %d on %s: %s", m->node, m->host,
                    m->text);
        if (n->cause.code != TT_OK)
            tell_cause(n);
    }
}

/* A free place, or that of the connection that has been silent longest. */
static tt_node_pending *place_for(tt_machines *n)
{
    tt_node_pending *oldest = &n->waiting[0];
    for (int i = 0; i < TT_NODES_PENDING; i++) {
        tt_node_pending *p = &n->waiting[i];
        if (p->l.fd < 0)
            return p;
        if (p->since_ns < oldest->since_ns)
            oldest = p;
    }
    refuse_link(n, &oldest->l);
    return oldest;
}

static void accept_some(tt_machines *n)
{
    for (int i = 0; i < MOST_AT_ONCE; i++) {
        const tt_node_link l = tt_node_accept(n->listener);
        if (l.fd < 0)
            return;
        *place_for(n) = (tt_node_pending){l, tt_now_ns()};
    }
}

static void take_nodes(tt_machines *n)
{
    accept_some(n);
    for (int i = 0; i < TT_NODES_PENDING; i++) {
        tt_node_pending *p = &n->waiting[i];
        const int got = tt_node_read(&p->l);
        if (got > 0)
            admit_node(n, &p->l);
        else if (got < 0 && !p->l.n_in && !p->l.n_received)
            tt_node_drop(&p->l); /* it has said nothing */
        else if (got < 0 || (p->l.fd >= 0 && tt_now_ns() - p->since_ns > HELLO_NS))
            refuse_link(n, &p->l);
    }
}

static int list_missing(const tt_machines *n, char *text, size_t size)
{
    int missing = 0;
    size_t at = 0;
    text[0] = 0;
    for (int i = 1; i < n->o.n; i++)
        if (n->links[i].fd < 0 && !n->ended[i]) {
            if (at + 80 < size)
                at += (size_t)snprintf(text + at, size - at, "%s%d%s%s", missing ? ", " : "", i,
                                       n->how[i].host[0] ? " on " : "", n->how[i].host);
            missing++;
        }
    return missing;
}

static tt_status not_stopped(const tt_machines *n, int ms, tt_error *err)
{
    struct pollfd f[2] = {
        {n->signals->fd, POLLIN, 0},
        {n->links[0].fd, POLLIN, 0}
    };
    int sig;
    poll(f, n->o.me && f[1].fd >= 0 ? 2 : 1, ms);
    while ((sig = tt_launch_signals_next(n->signals)) != 0)
        if (sig != SIGUSR1)
            return TT_FAIL(err, TT_ESIGNAL, "stopped by %s before all nodes had met",
                           tt_signal_name(sig));
    return TT_OK;
}

static tt_status given_cause(const tt_machines *n, tt_error *err)
{
    return n->cause.code == TT_OK ? TT_OK : TT_FAIL(err, n->cause.code, "%s", n->cause.text);
}

static tt_status not_all_came(const tt_machines *n, const char *who, int missing, tt_error *err)
{
    const char *s = missing > 1 ? "s" : "";
    if (n->cause.code != TT_OK)
        return given_cause(n, err);
    if (n->refused[0])
        return TT_FAIL(err, TT_EINVAL,
                       "node%s %s did not come within %g s (--rdzv_timeout); refused: %s", s, who,
                       n->o.timeout_s, n->refused);
    return TT_FAIL(err, TT_ETIMEOUT,
                   "node%s %s did not come within %g s (--rdzv_timeout); start ttrun there "
                   "with --node_rank, --master_addr and --master_port %d",
                   s, who, n->o.timeout_s, n->o.port);
}

/* Node 0. */
static tt_status gather_nodes(tt_machines *n, tt_error *err)
{
    char who[300];
    const int64_t begin = tt_now_ns();
    bool told = false;
    for (;;) {
        for (int i = 1; i < n->o.n; i++)
            if (n->links[i].fd >= 0 && tt_node_read(&n->links[i]) < 0)
                tt_node_drop(&n->links[i]);
        take_nodes(n);
        const int missing = list_missing(n, who, sizeof who);
        if (!missing)
            return given_cause(n, err);
        const double waited = 1e-9 * (double)(tt_now_ns() - begin);
        if (waited > n->o.timeout_s)
            return not_all_came(n, who, missing, err);
        if (!told && waited * 1e9 > TELL_NS)
            tt_log(TT_INFO, "nodes", "waits for node%s %s%s%s", missing > 1 ? "s" : "", who,
                   n->cause.code == TT_OK ? "" : ", which must end, too: ", n->cause.text);
        told = told || waited * 1e9 > TELL_NS;
        TT_TRY(not_stopped(n, 10, err));
    }
}

static bool join_node_0(tt_machines *n, tt_node_link *l)
{
    *l = tt_node_connect(n->o.address, n->o.port);
    if (l->fd < 0)
        return false;
    tt_nodes_watch(n, l->fd);
    tt_node_send(l, tt_nodes_message(n, TT_NODE_JOIN, n->cause.code, n->cause.text));
    return true;
}

/* Another node: waits for node 0's word. */
static tt_status hear_start(tt_machines *n, tt_nodes_start *start, tt_error *err)
{
    const int64_t begin = tt_now_ns();
    int answered = 0;
    bool told = false;
    tt_node_link *l = &n->links[0];
    for (;;) {
        if (l->fd < 0 && n->start && !n->o.restarts)
            return TT_FAIL(err, TT_ECOMM,
                           "node 0 at %s was lost: its ttrun or its machine has ended, or the "
                           "network; start again to continue from the last checkpoint",
                           n->o.address);
        if (l->fd < 0)
            answered += join_node_0(n, l);
        const int got = tt_node_read(l);
        if (got < 0)
            tt_node_drop(l);
        if (got > 0 && (l->in.what == TT_NODE_START || l->in.what == TT_NODE_OVER))
            break;
        if (1e-9 * (double)(tt_now_ns() - begin) > n->o.timeout_s + (l->fd >= 0 ? 60 : 0))
            return TT_FAIL(
                err, TT_ETIMEOUT,
                "node 0 at %s port %d %s within %g s (--rdzv_timeout); start ttrun there "
                "with --node_rank 0, and the same --rdzv_id and TTRUN_COMM_SECRET",
                n->o.address, n->o.port,
                answered ? "did not take node in, or ended," : "did not answer", n->o.timeout_s);
        if (!told && n->cause.code != TT_OK && tt_now_ns() - begin > TELL_NS) {
            tt_log(TT_INFO, "nodes", "waits for node 0, which must end, too: %s", n->cause.text);
            told = true;
        }
        TT_TRY(not_stopped(n, got < 0 || l->fd < 0 ? 100 : 10, err));
    }
    const tt_node_message *m = &l->in;
    n->how[0] = *m;
    start->over = m->what == TT_NODE_OVER;
    start->resume = m->resume;
    n->start = m->start;
    snprintf(start->text, sizeof start->text, "%s", m->text);
    if (start->over && m->status)
        return TT_FAIL(err, (tt_status)m->status, "%s", m->text);
    return TT_OK;
}

tt_status tt_nodes_meet(tt_machines *n, tt_nodes_start *start, tt_error *err)
{
    n->stopping = false;
    n->n_differing = 0;
    n->refused[0] = 0;
    memset(n->ended, 0, (size_t)n->o.n * sizeof *n->ended);
    if (n->o.me)
        return hear_start(n, start, err);
    const tt_status s = gather_nodes(n, err);
    if (s != TT_OK) {
        tt_nodes_finish(n, s, err);
        return s;
    }
    if (getrandom(&n->start, sizeof n->start, 0) != sizeof n->start)
        n->start = (uint64_t)tt_now_ns();
    tt_node_message m = tt_nodes_message(n, TT_NODE_START, TT_OK, start->text);
    m.resume = start->resume;
    tt_nodes_tell(n, &m);
    return TT_OK;
}

static void name_cause(tt_machines *n, const tt_error *err)
{
    if (n->o.me)
        n->cause = *err;
    else
        tt_fail(&n->cause, err->code, "node 0 on %s: %s", n->host, err->text);
}

tt_status tt_nodes_cannot(const tt_nodes_opts *o, tt_error *err)
{
    tt_launch_signals signals;
    tt_machines *n = NULL;
    tt_error ignored = {0};
    tt_nodes_start start = {0};
    if (tt_launch_signals_open(&signals, &ignored) != TT_OK)
        return err->code;
    if (tt_nodes_open(o, &signals, &n, &ignored) == TT_OK) {
        name_cause(n, err);
        (void)tt_nodes_meet(n, &start, &ignored);
    }
    tt_nodes_close(n);
    tt_launch_signals_close(&signals);
    return err->code;
}
