/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "base/thread.h"
#include "launch/nodes_machines.h"
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/random.h>

/* The meeting of the nodes: node 0 takes in those that belong to this run, refuses all others, and goes on. */

#define MOST_AT_ONCE 64 /* taken each 10 ms, so that each has 40 ms at least however many come */
#define MOST_LINES 100  /* about nodes that differ, in a meeting */

/* As the user gives it: N or MIN:MAX. */
static void count_text(int least, int most, char *text, size_t size)
{
    if (least)
        snprintf(text, size, "%d:%d", least, most);
    else
        snprintf(text, size, "%d", most);
}

/* Why a node that has connected may not take part; NULL: it may. */
static const char *what_differs(const tt_machines *n, const tt_node_message *m, char *text,
                                size_t size)
{
    char other[32], own[32];
    const int k = m->node;
    count_text(m->least, m->nodes, other, sizeof other);
    count_text(n->o.least, n->o.n, own, sizeof own);
    if (strcmp(m->version, TT_BUILD_VERSION))
        snprintf(text, size, "node %d on %s is ttrun %s, node 0 is %s; install one on all", k,
                 m->host, m->version, TT_BUILD_VERSION);
    else if (strcmp(other, own))
        snprintf(text, size, "node %d on %s was started with --nnodes %s, node 0 with %s", k,
                 m->host, other, own);
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
    else if (m->status && n->o.least && n->met) /* the others go on without it */
        snprintf(text, size, "node %d on %s: %.400s", k, m->host, m->text);
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

/* A node that has joined while ranks run. */
static void let_wait(tt_machines *n, int node)
{
    tt_node_send(&n->links[node], tt_nodes_message(n, TT_NODE_WAIT, TT_OK, ""));
    tt_log(TT_INFO, "nodes", "node %d on %s has come while ranks run", node, n->how[node].host);
    n->n_came++;
    n->came = node;
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
        if (!n->running || n->place[m->node] < 0) /* else it says how its ranks have ended */
            n->how[m->node] = *m;
        n->links[m->node] = *l;
        tt_nodes_take_stock(n, m->node, m);
        tt_nodes_watch(n, l->fd);
        l->fd = -1;
        if (n->running)
            let_wait(n, m->node);
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
        if (n->running)
            tt_nodes_watch(n, l.fd);
        *place_for(n) = (tt_node_pending){l, tt_now_ns()};
    }
}

