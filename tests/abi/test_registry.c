/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "folder_test.h"
#include "liars.h"
#include "plugin/internal.h"
#include "plugin/registry.h"
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

/* The plugins are built from liar.c into a folder of this test run. SRC is the checkout; the runner
 * sets it. */
static char *root;
static tt_arena *arena;

static char *path_in(const char *name)
{
    return tt_arena_printf(arena, "%s/%s", root, name);
}

static int shell(const char *fmt, ...) TT_PRINTF(1, 2);
static int shell(const char *fmt, ...)
{
    char *command = NULL;
    va_list ap;
    va_start(ap, fmt);
    assert_true(vasprintf(&command, fmt, ap) > 0);
    va_end(ap);
    int rc = system(command);
    free(command);
    return rc;
}

/* The checkout. */
static const char *source(void)
{
    const char *src = getenv("SRC");
    return src ? src : ".";
}

/* Builds liar.c with these flags as <root>/<name>. */
static void build(const char *name, const char *flags)
{
    const char *src = source();
    assert_int_equal(shell("mkdir -p \"$(dirname %s/%s)\" && cc -w -shared -fPIC -I%s/include %s "
                           "%s/tests/abi/liar.c -o %s/%s",
                           root, name, src, flags, src, root, name),
                     0);
}

static int set_up(void **state)
{
    char made[TEST_FOLDER];
    (void)state;
    arena = tt_arena_new();
    if (!test_folder("abi", made))
        return -1;
    root = tt_arena_str(arena, made);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    int rc = shell("rm -rf %s", root);
    tt_arena_free(arena);
    return rc;
}

static tt_registry *open_dirs(const char *first, const char *second)
{
    const char *dirs[2] = {first ? path_in(first) : NULL, second ? path_in(second) : NULL};
    tt_registry_opts o = {.dirs = dirs, .n_dirs = second ? 2 : 1};
    tt_registry *r = NULL;
    tt_error err = {0};
    assert_int_equal(tt_registry_new(&o, &r, &err), TT_OK);
    return r;
}

static void expect(const tt_error *err, const char *words)
{
    if (!strstr(err->text, words))
        fail_msg("expected \"%s\" in: %s", words, err->text);
    assert_null(strchr(err->text, '\n'));
}

/* ---- tests ---- */

static void test_load_accepts_a_correct_plugin(void **state)
{
    (void)state;
    build("good.so", "");
    build("kinds.so", "-DWITH_UNKNOWN_KIND");
    build("model.so", "-DLIE_KIND=TT_KIND_MODEL -DWITH_MODEL");
    static const char *const names[] = {"good.so", "kinds.so", "model.so"};
    mkdir(path_in("empty"), 0777);
    tt_registry *r = open_dirs("empty", NULL);
    for (size_t i = 0; i < 3; i++) {
        const tt_plugin *p = NULL;
        tt_error err = {0};
        char *path = path_in(names[i]);
        if (tt_registry_load_file(r, path, &p, &err) != TT_OK)
            fail_msg("%s", err.text);
        assert_string_equal(p->name, "liar");
    }
    tt_registry_free(r);
}

/* A swap of converters asks for every part again, and the registry lives as long as the run. */
static void test_find_takes_no_memory_again(void **state)
{
    (void)state;
    build("again/lr_schedulers/good.so", "");
    tt_registry *r = open_dirs("again", NULL);
    size_t used = 0;
    for (int i = 0; i < 3; i++) {
        const tt_component *c = NULL, **all;
        tt_error err = {0};
        size_t n;
        assert_int_equal(tt_registry_find(r, TT_KIND_LR_SCHEDULER, "liar", &c, &err), TT_OK);
        assert_int_equal(tt_registry_find(r, TT_KIND_LR_SCHEDULER, "lair", &c, &err), TT_ENOTFOUND);
        expect(&err, "did you mean \"liar\"");
        assert_int_equal(tt_registry_all(r, TT_KIND_LR_SCHEDULER, arena, &all, &n, NULL, &err),
                         TT_OK);
        tt_registry_refresh(r);
        if (i == 0)
            used = tt_arena_used(r->arena);
        assert_int_equal(tt_arena_used(r->arena), used);
    }
    tt_registry_free(r);
}

