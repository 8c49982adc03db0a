/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "internal.h"
#include "thread.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <ttrun/option.h>
#include <unistd.h>

/* Reads fd to its end into *text. fstat's size is only the first guess (pipes and /proc have 0). */
static tt_status read_all(int fd, const char *path, size_t max_bytes, size_t guess, char **text,
                          size_t *n, tt_error *err)
{
    size_t cap = guess + 1, used = 0;
    char *p = malloc(cap);
    for (;;) {
        if (!p)
            return TT_FAIL(err, TT_ENOMEM, "%s: no memory for %zu bytes", path, cap);
        ssize_t k = read(fd, p + used, cap - used);
        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0) {
            int e = errno;
            free(p);
            return tt_fail_errno(err, e, "read", path);
        }
        if (k == 0)
            break;
        used += (size_t)k;
        if (used > max_bytes) {
            free(p);
            return TT_FAIL(err, TT_EINVAL, "%s: larger than the %zu bytes allowed here", path,
                           max_bytes);
        }
        if (used == cap) {
            cap = TT_MAXV(cap * 2, (size_t)4096);
            char *grown = realloc(p, cap);
            if (!grown)
                free(p);
            p = grown;
        }
    }
    p[used] = '\0'; /* used < cap, because a full buffer was grown */
    *text = p;
    *n = used;
    return TT_OK;
}

/* A named pipe would keep the reader waiting for whoever writes to it. A pipe of the shell, which
 * /dev/fd/63 and /dev/stdin are, has a writer already, and is read as it comes. */
static tt_status check_pipe(int fd, const char *path, tt_error *err)
{
    char link[64], target[16];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    const ssize_t n = readlink(link, target, sizeof target);
    if (n < 5 || memcmp(target, "pipe:", 5) != 0)
        return TT_FAIL(err, TT_EINVAL,
                       "%s: is a named pipe (FIFO); a regular file is wanted, or /dev/stdin", path);
    const int flags = fcntl(fd, F_GETFL);
    return flags >= 0 && fcntl(fd, F_SETFL, flags & ~O_NONBLOCK) == 0
               ? TT_OK
               : tt_fail_errno(err, errno, "read", path);
}

tt_status tt_read_file(const char *path, size_t max_bytes, char **text, size_t *n, tt_error *err)
{
    tt_status status;
    struct stat st;
    max_bytes = max_bytes ? max_bytes : SIZE_MAX / 4;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return tt_fail_errno(err, errno, "open", path);
    if (fstat(fd, &st) != 0) {
        status = tt_fail_errno(err, errno, "read", path);
    } else if (S_ISFIFO(st.st_mode) && check_pipe(fd, path, err) != TT_OK) {
        status = TT_EINVAL;
    } else if (S_ISDIR(st.st_mode)) {
        status = TT_FAIL(err, TT_EINVAL, "%s: is a folder; a file is wanted", path);
    } else if (S_ISREG(st.st_mode) && (uint64_t)st.st_size > max_bytes) {
        status = TT_FAIL(err, TT_EINVAL, "%s: %lld bytes, more than the %zu allowed here", path,
                         (long long)st.st_size, max_bytes);
    } else {
        size_t guess = S_ISREG(st.st_mode) ? (size_t)st.st_size : 0;
        status = read_all(fd, path, max_bytes, guess, text, n, err);
    }
    close(fd);
    return status;
}

bool tt_write_all(int fd, const void *p, size_t n)
{
    for (const char *at = p; n > 0;) {
        const ssize_t k = write(fd, at, n);
        if (k < 0 && errno == EINTR)
            continue;
        if (k == 0)
            errno = EIO; /* a descriptor that takes nothing and says no error */
        if (k <= 0)
            return false;
        at += k;
        n -= (size_t)k;
    }
    return true;
}

static tt_status write_fd(int fd, const char *path, const void *p, size_t n, tt_error *err)
{
    if (!tt_write_all(fd, p, n))
        return tt_fail_errno(err, errno, "write", path);
    return fsync(fd) == 0 ? TT_OK : tt_fail_errno(err, errno, "fsync", path);
}

static tt_status fsync_parent(const char *path, tt_error *err)
{
    tt_arena *a = tt_arena_new();
    tt_status status = tt_fsync_path(tt_path_dir(a, path), err);
    tt_arena_free(a);
    return status;
}

