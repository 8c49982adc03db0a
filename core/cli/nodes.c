/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "cli/nodes.h"
#include "base/thread.h"
#include "cli/nodes_link.h"
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <unistd.h>

#define SECOND_NS INT64_C(1000000000)
#define TELL_NS (5 * SECOND_NS)  /* until a line says for which nodes this one waits */
#define END_NS (60 * SECOND_NS)  /* after a failure: until a node that says nothing is lost */
#define MOST_PENDING 64          /* connections that have not said who they are */
#define HELLO_NS (5 * SECOND_NS) /* how long they may take */

typedef struct pending {
    tt_node_link l;
    int64_t since_ns;
} pending;

struct tt_machines {
    tt_nodes_opts o;
    const tt_launch_signals *signals;
    int listener; /* node 0's */
    int epoll;    /* signals and links */
    uint64_t start;
    char host[64];
    tt_node_link *links; /* node 0: by node; else [0]: to node 0 */
    bool *ended;         /* by node: it has said how its ranks ended */
    tt_node_message *how;
    bool stopping; /* this node or another has failed */
    pending waiting[MOST_PENDING];
};

static int n_links(const tt_machines *n)
{
    return n->o.me ? 1 : n->o.n;
}

static void watch_link(const tt_machines *n, int fd)
{
    struct epoll_event e = {.events = EPOLLIN, .data.fd = fd};
    epoll_ctl(n->epoll, EPOLL_CTL_ADD, fd, &e);
}

static tt_node_message message_of(const tt_machines *n, tt_node_what what, tt_status s,
                                  const char *text)
{
    tt_node_message m = {.magic = TT_NODE_MAGIC,
                         .start = n->start,
                         .what = what,
                         .node = n->o.me,
                         .nodes = n->o.n,
                         .nproc = n->o.nproc,
                         .status = s};
    snprintf(m.host, sizeof m.host, "%s", n->host);
    snprintf(m.version, sizeof m.version, "%s", TT_BUILD_VERSION);
    snprintf(m.digest, sizeof m.digest, "%s", n->o.digest);
    snprintf(m.id, sizeof m.id, "%s", n->o.id);
    snprintf(m.text, sizeof m.text, "%s", text);
    return m;
}

static void tell_all(tt_machines *n, const tt_node_message *m)
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
    *n = (tt_machines){.o = *o, .signals = signals, .listener = -1};
    gethostname(n->host, sizeof n->host - 1);
    n->links = calloc((size_t)o->n, sizeof *n->links);
    n->ended = calloc((size_t)o->n, sizeof *n->ended);
    n->how = calloc((size_t)o->n, sizeof *n->how);
    n->epoll = epoll_create1(EPOLL_CLOEXEC);
    tt_status s = TT_OK;
    if (!n->links || !n->ended || !n->how || n->epoll < 0)
        s = TT_FAIL(err, TT_ENOMEM, "no memory for %d nodes", o->n);
    for (int i = 0; n->links && i < o->n; i++)
        n->links[i].fd = -1;
    for (int i = 0; i < MOST_PENDING; i++)
        n->waiting[i].l.fd = -1;
    if (s == TT_OK)
        watch_link(n, signals->fd);
    if (s == TT_OK && !o->me)
        s = tt_node_listen(o->port, &n->listener, err);
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
    for (int i = 0; i < MOST_PENDING; i++)
        tt_node_drop(&n->waiting[i].l);
    if (n->listener >= 0)
        close(n->listener);
    if (n->epoll >= 0)
        close(n->epoll);
    free(n->links);
    free(n->ended);
    free(n->how);
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
    return n->o.me * n->o.nproc;
}

/* ---- meeting ---- */

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
    else if (m->status)
        snprintf(text, size, "node %d on %s: %s", k, m->host, m->text);
    else if (strcmp(m->digest, n->o.digest))
        snprintf(text, size,
                 "node %d on %s has another job than node 0: give all nodes the same file and the "
                 "same options",
                 k, m->host);
    else
        return NULL;
    return text;
}

