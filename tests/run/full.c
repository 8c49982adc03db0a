/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Preloaded: the disk is full for files whose path contains $FULL. */
ssize_t write(int fd, const void *p, size_t n)
{
    static ssize_t (*next)(int, const void *, size_t);
    const char *full = getenv("FULL");
    char link[64], path[4096];
    if (!next)
        *(void **)&next = dlsym(RTLD_NEXT, "write");
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    const ssize_t k = full ? readlink(link, path, sizeof path - 1) : -1;
    path[k > 0 ? k : 0] = 0;
    if (!full || !strstr(path, full))
        return next(fd, p, n);
    errno = ENOSPC;
    return -1;
}
