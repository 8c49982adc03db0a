/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Preloaded: fsync of a file whose path contains $STALL does not return, as on a file system of a network that does
 * not answer: it makes the file $STALLED and waits until that is removed. */
int fsync(int fd)
{
    static int (*next)(int);
    const char *stall = getenv("STALL");
    char link[64], path[4096];
    if (!next)
        *(void **)&next = dlsym(RTLD_NEXT, "fsync");
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    const ssize_t k = stall ? readlink(link, path, sizeof path - 1) : -1;
    path[k > 0 ? k : 0] = 0;
    if (stall && strstr(path, stall)) {
        const char *stalled = getenv("STALLED");
        close(open(stalled, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
        while (access(stalled, F_OK) == 0)
            nanosleep(&(struct timespec){0, 10000000}, NULL);
    }
    return next(fd);
}
