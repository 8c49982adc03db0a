/* SPDX-License-Identifier: Apache-2.0 */
/* Runs one case in a child, with a fresh fake driver: its settings are read once per process, and faults end it. */
#ifndef TT_TESTS_CUDA_FAKE_RIG_H
#define TT_TESTS_CUDA_FAKE_RIG_H
#include "fake_driver.h"
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
/* after those: */
#include <cmocka.h>

#define RIG_FAILED 3
/* In a child: says what is wrong and ends it. */
#define CHECK(x)                                                                                   \
    do {                                                                                           \
        if (!(x)) {                                                                                \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #x);                                \
            _exit(RIG_FAILED);                                                                     \
        }                                                                                          \
    } while (0)
#define OK(call) CHECK((call) == 0)

static char rig_text[1 << 16]; /* what the last child wrote to stderr */

/* Calls fn(arg) in a child with the settings "NAME=value" up to a NULL. Returns its status as waitpid has it: 0 when fn
 * returned. */
static inline int rig_run(void (*fn)(int), int arg, const char *const *settings)
{
    int pipe_of[2], status = -1;
    size_t n = 0;
    assert_int_equal(pipe(pipe_of), 0);
    fflush(NULL);
    const pid_t child = fork();
    if (!child) {
        dup2(pipe_of[1], 2);
        close(pipe_of[0]);
        static const int faults[] = {SIGSEGV, SIGABRT, SIGILL, SIGFPE, SIGBUS};
        for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
            signal(faults[i], SIG_DFL);
        for (; settings && *settings; settings++)
            putenv((char *)*settings);
        fn(arg);
        _exit(0);
    }
    close(pipe_of[1]);
    for (ssize_t got = 1; got > 0 && n < sizeof rig_text - 1; n += (size_t)got)
        if ((got = read(pipe_of[0], rig_text + n, sizeof rig_text - 1 - n)) < 0)
            break;
    rig_text[n] = 0;
    close(pipe_of[0]);
    waitpid(child, &status, 0);
    return status;
}
static inline int rig_run_seed(void (*fn)(int), int arg, int seed)
{
    char text[40];
    snprintf(text, sizeof text, "FAKE_CUDA_SEED=%d", seed);
    const char *const settings[] = {text, NULL};
    return rig_run(fn, arg, settings);
}
static inline void rig_expect_right(void (*fn)(int), int arg)
{
    for (int seed = 0; seed < 8; seed++)
        if (rig_run_seed(fn, arg, seed))
            fail_msg("seed %d, case %d: %s", seed, arg, rig_text);
}
/* The child ends by the signal and says text. */
static inline void rig_expect_fault(void (*fn)(int), int arg, const char *const *settings,
                                    int signal, const char *text)
{
    const int status = rig_run(fn, arg, settings);
    if (!WIFSIGNALED(status) || WTERMSIG(status) != signal || !strstr(rig_text, text))
        fail_msg("case %d: status %x, not signal %d with \"%s\": %s", arg, (unsigned)status, signal,
                 text, rig_text);
}
/* At least `least` of 8 seeds find the mistake: a check of the child fails, or it faults. */
static inline void rig_expect_found(void (*fn)(int), int arg, int least)
{
    int found = 0;
    for (int seed = 0; seed < 8; seed++)
        found += rig_run_seed(fn, arg, seed) != 0;
    if (found < least)
        fail_msg("case %d: %d of 8 seeds find the mistake, not %d", arg, found, least);
}

/* ---- in a child ---- */
typedef struct rig {
    void *context, *stream, *library;
} rig;

static inline rig rig_open(void)
{
    rig r = {NULL, NULL, NULL};
    fake_load();
    OK(fake.cuInit(0));
    OK(fake.cuDevicePrimaryCtxRetain(&r.context, 0));
    OK(fake.cuCtxSetCurrent(r.context));
    OK(fake.cuStreamCreateWithPriority(&r.stream, 1, 0));
    return r;
}
/* The kernels of tests/fake/selftest.cu. */
static inline void rig_load(rig *r)
{
    char path[4096];
    const char *build = getenv("BUILD");
    snprintf(path, sizeof path, "%s/tests/fake/selftest.so", build ? build : "build/release");
    FILE *f = fopen(path, "rb");
    CHECK(f);
    fseek(f, 0, SEEK_END);
    const size_t n = (size_t)ftell(f);
    char *image = malloc(n);
    rewind(f);
    CHECK(image && fread(image, 1, n, f) == n);
    fclose(f);
    OK(fake.cuLibraryLoadData(&r->library, image, NULL, NULL, 0, NULL, NULL, 0));
    free(image);
}
static inline void *rig_kernel(const rig *r, const char *name)
{
    void *k = NULL;
    OK(fake.cuLibraryGetKernel(&k, r->library, name));
    return k;
}
/* Device memory that holds a copy of host memory, or NaN where `from` is NULL. */
static inline void *rig_device(const void *from, size_t n)
{
    void *p = NULL;
    OK(fake.cuMemAlloc_v2(&p, n));
    if (from)
        OK(fake.cuMemcpyHtoD_v2(p, from, n));
    return p;
}
static inline void *rig_pinned(size_t n)
{
    void *p = NULL;
    OK(fake.cuMemHostAlloc(&p, n, 0));
    return p;
}
static inline int rig_launch(const rig *r, const char *kernel, unsigned grid_x, unsigned grid_y,
                             unsigned threads, unsigned shared, void **parameters)
{
    return fake.cuLaunchKernel(rig_kernel(r, kernel), grid_x, grid_y, 1, threads, 1, 1, shared,
                               r->stream, parameters, NULL);
}

#endif
