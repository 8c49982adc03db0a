/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Preloaded: the monotonic clock is as many seconds later as the file $CLOCK says, which a test changes while the program runs.
 * So a limit of days passes when the test wants it, and on no machine before that. And each call of connect() adds a line to the
 * file $CONNECTS, so that a test knows how often a program has tried. */

static long later(void)
{
    static atomic_long known;
    char text[32];
    const char *path = getenv("CLOCK");
    const int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    const ssize_t n = fd >= 0 ? read(fd, text, sizeof text - 1) : -1;
    if (fd >= 0)
        close(fd);
    text[n > 0 ? n : 0] = 0;
    if (n > 0 &&
        atol(text) > atomic_load(&known)) /* never back, and not while it is being written */
        atomic_store(&known, atol(text));
    return atomic_load(&known);
}

int clock_gettime(clockid_t id, struct timespec *out)
{
    const int rc = (int)syscall(SYS_clock_gettime, id, out);
    if (rc == 0 && id == CLOCK_MONOTONIC)
        out->tv_sec += later();
    return rc;
}

int connect(int fd, const struct sockaddr *to, socklen_t n)
{
    const char *path = getenv("CONNECTS");
    const int list = path ? open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600) : -1;
    if (list >= 0 && to->sa_family != AF_UNIX && write(list, "\n", 1) < 1)
        abort();
    if (list >= 0)
        close(list);
    return (int)syscall(SYS_connect, fd, to, n);
}
