/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "train/ctl.h"
#include "base/thread.h"
#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

/* The server of `ttrun ctl`. One thread polls the socket and at most CLIENTS connections; while there
 * is none it sleeps. A client that says nothing is dropped after TT_CTL_SILENT_NS, and at once if a new one
 * needs its place. */

#define CLIENTS 16
#define FIRST_POLLED 2 /* the listener and the event */

typedef enum client_state {
    FREE,
    READING, /* its command is not complete */
    WAITING, /* for the loop to take its command */
    TAKEN,   /* by the loop, which will answer; fd -1: the client has gone */
    WRITING, /* its answer */
} client_state;

typedef struct client {
    client_state state;
    int fd;
    uint64_t order; /* which came first */
    int64_t until_ns;
    tt_str in, out;
    size_t sent;
    tt_ctl_command command;
} client;

struct tt_ctl {
    tt_ctl_opts o;
    char *folder, *converters;
    int listener, event;
    pthread_t thread;
    _Atomic bool stops, quits;
    _Atomic int n_waiting;
    pthread_mutex_t lock; /* of what follows */
    tt_ctl_numbers numbers;
    const char *state;
    client clients[CLIENTS];
    uint64_t order;
    int64_t deaf_until_ns; /* nothing is accepted before: this process has no descriptor left */
};

/* ---- one client; under the lock ---- */

static void client_free(client *c)
{
    if (c->fd >= 0)
        close(c->fd);
    if (c->in.cap > 4096)
        tt_str_free(&c->in);
    c->fd = -1;
    c->state = FREE;
}

static void client_answer(client *c, tt_status s, const char *text)
{
    tt_str_clear(&c->out);
    tt_str_printf(&c->out, "%d %s", (int)s, text);
    c->sent = 0;
    c->state = WRITING;
    c->until_ns = tt_now_ns() + tt_patience(TT_CTL_SILENT_NS);
    if (c->fd < 0)
        client_free(c);
}

static void client_write(client *c)
{
    const ssize_t n =
        send(c->fd, c->out.s + c->sent, c->out.n - c->sent, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    c->sent += n > 0 ? (size_t)n : 0;
    if (n <= 0 || c->sent == c->out.n)
        client_free(c);
}

static void client_status(tt_ctl *t, client *c)
{
    tt_ctl_opts o = t->o;
    o.converters = t->converters;
    tt_str_clear(&c->out);
    tt_str_add(&c->out, "0 ");
    tt_ctl_print_status(&o, &t->numbers, t->state, c->command.json, &c->out);
    c->sent = 0;
    c->state = WRITING;
    c->until_ns = tt_now_ns() + tt_patience(TT_CTL_SILENT_NS);
}

/* A complete line. */
static void client_obey(tt_ctl *t, client *c)
{
    tt_error e = {0};
    const tt_status s = tt_ctl_parse(tt_str_get(&c->in), &c->command, &e);
    if (s != TT_OK) {
        client_answer(c, s, e.text);
    } else if (c->command.kind == TT_CTL_STATUS) {
        client_status(t, c);
    } else if (c->command.kind == TT_CTL_STOP) {
        atomic_store(&t->stops, true);
        c->state = TAKEN;
    } else {
        c->state = WAITING;
        atomic_fetch_add(&t->n_waiting, 1);
    }
}

static void client_read(tt_ctl *t, client *c)
{
    char piece[4096];
    const ssize_t n = recv(c->fd, piece, sizeof piece, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        client_free(c);
        return;
    }
    const char *end = memchr(piece, '\n', (size_t)n), *nul = memchr(piece, 0, (size_t)n);
    tt_str_addn(&c->in, piece, end ? (size_t)(end - piece) : (size_t)n);
    if (nul && (!end || nul < end))
        client_answer(c, TT_EINVAL, "a command is text, and this one holds a byte 0");
    else if (c->in.n > TT_CTL_MOST_BYTES)
        client_answer(c, TT_EINVAL, "a command has at most 262144 bytes");
    else if (end)
        client_obey(t, c);
}

/* The other end has closed. A command that the loop has taken is done all the same. */
static void client_lost(tt_ctl *t, client *c)
{
    if (c->state == WAITING)
        atomic_fetch_sub(&t->n_waiting, 1);
    if (c->state != TAKEN) {
        client_free(c);
        return;
    }
    close(c->fd);
    c->fd = -1;
}

/* ---- the thread ---- */

/* A free place, or that of the client that has been silent for longest; NULL: all are busy. */
static client *client_place(tt_ctl *t)
{
    client *oldest = NULL;
    for (int i = 0; i < CLIENTS; i++) {
        client *c = &t->clients[i];
        if (c->state == FREE)
            return c;
        if (c->state == READING && (!oldest || c->order < oldest->order))
            oldest = c;
    }
    if (oldest)
        client_free(oldest);
    return oldest;
}

static void accept_one(tt_ctl *t)
{
    static const char other[] = "-1 this run belongs to another user", busy[] = "-13 try again";
    const int fd = accept4(t->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) {
        if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED)
            t->deaf_until_ns = tt_now_ns() + tt_patience(TT_DEAF_NS);
        return;
    }
    const bool mine = tt_ctl_same_user(fd);
    client *c = mine ? client_place(t) : NULL;
    if (!c) {
        const char *text = mine ? busy : other;
        const ssize_t sent = send(fd, text, strlen(text), MSG_DONTWAIT | MSG_NOSIGNAL);
        (void)sent; /* whoever it is may do without */
        close(fd);
        return;
    }
    c->state = READING;
    c->fd = fd;
    c->order = ++t->order;
    c->until_ns = tt_now_ns() + tt_patience(TT_CTL_SILENT_NS);
    tt_str_clear(&c->in);
    tt_str_clear(&c->out);
}

