/* SPDX-License-Identifier: Apache-2.0 */
#include "gemm_lt.h"
#include "lib.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Products by cuBLASLt. */

enum { ALIGNMENT = 16, FIRST_SLOTS = 64 };

/* ---- the library ---- */

static tt_status blas_load(const cuda_backend *b, struct cuda_blas *s, tt_error *err)
{
    static const char *const names[] = {"libcublasLt.so.13", "libcublasLt.so.12", NULL};
    cuda_lib lib;
    TT_TRY(cuda_lib_open(b->config.libraries, "cublas", names, &lib, err));
#define BLAS_SYMBOL(result, name, parameters)                                                      \
    TT_TRY(cuda_lib_symbol(&lib, #name, &s->lt.name, err));
    CUDA_BLASLT_FUNCTIONS(BLAS_SYMBOL)
#undef BLAS_SYMBOL
    return TT_OK;
}

static tt_status blas_start(const cuda_backend *b, struct cuda_blas *s, tt_error *err)
{
    TT_TRY(blas_load(b, s, err));
    TT_TRY(cuda_blas_check(s, s->lt.cublasLtCreate(&s->handle), "cublasLtCreate", NULL, err));
    TT_TRY(cuda_blas_check(s, s->lt.cublasLtMatmulPreferenceCreate(&s->preference),
                           "cublasLtMatmulPreferenceCreate", NULL, err));
    snprintf(s->version, sizeof s->version, "cublasLt %zu, %s, sm_%d, %d SMs",
             s->lt.cublasLtGetVersion(), b->chip.name, b->chip.sm, b->chip.n_sms);
    cuda_cache_folder(b->config.cache, s->folder, sizeof s->folder);
    return TT_OK;
}

tt_status cuda_blas_open(cuda_backend *b, tt_error *err)
{
    if (b->is_target || strcmp(b->config.gemm, "own") == 0)
        return TT_OK;
    struct cuda_blas *s = calloc(1, sizeof *s);
    if (!s)
        return TT_FAIL(err, TT_ENOMEM, "no %zu bytes for cuBLASLt's plans", sizeof *s);
    pthread_mutex_init(&s->lock, NULL);
    b->blas = s;
    const tt_status status = blas_start(b, s, err);
    if (status == TT_OK)
        return TT_OK;
    cuda_blas_close(b);
    return status == TT_ENOTFOUND && strcmp(b->config.gemm, "cublaslt") != 0 ? TT_OK : status;
}

void cuda_blas_close(cuda_backend *b)
{
    struct cuda_blas *s = b->blas;
    if (!s)
        return;
    for (size_t i = 0; i < s->n_slots; i++)
        if (s->plans[i])
            cuda_blas_plan_free(s, s->plans[i]);
    if (s->preference)
        s->lt.cublasLtMatmulPreferenceDestroy(s->preference);
    if (s->handle)
        s->lt.cublasLtDestroy(s->handle);
    pthread_mutex_destroy(&s->lock);
    free(s->plans);
    free(s);
    b->blas = NULL;
}

void cuda_blas_describe(const cuda_backend *b, char *text, size_t size)
{
    if (!b->blas) {
        snprintf(text, size, "own products");
        return;
    }
    /* 130100: 13.1.0; before 12: 111103 */
    const size_t v = b->blas->lt.cublasLtGetVersion();
    snprintf(text, size, "cuBLASLt %zu.%zu.%zu", v / 10000, v / 100 % 100, v % 100);
}

/* At most what NVIDIA recommends for its newer chips, and for those before them. cuBLASLt keeps partial
 * sums there: room for 64 of each result, so that small models do not need much more than their size. */
size_t cuda_blas_workspace(const cuda_backend *b, int64_t n)
{
    const int64_t most = !b || b->chip.sm >= 90 ? 32 << 20 : 4 << 20, one = 64 * sizeof(float);
    if (!n || (b && b->config.gemm && strcmp(b->config.gemm, "own") == 0))
        return 0;
    return (size_t)(n > most / one               ? most
                    : (1 << 20) + n * one < most ? (1 << 20) + n * one
                                                 : most);
}

/* ---- the table of plans ---- */

static uint64_t kind_hash(const cuda_blas_kind *of)
{
    const unsigned char *p = (const unsigned char *)of;
    uint64_t h = 14695981039346656037u; /* FNV-1a */
    for (size_t i = 0; i < sizeof *of; i++)
        h = (h ^ p[i]) * 1099511628211u;
    return h ^ h >> 32;
}

/* The slot of this kind, or the free one where it belongs. */
static cuda_blas_plan **plan_slot(cuda_blas_plan **slots, size_t n, const cuda_blas_kind *of)
{
    size_t i = kind_hash(of) & (n - 1);
    while (slots[i] && memcmp(&slots[i]->of, of, sizeof *of) != 0)
        i = (i + 1) & (n - 1);
    return &slots[i];
}

static tt_status table_grow(struct cuda_blas *s, tt_error *err)
{
    const size_t n = s->n_slots ? 2 * s->n_slots : FIRST_SLOTS;
    cuda_blas_plan **slots = calloc(n, sizeof *slots);
    if (!slots)
        return TT_FAIL(err, TT_ENOMEM, "no %zu bytes for cuBLASLt's plans", n * sizeof *slots);
    for (size_t i = 0; i < s->n_slots; i++)
        if (s->plans[i])
            *plan_slot(slots, n, &s->plans[i]->of) = s->plans[i];
    free(s->plans);
    s->plans = slots;
    s->n_slots = n;
    return TT_OK;
}

static tt_status plan_find(struct cuda_blas *s, const cuda_blas_kind *of,
                           const cuda_blas_plan **out, tt_error *err)
{
    if (2 * (s->n_plans + 1) > s->n_slots)
        TT_TRY(table_grow(s, err));
    cuda_blas_plan **slot = plan_slot(s->plans, s->n_slots, of);
    if (!*slot) {
        TT_TRY(cuda_blas_plan_make(s, of, slot, err));
        s->n_plans++;
    }
    *out = *slot;
    return TT_OK;
}

/* ---- a product ---- */

static cuda_blas_kind kind_of(const cuda_backend *b, const cuda_product *p, size_t workspace)
{
    const bool tf32 = strcmp(b->config.f32_products, "tf32") == 0 && p->a_type == TT_F32;
    return (cuda_blas_kind){
        .m = p->m,
        .n = p->n,
        .k = p->k,
        .batch = p->batch,
        .workspace = (int64_t)workspace,
        .a_t = p->a_t,
        .b_t = p->b_t,
        .a_type = p->a_type,
        .b_type = p->b_type,
        .c_type = p->c_type,
        .compute = tf32 ? BLASLT_COMPUTE_32F_FAST_TF32 : BLASLT_COMPUTE_32F,
        .align = {(int32_t)cuda_alignment_of(p->a, ALIGNMENT),
                  (int32_t)cuda_alignment_of(p->b, ALIGNMENT),
                  (int32_t)cuda_alignment_of(p->c, ALIGNMENT)}
    };
}

tt_status cuda_blas_product(cuda_backend *b, tt_device_queue *q, const cuda_product *p,
                            void *workspace, size_t workspace_bytes, bool *done, tt_error *err)
{
    struct cuda_blas *s = b->blas;
    const cuda_blas_plan *plan = NULL;
    const float one = 1.0f, beta = p->add ? 1.0f : 0.0f;
    *done = false;
    if (p->a_type != p->b_type || p->m > INT32_MAX || p->n > INT32_MAX || p->k > INT32_MAX ||
        p->batch > INT32_MAX)
        return TT_OK;
    const cuda_blas_kind of = kind_of(b, p, workspace_bytes);
    pthread_mutex_lock(&s->lock);
    const tt_status status = plan_find(s, &of, &plan, err);
    pthread_mutex_unlock(&s->lock);
    if (status != TT_OK || !plan->usable)
        return status;
    *done = true;
    return cuda_blas_check(s,
                           s->lt.cublasLtMatmul(s->handle, plan->op, &one, p->b, plan->b, p->a,
                                                plan->a, &beta, p->c, plan->c, p->c, plan->c,
                                                &plan->algo, workspace, workspace_bytes,
                                                (cudaStream_t)(void *)q),
                           "cublasLtMatmul", &of, err);
}
