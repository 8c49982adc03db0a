/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "internal.h"
#include "pool.h"
#include <fcntl.h>
#include <math.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A number of a group's file; 0: there is none. */
static double number_in(const char *folder, const char *file, double *second)
{
    char path[1200], *text = NULL;
    size_t n;
    double first = 0;
    snprintf(path, sizeof path, "%s/%s", folder, file);
    if (tt_read_file(path, 256, &text, &n, NULL) == TT_OK &&
        sscanf(text, "%lf %lf", &first, second) < 1) /* "max 100000" gives none */
        first = 0;
    free(text);
    return first;
}

/* v2: "MAX PERIOD" in one file; v1: in two, and -1 is no quota. */
static double quota_of_group(const char *folder, bool v1)
{
    double period = 0, ignored;
    const double most = number_in(folder, v1 ? "cpu.cfs_quota_us" : "cpu.max", &period);
    if (v1)
        period = number_in(folder, "cpu.cfs_period_us", &ignored);
    return most > 0 && period > 0 ? most / period : (double)INFINITY;
}

double tt_cpu_quota(const char *cgroup_file, const char *root)
{
    return tt_cgroup_least(cgroup_file, root, "cpu", quota_of_group);
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
    const double quota = ceil(tt_cpu_quota("/proc/self/cgroup", "/sys/fs/cgroup"));
    return TT_MAXV(quota < n ? (int)quota : n, 1);
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
