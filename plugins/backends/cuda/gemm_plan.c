/* SPDX-License-Identifier: Apache-2.0 */
#include "gemm_lt.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ttrun/log.h>

/* What cuBLASLt is told of a product, and the choice of its algorithm. The library's heuristics are
 * asked once per kind of product; their answer is kept, also on disk with the compiled kernels, by
 * version of the library and chip, so that the bits of a run repeat. The heuristics are a function of
 * version, chip and product: ranks with equal chips choose alike without asking rank 0.
 *
 * The library's matrices are column-major. A row-major c[m,n] is its cᵀ [n,m], so it gets Bᵀ as first
 * and Aᵀ as second operand. */

enum { N_RESULTS = 8, TEXT = 256 };

tt_status cuda_blas_check(const struct cuda_blas *s, cublasStatus_t status, const char *function,
                          const cuda_blas_kind *of, tt_error *err)
{
    char product[TEXT] = "";
    if (status == BLASLT_SUCCESS)
        return TT_OK;
    if (of)
        snprintf(product, sizeof product, " of %s[%lld,%lld] %s[%lld,%lld], batch %lld",
                 tt_dtype_name((tt_dtype)of->a_type), (long long)of->m, (long long)of->k,
                 tt_dtype_name((tt_dtype)of->b_type), (long long)of->k, (long long)of->n,
                 (long long)of->batch);
    return TT_FAIL(err, TT_EINTERNAL, "%s%s: %s; backend.gemm own does without cuBLASLt", function,
                   product, s->lt.cublasLtGetStatusString(status));
}

/* ---- descriptors ---- */

static int blas_type(int32_t dtype)
{
    return dtype == TT_F32 ? BLASLT_R_32F : BLASLT_R_16BF;
}

/* A row-major matrix [rows,columns], which is the library's [columns,rows]. */
static tt_status layout_make(const struct cuda_blas *s, const cuda_blas_kind *of, int32_t dtype,
                             int64_t rows, int64_t columns, cublasLtMatrixLayout_t *out,
                             tt_error *err)
{
    const int32_t batch = (int32_t)of->batch;
    const int64_t stride = rows * columns;
    TT_TRY(cuda_blas_check(s,
                           s->lt.cublasLtMatrixLayoutCreate(
                               out, blas_type(dtype), (uint64_t)columns, (uint64_t)rows, columns),
                           "cublasLtMatrixLayoutCreate", of, err));
    if (batch == 1)
        return TT_OK;
    TT_TRY(cuda_blas_check(s,
                           s->lt.cublasLtMatrixLayoutSetAttribute(*out, BLASLT_LAYOUT_BATCH_COUNT,
                                                                  &batch, sizeof batch),
                           "cublasLtMatrixLayoutSetAttribute", of, err));
    return cuda_blas_check(s,
                           s->lt.cublasLtMatrixLayoutSetAttribute(
                               *out, BLASLT_LAYOUT_STRIDED_BATCH_OFFSET, &stride, sizeof stride),
                           "cublasLtMatrixLayoutSetAttribute", of, err);
}

static tt_status desc_make(const struct cuda_blas *s, cuda_blas_plan *p, tt_error *err)
{
    const int32_t first = p->of.b_t ? BLASLT_OP_T : BLASLT_OP_N,
                  second = p->of.a_t ? BLASLT_OP_T : BLASLT_OP_N;
    TT_TRY(cuda_blas_check(s, s->lt.cublasLtMatmulDescCreate(&p->op, p->of.compute, BLASLT_R_32F),
                           "cublasLtMatmulDescCreate", &p->of, err));
    TT_TRY(cuda_blas_check(
        s, s->lt.cublasLtMatmulDescSetAttribute(p->op, BLASLT_DESC_TRANSA, &first, sizeof first),
        "cublasLtMatmulDescSetAttribute", &p->of, err));
    return cuda_blas_check(
        s, s->lt.cublasLtMatmulDescSetAttribute(p->op, BLASLT_DESC_TRANSB, &second, sizeof second),
        "cublasLtMatmulDescSetAttribute", &p->of, err);
}

static tt_status plan_describe(const struct cuda_blas *s, cuda_blas_plan *p, tt_error *err)
{
    const cuda_blas_kind *of = &p->of;
    TT_TRY(desc_make(s, p, err));
    TT_TRY(layout_make(s, of, of->a_type, of->a_t ? of->k : of->m, of->a_t ? of->m : of->k, &p->a,
                       err));
    TT_TRY(layout_make(s, of, of->b_type, of->b_t ? of->n : of->k, of->b_t ? of->k : of->n, &p->b,
                       err));
    return layout_make(s, of, of->c_type, of->m, of->n, &p->c, err);
}

void cuda_blas_plan_free(const struct cuda_blas *s, cuda_blas_plan *p)
{
    if (p->op)
        s->lt.cublasLtMatmulDescDestroy(p->op);
    if (p->a)
        s->lt.cublasLtMatrixLayoutDestroy(p->a);
    if (p->b)
        s->lt.cublasLtMatrixLayoutDestroy(p->b);
    if (p->c)
        s->lt.cublasLtMatrixLayoutDestroy(p->c);
    free(p);
}

/* ---- the choice of an algorithm ---- */

