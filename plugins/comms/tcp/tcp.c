/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "tcp.h"
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <time.h>
#include <ttrun/log.h>
#include <ttrun/sockets.h>
#include <unistd.h>

/* comm "tcp": groups that span machines, over sockets. Each group has its own connections, so groups
 * may be used concurrently. */

#define MOST_DESCRIPTORS 65536

double tcp_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* FNV-1a */
static uint64_t mix(uint64_t h, const char *text)
{
    for (; text && *text; text++)
        h = (h ^ (unsigned char)*text) * UINT64_C(0x100000001b3);
    return (h ^ 0xff) * UINT64_C(0x100000001b3);
}

static void tcp_group_free(tt_comm *c)
{
    tcp_end *e = c->e;
    const double until = tcp_now() + 5;
    bool busy = true;
    while (busy && c->boxes && tcp_now() < until && !atomic_load(&e->asked)) {
        pthread_mutex_lock(&e->lock); /* what was sent must leave first */
        busy = false;
        for (int i = 0; i < c->p.n; i++)
            busy = (i != c->p.me && tcp_write_box(c, i)) || busy;
        pthread_mutex_unlock(&e->lock);
        if (busy)
            nanosleep(&(struct timespec){0, 1000000}, NULL);
    }
    pthread_mutex_lock(&e->lock);
    for (tt_comm **at = &e->groups; *at; at = &(*at)->next)
        if (*at == c) {
            *at = c->next;
            break;
        }
    pthread_mutex_unlock(&e->lock);
    for (int k = 0; k < 3; k++) {
        for (int i = 0; c->fds[k] && i < c->p.n; i++)
            if (c->fds[k][i] >= 0)
                close(c->fds[k][i]);
        free(c->fds[k]);
    }
    for (int i = 0; c->boxes && i < c->p.n; i++)
        for (int k = 0; k < PAIR_IN_FLIGHT; k++)
            free(c->boxes[i].out[k].data);
    free(c->boxes);
    free(c->transfers);
    free(c->polled);
    pair_close(&c->p);
    free(c);
}

static tt_status tcp_allocate(tt_comm *c, const int *ranks, int n, tt_error *err)
{
    const size_t m = (size_t)n;
    bool good = true;
    TT_TRY(pair_open(&c->p, ranks, n, c->e->rank, err));
    for (int k = 0; k < 3; k++) {
        c->fds[k] = malloc(m * sizeof *c->fds[k]);
        for (int i = 0; c->fds[k] && i < n; i++)
            c->fds[k][i] = -1;
        good = good && c->fds[k];
    }
    c->transfers = calloc(m, sizeof *c->transfers);
    c->polled = calloc(m, sizeof(struct pollfd));
    c->boxes = calloc(m, sizeof *c->boxes);
    if (!good || !c->transfers || !c->polled || !c->boxes)
        return TT_FAIL(err, TT_ENOMEM, "no memory for a group of %d ranks", n);
    return TT_OK;
}

/* How many groups with this key were made before. */
static tt_status group_number(tcp_end *e, uint64_t key, uint64_t *out, tt_error *err)
{
    struct numbered *all = e->numbers;
    for (size_t i = 0; i < e->n_numbers; i++)
        if (all[i].key == key) {
            *out = ++all[i].n;
            return TT_OK;
        }
    all = realloc(all, (e->n_numbers + 1) * sizeof *all);
    if (!all)
        return TT_FAIL(err, TT_ENOMEM, "no memory for a group");
    e->numbers = all;
    all[e->n_numbers].key = key;
    all[e->n_numbers++].n = *out = 1;
    return TT_OK;
}

static tt_status connect_members(tt_comm *c, uint64_t key, uint64_t number, tt_error *err)
{
    for (int i = 0; i < c->p.n; i++) {
        const bool above = c->p.ranks[i] > c->e->rank;
        if (i == c->p.me)
            continue;
        TT_TRY(tcp_link(c->e, c->p.ranks[i], COLLECTIVES, key, number, &c->fds[0][i], err));
        TT_TRY(tcp_link(c->e, c->p.ranks[i], above ? MESSAGES_UP : MESSAGES_DOWN, key, number,
                        &c->fds[1][i], err));
        TT_TRY(tcp_link(c->e, c->p.ranks[i], above ? MESSAGES_DOWN : MESSAGES_UP, key, number,
                        &c->fds[2][i], err));
    }
    return TT_OK;
}

