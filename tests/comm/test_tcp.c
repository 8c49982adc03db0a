/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
static const char carrier_name[] = "tcp";
#define OWN_TESTS cmocka_unit_test(test_battery_among_hostile_connections),
static void test_battery_among_hostile_connections(void **state);
#include "comm/started.h"
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

/* The battery over TCP, whose ranks a shell starts; four and more have a secret, so that messages carry codes. */

static bool carrier_is_here(void)
{
    return true;
}

/* A port that is ours until the next call: a socket stays bound to it, so that the kernel gives it to nobody else, and
 * listens not, so that rank 0 may. */
static int reserved_port(void)
{
    static int reserved = -1;
    const int one = 1;
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof a;
    if (reserved >= 0)
        close(reserved);
    const int fd = reserved = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one), 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &n), 0);
    return ntohs(a.sin_port);
}

static int chosen_port; /* 0: any */

static void carrier_line(char *line, size_t size, int n, const char *only, const char *self)
{
    snprintf(
        line, size,
        "i=0; while [ $i -lt %d ]; do RANK=$i WORLD_SIZE=%d MASTER_ADDR=localhost MASTER_PORT=%d "
        "TT_TEST=%s %s %s 2>&1 </dev/null & i=$((i + 1)); done; wait",
        n, n, chosen_port ? chosen_port : reserved_port(), only,
        n > 3 ? "TTRUN_COMM_SECRET=battery" : "", self);
}

/* ---- hostile connections ---- */

#define MOST_OPEN 200

/* What connection i says: random bytes, the beginning of a hello, a whole one with a wrong code, or nothing. */
static size_t hostile_bytes(int i, uint64_t *random, char out[512])
{
    static const int32_t ranks[4] = {0, 1, 3, 4711}; /* CONTROL, rank 1 of 3, a port */
    const uint64_t magic = UINT64_C(0x7474727463703034);
    for (size_t k = 0; k < 512; k++) {
        *random ^= *random << 13;
        *random ^= *random >> 7;
        *random ^= *random << 17;
        out[k] = (char)*random;
    }
    if (i % 4 != 1)
        memcpy(out, &magic, sizeof magic);
    memcpy(out + 32, ranks, sizeof ranks);
    return i % 4 == 0 ? 20 : i % 4 == 1 ? 512 : i % 4 == 2 ? 96 : 0;
}

/* Connects to the port for ever, and leaves many connections open. Its short sleeps leave cores to the ranks. */
static void attack(int port, atomic_int *n_connected)
{
    const struct sockaddr_in a = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int open[MOST_OPEN];
    uint64_t random = 88172645463325252u;
    memset(open, -1, sizeof open);
    for (int i = 0;; i = (i + 1) % 1000000) {
        char bytes[512];
        int *fd = &open[i % MOST_OPEN];
        if (*fd >= 0)
            close(*fd);
        *fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (*fd < 0 || connect(*fd, (const struct sockaddr *)&a, sizeof a)) {
            nanosleep(&(struct timespec){0, 1000000}, NULL);
            continue;
        }
        const size_t n = hostile_bytes(i, &random, bytes);
        (void)!send(*fd, bytes, n, MSG_NOSIGNAL | MSG_DONTWAIT);
        atomic_fetch_add(n_connected, 1);
        nanosleep(&(struct timespec){0, 300000}, NULL);
    }
}

static void test_battery_among_hostile_connections(void **state)
{
    (void)state;
    atomic_int *n_connected =
        mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(n_connected != MAP_FAILED);
    chosen_port = reserved_port();
    const pid_t child = fork();
    if (!child && !prctl(PR_SET_PDEATHSIG, SIGKILL)) /* also where a check fails */
        attack(chosen_port, n_connected);
    do /* mostly once: the ranks may be much quicker than the attack */
        start(3, "");
    while (atomic_load(n_connected) < 50);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    chosen_port = 0;
    munmap(n_connected, 4096);
}

int main(void)
{
    return started_main();
}