static void test_load_refuses_every_liar(void **state)
{
    (void)state;
    mkdir(path_in("empty"), 0777);
    tt_registry *r = open_dirs("empty", NULL);
    int wrong = 0;
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        char name[32];
        const tt_plugin *p = (const void *)1;
        tt_error err = {0};
        snprintf(name, sizeof name, "liar%zu.so", i);
        build(name, lies[i].flags);
        char *path = path_in(name);
        const bool loaded = tt_registry_load_file(r, path, &p, &err) == TT_OK;
        if (!loaded && p == (const void *)1 && strstr(err.text, lies[i].words) &&
            strncmp(err.text, path, strlen(path)) == 0)
            continue;
        wrong++;
        print_error("%s: expected \"%s: … %s\", seen: %s\n", lies[i].flags, path, lies[i].words,
                    loaded ? "it was loaded" : err.text);
    }
    assert_int_equal(wrong, 0);
    tt_registry_free(r);
}

static void write_file(const char *path, const char *p, size_t n)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(p, 1, n, f), n);
    fclose(f);
}

static void refuse(tt_registry *r, const char *path, const char *words)
{
    const tt_plugin *p = NULL;
    tt_error err = {0};
    assert_int_not_equal(tt_registry_load_file(r, path, &p, &err), TT_OK);
    expect(&err, words);
}

static void test_load_refuses_truncation_at_any_length(void **state)
{
    (void)state;
    char *text = NULL, *zeros, name[32];
    size_t n = 0;
    build("whole.so", "");
    assert_int_equal(tt_read_file(path_in("whole.so"), 0, &text, &n, NULL), TT_OK);
    zeros = calloc(1, n);
    mkdir(path_in("empty"), 0777);
    tt_registry *r = open_dirs("empty", NULL);
    for (size_t i = 0; i < 120; i++) {
        size_t cut = i < 60 ? n * i / 60 : n - 1 - (i - 60) * 7;
        snprintf(name, sizeof name, "cut%zu.so", i);
        write_file(path_in(name), text, cut);
        refuse(r, path_in(name), name);
        memcpy(zeros, text, cut); /* a download that reserved its space first */
        memset(zeros + cut, 0, n - cut);
        snprintf(name, sizeof name, "zero%zu.so", i);
        write_file(path_in(name), zeros, n);
        const tt_plugin *p = NULL;
        tt_error err = {0};
        tt_registry_load_file(r, path_in(name), &p,
                              &err); /* must stay; one zero more or less may be chance */
    }
    tt_registry_free(r);
    free(text);
    free(zeros);
}

static void test_load_refuses_files_that_are_not_shared_objects(void **state)
{
    (void)state;
    mkdir(path_in("empty"), 0777);
    tt_registry *r = open_dirs("empty", NULL);
    write_file(path_in("empty.so"), "", 0);
    write_file(path_in("text.so"), "#!/bin/sh\n", 10);
    assert_int_equal(mkdir(path_in("folder.so"), 0777), 0);
    assert_int_equal(mkfifo(path_in("pipe.so"), 0666), 0);
    assert_int_equal(shell("echo 'int main(void){return 0;}' > %s/m.c && cc -no-pie %s/m.c -o "
                           "%s/program.so && cc -c %s/m.c -o %s/object.so",
                           root, root, root, root, root),
                     0);
    refuse(r, path_in("empty.so"), "the file is empty");
    refuse(r, path_in("text.so"), "no ELF file");
    refuse(r, path_in("folder.so"), "not a regular file");
    refuse(r, path_in("pipe.so"), "not a regular file");
    refuse(r, path_in("program.so"), "not a shared object");
    refuse(r, path_in("object.so"), "not a shared object");
    refuse(r, path_in("absent.so"), "No such file");
    tt_registry_free(r);
}

