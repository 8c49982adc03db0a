/* SPDX-License-Identifier: Apache-2.0 */
#include "driver.h"
#include "module.h"
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <ttrun/log.h>

/* The files of kernels/ as machine code: embedded, or compiled by NVRTC. NVRTC takes half a second to three for a file, so
 * only files that are needed are compiled: those that the ops of the run were found to need, all together before its first
 * step (cuda_files_prepare), and any other at its first launch. */

typedef enum files_mode { FILES_CLOSED, FILES_EMBEDDED, FILES_RTC } files_mode;

enum { FILES_MOST = 64 };
static struct {
    pthread_mutex_t lock;
    files_mode mode;
    int sm; /* of FILES_RTC: one of the process, because cuda_kernel has one handle */
    CUlibrary library[FILES_MOST]; /* as cuda_embedded_kernels */
    bool is_needed[FILES_MOST];
} files = {.lock = PTHREAD_MUTEX_INITIALIZER};

static CUresult files_load(const void *code, CUlibrary *out)
{
    return cu.cuLibraryLoadData(out, code, NULL, NULL, 0, NULL, NULL, 0);
}

/* ---- open ---- */

/* Does the driver take the embedded code? The first file answers for all. */
static CUresult files_try_embedded(void)
{
    CUmodule loaded;
    CUresult r = files_load(cuda_embedded_kernels[0].binary, &files.library[0]);
    if ((int)r == CUDA_SUCCESS_)
        r = cu.cuLibraryGetModule(&loaded, files.library[0]);
    if ((int)r != CUDA_SUCCESS_ && files.library[0]) {
        cu.cuLibraryUnload(files.library[0]);
        files.library[0] = NULL;
    }
    return r;
}

static tt_status files_open(cuda_backend *b, tt_error *err)
{
    const char *want = b->config.kernel_code ? b->config.kernel_code : "auto";
    const cuda_embedded *first = cuda_embedded_kernels;
    const bool embedded = first->name && first->binary != first->binary_end;
    if (files.mode != FILES_CLOSED) {
        if (files.mode == FILES_RTC && files.sm != b->chip.sm)
            return TT_FAIL(err, TT_EUNSUPPORTED,
                           "this process has kernels for sm_%d, and device %d (%s) is sm_%d: start "
                           "one process per GPU",
                           files.sm, b->device, b->chip.name, b->chip.sm);
        return TT_OK;
    }
    if (strcmp(want, "embedded") == 0 && !embedded)
        return TT_FAIL(err, TT_EUNSUPPORTED,
                       "backend.kernel_code: no code is embedded, because ttrun was built without "
                       "nvcc; use \"auto\" or \"nvrtc\"");
    if (embedded && strcmp(want, "nvrtc") != 0) {
        const CUresult r = files_try_embedded();
        if ((int)r == CUDA_SUCCESS_) {
            files.mode = FILES_EMBEDDED;
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
    TT_TRY(cuda_rtc_open(b->config.libraries, cuda_driver_version(), err));
    files.mode = FILES_RTC;
    files.sm = b->chip.sm;
    return TT_OK;
}

tt_status cuda_files_open(cuda_backend *b, tt_error *err)
{
    pthread_mutex_lock(&files.lock);
    tt_status s = files_open(b, err);
    pthread_mutex_unlock(&files.lock);
    if (s != TT_OK)
        s = tt_error_context(err, "cuda: kernels");
    return s;
}

void cuda_files_describe(const cuda_backend *b, char *text, size_t size)
{
    const int v = cuda_rtc_version();
    if (b->is_target)
        text[0] = '\0';
    else if (files.mode == FILES_EMBEDDED)
        snprintf(text, size, "kernels embedded");
    else
        snprintf(text, size, "kernels by NVRTC %d.%d", v / 1000, v % 1000 / 10);
}

/* ---- kernels ---- */

/* The number of a file; -1: there is none of this name, which has n bytes. */
static int files_find(const char *name, size_t n)
{
    for (int i = 0; i < FILES_MOST && cuda_embedded_kernels[i].name; i++)
        if (strlen(cuda_embedded_kernels[i].name) == n &&
            strncmp(cuda_embedded_kernels[i].name, name, n) == 0)
            return i;
    return -1;
}

void cuda_files_need(const cuda_backend *b, const char *names)
{
    if (!b || b->is_target || !names)
        return;
    pthread_mutex_lock(&files.lock);
    for (size_t n; *names; names += n + (names[n] == ' ')) {
        n = strcspn(names, " ");
        const int i = files_find(names, n);
        if (i >= 0)
            files.is_needed[i] = true;
    }
    pthread_mutex_unlock(&files.lock);
}

static void files_put(int i, CUlibrary library)
{
    pthread_mutex_lock(&files.lock);
    files.library[i] = library;
    pthread_mutex_unlock(&files.lock);
}

tt_status cuda_files_prepare(cuda_backend *b, tt_error *err)
{
    cuda_source sources[FILES_MOST];
    void *libraries[FILES_MOST];
    int n = 0, number[FILES_MOST];
    const int before = cuda_module_compiled();
    pthread_mutex_lock(&files.lock);
    for (int i = 0; files.mode == FILES_RTC && i < FILES_MOST && cuda_embedded_kernels[i].name; i++)
        if (files.is_needed[i] && !files.library[i]) {
            sources[n] =
                (cuda_source){cuda_embedded_kernels[i].name, cuda_embedded_kernels[i].text};
            number[n++] = i;
        }
    pthread_mutex_unlock(&files.lock);
    if (!n)
        return TT_OK;
    if (cuda_module_sources(b, sources, n, libraries, err) != TT_OK)
        return tt_error_context(err, "cuda: kernels");
    for (int i = 0; i < n; i++)
        files_put(number[i], libraries[i]);
    if (cuda_module_compiled() != before) {
        char folder[PATH_MAX];
        cuda_cache_folder(b->config.cache, folder, sizeof folder);
        tt_log(TT_INFO, "backend", "NVRTC %d.%d compiled kernels for sm_%d; they are kept in %s",
               cuda_rtc_version() / 1000, cuda_rtc_version() % 1000 / 10, b->chip.sm, folder);
    }
    return TT_OK;
}

/* One that nothing foresaw is compiled now. */
static tt_status files_library(cuda_backend *b, const char *name, CUlibrary *out, tt_error *err)
{
    const int i = files_find(name, strlen(name));
    void *compiled = NULL;
    tt_status s = TT_OK;
    if (i < 0)
        return TT_FAIL(err, TT_EINTERNAL, "cuda: there is no kernels/%s.cu", name);
    pthread_mutex_lock(&files.lock);
    if (!files.library[i] && files.mode == FILES_EMBEDDED)
        s = cuda_check(files_load(cuda_embedded_kernels[i].binary, &files.library[i]), err,
                       "cuLibraryLoadData of the embedded %s.cu", name);
    *out = files.library[i];
    pthread_mutex_unlock(&files.lock);
    if (s != TT_OK || *out)
        return s;
    TT_TRY(cuda_module_source(b, name, cuda_embedded_kernels[i].text, &compiled, err));
    *out = compiled;
    files_put(i, *out);
    return TT_OK;
}

tt_status cuda_files_kernel(cuda_backend *b, const char *file, const char *name, void **kernel,
                            tt_error *err)
{
    CUlibrary library = NULL;
    TT_TRY(files_library(b, file, &library, err));
    if (cuda_module_get(b, library, name, kernel, err) != TT_OK)
        return tt_error_context(err, "kernels/%s.cu", file);
    return TT_OK;
}