/* What to poll, and for how many milliseconds; -1: until something happens. */
static int prepare(tt_ctl *t, struct pollfd *p)
{
    const int64_t now = tt_now_ns();
    const bool deaf = now < t->deaf_until_ns;
    int64_t left = deaf ? t->deaf_until_ns - now : -1;
    bool room = false;
    for (int i = 0; i < CLIENTS; i++) {
        const client *c = &t->clients[i];
        const bool speaks = c->state == READING || c->state == WRITING;
        p[FIRST_POLLED + i] = (struct pollfd){.fd = c->state == FREE ? -1 : c->fd};
        p[FIRST_POLLED + i].events = c->state == READING   ? POLLIN
                                     : c->state == WRITING ? POLLOUT
                                                           : 0;
        room = room || c->state == FREE || c->state == READING;
        if (speaks && (left < 0 || c->until_ns - now < left))
            left = TT_MAXV(c->until_ns - now, (int64_t)0);
    }
    p[0] = (struct pollfd){.fd = room && !deaf ? t->listener : -1, .events = POLLIN};
    p[1] = (struct pollfd){.fd = t->event, .events = POLLIN};
    return left < 0 ? -1 : (int)(left / 1000000) + 1;
}

static void serve(tt_ctl *t, const struct pollfd *p)
{
    const int64_t now = tt_now_ns();
    uint64_t count;
    if (p[1].revents && read(t->event, &count, sizeof count) < 0)
        return;
    for (int i = 0; i < CLIENTS; i++) {
        client *c = &t->clients[i];
        const short got = p[FIRST_POLLED + i].fd == c->fd ? p[FIRST_POLLED + i].revents : 0;
        if (c->state == READING && got & POLLIN)
            client_read(t, c);
        else if (c->state == WRITING && got & (POLLOUT | POLLERR | POLLHUP))
            client_write(c);
        else if (c->state != FREE && got & (POLLHUP | POLLERR))
            client_lost(t, c);
        else if ((c->state == READING || c->state == WRITING) && now >= c->until_ns)
            client_free(c);
    }
    if (p[0].revents)
        accept_one(t);
}

static bool writes(const tt_ctl *t)
{
    for (int i = 0; i < CLIENTS; i++)
        if (t->clients[i].state == WRITING)
            return true;
    return false;
}

/* A plugin that closes descriptors takes the event that wakes this thread along. */
#define LOOK_MS 500u

static void *thread_main(void *arg)
{
    tt_ctl *t = arg;
    struct pollfd polled[FIRST_POLLED + CLIENTS];
    int64_t last_ns = 0; /* when the last answers must be out */
    tt_log_set_thread_rank(0);
    pthread_mutex_lock(&t->lock);
    for (;;) {
        if (atomic_load(&t->quits)) {
            last_ns = last_ns ? last_ns : tt_now_ns() + tt_patience(TT_CTL_SILENT_NS) / 10;
            if (!writes(t) || tt_now_ns() > last_ns)
                break;
        }
        const int wait = prepare(t, polled);
        pthread_mutex_unlock(&t->lock);
        const int n =
            poll(polled, TT_COUNT(polled), last_ns ? 50 : (int)TT_MIN((unsigned)wait, LOOK_MS));
        pthread_mutex_lock(&t->lock);
        if (n >= 0)
            serve(t, polled);
    }
    pthread_mutex_unlock(&t->lock);
    return NULL;
}

static void wake(tt_ctl *t)
{
    const uint64_t one = 1;
    struct stat st;
    if (fstat(t->event, &st) ||
        (st.st_mode & S_IFMT)) /* a plugin has closed it: no file of ours may get these bytes */
        return;
    const ssize_t written = write(t->event, &one, sizeof one);
    (void)written; /* it fails only where the event is set already */
}

/* ---- the loop's side ---- */

void tt_ctl_show(tt_ctl *t, const tt_ctl_numbers *n)
{
    pthread_mutex_lock(&t->lock);
    t->numbers = *n;
    pthread_mutex_unlock(&t->lock);
}

void tt_ctl_set_state(tt_ctl *t, const char *state)
{
    pthread_mutex_lock(&t->lock);
    t->state = state;
    pthread_mutex_unlock(&t->lock);
}

void tt_ctl_set_converters(tt_ctl *t, const char *converters)
{
    char *copy = strdup(converters);
    if (!copy)
        return;
    pthread_mutex_lock(&t->lock);
    free(t->converters);
    t->converters = copy;
    pthread_mutex_unlock(&t->lock);
}

