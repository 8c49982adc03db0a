/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <ttrun/log.h>
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

/* device: where connections come from, "lo"; NULL: any. */
static int listen_on(const struct sockaddr *a, socklen_t n, const char *device)
{
    const int on = 1, off = 0,
              fd = socket(a->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (a->sa_family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    if (device && setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, device, (socklen_t)strlen(device)))
        return close_failed(fd);
    return bind(fd, a, n) || listen(fd, BACKLOG) ? close_failed(fd) : fd;
}

static int listen_anywhere(int port, const char *device)
{
    const struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port)};
    const struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    const int fd = listen_on((const struct sockaddr *)&six, sizeof six, device);
    return fd >= 0 ? fd : listen_on((const struct sockaddr *)&four, sizeof four, device);
}

int tt_socket_listen(int port)
{
    return listen_anywhere(port, NULL);
}

bool tt_socket_is_loopback(const char *address)
{
    struct in_addr four;
    struct in6_addr six;
    return !strcasecmp(address, "localhost") ||
           (inet_pton(AF_INET, address, &four) == 1 && ntohl(four.s_addr) >> 24 == 127) ||
           (inet_pton(AF_INET6, address, &six) == 1 && IN6_IS_ADDR_LOOPBACK(&six));
}

/* Before Linux 5.7 root alone may name a device: then it is one of the loopback addresses. */
int tt_socket_listen_at(const char *address, int port)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    struct addrinfo *all = NULL;
    char service[16];
    if (!address || !tt_socket_is_loopback(address))
        return tt_socket_listen(port);
    int fd = listen_anywhere(port, "lo");
    snprintf(service, sizeof service, "%d", port);
    if (fd >= 0 || errno == EADDRINUSE || getaddrinfo(address, service, &hints, &all))
        return fd;
    for (const struct addrinfo *a = all; a && fd < 0; a = a->ai_next)
        fd = listen_on(a->ai_addr, a->ai_addrlen, NULL);
    const int why = errno;
    freeaddrinfo(all);
    errno = why;
    return fd;
}

/* ---- who connects ---- */

typedef struct end {
    bool six;
    unsigned char bytes[16]; /* of the address; the first four of IPv4 */
    int port;
} end;

static end end_of(const struct sockaddr_storage *a)
{
    const struct sockaddr_in6 *six = (const void *)a;
    const struct sockaddr_in *four = (const void *)a;
    end e = {.six = a->ss_family == AF_INET6};
    e.port = ntohs(e.six ? six->sin6_port : four->sin_port);
    memcpy(e.bytes, e.six ? (const void *)&six->sin6_addr : &four->sin_addr, e.six ? 16 : 4);
    return e;
}

/* IPv4 in IPv6 is IPv4 for a process that connected by IPv4. */
static end as_four(end e)
{
    static const unsigned char mapped[12] = {[10] = 0xff, [11] = 0xff};
    if (!e.six || memcmp(e.bytes, mapped, sizeof mapped))
        return e;
    end four = {.port = e.port};
    memcpy(four.bytes, e.bytes + 12, 4);
    return four;
}

/* An end as /proc/net/tcp and tcp6 print it: words of 32 bits in this machine's order. */
static void print_end(const end *e, char text[48])
{
    int n = 0;
    for (int i = 0; i < (e->six ? 4 : 1); i++) {
        uint32_t word;
        memcpy(&word, e->bytes + 4 * i, 4);
        n += snprintf(text + n, (size_t)(48 - n), "%08X", word);
    }
    snprintf(text + n, (size_t)(48 - n), ":%04X", (unsigned)e->port);
}

/* The user of the socket here that is connected to ours; -1: there is none; -2: the system does not tell. */
static long user_of(const end *theirs, const end *ours)
{
    char from[48], to[48], line[512], local[48], remote[48];
    unsigned state, user;
    long found = -1;
    FILE *f = fopen(theirs->six ? "/proc/net/tcp6" : "/proc/net/tcp", "re");
    if (!f)
        return -2;
    print_end(theirs, from);
    print_end(ours, to);
    while (found < 0 && fgets(line, sizeof line, f))
        if (sscanf(line, " %*d: %47s %47s %x %*s %*s %*s %u", local, remote, &state, &user) == 4 &&
            state == TCP_ESTABLISHED && !strcmp(local, from) && !strcmp(remote, to))
            found = (long)user;
    fclose(f);
    return found;
}

static bool of_loopback(end e)
{
    return e.six ? !memcmp(e.bytes, &in6addr_loopback, 16) : e.bytes[0] == 127;
}

bool tt_socket_is_of_another_user(int fd)
{
    static atomic_flag told = ATOMIC_FLAG_INIT;
    struct sockaddr_storage here = {0}, there = {0};
    socklen_t n = sizeof here, m = sizeof there;
    if (getenv("TTRUN_COMM_SECRET") || getsockname(fd, (struct sockaddr *)&here, &n) ||
        getpeername(fd, (struct sockaddr *)&there, &m) ||
        (there.ss_family != AF_INET && there.ss_family != AF_INET6))
        return false;
    const end theirs = end_of(&there), ours = end_of(&here);
    const end their_four = as_four(theirs), our_four = as_four(ours);
    if (memcmp(theirs.bytes, ours.bytes, sizeof ours.bytes) && !of_loopback(their_four))
        return false; /* of another machine */
    long user = user_of(&their_four, &our_four);
    if (user == -1 && theirs.six && !their_four.six)
        user = user_of(&theirs, &ours);
    if (user == -2 || user == 0 || user == (long)geteuid())
        return false;
    if (user >= 0 && !atomic_flag_test_and_set(&told))
        tt_log(TT_WARN, "nodes",
               "refused a connection of user %ld of this machine: without TTRUN_COMM_SECRET only "
               "processes of user %ld and root may connect",
               user, (long)geteuid());
    return true;
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
