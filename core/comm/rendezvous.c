/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "base/pool.h"
#include "base/thread.h"
#include "comm/session_impl.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

/* The rendezvous of the ranks of one machine. Local rank 0 listens on a socket of the abstract
 * namespace; each other rank connects, says who it is, and receives the memfd of the shared memory.
 * When all ranks have arrived, rank 0 sends each of them one byte. The sockets stay open: when a
 * socket closes, its process has ended. */

#define MAGIC UINT64_C(0x7474727573657332) /* changes with the layout of the shared memory */
#if defined(__SANITIZE_THREAD__) /* it leaves a program about 1.5 TiB of address space, in pieces */
#define MAX_BYTES (UINT64_C(1) << 36)
#else
#define MAX_BYTES (UINT64_C(1) << 40) /* of address space; pages are allocated when touched */
#endif
#define MIN_BYTES (UINT64_C(1) << 26)

typedef struct hello {
    uint64_t magic;
    int32_t rank, world, local_rank, local_world;
    char version[32];
} hello;

typedef struct waiting {
    const tt_session_opts *o;
    int64_t until_ns;
    int64_t asked_ns; /* when the stop signal was seen; 0: not yet */
} waiting;

static socklen_t address(const tt_launch *l, struct sockaddr_un *a)
{
    memset(a, 0, sizeof *a);
    a->sun_family = AF_UNIX;
    const int n = snprintf(a->sun_path + 1, sizeof a->sun_path - 1, "ttrun-%u-%s",
                           (unsigned)geteuid(), l->key);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

tt_status tt_session_asked_to_stop(int (*stop)(void), int64_t *asked_ns, tt_error *err)
{
    const int sig = stop ? stop() : 0;
    const int64_t now = tt_now_ns();
    if (sig && !*asked_ns)
        *asked_ns = now;
    if (sig && now - *asked_ns > tt_patience(TT_RANK_STOPPED_NS))
        return tt_fail_stopped(sig, err);
    return TT_OK;
}

static tt_status keep_waiting(waiting *w, tt_error *err)
{
    TT_TRY(tt_session_asked_to_stop(w->o->stop, &w->asked_ns, err));
    return tt_now_ns() < w->until_ns ? TT_OK : TT_ETIMEOUT;
}

static bool same_user(int fd, struct ucred *other)
{
    socklen_t n = sizeof *other;
    *other = (struct ucred){.uid = (uid_t)-1};
    return !getsockopt(fd, SOL_SOCKET, SO_PEERCRED, other, &n) && other->uid == geteuid();
}

enum { NOT_NOW = -1, FAILED = -2 };

/* Connects to the name of this start and returns the socket. NOT_NOW: nobody listens there, or the
 * listener takes no more connections for now. FAILED: another user's process listens there; err says
 * so. It does not wait, because that process might never accept. */
static int connect_name(const tt_launch *l, tt_error *err)
{
    struct sockaddr_un a;
    struct ucred other;
    const socklen_t n = address(l, &a);
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) {
        tt_fail(err, TT_ECOMM, "socket: %s", strerror(errno));
        return FAILED;
    }
    if (connect(fd, (struct sockaddr *)&a, n)) {
        close(fd);
        return NOT_NOW;
    }
    if (same_user(fd, &other)) {
        fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK);
        return fd;
    }
    close(fd);
    tt_fail(err, TT_ECOMM,
            "process %ld of user %ld holds the name by which the ranks of this start would find "
            "each other; start again%s",
            (long)other.pid, (long)other.uid,
            strcmp(l->launcher, "torchrun") ? "" : " with another MASTER_PORT");
    return FAILED;
}

static hello my_hello(const tt_launch *l)
{
    hello h = {MAGIC, l->rank, l->world, l->local_rank, l->local_world, {0}};
    snprintf(h.version, sizeof h.version, "%s", TT_BUILD_VERSION);
    return h;
}

/* Waits until there is something to read or the other end has closed. */
static tt_status await_bytes(int fd, waiting *w, tt_error *err)
{
    struct pollfd f = {fd, POLLIN, 0};
    do
        TT_TRY(keep_waiting(w, err));
    while (poll(&f, 1, 100) <= 0);
    return TT_OK;
}

/* Reads all n bytes. TT_ECOMM: the other end has closed; TT_ETIMEOUT: the time limit has passed. */
static tt_status read_all(int fd, void *p, size_t n, waiting *w, tt_error *err)
{
    for (char *at = p; n > 0;) {
        TT_TRY(await_bytes(fd, w, err));
        const ssize_t k = read(fd, at, n);
        if (k <= 0)
            return TT_ECOMM;
        at += k;
        n -= (size_t)k;
    }
    return TT_OK;
}

/* ---- the memory ---- */

static tt_status map_memory(tt_session *s, tt_error *err)
{
    void *p = mmap(NULL, s->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, s->memfd, 0);
    if (p == MAP_FAILED)
        return TT_FAIL(err, TT_ENOMEM, "cannot map the memory that the ranks share: %s",
                       strerror(errno));
    s->m = p;
    return TT_OK;
}

