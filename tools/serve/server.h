/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_SERVE_SERVER_H
#define TT_SERVE_SERVER_H
#include "serve/api.h"
#include "serve/tls.h"

/* A server of one thread: connections, as many as this process may have descriptors, and between them the engine's steps. */

typedef struct tt_server_opts {
    const char *host; /* an address or a name */
    int port;         /* 0: any that is free */
    tt_tls *tls;      /* NULL: connections are plain */
    tt_api *api;
    tt_engine *engine;
    size_t most_bodies; /* bytes of all bodies that are not whole; 0: 256 MiB */
    int (*stop)(void);  /* not 0: the server ends */
    void (*ready)(void *user, const char *url); /* it listens at this address */
    void *user;
} tt_server_opts;

/* Returns when it is asked to stop; requests that are not done are dropped. */
tt_status tt_server_run(const tt_server_opts *o, tt_error *err);

#endif
