/* SPDX-License-Identifier: Apache-2.0 */
/* A libcublasLt.so.13 for the fake driver: products by plain loops with f32 sums, rounded once. It checks what it is
 * given, says what is wrong on stderr and aborts: descriptors, types, leading dims,
 * addresses (device memory, of the stream's device, aligned as the heuristics were told), the workspace, and that an
 * algorithm is used for the product that it was chosen for. Its heuristics have no algorithm where an address is not
 * aligned to 16 bytes, and its algorithms write NaN to the workspace that they ask for. */
#include "libcublasLt.h"
#include "queue.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

__attribute__((format(printf, 2, 3))) static status wrong(status s, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fprintf(stderr, "fake cuBLASLt: ");
    vfprintf(stderr, format, args);
    fprintf(stderr, "\n");
    va_end(args);
    if (s == INVALID_VALUE)
        abort();
    return s;
}

/* ---- descriptors ---- */

#pragma GCC visibility push(default)
extern "C" {
size_t cublasLtGetVersion(void)
{
    return VERSION;
}
const char *cublasLtGetStatusString(status s)
{
    return s == OK ? "success" : s == INVALID_VALUE ? "invalid value" : "not supported";
}
status cublasLtCreate(void **handle)
{
    if (const int injected = fake_injected("cublasLtCreate"))
        return injected;
    *handle = new uint64_t(MAGIC);
    return OK;
}
status cublasLtDestroy(void *handle)
{
    delete (uint64_t *)handle;
    return OK;
}
status cublasLtMatmulDescCreate(desc **out, int compute, int scale)
{
    if (scale != R_32F || (compute != COMPUTE_32F && compute != COMPUTE_32F_FAST_TF32))
        return wrong(INVALID_VALUE, "compute type %d with scale type %d", compute, scale);
    *out = new desc{compute, {0, 0}};
    return OK;
}
status cublasLtMatmulDescDestroy(desc *d)
{
    delete d;
    return OK;
}
status cublasLtMatmulDescSetAttribute(desc *d, int attribute, const void *value, size_t size)
{
    int32_t v;
    if (size != sizeof v || attribute < 3 || attribute > 4)
        return wrong(INVALID_VALUE, "attribute %d of %zu bytes of a product", attribute, size);
    memcpy(&v, value, size);
    if (v != 0 && v != 1)
        return wrong(INVALID_VALUE, "operation %d", v);
    d->transposed[attribute - 3] = v;
    return OK;
}
status cublasLtMatrixLayoutCreate(layout **out, int type, uint64_t rows, uint64_t columns, int64_t ld)
{
    if ((type != R_32F && type != R_16BF) || rows < 1 || columns < 1 || rows > INT32_MAX || columns > INT32_MAX ||
        ld < (int64_t)rows)
        return wrong(INVALID_VALUE, "a matrix of type %d, %llu rows, %llu columns, leading dim %lld", type,
                     (unsigned long long)rows, (unsigned long long)columns, (long long)ld);
    *out = new layout{type, (int64_t)rows, (int64_t)columns, ld, 0, 1};
    return OK;
}
status cublasLtMatrixLayoutDestroy(layout *l)
{
    delete l;
    return OK;
}
status cublasLtMatrixLayoutSetAttribute(layout *l, int attribute, const void *value, size_t size)
{
    if (attribute == 5 && size == sizeof l->batch)
        memcpy(&l->batch, value, size);
    else if (attribute == 6 && size == sizeof l->stride)
        memcpy(&l->stride, value, size);
    else
        return wrong(INVALID_VALUE, "attribute %d of %zu bytes of a matrix", attribute, size);
    return l->batch < 1 ? wrong(INVALID_VALUE, "a batch of %d", l->batch) : OK;
}
status cublasLtMatmulPreferenceCreate(preference **out)
{
    *out = new preference{0, {256, 256, 256, 256}};
    return OK;
}
status cublasLtMatmulPreferenceDestroy(preference *p)
{
    delete p;
    return OK;
}
status cublasLtMatmulPreferenceSetAttribute(preference *p, int attribute, const void *value, size_t size)
{
    uint32_t v = 0;
    if (attribute == 1 && size == sizeof p->workspace) {
        memcpy(&p->workspace, value, size);
        return OK;
    }
    if (size != sizeof v || attribute < 3 || attribute > 8 || attribute == 4)
        return wrong(INVALID_VALUE, "attribute %d of %zu bytes of a preference", attribute, size);
    memcpy(&v, value, size);
    if (attribute >= 5)
        p->align[attribute - 5] = v;
    return OK;
}
}
#pragma GCC visibility pop

