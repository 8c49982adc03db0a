/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Preloaded: writes how many bytes of the heap are in use to the file $TTRUN_HEAP, ten times a second. */

static void *watch(void *arg)
{
    const char *path = arg;
    char part[4096];
    snprintf(part, sizeof part, "%s.part", path);
    for (;;) {
        const struct mallinfo2 m = mallinfo2();
        FILE *f = fopen(part, "w");
        if (f) {
            fprintf(f, "%zu\n", m.uordblks + m.hblkhd);
            fclose(f);
            rename(part, path);
        }
        usleep(100000);
    }
    return NULL;
}

static void __attribute__((constructor)) begin(void)
{
    const char *path = getenv("TTRUN_HEAP");
    sigset_t all, before;
    pthread_t t;
    if (!path)
        return;
    unsetenv("LD_PRELOAD"); /* of this process alone */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_create(&t, NULL, watch, strdup(path));
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}
