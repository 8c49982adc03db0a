/* SPDX-License-Identifier: Apache-2.0 */
#include "cuda.h"
#include "driver.h"
#include "program.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ttrun/log.h>

/* The backend "cuda": component, options, table of kernels. */

static const tt_option cuda_options[] = {
    TT_OPTION_MORE(cuda_config, libraries, TT_OPT_STRING, "null", 0, 0, NULL,
                   TT_OPT_NULLABLE | TT_OPT_PATH, NULL,
                   "a folder to search first for NVIDIA's libraries; if it holds a libcuda.so.1, "
                   "the only one"),
    TT_OPTION_MORE(cuda_config, cache, TT_OPT_STRING, "null", 0, 0, NULL,
                   TT_OPT_NULLABLE | TT_OPT_PATH, NULL,
                   "the folder of compiled kernels; null = $XDG_CACHE_HOME/ttrun/cubin, else "
                   "~/.cache/ttrun/cubin"),
    TT_OPTION(cuda_config, device, TT_OPT_INT, "-1", -1, 1023,
              "number of the GPU among those that the process sees; -1 = by the rank's number on "
              "its machine"),
    TT_OPTION_MORE(
        cuda_config, kernel_code, TT_OPT_ENUM, "\"auto\"", 0, 0, "auto|embedded|nvrtc", 0, NULL,
        "machine code of our kernels: embedded = what nvcc made when ttrun was built; "
        "nvrtc = compiled at first use; auto = embedded if there is some that the driver "
        "takes"),
    TT_OPTION_MORE(cuda_config, gemm, TT_OPT_ENUM, "\"auto\"", 0, 0, "auto|cublaslt|own", 0, NULL,
                   "who multiplies matrices; auto = cuBLASLt if it is found, else our own kernels"),
    TT_OPTION_MORE(cuda_config, attention, TT_OPT_ENUM, "\"auto\"", 0, 0, "auto|cudnn|own", 0, NULL,
                   "who computes attention; auto = cuDNN where it is found, can and is faster, "
                   "else our own kernels"),
    TT_OPTION(
        cuda_config, deterministic, TT_OPT_BOOL, "true", 0, 0,
        "bits repeat from run to run; false: cuDNN may sum attention's derivative in any order, "
        "which is faster and needs less memory"),
    TT_OPTION_MORE(cuda_config, f32_products, TT_OPT_ENUM, "\"f32\"", 0, 0, "f32|tf32", 0, NULL,
                   "products of f32 matrices: f32 = exact products; tf32 = 10 bits of mantissa, in "
                   "tensor cores"),
};

/* ---- kernels ---- */

static const tt_kernel *cuda_kernel_find(void *self, const char *op)
{
    static const struct {
        const tt_kernel *kernels;
        const char *files; /* NULL: supports tells */
    } families[] = {
        {cuda_kernels_extra,      "copy members find_bad"},
        {cuda_kernels_pointwise,  "interpret"            },
        {cuda_kernels_fused,      "interpret"            },
        {cuda_kernels_shape,      "copy"                 },
        {cuda_kernels_random,     "random"               },
        {cuda_kernels_norm,       "norm"                 },
        {cuda_kernels_softmax,    "softmax"              },
        {cuda_kernels_reduce,     "reduce"               },
        {cuda_kernels_rope,       "rope"                 },
        {cuda_kernels_index,      "index sort"           },
        {cuda_kernels_scan,       "scan conv"            },
        {cuda_kernels_delta_rule, "delta_rule"           },
        {cuda_kernels_attention,  NULL                   },
        {cuda_kernels_gemm,       NULL                   },
        {cuda_kernels_grouped,    NULL                   },
        {cuda_kernels_experts,    "experts sort"         },
        {cuda_kernels_dispatch,   "experts index sort"   },
        {cuda_kernels_eigenbasis, "eigenbasis"           },
        {cuda_kernels_codes,      "codes"                }
    };
    for (size_t i = 0; i < TT_COUNT(families); i++)
        for (const tt_kernel *k = families[i].kernels; k->op; k++)
            if (strcmp(k->op, op) == 0) {
                cuda_files_need(self, families[i].files);
                return k;
            }
    return NULL;
}

/* ---- open ---- */

static cuda_backend *cuda_new(const void *config)
{
    cuda_backend *b = calloc(1, sizeof *b);
    if (b && config)
        b->config = *(const cuda_config *)config;
    else if (b)
        b->config = (cuda_config){.device = -1, .deterministic = true};
    return b;
}

static void cuda_close(void *self)
{
    cuda_backend *b = self;
    cuda_dnn_close(b);
    if (b->context) {
        cuda_fused_close(b);
        cuda_blas_close(b);
        cu.cuCtxSetCurrent(NULL);
        cu.cuDevicePrimaryCtxRelease_v2(b->device);
    }
    free(b);
}

/* Which device is this rank's. */
static int cuda_device_of(const cuda_backend *b, const tt_backend_env *env)
{
    const int n = cuda_driver_device_count();
    if (b->config.device >= 0)
        return (int)b->config.device;
    if (env->local_rank == 0 && env->local_world > n)
        tt_log(TT_INFO, "backend", "%d ranks of this machine share %d GPU%s", env->local_world, n,
               n == 1 ? "" : "s");
    return env->local_rank % n;
}