/* ---- algorithms ---- */

static uint64_t mix(uint64_t h, uint64_t x)
{
    h = (h ^ x) * 0x9e3779b97f4a7c15;
    return h ^ h >> 29;
}

static uint64_t product_hash(const desc *d, const layout *const *l)
{
    uint64_t h = mix(mix(mix(MAGIC, (uint64_t)d->compute), (uint64_t)d->transposed[0]), (uint64_t)d->transposed[1]);
    for (int i = 0; i < 4; i++) {
        const int64_t all[] = {l[i]->type, l[i]->rows, l[i]->columns, l[i]->ld, l[i]->stride, l[i]->batch};
        for (int64_t x : all)
            h = mix(h, (uint64_t)x);
    }
    return h;
}

/* Column-major: D [m,n] = op(A) [m,k] op(B) [k,n] + C. */
static status product_check(const desc *d, const layout *const *l)
{
    const layout *a = l[0], *b = l[1], *c = l[2], *to = l[3];
    const int64_t m = d->transposed[0] ? a->columns : a->rows, k = d->transposed[0] ? a->rows : a->columns;
    const int64_t n = d->transposed[1] ? b->rows : b->columns, kb = d->transposed[1] ? b->columns : b->rows;
    if (k != kb || to->rows != m || to->columns != n || c->rows != m || c->columns != n)
        return wrong(INVALID_VALUE, "[%lld,%lld] times [%lld,%lld] into [%lld,%lld]", (long long)m, (long long)k,
                     (long long)kb, (long long)n, (long long)to->rows, (long long)to->columns);
    if (a->type != b->type || c->type != to->type || (a->type == R_32F && to->type != R_32F) ||
        (a->type == R_16BF && d->compute != COMPUTE_32F))
        return wrong(NOT_SUPPORTED, "types %d, %d, %d, %d", a->type, b->type, c->type, to->type);
    for (int i = 0; i < 4; i++)
        if (l[i]->batch != to->batch || (to->batch > 1 && l[i]->stride < 0) ||
            (i > 1 && to->batch > 1 && l[i]->stride < to->ld * (n - 1) + m))
            return wrong(INVALID_VALUE, "operand %d: a batch of %d with stride %lld", i, l[i]->batch,
                         (long long)l[i]->stride);
    return OK;
}

static status algo_check(const desc *d, const layout *const *l, const algo *a)
{
    if (a == nullptr || a->data[0] != MAGIC || a->data[4] != VERSION)
        return wrong(INVALID_VALUE, "this is no algorithm of this version");
    if (a->data[1] != product_hash(d, l))
        return wrong(INVALID_VALUE, "the algorithm was chosen for another product");
    return OK;
}

