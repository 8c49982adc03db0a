/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "cli/line.h"
#include "base/base.h"
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define VARIABLE "TTRUN_LAUNCH"

static socklen_t line_address(const char *name, struct sockaddr_un *a)
{
    memset(a, 0, sizeof *a);
    a->sun_family = AF_UNIX;
    const int n = snprintf(a->sun_path + 1, sizeof a->sun_path - 1, "ttrun-launch-%.40s", name);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

static bool same_user(int fd)
{
    struct ucred c;
    socklen_t n = sizeof c;
    return !getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &c, &n) && c.uid == geteuid();
}

static void send_byte(int fd, char byte)
{
    const ssize_t sent = send(fd, &byte, 1, MSG_DONTWAIT | MSG_NOSIGNAL);
    (void)sent; /* if it fails the other end has closed, and nobody needs the byte */
}

/* ---- the launcher's side ---- */

static void random_name(char out[33])
{
    unsigned char bytes[16] = {0};
    if (getrandom(bytes, sizeof bytes, 0) != sizeof bytes)
        snprintf((char *)bytes, sizeof bytes, "%ld", (long)getpid());
    for (int i = 0; i < 16; i++)
        snprintf(out + 2 * i, 3, "%02x", bytes[i]);
}

bool tt_line_open(tt_line *l)
{
    struct sockaddr_un a;
    *l = (tt_line){.listener = -1};
    random_name(l->name);
    const socklen_t n = line_address(l->name, &a);
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return false;
    if (bind(fd, (struct sockaddr *)&a, n) || listen(fd, 4096)) {
        close(fd);
        return false;
    }
    l->listener = fd;
    return true;
}

void tt_line_close(tt_line *l)
{
    for (size_t i = 0; i < l->n; i++)
        if (l->ranks[i] >= 0)
            close(l->ranks[i]);
    if (l->listener >= 0)
        close(l->listener);
    free(l->ranks);
    *l = (tt_line){.listener = -1};
}

/* Adds a rank. Returns -1 if there is no memory: the rank then works without a connection. */
static void add_rank(tt_line *l, int fd)
{
    if (l->n == l->capacity) {
        const size_t more = l->capacity ? 2 * l->capacity : 16;
        int *ranks = realloc(l->ranks, more * sizeof *ranks);
        if (!ranks) {
            close(fd);
            return;
        }
        l->ranks = ranks;
        l->capacity = more;
    }
    l->ranks[l->n++] = fd;
    l->n_open++;
    if (l->save)
        send_byte(fd, SIGUSR1);
    if (l->stop)
        send_byte(fd, (char)l->stop);
}

static void accept_ranks(tt_line *l)
{
    int fd;
    while ((fd = accept4(l->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK)) >= 0) {
        if (same_user(fd))
            add_rank(l, fd);
        else
            close(fd);
    }
    if (errno == EMFILE ||
        errno == ENFILE) { /* the ranks that have connected are enough to stop a run */
        close(l->listener);
        l->listener = -1;
    }
}

static void hear(tt_line *l, size_t i)
{
    char said[64];
    ssize_t n;
    while ((n = recv(l->ranks[i], said, sizeof said, MSG_DONTWAIT)) > 0)
        for (ssize_t k = 0; k < n; k++) {
            l->spoke = l->spoke || said[k] == TT_LINE_SPOKE;
            l->second = said[k] > 0 && said[k] < 32 ? said[k] : l->second;
            l->n_done += said[k] == TT_LINE_DONE;
        }
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    close(l->ranks[i]);
    l->ranks[i] = -1;
    l->n_open--;
}

void tt_line_wait(tt_line *l, int fd, int ms)
{
    struct pollfd *f = calloc(l->n + 2, sizeof *f);
    TT_ASSERT(f);
    const size_t n = l->n;
    f[0] = (struct pollfd){fd, POLLIN, 0};
    f[1] = (struct pollfd){l->listener, POLLIN, 0};
    for (size_t i = 0; i < n; i++)
        f[2 + i] = (struct pollfd){l->ranks[i], POLLIN, 0};
    if (poll(f, (nfds_t)n + 2, ms) > 0) {
        for (size_t i = 0; i < n; i++)
            if (l->ranks[i] >= 0 && f[2 + i].revents)
                hear(l, i);
        if (f[1].revents)
            accept_ranks(l);
    }
    free(f);
}

void tt_line_tell(tt_line *l, int sig)
{
    if (sig == SIGUSR1)
        l->save = l->n == 0; /* a rank that connects later need not save */
    else
        l->stop = sig;
    for (size_t i = 0; i < l->n; i++)
        if (l->ranks[i] >= 0)
            send_byte(l->ranks[i], (char)sig);
}

/* ---- a rank's side ---- */

static atomic_int line = -1; /* this process's socket to its launcher */

void tt_line_environment(const tt_line *l)
{
    setenv(VARIABLE, l->name, 1);
}

void tt_line_connect(void)
{
    const char *name = getenv(VARIABLE);
    struct sockaddr_un a;
    const int fd = name ? socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0) : -1;
    if (fd < 0)
        return;
    const struct timeval limit = {.tv_sec = 5}; /* of connect(), in case the launcher is stopped */
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    const socklen_t n = line_address(name, &a);
    if (connect(fd, (struct sockaddr *)&a, n) || !same_user(fd))
        close(
            fd); /* the launcher is on another machine, or has died and this process dies with it */
    else
        atomic_store(&line, fd);
}

bool tt_line_is_there(void)
{
    return atomic_load(&line) >= 0;
}

int tt_line_heard(void)
{
    char sig = 0;
    const int fd = atomic_load(&line);
    if (fd < 0 || recv(fd, &sig, 1, MSG_DONTWAIT) != 1)
        return 0;
    if (sig == SIGKILL)
        _exit(4);
    return sig;
}

void tt_line_say(char what)
{
    const int fd = atomic_load(&line);
    const int before = errno;
    if (fd >= 0)
        send_byte(fd, what);
    errno = before;
}
