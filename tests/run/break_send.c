/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "../preload.h"
#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

/* Preloaded by a supervisor: the next large send() is cut off in the middle when the file $BREAK_CUT is there, and
 * arrives with a byte that differs when $BREAK_FLIP is; either removes the file. Only copies of states are so large. */

#define LARGE 8192

static int is_there(const char *name)
{
    const char *path = getenv(name);
    return path && getenv("TTRUN_RANK") == NULL && unlink(path) == 0;
}

ssize_t send(int fd, const void *p, size_t n, int flags)
{
    NEXT(ssize_t, "send", int, const void *, size_t, int);
    if (n < LARGE)
        return next(fd, p, n, flags);
    if (is_there("BREAK_CUT")) {
        const ssize_t k = next(fd, p, n / 2, flags);
        (void)k;
        shutdown(fd, SHUT_RDWR);
        errno = ECONNRESET;
        return -1;
    }
    if (is_there("BREAK_FLIP")) {
        char *copy = malloc(n);
        for (size_t i = 0; i < n; i++)
            copy[i] = ((const char *)p)[i];
        copy[n / 2] ^= 16;
        const ssize_t k = next(fd, copy, n, flags);
        free(copy);
        return k;
    }
    return next(fd, p, n, flags);
}