#pragma GCC visibility push(default)
extern "C" {
status cublasLtMatmulAlgoGetHeuristic(void *, desc *d, layout *a, layout *b, layout *c, layout *to, preference *p,
                                      int wanted, result *out, int *n)
{
    const layout *const l[] = {a, b, c, to};
    *n = 0;
    if (const int injected = fake_injected("cublasLtMatmulAlgoGetHeuristic"))
        return injected;
    if (const status s = product_check(d, l))
        return s;
    for (uint32_t align : p->align)
        if (align < MIN_ALIGNMENT)
            return NOT_SUPPORTED;
    const int first = getenv("FAKE_BLASLT_OTHER") ? 1 : 0;
    for (int i = 0; i < wanted && i < 2; i++) {
        const uint64_t workspace = i == 0 && p->workspace >= WORKSPACE ? WORKSPACE : 0;
        out[i] = {};
        out[i].a = {{MAGIC, product_hash(d, l), workspace, MIN_ALIGNMENT, VERSION, (uint64_t)((i + first) % 2), 0, 0}};
        out[i].workspace = workspace;
        *n = i + 1;
    }
    return OK;
}
status cublasLtMatmulAlgoCheck(void *, desc *d, layout *a, layout *b, layout *c, layout *to, const algo *algorithm,
                               result *out)
{
    const layout *const l[] = {a, b, c, to};
    if (const status s = product_check(d, l))
        return s;
    if (algorithm->data[0] != MAGIC || algorithm->data[1] != product_hash(d, l) || algorithm->data[4] != VERSION)
        return INVALID_VALUE;
    *out = {};
    out->a = *algorithm;
    out->workspace = algorithm->data[2];
    return OK;
}
}
#pragma GCC visibility pop

/* ---- a product ---- */

static void work_release(void *arg)
{
    delete (work *)arg;
}

static status address_check(const char *name, const void *p, const layout *l, uint64_t align, int device)
{
    const int64_t last = (l->batch - 1) * l->stride + (l->columns - 1) * l->ld + l->rows;
    if ((uintptr_t)p % align)
        return wrong(INVALID_VALUE, "%s at %p is not aligned to %llu bytes", name, p, (unsigned long long)align);
    if (fake_memory_device(p, (size_t)(last * size_of(l->type))) != device)
        return wrong(INVALID_VALUE, "%s at %p: not %lld elements of memory of device %d", name, p, (long long)last,
                     device);
    return OK;
}

extern "C" __attribute__((visibility("default"))) status
cublasLtMatmul(void *handle, desc *d, const float *alpha, const void *a, layout *la, const void *b, layout *lb,
               const float *beta, const void *c, layout *lc, void *to, layout *ld, const algo *algorithm,
               void *workspace, size_t workspace_bytes, void *stream)
{
    const layout *const l[] = {la, lb, lc, ld};
    const void *const address[] = {a, b, c, to};
    static const char *const names[] = {"A", "B", "C", "D"};
    const int device = fake_queue_device(stream);
    if (const int injected = fake_injected("cublasLtMatmul"))
        return injected;
    if (handle == nullptr || *(uint64_t *)handle != MAGIC)
        return wrong(INVALID_VALUE, "a wrong handle");
    if (const status s = product_check(d, l))
        return s;
    if (const status s = algo_check(d, l, algorithm))
        return s;
    for (int i = 0; i < 4; i++)
        if (const status s = address_check(names[i], address[i], l[i], algorithm->data[3], device))
            return s;
    const size_t needed = (size_t)algorithm->data[2];
    if (needed &&
        (workspace_bytes < needed || (uintptr_t)workspace % 16 || fake_memory_device(workspace, needed) != device))
        return wrong(INVALID_VALUE, "a workspace of %zu bytes at %p where %zu are needed", workspace_bytes, workspace,
                     needed);
    const fake_item item = {"cublasLtMatmul",
                            new work{*d,
                                     {*la, *lb, *lc, *ld},
                                     {(const char *)a, (const char *)b, (const char *)c},
                                     (char *)to,
                                     workspace,
                                     needed,
                                     *alpha,
                                     *beta,
                                     algorithm->data[5] != 0},
                            nullptr,
                            nullptr,
                            work_run,
                            work_release};
    const int queued = fake_queue_add(stream, &item);
    if (queued)
        work_release(item.arg);
    return queued ? NOT_SUPPORTED : OK;
}
