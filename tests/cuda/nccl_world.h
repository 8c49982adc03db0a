/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks as threads of a child process, each with a GPU of the fake driver and the plugin nccl on the fake NCCL. The device's
 * functions are the cuda backend's own. */
#ifndef TT_TESTS_CUDA_NCCL_WORLD_H
#define TT_TESTS_CUDA_NCCL_WORLD_H
#include "comm/dist.h"
#include "comm/member_must.h"
#include "fake_rig.h"
#include <pthread.h>
#include <stdatomic.h>
#include <ttrun/backend.h>

#include "../../plugins/backends/cuda/chip.c"
#include "../../plugins/backends/cuda/device.c"
#include "../../plugins/backends/cuda/driver.c"
#include "../../plugins/backends/cuda/lib.c"
#include "../fake/queue.h"

enum { MOST = 4, ROOM = 1 << 16 };

typedef struct member {
    int rank, n, seed;
    void (*fn)(struct member *);
    tt_threads *threads;
    tt_dist dist;
    struct {
        cuda_backend *self;
        tt_device_queue *q[2];
        tt_device_event *e;
    } d;
    void *self;
    tt_comm *all;
    char *a, *b, *c, *p;
} member;

static _Atomic int n_failed, stop;
static const tt_device_vt *dvt = &cuda_device_vt;
static const tt_comm_vt *lvt;
static struct {
    int reduction; /* nccl_config of the plugin: plugins/comms/nccl/nccl.h */
    const char *libraries;
} nccl_options;
static double timeout_s; /* of the communicator from its start; 0: none */
static const char *backend_name = "cuda";
static char lib_folder[4096];

static void member_fail(member *m, int line, tt_status s, const char *text)
{
    fprintf(stderr, "line %d, rank %d: %s: %s\n", line, m->rank, tt_status_name(s), text);
    if (!atomic_fetch_add(&n_failed, 1))
        tt_dist_abort(&m->dist, "a member failed");
}
/* ---- the backend ---- */

tt_status cuda_copy(cuda_backend *b, tt_device_queue *q, void *to, const void *from, size_t n,
                    tt_error *err)
{
    (void)b;
    return n ? cuda_check(cu.cuMemcpyAsync((CUdeviceptr)to, (CUdeviceptr)from, n, (CUstream)q), err,
                          "cuMemcpyAsync")
             : TT_OK;
}

static int (*queue_add)(void *, const fake_item *);

typedef struct sum_item {
    void *out;
    const void *xs[64];
    int n_members;
    int64_t n;
    tt_dtype dtype;
    tt_reduce op;
} sum_item;
static void sum_run(void *arg)
{
    const sum_item *s = arg;
    (void)tt_reduce_members(s->out, s->xs, s->n_members, s->n, s->dtype, s->op, NULL);
}
static tt_status sum_members(void *backend, const tt_kernel_call *c, tt_error *err)
{
    (void)backend, (void)err;
    sum_item *s = calloc(1, sizeof *s);
    const fake_item item = {"reduce_members", s, NULL, NULL, sum_run, free};
    s->out = c->out[0].data;
    s->n_members = c->n_in;
    for (int i = 0; i < c->n_in; i++)
        s->xs[i] = c->in[i].data;
    s->n = tt_tensor_numel(&c->out[0]);
    s->dtype = c->out[0].dtype;
    s->op = (tt_reduce)((const tt_attrs_reduce_members *)c->attrs)->op;
    for (int i = 2; i < c->n_in; i++)
        CHECK(c->in[i].data != c->out[0].data); /* device.h: out[0] may be in[0] or in[1] */
    return queue_add(c->queue, &item) ? TT_EINTERNAL : TT_OK;
}
static const tt_kernel sum_kernel = {
    .struct_size = sizeof sum_kernel, .op = TT_OP_REDUCE_MEMBERS, .run = sum_members};

static tt_status backend_open(member *m, tt_error *err)
{
    CUcontext context = NULL;
    m->d.self = calloc(1, sizeof *m->d.self);
    TT_TRY(cuda_driver_open(lib_folder, err));
    m->d.self->device = m->rank % cuda_driver_device_count();
    m->d.self->rank = m->rank;
    TT_TRY(cuda_check(cu.cuDevicePrimaryCtxRetain(&context, m->d.self->device), err, "retain"));
    m->d.self->context = context;
    TT_TRY(dvt->enter(m->d.self, err));
    for (int i = 0; i < 2; i++)
        TT_TRY(dvt->queue_new(m->d.self, i, &m->d.q[i], err));
    return dvt->event_new(m->d.self, 0, &m->d.e, err);
}