static tt_status cuda_open_device(cuda_backend *b, const tt_backend_env *env, tt_error *err)
{
    TT_TRY(cuda_driver_open(b->config.libraries, err));
    b->device = cuda_device_of(b, env);
    TT_TRY(cuda_chip_here(b->device, &b->chip, err));
    CUcontext context = NULL;
    TT_TRY(cuda_check(cu.cuDevicePrimaryCtxRetain(&context, b->device), err,
                      "cuDevicePrimaryCtxRetain of device %d (%s)", b->device, b->chip.name));
    b->context = context;
    TT_TRY(cuda_device_vt.enter(b, err));
    TT_TRY(cuda_files_open(b, err));
    TT_TRY(cuda_blas_open(b, err));
    return cuda_dnn_open(b, err);
}

static tt_status cuda_open(const void *config, const tt_backend_env *env, void **self,
                           tt_error *err)
{
    cuda_backend *b = cuda_new(config);
    if (!b)
        return TT_FAIL(err, TT_ENOMEM, "backend cuda: out of memory");
    b->rank = env->rank;
    b->world = env->world;
    b->n_threads = env->n_threads;
    const tt_status s = cuda_open_device(b, env, err);
    if (s == TT_OK)
        *self = b;
    else
        cuda_close(b);
    return s;
}

static tt_status cuda_target(const void *config, const char *machine, void **out, tt_error *err)
{
    cuda_chip chip;
    const cuda_config *c = config;
    if (machine) {
        TT_TRY(cuda_chip_named(machine, &chip, err));
    } else {
        TT_TRY(cuda_driver_open(c ? c->libraries : NULL, err));
        TT_TRY(cuda_chip_here(c && c->device > 0 ? (int)c->device : 0, &chip, err));
    }
    cuda_backend *b = cuda_new(config);
    if (!b)
        return TT_FAIL(err, TT_ENOMEM, "backend cuda: out of memory");
    b->chip = chip;
    b->is_target = true;
    b->world = b->n_threads = 1;
    const tt_status s = cuda_dnn_open(b, err);
    if (s == TT_OK)
        *out = b;
    else
        cuda_close(b);
    return s;
}

static int cuda_devices(const void *config)
{
    const cuda_config *c = config;
    if (cuda_driver_open(c->libraries, NULL) != TT_OK)
        return 0;
    return c->device >= 0 ? 1 : cuda_driver_device_count();
}

/* ---- facts ---- */

static double cuda_peak_flops(void *self, tt_dtype dtype)
{
    const cuda_backend *b = self;
    if (!b)
        return 0;
    if (dtype == TT_BF16)
        return b->chip.bf16_flops;
    if (dtype != TT_F32)
        return 0;
    const bool tf32 = b->config.f32_products && strcmp(b->config.f32_products, "tf32") == 0;
    return tf32 ? b->chip.tf32_flops : b->chip.f32_flops;
}

static double cuda_peak_vector_flops(void *self)
{
    const cuda_backend *b = self;
    return b ? b->chip.f32_flops : 0;
}

static void cuda_describe(void *self, char *text, size_t size)
{
    const cuda_backend *b = self;
    char blas[80] = "", dnn[80] = "", kernels[80] = "";
    if (!b)
        snprintf(text, size, "NVIDIA GPUs");
    else if (b->is_target)
        snprintf(text, size, "%s, sm_%d, %d SMs", b->chip.name, b->chip.sm, b->chip.n_sms);
    if (!b || b->is_target)
        return;
    cuda_blas_describe(b, blas, sizeof blas);
    cuda_dnn_describe(b, dnn, sizeof dnn);
    cuda_files_describe(b, kernels, sizeof kernels);
    snprintf(text, size, "%s, sm_%d, %d SMs, driver %d.%d, %s, %s, %s", b->chip.name, b->chip.sm,
             b->chip.n_sms, cuda_driver_version() / 1000, cuda_driver_version() % 1000 / 10, blas,
             dnn, kernels);
}

typedef struct prepare_job {
    cuda_backend *b;
    tt_status status;
    tt_error err;
} prepare_job;

static void *prepare_files(void *arg)
{
    prepare_job *j = arg;
    j->status = cuda_device_vt.enter(j->b, &j->err);
    if (j->status == TT_OK)
        j->status = cuda_files_prepare(j->b, &j->err);
    return NULL;
}

/* Files and programs at a time: a few files take the longest. */
static tt_status cuda_prepare(void *self, tt_error *err)
{
    prepare_job j = {.b = self};
    pthread_t thread;
    const bool started = pthread_create(&thread, NULL, prepare_files, &j) == 0;
    const tt_status s = cuda_program_prepare(self, err);
    if (started)
        pthread_join(thread, NULL);
    else
        prepare_files(&j);
    if (s != TT_OK || j.status == TT_OK)
        return s;
    *err = j.err;
    return j.status;
}

static const tt_backend_vt cuda_vt = {
    .struct_size = sizeof(tt_backend_vt),
    .open = cuda_open,
    .close = cuda_close,
    .kernel = cuda_kernel_find,
    .host_memory = 0,
    .peak_flops = cuda_peak_flops,
    .describe = cuda_describe,
    .peak_vector_flops = cuda_peak_vector_flops,
    .device = &cuda_device_vt,
    .target = cuda_target,
    .prepare = cuda_prepare,
    .devices = cuda_devices,
};

static const tt_component components[] = {
    TT_COMPONENT(TT_KIND_BACKEND, "cuda",
                 "NVIDIA GPUs of compute capability 8.0 and newer (A100, RTX 30, and later)",
                 cuda_config, cuda_options, &cuda_vt),
};

TT_PLUGIN("cuda", "1.0", components);
