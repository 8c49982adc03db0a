/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TTRUN_SOCKETS_H
#define TTRUN_SOCKETS_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <ttrun/status.h>

#if defined(__cplusplus)
extern "C" {
#endif

/* TCP between machines, for communicators and for ttrun itself. Descriptors are non-blocking and closed by exec;
 * -1 is a failure, which errno names. All are [any-thread]. */

/* Listens on a port of all addresses: of IPv6, which takes IPv4 as well, or of IPv4 where the kernel has no other. */
TT_EXPORT int tt_socket_listen(int port);
/* Waits at most wait_ms. The connection is tuned. */
TT_EXPORT int tt_socket_connect(const struct sockaddr *to, socklen_t n, int wait_ms);
/* Non-blocking, sends at once, and fails 25 s after the other machine has vanished. */
TT_EXPORT void tt_socket_tune(int fd);

#if defined(__cplusplus)
}
#endif
#endif
