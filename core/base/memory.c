/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "base/base.h"
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/sysinfo.h>
#include <unistd.h>

/* The memory that this process may use, and its peak use. */

/* Reads a limit: a file with a number or "max". v1 writes a number near 2^63 for no limit. */
static double limit_in(const char *path)
{
    char *text = NULL;
    size_t n;
    double limit = 0;
    if (tt_read_file(path, 4096, &text, &n, NULL) == TT_OK)
        limit = strtod(text, NULL);
    free(text);
    return limit > 0 && limit < 0x1p62 ? limit : (double)INFINITY;
}

/* The least limit of a group and of its parents, up to the root of the hierarchy. In a container
 * the path may name groups that the container cannot see: these have no file and are skipped. */
static double least_limit(const char *root, const char *group, const char *file)
{
    tt_arena *a = tt_arena_new();
    char *at = tt_arena_str(a, group);
    double least = (double)INFINITY;
    for (size_t n = strlen(at);;) {
        while (n > 0 && at[n - 1] == '/')
            at[--n] = '\0';
        const double limit = limit_in(tt_arena_printf(a, "%s%s/%s", root, at, file));
        least = TT_MIN(least, limit);
        if (!n)
            break;
        while (n > 0 && at[n - 1] != '/')
            at[--n] = '\0';
    }
    tt_arena_free(a);
    return least;
}

static bool has_memory(const char *controllers, size_t n)
{
    for (const char *p = controllers, *end = p + n; p < end;) {
        const size_t k = strcspn(p, ",:");
        if (k == 6 && !memcmp(p, "memory", 6))
            return true;
        p += k + 1;
    }
    return false;
}

/* A line is "0::/group" (v2) or "5:cpu,memory:/group" (v1). */
static double limit_of_line(tt_arena *a, const char *line, const char *root)
{
    const char *controllers = strchr(line, ':');
    const char *path = controllers ? strchr(controllers + 1, ':') : NULL;
    if (!path)
        return (double)INFINITY;
    const size_t n = (size_t)(path - controllers - 1);
    if (n == 0) {
        const char *mixed = tt_arena_printf(a, "%s/unified", root);
        const double limit = least_limit(root, path + 1, "memory.max"),
                     unified = least_limit(mixed, path + 1, "memory.max");
        return TT_MIN(limit, unified);
    }
    if (!has_memory(controllers + 1, n))
        return (double)INFINITY;
    return least_limit(tt_arena_printf(a, "%s/memory", root), path + 1, "memory.limit_in_bytes");
}

double tt_memory_limit(const char *cgroup_file, const char *root)
{
    char *text = NULL, *save = NULL;
    size_t n;
    double least = least_limit(root, "", "memory.max");
    if (tt_read_file(cgroup_file, 1 << 20, &text, &n, NULL) != TT_OK)
        return least;
    tt_arena *a = tt_arena_new();
    for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        const double limit = limit_of_line(a, line, root);
        least = TT_MIN(least, limit);
    }
    tt_arena_free(a);
    free(text);
    return least;
}

double tt_memory_here(void)
{
    struct sysinfo i;
    if (sysinfo(&i))
        return (double)INFINITY;
    return TT_MIN(((double)i.totalram + (double)i.totalswap) * i.mem_unit,
                  tt_memory_limit("/proc/self/cgroup", "/sys/fs/cgroup"));
}

/* Called in every logged step, so it allocates nothing. */
double tt_memory_most(void)
{
    char text[16384];
    struct rusage u;
    const int fd = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
    const ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof text - 1);
    if (fd >= 0)
        close(fd);
    text[TT_MAXV(n, 0)] = 0;
    const char *line = strstr(text, "\nVmHWM:");
    double kib = line ? strtod(line + 7, NULL) : 0;
    if (kib <= 0 && !getrusage(RUSAGE_SELF, &u)) /* without /proc; may include the parent's peak */
        kib = (double)u.ru_maxrss;
    return kib * 1024;
}
