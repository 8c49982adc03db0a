/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <ttrun/patience.h>
#include <ttrun/sockets.h>
#include <unistd.h>

/* A machine that vanishes is noticed after TT_TCP_IDLE_NS + PROBES · TT_TCP_PROBE_NS. */
#define PROBES 3
#define BACKLOG 4096

static int close_failed(int fd)
{
    const int why = errno;
    close(fd);
    errno = why;
    return -1;
}

/* The kernel takes 1 to 32767 seconds. */
static int whole_seconds(int64_t ns)
{
    const int64_t s = tt_patience(ns) / 1000000000;
    return s < 1 ? 1 : s > 32767 ? 32767 : (int)s;
}

void tt_socket_tune(int fd)
{
    const int on = 1, idle = whole_seconds(TT_TCP_IDLE_NS), probe = whole_seconds(TT_TCP_PROBE_NS),
              probes = PROBES, unsent_ms = 1000 * (idle + PROBES * probe);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &probe, sizeof probe);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &unsent_ms, sizeof unsent_ms);
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
}

static int listen_at(const struct sockaddr *a, socklen_t n)
{
    const int on = 1, off = 0,
              fd = socket(a->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (a->sa_family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    return bind(fd, a, n) || listen(fd, BACKLOG) ? close_failed(fd) : fd;
}

int tt_socket_listen(int port)
{
    const struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port)};
    const struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    const int fd = listen_at((const struct sockaddr *)&six, sizeof six);
    return fd >= 0 ? fd : listen_at((const struct sockaddr *)&four, sizeof four);
}

int tt_socket_connect(const struct sockaddr *to, socklen_t n, int wait_ms)
{
    const int fd = socket(to->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    struct pollfd f = {fd, POLLOUT, 0};
    int why = 0;
    socklen_t n_why = sizeof why;
    if (fd < 0)
        return -1;
    if (connect(fd, to, n) && (errno != EINPROGRESS || poll(&f, 1, wait_ms) != 1 ||
                               getsockopt(fd, SOL_SOCKET, SO_ERROR, &why, &n_why) || why)) {
        errno = why ? why : errno;
        return close_failed(fd);
    }
    tt_socket_tune(fd);
    return fd;
}
