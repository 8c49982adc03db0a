/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "serve/tls.h"
#include "plugin/library.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <ttrun/option.h>

/* ---- what is used of <openssl/ssl.h>, <openssl/err.h> and <event2/bufferevent_ssl.h> ---- */

enum { CTRL_SET_MIN_PROTO_VERSION = 123, TLS_1_2 = 0x0303, FILETYPE_PEM = 1, STATE_ACCEPTING = 2 };

typedef int passphrase_fn(char *buf, int size, int writes, void *user);

static const char *const of_ssl[] = {
    "TLS_server_method",
    "SSL_CTX_new",
    "SSL_CTX_free",
    "SSL_CTX_ctrl",
    "SSL_CTX_set_default_passwd_cb",
    "SSL_CTX_use_certificate_chain_file",
    "SSL_CTX_use_PrivateKey_file",
    "SSL_new",
    "SSL_free",
    "SSL_shutdown",
};
static const char *const of_crypto[] = {"ERR_get_error", "ERR_reason_error_string",
                                        "ERR_clear_error"};
static const char *const of_libevent[] = {
    "bufferevent_openssl_socket_new",
    "bufferevent_openssl_get_ssl",
    "bufferevent_openssl_set_allow_dirty_shutdown",
};

struct tt_tls {
    struct {
        const void *(*server_method)(void);
        void *(*new)(const void *method);
        void (*free)(void *ctx);
        long (*ctrl)(void *ctx, int what, long value, void *p);
        void (*set_passphrase)(void *ctx, passphrase_fn *fn);
        int (*use_chain)(void *ctx, const char *file);
        int (*use_key)(void *ctx, const char *file, int type);
        void *(*connection)(void *ctx);
        void (*drop)(void *ssl);
        int (*shutdown)(void *ssl);
    } ssl;
    struct {
        unsigned long (*get)(void);
        const char *(*reason)(unsigned long e);
        void (*clear)(void);
    } error;
    struct {
        struct bufferevent *(*socket)(struct event_base *base, evutil_socket_t fd, void *ssl,
                                      int state, int options);
        void *(*ssl)(struct bufferevent *io);
        void (*allow_dirty)(struct bufferevent *io, int allow);
    } ev;
    void *ctx;
};

static tt_status open_libraries(tt_tls *t, tt_error *err)
{
    void *ssl[TT_COUNT(of_ssl)], *crypto[TT_COUNT(of_crypto)], *ev[TT_COUNT(of_libevent)];
    _Static_assert(sizeof ssl == sizeof t->ssl && sizeof crypto == sizeof t->error &&
                       sizeof ev == sizeof t->ev,
                   "a function each");
    TT_TRY(tt_library_open("libssl.so.3", "libssl3", of_ssl, TT_COUNT(of_ssl), ssl, err));
    TT_TRY(
        tt_library_open("libcrypto.so.3", "libssl3", of_crypto, TT_COUNT(of_crypto), crypto, err));
    TT_TRY(tt_library_open("libevent_openssl-2.1.so.7", "libevent-openssl-2.1-7", of_libevent,
                           TT_COUNT(of_libevent), ev, err));
    memcpy(&t->ssl, ssl, sizeof ssl);
    memcpy(&t->error, crypto, sizeof crypto);
    memcpy(&t->ev, ev, sizeof ev);
    return TT_OK;
}

/* ---- certificate and key ---- */

/* A key with a passphrase is refused: a server has nobody to ask. */
static int no_passphrase(char *buf, int size, int writes, void *user)
{
    (void)buf, (void)size, (void)writes, (void)user;
    return -1;
}

static tt_status check_file(const char *option, const char *path, bool secret, tt_error *err)
{
    struct stat st;
    if (stat(path, &st) != 0)
        return TT_FAIL(err, TT_ENOTFOUND, "--%s %s: %s", option, path, strerror(errno));
    if (secret && st.st_mode & (S_IROTH | S_IWOTH))
        return TT_FAIL(err, TT_EINVAL,
                       "--%s %s: every user of this machine may read or write it (mode %03o); "
                       "chmod o= %s",
                       option, path, st.st_mode & 0777, path);
    return TT_OK;
}

static tt_status tls_fail(const tt_tls *t, const char *option, const char *path, tt_error *err)
{
    const unsigned long e = t->error.get();
    const char *reason = e ? t->error.reason(e) : NULL;
    t->error.clear();
    return TT_FAIL(err, TT_EINVAL, "--%s %s: %s; a PEM file without a passphrase is wanted", option,
                   path, reason ? reason : "not understood");
}

static tt_status load_pair(tt_tls *t, const char *cert, const char *key, tt_error *err)
{
    TT_TRY(check_file("tls-cert", cert, false, err));
    TT_TRY(check_file("tls-key", key, true, err));
    t->ssl.set_passphrase(t->ctx, no_passphrase);
    if (t->ssl.use_chain(t->ctx, cert) != 1)
        return tls_fail(t, "tls-cert", cert, err);
    if (t->ssl.use_key(t->ctx, key, FILETYPE_PEM) != 1) /* also one of another certificate */
        return tls_fail(t, "tls-key", key, err);
    return TT_OK;
}

tt_status tt_tls_open(const char *cert, const char *key, tt_tls **out, tt_error *err)
{
    tt_tls *t = calloc(1, sizeof *t);
    if (!t)
        return TT_FAIL(err, TT_ENOMEM, "out of memory for TLS");
    tt_status s = open_libraries(t, err);
    if (s == TT_OK) {
        t->ctx = t->ssl.new(t->ssl.server_method());
        s = t->ctx && t->ssl.ctrl(t->ctx, CTRL_SET_MIN_PROTO_VERSION, TLS_1_2, NULL) == 1
                ? load_pair(t, cert, key, err)
                : TT_FAIL(err, TT_EUNSUPPORTED, "OpenSSL does not offer TLS 1.2");
    }
    if (s == TT_OK)
        *out = t;
    else
        tt_tls_close(t);
    return s;
}

void tt_tls_close(tt_tls *t)
{
    if (t && t->ctx)
        t->ssl.free(t->ctx);
    free(t);
}

/* ---- connections ---- */

struct bufferevent *tt_tls_accept(tt_tls *t, struct event_base *base, int fd)
{
    void *ssl = t->ssl.connection(t->ctx);
    struct bufferevent *io =
        ssl ? t->ev.socket(base, fd, ssl, STATE_ACCEPTING, BEV_OPT_CLOSE_ON_FREE) : NULL;
    if (!io && ssl)
        t->ssl.drop(ssl);
    if (io) /* the end of a request is known by its head: a client that only closes is no attack */
        t->ev.allow_dirty(io, 1);
    return io;
}

void tt_tls_say_end(const tt_tls *t, struct bufferevent *io)
{
    t->ssl.shutdown(t->ev.ssl(io));
    t->error.clear();
}
