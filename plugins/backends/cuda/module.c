/* SPDX-License-Identifier: Apache-2.0 */
#include "module.h"
#include "driver.h"
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ttrun/log.h>

/* kernels/ as machine code, and generated texts: each text is one CUlibrary of the process. */

typedef enum module_mode { MODULE_CLOSED, MODULE_EMBEDDED, MODULE_RTC } module_mode;

/* A text that was compiled, or that a thread compiles now. */
typedef struct module_text {
    struct module_text *next;
    cuda_key key;
    bool ready;
    tt_error why; /* code TT_OK: library is set */
    CUlibrary library;
} module_text;

enum { MODULE_FILES = 64 };
static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed; /* a text became ready */
    module_mode mode;
    int sm; /* of MODULE_RTC: one of the process, because cuda_kernel has one handle */
    CUlibrary files[MODULE_FILES]; /* as cuda_embedded_kernels */
    module_text *texts;
    int n_compiled;
} module = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static CUresult module_load(const void *code, CUlibrary *out)
{
    return cu.cuLibraryLoadData(out, code, NULL, NULL, 0, NULL, NULL, 0);
}

/* ---- texts by NVRTC ---- */

/* Everything that the code depends on. */
static cuda_key module_key(const cuda_backend *b, const char *text)
{
    enum { MOST = 40 };
    const char *texts[MOST];
    char options[160], version[32];
    int n = 0;
    cuda_rtc_options(b->chip.sm, options, sizeof options);
    snprintf(version, sizeof version, "NVRTC %d sm %d", cuda_rtc_version(), b->chip.sm);
    texts[n++] = version;
    texts[n++] = options;
    texts[n++] = text;
    for (const cuda_embedded *h = cuda_embedded_headers; h->name && n + 1 < MOST; h++) {
        texts[n++] = h->name;
        texts[n++] = h->text;
    }
    return cuda_key_of(texts, n);
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
    const cuda_key key = module_key(b, s->text);
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
    module_job j = {.b = b, .sources = sources, .libraries = libraries, .n = n};
    TT_TRY(cuda_rtc_open(b->config.libraries, cuda_driver_version(), err));
    pthread_mutex_init(&j.lock, NULL);
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

/* ---- open ---- */

static tt_status module_compile_files(cuda_backend *b, tt_error *err)
{
    cuda_source sources[MODULE_FILES];
    void *libraries[MODULE_FILES];
    int n = 0;
    const int before = module.n_compiled;
    for (const cuda_embedded *f = cuda_embedded_kernels; f->name && n < MODULE_FILES; f++)
        sources[n++] = (cuda_source){f->name, f->text};
    if (!n)
        return TT_OK;
    TT_TRY(cuda_module_sources(b, sources, n, libraries, err));
    for (int i = 0; i < n; i++)
        module.files[i] = libraries[i];
    const int compiled = module.n_compiled - before;
    if (compiled) {
        char folder[PATH_MAX];
        cuda_cache_folder(b->config.cache, folder, sizeof folder);
        tt_log(TT_INFO, "backend",
               "%d of %d files of kernels were compiled by NVRTC %d.%d for "
               "sm_%d; they are kept in %s",
               compiled, n, cuda_rtc_version() / 1000, cuda_rtc_version() % 1000 / 10, b->chip.sm,
               folder);
    }
    return TT_OK;
}

/* Does the driver take the embedded code? The first file answers for all. */
static CUresult module_try_embedded(void)
{
    CUmodule loaded;
    CUresult r = module_load(cuda_embedded_kernels[0].binary, &module.files[0]);
    if ((int)r == CUDA_SUCCESS_)
        r = cu.cuLibraryGetModule(&loaded, module.files[0]);
    if ((int)r != CUDA_SUCCESS_ && module.files[0]) {
        cu.cuLibraryUnload(module.files[0]);
        module.files[0] = NULL;
    }
    return r;
}

static tt_status module_open_locked(cuda_backend *b, tt_error *err)
{
    const char *want = b->config.kernel_code ? b->config.kernel_code : "auto";
    const cuda_embedded *first = cuda_embedded_kernels;
    const bool embedded = first->name && first->binary != first->binary_end;
    if (module.mode != MODULE_CLOSED) {
        if (module.mode == MODULE_RTC && module.sm != b->chip.sm)
            return TT_FAIL(err, TT_EUNSUPPORTED,
                           "this process has kernels for sm_%d, and device %d (%s) is sm_%d: start "
                           "one process per GPU",
                           module.sm, b->device, b->chip.name, b->chip.sm);
        return TT_OK;
    }
    if (strcmp(want, "embedded") == 0 && !embedded)
        return TT_FAIL(err, TT_EUNSUPPORTED,
                       "backend.kernel_code: no code is embedded, because ttrun was built without "
                       "nvcc; use \"auto\" or \"nvrtc\"");
    if (embedded && strcmp(want, "nvrtc") != 0) {
        const CUresult r = module_try_embedded();
        if ((int)r == CUDA_SUCCESS_) {
            module.mode = MODULE_EMBEDDED;
            return TT_OK;
        }
        tt_error why;
        cuda_check(r, &why, "the embedded kernels on device %d (%s, sm_%d)", b->device,
                   b->chip.name, b->chip.sm);
        if (strcmp(want, "embedded") == 0) {
            *err = why;
            return why.code;
        }
        tt_log(TT_INFO, "backend", "%s; NVRTC compiles them", why.text);
    }
    TT_TRY(module_compile_files(b, err));
    module.mode = MODULE_RTC;
    module.sm = b->chip.sm;
    return TT_OK;
}

tt_status cuda_module_open(cuda_backend *b, tt_error *err)
{
    static pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER; /* around module.lock */
    pthread_mutex_lock(&opening);
    tt_status s = module_open_locked(b, err);
    pthread_mutex_unlock(&opening);
    if (s != TT_OK)
        s = tt_error_context(err, "cuda: kernels");
    return s;
}

void cuda_module_describe(const cuda_backend *b, char *text, size_t size)
{
    const int v = cuda_rtc_version();
    if (b->is_target)
        text[0] = '\0';
    else if (module.mode == MODULE_EMBEDDED)
        snprintf(text, size, "kernels embedded");
    else
        snprintf(text, size, "kernels by NVRTC %d.%d", v / 1000, v % 1000 / 10);
}

/* ---- kernels ---- */

static tt_status module_file(const char *file, CUlibrary *out, tt_error *err)
{
    int i = 0;
    while (cuda_embedded_kernels[i].name && strcmp(cuda_embedded_kernels[i].name, file) != 0)
        i++;
    const cuda_embedded *f = &cuda_embedded_kernels[i];
    if (!f->name || i >= MODULE_FILES)
        return TT_FAIL(err, TT_EINTERNAL, "cuda: there is no kernels/%s.cu", file);
    tt_status s = TT_OK;
    pthread_mutex_lock(&module.lock);
    if (!module.files[i])
        s = cuda_check(module_load(f->binary, &module.files[i]), err,
                       "cuLibraryLoadData of the embedded %s.cu", file);
    *out = module.files[i];
    pthread_mutex_unlock(&module.lock);
    return s;
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

tt_status cuda_module_kernel(cuda_backend *b, const char *file, const char *name, void **kernel,
                             tt_error *err)
{
    CUlibrary library = NULL;
    TT_TRY(module_file(file, &library, err));
    if (cuda_module_get(b, library, name, kernel, err) != TT_OK)
        return tt_error_context(err, "kernels/%s.cu", file);
    return TT_OK;
}
