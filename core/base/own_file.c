/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "base/base.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* NULL: the file is one that ttrun may write. */
static const char *why_not_own(const struct stat *st)
{
    if (S_ISLNK(st->st_mode))
        return "is a symbolic link";
    if (!S_ISREG(st->st_mode))
        return "is not a regular file";
    if (st->st_uid != geteuid() && geteuid() != 0)
        return "belongs to another user";
    if (st->st_nlink > 1)
        return "has a second name (a hard link)";
    return NULL;
}

static tt_status refuse_file(const char *path, const char *why, tt_error *err)
{
    return TT_FAIL(err, TT_EINVAL,
                   "%s %s, so nothing is written to it; remove it, put a copy in its place, or "
                   "choose another folder",
                   path, why);
}

tt_status tt_open_own(const char *path, int flags, unsigned mode, int *out, tt_error *err)
{
    struct stat st;
    *out = -1;
    /* O_NONBLOCK: a FIFO would wait for its other end */
    const int fd = open(path, (flags & ~O_TRUNC) | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, mode);
    if (fd < 0) {
        const int e = errno;
        if (lstat(path, &st) == 0 && !S_ISREG(st.st_mode)) /* ELOOP, ENXIO, EISDIR, EEXIST */
            return refuse_file(path, why_not_own(&st), err);
        const tt_status s = e == ENOENT ? TT_ENOTFOUND : e == EEXIST ? TT_EEXIST : TT_EIO;
        return TT_FAIL(err, s, "cannot %s %s: %s", flags & O_CREAT ? "write" : "open", path,
                       strerror(e));
    }
    const char *why = fstat(fd, &st) == 0 ? why_not_own(&st) : "cannot be examined";
    tt_status s = why ? refuse_file(path, why, err) : TT_OK;
    if (s == TT_OK && (flags & O_TRUNC) && ftruncate(fd, 0) != 0)
        s = TT_FAIL(err, TT_EIO, "%s: cannot cut it: %s", path, strerror(errno));
    if (s == TT_OK)
        *out = fd;
    else
        close(fd);
    return s;
}