/* The limit on file sizes (ulimit -f) also applies to a memfd: while the memory is made, the soft
 * limit is raised to the hard one. */
static tt_status size_memory(tt_session *s, tt_error *err)
{
    struct rlimit before = {RLIM_INFINITY, RLIM_INFINITY}, most;
    getrlimit(RLIMIT_FSIZE, &before);
    most = (struct rlimit){before.rlim_max, before.rlim_max};
    setrlimit(RLIMIT_FSIZE, &most);
    tt_status st = TT_ENOMEM;
    /* Try smaller sizes, since the process's address space may be limited. */
    for (s->bytes = MAX_BYTES; s->bytes >= MIN_BYTES; s->bytes /= 2) {
        if (most.rlim_cur != RLIM_INFINITY && s->bytes > most.rlim_cur)
            continue;
        if (!ftruncate(s->memfd, (off_t)s->bytes) && (st = map_memory(s, err)) == TT_OK)
            break;
    }
    setrlimit(RLIMIT_FSIZE, &before);
    if (st != TT_OK)
        return TT_FAIL(err, st,
                       "cannot allocate the memory that the ranks share; is the file size "
                       "(ulimit -f) or the address space (ulimit -v) limited?");
    return TT_OK;
}

static tt_status make_memory(tt_session *s, tt_error *err)
{
    s->memfd = memfd_create("ttrun-ranks", MFD_CLOEXEC);
    if (s->memfd < 0)
        return TT_FAIL(err, TT_ENOMEM, "cannot allocate the memory that the ranks share: %s",
                       strerror(errno));
    TT_TRY(size_memory(s, err));
    const size_t head = sizeof *s->m + (size_t)s->launch.local_world * sizeof *s->m->ranks;
    atomic_store(&s->m->used, (head + TT_SESSION_LINE - 1) / TT_SESSION_LINE * TT_SESSION_LINE);
    return TT_OK;
}

static bool send_memory(tt_session *s, int fd)
{
    union {
        struct cmsghdr h;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = {0};
    struct iovec io = {&s->bytes, sizeof s->bytes};
    struct msghdr m = {.msg_iov = &io,
                       .msg_iovlen = 1,
                       .msg_control = control.bytes,
                       .msg_controllen = sizeof control.bytes};
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(c), &s->memfd, sizeof(int));
    return sendmsg(fd, &m, MSG_NOSIGNAL) == (ssize_t)sizeof s->bytes;
}

