/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_TESTS_FAR_TEST_H
#define TT_TESTS_FAR_TEST_H
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "plugins/far/far.h"
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* The device "far", opened as the core opens it, and driven by hand. A `dev` is one rank. */

static const tt_backend_vt *far_vt;
static const tt_device_vt *dvt;
static const tt_comm_vt *cvt;

static inline int far_test_load(void **state)
{
    (void)state;
    char path[4096];
    const char *build = getenv("BUILD");
    snprintf(path, sizeof path, "%s/tests/plugins/far/far.so", build ? build : "build/release");
    void *so = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!so) {
        fprintf(stderr, "%s\n", dlerror());
        return -1;
    }
    const tt_plugin *p = dlsym(so, "tt_plugin_entry");
    far_vt = p->components[0].vtable;
    dvt = far_vt->device;
    cvt = p->components[1].vtable;
    return 0;
}

typedef struct dev {
    void *self;
    tt_device_queue *q[3];
    tt_device_event *e[4];
} dev;

static inline dev dev_open_rank(int seed, bool races, int rank, int world)
{
    dev d = {0};
    tt_error err;
    const far_config config = {
        .seed = seed, .memory_mib = 64, .alignment = 16, .races = races, .peers = true};
    const tt_backend_env env = {
        .struct_size = sizeof env, .n_threads = 1, .rank = rank, .world = world};
    if (far_vt->open(&config, &env, &d.self, &err) != TT_OK)
        abort();
    for (int i = 0; i < 3; i++)
        if (dvt->queue_new(d.self, i == 0, &d.q[i], &err) != TT_OK)
            abort();
    for (int i = 0; i < 4; i++)
        if (dvt->event_new(d.self, 1, &d.e[i], &err) != TT_OK)
            abort();
    return d;
}

static inline dev dev_open(int seed, bool races)
{
    return dev_open_rank(seed, races, 0, 1);
}

static inline void dev_close(dev *d)
{
    for (int i = 0; i < 3; i++)
        dvt->queue_free(d->self, d->q[i]);
    for (int i = 0; i < 4; i++)
        dvt->event_free(d->self, d->e[i]);
    far_vt->close(d->self);
}

static inline float *dev_alloc(const dev *d, int64_t n)
{
    void *p = NULL;
    tt_error err;
    if (dvt->alloc(d->self, (size_t)n * sizeof(float), &p, &err) != TT_OK)
        fail_msg("%s", err.text);
    return p;
}

static inline float *dev_pinned(const dev *d, int64_t n)
{
    void *p = NULL;
    tt_error err;
    if (dvt->alloc_pinned(d->self, (size_t)n * sizeof(float), &p, &err) != TT_OK)
        fail_msg("%s", err.text);
    return p;
}

static inline tt_tensor dev_tensor(const void *data, tt_dtype t, int64_t n)
{
    return (tt_tensor){
        .data = (void *)(uintptr_t)data, .dtype = t, .n_dims = 1, .shape = {n}, .global = {n}};
}

static inline tt_status dev_call(const dev *d, int queue, const char *op, const tt_tensor *in,
                                 int n_in, tt_tensor *out, const void *attrs, tt_error *err)
{
    const tt_kernel_call c = {.struct_size = sizeof c,
                              .op = op,
                              .in = in,
                              .n_in = n_in,
                              .out = out,
                              .n_out = 1,
                              .attrs = attrs,
                              .queue = d->q[queue],
                              .backend = d->self};
    return far_vt->kernel(d->self, op)->run(d->self, &c, err);
}

/* to = a + b, n floats. */
static inline tt_status dev_add(const dev *d, int queue, float *to, const float *a, const float *b,
                                int64_t n, tt_error *err)
{
    const tt_tensor in[2] = {dev_tensor(a, TT_F32, n), dev_tensor(b, TT_F32, n)};
    tt_tensor out = dev_tensor(to, TT_F32, n);
    return dev_call(d, queue, "add", in, 2, &out, NULL, err);
}

static inline tt_status dev_copy(const dev *d, int queue, void *to, const void *from, int64_t n,
                                 tt_error *err)
{
    return dvt->copy(d->self, d->q[queue], to, from, (size_t)n * sizeof(float), err);
}

static inline tt_status dev_sync(const dev *d, int queue, tt_error *err)
{
    TT_TRY(dvt->record(d->self, d->e[3], d->q[queue], err));
    return dvt->sync(d->self, d->e[3], err);
}

#define OK(call)                                                                                   \
    do {                                                                                           \
        tt_error ok_err_ = {0}, *E = &ok_err_;                                                     \
        if ((call) != TT_OK)                                                                       \
            fail_msg("%s:%d: %s", __FILE__, __LINE__, ok_err_.text);                               \
    } while (0)
/* The call fails, and its text holds `part`. */
#define FAILS(call, status, part)                                                                  \
    do {                                                                                           \
        tt_error f_err_ = {0}, *E = &f_err_;                                                       \
        const tt_status f_s_ = (call);                                                             \
        if (f_s_ != (status) || !strstr(f_err_.text, (part)))                                      \
            fail_msg("%s:%d: %s: %s", __FILE__, __LINE__, tt_status_name(f_s_), f_err_.text);      \
    } while (0)

/* The signal that ends a child process which calls fn; 0: it returns. The child says nothing. */
static inline int dies_by(void (*fn)(void))
{
    fflush(NULL);
    const pid_t pid = fork();
    if (pid == 0) {
        if (!freopen("/dev/null", "w", stderr))
            _exit(1);
        signal(SIGSEGV, SIG_DFL);
        signal(SIGABRT, SIG_DFL);
        fn();
        _exit(0);
    }
    int status = 0;
    waitpid(pid, &status, 0);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

#endif