static void test_find_opens_only_what_it_needs(void **state)
{
    (void)state;
    const tt_component *c = NULL;
    tt_error err = {0};
    build("lazy/lr_schedulers/ramp.so", "-DNAME='\"ramp\"'");
    write_file(path_in("lazy/lr_schedulers/broken.so"), "no", 2);
    tt_registry *r = open_dirs("lazy", NULL);
    assert_int_equal(tt_registry_find(r, TT_KIND_LR_SCHEDULER, "ramp", &c, &err), TT_OK);
    assert_string_equal(c->name, "ramp");
    assert_non_null(strstr(tt_registry_file(r, c), "lazy/lr_schedulers/ramp.so"));
    assert_string_equal(tt_registry_version(r, c), "1.0");
    assert_int_not_equal(tt_registry_find(r, TT_KIND_LR_SCHEDULER, "broken", &c, &err), TT_OK);
    expect(&err, "lazy/lr_schedulers/broken.so: not a plugin");
    assert_int_not_equal(tt_registry_find(r, TT_KIND_LR_SCHEDULER, "rmap", &c, &err), TT_OK);
    expect(&err, "lr_scheduler \"rmap\" is unknown; did you mean \"ramp\"?");
    expect(&err, "broken.so");
    assert_int_not_equal(tt_registry_find(r, TT_KIND_MODEL, "ramp", &c, &err), TT_OK);
    expect(&err, "model \"ramp\" is unknown; there is none in");
    tt_registry_free(r);
}

static void test_find_sees_names_in_other_files(void **state)
{
    (void)state;
    const tt_component *c = NULL;
    tt_error err = {0};
    build("mine/collection.so", "-DNAME='\"ramp\"'");
    build("mine/models/odd.so", "-DNAME='\"misplaced\"'");
    tt_registry *r = open_dirs("mine", NULL);
    assert_int_equal(tt_registry_find(r, TT_KIND_LR_SCHEDULER, "ramp", &c, &err), TT_OK);
    assert_int_equal(tt_registry_find(r, TT_KIND_LR_SCHEDULER, "misplaced", &c, &err), TT_OK);
    tt_registry_free(r);
}

static void test_find_refuses_two_components_of_one_name(void **state)
{
    (void)state;
    const tt_component *c = NULL;
    tt_error err = {0};
    build("one/lr_schedulers/ramp.so", "-DNAME='\"ramp\"'");
    build("two/other.so", "-DNAME='\"ramp\"'");
    assert_int_equal(shell("ln -sf %s/one %s/two/link", root, root), 0);
    tt_registry *r = open_dirs("one", "two");
    assert_int_equal(tt_registry_find(r, TT_KIND_LR_SCHEDULER, "ramp", &c, &err), TT_EEXIST);
    expect(&err, "one/lr_schedulers/ramp.so");
    expect(&err, "two/other.so");
    tt_registry_free(r);

    assert_int_equal(shell("rm %s/two/other.so", root), 0);
    r = open_dirs("one", "two"); /* the link leads to the very same file: no duplicate */
    assert_int_equal(tt_registry_find(r, TT_KIND_LR_SCHEDULER, "ramp", &c, &err), TT_OK);
    tt_registry_free(r);
}

static void test_all_lists_and_reports_faults(void **state)
{
    (void)state;
    const tt_component **list = NULL;
    size_t n = 0;
    tt_str faults = {0};
    tt_error err = {0};
    tt_arena *a = tt_arena_new();
    build("all/a.so", "-DNAME='\"first\"'");
    build("all/b.so", "-DNAME='\"second\"'");
    build("all/c.so", "-DNAME='\"second\"'");
    write_file(path_in("all/d.so"), "no", 2);
    tt_registry *r = open_dirs("all", NULL);
    assert_int_equal(tt_registry_all(r, TT_KIND_LR_SCHEDULER, a, &list, &n, &faults, &err), TT_OK);
    assert_int_equal(n, 3);
    assert_string_equal(list[0]->name, "first");
    assert_non_null(strstr(faults.s, "all/d.so: not a plugin"));
    assert_non_null(strstr(faults.s, "lr_scheduler \"second\" is in both"));
    tt_str_free(&faults);
    tt_registry_free(r);
    tt_arena_free(a);
}

