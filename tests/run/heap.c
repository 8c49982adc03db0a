/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Preloaded: says how many bytes the program has asked for and not given back: of the heap, and by mmap. The file
 * $TTRUN_HEAP.ask asks; when it is gone, the number is in the file $TTRUN_HEAP. What is resident would depend on the order in which
 * memory was freed, and on other programs. */

static atomic_llong mapped;

void *mmap(void *at, size_t n, int prot, int flags, int fd, off_t from)
{
    static void *(*next)(void *, size_t, int, int, int, off_t);
    if (!next)
        *(void **)&next = dlsym(RTLD_NEXT, "mmap");
    void *p = next(at, n, prot, flags, fd, from);
    if (p != MAP_FAILED && !(flags & MAP_FIXED)) /* which takes the place of another one */
        atomic_fetch_add(&mapped, (long long)n);
    return p;
}

int munmap(void *p, size_t n)
{
    static int (*next)(void *, size_t);
    if (!next)
        *(void **)&next = dlsym(RTLD_NEXT, "munmap");
    const int rc = next(p, n);
    if (rc == 0)
        atomic_fetch_sub(&mapped, (long long)n);
    return rc;
}

static void *watch(void *arg)
{
    const char *path = arg;
    char ask[4096];
    snprintf(ask, sizeof ask, "%s.ask", path);
    for (;; usleep(2000)) { /* between two looks */
        if (access(ask, F_OK) != 0)
            continue;
        const struct mallinfo2 m = mallinfo2();
        FILE *f = fopen(path, "w");
        if (f) {
            fprintf(f, "%lld\n", (long long)(m.uordblks + m.hblkhd) + atomic_load(&mapped));
            fclose(f);
        }
        unlink(ask);
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
