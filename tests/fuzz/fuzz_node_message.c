/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "launch/nodes_link.h"
#include <string.h>
#include <sys/socket.h>

/* What arrives at node 0's port. As it is, in pieces, it is refused or waited for, since its code is wrong. As the
 * middle of a message with a right code, which anybody can make where no TTRUN_COMM_SECRET is set, it gives texts
 * that end and are UTF-8. */

#define MOST 4096

static bool ends(const char *text, size_t size)
{
    const size_t n = strnlen(text, size);
    return n < size && tt_utf8_valid(text, n) == n;
}

static void check_message(const tt_node_message *m)
{
    TT_ASSERT(m->magic == TT_NODE_MAGIC && m->what >= TT_NODE_JOIN && m->what <= TT_NODE_OVER);
    TT_ASSERT(m->status <= TT_OK && tt_status_name((tt_status)m->status)[0] == 'T');
    TT_ASSERT(ends(m->host, sizeof m->host) && ends(m->version, sizeof m->version) &&
              ends(m->digest, sizeof m->digest) && ends(m->id, sizeof m->id) &&
              ends(m->text, sizeof m->text));
}

static void as_it_is(tt_node_link *near, int fd, const uint8_t *bytes, size_t n)
{
    const size_t piece = n ? 1 + bytes[0] * 8u : 1;
    int got = 0;
    for (size_t at = 0; at < n && got == 0; at += piece) {
        const size_t k = TT_MIN(piece, n - at);
        TT_ASSERT(send(fd, bytes + at, k, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)k);
        got = tt_node_read(near);
    }
    TT_ASSERT(got <= 0 && near->n_in < sizeof near->in);
    TT_ASSERT(got < 0 || n < sizeof near->in + piece);
}

static void in_a_message(tt_node_link *near, tt_node_link *far, const uint8_t *bytes, size_t n)
{
    tt_node_message m = {.magic = TT_NODE_MAGIC, .what = TT_NODE_JOIN, .node = 1, .nodes = 2};
    const size_t at = n > 1 ? (bytes[0] + 256u * bytes[1]) % sizeof m : 0;
    if (n > 2)
        memcpy((char *)&m + at, bytes + 2, TT_MIN(n - 2, sizeof m - at));
    tt_node_send(far, m);
    const int got = tt_node_read(near);
    TT_ASSERT(got == 1 || m.magic != TT_NODE_MAGIC || m.what < TT_NODE_JOIN ||
              m.what > TT_NODE_OVER || m.n_copies < 0 || m.n_copies > TT_NODE_COPIES_MOST ||
              m.end < TT_NODE_DIED || m.end > TT_NODE_FINE || m.status > TT_OK ||
              m.status < TT_EINTERNAL);
    if (got == 1)
        check_message(&near->in);
}

extern const int fuzz_runs;
const int fuzz_runs = 5000;

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    for (int way = 0; way < 2; way++) {
        int fds[2];
        TT_ASSERT(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds));
        tt_node_link near = {.fd = fds[0]}, far = {.fd = fds[1], .far = true};
        memset(near.nonces, 7, 16);
        memset(far.nonces, 7, sizeof far.nonces);
        if (way)
            in_a_message(&near, &far, bytes, n);
        else
            as_it_is(&near, fds[1], bytes, TT_MIN(n, (size_t)MOST));
        tt_node_drop(&near);
        tt_node_drop(&far);
    }
    return 0;
}
