/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "comm/session_impl.h"
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* The thread that notices when a rank's process ends: local rank 0 watches the sockets of all
 * others, each other rank watches that of local rank 0. The thread also ends its own process when
 * the run was stopped and this rank's main thread does not notice. */

#define LOOK_MS 500

static void report_lost(tt_session *s, int i)
{
    const tt_session_rank *r = &s->m->ranks[i];
    char at[64] = "before step 1";
    tt_error e = {0};
    const uint64_t doing = atomic_load(&r->doing);
    if (doing)
        snprintf(at, sizeof at, "at %s number %llu", tt_doing_name((tt_doing)(doing & 255)),
                 (unsigned long long)(doing >> 8));
    const tt_status st =
        TT_FAIL(&e, TT_ECOMM,
                "rank %d was lost %s: its process died silently (killed, or out of memory?); "
                "start again to continue from the last checkpoint",
                (int)r->rank, at);
    pthread_mutex_lock(&s->on_lost_lock);
    if (s->on_lost)
        s->on_lost(s->on_lost_arg, &e);
    pthread_mutex_unlock(&s->on_lost_lock);
    const char *const text = e.text;
    if (s->stop && s->stop()) { /* a launcher that ends all ranks ends this one, too */
        tt_session_stop(s, text);
        const int64_t ns = tt_patience(TT_RANK_ENDING_NS);
        nanosleep(&(struct timespec){(time_t)(ns / 1000000000), (long)(ns % 1000000000)}, NULL);
    }
    if (tt_session_claim(s, st, s->lost ? "" : text, true) && s->lost)
        s->lost(text);
    tt_session_stop(s, text);
    atomic_store(&s->m->ranks[i].left, 1); /* nobody has to wait for it */
}

/* True: this socket need not be watched any longer. */
static bool check_socket(tt_session *s, int i, short events)
{
    char byte;
    if (!events)
        return false;
    if (read(s->socks[i], &byte, 1) > 0)
        return false;
    if (!atomic_load(&s->m->ranks[i].left))
        report_lost(s, i);
    return true;
}

void *tt_session_watch(void *session)
{
    tt_session *s = session;
    const int n = s->launch.local_rank ? 1 : s->launch.local_world;
    struct pollfd *f = s->polled;
    int64_t stopped_ns = 0;
    for (int i = 0; i < n; i++)
        f[i] = (struct pollfd){s->socks[i], POLLIN, 0}; /* rank 0's own is -1: poll ignores it */

    f[n] = (struct pollfd){s->wake, POLLIN, 0};
    for (;;) {
        const int ready = poll(f, (nfds_t)n + 1, LOOK_MS);
        if ((ready > 0 && f[n].revents) || atomic_load(&s->quits))
            break;
        for (int i = 0; ready > 0 && i < n; i++)
            if (f[i].fd >= 0 && check_socket(s, i, f[i].revents))
                f[i].fd = -1;
        if (atomic_load(&s->m->stopped) == TT_NOTE_NONE)
            continue;
        if (!stopped_ns)
            stopped_ns = tt_now_ns();
        if (s->overdue && tt_now_ns() - stopped_ns > tt_patience(TT_RANK_OVERDUE_NS)) {
            s->overdue(s);
            stopped_ns = INT64_MAX / 2;
        }
    }
    return NULL;
}
