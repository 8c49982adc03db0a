/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_SERVE_TLS_H
#define TT_SERVE_TLS_H
#include "base/base.h"
#include <event2/bufferevent.h>

/* Connections of TLS 1.2 and later, by OpenSSL and libevent's bufferevents for it, which are opened only if they are
 * wanted. */
typedef struct tt_tls tt_tls;

/* cert: the server's certificate and those between it and a known one; key: its private key, both PEM.
 * Errors: no OpenSSL; a file that is not such; a key that other users may read, or not the certificate's. */
tt_status tt_tls_open(const char *cert, const char *key, tt_tls **out, tt_error *err);
void tt_tls_close(tt_tls *t); /* NULL is allowed */
/* A connection that was accepted and its socket, which it owns. NULL: no memory, and the socket is the caller's. */
struct bufferevent *tt_tls_accept(tt_tls *t, struct event_base *base, int fd);
/* Says that nothing follows. */
void tt_tls_say_end(const tt_tls *t, struct bufferevent *io);

#endif
