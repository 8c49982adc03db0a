/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysinfo.h>
#include <unistd.h>

/* Is this the process that made the file first? */
static int is_first(const char *file)
{
    static int first = -1;
    if (first < 0) {
        const int fd = open(file, O_CREAT | O_EXCL | O_WRONLY, 0600);
        first = fd >= 0;
        if (fd >= 0)
            close(fd);
    }
    return first;
}

/* Preloaded: the machine has $MEMORY bytes. With $MEMORY_ONE, a file that is not there yet, only one process of those that
 * ask finds so little, and the others 1 TiB. */
int sysinfo(struct sysinfo *out)
{
    const char *bytes = getenv("MEMORY"), *one = getenv("MEMORY_ONE");
    memset(out, 0, sizeof *out);
    out->mem_unit = 1;
    out->totalram = bytes ? strtoul(bytes, NULL, 10) : 0;
    if (one && !is_first(one))
        out->totalram = 1UL << 40;
    return 0;
}
