/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "plugin/internal.h"
#include <glob.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* What is read from a plugin's bytes is what it has once it is loaded; damaged bytes are read without
 * harm. PLUGINS: the built plugins; the runner sets it. */

static char *plugin_glob(void)
{
    const char *plugins = getenv("PLUGINS");
    char *pattern = NULL;
    assert_true(asprintf(&pattern, "%s/*/*.so", plugins ? plugins : "plugins") > 0);
    return pattern;
}

static void test_peek_sees_what_loading_finds(void **state)
{
    (void)state;
    char *pattern = plugin_glob();
    glob_t g;
    tt_error err = {0};
    assert_int_equal(glob(pattern, 0, NULL, &g), 0);
    assert_true(g.gl_pathc > 20);
    assert_int_equal(tt_plugin_loader_begin(&err), TT_OK);
    for (size_t i = 0; i < g.gl_pathc; i++) {
        tt_arena *a = tt_arena_new();
        tt_mapping m;
        tt_peek *has = NULL;
        size_t n = 0;
        tt_loaded l;
        assert_int_equal(tt_map_file(g.gl_pathv[i], &m, &err), TT_OK);
        if (!tt_plugin_peek(m.p, m.n, a, &has, &n))
            fail_msg("%s: not read", g.gl_pathv[i]);
        tt_unmap_file(&m);
        if (tt_plugin_open(g.gl_pathv[i], NULL, &l, &err) != TT_OK)
            fail_msg("%s", err.text);
        assert_int_equal(n, l.plugin->n_components);
        for (size_t k = 0; k < n; k++) {
            assert_int_equal(has[k].kind, tt_component_at(l.plugin, k)->kind);
            assert_string_equal(has[k].name, tt_component_at(l.plugin, k)->name);
        }
        tt_plugin_close(&l);
        tt_arena_free(a);
    }
    tt_plugin_loader_end();
    globfree(&g);
    free(pattern);
}

/* The headers, the dynamic section and the tables are hit far more often than by chance alone. */
static void test_peek_survives_damage(void **state)
{
    (void)state;
    enum { ROUNDS = 20000 };
    char *pattern = plugin_glob();
    glob_t g;
    tt_error err = {0};
    tt_mapping m;
    uint32_t seed = 1;
    size_t read = 0;
    assert_int_equal(glob(pattern, 0, NULL, &g), 0);
    assert_int_equal(tt_map_file(g.gl_pathv[g.gl_pathc / 2], &m, &err), TT_OK);
    for (int i = 0; i < ROUNDS; i++) {
        seed = seed * 1664525 + 1013904223;
        const size_t n = i % 4 ? m.n : (seed >> 8) % m.n; /* each fourth is cut off */
        unsigned char *copy = malloc(n ? n : 1);          /* so that a sanitizer sees its end */
        assert_non_null(copy);
        memcpy(copy, m.p, n);
        for (int k = 0; k < 1 + i % 16 && n; k++) {
            seed = seed * 1664525 + 1013904223;
            const size_t room = k % 2 ? n : TT_MIN(n, (size_t)4096);
            copy[(seed >> 8) % room] = (unsigned char)(seed >> 3);
        }
        tt_arena *a = tt_arena_new();
        tt_peek *has = NULL;
        size_t n_has = 0;
        if (tt_plugin_peek(copy, n, a, &has, &n_has)) {
            read++;
            for (size_t k = 0; k < n_has; k++)
                assert_true(strlen(has[k].name) <= 64);
        }
        tt_arena_free(a);
        free(copy);
    }
    assert_true(read > 100 && read < ROUNDS);
    tt_unmap_file(&m);
    globfree(&g);
    free(pattern);
}

static void test_peek_refuses_what_is_no_plugin(void **state)
{
    (void)state;
    tt_arena *a = tt_arena_new();
    tt_peek *has = NULL;
    size_t n = 0;
    tt_mapping m;
    tt_error err = {0};
    assert_false(tt_plugin_peek((const unsigned char *)"", 0, a, &has, &n));
    assert_false(tt_plugin_peek((const unsigned char *)"\177ELF", 4, a, &has, &n));
    assert_int_equal(tt_map_file("/proc/self/exe", &m, &err), TT_OK); /* ELF, but no plugin */
    assert_false(tt_plugin_peek(m.p, m.n, a, &has, &n));
    tt_unmap_file(&m);
    tt_arena_free(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_peek_sees_what_loading_finds),
        cmocka_unit_test(test_peek_survives_damage),
        cmocka_unit_test(test_peek_refuses_what_is_no_plugin),
    };
    tt_log_setup(TT_ERROR, 0, 1, false);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
