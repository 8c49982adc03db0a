/* SPDX-License-Identifier: Apache-2.0 */
#include "rtc.h"
#include "lib.h"
#include "module.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* NVRTC: compiles kernels at run time. */

static cuda_rtc rtc;
static struct {
    pthread_mutex_t lock;
    bool tried;
    tt_error why; /* code TT_OK: it is open */
    int version;
    int n_archs, *archs; /* of the chips that it knows: 90 */
} rtc_state = {.lock = PTHREAD_MUTEX_INITIALIZER};

static tt_status rtc_check(nvrtcResult r, tt_error *err, const char *what, const char *name)
{
    if ((int)r == 0)
        return TT_OK;
    return TT_FAIL(err, TT_EINTERNAL, "%s of %s: %s", what, name, rtc.nvrtcGetErrorString(r));
}

static tt_status rtc_load(const char *folder, int driver_version, tt_error *err)
{
    static const char *const names[] = {"libnvrtc.so.13", "libnvrtc.so.12", NULL};
    cuda_lib lib;
    int major = 0, minor = 0;
    /* A driver of CUDA 12 does not take the code that 13's makes. */
    if (cuda_lib_open(folder, "cuda_nvrtc", names + (driver_version < 13000), &lib, err) != TT_OK) {
        err->code = TT_EUNSUPPORTED;
        return TT_EUNSUPPORTED;
    }
#define CUDA_RTC_LOAD(name, parameters) TT_TRY(cuda_lib_symbol(&lib, #name, &rtc.name, err));
    CUDA_RTC_FUNCTIONS(CUDA_RTC_LOAD)
#undef CUDA_RTC_LOAD
    TT_TRY(rtc_check(rtc.nvrtcVersion(&major, &minor), err, "nvrtcVersion", lib.path));
    TT_TRY(rtc_check(rtc.nvrtcGetNumSupportedArchs(&rtc_state.n_archs), err,
                     "nvrtcGetNumSupportedArchs", lib.path));
    rtc_state.archs = calloc((size_t)rtc_state.n_archs + 1, sizeof *rtc_state.archs);
    if (!rtc_state.archs)
        return TT_FAIL(err, TT_ENOMEM, "cuda: no memory for %d chips", rtc_state.n_archs);
    TT_TRY(rtc_check(rtc.nvrtcGetSupportedArchs(rtc_state.archs), err, "nvrtcGetSupportedArchs",
                     lib.path));
    rtc_state.version = 1000 * major + 10 * minor;
    return TT_OK;
}

tt_status cuda_rtc_open(const char *folder, int driver_version, tt_error *err)
{
    pthread_mutex_lock(&rtc_state.lock);
    if (!rtc_state.tried) {
        rtc_state.tried = true;
        rtc_load(folder, driver_version, &rtc_state.why);
    }
    if (rtc_state.why.code != TT_OK && err)
        *err = rtc_state.why;
    pthread_mutex_unlock(&rtc_state.lock);
    return rtc_state.why.code;
}

int cuda_rtc_version(void)
{
    return rtc_state.version;
}

/* The newest chip that NVRTC knows and whose PTX runs on this one; is it this one itself? */
static bool rtc_arch(int sm, int *arch)
{
    *arch = 80;
    for (int i = 0; i < rtc_state.n_archs; i++)
        if (rtc_state.archs[i] <= sm && rtc_state.archs[i] > *arch)
            *arch = rtc_state.archs[i];
    return *arch == sm;
}

/* No multiply and add becomes a fused one by itself: kernels that want it say fmaf. So a program has
 * the same bits, compiled as one kernel or run as several. */
static const char *const fixed_options[] = {"--std=c++17", "--fmad=false"};

void cuda_rtc_options(int sm, char *text, size_t size)
{
    int arch;
    const bool exact = rtc_arch(sm, &arch);
    snprintf(text, size, "--gpu-architecture=%s_%d %s %s", exact ? "sm" : "compute", arch,
             fixed_options[0], fixed_options[1]);
}

cuda_key cuda_rtc_key(const char *text, int sm)
{
    enum { MOST = 80 };
    const char *texts[MOST];
    char options[160], version[32];
    int n = 0;
    cuda_rtc_options(sm, options, sizeof options);
    snprintf(version, sizeof version, "NVRTC %d sm %d", cuda_rtc_version(), sm);
    texts[n++] = version;
    texts[n++] = options;
    texts[n++] = text;
    for (const cuda_embedded *h = cuda_embedded_headers; h->name && n + 1 < MOST; h++) {
        texts[n++] = h->name;
        texts[n++] = h->text;
    }
    return cuda_key_of(texts, n);
}

static tt_status rtc_fail(nvrtcProgram program, const char *name, nvrtcResult r, tt_error *err)
{
    size_t n = 0;
    char *log = NULL;
    if ((int)rtc.nvrtcGetProgramLogSize(program, &n) == 0)
        log = calloc(1, n + 1);
    if (log)
        rtc.nvrtcGetProgramLog(program, log);
    TT_FAIL(err, TT_EINTERNAL, "NVRTC %d.%d does not compile %s: %s: %.700s",
            rtc_state.version / 1000, rtc_state.version % 1000 / 10, name,
            rtc.nvrtcGetErrorString(r), log ? log : "no log");
    free(log);
    return TT_EINTERNAL;
}

static tt_status rtc_result(nvrtcProgram program, const char *name, bool exact, cuda_code *out,
                            tt_error *err)
{
    cuda_code code = {0};
    TT_TRY(rtc_check(exact ? rtc.nvrtcGetCUBINSize(program, &code.bytes)
                           : rtc.nvrtcGetPTXSize(program, &code.bytes),
                     err, "size of the code", name));
    code.data = malloc(code.bytes + 1);
    if (!code.data)
        return TT_FAIL(err, TT_ENOMEM, "no memory for %zu bytes of code of %s", code.bytes, name);
    const tt_status s = rtc_check(exact ? rtc.nvrtcGetCUBIN(program, code.data)
                                        : rtc.nvrtcGetPTX(program, code.data),
                                  err, "code", name);
    if (s != TT_OK)
        free(code.data);
    else
        *out = code;
    return s;
}

tt_status cuda_rtc_compile(const char *name, const char *text, int sm, cuda_code *out,
                           tt_error *err)
{
    enum { MOST = 32 };
    const char *names[MOST], *texts[MOST];
    char arch_option[40];
    int n = 0, arch;
    const bool exact = rtc_arch(sm, &arch);
    nvrtcProgram program = NULL;
    for (const cuda_embedded *h = cuda_embedded_headers; h->name && n < MOST; h++, n++) {
        names[n] = h->name;
        texts[n] = h->text;
    }
    snprintf(arch_option, sizeof arch_option, "--gpu-architecture=%s_%d", exact ? "sm" : "compute",
             arch);
    const char *const options[] = {arch_option, fixed_options[0], fixed_options[1]};
    TT_TRY(rtc_check(rtc.nvrtcCreateProgram(&program, text, name, n, texts, names), err,
                     "nvrtcCreateProgram", name));
    const nvrtcResult r = rtc.nvrtcCompileProgram(program, 3, options);
    const tt_status s =
        (int)r ? rtc_fail(program, name, r, err) : rtc_result(program, name, exact, out, err);
    rtc.nvrtcDestroyProgram(&program);
    return s;
}
