/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "base/base.h"
#include "base/pool.h"
#include "folder_test.h"
#include <limits.h>
#include <math.h>
#include <sched.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
/* cmocka needs the headers above */
#include <cmocka.h>

static char root[TEST_FOLDER];

static void put(const char *name, const char *text)
{
    tt_error err = {0};
    tt_arena *a = tt_arena_new();
    char *path = tt_path_join(a, root, name);
    if (tt_mkdirs(tt_path_dir(a, path), &err) != TT_OK ||
        tt_write_file_atomic(path, text, strlen(text), &err) != TT_OK)
        fail_msg("%s", err.text);
    tt_arena_free(a);
}

static double limit(const char *cgroup)
{
    tt_arena *a = tt_arena_new();
    put("self", cgroup);
    const double x = tt_memory_limit(tt_path_join(a, root, "self"), root);
    tt_arena_free(a);
    return x;
}

static double quota(const char *cgroup)
{
    tt_arena *a = tt_arena_new();
    put("self", cgroup);
    const double x = tt_cpu_quota(tt_path_join(a, root, "self"), root);
    tt_arena_free(a);
    return x;
}

static int fresh(void **state)
{
    (void)state;
    return test_folder("memory", root) ? 0 : -1;
}

static int gone(void **state)
{
    tt_error err;
    (void)state;
    return tt_remove_tree(root, &err) == TT_OK ? 0 : -1;
}

static void test_memory_limit_is_the_least_of_the_groups(void **state)
{
    (void)state;
    assert_true(isinf(limit("0::/\n")));
    put("slurm/memory.max", "4000000\n");
    put("slurm/job_7/memory.max", "max\n");
    put("slurm/job_7/step_0/memory.max", "9000000\n");
    assert_true(limit("0::/slurm/job_7/step_0\n") == 4e6);
    assert_true(isinf(limit("0::/other\n")));
    put("slurm/job_7/memory.max", "3000000\n");
    assert_true(limit("0::/slurm/job_7/step_0\n") == 3e6);
    assert_true(limit("0::/slurm/job_7/step_0/not/to/be/seen\n") == 3e6);
    put("memory.max", "2000000\n"); /* a container's own, whatever its path */
    assert_true(limit("0::/../../host/path\n") == 2e6);
    assert_true(limit("") == 2e6);
    put("memory.max", "max\n");
}

static void test_memory_limit_of_v1(void **state)
{
    (void)state;
    put("memory/memory.limit_in_bytes", "9223372036854771712\n");
    put("memory/slurm/uid_1/memory.limit_in_bytes", "5000000\n");
    put("memory/slurm/uid_1/job_2/memory.limit_in_bytes", "9223372036854771712\n");
    assert_true(limit("12:pids:/a\n5:cpu,memory:/slurm/uid_1/job_2\n0::/\n") == 5e6);
    assert_true(limit("5:memory,cpu:/slurm/uid_1/job_2\n") == 5e6);
    assert_true(isinf(limit("5:memory:/\n")));
    assert_true(isinf(limit("5:memoryless:/slurm/uid_1/job_2\n")));
    assert_true(isinf(limit("nonsense\n:\n::\n5:memory\n")));
    put("unified/x/memory.max", "1000000\n"); /* v2 beside v1 */
    assert_true(limit("5:memory:/slurm/uid_1\n0::/x\n") == 1e6);
}

static void test_memory_limit_that_cannot_be_read_is_none(void **state)
{
    (void)state;
    assert_true(isinf(tt_memory_limit("/no/such/file", "/no/such/folder")));
}