static void test_registry_refuses_unreadable_folders(void **state)
{
    (void)state;
    const char *dirs[] = {path_in("nowhere")};
    tt_registry_opts o = {.dirs = dirs, .n_dirs = 1};
    tt_registry *r = NULL;
    tt_error err = {0};
    assert_int_equal(tt_registry_new(&o, &r, &err), TT_ENOTFOUND);
    expect(&err, "nowhere: this plugin folder cannot be read: No such file");
    write_file(path_in("file"), "x", 1);
    dirs[0] = path_in("file");
    assert_int_not_equal(tt_registry_new(&o, &r, &err), TT_OK);
    expect(&err, "file: this plugin folder cannot be read");
    assert_null(r);
    setenv("TTRUN_PLUGIN_PATH", path_in("nowhere"), 1);
    o.n_dirs = 0;
    assert_int_not_equal(tt_registry_new(&o, &r, &err), TT_OK);
    expect(&err, "TTRUN_PLUGIN_PATH: ");
    unsetenv("TTRUN_PLUGIN_PATH");
}

static void test_load_survives_overwriting_the_file(void **state)
{
    (void)state;
    const char *dirs[] = {path_in("swap")};
    tt_registry_opts o = {.dirs = dirs, .n_dirs = 1, .private_dir = path_in("private/plugins")};
    tt_registry *r = NULL, *again = NULL;
    const tt_component *c = NULL, *d = NULL;
    tt_error err = {0};
    build("swap/ramp.so", "-DNAME='\"ramp\"'");
    assert_int_equal(tt_registry_new(&o, &r, &err), TT_OK);
    assert_int_equal(tt_registry_find(r, TT_KIND_LR_SCHEDULER, "ramp", &c, &err), TT_OK);
    assert_int_equal(shell("cat /dev/null > %s/swap/ramp.so", root),
                     0); /* in place: the inode stays */
    assert_string_equal(c->name, "ramp");
    build("swap/ramp.so", "-DNAME='\"ramp\"' -DLIE_DOC='\"the new one\"'");
    assert_int_equal(tt_registry_new(&o, &again, &err),
                     TT_OK); /* a swap: both are loaded at once */
    assert_int_equal(tt_registry_find(again, TT_KIND_LR_SCHEDULER, "ramp", &d, &err), TT_OK);
    assert_string_equal(c->doc, "a schedule for tests");
    assert_string_equal(d->doc, "the new one");
    tt_registry_free(r);
    assert_string_equal(d->doc, "the new one");
    tt_registry_free(again);
}

/* The private folder cannot be made, so the copy is in memory; with no bytes allowed in files there
 * is none, neither in memory nor on disk, and the plugin is loaded in place. */
static void test_load_works_without_a_private_folder(void **state)
{
    (void)state;
    const char *dirs[] = {path_in("ro")};
    write_file(path_in("in_the_way"), "x", 1);
    tt_registry_opts o = {.dirs = dirs, .n_dirs = 1, .private_dir = path_in("in_the_way")};
    build("ro/ramp.so", "-DNAME='\"ramp\"'");
    for (int in_place = 0; in_place < 2; in_place++) {
        tt_registry *r = NULL;
        const tt_component *c = NULL;
        tt_error err = {0};
        struct rlimit old, none;
        assert_int_equal(tt_registry_new(&o, &r, &err), TT_OK);
        assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
        none = (struct rlimit){0, old.rlim_max};
        if (in_place) {
            signal(SIGXFSZ, SIG_IGN);
            assert_int_equal(setrlimit(RLIMIT_FSIZE, &none), 0);
        }
        const tt_status st = tt_registry_find(r, TT_KIND_LR_SCHEDULER, "ramp", &c, &err);
        setrlimit(RLIMIT_FSIZE, &old);
        signal(SIGXFSZ, SIG_DFL);
        if (st != TT_OK)
            fail_msg("%s", err.text);
        assert_string_equal(c->name, "ramp");
        tt_registry_free(r);
    }
}

