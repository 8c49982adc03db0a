/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

/* port_tool FILE N [FROM STEP]: takes N pairs of ports, P and P + 1, for whoever started it, until that process ends; writes each P
 * as a line to the file, by a rename. With FROM: P is FROM, FROM + STEP, and so on, where these are free.
 *
 * A port is bound and nothing listens there, so the system gives it to nobody else; a program that sets SO_REUSEADDR, as ttrun
 * does, may listen there. It is bound without SO_REUSEADDR, so no other program has it at that moment. */

static int bound(int port)
{
    const int on = 1, off = 0, fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port)};
    const struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    const int own = fd < 0 ? socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0) : fd;
    if (fd >= 0)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    if (bind(own, fd < 0 ? (const struct sockaddr *)&four : (const struct sockaddr *)&six,
             fd < 0 ? sizeof four : sizeof six)) {
        close(own);
        return -1;
    }
    setsockopt(own, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    return own;
}

static int port_of(int fd)
{
    union {
        struct sockaddr any;
        struct sockaddr_in four;
        struct sockaddr_in6 six;
    } a;
    socklen_t n = sizeof a;
    if (getsockname(fd, &a.any, &n))
        return 65535;
    return ntohs(a.any.sa_family == AF_INET6 ? a.six.sin6_port : a.four.sin_port);
}

/* Takes a pair that begins at `port`, or anywhere (0); its first port, or 0. */
static int take(int port)
{
    const int a = bound(port), first = a < 0 ? 65535 : port_of(a);
    const int b = first < 65535 ? bound(first + 1) : -1;
    if (b >= 0)
        return first;
    if (a >= 0)
        close(a);
    return 0;
}

int main(int argc, char **argv)
{
    char part[4096];
    const pid_t parent = getppid();
    if (argc < 3 || prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) || getppid() != parent)
        return 2;
    const int step = argc > 4 ? atoi(argv[4]) : 0;
    int next = argc > 4 ? atoi(argv[3]) : 0;
    snprintf(part, sizeof part, "%s.part", argv[1]);
    FILE *f = fopen(part, "w");
    for (int n = atoi(argv[2]); f && n > 0 && next < 65535; next += step) {
        const int port = take(next);
        if (port)
            fprintf(f, "%d\n", port);
        n -= port > 0;
    }
    if (!f || fclose(f) || rename(part, argv[1]))
        return 1;
    for (;;)
        pause();
}