static tt_status preference_set(const struct cuda_blas *s, const cuda_blas_kind *of, tt_error *err)
{
    const uint64_t workspace = (uint64_t)of->workspace;
    /* Parts of a split sum are added in f32, never in bf16 memory. */
    const uint32_t schemes = BLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    const uint32_t align[3] = {(uint32_t)of->align[0], (uint32_t)of->align[1],
                               (uint32_t)of->align[2]};
    const struct {
        int attribute;
        const void *value;
        size_t size;
    } sets[] = {
        {BLASLT_PREF_MAX_WORKSPACE_BYTES,   &workspace, sizeof workspace},
        {BLASLT_PREF_REDUCTION_SCHEME_MASK, &schemes,   sizeof schemes  },
        {BLASLT_PREF_MIN_ALIGNMENT_A_BYTES, &align[1],  sizeof *align   }, /* Bᵀ comes first */
        {BLASLT_PREF_MIN_ALIGNMENT_B_BYTES, &align[0],  sizeof *align   },
        {BLASLT_PREF_MIN_ALIGNMENT_C_BYTES, &align[2],  sizeof *align   },
        {BLASLT_PREF_MIN_ALIGNMENT_D_BYTES, &align[2],  sizeof *align   },
    };
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++)
        TT_TRY(cuda_blas_check(s,
                               s->lt.cublasLtMatmulPreferenceSetAttribute(
                                   s->preference, sets[i].attribute, sets[i].value, sets[i].size),
                               "cublasLtMatmulPreferenceSetAttribute", of, err));
    return TT_OK;
}

static tt_status plan_ask(const struct cuda_blas *s, cuda_blas_plan *p, tt_error *err)
{
    cublasLtMatmulHeuristicResult_t r[N_RESULTS];
    int n = 0;
    TT_TRY(preference_set(s, &p->of, err));
    memset(r, 0, sizeof r);
    const cublasStatus_t status = s->lt.cublasLtMatmulAlgoGetHeuristic(
        s->handle, p->op, p->b, p->a, p->c, p->c, s->preference, N_RESULTS, r, &n);
    if (status != BLASLT_SUCCESS) /* it says so, too, where it has no algorithm */
        n = 0;
    if (status != BLASLT_SUCCESS && status != BLASLT_NOT_SUPPORTED) {
        tt_error why;
        cuda_blas_check(s, status, "cublasLtMatmulAlgoGetHeuristic", &p->of, &why);
        tt_log(TT_WARN, "backend", "%s; an own kernel computes it", why.text);
    }
    for (int i = 0; i < n && !p->usable; i++)
        if (r[i].state == BLASLT_SUCCESS && r[i].workspaceSize <= (size_t)p->of.workspace) {
            p->algo = r[i].algo;
            p->usable = true;
        }
    return TT_OK;
}

/* What the cache holds of a plan. */
typedef struct pin {
    cublasLtMatmulAlgo_t algo;
} pin;

static cuda_key pin_key(const struct cuda_blas *s, const cuda_blas_kind *of)
{
    char text[TEXT];
    snprintf(text, sizeof text, "%lld %lld %lld %lld %lld %d%d %d %d %d %d %d %d %d",
             (long long)of->m, (long long)of->n, (long long)of->k, (long long)of->batch,
             (long long)of->workspace, of->a_t, of->b_t, of->a_type, of->b_type, of->c_type,
             of->compute, of->align[0], of->align[1], of->align[2]);
    return cuda_key_of((const char *const[]){s->version, text}, 2);
}

static bool pin_read(const struct cuda_blas *s, cuda_blas_plan *p)
{
    cublasLtMatmulHeuristicResult_t r = {0};
    cuda_code code = {0};
    pin kept;
    if (!cuda_cache_read(s->folder, pin_key(s, &p->of), &code))
        return false;
    const bool whole = code.bytes == sizeof kept;
    if (whole)
        memcpy(&kept, code.data, sizeof kept);
    free(code.data);
    if (!whole)
        return false;
    if (s->lt.cublasLtMatmulAlgoCheck(s->handle, p->op, p->b, p->a, p->c, p->c, &kept.algo, &r) !=
            BLASLT_SUCCESS ||
        r.workspaceSize > (size_t)p->of.workspace)
        return false;
    p->algo = kept.algo;
    p->usable = true;
    return true;
}

static void pin_write(const struct cuda_blas *s, const cuda_blas_plan *p)
{
    pin kept = {p->algo};
    const cuda_code code = {&kept, sizeof kept};
    cuda_cache_write(s->folder, pin_key(s, &p->of), &code);
}

tt_status cuda_blas_plan_make(const struct cuda_blas *s, const cuda_blas_kind *of,
                              cuda_blas_plan **out, tt_error *err)
{
    cuda_blas_plan *p = calloc(1, sizeof *p);
    if (!p)
        return TT_FAIL(err, TT_ENOMEM, "no %zu bytes for a plan of cuBLASLt", sizeof *p);
    p->of = *of;
    tt_status status = plan_describe(s, p, err);
    if (status == TT_OK && !pin_read(s, p)) {
        status = plan_ask(s, p, err);
        if (status == TT_OK && p->usable) /* else another start asks again */
            pin_write(s, p);
    }
    if (status != TT_OK) {
        cuda_blas_plan_free(s, p);
        return status;
    }
    *out = p;
    return TT_OK;
}
