/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "../../plugins/backends/cuda/cache.c"
#include "../../plugins/backends/cuda/lib.c"
#include "../../plugins/backends/cuda/rtc.c"
#include "tier.h"
#include <ttrun/option.h>

/* NVIDIA's NVRTC, where it is installed, compiles every file of kernels/ as it is embedded in the plugin,
 * without a GPU and without NVIDIA's headers. Those that have compiled before stand with half of their key (cuda_rtc_key) in
 * tests/cuda/rtc_compiled.list, and only others are compiled. TEST_LONG: every one, for every chip.
 * TT_RTC_WRITE=1: writes the list, once every file that it does not have has compiled. */

static bool is_here(void)
{
    tt_error e = {0};
    if (cuda_rtc_open(NULL, 13000, &e) == TT_OK)
        return true;
    assert_int_equal(e.code, TT_EUNSUPPORTED);
    print_message("# skipped: %s\n", e.text);
    return false;
}

enum { LISTED_CHIP = 120, MOST_LISTED = 256 };

static struct {
    uint64_t keys[MOST_LISTED];
    int n;
} listed;

static const char *list_path(void)
{
    static char path[4096];
    const char *src = getenv("SRC");
    snprintf(path, sizeof path, "%s/tests/cuda/rtc_compiled.list", src ? src : ".");
    return path;
}

/* A list that is not there is empty. */
static void read_list(void)
{
    FILE *f = fopen(list_path(), "r");
    char line[256];
    listed.n = 0;
    while (f && fgets(line, sizeof line, f) && listed.n < MOST_LISTED)
        if (line[0] != '#')
            listed.keys[listed.n++] = strtoull(line, NULL, 16);
    if (f)
        fclose(f);
}

static bool is_listed(const cuda_embedded *k, int sm)
{
    const uint64_t key = cuda_rtc_key(k->text, sm).lo;
    for (int i = 0; i < listed.n; i++)
        if (listed.keys[i] == key)
            return true;
    return false;
}

static void write_list(void)
{
    FILE *f = fopen(list_path(), "w");
    assert_non_null(f);
    fprintf(f,
            "# SPDX-License-Identifier: Apache-2.0\n"
            "# Kernels that NVRTC %d.%d has compiled for sm_%d, by their keys.\n"
            "# TT_RTC_WRITE=1 make test-cuda T=test_rtc writes it.\n",
            cuda_rtc_version() / 1000, cuda_rtc_version() % 1000 / 10, LISTED_CHIP);
    for (const cuda_embedded *k = cuda_embedded_kernels; k->name; k++)
        fprintf(f, "%016llx %s\n", (unsigned long long)cuda_rtc_key(k->text, LISTED_CHIP).lo,
                k->name);
    assert_int_equal(fclose(f), 0);
}

typedef struct work {
    int sm, next, n_failed, n_compiled;
} work;

static void *compile_some(void *arg)
{
    work *w = arg;
    for (;;) {
        const int i = __atomic_fetch_add(&w->next, 1, __ATOMIC_RELAXED);
        int at = 0;
        while (at < i && cuda_embedded_kernels[at].name)
            at++;
        if (!cuda_embedded_kernels[at].name)
            return NULL;
        if (!is_long() && is_listed(&cuda_embedded_kernels[at], w->sm))
            continue;
        tt_error e = {0};
        cuda_code code = {0};
        __atomic_fetch_add(&w->n_compiled, 1, __ATOMIC_RELAXED);
        if (cuda_rtc_compile(cuda_embedded_kernels[at].name, cuda_embedded_kernels[at].text, w->sm,
                             &code, &e) != TT_OK) {
            print_message("# sm_%d: %s\n", w->sm, e.text);
            __atomic_fetch_add(&w->n_failed, 1, __ATOMIC_RELAXED);
        }
        free(code.data);
    }
}

static void test_every_kernel_compiles(void **test)
{
    static const int chips[] = {LISTED_CHIP, 80, 86, 90, 100};
    const bool more = is_long();
    (void)test;
    if (!is_here())
        skip();
    read_list();
    for (size_t i = 0; i < (more ? TT_COUNT(chips) : 1); i++) {
        work w = {.sm = chips[i]};
        pthread_t other;
        assert_int_equal(pthread_create(&other, NULL, compile_some, &w), 0);
        compile_some(&w);
        pthread_join(other, NULL);
        assert_int_equal(w.n_failed, 0);
        if (w.n_compiled && !more)
            print_message("# %d files were compiled that tests/cuda/rtc_compiled.list does not "
                          "have: TT_RTC_WRITE=1 writes it\n",
                          w.n_compiled);
    }
    if (getenv("TT_RTC_WRITE"))
        write_list();
}

static void test_a_chip_that_NVRTC_does_not_know_gets_PTX(void **test)
{
    static const char text[] = "#include \"dialect.h\"\n"
                               "TT_KERNEL(32, one, float *y) { y[threadIdx.x] = 1.0f; }\n";
    char options[160];
    cuda_code code = {0};
    tt_error e = {0};
    (void)test;
    if (!is_here())
        skip();
    cuda_rtc_options(90, options, sizeof options);
    assert_string_equal(options, "--gpu-architecture=sm_90 --std=c++17 --fmad=false");
    assert_int_equal(cuda_rtc_compile("one", text, 90, &code, &e), TT_OK);
    assert_memory_equal(code.data, "\177ELF", 4);
    free(code.data);
    cuda_rtc_options(999, options, sizeof options);
    assert_non_null(strstr(options, "--gpu-architecture=compute_"));
    assert_int_equal(cuda_rtc_compile("one", text, 999, &code, &e), TT_OK);
    assert_non_null(strstr(code.data, ".visible .entry one"));
    assert_int_equal(((char *)code.data)[code.bytes - 1], 0);
    free(code.data);
}

static void test_an_error_has_NVRTCs_words(void **test)
{
    cuda_code code = {0};
    tt_error e = {0};
    (void)test;
    if (!is_here())
        skip();
    assert_int_equal(cuda_rtc_compile("wrong",
                                      "#include \"dialect.h\"\nint f() { return no_such; }", 80,
                                      &code, &e),
                     TT_EINTERNAL);
    assert_non_null(strstr(e.text, "does not compile wrong"));
    assert_non_null(strstr(e.text, "\"no_such\" is undefined"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_kernel_compiles),
        cmocka_unit_test(test_a_chip_that_NVRTC_does_not_know_gets_PTX),
        cmocka_unit_test(test_an_error_has_NVRTCs_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
