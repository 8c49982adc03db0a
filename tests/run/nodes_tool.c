/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "launch/nodes_link.h"
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <ttrun/option.h>
#include <unistd.h>

/* nodes_tool PORT WAY [NAME VALUE]...: clients of node 0's port that no ttrun would be.
 *   attack     for ever: 900 connections that say random bytes, a part of a message, one with a wrong code, or nothing,
 *              some of them slowly
 *   say        a node that joins with these fields (node, nodes, least, nproc, status, version, id, text) instead of those of
 *              node 1 of 2 with one rank each; prints the text of the answer, or "closed" */

#define MOST_OPEN 900

static int plain_connect(int port)
{
    const struct sockaddr_in a = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && connect(fd, (const struct sockaddr *)&a, sizeof a) == 0)
        return fd;
    if (fd >= 0)
        close(fd);
    return -1;
}

static void fill(char *out, size_t n, uint64_t *random)
{
    for (size_t k = 0; k < n; k++) {
        *random ^= *random << 13;
        *random ^= *random >> 7;
        *random ^= *random << 17;
        out[k] = (char)*random;
    }
}

/* A join of node 1 but for its code. */
static void almost(char *out)
{
    tt_node_message m = {.magic = TT_NODE_MAGIC, .what = TT_NODE_JOIN, .node = 1, .nodes = 2};
    memcpy(out, &m, offsetof(tt_node_message, nonce));
}

static bool is_closed(int fd)
{
    char bytes[64];
    const ssize_t k = recv(fd, bytes, sizeof bytes, MSG_DONTWAIT);
    return k == 0 || (k < 0 && errno != EAGAIN);
}

static void say_something(int fd, int i, uint64_t *random)
{
    enum { LARGE = 16384 };
    static char bytes[LARGE];
    static const size_t sizes[] = {
        LARGE, sizeof(tt_node_message), sizeof(tt_node_message), sizeof(tt_node_message) / 2, 1, 0};
    fill(bytes, sizeof bytes, random);
    if (i % 2)
        almost(bytes);
    (void)!send(fd, bytes, sizes[i % TT_COUNT(sizes)], MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* All connections stay open until node 0 closes them; then there is another at once. */
static _Noreturn void attack(int port)
{
    static int open[MOST_OPEN];
    uint64_t random = 88172645463325252u;
    memset(open, -1, sizeof open);
    for (int i = 0;; i = (i + 1) % MOST_OPEN) {
        int *fd = &open[i];
        if (*fd >= 0 && is_closed(*fd)) {
            close(*fd);
            *fd = -1;
        }
        if (*fd < 0 && (*fd = plain_connect(port)) >= 0)
            say_something(*fd, i, &random);
        else if (*fd >= 0 && i % 7 == 0)
            (void)!send(*fd, "slow", 1, MSG_NOSIGNAL | MSG_DONTWAIT);
        nanosleep(&(struct timespec){0, 200000}, NULL);
    }
}

static void set_field(tt_node_message *m, const char *name, const char *value)
{
    const struct {
        const char *name;
        int32_t *at;
    } numbers[] = {
        {"node",   &m->node  },
        {"nodes",  &m->nodes },
        {"least",  &m->least },
        {"nproc",  &m->nproc },
        {"status", &m->status},
    };
    for (size_t i = 0; i < TT_COUNT(numbers); i++)
        if (!strcmp(name, numbers[i].name))
            *numbers[i].at = (int32_t)strtol(value, NULL, 0);
    if (!strcmp(name, "version"))
        snprintf(m->version, sizeof m->version, "%s", value);
    if (!strcmp(name, "id"))
        snprintf(m->id, sizeof m->id, "%s", value);
    if (!strcmp(name, "text"))
        snprintf(m->text, sizeof m->text, "%s", value);
}

static int say(int port, int n, char **fields)
{
    tt_node_message m = {
        .magic = TT_NODE_MAGIC, .what = TT_NODE_JOIN, .node = 1, .nodes = 2, .nproc = 1};
    snprintf(m.host, sizeof m.host, "hostile\x1b[31m");
    snprintf(m.version, sizeof m.version, "%s", TT_BUILD_VERSION);
    for (int i = 0; i + 1 < n; i += 2)
        set_field(&m, fields[i], fields[i + 1]);
    tt_node_link l = {.fd = -1};
    while (l.fd < 0) {
        l = tt_node_connect("127.0.0.1", port, -1);
        if (l.fd < 0) /* node 0 has not begun */
            nanosleep(&(struct timespec){0, 25000000}, NULL);
    }
    tt_node_send(&l, m);
    int got;
    while ((got = tt_node_read(&l)) == 0)
        poll(&(struct pollfd){l.fd, POLLIN, 0}, 1, -1);
    puts(got > 0 ? l.in.text : "closed");
    tt_node_drop(&l);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc < 3)
        return 2;
    const int port = atoi(argv[1]);
    if (!strcmp(argv[2], "attack"))
        attack(port);
    return say(port, argc - 3, argv + 3);
}
