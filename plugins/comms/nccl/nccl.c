/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "nccl.h"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <ttrun/log.h>
#include <ttrun/patience.h>

/* The component, and a rank's life in the world. */

static const tt_option options[] = {
    TT_OPTION_MORE(
        nccl_config, reduction, TT_OPT_CHOICE, "\"ordered\"", 0, 0, "ordered|fast", 0, NULL,
        "sums: ordered = in the order of ranks, the bits of every other transport; fast = "
        "as NCCL adds, which depends on its version and the machine"),
    TT_OPTION_MORE(nccl_config, libraries, TT_OPT_STRING, "null", 0, 0, NULL,
                   TT_OPT_NULLABLE | TT_OPT_PATH, NULL,
                   "a folder to search first for libnccl.so.2"),
};

static tt_status world_check(const tt_comm_env *env, tt_error *err)
{
    if (!env->device || !env->backend_name || strcmp(env->backend_name, "cuda") != 0)
        return TT_FAIL(err, TT_EINVAL,
                       "nccl needs the memory of NVIDIA GPUs: backend.name cuda, not %s",
                       env->backend_name ? env->backend_name : "one without a device");
    if (!env->host || !env->reduce_members)
        return TT_FAIL(err, TT_EINVAL, "nccl: %s",
                       env->host ? "the backend has no kernel reduce_members"
                                 : "there is no communicator of host memory");
    return TT_OK;
}

static tt_status world_works(const void *config, const tt_comm_place *place, tt_error *err)
{
    const nccl_config *c = config;
    if (!place->backend_name || strcmp(place->backend_name, "cuda") != 0)
        return TT_FAIL(err, TT_EUNSUPPORTED, "it is for NVIDIA GPUs (backend.name cuda)");
    if (place->devices < place->ranks)
        return TT_FAIL(err, TT_EUNSUPPORTED,
                       "%d ranks of a machine share %d GPU%s, and each needs "
                       "its own",
                       place->ranks, place->devices, place->devices == 1 ? "" : "s");
    return nccl_api_open(c->libraries, err);
}

static tt_status world_open(const void *config, const tt_comm_env *env, void **self, tt_error *err)
{
    const nccl_config *c = config;
    TT_TRY(world_check(env, err));
    TT_TRY(nccl_api_open(c->libraries, err));
    nccl_world *w = calloc(1, sizeof *w);
    if (!w)
        return TT_FAIL(err, TT_ENOMEM, "nccl: no memory");
    w->env = *env;
    w->config = *c;
    w->timeout_s = env->timeout_s;
    pthread_condattr_t a;
    pthread_condattr_init(&a);
    pthread_condattr_setclock(&a, CLOCK_MONOTONIC);
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->changed, &a);
    pthread_condattr_destroy(&a);
    if (pthread_create(&w->watcher, NULL, nccl_watch, w)) {
        free(w);
        return TT_FAIL(err, TT_ENOMEM, "nccl: cannot start a thread");
    }
    if (env->rank == 0)
        tt_log(TT_INFO, "comm", "NCCL %s; %s", nccl_api_describe(),
               c->reduction == NCCL_FAST ? "its own sums" : "sums in the order of ranks");
    *self = w;
    return TT_OK;
}

/* ---- the end ---- */

/* What the thread that ends links has; the last of the two owners frees it. */
typedef struct ending {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    nccl_link *links;
    tt_comm_env env;
    bool ok, done, left;
} ending;

static void ending_free(ending *e)
{
    pthread_mutex_destroy(&e->lock);
    pthread_cond_destroy(&e->changed);
    free(e);
}

static void end_link(const ending *e, nccl_link *l)
{
    ncclResult_t state = NCCL_IN_PROGRESS;
    nccl_link_forgets(l, e->ok);
    if (!l->comm)
        return;
    if (!e->ok) {
        (void)nccl.ncclCommAbort(l->comm);
        return;
    }
    (void)nccl.ncclCommFinalize(l->comm);
    while (nccl.ncclCommGetAsyncError(l->comm, &state) == NCCL_SUCCESS &&
           (int)state == NCCL_IN_PROGRESS)
        nanosleep(&(struct timespec){0, 100000}, NULL);
    (void)nccl.ncclCommDestroy(l->comm);
}

static void *ending_main(void *arg)
{
    ending *e = arg;
    tt_error ignored;
    (void)e->env.device->enter(e->env.backend, &ignored);
    for (nccl_link *l = e->links, *next; l; l = next) {
        next = l->next_ended;
        end_link(e, l);
        pthread_mutex_destroy(&l->lock);
        free(l);
    }
    pthread_mutex_lock(&e->lock);
    e->done = true;
    const bool left = e->left;
    pthread_cond_broadcast(&e->changed);
    pthread_mutex_unlock(&e->lock);
    if (left)
        ending_free(e);
    return NULL;
}