/* Both copies are in memory, and the second descriptor has the number of the first. */
static void test_load_in_memory_keeps_plugins_apart(void **state)
{
    (void)state;
    const char *names[] = {"one", "two"};
    const tt_component *c[2] = {NULL, NULL};
    tt_registry *r[2] = {NULL, NULL};
    tt_error err = {0};
    const char *function = NULL;
    build("memory/one.so", "-DNAME='\"one\"'");
    build("memory/two.so", "-DNAME='\"two\"'");
    for (int i = 0; i < 2; i++) {
        r[i] = open_dirs("memory", NULL);
        assert_int_equal(tt_registry_find(r[i], TT_KIND_LR_SCHEDULER, names[i], &c[i], &err),
                         TT_OK);
    }
    for (int i = 0; i < 2; i++) {
        assert_string_equal(c[i]->name, names[i]);
        const char *file = tt_plugin_at(c[i], &function);
        assert_non_null(file);
        assert_string_equal(file, path_in(tt_arena_printf(arena, "memory/%s.so", names[i])));
    }
    assert_null(tt_plugin_at(&err, &function));
    tt_registry_free(r[0]);
    assert_string_equal(c[1]->name, "two");
    tt_registry_free(r[1]);
}

static void test_load_keeps_copies_in_a_folder_on_request(void **state)
{
    (void)state;
    const tt_component *c = NULL;
    tt_error err = {0};
    build("kept/ramp.so", "-DNAME='\"ramp\"'");
    setenv("TTRUN_PLUGIN_COPIES", path_in("copies"), 1);
    tt_registry *r = open_dirs("kept", NULL);
    unsetenv("TTRUN_PLUGIN_COPIES");
    assert_int_equal(tt_registry_find(r, TT_KIND_LR_SCHEDULER, "ramp", &c, &err), TT_OK);
    tt_registry_free(r);
    assert_int_equal(shell("cmp -s %s/kept/ramp.so %s/copies/*-ramp.so", root, root), 0);
}

static void test_load_finds_libraries_next_to_the_file(void **state)
{
    (void)state;
    const tt_component *c = NULL;
    tt_error err = {0};
    assert_int_equal(shell("mkdir -p %s/beside && cd %s/beside && echo 'double "
                           "function_no_library_has(double x) { return x; }' > l.c && cc -shared "
                           "-fPIC -Wl,-soname,libhelper.so.1 l.c -o libhelper.so.1",
                           root, root),
                     0);
    build("beside/ramp.so", "-DNAME='\"ramp\"' -DWITH_UNDEFINED");
    tt_registry *r = open_dirs("beside", NULL);
    assert_int_not_equal(tt_registry_find(r, TT_KIND_LR_SCHEDULER, "ramp", &c, &err), TT_OK);
    expect(&err, "ramp.so: undefined symbol: function_no_library_has");
    tt_registry_free(r);

    assert_int_equal(shell("cc -w -shared -fPIC -I%s/include -DNAME='\"ramp\"' -DWITH_UNDEFINED "
                           "%s/tests/abi/liar.c %s/beside/libhelper.so.1 -Wl,-rpath,'$ORIGIN' -o "
                           "%s/beside/ramp.so",
                           source(), source(), root, root),
                     0);
    r = open_dirs("beside", NULL);
    if (tt_registry_find(r, TT_KIND_LR_SCHEDULER, "ramp", &c, &err) != TT_OK)
        fail_msg("%s", err.text);
    tt_registry_free(r);
}

