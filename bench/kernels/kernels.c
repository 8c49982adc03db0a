/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "exec/exec.h"
#include "train/bandwidth.h"
#include <dlfcn.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <ttrun/backend.h>
#include <ttrun/ops.h>

/* How fast are the cpu backend's kernels? kernels PLUGIN.so THREADS ISA BLAS [OP]: a line a kernel
 * and shape, "op shape ms GFLOP/s GB/s %-of-roofline", best of up to nine calls. The shapes are
 * those of the models of bench/train; peer.py reads the list and times the same with PyTorch. */

static const tt_backend_vt *vt;
static void *self;
static tt_pool *pool;
static int n_threads;
static double product, vector, bandwidth; /* limits, a second */
static const char *only;                  /* ops whose name begins so; NULL: all */

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

static void row(const char *op, const char *shape, double seconds, double flops, double bytes)
{
    const double peak = strncmp(op, "linear", 6) ? vector : product;
    const double least = fmax(flops / peak, bytes / bandwidth); /* seconds */
    printf("%-18s %-22s %9.3f %8.1f %8.1f %8.1f\n", op, shape, 1e3 * seconds,
           1e-9 * flops / seconds, 1e-9 * bytes / seconds, 100 * least / seconds);
    fflush(stdout);
}

static bool wanted(const char *op)
{
    return !only || !strncmp(op, only, strlen(only));
}

static void gemm_shape(int64_t m, int64_t k, int64_t n)
{
    char shape[64];
    if (!wanted("linear"))
        return;
    tt_tensor x = tensor(TT_F32, m, k), w = tensor(TT_F32, n, k), y = tensor(TT_F32, m, n),
              dx = tensor(TT_F32, m, k), dw = tensor(TT_F32, n, k);
    tt_tensor f[2] = {x, w}, bx[2] = {y, w}, bw[2] = {y, x};
    const double flops = 2.0 * (double)m * (double)n * (double)k;
    const double bytes = 4.0 * (double)(m * k + n * k + m * n);
    snprintf(shape, sizeof shape, "%lldx%lldx%lld", (long long)m, (long long)k, (long long)n);
    row("linear", shape, time_call("linear", f, 2, &y, 1, NULL), flops, bytes);
    row("linear_dx", shape, time_call("linear_dx", bx, 2, &dx, 1, NULL), flops, bytes);
    row("linear_dw", shape, time_call("linear_dw", bw, 2, &dw, 1, NULL), flops, bytes);
    tt_tensor all[] = {x, w, y, dx, dw};
    drop(all, 5);
}

static void attention_shape(int64_t b, int64_t h, int64_t kv, int64_t t, int64_t hd)
{
    int64_t n = b * t;
    char shape[64];
    if (!wanted("attention"))
        return;
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
    const double flops = 2.0 * (double)(t * t * hd * b * h); /* causal: half of 2 products */
    const double bytes = 4.0 * (double)(n * hd) * (double)(2 * h + 2 * kv);
    snprintf(shape, sizeof shape, "%lldx%lld/%lldx%lldx%lld", (long long)b, (long long)h,
             (long long)kv, (long long)t, (long long)hd);
    row("attention", shape, f, flops, bytes);
    row("attention_bwd", shape, g, 2.5 * flops, 2 * bytes);
    tt_tensor all[] = {q, k, v, pos, seg, out, lse, dout, dq, dk, dv};
    drop(all, 11);
}

