/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "internal.h"
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/sysinfo.h>
#include <unistd.h>

/* The memory that this process may use, and its peak use. */

/* A file with a number or "max". v1 writes a number near 2^63 for no limit. */
static double limit_of_group(const char *folder, bool v1)
{
    char path[1200], *text = NULL;
    size_t n;
    double limit = 0;
    snprintf(path, sizeof path, "%s/%s", folder, v1 ? "memory.limit_in_bytes" : "memory.max");
    if (tt_read_file(path, 4096, &text, &n, NULL) == TT_OK)
        limit = strtod(text, NULL);
    free(text);
    return limit > 0 && limit < 0x1p62 ? limit : (double)INFINITY;
}

double tt_memory_limit(const char *cgroup_file, const char *root)
{
    return tt_cgroup_least(cgroup_file, root, "memory", limit_of_group);
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