/* This plugin is not unloaded any more: a thread that was left alone runs its code. */
static void stay_loaded(void)
{
    Dl_info here;
    if (dladdr(&nccl, &here) && here.dli_fname)
        (void)dlopen(here.dli_fname, RTLD_NOW | RTLD_NOLOAD | RTLD_NODELETE);
}

/* NCCL may wait for ranks that are gone: two seconds are enough for those that are not. */
static void end_links(nccl_world *w, bool ok)
{
    ending *e = calloc(1, sizeof *e);
    pthread_t thread;
    if (!e)
        return;
    pthread_condattr_t a;
    pthread_condattr_init(&a);
    pthread_condattr_setclock(&a, CLOCK_MONOTONIC);
    pthread_mutex_init(&e->lock, NULL);
    pthread_cond_init(&e->changed, &a);
    pthread_condattr_destroy(&a);
    e->links = w->ended;
    e->env = w->env;
    e->ok = ok;
    if (pthread_create(&thread, NULL, ending_main, e)) {
        ending_free(e);
        return;
    }
    const int64_t until = nccl_now_ns() + tt_patience(TT_NCCL_CLOSE_NS);
    const struct timespec ts = {(time_t)(until / 1000000000), (long)(until % 1000000000)};
    pthread_mutex_lock(&e->lock);
    while (!e->done && pthread_cond_timedwait(&e->changed, &e->lock, &ts) == 0)
        continue;
    const bool done = e->done;
    e->left = !done;
    pthread_mutex_unlock(&e->lock);
    if (done) { /* joined, because its last instructions are code of this plugin, which may be unloaded next */
        pthread_join(thread, NULL);
        ending_free(e);
        return;
    }
    pthread_detach(thread);
    stay_loaded();
    tt_log(TT_WARN, "comm", "NCCL did not end within 2 s; it is left alone");
}

static void world_close(void *self, int ok)
{
    nccl_world *w = self;
    pthread_mutex_lock(&w->lock);
    w->quit = true;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
    pthread_join(w->watcher, NULL);
    if (w->ended)
        end_links(w, ok && !atomic_load(&w->aborted));
    for (nccl_space *s = w->spaces, *next; s; s = next) {
        next = s->next;
        free(s);
    }
    pthread_mutex_destroy(&w->lock);
    pthread_cond_destroy(&w->changed);
    free(w);
}

static void world_abort(void *self, const char *why)
{
    char text[sizeof((tt_error *)0)->text];
    snprintf(text, sizeof text, "stopped: %s", why);
    nccl_world_abort(self, TT_ECOMM, text);
}

static void world_set_timeout(void *self, double timeout_s)
{
    nccl_world *w = self;
    atomic_store(&w->timeout_s, timeout_s);
}

static int world_concurrent(void *self)
{
    (void)self;
    return 1;
}

static tt_status group_on(tt_comm *g, tt_device_queue *queue, tt_error *err)
{
    (void)err;
    g->queue = queue;
    return TT_OK;
}

static tt_status group_poll(tt_comm *g, tt_error *err)
{
    ncclResult_t state = NCCL_SUCCESS;
    TT_TRY(nccl_world_status(g->world, err));
    pthread_mutex_lock(&g->link->lock);
    if (g->link->comm)
        (void)nccl.ncclCommGetAsyncError(g->link->comm, &state);
    pthread_mutex_unlock(&g->link->lock);
    if ((int)state == NCCL_SUCCESS || (int)state == NCCL_IN_PROGRESS)
        return TT_OK;
    return nccl_error(g, g->link, state, "a call", err);
}

static const tt_comm_vt vt = {.struct_size = sizeof(tt_comm_vt),
                              .group = nccl_group,
                              .group_free = nccl_group_free,
                              .all_gather = nccl_all_gather,
                              .reduce_scatter = nccl_reduce_scatter,
                              .all_reduce = nccl_all_reduce,
                              .all_to_all = nccl_all_to_all,
                              .send = nccl_send,
                              .recv = nccl_recv,
                              .barrier = nccl_barrier,
                              .abort = world_abort,
                              .open = world_open,
                              .close = world_close,
                              .set_timeout = world_set_timeout,
                              .concurrent = world_concurrent,
                              .device_memory = 1,
                              .on = group_on,
                              .poll = group_poll,
                              .works = world_works,
                              .scratch_bytes = nccl_scratch_bytes,
                              .use_memory = nccl_use_memory,
                              .forget_memory = nccl_forget_memory};

static const tt_component components[] = {
    TT_COMPONENT(TT_KIND_COMM, "nccl", "NCCL between GPUs, one per rank", nccl_config, options,
                 &vt),
};
TT_PLUGIN("nccl", "1.0", components);
