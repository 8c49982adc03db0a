/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "../../plugins/backends/cuda/lib.c"
#include <sys/stat.h>

/* The search for NVIDIA's libraries: the order of the places, and what the error says. */

#define WHEEL "lib/python3.11/site-packages/nvidia"
static char root[512];
static const char *const names[] = {"libwhich.so.13", "libwhich.so.12", NULL};

static char *at(const char *path) /* below root; of the last four calls */
{
    static char paths[4][700];
    static int n;
    char *p = paths[n++ % 4];
    snprintf(p, sizeof paths[0], "%s/%s", root, path);
    return p;
}

static void run(const char *fmt, ...)
{
    char command[3000];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(command, sizeof command, fmt, ap);
    va_end(ap);
    if (system(command) != 0)
        fail_msg("%s", command);
}

/* A library root/folder/name whose function `which` returns number. */
static void make_lib(const char *folder, const char *name, int number)
{
    run("mkdir -p '%s' && cd '%s' && echo 'int which(void); int which(void) { return %d; }' | "
        "${CC:-gcc} -shared -fPIC -x c - -o '%s'",
        at(folder), at(folder), number, name);
}

static int setup(void **state)
{
    (void)state;
    const char *tmp = getenv("TMPDIR");
    snprintf(root, sizeof root, "%s/lib.XXXXXX", tmp ? tmp : "/tmp");
    if (!mkdtemp(root))
        return -1;
    setenv("CUDA_HOME", at("home"), 1);
    setenv("CUDA_PATH", at("path"), 1);
    setenv("VIRTUAL_ENV", at("venv"), 1);
    setenv("CONDA_PREFIX", at("conda"), 1);
    setenv("HOME", at("user"), 1);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    run("rm -rf '%s'", root);
    return 0;
}

static int found(const char *folder)
{
    cuda_lib lib;
    tt_error e;
    int (*which)(void) = NULL;
    if (cuda_lib_open(folder, "which", names, &lib, &e) != TT_OK)
        return -1;
    assert_int_equal(cuda_lib_symbol(&lib, "which", &which, &e), TT_OK);
    assert_non_null(strstr(lib.path, "libwhich.so.1"));
    return which();
}

/* Each place is before those that had a library until now. */
static void test_the_places_have_an_order(void **state)
{
    (void)state;
    assert_int_equal(found(NULL), -1);
    make_lib("user/.local/" WHEEL "/which/lib", "libwhich.so.13", 1);
    assert_int_equal(found(NULL), 1);
    make_lib("conda/" WHEEL "/which/lib", "libwhich.so.13", 2);
    assert_int_equal(found(NULL), 2);
    make_lib("venv/" WHEEL "/which/lib", "libwhich.so.13", 3);
    assert_int_equal(found(NULL), 3);
    make_lib("venv/" WHEEL "/other/lib", "libwhich.so.13", 30);
    assert_int_equal(found(NULL), 3);
    make_lib("venv/" WHEEL "/cu13/lib", "libwhich.so.13", 4);
    assert_int_equal(found(NULL), 4);
    make_lib("path/lib64", "libwhich.so.12", 5); /* an older version in an earlier place */
    assert_int_equal(found(NULL), 5);
    make_lib("home/lib64", "libwhich.so.12", 6);
    assert_int_equal(found(NULL), 6);
    make_lib("home/lib64", "libwhich.so.13", 7);
    assert_int_equal(found(NULL), 7);
    make_lib("folder", "libwhich.so.12", 8);
    assert_int_equal(found(at("folder")), 8);
    assert_int_equal(found(at("nowhere")), 7);
    assert_int_equal(found(""), 7);
}

static void test_the_python_of_PATH_is_searched(void **state)
{
    (void)state;
    char *old = strdup(getenv("PATH"));
    unsetenv("VIRTUAL_ENV");
    setenv("CUDA_HOME", at("none"), 1);
    setenv("CUDA_PATH", at("none"), 1);
    setenv("CONDA_PREFIX", "", 1);
    make_lib("base/" WHEEL "/which/lib", "libwhich.so.13", 20);
    run("mkdir -p '%s/base/bin' '%s/env/bin' && : >'%s/base/bin/python3.11' && "
        "chmod +x '%s/base/bin/python3.11' && ln -s ../../base/bin/python3.11 '%s/env/bin/python3'",
        root, root, root, root, root);
    char longest[PATH_MAX + 100], path[12000];
    run("mkdir '%s'", at("none"));
    snprintf(longest, sizeof longest, "%s", at("none")); /* cut, it would be a folder */
    for (size_t n = strlen(longest); n + 2 < sizeof longest; n += 2)
        strcpy(longest + n, "/.");
    snprintf(path, sizeof path, "%s::%s:%s:%s", at("no bin"), longest, at("env/bin"), old);
    setenv("PATH", path, 1);
    assert_int_equal(found(NULL), 20); /* of the python that the link leads to */
    make_lib("env/" WHEEL "/which/lib", "libwhich.so.13", 21);
    assert_int_equal(found(NULL), 21); /* of the link's own environment */
    setenv("PATH", old, 1);
    free(old);
    setup(state);
}

