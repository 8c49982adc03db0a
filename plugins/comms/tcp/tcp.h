/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_PLUGIN_TCP_H
#define TT_PLUGIN_TCP_H
#include "pairwise.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <ttrun/hmac.h>

/* Shared by the files of comm "tcp". */

#define TEXT 320

typedef struct tcp_config {
    const char *address; /* NULL: MASTER_ADDR */
    int64_t port;        /* 0: MASTER_PORT */
} tcp_config;

/* What a connection is for: between every two ranks one CONTROL; between every two members of a group
 * one for collectives, and one for the messages of each direction. */
enum { CONTROL, COLLECTIVES, MESSAGES_UP, MESSAGES_DOWN };

/* How a connection begins. The rank that accepts sends 16 random bytes; the one that connects a hello with 16 of
 * its own and a code, an HMAC-SHA-256 of all this keyed by TTRUN_COMM_SECRET; the other answers with a code. */
#define NONCE 16
typedef struct hello {
    uint64_t magic, start;  /* equal on all ranks of a start */
    uint64_t group, number; /* which group, and which of those with this key */
    int32_t kind, rank, world, port;
    char host[64];
    uint8_t nonce[NONCE], code[TT_HMAC_BYTES];
} hello;

/* What a rank says on a CONTROL connection: why the run is being stopped, or nothing: it is done. */
typedef struct said {
    char text[TEXT];
    uint8_t seal[TT_HMAC_BYTES];
} said;

typedef struct pending { /* a connection whose group this rank has not asked for yet */
    int fd;
    size_t n_read; /* of the hello */
    double since;
    uint8_t nonce[NONCE];
    hello h;
    struct pending *next;
} pending;

typedef struct outbox { /* messages to one member: copies that are being sent */
    struct out {
        char *data; /* the head and the message */
        int64_t room, n, sent;
    } out[PAIR_IN_FLIGHT];
    uint64_t n_sent, n_written, n_acked, n_received;
} outbox;

typedef struct tcp_peer {
    struct sockaddr_storage address;
    char host[64];
    int fd;           /* CONTROL */
    atomic_bool left; /* it has said that it is done */
    said in;
    size_t n_in; /* bytes of it */
} tcp_peer;

typedef struct tcp_end {
    int rank, world;
    _Atomic double timeout_s;
    tt_status (*stopped)(void *user, tt_error *err);
    void *user;
    uint64_t start;
    bool coded;                           /* whether messages have codes; else all codes are 0 */
    uint64_t first_code;                  /* of no data */
    struct addrinfo *addresses, *address; /* of rank 0: all, and the one that is tried */
    bool answered; /* something took a connection of this rank, and was no rank of this start */
    int listener, wake;
    tcp_peer *peers;
    pthread_mutex_t accepting; /* guards pending and numbers */
    pending *pending;
    int64_t n_refused, tell_at; /* connections that were no rank's; a line is due at so many */
    struct numbered {
        uint64_t key, n;
    } * numbers;
    size_t n_numbers;
    pthread_mutex_t lock; /* guards why, groups, and the outboxes */
    struct tt_comm *groups;
    said why;
    atomic_int asked, told, closing;
    pthread_t thread;
    bool running;
} tcp_end;

typedef struct flow { /* of a message, one way: its data, and behind them their code */
    char *at;
    size_t left, n_code; /* bytes of both that have not moved yet */
    const char *coded;   /* code is of the data before it; NULL: no code is sent */
    uint64_t code, end;  /* end: the code as it is sent, or as it has come */
} flow;

typedef struct transfer { /* with one member */
    flow out, in;
} transfer;

struct tt_comm {
    pair p;
    tcp_end *e;
    struct tt_comm *next;
    int *fds[3]; /* by member: collectives, messages to it, messages from it */
    transfer *transfers;
    void *polled;
    outbox *boxes;
};

/* tcp.c */
double tcp_now(void);
/* wait.c */
void tcp_abort_run(void *self, const char *why);
tt_status tcp_check(tcp_end *e, tt_error *err); /* TT_ECOMM: the run is being stopped */
void *tcp_watch(void *end);
/* Hears what the other ranks say, before tcp_watch runs. */
void tcp_hear(tcp_end *e);
/* A connection with a rank has ended although bytes are due, at *since; 0: this is the first look at it. */
void tcp_ended(tcp_end *e, int rank, double *since);
/* meet.c */
tt_status tcp_listen(tcp_end *e, const char *address, int port, tt_error *err);
tt_status tcp_meet(tcp_end *e, const char *address, int port, tt_error *err);
/* Answers whoever has connected. [any-thread] */
void tcp_accept(tcp_end *e);
/* A connection with a rank; the higher rank connects, the lower one accepts. */
tt_status tcp_link(tcp_end *e, int rank, int kind, uint64_t group, uint64_t number, int *out,
                   tt_error *err);
/* messages.c */
tt_status tcp_send(tt_comm *c, int to, const void *buf, int64_t bytes, tt_error *err);
tt_status tcp_recv(tt_comm *c, int from, void *buf, int64_t bytes, tt_error *err);
bool tcp_write_box(tt_comm *c, int to); /* whether bytes are left to be written */
/* code.c */
void tcp_choose_codes(tcp_end *e);
/* The code of n bytes more; `before` is that of those before them. */
uint64_t tcp_code(const tcp_end *e, uint64_t before, const void *p, size_t n);
uint64_t tcp_code_avx2(uint64_t before, const void *p, size_t n);
/* Of what no call sends: writes a code behind n bytes, and compares it. With or without a secret. */
void tcp_seal(void *frame, size_t n);
bool tcp_is_sealed(const void *frame, size_t n);
/* What has come from a rank is not what it sent. */
void tcp_damage_text(const tcp_end *e, int rank, const char *what, char text[TEXT]);
/* TT_ECOMM: so it is with what has come from a member. */
tt_status tcp_damaged(const tt_comm *c, int member, const char *what, uint64_t number,
                      tt_error *err);
/* exchange.c */
extern const pair_transport tcp_transport;

#endif
