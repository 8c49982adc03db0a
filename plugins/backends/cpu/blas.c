/* SPDX-License-Identifier: Apache-2.0 */
#include "cpu.h"
#include <dlfcn.h>
#include <pthread.h>

/* OpenBLAS, loaded only when it is wanted: loading it delays the start by a tenth of a second, and
 * where our own products are as fast nobody needs it. It must run one thread, because its workers
 * would spin on the cores that the pool computes on (R12). And it must be a build with locks: the
 * serial build hands the same buffer to two callers at once, and the OpenMP build knows only
 * callers from its own threads. */

enum { ROW_MAJOR = 101, NO_TRANS = 111, TRANS = 112 }; /* the C interface of BLAS */
enum { BUILT_WITH_THREADS = 1 };                       /* values of openblas_get_parallel */

typedef void (*sgemm_fn)(int order, int trans_a, int trans_b, int m, int n, int k, float alpha,
                         const float *a, int lda, const float *b, int ldb, float beta, float *c,
                         int ldc);

static pthread_once_t once = PTHREAD_ONCE_INIT;
static sgemm_fn sgemm; /* NULL: not found, or not usable */
static const char *config;

static void *symbol(void *so, const char *name, bool *ok)
{
    void *p = dlsym(so, name);
    *ok = *ok && p;
    return p;
}

/* The library is never closed: its threads outlive every use. */
static void open_once(void)
{
    static const char *const names[] = {"libopenblas.so.0", "libopenblas.so"};
    int (*parallel)(void), (*n_threads)(void);
    void (*set_threads)(int);
    char *(*get_config)(void);
    sgemm_fn found;
    bool ok = true;
    void *so = NULL;
    for (size_t i = 0; !so && i < TT_COUNT(names); i++)
        so = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    if (!so)
        return;
    *(void **)&parallel = symbol(so, "openblas_get_parallel", &ok);
    *(void **)&n_threads = symbol(so, "openblas_get_num_threads", &ok);
    *(void **)&set_threads = symbol(so, "openblas_set_num_threads", &ok);
    *(void **)&get_config = symbol(so, "openblas_get_config", &ok);
    *(void **)&found = symbol(so, "cblas_sgemm", &ok);
    if (!ok || parallel() != BUILT_WITH_THREADS)
        return;
    set_threads(1);
    if (n_threads() != 1)
        return;
    config = get_config();
    sgemm = found;
}

bool cpu_blas_open(const char **version)
{
    pthread_once(&once, open_once);
    if (sgemm)
        *version = config;
    return sgemm != NULL;
}

void cpu_blas_sgemm(int64_t m, int64_t n, int64_t k, cpu_mat a, cpu_mat b, float *c, int64_t ldc,
                    bool add)
{
    /* Rows are taken along the longer stride; the other stride is 1. A vector may have both strides
     * 1. */
    const bool ta = a.cs != 1, tb = b.cs != 1;
    int64_t lda = cpu_max(ta ? a.cs : a.rs, ta ? m : k),
            ldb = cpu_max(tb ? b.cs : b.rs, tb ? k : n);
    sgemm(ROW_MAJOR, ta ? TRANS : NO_TRANS, tb ? TRANS : NO_TRANS, (int)m, (int)n, (int)k, 1.0f,
          a.p, (int)lda, b.p, (int)ldb, add ? 1.0f : 0.0f, c, (int)ldc);
}
