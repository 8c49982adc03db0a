/* SPDX-License-Identifier: Apache-2.0 */
#include "module.h"
#include "driver.h"
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ttrun/log.h>

/* Texts in the dialect as machine code: each is one CUlibrary of the process. */

/* A text that was compiled, or that a thread compiles now. */
typedef struct module_text {
    struct module_text *next;
    cuda_key key;
    bool ready;
    tt_error why; /* code TT_OK: library is set */
    CUlibrary library;
} module_text;

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed; /* a text became ready */
    module_text *texts;
    int n_compiled;
} module = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static CUresult module_load(const void *code, CUlibrary *out)
{
    return cu.cuLibraryLoadData(out, code, NULL, NULL, 0, NULL, NULL, 0);
}

static tt_status module_compile(const cuda_backend *b, const cuda_source *s, cuda_key key,
                                CUlibrary *out, tt_error *err)
{
    char folder[PATH_MAX];
    cuda_code code;
    cuda_cache_folder(b->config.cache, folder, sizeof folder);
    if (cuda_cache_read(folder, key, &code)) {
        const CUresult r = module_load(code.data, out);
        free(code.data);
        if ((int)r == CUDA_SUCCESS_)
            return TT_OK;
    }
    TT_TRY(cuda_rtc_compile(s->name, s->text, b->chip.sm, &code, err));
    __atomic_fetch_add(&module.n_compiled, 1, __ATOMIC_RELAXED);
    cuda_cache_write(folder, key, &code);
    const tt_status st =
        cuda_check(module_load(code.data, out), err,
                   "cuLibraryLoadData of %zu bytes that NVRTC %d.%d made of %s", code.bytes,
                   cuda_rtc_version() / 1000, cuda_rtc_version() % 1000 / 10, s->name);
    free(code.data);
    return st;
}

/* The library of one text: this thread's work, or another's that it waits for. */
static tt_status module_one(const cuda_backend *b, const cuda_source *s, void **library,
                            tt_error *err)
{
    const cuda_key key = cuda_rtc_key(s->text, b->chip.sm);
    pthread_mutex_lock(&module.lock);
    module_text *t = module.texts;
    while (t && (t->key.lo != key.lo || t->key.hi != key.hi))
        t = t->next;
    const bool mine = !t;
    if (mine && (t = calloc(1, sizeof *t)) != NULL) {
        t->key = key;
        t->next = module.texts;
        module.texts = t;
    }
    while (t && !mine && !t->ready)
        pthread_cond_wait(&module.changed, &module.lock);
    pthread_mutex_unlock(&module.lock);
    if (!t)
        return TT_FAIL(err, TT_ENOMEM, "no memory to compile %s", s->name);
    if (mine) {
        module_compile(b, s, key, &t->library, &t->why);
        pthread_mutex_lock(&module.lock);
        t->ready = true;
        pthread_cond_broadcast(&module.changed);
        pthread_mutex_unlock(&module.lock);
    }
    if (t->why.code == TT_OK)
        *library = t->library;
    else if (err)
        *err = t->why;
    return t->why.code;
}

typedef struct module_job {
    const cuda_backend *b;
    const cuda_source *sources;
    void **libraries;
    int n, next; /* next: taken by atomic steps */
    pthread_mutex_t lock;
    tt_error why; /* the first error */
} module_job;

static void *module_work(void *arg)
{
    module_job *j = arg;
    tt_error e = {0};
    cu.cuCtxSetCurrent(j->b->context);
    for (int i; (i = __atomic_fetch_add(&j->next, 1, __ATOMIC_RELAXED)) < j->n;)
        if (module_one(j->b, &j->sources[i], &j->libraries[i], &e) != TT_OK) {
            pthread_mutex_lock(&j->lock);
            if (j->why.code == TT_OK)
                j->why = e;
            pthread_mutex_unlock(&j->lock);
        }
    return NULL;
}

tt_status cuda_module_sources(cuda_backend *b, const cuda_source *sources, int n, void **libraries,
                              tt_error *err)
{
    enum { MOST = 64 };
    pthread_t threads[MOST];
    int n_threads = 0;
    module_job j = {.b = b,
                    .sources = sources,
                    .libraries = libraries,
                    .n = n,
                    .lock = PTHREAD_MUTEX_INITIALIZER};
    TT_TRY(cuda_rtc_open(b->config.libraries, cuda_driver_version(), err));
    for (int want = (b->n_threads < n ? b->n_threads : n) - 1; n_threads < want && n_threads < MOST;
         n_threads++)
        if (pthread_create(&threads[n_threads], NULL, module_work, &j) != 0)
            break;
    module_work(&j);
    for (int i = 0; i < n_threads; i++)
        pthread_join(threads[i], NULL);
    pthread_mutex_destroy(&j.lock);
    if (j.why.code != TT_OK && err)
        *err = j.why;
    return j.why.code;
}

tt_status cuda_module_source(cuda_backend *b, const char *name, const char *text, void **library,
                             tt_error *err)
{
    const cuda_source s = {name, text};
    TT_TRY(cuda_rtc_open(b->config.libraries, cuda_driver_version(), err));
    return module_one(b, &s, library, err);
}

tt_status cuda_module_get(cuda_backend *b, void *library, const char *name, void **kernel,
                          tt_error *err)
{
    CUkernel k = NULL;
    TT_TRY(cuda_check(cu.cuLibraryGetKernel(&k, library, name), err,
                      "kernel %s on device %d (%s, sm_%d)", name, b->device, b->chip.name,
                      b->chip.sm));
    *kernel = k;
    return TT_OK;
}

int cuda_module_compiled(void)
{
    return __atomic_load_n(&module.n_compiled, __ATOMIC_RELAXED);
}
