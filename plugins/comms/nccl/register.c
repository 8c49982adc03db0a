/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "nccl.h"
#include <stdlib.h>
#include <ttrun/log.h>

/* The memory that buffers of calls lie in, registered once with each communicator, so that NCCL maps it
 * before step 1 and may copy from and to it without buffers of its own. Results are the same. What
 * cannot be registered is used as it is. */

typedef struct nccl_handle { /* of a space in a communicator */
    const void *base;
    void *handle; /* NULL: NCCL registers nothing (NCCL_LOCAL_REGISTER=0) */
    struct nccl_handle *next;
} nccl_handle;

/* With the world's lock held, as in all functions that read or write links' handles. */
static void link_add(nccl_world *w, nccl_link *l, const nccl_space *s)
{
    ncclResult_t r = (ncclResult_t)NCCL_SUCCESS;
    nccl_handle *h = calloc(1, sizeof *h);
    if (!h)
        return;
    h->base = s->base;
    pthread_mutex_lock(&l->lock);
    if (l->comm)
        r = nccl.ncclCommRegister(l->comm, s->base, s->bytes, &h->handle);
    const bool added = l->comm && (int)r == NCCL_SUCCESS;
    pthread_mutex_unlock(&l->lock);
    if (added) {
        h->next = l->handles;
        l->handles = h;
        return;
    }
    free(h);
    if ((int)r != NCCL_SUCCESS && !w->told)
        tt_log(TT_DEBUG, "comm",
               "NCCL does not register %.2f GiB of device memory (%s); training goes on without",
               (double)s->bytes / (1 << 30), nccl.ncclGetErrorString(r));
    w->told = w->told || (int)r != NCCL_SUCCESS;
}

static void link_remove(nccl_link *l, const void *base, bool ok)
{
    for (nccl_handle **at = &l->handles; *at;) {
        nccl_handle *h = *at;
        if (base && h->base != base) {
            at = &h->next;
            continue;
        }
        pthread_mutex_lock(&l->lock);
        if (ok && l->comm && h->handle)
            (void)nccl.ncclCommDeregister(l->comm, h->handle);
        pthread_mutex_unlock(&l->lock);
        *at = h->next;
        free(h);
    }
}

void nccl_link_registers(nccl_world *w, nccl_link *l)
{
    pthread_mutex_lock(&w->lock);
    for (const nccl_space *s = w->spaces; s && nccl.ncclCommRegister; s = s->next)
        link_add(w, l, s);
    pthread_mutex_unlock(&w->lock);
}

void nccl_link_forgets(nccl_link *l, bool ok)
{
    link_remove(l, NULL, ok);
}

/* Calls fn for each communicator whose calls have their buffers there: of groups, and of messages that
 * this rank receives. */
static void each_link(nccl_world *w, void (*fn)(nccl_world *w, nccl_link *l, const nccl_space *s),
                      const nccl_space *s)
{
    for (tt_comm *g = w->groups; g; g = g->next) {
        if (g->link)
            fn(w, g->link, s);
        for (int i = 0; i < g->n; i++)
            if (g->from[i])
                fn(w, g->from[i], s);
    }
}

static void remove_from(nccl_world *w, nccl_link *l, const nccl_space *s)
{
    (void)w;
    link_remove(l, s->base, true);
}

void nccl_use_memory(void *self, void *base, size_t bytes)
{
    nccl_world *w = self;
    nccl_space *s =
        nccl.ncclCommRegister && nccl.ncclCommDeregister && bytes ? calloc(1, sizeof *s) : NULL;
    if (!s)
        return;
    *s = (nccl_space){.base = base, .bytes = bytes};
    pthread_mutex_lock(&w->lock);
    s->next = w->spaces;
    w->spaces = s;
    each_link(w, link_add, s);
    pthread_mutex_unlock(&w->lock);
}

void nccl_forget_memory(void *self, void *base)
{
    nccl_world *w = self;
    pthread_mutex_lock(&w->lock);
    for (nccl_space **at = &w->spaces; *at; at = &(*at)->next) {
        nccl_space *s = *at;
        if (s->base != base)
            continue;
        each_link(w, remove_from, s);
        for (nccl_link *l = w->ended; l; l = l->next_ended)
            link_remove(l, base, true);
        *at = s->next;
        free(s);
        break;
    }
    pthread_mutex_unlock(&w->lock);
}