bool tt_ctl_stops(const tt_ctl *t)
{
    return atomic_load(&t->stops);
}

bool tt_ctl_take(tt_ctl *t, bool saves, bool sets, tt_ctl_command *out)
{
    client *first = NULL;
    if (!atomic_load(&t->n_waiting))
        return false;
    pthread_mutex_lock(&t->lock);
    for (int i = 0; i < CLIENTS; i++) {
        client *c = &t->clients[i];
        if (c->state != WAITING || (!saves && c->command.kind == TT_CTL_SAVE) ||
            (!sets && tt_ctl_swaps(c->command.kind)))
            continue;
        if (!first || c->order < first->order)
            first = c;
    }
    if (first) {
        *out = first->command;
        out->number = first->order;
        first->state = TAKEN;
        atomic_fetch_sub(&t->n_waiting, 1);
    }
    pthread_mutex_unlock(&t->lock);
    return first != NULL;
}

static void answer(tt_ctl *t, tt_ctl_kind kind, uint64_t number, tt_status s, const char *fmt,
                   va_list ap)
{
    char text[1024];
    vsnprintf(text, sizeof text, fmt, ap);
    pthread_mutex_lock(&t->lock);
    for (int i = 0; i < CLIENTS; i++) {
        client *c = &t->clients[i];
        if (c->state == TAKEN && (number ? c->order == number : c->command.kind == kind))
            client_answer(c, s, text);
    }
    pthread_mutex_unlock(&t->lock);
    wake(t);
}

void tt_ctl_answer(tt_ctl *t, tt_ctl_kind kind, tt_status s, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    answer(t, kind, 0, s, fmt, ap);
    va_end(ap);
}

void tt_ctl_answer_one(tt_ctl *t, uint64_t number, tt_status s, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    answer(t, TT_CTL_NONE, number, s, fmt, ap);
    va_end(ap);
}

/* ---- life ---- */

/* Binds the socket with mode 0600 from its first moment. The folder is locked, so a socket that is
 * there was left by a process that was killed. */
static bool listen_in(tt_ctl *t)
{
    struct sockaddr_un a;
    int folder = -1;
    if (!tt_ctl_address(t->folder, &a, &folder))
        return false;
    t->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    unlink(a.sun_path);
    const bool bound = t->listener >= 0 && !fchmod(t->listener, 0600) &&
                       !bind(t->listener, (struct sockaddr *)&a, sizeof a) &&
                       !chmod(a.sun_path, 0600) && !listen(t->listener, 128);
    const int why = errno;
    if (folder >= 0)
        close(folder);
    errno = why;
    return bound;
}

static void ctl_free(tt_ctl *t)
{
    for (int i = 0; i < CLIENTS; i++) {
        client_free(&t->clients[i]);
        tt_str_free(&t->clients[i].in);
        tt_str_free(&t->clients[i].out);
    }
    if (t->listener >= 0)
        close(t->listener);
    if (t->event >= 0)
        close(t->event);
    pthread_mutex_destroy(&t->lock);
    free(t->folder);
    free(t->converters);
    free(t);
}

tt_ctl *tt_ctl_open(const tt_ctl_opts *o)
{
    tt_ctl *t = calloc(1, sizeof *t);
    if (!t)
        return NULL;
    t->o = *o;
    t->listener = t->event = -1;
    t->state = "starting";
    pthread_mutex_init(&t->lock, NULL);
    for (int i = 0; i < CLIENTS; i++)
        t->clients[i].fd = -1;
    t->folder = strdup(o->folder);
    t->converters = strdup(o->converters);
    t->o.folder = t->folder;
    bool open = t->folder && t->converters;
    if (open) {
        t->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        open = t->event >= 0 && listen_in(t);
    }
    if (open) {
        errno = tt_thread_start(&t->thread, thread_main, t);
        open = errno == 0;
    }
    if (open)
        return t;
    tt_log(TT_WARN, "train", "%s/" TT_CTL_SOCKET ": %s; ttrun ctl cannot reach this run", o->folder,
           strerror(errno));
    ctl_free(t);
    return NULL;
}

void tt_ctl_close(tt_ctl *t, tt_status status, const char *why, bool remove)
{
    struct sockaddr_un a;
    char ended[512];
    int folder = -1;
    if (!t)
        return;
    snprintf(ended, sizeof ended, "the run has ended before it took the command: %s", why);
    if (remove && tt_ctl_address(t->folder, &a, &folder))
        unlink(a.sun_path);
    if (folder >= 0)
        close(folder);
    pthread_mutex_lock(&t->lock);
    for (int i = 0; i < CLIENTS; i++) {
        client *c = &t->clients[i];
        const bool done = c->state == TAKEN && c->command.kind == TT_CTL_STOP &&
                          (status == TT_OK || status == TT_ESIGNAL);
        if (c->state == WAITING || c->state == TAKEN)
            client_answer(c, done ? TT_OK : TT_EIO, done ? why : ended);
    }
    pthread_mutex_unlock(&t->lock);
    atomic_store(&t->quits, true);
    wake(t);
    pthread_join(t->thread, NULL);
    ctl_free(t);
}
