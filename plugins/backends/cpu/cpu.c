/* SPDX-License-Identifier: Apache-2.0 */
#include "cpu.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ttrun/log.h>

/* The backend "cpu": component, choice of the instruction set, table of kernels. */

typedef struct config {
    const char *isa, *blas, *f32_products;
} config;

static const tt_option options[] = {
    TT_OPTION_MORE(config, isa, TT_OPT_ENUM, "\"auto\"", 0, 0, "auto|amx|avx512|avx2|generic", 0,
                   NULL, "instruction set; pin it for equal bits on different machines"),
    TT_OPTION_MORE(
        config, blas, TT_OPT_ENUM, "\"auto\"", 0, 0, "auto|own|openblas", TT_OPT_NULLABLE, NULL,
        "the library for f32 matrix products: own = our tiles, openblas = OpenBLAS if it is "
        "installed, else own with a warning; auto or null = own with AVX-512, because it is "
        "as fast, else openblas"),
    TT_OPTION_MORE(
        config, f32_products, TT_OPT_ENUM, "\"auto\"", 0, 0, "auto|fma|bf16x6", 0, NULL,
        "products of f32 matrices and attention's forward: fma = multiply-adds; bf16x6 = six "
        "products of bf16 in AMX tiles, no less exact and faster; auto = bf16x6 if there is AMX "
        "and "
        "blas is own, else fma"),
};

static const cpu_isa *find_isa(const char *name)
{
    const bool any = strcmp(name, "auto") == 0;
#if defined(__x86_64__)
    const bool wide = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    if ((any || strcmp(name, "amx") == 0) && wide && cpu_amx_open())
        return &cpu_isa_amx;
    if ((any || strcmp(name, "avx512") == 0) && wide)
        return &cpu_isa_avx512;
    if ((any || strcmp(name, "avx2") == 0) && __builtin_cpu_supports("avx2") &&
        __builtin_cpu_supports("fma"))
        return &cpu_isa_avx2;
#endif
    return any || strcmp(name, "generic") == 0 ? &cpu_isa_generic : NULL;
}

/* Should OpenBLAS multiply? If the job asks for OpenBLAS and it is missing, our own tiles multiply
 * and a warning says so. */
static bool choose_blas(const char *want, const cpu_isa *isa, bool first_rank)
{
    const bool any = !want || strcmp(want, "auto") == 0;
    const char *version;
    if (any ? isa->lanes >= 16 : strcmp(want, "openblas") != 0)
        return false;
    if (cpu_blas_open(&version))
        return true;
    if (first_rank)
        tt_log(any ? TT_INFO : TT_WARN, "backend",
               "backend.blas %s: no OpenBLAS here that several threads may call (Debian's is "
               "libopenblas0-pthread); matrices are multiplied by our own tiles",
               any ? "auto" : want);
    return false;
}

static tt_status choose_tiles(const char *want, const cpu_isa *isa, bool blas,
                              const cpu_tiles **out, tt_error *err)
{
    const bool amx = isa->bf16x6, six = strcmp(want, "bf16x6") == 0;
    if (six && !amx)
        return TT_FAIL(err, TT_EUNSUPPORTED,
                       "backend.f32_products: bf16x6 needs AMX, and this machine or backend.isa "
                       "(%s) is without; use \"auto\" or \"fma\"",
                       isa->name);
    if (six && blas)
        return TT_FAIL(err, TT_EINVAL,
                       "backend.f32_products: bf16x6 needs our own tiles, but backend.blas is "
                       "OpenBLAS; leave one of them out");
    *out = six || (strcmp(want, "auto") == 0 && amx && !blas) ? isa->bf16x6 : isa->tiles;
    return TT_OK;
}