static inline tt_status dev_sync(const void *d, int queue, tt_error *err)
{
    const __typeof__(((member *)0)->d) *dev = d;
    TT_TRY(dvt->record(dev->self, dev->e, dev->q[queue], err));
    return dvt->sync(dev->self, dev->e, err);
}

/* ---- a world ---- */

static tt_status stopped(void *user, tt_error *err)
{
    (void)user;
    return stop ? TT_FAIL(err, TT_ECOMM, "enough of it") : TT_OK;
}

static tt_status comm_open(member *m, tt_error *err)
{
    const tt_comm_env env = {.struct_size = sizeof env,
                             .rank = m->rank,
                             .world = m->n,
                             .timeout_s = timeout_s,
                             .stopped = stopped,
                             .device = dvt,
                             .backend = m->d.self,
                             .host = m->dist.vt,
                             .host_self = m->dist.self,
                             .backend_name = backend_name,
                             .reduce_members = &sum_kernel};
    return lvt->open(&nccl_options, &env, &m->self, err);
}

static void run_member(member *m)
{
    static const int ranks[MOST] = {0, 1, 2, 3};
    void *p[4] = {0};
    MUST(backend_open(m, E));
    for (int i = 0; i < 3; i++)
        MUST(dvt->alloc(m->d.self, ROOM, &p[i], E));
    MUST(dvt->alloc_pinned(m->d.self, 3 * ROOM, &p[3], E));
    m->a = p[0], m->b = p[1], m->c = p[2], m->p = p[3];
    MUST(comm_open(m, E));
    MUST(lvt->group(m->self, ranks, m->n, 7, &m->all, E));
    MUST(lvt->on(m->all, m->d.q[0], E));
    m->fn(m);
    (void)dev_sync(&m->d, 0, NULL);
    lvt->group_free(m->all);
    lvt->close(m->self, !n_failed);
    for (int i = 0; i < 3; i++)
        dvt->free(m->d.self, p[i]);
    dvt->free_pinned(m->d.self, p[3]);
    for (int i = 0; i < 2; i++)
        dvt->queue_free(m->d.self, m->d.q[i]);
    dvt->event_free(m->d.self, m->d.e);
}

static void (*body)(member *) = run_member; /* of each thread */
static void *member_main(void *arg)
{
    member *m = arg;
    tt_error err;
    if (tt_threads_join(m->threads, m->rank, &m->dist, &err) != TT_OK)
        abort();
    body(m);
    tt_dist_leave(&m->dist);
    return NULL;
}

/* In a child. */
static void world(int n, void (*fn)(member *))
{
    pthread_t threads[MOST];
    static member members[MOST];
    tt_threads *t = NULL;
    const char *build = getenv("BUILD");
    snprintf(lib_folder, sizeof lib_folder, "%s/tests/fake/lib", build ? build : "build/release");
    if (!nccl_options.libraries)
        nccl_options.libraries = lib_folder;
    void *cuda = fake_library("libcuda.so.1");
    fake_symbol(cuda, "fake_queue_add", &queue_add);
    char path[4096];
    snprintf(path, sizeof path, "%s/plugins/comms/nccl.so", build ? build : "build/release");
    void *so = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!so)
        fprintf(stderr, "%s\n", dlerror());
    CHECK(so);
    lvt = ((const tt_plugin *)dlsym(so, "tt_plugin_entry"))->components[0].vtable;
    CHECK(tt_threads_new(n, 0, &t, NULL) == TT_OK);
    for (int i = 0; i < n; i++) {
        members[i] = (member){.rank = i, .n = n, .fn = fn, .threads = t};
        CHECK(pthread_create(&threads[i], NULL, member_main, &members[i]) == 0);
    }
    for (int i = 0; i < n; i++)
        pthread_join(threads[i], NULL);
    tt_threads_free(t);
    CHECK(!n_failed);
}

#endif