/* Takes in a node that has said who it is. */
static tt_status admit_node(tt_machines *n, tt_node_link *l, tt_error *err)
{
    char text[1024];
    tt_node_message *m = &l->in;
    tt_node_clean(m);
    if (m->magic != TT_NODE_MAGIC || m->what != TT_NODE_JOIN || strcmp(m->id, n->o.id)) {
        tt_log(TT_WARN, "nodes", "refused a connection that is of no node of this start");
        tt_node_drop(l);
        return TT_OK;
    }
    if (what_differs(n, m, text, sizeof text)) {
        const tt_status s = m->status ? m->status : TT_EINVAL;
        const tt_node_message no = message_of(n, TT_NODE_OVER, s, text);
        tt_node_send(l, no);
        tt_node_drop(l);
        tell_all(n, &no);
        return TT_FAIL(err, s, "%s", text);
    }
    n->how[m->node] = *m;
    n->links[m->node] = *l;
    watch_link(n, l->fd);
    l->fd = -1;
    return TT_OK;
}

static tt_status take_nodes(tt_machines *n, tt_error *err)
{
    for (int i = 0; i < MOST_PENDING; i++) {
        pending *p = &n->waiting[i];
        if (p->l.fd < 0) {
            p->l = tt_node_accept(n->listener);
            p->since_ns = tt_now_ns();
        }
        if (p->l.fd < 0)
            continue;
        const int got = tt_node_read(&p->l);
        if (got > 0)
            TT_TRY(admit_node(n, &p->l, err));
        else if (got < 0 || tt_now_ns() - p->since_ns > HELLO_NS)
            tt_node_drop(&p->l);
    }
    return TT_OK;
}