static void test_quota_of_cores_in_both_versions(void **state)
{
    static const struct {
        const char *folder, *most, *period, *groups;
        double cores;
    } rows[] = {
        {"q/a",          "150000 100000", NULL,     "0::/q/a/b\n",               1.5             },
        {"q/m",          "max 100000",    NULL,     "0::/q/m\n",                 (double)INFINITY},
        {"unified/q/u",  "50000 100000",  NULL,     "4:cpuset:/x\n0::/q/u\n",    0.5             },
        {"cpu/docker/1", "400000",        "100000", "4:cpu,cpuacct:/docker/1\n", 4               },
        {"cpu/docker/2", "-1",            "100000", "4:cpuacct,cpu:/docker/2\n", (double)INFINITY},
        {"cpu/docker/3", "100000",        "100000", "4:cpuacct:/docker/3\n",     (double)INFINITY},
    };
    (void)state;
    for (size_t i = 0; i < TT_COUNT(rows); i++) {
        tt_arena *a = tt_arena_new();
        put(tt_arena_printf(a, "%s/%s", rows[i].folder,
                            rows[i].period ? "cpu.cfs_quota_us" : "cpu.max"),
            rows[i].most);
        if (rows[i].period)
            put(tt_arena_printf(a, "%s/cpu.cfs_period_us", rows[i].folder), rows[i].period);
        const double got = quota(rows[i].groups);
        if (got < rows[i].cores || got > rows[i].cores)
            fail_msg("%s: %g cores, and not %g", rows[i].groups, got, rows[i].cores);
        tt_arena_free(a);
    }
    put("cpu/cpu.cfs_quota_us", "200000"); /* a container's own, whatever its path */
    put("cpu/cpu.cfs_period_us", "100000");
    assert_true(quota("4:cpu,cpuacct:/docker/unseen\n") == 2);
    assert_true(isinf(tt_cpu_quota("/no/such/file", "/no/such/folder")));
}

static void test_memory_most_includes_what_this_process_allocates(void **state)
{
    (void)state;
    const double before = tt_memory_most();
    const size_t n = (size_t)64 << 20;
    char *p = malloc(n);
    assert_non_null(p);
    memset(p, 1, n);
    assert_true(before > 0 && tt_memory_most() >= before + 0.9 * (double)n);
    free(p);
}

static int written(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    return !f || fputs(text, f) < 0 || fclose(f) ? -1 : 0;
}

/* In a process with its own view of /sys/fs/cgroup, of version 2: 0 = the limits are this process's, 77 = no such view is
 * allowed here. */
static int own_limits(void)
{
    char groups[4096] = "", folder[PATH_MAX] = "/sys/fs/cgroup", path[PATH_MAX];
    char *line = NULL;
    FILE *f = fopen("/proc/self/cgroup", "r");
    if (f && fread(groups, 1, sizeof groups - 1, f) > 0)
        line = strstr(groups, "0::/");
    if (f)
        fclose(f);
    if (!line || unshare(CLONE_NEWNS) || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
        mount("none", folder, "tmpfs", 0, NULL))
        return 77;
    line[strcspn(line, "\n")] = '\0';
    for (char *part = strtok(line + 3, "/"); part; part = strtok(NULL, "/")) {
        strcat(strcat(folder, "/"), part);
        if (mkdir(folder, 0755))
            return 1;
    }
    snprintf(path, sizeof path, "%.4000s/memory.max", folder);
    if (written(path, "50000000\n"))
        return 2;
    snprintf(path, sizeof path, "%.4000s/cpu.max", folder);
    if (written(path, "50000 100000\n"))
        return 3;
    if (tt_memory_here() < 50000000.0 || tt_memory_here() > 50000000.0)
        return 4;
    return tt_cpu_count() == 1 ? 0 : 5;
}

static void test_limits_of_this_process(void **state)
{
    int status = 0;
    const pid_t child = fork();
    (void)state;
    if (!child)
        _exit(own_limits());
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == 77)
        skip();
    assert_int_equal(WEXITSTATUS(status), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_memory_limit_is_the_least_of_the_groups),
        cmocka_unit_test(test_memory_limit_of_v1),
        cmocka_unit_test(test_memory_limit_that_cannot_be_read_is_none),
        cmocka_unit_test(test_quota_of_cores_in_both_versions),
        cmocka_unit_test(test_limits_of_this_process),
        cmocka_unit_test(test_memory_most_includes_what_this_process_allocates),
    };
    return cmocka_run_group_tests(tests, fresh, gone);
}
