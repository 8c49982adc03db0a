/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "../../plugins/backends/cuda/cache.c"
#include <sys/wait.h>

/* The folder of compiled kernels: what is read is what was written under this key, or nothing. */

static char folder[600];

static int setup(void **state)
{
    (void)state;
    const char *tmp = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%s/cache.XXXXXX", tmp ? tmp : "/tmp");
    if (!mkdtemp(folder))
        return -1;
    strcat(folder, "/a/b"); /* the writer makes it */
    return 0;
}

static cuda_key key_of(const char *text)
{
    return cuda_key_of(&text, 1);
}

/* The code under key, as a malloc'ed string; NULL: none. */
static char *read_code(cuda_key key)
{
    cuda_code c;
    if (!cuda_cache_read(folder, key, &c))
        return NULL;
    assert_int_equal(strlen(c.data), c.bytes); /* a zero follows, for PTX */
    return c.data;
}

static void write_code(cuda_key key, const char *code)
{
    const cuda_code c = {(void *)(uintptr_t)code, strlen(code)};
    cuda_cache_write(folder, key, &c);
}

static void expect_code(cuda_key key, const char *want)
{
    char *got = read_code(key);
    if (want)
        assert_string_equal(got, want);
    else
        assert_null(got);
    free(got);
}

static void test_the_key_depends_on_each_text_and_its_end(void **state)
{
    (void)state;
    const cuda_key a = cuda_key_of((const char *const[]){"ab", "c"}, 2);
    const cuda_key same = cuda_key_of((const char *const[]){"ab", "c"}, 2);
    const cuda_key other = cuda_key_of((const char *const[]){"a", "bc"}, 2);
    const cuda_key less = cuda_key_of((const char *const[]){"ab"}, 1);
    assert_memory_equal(&a, &same, sizeof a);
    assert_memory_not_equal(&a, &other, sizeof a);
    assert_memory_not_equal(&a, &less, sizeof a);
}

static void test_what_was_written_is_read(void **state)
{
    (void)state;
    const cuda_key a = key_of("a"), b = key_of("b");
    expect_code(a, NULL);
    write_code(a, "the code of a");
    write_code(b, "");
    expect_code(a, "the code of a");
    expect_code(b, "");
    write_code(a, "newer");
    expect_code(a, "newer");
}

/* Every byte of the file changed, and every shorter file. */
static void test_damage_is_found(void **state)
{
    (void)state;
    const cuda_key key = key_of("damaged");
    char path[PATH_MAX], bytes[256];
    write_code(key, "some code");
    assert_true(cache_path(folder, key, path, sizeof path));
    FILE *f = fopen(path, "rb");
    const size_t n = fread(bytes, 1, sizeof bytes, f);
    fclose(f);
    assert_int_equal(n, sizeof(head) + 9);
    for (size_t i = 0; i <= 2 * n; i++) {
        const size_t length = i < n ? n : 2 * n - i;
        if (i < n)
            bytes[i] ^= 1;
        f = fopen(path, "wb");
        assert_int_equal(fwrite(bytes, 1, length, f), length);
        fclose(f);
        if (i < n)
            bytes[i] ^= 1;
        expect_code(key, length == n && i >= n ? "some code" : NULL);
    }
    write_code(key, "made again");
    expect_code(key, "made again");
}

static void test_anothers_entry_is_not_taken(void **state)
{
    (void)state;
    char mine[PATH_MAX], other[PATH_MAX];
    write_code(key_of("other"), "code for something else");
    assert_true(cache_path(folder, key_of("other"), other, sizeof other));
    assert_true(cache_path(folder, key_of("mine"), mine, sizeof mine));
    assert_int_equal(rename(other, mine), 0);
    expect_code(key_of("mine"), NULL);
}

static void test_a_folder_that_cannot_be_written_is_no_error(void **state)
{
    (void)state;
    const cuda_code c = {"x", 1};
    cuda_code got;
    cuda_cache_write("/proc/nowhere/at/all", key_of("x"), &c);
    assert_false(cuda_cache_read("/proc/nowhere/at/all", key_of("x"), &got));
    cuda_cache_write("", key_of("x"), &c);
    assert_false(cuda_cache_read("", key_of("x"), &got));
}

static void test_the_folder_is_the_users(void **state)
{
    (void)state;
    char path[PATH_MAX];
    setenv("HOME", "/home/me", 1);
    setenv("XDG_CACHE_HOME", "/xdg", 1);
    cuda_cache_folder("/named", path, sizeof path);
    assert_string_equal(path, "/named");
    cuda_cache_folder(NULL, path, sizeof path);
    assert_string_equal(path, "/xdg/ttrun/cubin");
    unsetenv("XDG_CACHE_HOME");
    cuda_cache_folder("", path, sizeof path);
    assert_string_equal(path, "/home/me/.cache/ttrun/cubin");
    unsetenv("HOME");
    cuda_cache_folder(NULL, path, sizeof path);
    assert_string_equal(path, "");
}

/* Two processes write one key with codes of two lengths while a third reads. */
static void test_a_reader_never_sees_a_part(void **state)
{
    (void)state;
    enum { SIZE = 1 << 16, TIMES = 300 };
    static char code[2][SIZE + 1];
    const cuda_key key = key_of("shared");
    memset(code[0], 'a', SIZE);
    memset(code[1], 'b', SIZE / 2);
    write_code(key, code[0]);
    for (int w = 0; w < 2; w++)
        if (fork() == 0) {
            for (int i = 0; i < TIMES; i++)
                write_code(key, code[w]);
            _exit(0);
        }
    for (int i = 0; i < TIMES; i++) {
        char *got = read_code(key);
        assert_non_null(got);
        assert_true(strcmp(got, code[0]) == 0 || strcmp(got, code[1]) == 0);
        free(got);
    }
    for (int status, i = 0; i < 2; i++) {
        wait(&status);
        assert_int_equal(status, 0);
    }
    char command[700]; /* no half-written file is left */
    snprintf(command, sizeof command, "test -z \"$(ls -A '%s' | grep new)\"", folder);
    assert_int_equal(system(command), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_key_depends_on_each_text_and_its_end),
        cmocka_unit_test(test_what_was_written_is_read),
        cmocka_unit_test(test_damage_is_found),
        cmocka_unit_test(test_anothers_entry_is_not_taken),
        cmocka_unit_test(test_a_folder_that_cannot_be_written_is_no_error),
        cmocka_unit_test(test_a_reader_never_sees_a_part),
        cmocka_unit_test(test_the_folder_is_the_users),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