void tt_nodes_take_in(tt_machines *n)
{
    accept_some(n);
    for (int i = 0; i < TT_NODES_PENDING; i++) {
        tt_node_pending *p = &n->waiting[i];
        const int got = tt_node_read(&p->l);
        if (got > 0)
            admit_node(n, &p->l);
        else if (got < 0 && !p->l.n_in && !p->l.n_received)
            tt_node_drop(&p->l); /* it has said nothing */
        else if (got < 0 ||
                 (p->l.fd >= 0 && tt_now_ns() - p->since_ns > tt_patience(TT_NODE_HELLO_NS)))
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
            return TT_FAIL(err, TT_ESIGNAL, "stopped by %s %s", tt_signal_name(sig),
                           n->waits ? "while it waited for the next start"
                                    : "before all nodes had met");
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
    if (n->o.least)
        return TT_FAIL(err, TT_ETIMEOUT,
                       "only %d of at least %d nodes came within %g s (--rdzv_timeout), without "
                       "node%s %s%s%s; start ttrun there with --node_rank, --master_addr and "
                       "--master_port %d",
                       tt_nodes_here(n), n->o.least, n->o.timeout_s, s, who,
                       n->refused[0] ? "; refused: " : "", n->refused, n->o.port);
    if (n->refused[0])
        return TT_FAIL(err, TT_EINVAL,
                       "node%s %s did not come within %g s (--rdzv_timeout); refused: %s", s, who,
                       n->o.timeout_s, n->refused);
    return TT_FAIL(err, TT_ETIMEOUT,
                   "node%s %s did not come within %g s (--rdzv_timeout); start ttrun there "
                   "with --node_rank, --master_addr and --master_port %d",
                   s, who, n->o.timeout_s, n->o.port);
}

/* --nnodes MIN:MAX: nobody else has to be waited for until the last call. */
static bool enough_came(const tt_machines *n)
{
    return n->o.least && (tt_nodes_here(n) >= n->o.least || n->cause.code != TT_OK);
}

/* Between two starts nodes only say which copies of states they have. */
static void hear_members(tt_machines *n)
{
    for (int i = 1; i < n->o.n; i++) {
        tt_node_link *l = &n->links[i];
        int got = 0;
        while (l->fd >= 0 && (got = tt_node_read(l)) > 0)
            if (l->in.what == TT_NODE_COPIES)
                tt_nodes_take_stock(n, i, &l->in);
        if (l->fd >= 0 && got < 0)
            tt_node_drop(l);
    }
}

static tt_status gather_nodes(tt_machines *n, tt_error *err)
{
    char who[300];
    const int64_t begin = tt_now_ns();
    int64_t enough_ns = 0;
    bool told = false;
    for (;;) {
        hear_members(n);
        tt_nodes_take_in(n);
        const int missing = list_missing(n, who, sizeof who);
        const double waited = 1e-9 * (double)(tt_now_ns() - begin);
        const bool ready =
            tt_nodes_told_stock(n) || n->cause.code != TT_OK || waited > n->o.timeout_s;
        if (!missing && ready)
            return given_cause(n, err);
        enough_ns = enough_came(n) && !enough_ns ? tt_now_ns() : enough_ns;
        if (enough_ns && enough_came(n) && ready &&
            (n->met || waited > n->o.timeout_s ||
             1e-9 * (double)(tt_now_ns() - enough_ns) > n->o.last_call_s))
            return given_cause(n, err);
        if (missing && waited > n->o.timeout_s)
            return not_all_came(n, who, missing, err);
        if (!told && missing && waited * 1e9 > (double)tt_patience(TT_NODE_TELL_NS))
            tt_log(TT_INFO, "nodes", "waits for node%s %s%s%s", missing > 1 ? "s" : "", who,
                   n->cause.code == TT_OK ? "" : ", which must end, too: ", n->cause.text);
        told = told || waited * 1e9 > (double)tt_patience(TT_NODE_TELL_NS);
        TT_TRY(not_stopped(n, 10, err));
    }
}

static bool join_node_0(tt_machines *n, tt_node_link *l)
{
    *l = tt_node_connect(n->o.address, n->o.port, -1);
    if (l->fd < 0)
        return false;
    tt_nodes_watch(n, l->fd);
    const tt_node_message m = tt_nodes_message(n, TT_NODE_JOIN, n->cause.code, n->cause.text);
    if (n->peers)
        tt_nodes_tell_stock(n, &m);
    else
        tt_node_send(l, m);
    return true;
}

/* Node 0 was lost, or never answered. */
static tt_status no_node_0(const tt_machines *n, int answered, tt_error *err)
{
    if (n->met)
        return TT_FAIL(err, TT_ETIMEOUT,
                       "node 0 at %s was lost, and did not come back within %g s (--rdzv_timeout); "
                       "start all nodes again to continue from the last checkpoint",
                       n->o.address, n->o.timeout_s);
    return TT_FAIL(err, TT_ETIMEOUT,
                   "node 0 at %s port %d %s within %g s (--rdzv_timeout); start ttrun there "
                   "with --node_rank 0, and the same --rdzv_id and TTRUN_COMM_SECRET",
                   n->o.address, n->o.port,
                   answered ? "did not take node in, or ended," : "did not answer", n->o.timeout_s);
}

/* Waits for a message that ends the waiting. */
static tt_status hear_word(tt_machines *n, tt_error *err)
{
    int64_t begin = tt_now_ns();
    int answered = 0;
    bool told = false;
    tt_node_link *l = &n->links[0];
    for (;;) {
        if (l->fd < 0 && n->met && !n->o.restarts)
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
            return TT_OK;
        if (got > 0 && l->in.what == TT_NODE_FETCH)
            tt_nodes_add_fetches(n, &l->in);
        if (got > 0 && l->in.what == TT_NODE_WAIT) {
            tt_log(TT_INFO, "nodes", "waits: this node takes part in a later start");
            n->waits = true;
        } else if (got < 0 && n->waits) {
            n->waits = false;
            begin = tt_now_ns();
        }
        if (!n->waits &&
            1e-9 * (double)(tt_now_ns() - begin) > n->o.timeout_s + (l->fd >= 0 ? 60 : 0))
            return no_node_0(n, answered, err);
        if (!told && n->cause.code != TT_OK && tt_now_ns() - begin > tt_patience(TT_NODE_TELL_NS)) {
            tt_log(TT_INFO, "nodes", "waits for node 0, which must end, too: %s", n->cause.text);
            told = true;
        }
        TT_TRY(not_stopped(n, got < 0 || l->fd < 0 ? 100 : 10, err));
    }
}

static void meeting_begins(tt_machines *n)
{
    n->stopping = false;
    n->stopped = 0;
    n->waits = false;
    n->n_differing = 0;
    n->refused[0] = 0;
    n->n_fetches = 0;
    memset(n->ended, 0, (size_t)n->o.n * sizeof *n->ended);
}

tt_status tt_nodes_hear(tt_machines *n, tt_nodes_start *start, tt_error *err)
{
    meeting_begins(n);
    TT_TRY(hear_word(n, err));
    const tt_node_message *m = &n->links[0].in;
    n->how[0] = *m;
    start->over = m->what == TT_NODE_OVER;
    start->resume = m->resume;
    start->mesh = (tt_refit){m->mesh_world, m->dp_replicate, m->dp_shard, m->global_batch};
    n->start = m->start;
    n->my_place = m->place;
    n->n_now = m->n_now;
    n->local = m->local;
    n->world = m->world;
    tt_nodes_hear_start(n, m);
    n->met = n->met || !start->over;
    snprintf(start->text, sizeof start->text, "%s", m->text);
    if (start->over && m->status)
        return TT_FAIL(err, (tt_status)m->status, "%s", m->text);
    return TT_OK;
}

tt_status tt_nodes_gather(tt_machines *n, tt_error *err)
{
    meeting_begins(n);
    const tt_status s = gather_nodes(n, err);
    if (s != TT_OK)
        tt_nodes_finish(n, s, err);
    return s;
}

int tt_nodes_here(const tt_machines *n)
{
    int here = 1;
    for (int i = 1; i < n->o.n; i++)
        here += n->links[i].fd >= 0;
    return here;
}

bool tt_nodes_divide(const tt_machines *n, int world, int *nodes, int *local)
{
    const int here = tt_nodes_here(n);
    for (int p = TT_MIN(n->o.nproc, world); p > 0; p--)
        if (world % p == 0 && world / p <= here) {
            *nodes = world / p;
            *local = p;
            return true;
        }
    return false;
}

/* Gives n->n_now nodes a place. Where not all are needed, the one that failed last is left out first, and then
 * those with the largest numbers. */
static void place_nodes(tt_machines *n)
{
    int left = n->n_now, spare = tt_nodes_here(n) - n->n_now, place = 0;
    for (int i = 0; i < n->o.n; i++) {
        const bool here = i == 0 || n->links[i].fd >= 0;
        n->place[i] = here ? 0 : -1;
        if (spare > 0 && i > 0 && here && i == n->blamed) {
            n->place[i] = -1;
            spare--;
        }
    }
    for (int i = 0; i < n->o.n; i++)
        if (n->place[i] == 0)
            n->place[i] = left-- > 0 ? place++ : -1;
}

void tt_nodes_announce(tt_machines *n, int world, const tt_nodes_start *start)
{
    if (getrandom(&n->start, sizeof n->start, 0) != sizeof n->start)
        n->start = (uint64_t)tt_now_ns();
    n->world = world;
    if (!tt_nodes_divide(n, world, &n->n_now, &n->local))
        tt_log(TT_ERROR, "nodes", "%d ranks cannot be divided among the nodes", world);
    place_nodes(n);
    tt_nodes_plan_copies(n, start->copies);
    tt_node_message m = tt_nodes_message(n, TT_NODE_START, TT_OK, start->text);
    m.resume = start->resume;
    m.n_now = n->n_now;
    m.local = n->local;
    m.world = world;
    m.mesh_world = start->mesh.world;
    m.dp_replicate = start->mesh.dp_replicate;
    m.dp_shard = start->mesh.dp_shard;
    m.global_batch = start->mesh.global_batch;
    for (int i = 1; i < n->o.n; i++) {
        m.place = n->place[i];
        m.what = n->place[i] < 0 ? TT_NODE_WAIT : TT_NODE_START;
        n->ended[i] = n->place[i] < 0;
        tt_nodes_fill_start(n, i, &m);
        tt_node_send(&n->links[i], m);
    }
    tt_nodes_fill_start(n, 0, &m);
    tt_nodes_hear_start(n, &m);
    if (n->o.least && !n->met)
        tt_nodes_watch(n, n->listener);
    n->met = true;
    n->running = n->o.least > 0;
    n->n_came = 0;
}

void tt_nodes_list(const tt_machines *n, char *text, size_t size)
{
    size_t at = 0;
    const char *before = "";
    for (int spare = 0; spare < 2; spare++, before = "; spare: ")
        for (int i = 0; i < n->o.n; i++) {
            const bool here = i == 0 || n->links[i].fd >= 0;
            if (!here || (n->place[i] < 0) != (spare == 1) || at + 32 > size)
                continue;
            at += (size_t)snprintf(text + at, size - at, "%s%d", before, i);
            before = ", ";
        }
}

int tt_nodes_came(tt_machines *n, char *who, size_t size)
{
    const int k = n->n_came;
    if (k)
        snprintf(who, size, "node %d on %s has come", n->came, n->how[n->came].host);
    n->n_came = 0;
    return k;
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
        (void)(o->me ? tt_nodes_hear(n, &start, &ignored) : tt_nodes_gather(n, &ignored));
    }
    tt_nodes_close(n);
    tt_launch_signals_close(&signals);
    return err->code;
}
