/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "base/pool.h"
#include <dlfcn.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <ttrun/backend.h>
#include <ttrun/ops.h>

/* How fast are the cpu backend's kernels? kernels PLUGIN.so THREADS ISA BLAS gemm|attention|rows */

static const tt_backend_vt *vt;
static void *self;
static tt_pool *pool;
static int n_threads;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static tt_tensor tensor(tt_dtype dtype, int64_t rows, int64_t cols)
{
    tt_tensor t = {
        .dtype = dtype, .n_dims = cols ? 2 : 1, .shape = {rows, cols},
                    .global = {rows, cols}
    };
    int64_t n = tt_tensor_numel(&t);
    t.data = aligned_alloc(64, ((size_t)n * 4 + 127) / 64 * 64);
    for (int64_t i = 0; i < n; i++)
        if (dtype == TT_F32)
            ((float *)t.data)[i] = (float)(rand() % 2001 - 1000) / 1000.0f;
        else
            ((int32_t *)t.data)[i] = 0;
    return t;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* Best seconds of a call: the machine may be shared. */
static double time_call(const char *op, tt_tensor *in, int n_in, tt_tensor *out, int n_out,
                        const void *attrs)
{
    const tt_kernel *k = vt->kernel(self, op);
    tt_kernel_call c = {.struct_size = sizeof c,
                        .op = op,
                        .in = in,
                        .n_in = n_in,
                        .out = out,
                        .n_out = n_out,
                        .attrs = attrs,
                        .pool = pool};
    size_t bytes = k->scratch_bytes ? k->scratch_bytes(&c, n_threads) : 0;
    c.scratch = aligned_alloc(64, (bytes + 127) / 64 * 64);
    memset(c.scratch, 0, bytes);
    double s[9], start = now();
    int n = 0;
    tt_error err;
    if (k->run(self, &c, &err) != TT_OK) {
        fprintf(stderr, "%s\n", err.text);
        exit(1);
    }
    while (n < 9 && (n < 3 || now() - start < 1.0)) {
        double t = now();
        k->run(self, &c, &err);
        s[n++] = now() - t;
    }
    qsort(s, (size_t)n, sizeof *s, compare);
    free(c.scratch);
    return s[0];
}

static void drop(tt_tensor *t, int n)
{
    for (int i = 0; i < n; i++)
        free(t[i].data);
}

static void gemm(void)
{
    static const int64_t shapes[][3] = {
        {2048, 256,  256  },
        {2048, 256,  768  },
        {4096, 512,  512  },
        {4096, 512,  1536 },
        {4096, 512,  8192 },
        {256,  768,  2304 },
        {256,  768,  50304},
        {2048, 2048, 2048 }
    };
    printf("%-18s %8s %8s %8s  GF/s\n", "M K N", "fwd", "dX", "dW");
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        int64_t m = shapes[i][0], k = shapes[i][1], n = shapes[i][2];
        tt_tensor x = tensor(TT_F32, m, k), w = tensor(TT_F32, n, k), y = tensor(TT_F32, m, n),
                  dx = tensor(TT_F32, m, k);
        tt_tensor dw = tensor(TT_F32, n, k), f[2] = {x, w}, bx[2] = {y, w}, bw[2] = {y, x};
        double flops = 2e-9 * (double)m * (double)n * (double)k;
        double a = time_call("linear", f, 2, &y, 1, NULL),
               b = time_call("linear_dx", bx, 2, &dx, 1, NULL);
        double c = time_call("linear_dw", bw, 2, &dw, 1, NULL);
        printf("%5lld %5lld %6lld %8.1f %8.1f %8.1f\n", (long long)m, (long long)k, (long long)n,
               flops / a, flops / b, flops / c);
        fflush(stdout);
        tt_tensor all[] = {x, w, y, dx, dw};
        drop(all, 5);
    }
}

static void attention_shape(int64_t b, int64_t h, int64_t kv, int64_t t, int64_t hd)
{
    int64_t n = b * t;
    tt_tensor q = tensor(TT_F32, n, h * hd), k = tensor(TT_F32, n, kv * hd),
              v = tensor(TT_F32, n, kv * hd), pos = tensor(TT_I32, n, 0);
    tt_tensor seg = tensor(TT_I32, n, 0), out = tensor(TT_F32, n, h * hd),
              lse = tensor(TT_F32, n, h), dout = tensor(TT_F32, n, h * hd);
    tt_tensor dq = tensor(TT_F32, n, h * hd), dk = tensor(TT_F32, n, kv * hd),
              dv = tensor(TT_F32, n, kv * hd);
    for (int64_t i = 0; i < n; i++) {
        ((int32_t *)pos.data)[i] = (int32_t)(i % t);
        ((int32_t *)seg.data)[i] = (int32_t)(i / t);
    }
    tt_attrs_attention at = {.head_dim = hd, .v_head_dim = hd, .scale = 1 / sqrt((double)hd)};
    tt_tensor in[] = {q, k, v, pos, seg, pos, seg}, o[] = {out, lse};
    tt_tensor bi[] = {q, k, v, out, lse, dout, pos, seg, pos, seg}, bo[] = {dq, dk, dv};
    double f = time_call("attention", in, 7, o, 2, &at),
           g = time_call("attention_bwd", bi, 10, bo, 3, &at);
    double flops = 2e-9 * (double)(t * t * hd * b * h); /* causal: half of 2 products */
    printf("B%lld H%lld/%lld T%lld hd%-4lld fwd %7.2f ms %7.1f GF/s   bwd %7.2f ms %7.1f GF/s\n",
           (long long)b, (long long)h, (long long)kv, (long long)t, (long long)hd, f * 1e3,
           flops / f, g * 1e3, 2.5 * flops / g);
    tt_tensor all[] = {q, k, v, pos, seg, out, lse, dout, dq, dk, dv};
    drop(all, 11);
}

