/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_TESTS_CPU_HARNESS_H
#define TT_TESTS_CPU_HARNESS_H
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/pool.h"
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ttrun/backend.h>
#include <ttrun/ops.h>

/* Calls the cpu backend's kernels by name, through the plugin's descriptor. The plugin is the file
 * TT_CPU_PLUGIN, or backends/cpu.so in the folder PLUGINS (mk/run-tests.sh) or in plugins/. Every
 * call runs with 1, 2 and 4 threads and expects equal bits. Scratch is exactly as large as the
 * kernel asked for and filled with NaN, and the bytes after it must not change. */

typedef struct harness {
    const tt_backend_vt *vt;
    const tt_component *component;
    void *self[8];
    const char *isa[8];
    int n_isa;
    tt_pool *pool[3];
} harness;

static harness H;
static const int threads_of[3] = {1, 2, 4};

/* The plugin's config is three strings: isa, blas, f32_products. Each value of f32_products counts
 * as an instruction set of its own here. */
static inline int harness_open(void **state)
{
    (void)state;
    static const char *const isas[][2] = {
        {"generic", "fma"   },
        {"avx2",    "fma"   },
        {"avx512",  "fma"   },
        {"amx",     "fma"   },
        {"amx",     "bf16x6"}
    };
    const char *file = getenv("TT_CPU_PLUGIN"), *folder = getenv("PLUGINS");
    char path[4096];
    snprintf(path, sizeof path, "%s%s",
             file     ? file
             : folder ? folder
                      : "plugins",
             file ? "" : "/backends/cpu.so");
    void *so = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!so) {
        fprintf(stderr, "%s\n", dlerror());
        return -1;
    }
    const tt_plugin *p = dlsym(so, "tt_plugin_entry");
    assert_non_null(p);
    H.component = &p->components[0];
    H.vt = H.component->vtable;
    for (size_t i = 0; i < TT_COUNT(isas); i++) {
        const char *config[3] = {isas[i][0], "own", isas[i][1]};
        tt_backend_env env = {.struct_size = sizeof env, .n_threads = 2, .world = 1};
        tt_error err;
        if (H.vt->open(config, &env, &H.self[H.n_isa], &err) == TT_OK)
            H.isa[H.n_isa++] = strcmp(isas[i][1], "fma") ? isas[i][1] : isas[i][0];
    }
    for (int i = 0; i < 3; i++)
        if (tt_pool_new(threads_of[i], &H.pool[i], NULL) != TT_OK)
            return -1;
    return H.n_isa > 0 ? 0 : -1;
}

static inline int harness_close(void **state)
{
    (void)state;
    for (int i = 0; i < H.n_isa; i++)
        H.vt->close(H.self[i]);
    for (int i = 0; i < 3; i++)
        tt_pool_free(H.pool[i]);
    return 0;
}

/* ---- tensors ---- */
static inline tt_tensor tensor(tt_dtype dtype, int n_dims, const int64_t *shape)
{
    tt_tensor t = {.dtype = dtype, .n_dims = n_dims};
    for (int i = 0; i < n_dims; i++)
        t.shape[i] = t.global[i] = shape[i];
    size_t bytes = (size_t)tt_tensor_numel(&t) * tt_dtype_size(dtype);
    t.data = aligned_alloc(64, (bytes + 127) / 64 * 64);
    memset(t.data, 0xff, (bytes + 127) / 64 * 64);
    return t;
}
#define DIMS(...)                                                                                  \
    ((int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t))), (const int64_t[])                 \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }
#define F32(...) tensor(TT_F32, DIMS(__VA_ARGS__))
#define I32(...) tensor(TT_I32, DIMS(__VA_ARGS__))

static inline float *fp(const tt_tensor *t)
{
    return t->data;
}
static inline int32_t *ip(const tt_tensor *t)
{
    return t->data;
}
static inline void drop(tt_tensor *t, int n)
{
    for (int i = 0; i < n; i++)
        free(t[i].data);
}
static inline double noise(void) /* uniform in [-1, 1) */
{
    static uint64_t s = 88172645463325252u;
    s ^= s << 13;
    s ^= s >> 7;
    s ^= s << 17;
    return (double)(s >> 11) * 0x1p-52 - 1.0;
}
static inline tt_tensor filled(tt_tensor t)
{
    for (int64_t i = 0; i < tt_tensor_numel(&t); i++)
        fp(&t)[i] = (float)noise();
    return t;
}

