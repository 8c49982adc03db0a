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
/* The same where the others come by this address: "localhost" and loopback addresses are listened to alone, so that no other
 * machine can connect. NULL: any. */
TT_EXPORT int tt_socket_listen_at(const char *address, int port);
/* Whether an address, as a user gives it, is of this machine alone: "localhost", 127.0.0.0/8 or ::1. */
TT_EXPORT bool tt_socket_is_loopback(const char *address);
/* Whether a connection is to be refused: TTRUN_COMM_SECRET is not set, and a process of another user of this machine, who is
 * not root, has made it. A line of the log says so once. It reads the list of the system's connections, so ask when whoever
 * has connected has said what is expected. */
TT_EXPORT bool tt_socket_is_of_another_user(int fd);
/* Waits at most wait_ms. The connection is tuned. */
TT_EXPORT int tt_socket_connect(const struct sockaddr *to, socklen_t n, int wait_ms);
/* Non-blocking, sends at once, and fails 25 s after the other machine has vanished. */
TT_EXPORT void tt_socket_tune(int fd);

#if defined(__cplusplus)
}
#endif
#endif
