/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "cuda/no_families.h"

#include "../../plugins/backends/cuda/cache.c"
#include "../../plugins/backends/cuda/chip.c"
#include "../../plugins/backends/cuda/cuda.c"
#include "../../plugins/backends/cuda/device.c"
#include "../../plugins/backends/cuda/driver.c"
#include "../../plugins/backends/cuda/files.c"
#include "../../plugins/backends/cuda/launch.c"
#include "../../plugins/backends/cuda/lib.c"
#include "../../plugins/backends/cuda/module.c"
#include "../../plugins/backends/cuda/rtc.c"
#include <sys/wait.h>

/* Where the machine code of kernels comes from: embedded, or by NVRTC, or an error that says what is
 * missing. Each case is a process of its own, because the choice is the process's. */

static const char text[] = "#include \"dialect.h\"\n"
                           "TT_KERNEL(32, ladder, float *y) { y[threadIdx.x] = 1.0f; }\n";
static const char code[256] = "a fatbin";
static char dialect[1 << 16];
const cuda_embedded cuda_embedded_kernels[] = {
    {"ladder", text, code, code + sizeof code},
    {0   }
};
const cuda_embedded cuda_embedded_headers[] = {
    {"dialect.h", dialect, NULL, NULL},
    {0      }
};

static char folder[600];

static int setup(void **state)
{
    char path[1400];
    const char *tmp = getenv("TMPDIR"), *src = getenv("SRC"), *build = getenv("BUILD");
    (void)state;
    snprintf(folder, sizeof folder, "%s/ladder.XXXXXX", tmp ? tmp : "/tmp");
    snprintf(path, sizeof path, "%s/plugins/backends/cuda/kernels/dialect.h", src ? src : ".");
    FILE *f = fopen(path, "r");
    if (!f || !mkdtemp(folder))
        return -1;
    dialect[fread(dialect, 1, sizeof dialect - 1, f)] = '\0';
    fclose(f);
    /* fake/lib: all; alone: a driver without NVRTC; kernels: what stands for embedded code */
    const char *b = build ? build : "build/release";
    snprintf(
        path, sizeof path,
        "cd '%s' && mkdir alone kernels && ln -s \"$(realpath '%s/tests/fake/lib')\" lib && "
        "ln -s ../lib/libcuda.so.1 alone/ && ln -s \"$(realpath '%s/tests/fake/selftest.so')\" "
        "kernels/",
        folder, b, b);
    if (system(path) != 0)
        return -1;
    return 0;
}

static int teardown(void **state)
{
    char command[700];
    (void)state;
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command);
}

/* Opens the backend in another process. words: of the error; NULL: it opens and describes itself with
 * `how`. */
static void expect(const char *libraries, const char *kernel_code, const char *failure,
                   const char *how, const char *words)
{
    const pid_t child = fork();
    if (child == 0) {
        char path[700], kernels[700], cache[700], said[300] = "";
        snprintf(path, sizeof path, "%s/%s", folder, libraries);
        snprintf(kernels, sizeof kernels, "%s/kernels", folder);
        snprintf(cache, sizeof cache, "%s/cache", folder);
        setenv("FAKE_CUDA_KERNELS", kernels, 1);
        setenv("FAKE_CUDA_FAIL", failure, 1);
        const cuda_config config = {
            .libraries = path, .cache = cache, .device = -1, .kernel_code = kernel_code};
        const tt_backend_env env = {
            .struct_size = sizeof env, .n_threads = 1, .world = 1, .local_world = 1};
        tt_error e = {0};
        void *self = NULL;
        const tt_status s = cuda_vt.open(&config, &env, &self, &e);
        if (s == TT_OK)
            cuda_vt.describe(self, said, sizeof said);
        const bool ok =
            words ? s != TT_OK && strstr(e.text, words) : s == TT_OK && strstr(said, how);
        if (!ok)
            print_message("# %s, %s, \"%s\": %s %s\n", libraries, kernel_code, failure, said,
                          e.text);
        _exit(ok ? 0 : 1);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static void test_embedded_code_is_taken_without_NVRTC(void **state)
{
    (void)state;
    expect("alone", "auto", "", "kernels embedded", NULL);
    expect("alone", "embedded", "", "kernels embedded", NULL);
    expect("lib", "auto", "", "kernels embedded", NULL);
}

static void test_NVRTC_compiles_what_the_driver_does_not_take(void **state)
{
    (void)state;
    expect("lib", "auto", "cuLibraryGetModule:*=209", "kernels by NVRTC 13.0", NULL);
    expect("lib", "auto", "cuLibraryLoadData:1=222", "kernels by NVRTC 13.0", NULL);
    expect("lib", "nvrtc", "", "kernels by NVRTC 13.0", NULL);
}

static void test_the_error_says_what_is_missing(void **state)
{
    (void)state;
    expect("alone", "nvrtc", "", NULL, "libnvrtc.so.13 or libnvrtc.so.12 was not found");
    expect("alone", "auto", "cuLibraryGetModule:*=209", NULL, "libnvrtc.so.13");
    expect("lib", "embedded", "cuLibraryGetModule:*=209", NULL, "CUDA error 209");
    expect("lib", "auto", "cuDevicePrimaryCtxRetain:1=2", NULL,
           "cuDevicePrimaryCtxRetain of device 0");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_embedded_code_is_taken_without_NVRTC),
        cmocka_unit_test(test_NVRTC_compiles_what_the_driver_does_not_take),
        cmocka_unit_test(test_the_error_says_what_is_missing),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
