/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "launch/supervise_copies.h"
#include "train/peer.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static void close_all(int *fds, int n)
{
    for (int i = 0; i < n; i++)
        close(fds[i]);
    free(fds);
}

/* Memory for n ranks; NULL: there is none. */
static int *make_memories(int n)
{
    int *fds = calloc((size_t)n, sizeof *fds), k = 0;
    for (; fds && k < n; k++)
        if ((fds[k] = memfd_create("copies", MFD_CLOEXEC)) < 0)
            break;
    if (k == n)
        return fds;
    tt_log(TT_WARN, "supervisor", "checkpoint.peer_copy_interval: no copies are kept: %s",
           strerror(errno));
    close_all(fds, k);
    return NULL;
}

void tt_held_open(tt_held *k, int n)
{
    k->fds = make_memories(n);
    k->n = n;
}

static void end_before(tt_held *k)
{
    tt_peer_forget(k->before, k->n_before); /* ranks have them open */
    close_all(k->before, k->n_before);
    k->before = NULL;
    k->n_before = 0;
}

void tt_held_close(tt_held *k)
{
    end_before(k);
    if (k->fds)
        close_all(k->fds, k->n);
    k->fds = NULL;
}

int64_t tt_held_newest(const tt_held *k, int world)
{
    const int64_t now = k->fds ? tt_peer_newest(k->fds, world) : -1;
    return TT_MAXV(now, tt_peer_newest(k->before, k->n_before));
}

void tt_held_change_mesh(tt_held *k, int world)
{
    const int64_t step = k->fds ? tt_peer_newest(k->fds, world) : -1;
    if (!k->fds)
        return;
    if (step < 0) { /* those of the mesh before that are newer */
        tt_peer_forget(k->fds, k->n);
        return;
    }
    end_before(k);
    k->before = k->fds;
    k->n_before = world;
    for (int i = world; i < k->n; i++)
        close(k->fds[i]);
    for (int i = 0; i < world; i++)
        tt_peer_keep_step(k->before[i], step);
    if (!(k->fds = make_memories(k->n)))
        end_before(k);
}

void tt_held_tidy(tt_held *k, int world)
{
    if (k->before && k->fds && tt_peer_newest(k->fds, world) >= 0)
        end_before(k);
}

void tt_held_forget(tt_held *k)
{
    end_before(k);
    if (k->fds)
        tt_peer_forget(k->fds, k->n);
}