/* Writes the two files by turns over a third one, 4 KiB at a time, until it is killed. */
static void write_by_turns(const char *const *from, const char *to)
{
    char *bytes[2];
    size_t n[2];
    for (int i = 0; i < 2; i++)
        if (tt_read_file(from[i], 0, &bytes[i], &n[i], NULL) != TT_OK)
            _exit(1);
    for (int turn = 0;; turn ^= 1) {
        const int fd = open(to, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        for (size_t at = 0; at < n[turn]; at += 4096)
            if (write(fd, bytes[turn] + at, TT_MIN(n[turn] - at, (size_t)4096)) < 0)
                _exit(1);
        close(fd);
    }
}

/* Takes the place of libc's: who waits for a file to be settled meets a write meanwhile. */
static const char *written_meanwhile;

int nanosleep(const struct timespec *wanted, struct timespec *left)
{
    if (written_meanwhile) {
        const int fd = open(written_meanwhile, O_WRONLY | O_APPEND | O_CLOEXEC);
        if (fd < 0 || write(fd, "", 1) != 1)
            abort();
        close(fd);
        written_meanwhile = NULL;
    }
    errno = clock_nanosleep(CLOCK_REALTIME, 0, wanted, left);
    return errno ? -1 : 0;
}

static void test_load_refuses_a_file_that_is_being_written(void **state)
{
    (void)state;
    const char *const path = path_in("turns/meanwhile.so");
    tt_loaded l;
    tt_error e = {0};
    build("turns/one.so", "");
    assert_int_equal(tt_plugin_loader_begin(&e), TT_OK);
    /* A file that was old enough when it was looked at, on a machine that stood still, is written once more. */
    for (written_meanwhile = path; written_meanwhile;) {
        assert_int_equal(shell("cp %s %s", path_in("turns/one.so"), path), 0);
        const tt_status s = tt_plugin_open(path, NULL, &l, &e);
        if (s == TT_OK)
            tt_plugin_close(&l);
        assert_int_equal(s == TT_OK, written_meanwhile != NULL);
    }
    expect(&e, "meanwhile.so: it is being written; try again when it is complete");
    tt_plugin_loader_end();
}

/* A writer that stands still leaves a file that nobody can tell from one that is cut off: any refusal is right, nothing
 * else is. */
static void test_load_survives_a_writer(void **state)
{
    (void)state;
    const char *const from[] = {path_in("turns/one.so"), path_in("turns/two.so")};
    const char *to = path_in("turns/both.so");
    tt_loaded l;
    tt_error e = {0};
    build("turns/one.so", "");
    build("turns/two.so", "-DLIE_VERSION='\"2.0\"' -g");
    assert_int_equal(shell("cp %s %s", from[0], to), 0);
    const pid_t writer = fork();
    if (!writer)
        write_by_turns(from, to);
    assert_int_equal(tt_plugin_loader_begin(&e), TT_OK);
    for (int i = 0; i < 20; i++) {
        const tt_status s = tt_plugin_open(to, NULL, &l, &e);
        if (s == TT_OK)
            tt_plugin_close(&l);
        else
            expect(&e, "both.so: ");
    }
    kill(writer, SIGKILL);
    waitpid(writer, NULL, 0);
    assert_int_equal(shell("cp %s %s", from[1], to), 0);
    assert_int_equal(tt_plugin_open(to, NULL, &l, &e), TT_OK);
    assert_string_equal(l.plugin->version, "2.0");
    tt_plugin_close(&l);
    tt_plugin_loader_end();
}

static void test_kinds_have_names_and_folders(void **state)
{
    tt_kind k;
    tt_error err = {0};
    (void)state;
    for (int i = 1; i < (int)TT_KIND_END; i++) {
        assert_int_equal(tt_kind_parse(tt_kind_name((tt_kind)i), &k, &err), TT_OK);
        assert_int_equal(k, i);
        assert_int_equal(tt_kind_parse(tt_kind_folder((tt_kind)i), &k, &err), TT_OK);
        assert_int_equal(k, i);
    }
    assert_int_not_equal(tt_kind_parse("modle", &k, &err), TT_OK);
    expect(&err, "did you mean model?");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_load_accepts_a_correct_plugin),
        cmocka_unit_test(test_find_takes_no_memory_again),
        cmocka_unit_test(test_load_refuses_every_liar),
        cmocka_unit_test(test_load_refuses_truncation_at_any_length),
        cmocka_unit_test(test_load_refuses_files_that_are_not_shared_objects),
        cmocka_unit_test(test_find_opens_only_what_it_needs),
        cmocka_unit_test(test_find_sees_names_in_other_files),
        cmocka_unit_test(test_find_refuses_two_components_of_one_name),
        cmocka_unit_test(test_all_lists_and_reports_faults),
        cmocka_unit_test(test_registry_refuses_unreadable_folders),
        cmocka_unit_test(test_load_survives_overwriting_the_file),
        cmocka_unit_test(test_load_works_without_a_private_folder),
        cmocka_unit_test(test_load_in_memory_keeps_plugins_apart),
        cmocka_unit_test(test_load_keeps_copies_in_a_folder_on_request),
        cmocka_unit_test(test_load_finds_libraries_next_to_the_file),
        cmocka_unit_test(test_load_refuses_a_file_that_is_being_written),
        cmocka_unit_test(test_load_survives_a_writer),
        cmocka_unit_test(test_kinds_have_names_and_folders),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