static tt_status tcp_group(void *self, const int *ranks, int n, uint64_t key, tt_comm **out,
                           tt_error *err)
{
    tcp_end *e = self;
    uint64_t number = 0;
    tt_comm *c = calloc(1, sizeof *c);
    if (!c)
        return TT_FAIL(err, TT_ENOMEM, "no memory for a group");
    *c = (tt_comm){
        .p = {.t = &tcp_transport, .timeout_s = &e->timeout_s},
          .e = e
    };
    tt_status s = tcp_check(e, err);
    if (s == TT_OK)
        s = tcp_allocate(c, ranks, n, err);
    if (s == TT_OK) {
        pthread_mutex_lock(&e->accepting);
        s = group_number(e, key, &number, err);
        pthread_mutex_unlock(&e->accepting);
    }
    if (s == TT_OK)
        s = connect_members(c, key, number, err);
    if (s != TT_OK) {
        tcp_group_free(c);
        return s;
    }
    pthread_mutex_lock(&e->lock);
    c->next = e->groups;
    e->groups = c;
    pthread_mutex_unlock(&e->lock);
    *out = c;
    return TT_OK;
}

/* ---- life ---- */

static void end_free(tcp_end *e)
{
    if (e->running) {
        const uint64_t one = 1;
        atomic_store(&e->closing, 1);
        (void)!write(e->wake, &one, sizeof one);
        pthread_join(e->thread, NULL);
    }
    for (int i = 0; e->peers && i < e->world; i++)
        if (e->peers[i].fd >= 0)
            close(e->peers[i].fd);
    while (e->pending) {
        pending *p = e->pending;
        e->pending = p->next;
        close(p->fd);
        free(p);
    }
    if (e->listener >= 0)
        close(e->listener);
    if (e->wake >= 0)
        close(e->wake);
    pthread_mutex_destroy(&e->lock);
    pthread_mutex_destroy(&e->accepting);
    if (e->addresses)
        freeaddrinfo(e->addresses);
    free(e->numbers);
    free(e->peers);
    free(e);
}

static tt_status where(const tcp_config *c, const char **address, int *port, tt_error *err)
{
    const char *variable = getenv("MASTER_PORT"), *store = getenv("TORCHELASTIC_USE_AGENT_STORE");
    char *end = NULL;
    long n = (long)c->port;
    *address = c->address ? c->address : getenv("MASTER_ADDR");
    if (!n && variable) {
        n = strtol(variable, &end, 10);
        if (end == variable || *end)
            n = 0;
        n += n && store && !strcmp(store, "True"); /* torchrun itself listens on its port */
    }
    if (!*address || !**address || n < 1 || n > 65535)
        return TT_FAIL(
            err, TT_EINVAL,
            "tcp: where does rank 0 listen? Set MASTER_ADDR and MASTER_PORT for each rank "
            "as torchrun does, or comm.args.address and port");
    *port = (int)n;
    return TT_OK;
}

/* Each rank has some connections with each other one, and a shell's usual limit is 1024 files. */
static void allow_descriptors(void)
{
    struct rlimit most;
    if (getrlimit(RLIMIT_NOFILE, &most) != 0 || most.rlim_cur >= MOST_DESCRIPTORS)
        return;
    most.rlim_cur = most.rlim_max < MOST_DESCRIPTORS ? most.rlim_max : MOST_DESCRIPTORS;
    setrlimit(RLIMIT_NOFILE, &most);
}

static tt_status open_end(tcp_end *e, const tcp_config *c, tt_error *err)
{
    const char *address = NULL;
    int port = 0;
    TT_TRY(where(c, &address, &port, err));
    allow_descriptors();
    e->start = mix(UINT64_C(0xcbf29ce484222325), getenv("TTRUN_START"));
    e->start = mix(e->start, getenv("TORCHELASTIC_RUN_ID"));
    e->start = mix(e->start, getenv("TORCHELASTIC_RESTART_COUNT"));
    tcp_choose_codes(e);
    e->peers = calloc((size_t)e->world, sizeof *e->peers);
    if (!e->peers || e->wake < 0)
        return TT_FAIL(err, TT_ENOMEM, "no memory for %d ranks", e->world);
    for (int i = 0; i < e->world; i++)
        e->peers[i].fd = -1;
    TT_TRY(tcp_listen(e, address, e->rank ? 0 : port, err));
    if (!e->rank && !getenv("TTRUN_START") && !getenv("TTRUN_COMM_SECRET") &&
        !tt_socket_is_loopback(address))
        tt_log(TT_WARN, "tcp",
               "TTRUN_COMM_SECRET is not set: whoever reaches port %d may join this run; set it to "
               "the "
               "same text for all ranks, unless nobody else is in their network",
               port);
    TT_TRY(tcp_meet(e, address, port, err));
    e->running = !pthread_create(&e->thread, NULL, tcp_watch, e);
    return e->running ? TT_OK
                      : TT_FAIL(err, TT_EINVAL,
                                "tcp: cannot start a thread; allow more processes (ulimit -u)");
}

