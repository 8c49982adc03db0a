/* SPDX-License-Identifier: Apache-2.0 */
#include "far.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ttrun/log.h>

/* The components, the lock and the ranks. */

far_state far = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
static _Thread_local const far_rank *entered;

static const tt_option far_options[] = {
    TT_OPTION(far_config, seed, TT_OPT_INT, "1", 0, 1e9, "draws the order in which work runs"),
    TT_OPTION(far_config, memory_mib, TT_OPT_INT, "16384", 1, 1e9, "MiB that the device has"),
    TT_OPTION(far_config, alignment, TT_OPT_INT, "1", 1, 256,
              "bytes to which operands of kernels must be aligned"),
    TT_OPTION(far_config, races, TT_OPT_BOOL, "true", 0, 0,
              "refuse work that touches what unordered work touches"),
    TT_OPTION(far_config, peers, TT_OPT_BOOL, "true", 0, 0,
              "rank-threads reach each other's memory"),
    TT_OPTION_MORE(far_config, fail, TT_OPT_STRING, "null", 0, 0, NULL, TT_OPT_NULLABLE, NULL,
                   "a kernel that fails when it runs"),
    TT_OPTION(far_config, fail_at, TT_OPT_INT, "1", 1, 1e9, "which time it fails"),
};

void far_lock(void)
{
    pthread_mutex_lock(&far.lock);
}

void far_unlock(void)
{
    pthread_mutex_unlock(&far.lock);
}

void far_misuse(const char *fmt, ...)
{
    char text[900];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    fprintf(stderr, "far: %s\n", text);
    abort();
}

void *far_calloc(size_t n, size_t size)
{
    void *p = calloc(n ? n : 1, size ? size : 1);
    if (!p)
        far_misuse("no host memory for %zu bytes", n * size);
    return p;
}

uint64_t far_random(far_rank *r, uint64_t n)
{
    uint64_t x = r->random += 0x9e3779b97f4a7c15u; /* splitmix64 */
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return (x ^ x >> 31) % n;
}

tt_status far_begin(far_rank *r, const char *what, tt_error *err)
{
    if (!r || r->is_target)
        return TT_FAIL(err, TT_EINVAL, "far: %s: there is no device", what);
    if (entered != r)
        return TT_FAIL(err, TT_EINVAL, "far: %s: this thread did not enter the device of rank %d",
                       what, r->rank);
    far_lock();
    return TT_OK;
}

tt_status far_end(far_rank *r, tt_status s)
{
    r->refused |= s != TT_OK;
    far_unlock();
    return s;
}

void far_begin_or_die(far_rank *r, const char *what)
{
    tt_error e;
    if (far_begin(r, what, &e) != TT_OK)
        far_misuse("%s", e.text);
}

tt_status far_enter(void *self, tt_error *err)
{
    far_rank *r = self;
    if (!r || r->is_target)
        return TT_FAIL(err, TT_EINVAL, "far: enter: there is no device");
    entered = r;
    return TT_OK;
}

static tt_status far_open(const void *config, const tt_backend_env *env, void **self, tt_error *err)
{
    far_rank *r = calloc(1, sizeof *r);
    if (!r)
        return TT_FAIL(err, TT_ENOMEM, "far: no memory for a rank");
    r->config = *(const far_config *)config;
    r->rank = env->rank;
    r->n_threads = env->n_threads;
    r->random = (uint64_t)r->config.seed * 1000003u + (uint64_t)env->rank;
    far_lock();
    r->next = far.ranks;
    far.ranks = r;
    far_unlock();
    entered = r;
    *self = r;
    return TT_OK;
}

static void far_close(void *self)
{
    far_rank *r = self;
    if (!r->is_target) {
        far_lock();
        int n_queues = 0;
        for (int i = 0; i < FAR_QUEUES; i++)
            n_queues += r->queues[i] != NULL;
        if (n_queues || r->events || r->n_graphs)
            tt_log(TT_ERROR, "far", "rank %d closes the device with %d queues, %s and %d graphs",
                   r->rank, n_queues, r->events ? "events" : "no events", r->n_graphs);
        far_memory_drop(r);
        for (far_rank **at = &far.ranks; *at; at = &(*at)->next)
            if (*at == r) {
                *at = r->next;
                break;
            }
        far_unlock();
        if (entered == r)
            entered = NULL;
        if (n_queues)
            return; /* other ranks' collectives may still name its work */
    }
    free(r);
}

/* Tables that outlive the ranks, because programs hold kernels until their setup ends. Not where work of
 * a failed run may still name them. */
__attribute__((destructor)) static void far_unload(void)
{
    far_kernel_drop_rows();
    far_run_drop_stack();
    if (!far.n_memory) {
        free(far.memory);
        far.memory = NULL;
        far.room_memory = 0;
    }
}

static double far_peak_flops(void *self, tt_dtype dtype)
{
    (void)self, (void)dtype;
    return 0.0;
}

static void far_describe(void *self, char *text, size_t size)
{
    const far_rank *r = self;
    snprintf(text, size, "the reference's kernels behind a device's memory, seed %lld",
             r ? (long long)r->config.seed : 0LL);
}

static tt_status far_target(const void *config, const char *machine, void **out, tt_error *err)
{
    if (machine && strcmp(machine, "far") != 0)
        return TT_FAIL(err, TT_ENOTFOUND, "far knows the machine \"far\" only, not \"%s\"",
                       machine);
    far_rank *r = calloc(1, sizeof *r);
    if (!r)
        return TT_FAIL(err, TT_ENOMEM, "far: no memory for a target");
    r->config = *(const far_config *)config;
    r->is_target = true;
    *out = r;
    return TT_OK;
}

const tt_device_vt far_device_vt = {.struct_size = sizeof(tt_device_vt),
                                    .alignment = FAR_ALIGN,
                                    .alloc = far_alloc,
                                    .free = far_free,
                                    .alloc_pinned = far_alloc_pinned,
                                    .free_pinned = far_free_pinned,
                                    .memory = far_memory_left,
                                    .enter = far_enter,
                                    .queue_new = far_queue_new,
                                    .queue_free = far_queue_free,
                                    .event_new = far_event_new,
                                    .event_free = far_event_free,
                                    .record = far_record,
                                    .wait = far_wait,
                                    .sync = far_sync,
                                    .done = far_done,
                                    .seconds = far_seconds,
                                    .copy = far_copy,
                                    .fill = far_fill,
                                    .capture_begin = far_capture_begin,
                                    .capture_end = far_capture_end,
                                    .launch = far_launch,
                                    .graph_free = far_graph_free,
                                    .reaches = far_reaches};

static const tt_backend_vt far_backend_vt = {.struct_size = sizeof(tt_backend_vt),
                                             .open = far_open,
                                             .close = far_close,
                                             .kernel = far_kernel,
                                             .host_memory = 0,
                                             .peak_flops = far_peak_flops,
                                             .describe = far_describe,
                                             .device = &far_device_vt,
                                             .target = far_target};

static const tt_component components[] = {
    TT_COMPONENT(TT_KIND_BACKEND, "far", "a device for tests: late, and out of the host's reach",
                 far_config, far_options, &far_backend_vt),
    TT_COMPONENT_PLAIN(TT_KIND_COMM, "far", "collectives of rank-threads in far's memory",
                       &far_comm_vt),
};
TT_PLUGIN("far", "1.0", components);