static int list_missing(const tt_machines *n, char *text, size_t size)
{
    int missing = 0;
    size_t at = 0;
    text[0] = 0;
    for (int i = 1; i < n->o.n; i++)
        if (n->links[i].fd < 0) {
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

/* Node 0. */
static tt_status gather_nodes(tt_machines *n, tt_error *err)
{
    char who[512];
    const int64_t begin = tt_now_ns();
    bool told = false;
    for (;;) {
        for (int i = 1; i < n->o.n; i++)
            if (n->links[i].fd >= 0 && tt_node_read(&n->links[i]) < 0)
                tt_node_drop(&n->links[i]);
        TT_TRY(take_nodes(n, err));
        const int missing = list_missing(n, who, sizeof who);
        if (!missing)
            return TT_OK;
        const double waited = 1e-9 * (double)(tt_now_ns() - begin);
        if (waited > n->o.timeout_s)
            return TT_FAIL(err, TT_ETIMEOUT,
                           "node%s %s did not come within %g s (--rdzv_timeout); start ttrun there "
                           "with --node_rank, --master_addr and --master_port %d",
                           missing > 1 ? "s" : "", who, n->o.timeout_s, n->o.port);
        if (!told && waited * 1e9 > TELL_NS)
            tt_log(TT_INFO, "nodes", "waits for node%s %s", missing > 1 ? "s" : "", who);
        told = told || waited * 1e9 > TELL_NS;
        TT_TRY(not_stopped(n, 10, err));
    }
}

/* Another node: waits for node 0's word. */
static tt_status hear_start(tt_machines *n, tt_nodes_start *start, tt_error *err)
{
    const int64_t begin = tt_now_ns();
    int answered = 0;
    tt_node_link *l = &n->links[0];
    for (;;) {
        if (l->fd < 0) {
            const tt_node_message join = message_of(n, TT_NODE_JOIN, TT_OK, "");
            *l = tt_node_connect(n->o.address, n->o.port);
            answered += l->fd >= 0;
            if (l->fd >= 0) {
                watch_link(n, l->fd);
                tt_node_send(l, join);
            }
        }
        const int got = tt_node_read(l);
        if (got < 0)
            tt_node_drop(l);
        if (got > 0 && l->in.magic == TT_NODE_MAGIC) {
            tt_node_clean(&l->in);
            if (l->in.what == TT_NODE_START || l->in.what == TT_NODE_OVER)
                break;
        }
        if (1e-9 * (double)(tt_now_ns() - begin) > n->o.timeout_s + (l->fd >= 0 ? 60 : 0))
            return TT_FAIL(
                err, TT_ETIMEOUT,
                "node 0 at %s port %d %s within %g s (--rdzv_timeout); start ttrun there "
                "with --node_rank 0, and the same --rdzv_id and TTRUN_COMM_SECRET",
                n->o.address, n->o.port,
                answered ? "did not take node in, or ended," : "did not answer", n->o.timeout_s);
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
    tt_node_message m = message_of(n, TT_NODE_START, TT_OK, start->text);
    m.resume = start->resume;
    tell_all(n, &m);
    return TT_OK;
}

/* ---- while ranks run ---- */

static void node_lost(tt_machines *n, int node)
{
    tt_node_message *m = &n->how[node];
    tt_node_drop(&n->links[node]);
    if (n->ended[node])
        return;
    n->ended[node] = true;
    m->status = TT_ECOMM;
    m->node = node;
    snprintf(m->text, sizeof m->text,
             "node %d on %s was lost: its ttrun or its machine has ended, or the network", node,
             m->host[0] ? m->host : n->o.address);
}

static void stop_others(tt_machines *n)
{
    const tt_node_message m = message_of(n, TT_NODE_STOP, TT_ECOMM, "");
    if (!n->stopping && !n->o.me)
        tell_all(n, &m);
    n->stopping = true;
}

/* Reads what the other nodes say. */
static void hear_nodes(tt_machines *n)
{
    for (int i = n->o.me ? 0 : 1; i < n_links(n); i++) {
        tt_node_link *l = &n->links[i];
        int got = 0;
        while (l->fd >= 0 && (got = tt_node_read(l)) > 0) {
            tt_node_clean(&l->in);
            if (l->in.what == TT_NODE_STOP)
                stop_others(n);
            if (l->in.what != TT_NODE_ENDED)
                continue;
            char host[64];
            memcpy(host, n->how[i].host, sizeof host);
            n->how[i] = l->in;
            memcpy(n->how[i].host, host, sizeof host);
            n->ended[i] = true;
            if (l->in.status && l->in.status != TT_ESIGNAL)
                stop_others(n);
        }
        if (l->fd >= 0 && got < 0) {
            node_lost(n, i);
            stop_others(n);
        }
    }
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
        {"WORLD_SIZE",        (long long)n->o.n * n->o.nproc     },
        {"TTRUN_WORLD",       (long long)n->o.n * n->o.nproc     },
        {"LOCAL_RANK",        local_rank                         },
        {"TTRUN_LOCAL_RANK",  local_rank                         },
        {"LOCAL_WORLD_SIZE",  n->o.nproc                         },
        {"TTRUN_LOCAL_WORLD", n->o.nproc                         },
        {"GROUP_RANK",        n->o.me                            },
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

/* Of failures that follow from one another: a smaller number is nearer to the cause. */
static int failure_class(const tt_node_message *m)
{
    if (!m->status)
        return 9;
    if (strstr(m->text, "was ended by") || !strncmp(m->text, "node ", 5))
        return 0;
    if (m->text[0] && !strstr(m->text, "its connection has ended") &&
        !strstr(m->text, "ended or refused"))
        return m->status == TT_ESIGNAL ? 3 : 1;
    return m->text[0] ? 2 : 4;
}

static tt_status first_failure(const tt_machines *n, tt_error *err)
{
    int first = 0;
    for (int i = 1; i < n->o.n; i++)
        if (failure_class(&n->how[i]) < failure_class(&n->how[first]))
            first = i;
    const tt_node_message *m = &n->how[first];
    *err = (tt_error){0};
    if (!m->status)
        return TT_OK;
    if (!m->text[0]) {
        err->code = (tt_status)m->status;
        return err->code;
    }
    if (!first || !strncmp(m->text, "node ", 5))
        return TT_FAIL(err, (tt_status)m->status, "%s", m->text);
    return TT_FAIL(err, (tt_status)m->status, "node %d on %s: %s", first, m->host, m->text);
}

tt_status tt_nodes_ended(tt_machines *n, tt_status s, tt_error *err)
{
    tt_node_message mine = message_of(n, TT_NODE_ENDED, s, s == TT_OK ? "" : err->text);
    if (n->o.me) {
        tell_all(n, &mine);
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
        until = n->stopping && !until ? tt_now_ns() + END_NS : until;
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
    return first_failure(n, err);
}

void tt_nodes_finish(tt_machines *n, tt_status s, const tt_error *err)
{
    char text[1024] = "";
    if (s != TT_OK && err->text[0] && strncmp(err->text, "node", 4))
        snprintf(text, sizeof text, "node 0 on %s: %.900s", n->host, err->text);
    else if (s != TT_OK)
        snprintf(text, sizeof text, "%s", err->text);
    const tt_node_message m = message_of(n, TT_NODE_OVER, s, text);
    tell_all(n, &m);
}
