/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
static const char carrier_name[] = "tcp";
#include "comm/started.h"
#include <netinet/in.h>
#include <sys/socket.h>

/* The battery over TCP, whose ranks a shell starts. */

static bool carrier_is_here(void)
{
    return true;
}

/* A port that nobody listens on now. */
static int free_port(void)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof a;
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &n), 0);
    close(fd);
    return ntohs(a.sin_port);
}

static void carrier_line(char *line, size_t size, int n, const char *only, const char *self)
{
    snprintf(
        line, size,
        "i=0; while [ $i -lt %d ]; do RANK=$i WORLD_SIZE=%d MASTER_ADDR=localhost MASTER_PORT=%d "
        "TT_TEST=%s timeout -k 1 60 %s 2>&1 </dev/null & i=$((i + 1)); done; wait",
        n, n, free_port(), only, self);
}

int main(void)
{
    return started_main();
}