static void attention(void)
{
    attention_shape(1, 16, 16, 2048, 16);
    attention_shape(8, 8, 8, 512, 64);
    attention_shape(8, 8, 4, 512, 64);
    attention_shape(4, 12, 12, 64, 64);
    attention_shape(4, 12, 12, 256, 64);
}

/* Bandwidth-bound kernels on [T, D]. */
static void rows(void)
{
    const int64_t t = 2048, d = 2048;
    tt_tensor x = tensor(TT_F32, t, d), y = tensor(TT_F32, t, d), z = tensor(TT_F32, t, d),
              w = tensor(TT_F32, d, 0), dw = tensor(TT_F32, d, 0);
    tt_tensor labels = tensor(TT_I32, t, 0), nll = tensor(TT_F32, t, 0), lse = tensor(TT_F32, t, 0),
              pos = tensor(TT_I32, t, 0);
    tt_attrs_norm norm = {1e-5};
    tt_attrs_rope rope = {
        .opts = {.head_dim = 64, .rotary_dim = 64, .theta = 1e4, .factor = 1}
    };
    for (int64_t i = 0; i < t; i++)
        ((int32_t *)pos.data)[i] = (int32_t)i;
    struct {
        const char *op;
        tt_tensor in[4];
        int n_in;
        tt_tensor out[3];
        int n_out;
        const void *attrs;
        double streams; /* of t * d elements */
    } list[] = {
        {"add",               {x, y},                2, {z},        1, NULL,  3},
        {"silu",              {x},                   1, {z},        1, NULL,  2},
        {"silu_bwd",          {x, y},                2, {z},        1, NULL,  3},
        {"gelu",              {x},                   1, {z},        1, NULL,  2},
        {"gelu_tanh",         {x},                   1, {z},        1, NULL,  2},
        {"rms_norm",          {x, w},                2, {z},        1, &norm, 2},
        {"rms_norm_bwd",      {x, w, y},             3, {z, dw},    2, &norm, 3},
        {"softmax",           {x},                   1, {z},        1, NULL,  2},
        {"cross_entropy",     {x, labels},           2, {nll, lse}, 2, NULL,  1},
        {"cross_entropy_bwd", {x, labels, lse, nll}, 4, {z},        1, NULL,  2},
        {"rope",              {x, pos},              2, {z},        1, &rope, 2},
        {"sum_squares",       {x},                   1, {nll},      1, NULL,  1},
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        double s = time_call(list[i].op, list[i].in, list[i].n_in, list[i].out, list[i].n_out,
                             list[i].attrs);
        printf("%-18s %8.3f ms %7.1f GB/s\n", list[i].op, s * 1e3,
               list[i].streams * (double)(t * d) * 4e-9 / s);
    }
    tt_tensor all[] = {x, y, z, w, dw, labels, nll, lse, pos};
    drop(all, 9);
}

int main(int argc, char **argv)
{
    if (argc < 6) {
        fprintf(stderr, "usage: kernels PLUGIN.so THREADS ISA own|openblas gemm|attention|rows\n");
        return 2;
    }
    void *so = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    const tt_plugin *p = so ? dlsym(so, "tt_plugin_entry") : NULL;
    if (!p) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    const char *config[2] = {argv[3], argv[4]}; /* isa, blas */
    char text[200];
    tt_error err;
    n_threads = atoi(argv[2]);
    vt = p->components[0].vtable;
    tt_backend_env env = {sizeof env, n_threads, 0, 1};
    if (vt->open(config, &env, &self, &err) != TT_OK ||
        tt_pool_new(n_threads, &pool, &err) != TT_OK) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    vt->describe(self, text, sizeof text);
    printf("%s, peak %.0f GF/s\n", text, vt->peak_flops(self, TT_F32) * 1e-9);
    if (strcmp(argv[5], "gemm") == 0)
        gemm();
    else if (strcmp(argv[5], "attention") == 0)
        attention();
    else
        rows();
    vt->close(self);
    tt_pool_free(pool);
    return 0;
}