static tt_status open_backend(const void *cfg, const tt_backend_env *env, void **self,
                              tt_error *err)
{
    const config *c = cfg;
    const char *name = c && c->isa ? c->isa : "auto";
    const cpu_isa *isa = find_isa(name);
    const cpu_tiles *tiles = NULL;
    if (!isa)
        return TT_FAIL(err, TT_EUNSUPPORTED, "backend.isa: this machine has no %s; use \"auto\"",
                       name);
    const bool blas = choose_blas(c ? c->blas : NULL, isa, !env || env->rank == 0);
    TT_TRY(choose_tiles(c && c->f32_products ? c->f32_products : "auto", isa, blas, &tiles, err));
    cpu_backend *b = calloc(1, sizeof *b);
    if (!b)
        return TT_FAIL(err, TT_ENOMEM, "backend cpu: out of memory");
    b->isa = isa;
    b->tiles = tiles;
    b->attn_tiles = tiles == isa->bf16x6 ? isa->attn_tiles : NULL;
    b->blas = blas;
    b->n_threads = env ? env->n_threads : 1;
    *self = b;
    return TT_OK;
}

static void close_backend(void *self)
{
    free(self);
}

const cpu_kernel *cpu_kernel_find(const char *op)
{
    static const cpu_kernel *const tables[] = {
        cpu_kernels_pointwise,     cpu_kernels_gemm,
        cpu_kernels_norm,          cpu_kernels_softmax,
        cpu_kernels_rope,          cpu_kernels_attention,
        cpu_kernels_attention_max, cpu_kernels_attention_merge,
        cpu_kernels_attention_bwd, cpu_kernels_index,
        cpu_kernels_shape,         cpu_kernels_reduce,
        cpu_kernels_random,        cpu_kernels_experts,
        cpu_kernels_conv,          cpu_kernels_attention_cached,
        cpu_kernels_linear_fused,  cpu_kernels_scan,
        cpu_kernels_codes,         cpu_kernels_dispatch,
        cpu_kernels_linear_heads,  cpu_kernels_eigenbasis,
        cpu_kernels_delta_rule};
    for (size_t i = 0; i < TT_COUNT(tables); i++)
        for (const cpu_kernel *k = tables[i]; k->pub.op; k++)
            if (strcmp(k->pub.op, op) == 0)
                return k;
    return NULL;
}

static const tt_kernel *find_kernel(void *self, const char *op)
{
    const cpu_kernel *k = cpu_kernel_find(op);
    (void)self;
    return k ? &k->pub : NULL;
}

/* The best of five short samples, because another process may use the core during a single one. */
static double best_peak(double (*peak)(double seconds))
{
    double best = 0;
    for (int i = 0; i < 5; i++) {
        const double sample = peak(0.001);
        best = sample > best ? sample : best;
    }
    return best;
}

/* Measured once. */
static double known_peak(cpu_backend *b, double *known, double (*peak)(double seconds))
{
    if (*known <= 0)
        *known = best_peak(peak) * b->n_threads;
    return *known;
}

/* The peak of multiply-adds. */
static double peak_vector_flops(void *self)
{
    cpu_backend *b = self;
    return b ? known_peak(b, &b->peak_vector, b->isa->tiles->peak) : 0;
}

static double peak_flops(void *self, tt_dtype dtype)
{
    cpu_backend *b = self;
    if (!b || (dtype != TT_F32 && dtype != TT_BF16 && dtype != TT_F16))
        return 0;
    if (dtype == TT_BF16 && b->isa->half->peak)
        return known_peak(b, &b->peak_half, b->isa->half->peak);
    if (b->tiles == b->isa->tiles)
        return peak_vector_flops(self);
    return known_peak(b, &b->peak_tiles, b->tiles->peak);
}

static void cpu_describe(void *self, char *text, size_t size)
{
    const cpu_backend *b = self;
    const char *version = "own";
    if (b->blas)
        cpu_blas_open(&version);
    snprintf(text, size, "%s, gemm %s%s, %d thread%s", b->isa->name, version,
             b->tiles == b->isa->bf16x6 ? " bf16x6" : "", b->n_threads,
             b->n_threads == 1 ? "" : "s");
}

static const tt_backend_vt vt = {
    .struct_size = sizeof(tt_backend_vt),
    .open = open_backend,
    .close = close_backend,
    .kernel = find_kernel,
    .host_memory = 1,
    .peak_flops = peak_flops,
    .describe = cpu_describe,
    .peak_vector_flops = peak_vector_flops,
};

static const tt_component components[] = {
    TT_COMPONENT(TT_KIND_BACKEND, "cpu", "CPU kernels for AVX-512, AVX2 and any other machine",
                 config, options, &vt),
};

TT_PLUGIN("cpu", "1.0", components);