tt_status tt_write_file_atomic(const char *path, const void *p, size_t n, tt_error *err)
{
    tt_str tmp = {0};
    tt_status status;
    const int fd = tt_unfinished_open(path, &tmp);
    if (fd < 0) {
        status = tt_fail_errno(err, errno, "create", tmp.s);
        tt_str_free(&tmp);
        return status;
    }
    const int lock = fcntl(fd, F_DUPFD_CLOEXEC, 0); /* until the file has its name */
    status = write_fd(fd, tmp.s, p, n, err);
    if (close(fd) != 0 && status == TT_OK)
        status = tt_fail_errno(err, errno, "close", tmp.s);
    if (status == TT_OK && rename(tmp.s, path) != 0)
        status = tt_fail_errno(err, errno, "replace", path);
    if (lock >= 0)
        close(lock);
    if (status == TT_OK)
        status = fsync_parent(path, err);
    else
        unlink(tmp.s);
    tt_str_free(&tmp);
    return status;
}

tt_status tt_fsync_path(const char *path, tt_error *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return tt_fail_errno(err, errno, "open", path);
    tt_status status = TT_OK;
    if (fsync(fd) != 0 && errno != EINVAL) /* EINVAL: this file system cannot fsync folders */
        status = tt_fail_errno(err, errno, "fsync", path);
    close(fd);
    return status;
}

bool tt_path_exists(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0;
}

bool tt_entry_is_fd(int folder, const char *name, int fd)
{
    struct stat a, b;
    return fstat(fd, &a) == 0 && fstatat(folder, name, &b, AT_SYMLINK_NOFOLLOW) == 0 &&
           a.st_ino == b.st_ino && a.st_dev == b.st_dev;
}

bool tt_path_is_fd(const char *path, int fd)
{
    return tt_entry_is_fd(AT_FDCWD, path, fd);
}

/* Which file is mapped where, for the handler of SIGBUS: what is not remembered has no name. A
 * checkpoint of 4096 ranks maps as many files. Entries never used take no memory. */
static struct {
    _Atomic(const uint8_t *) p; /* NULL: free; written last */
    size_t n;
    char path[PATH_MAX];
} mapped[4096];
static _Atomic(size_t) n_mapped; /* entries that were ever used */
static pthread_mutex_t mapped_lock = PTHREAD_MUTEX_INITIALIZER;

static void remember(tt_mapping m, const char *path)
{
    pthread_mutex_lock(&mapped_lock);
    for (size_t i = 0; i < TT_COUNT(mapped); i++) {
        if (atomic_load(&mapped[i].p))
            continue;
        mapped[i].n = m.n;
        snprintf(mapped[i].path, sizeof mapped[i].path, "%s", path);
        atomic_store(&mapped[i].p, m.p);
        if (i >= atomic_load(&n_mapped))
            atomic_store(&n_mapped, i + 1);
        break;
    }
    pthread_mutex_unlock(&mapped_lock);
}

static void forget(const uint8_t *p)
{
    pthread_mutex_lock(&mapped_lock);
    for (size_t i = 0; p && i < atomic_load(&n_mapped); i++)
        if (atomic_load(&mapped[i].p) == p)
            atomic_store(&mapped[i].p, NULL);
    pthread_mutex_unlock(&mapped_lock);
}

const char *tt_mapped_path(const void *address)
{
    const uint8_t *at = address;
    for (size_t i = 0; i < atomic_load(&n_mapped); i++) {
        const uint8_t *p = atomic_load(&mapped[i].p);
        if (p && at >= p && (size_t)(at - p) < mapped[i].n)
            return mapped[i].path;
    }
    return NULL;
}

tt_status tt_map_file(const char *path, tt_mapping *out, tt_error *err)
{
    tt_status status = TT_OK;
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return tt_fail_errno(err, errno, "open", path);
    if (fstat(fd, &st) != 0) {
        status = tt_fail_errno(err, errno, "read", path);
    } else if (!S_ISREG(st.st_mode)) {
        status = TT_FAIL(err, TT_EINVAL, "%s: not a regular file; it cannot be mapped", path);
    } else if (st.st_size == 0) {
        *out = (tt_mapping){(const uint8_t *)"", 0};
    } else {
        void *p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (p == MAP_FAILED)
            status = tt_fail_errno(err, errno, "map", path);
        else
            remember((*out = (tt_mapping){p, (size_t)st.st_size}), path);
    }
    close(fd);
    return status;
}

void tt_unmap_file(tt_mapping *m)
{
    forget(m->n > 0 ? m->p : NULL);
    if (m->n > 0)
        munmap((void *)m->p, m->n);
    *m = (tt_mapping){0};
}
