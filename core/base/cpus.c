/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "pool.h"
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* "MAX PERIOD" of a cgroup v2 folder, in whole cores rounded up; 0 = no limit there. */
static int quota_of(const char *folder)
{
    char path[1200], *text;
    size_t n;
    snprintf(path, sizeof path, "/sys/fs/cgroup%s/cpu.max", folder);
    if (tt_read_file(path, 256, &text, &n, NULL) != TT_OK)
        return 0;
    long long max = 0, period = 0;
    int fields = sscanf(text, "%lld %lld", &max, &period); /* "max 100000" gives none */
    free(text);
    return fields == 2 && max > 0 && period > 0 ? (int)((max + period - 1) / period) : 0;
}

/* The tightest quota from this process's cgroup up to the root. */
static int cgroup_cores(void)
{
    char *text, folder[1024] = "";
    size_t n;
    if (tt_read_file("/proc/self/cgroup", 1 << 16, &text, &n, NULL) == TT_OK) {
        const char *line = strncmp(text, "0::", 3) == 0 ? text : strstr(text, "\n0::");
        if (line) {
            line = strstr(line, "::") + 2;
            snprintf(folder, sizeof folder, "%.*s", (int)strcspn(line, "\n"), line);
        }
        free(text);
    }
    int cores = 0;
    for (;;) {
        int here = quota_of(folder);
        if (here && (!cores || here < cores))
            cores = here;
        char *slash = strrchr(folder, '/');
        if (!slash)
            return cores;
        *slash = '\0';
    }
}

int tt_cpu_count(void)
{
    cpu_set_t sets[8]; /* up to 8192 cores */
    memset(sets, 0, sizeof sets);
    int n = sched_getaffinity(0, sizeof sets, sets) == 0 ? CPU_COUNT_S(sizeof sets, sets)
                                                         : (int)sysconf(_SC_NPROCESSORS_ONLN);
    int quota = cgroup_cores();
    if (quota && quota < n)
        n = quota;
    return TT_MAXV(n, 1);
}