static void test_a_folder_with_a_driver_is_searched_alone(void **state)
{
    (void)state;
    tt_error e;
    cuda_lib lib;
    make_lib("home/lib64", "libwhich.so.13", 7);
    setenv("CUDA_HOME", at("home"), 1);
    make_lib("alone", "libcuda.so.1", 9);
    assert_int_equal(cuda_lib_open(at("alone"), "which", names, &lib, &e), TT_ENOTFOUND);
    assert_non_null(strstr(e.text, "libwhich.so.13 or libwhich.so.12 was not found"));
    assert_non_null(strstr(e.text, at("alone")));
    assert_null(strstr(e.text, "CUDA_HOME"));
}

static void test_the_error_says_what_was_searched(void **state)
{
    (void)state;
    static const char *const absent[] = {"libabsent-tt.so.13", NULL};
    static const char *const driver[] = {"libabsent-tt.so.1", NULL};
    tt_error e;
    cuda_lib lib = {.path = "untouched"};
    assert_int_equal(cuda_lib_open(at("folder"), "which", absent, &lib, &e), TT_ENOTFOUND);
    assert_string_equal(lib.path, "untouched");
    for (const char *const *p = (const char *const[]){"libabsent-tt.so.13", "backend.libraries",
                                                      "$CUDA_HOME/lib64", "ld.so", NULL};
         *p; p++)
        assert_non_null(strstr(e.text, *p));
    assert_int_equal(cuda_lib_open(NULL, NULL, driver, &lib, &e), TT_ENOTFOUND);
    assert_non_null(strstr(e.text, "ld.so"));
    assert_null(strstr(e.text, "CUDA_HOME")); /* its folder has stubs of the driver, or nothing */
}

static void test_a_file_that_does_not_open_is_named(void **state)
{
    (void)state;
    static const char *const bad[] = {"libbroken-tt.so.13", NULL};
    tt_error e;
    cuda_lib lib;
    run("mkdir -p '%s' && echo no library >'%s'", at("folder"), at("folder/libbroken-tt.so.13"));
    assert_int_equal(cuda_lib_open(at("folder"), "which", bad, &lib, &e), TT_ENOTFOUND);
    assert_non_null(strstr(e.text, "cannot be taken"));
    assert_non_null(strstr(e.text, at("folder/libbroken-tt.so.13")));
}

static int found_new(const char *oldest, tt_error *e)
{
    cuda_lib lib;
    int (*which)(void) = NULL;
    if (cuda_lib_open_new(NULL, "which", names, oldest, &lib, e) != TT_OK)
        return -1;
    assert_int_equal(cuda_lib_symbol(&lib, "which", &which, e), TT_OK);
    return which();
}

/* The name that a link leads to tells a version; an old file in an early place hides no newer one. */
static void test_an_old_file_is_passed_over(void **state)
{
    tt_error e = {0};
    run("rm -rf '%s'/*", root);
    setup(state);
    make_lib("home/lib64", "libwhich.so.13.14.2", 30);
    run("ln -s libwhich.so.13.14.2 '%s'", at("home/lib64/libwhich.so.13"));
    assert_int_equal(found_new("13.14.2", &e), 30);
    assert_int_equal(found_new("13.9.15", &e), 30); /* numbers, not letters */
    assert_int_equal(found_new(NULL, &e), 30);
    assert_int_equal(found_new("13.14.10", &e), -1);
    assert_non_null(strstr(e.text, "is older than 13.14.10"));
    make_lib("venv/" WHEEL "/which/lib", "libwhich.so.13", 31); /* names no version: taken */
    assert_int_equal(found_new("13.14.10", &e), 31);
    assert_int_equal(found_new("13.14.2", &e), 30);
}

static void test_a_missing_function_is_named(void **state)
{
    (void)state;
    tt_error e;
    cuda_lib lib;
    void *f = NULL;
    make_lib("functions", "libwhich.so.13", 1);
    assert_int_equal(cuda_lib_open(at("functions"), "which", names, &lib, &e), TT_OK);
    assert_string_equal(lib.path, at("functions/libwhich.so.13"));
    assert_int_equal(cuda_lib_symbol(&lib, "absent", &f, &e), TT_EUNSUPPORTED);
    assert_null(f);
    assert_non_null(strstr(e.text, "has no function absent"));
    assert_non_null(strstr(e.text, lib.path));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_places_have_an_order),
        cmocka_unit_test(test_the_python_of_PATH_is_searched),
        cmocka_unit_test(test_a_folder_with_a_driver_is_searched_alone),
        cmocka_unit_test(test_the_error_says_what_was_searched),
        cmocka_unit_test(test_a_file_that_does_not_open_is_named),
        cmocka_unit_test(test_an_old_file_is_passed_over),
        cmocka_unit_test(test_a_missing_function_is_named),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