static tt_status receive_memory(tt_session *s, int fd, waiting *w, tt_error *err)
{
    union {
        struct cmsghdr h;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control;
    struct iovec io = {&s->bytes, sizeof s->bytes};
    struct msghdr m = {.msg_iov = &io,
                       .msg_iovlen = 1,
                       .msg_control = control.bytes,
                       .msg_controllen = sizeof control.bytes};
    TT_TRY(await_bytes(fd, w, err));
    if (recvmsg(fd, &m, MSG_CMSG_CLOEXEC) != (ssize_t)sizeof s->bytes)
        return TT_ECOMM;
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    if (!c || c->cmsg_type != SCM_RIGHTS || c->cmsg_len != CMSG_LEN(sizeof(int)))
        return TT_ECOMM;
    memcpy(&s->memfd, CMSG_DATA(c), sizeof(int));
    return TT_OK;
}

/* ---- local rank 0 ---- */

static void missing(const tt_session *s, char *text, size_t size)
{
    size_t n = 0;
    text[0] = 0;
    for (int i = 1; i < s->launch.local_world && n + 12 < size; i++)
        if (s->socks[i] < 0)
            n += (size_t)snprintf(text + n, size - n, " %d", i);
}

/* Takes in the process that connected, unless it is not a rank of this run. */
static tt_status admit(tt_session *s, int fd, waiting *w, tt_error *err)
{
    hello h;
    struct ucred other;
    const hello mine = my_hello(&s->launch);
    const tt_status read = same_user(fd, &other) ? read_all(fd, &h, sizeof h, w, err) : TT_ECOMM;
    if (read != TT_OK) {
        close(fd);
        return read == TT_ESIGNAL ? read : TT_OK;
    }
    if (h.magic != mine.magic || memcmp(h.version, mine.version, sizeof h.version) ||
        h.world != mine.world || h.local_world != mine.local_world || h.local_rank < 1 ||
        h.local_rank >= mine.local_world || s->socks[h.local_rank] >= 0) {
        close(fd);
        return TT_FAIL(err, TT_ECOMM,
                       "a process that says it is rank %d of %d does not belong to this run: "
                       "start the same ttrun with the same number of ranks everywhere",
                       (int)h.rank, (int)h.world);
    }
    s->m->ranks[h.local_rank].rank = h.rank;
    if (!send_memory(s, fd)) {
        close(fd);
        return TT_OK;
    }
    s->socks[h.local_rank] = fd;
    return TT_OK;
}

static tt_status bind_name(int fd, const tt_launch *l, waiting *w, tt_error *err)
{
    struct sockaddr_un a;
    const socklen_t n = address(l, &a);
    while (bind(fd, (struct sockaddr *)&a, n)) {
        const tt_status st = errno == EADDRINUSE ? keep_waiting(w, err) : TT_ECOMM;
        if (st == TT_ESIGNAL)
            return st;
        if (st != TT_OK)
            return TT_FAIL(err, TT_ECOMM,
                           "the ranks cannot find each other: %s; does another run have the "
                           "same %s variables?",
                           strerror(errno), l->launcher);
        const int held = connect_name(l, err);
        if (held == FAILED)
            return TT_ECOMM;
        if (held >= 0)
            close(held);
        nanosleep(&(struct timespec){0, 20000000}, NULL); /* an earlier run is just ending */
    }
    return listen(fd, 4096) ? TT_FAIL(err, TT_ECOMM, "listen: %s", strerror(errno)) : TT_OK;
}

static tt_status accept_all(tt_session *s, int fd, waiting *w, tt_error *err)
{
    struct pollfd f = {fd, POLLIN, 0};
    for (int arrived = 1; arrived < s->launch.local_world;) {
        const tt_status st = keep_waiting(w, err);
        char who[128];
        missing(s, who, sizeof who);
        if (st == TT_ETIMEOUT)
            return TT_FAIL(err, st,
                           "ranks of this machine that did not arrive within %g s "
                           "(comm.init_timeout_seconds):%s",
                           w->o->timeout_s, who);
        if (st != TT_OK)
            return st;
        if (poll(&f, 1, 100) <= 0)
            continue;
        const int one = accept4(fd, NULL, NULL, SOCK_CLOEXEC);
        if (one >= 0)
            TT_TRY(admit(s, one, w, err));
        arrived = 1;
        for (int i = 1; i < s->launch.local_world; i++)
            arrived += s->socks[i] >= 0;
    }
    for (int i = 1; i < s->launch.local_world; i++)
        if (send(s->socks[i], "!", 1, MSG_NOSIGNAL) != 1)
            return TT_FAIL(err, TT_ECOMM, "rank %d was lost before step 1", s->m->ranks[i].rank);
    return TT_OK;
}

static tt_status accept_others(tt_session *s, waiting *w, tt_error *err)
{
    TT_TRY(make_memory(s, err));
    s->m->ranks[0].rank = s->launch.rank;
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return TT_FAIL(err, TT_ECOMM, "socket: %s", strerror(errno));
    tt_status st = bind_name(fd, &s->launch, w, err);
    if (st == TT_OK)
        st = accept_all(s, fd, w, err);
    close(fd);
    return st;
}

/* ---- the other ranks ---- */

static tt_status connect_first(tt_session *s, waiting *w, tt_error *err)
{
    for (;;) {
        const int fd = connect_name(&s->launch, err);
        if (fd == FAILED)
            return TT_ECOMM;
        if (fd >= 0) {
            s->socks[0] = fd;
            return TT_OK;
        }
        const tt_status st = keep_waiting(w, err);
        if (st == TT_ETIMEOUT)
            return TT_FAIL(err, st,
                           "the first rank of this machine did not arrive within %g s "
                           "(comm.init_timeout_seconds)",
                           w->o->timeout_s);
        if (st != TT_OK)
            return st;
        nanosleep(&(struct timespec){0, 5000000}, NULL);
    }
}

/* The error of a rank whose local rank 0 closed the socket or did not answer: st is the status of
 * the read from it. */
static tt_status first_rank_gone(const tt_session *s, const waiting *w, tt_status st,
                                 const char *what, tt_error *err)
{
    const int sig = w->o->stop ? w->o->stop() : 0;
    if (st == TT_ESIGNAL)
        return st;
    if (sig) /* rank 0 received the signal too, and ended before this rank */
        return tt_fail_stopped(sig, err);
    if (st == TT_ETIMEOUT)
        return TT_FAIL(err, st,
                       "the first rank of this machine did not answer rank %d within %g s "
                       "(comm.init_timeout_seconds)",
                       s->launch.rank, w->o->timeout_s);
    return TT_FAIL(err, TT_ECOMM, "the first rank of this machine %s", what);
}

static tt_status connect_and_join(tt_session *s, waiting *w, tt_error *err)
{
    const hello h = my_hello(&s->launch);
    char go;
    TT_TRY(connect_first(s, w, err));
    tt_status st = TT_ECOMM;
    if (send(s->socks[0], &h, sizeof h, MSG_NOSIGNAL) == sizeof h)
        st = receive_memory(s, s->socks[0], w, err);
    if (st != TT_OK)
        return first_rank_gone(s, w, st, "rejected this rank", err);
    TT_TRY(map_memory(s, err));
    st = read_all(s->socks[0], &go, 1, w, err);
    return st == TT_OK ? st : first_rank_gone(s, w, st, "exited before all ranks had arrived", err);
}

tt_status tt_session_rendezvous(tt_session *s, const tt_session_opts *o, tt_error *err)
{
    waiting w = {o, tt_now_ns() + (int64_t)(TT_MIN(o->timeout_s, 1e9) * 1e9), 0};
    return s->launch.local_rank ? connect_and_join(s, &w, err) : accept_others(s, &w, err);
}
