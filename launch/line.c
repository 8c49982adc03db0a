/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "launch/line.h"
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

/* A message: one byte, or one of these, which ends with its text. */
typedef struct long_message {
    char what;
    int32_t rank, code; /* a tt_status */
    int64_t step;
    char text[sizeof((tt_error *)0)->text];
} long_message;

#define LINE_FAILURE 'f'
#define LINE_STEP 's'

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
    *l = (tt_line){.listener = -1, .step = -1};
    random_name(l->name);
    const socklen_t n = line_address(l->name, &a);
    const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
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

static void understand(tt_line *l, const long_message *m, size_t n)
{
    const char said = m->what;
    if (n == 1) {
        l->spoke = l->spoke || said == TT_LINE_SPOKE;
        l->second = said > 0 && said < 32 ? said : l->second;
        l->n_done += said == TT_LINE_DONE;
    } else if (n >= offsetof(long_message, text) && said == LINE_STEP) {
        l->step = m->step;
    } else if (n > offsetof(long_message, text) && said == LINE_FAILURE && !l->failure.code) {
        l->failure = (tt_line_failure){.rank = m->rank, .code = (tt_status)m->code};
        memcpy(l->failure.text, m->text,
               TT_MIN(n - offsetof(long_message, text), sizeof m->text - 1));
    }
}

static void hear(tt_line *l, size_t i)
{
    long_message m;
    ssize_t n;
    bool again = true; /* an error of the other end is reported before what it had sent */
    while ((n = recv(l->ranks[i], &m, sizeof m, MSG_DONTWAIT)) > 0 ||
           (n < 0 && errno == ECONNRESET && again)) {
        if (n > 0)
            understand(l, &m, (size_t)n);
        else
            again = false;
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
/* set before `line` */
static int line_rank;
static bool supervised;

void tt_line_environment(const tt_line *l)
{
    setenv(VARIABLE, l->name, 1);
}

void tt_line_connect(int rank)
{
    line_rank = rank;
    const char *name = getenv(VARIABLE);
    struct sockaddr_un a;
    const int fd = name ? socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0) : -1;
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

static bool send_message(const long_message *m, size_t n_text)
{
    const int fd = atomic_load(&line);
    const size_t n = offsetof(long_message, text) + n_text;
    return fd >= 0 && send(fd, m, n, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)n;
}

void tt_line_is_supervisors(void)
{
    supervised = true;
}

bool tt_line_say_failure(tt_status code, const char *text)
{
    long_message m = {.what = LINE_FAILURE, .rank = line_rank, .code = code};
    const int before = errno;
    const size_t n = strnlen(text, sizeof m.text - 1);
    memcpy(m.text, text, n);
    const bool told = supervised && send_message(&m, n + 1);
    errno = before;
    return told;
}

void tt_line_say_step(int64_t step)
{
    const long_message m = {.what = LINE_STEP, .rank = line_rank, .step = step};
    if (supervised)
        send_message(&m, 0);
}
