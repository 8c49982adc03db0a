/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "pool.h"
#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The quota ("MAX PERIOD") of a cgroup v2 folder in cores, rounded up; 0 = no limit there. */
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

/* The number of cores in a process's affinity; 0 = not known. */
static int cores_of(pid_t pid)
{
    cpu_set_t sets[8]; /* up to 8192 cores */
    memset(sets, 0, sizeof sets);
    return sched_getaffinity(pid, sizeof sets, sets) == 0 ? CPU_COUNT_S(sizeof sets, sets) : 0;
}

static int within_quota(int n)
{
    const int quota = cgroup_cores();
    return TT_MAXV(quota ? TT_MIN(n, quota) : n, 1);
}

int tt_cpu_count(void)
{
    const int n = cores_of(0);
    return within_quota(n ? n : (int)sysconf(_SC_NPROCESSORS_ONLN));
}

/* A launcher may bind each rank to some cores, but it is not bound itself: ask for its affinity. */
int tt_cpu_count_of_ranks(void)
{
    const int own = tt_cpu_count(), of_launcher = within_quota(cores_of(getppid()));
    return TT_MAXV(own, of_launcher);
}

int tt_cpu_share(int n_ranks)
{
    const int own = tt_cpu_count(), share = tt_cpu_count_of_ranks() / n_ranks;
    return TT_MIN(own, TT_MAXV(share, 1));
}

bool tt_read_core_times(const char *text, double *ran, double *waited)
{
    unsigned long long r = 0, w = 0;
    if (sscanf(text, "%llu %llu", &r, &w) != 2)
        return false;
    *ran = 1e-9 * (double)r;
    *waited = 1e-9 * (double)w;
    return true;
}

bool tt_core_times(double *ran, double *waited)
{
    char text[128];
    const int fd = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    const ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    if (n <= 0)
        return false;
    text[n] = '\0';
    return tt_read_core_times(text, ran, waited);
}

double tt_core_wait_share(double seconds, double ran, double waited)
{
    const bool tells =
        seconds >= TT_CORE_WAIT_SECONDS && waited > 0.2 * seconds && waited > 0.3 * (ran + waited);
    return tells ? waited / (ran + waited) : 0;
}