/* ---- one call, three numbers of threads ---- */
static inline void run_once(int isa, int pool, const tt_kernel *k, tt_kernel_call *c)
{
    tt_kernel_call plan = *c;
    tt_tensor in[TT_MAX_INS], out[4];
    if (c->n_in)
        memcpy(in, c->in, (size_t)c->n_in * sizeof *in);
    memcpy(out, c->out, (size_t)c->n_out * sizeof *out);
    for (int i = 0; i < c->n_in; i++)
        in[i].data = NULL;
    for (int i = 0; i < c->n_out; i++)
        out[i].data = NULL;
    plan.in = in;
    plan.out = out;
    size_t bytes = k->scratch_bytes ? k->scratch_bytes(&plan, threads_of[pool]) : 0,
           all = (bytes + 63 + 256) / 64 * 64;
    unsigned char *scratch = aligned_alloc(64, all);
    memset(scratch, 0xff, all);
    c->scratch = scratch;
    c->scratch_bytes = bytes;
    c->pool = H.pool[pool];
    tt_error err = {0};
    assert_int_equal(k->run(H.self[isa], c, &err), TT_OK);
    for (size_t i = bytes; i < all; i++)
        assert_int_equal(scratch[i], 0xff);
    free(scratch);
}

/* Afterwards outs hold the result of one thread. keep: the kernel also reads outs (accumulate;
 * in-place is not tested here). */
static inline void run_with(int isa, const char *op, tt_tensor *in, int n_in, tt_tensor *out,
                            int n_out, const void *attrs, int accumulate)
{
    const tt_kernel *k = H.vt->kernel(H.self[isa], op);
    if (!k)
        fail_msg("no kernel %s", op);
    void *before[4], *first[4];
    size_t bytes[4];
    for (int i = 0; i < n_out; i++) {
        bytes[i] = (size_t)tt_tensor_numel(&out[i]) * tt_dtype_size(out[i].dtype);
        before[i] = malloc(bytes[i] + 1);
        first[i] = malloc(bytes[i] + 1);
        memcpy(before[i], out[i].data, bytes[i]);
    }
    for (int pool = 2; pool >= 0; pool--) {
        tt_kernel_call c = {.struct_size = sizeof c,
                            .op = op,
                            .in = in,
                            .n_in = n_in,
                            .out = out,
                            .n_out = n_out,
                            .attrs = attrs,
                            .accumulate = accumulate,
                            .seed = &(const uint64_t){7},
                            .step = &(const double){3}};
        for (int i = 0; i < n_out; i++)
            memcpy(out[i].data, before[i], bytes[i]);
        run_once(isa, pool, k, &c);
        for (int i = 0; i < n_out; i++) {
            if (pool == 2)
                memcpy(first[i], out[i].data, bytes[i]);
            else if (memcmp(first[i], out[i].data, bytes[i]) != 0)
                fail_msg("%s (%s): output %d differs between 4 and %d threads", op, H.isa[isa], i,
                         threads_of[pool]);
        }
    }
    for (int i = 0; i < n_out; i++) {
        free(before[i]);
        free(first[i]);
    }
}
static inline void run(int isa, const char *op, tt_tensor *in, int n_in, tt_tensor *out, int n_out,
                       const void *attrs)
{
    run_with(isa, op, in, n_in, out, n_out, attrs, 0);
}

/* |got - want| <= tolerance * (1 + |want|), and NaN never. */
static inline void assert_near(const char *what, int isa, const float *got, const double *want,
                               int64_t n, double tolerance)
{
    for (int64_t i = 0; i < n; i++)
        if (!(fabs((double)got[i] - want[i]) <= tolerance * (1 + fabs(want[i]))) &&
            !(isinf(want[i]) && (double)got[i] == want[i]))
            fail_msg("%s (%s): element %lld is %.9g, not %.9g", what, H.isa[isa], (long long)i,
                     (double)got[i], want[i]);
}
/* A product with few rows uses multiply-adds, so its bits are those of "amx". */
static inline bool is_bf16x6(int isa)
{
    return strcmp(H.isa[isa], "bf16x6") == 0;
}
#define EACH_ISA for (int isa = 0; isa < H.n_isa; isa++)

#endif