/* Kernels bound by memory, on [T, D]. */
static void rows_shape(int64_t t, int64_t d)
{
    tt_tensor x = tensor(TT_F32, t, d), y = tensor(TT_F32, t, d), z = tensor(TT_F32, t, d),
              w = tensor(TT_F32, d, 0), b = tensor(TT_F32, d, 0), dw = tensor(TT_F32, d, 0),
              db = tensor(TT_F32, d, 0);
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
        {"add",               {x, y},                2, {z},         1, NULL,  3},
        {"silu",              {x},                   1, {z},         1, NULL,  2},
        {"silu_bwd",          {x, y},                2, {z},         1, NULL,  3},
        {"gelu_tanh",         {x},                   1, {z},         1, NULL,  2},
        {"rms_norm",          {x, w},                2, {z},         1, &norm, 2},
        {"rms_norm_bwd",      {x, w, y},             3, {z, dw},     2, &norm, 3},
        {"layer_norm",        {x, w, b},             3, {z},         1, &norm, 2},
        {"layer_norm_bwd",    {x, w, y},             3, {z, dw, db}, 3, &norm, 3},
        {"softmax",           {x},                   1, {z},         1, NULL,  2},
        {"cross_entropy",     {x, labels},           2, {nll, lse},  2, NULL,  1},
        {"cross_entropy_bwd", {x, labels, lse, nll}, 4, {z},         1, NULL,  2},
        {"rope",              {x, pos},              2, {z},         1, &rope, 2},
        {"sum_squares",       {x},                   1, {nll},       1, NULL,  1},
    };
    char shape[64];
    snprintf(shape, sizeof shape, "%lldx%lld", (long long)t, (long long)d);
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        if (wanted(list[i].op) && (d % 64 == 0 || strcmp(list[i].op, "rope")))
            row(list[i].op, shape,
                time_call(list[i].op, list[i].in, list[i].n_in, list[i].out, list[i].n_out,
                          list[i].attrs),
                0, list[i].streams * (double)(t * d) * 4);
    tt_tensor all[] = {x, y, z, w, b, dw, db, labels, nll, lse, pos};
    drop(all, 11);
}

static void run_all(void)
{
    static const int64_t gemm[][3] = {
        {2048, 256,  256  }, /* debugmodel: attention's, up, down, head */
        {2048, 256,  768  },
        {2048, 768,  256  },
        {2048, 256,  2048 },
        {4096, 512,  512  }, /* 33.6M */
        {4096, 512,  256  },
        {4096, 512,  1536 },
        {4096, 1536, 512  },
        {4096, 512,  8192 },
        {256,  768,  2304 }, /* GPT-2, 4 x 64 */
        {256,  768,  3072 },
        {256,  3072, 768  },
        {256,  768,  50257},
        {1024, 768,  2304 }, /* GPT-2, 4 x 256 */
        {1024, 768,  3072 },
    };
    static const int64_t attention[][5] = {
        {1, 16, 16, 2048, 16},
        {8, 8,  4,  512,  64},
        {4, 12, 12, 64,   64},
        {4, 12, 12, 256,  64}
    };
    static const int64_t rows[][2] = {
        {2048, 256 },
        {4096, 512 },
        {4096, 1536},
        {1024, 768 },
        {512,  8192},
        {256,  3072}
    };
    for (size_t i = 0; i < TT_COUNT(gemm); i++)
        gemm_shape(gemm[i][0], gemm[i][1], gemm[i][2]);
    for (size_t i = 0; i < TT_COUNT(attention); i++)
        attention_shape(attention[i][0], attention[i][1], attention[i][2], attention[i][3],
                        attention[i][4]);
    for (size_t i = 0; i < TT_COUNT(rows); i++)
        rows_shape(rows[i][0], rows[i][1]);
}

int main(int argc, char **argv)
{
    if (argc < 6) {
        fprintf(stderr, "usage: kernels PLUGIN.so THREADS ISA own|openblas fma|bf16x6 [OP]\n");
        return 2;
    }
    only = argc > 6 ? argv[6] : NULL;
    void *so = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    const tt_plugin *p = so ? dlsym(so, "tt_plugin_entry") : NULL;
    if (!p) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    const char *config[3] = {argv[3], argv[4], argv[5]}; /* isa, blas, f32_products */
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
    product = vt->peak_flops(self, TT_F32);
    vector = vt->peak_vector_flops(self);
    bandwidth = tt_stream_bandwidth(pool);
    printf("# %s: products %.0f, other arithmetic %.0f GFLOP/s, memory %.0f GB/s\n", text,
           1e-9 * product, 1e-9 * vector, 1e-9 * bandwidth);
    run_all();
    vt->close(self);
    tt_pool_free(pool);
    return 0;
}
