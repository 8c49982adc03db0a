/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

/* A machine with as many cores as the file $CORES says, which may change while a run is under way. */

int sched_getaffinity(pid_t pid, size_t n, cpu_set_t *set)
{
    const char *path = getenv("CORES");
    FILE *f = path ? fopen(path, "r") : NULL;
    int cores = 1;
    (void)pid;
    if (f) {
        if (fscanf(f, "%d", &cores) != 1)
            cores = 1;
        fclose(f);
    }
    memset(set, 0, n);
    for (int i = 0; i < cores; i++)
        CPU_SET_S((size_t)i, n, set);
    return 0;
}
