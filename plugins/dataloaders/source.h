/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_DATALOADERS_SOURCE_H
#define TT_DATALOADERS_SOURCE_H
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <ttrun/status.h>
#include <unistd.h>

/* Reads a file's bytes in order. The file is read and not mapped, because a mapped file that is
 * truncated meanwhile would kill the process. This is code in a header because each loader is a
 * library of its own. */

typedef struct {
    const char *path;
    int fd;
    int64_t at, size; /* bytes read so far; the file's size when it was opened */
} source;

static void source_close(source *s)
{
    if (s->fd >= 0)
        close(s->fd);
    s->fd = -1;
}

static tt_status source_open(const char *path, source *out, tt_error *err)
{
    struct stat st;
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* opening a pipe must not hang */
    if (fd < 0 || fstat(fd, &st) != 0) {
        const int code = errno;
        if (fd >= 0)
            close(fd);
        return TT_FAIL(err, TT_EIO, "dataloader.path: cannot read %s: %s", path, strerror(code));
    }
    if (!S_ISREG(st.st_mode)) {
        close(fd);
        return TT_FAIL(err, TT_EINVAL, "dataloader.path: %s is not a regular file", path);
    }
    *out = (source){path, fd, 0, st.st_size};
    return TT_OK;
}

/* Reads up to cap bytes; *got is 0 at the end. */
static tt_status source_read(source *s, void *out, size_t cap, size_t *got, tt_error *err)
{
    for (;;) {
        const ssize_t n = read(s->fd, out, cap < (size_t)1 << 30 ? cap : (size_t)1 << 30);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return TT_FAIL(err, TT_EIO, "dataloader.path: cannot read %s: %s", s->path,
                           strerror(errno));
        s->at += n;
        *got = (size_t)n;
        return TT_OK;
    }
}

#endif