static tt_status open_(const void *config, const tt_comm_env *env, void **self, tt_error *err)
{
    tcp_end *e = calloc(1, sizeof *e);
    if (!e)
        return TT_FAIL(err, TT_ENOMEM, "no memory for a rank");
    *e = (tcp_end){.rank = env->rank,
                   .world = env->world,
                   .timeout_s = env->timeout_s,
                   .stopped = env->stopped,
                   .user = env->user,
                   .listener = -1,
                   .wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK),
                   .lock = PTHREAD_MUTEX_INITIALIZER,
                   .accepting = PTHREAD_MUTEX_INITIALIZER};
    const tcp_config none = {0};
    const tt_status s = open_end(e, config ? config : &none, err);
    if (s == TT_OK)
        *self = e;
    else
        end_free(e);
    return s;
}

/* Says to all that this rank is done, or why it failed, and gives them a moment to read it. */
static void close_(void *self, int ok)
{
    tcp_end *e = self;
    said done = {0};
    const bool well = ok && !atomic_load(&e->asked);
    if (!well && !atomic_load(&e->asked))
        tcp_abort_run(e, "a rank failed");
    tcp_seal(&done, TEXT);
    for (int i = 0; i < e->world; i++)
        if (i != e->rank && e->peers[i].fd >= 0) {
            (void)!send(e->peers[i].fd, &done, sizeof done, MSG_NOSIGNAL | MSG_DONTWAIT);
            shutdown(e->peers[i].fd, SHUT_WR);
        }
    const double until = tcp_now() + 0.2;
    for (bool all = false; !all && tcp_now() < until;) {
        all = true;
        for (int i = 0; i < e->world; i++)
            all = all && (i == e->rank || e->peers[i].left);
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    }
    end_free(e);
}

static void tcp_set_timeout(void *self, double timeout_s)
{
    ((tcp_end *)self)->timeout_s = timeout_s;
}

static int tcp_concurrent(void *self)
{
    (void)self;
    return 1;
}

/* Whether "auto" may take it: rank 0's address is known, and no MPI has started the ranks. */
static tt_status works(const void *config, const tt_comm_place *place, tt_error *err)
{
    static const char *const mpi[] = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"};
    const tcp_config none = {0};
    const char *address;
    int port;
    (void)place;
    for (size_t i = 0; i < TT_COUNT(mpi); i++)
        if (getenv(mpi[i]))
            return TT_FAIL(err, TT_EUNSUPPORTED, "tcp: MPI has started the ranks");
    return where(config ? config : &none, &address, &port, err);
}

static const tt_comm_vt vt = {
    .struct_size = sizeof(tt_comm_vt),
    .group = tcp_group,
    .group_free = tcp_group_free,
    .all_gather = pair_all_gather,
    .reduce_scatter = pair_reduce_scatter,
    .all_reduce = pair_all_reduce,
    .all_to_all = pair_all_to_all,
    .send = tcp_send,
    .recv = tcp_recv,
    .barrier = pair_barrier,
    .abort = tcp_abort_run,
    .open = open_,
    .close = close_,
    .set_timeout = tcp_set_timeout,
    .concurrent = tcp_concurrent,
    .works = works,
};

static const tt_option options[] = {
    TT_OPTION_MORE(tcp_config, address, TT_OPT_STRING, "null", 0, 0, NULL, TT_OPT_NULLABLE, NULL,
                   "where rank 0 listens: a name or an address; null = MASTER_ADDR"),
    TT_OPTION(tcp_config, port, TT_OPT_INT, "0", 0, 65535, "its port; 0 = MASTER_PORT"),
};

static const tt_component components[] = {
    TT_COMPONENT(TT_KIND_COMM, "tcp", "sockets between machines; sums in rank order", tcp_config,
                 options, &vt),
};

TT_PLUGIN("tcp", "1.0", components);
