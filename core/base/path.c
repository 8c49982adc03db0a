/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "internal.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

char *tt_path_join(tt_arena *a, const char *dir, const char *name)
{
    size_t n = strlen(dir);
    if (name[0] == '/' || n == 0)
        return tt_arena_str(a, name);
    return tt_arena_printf(a, "%s%s%s", dir, dir[n - 1] == '/' ? "" : "/", name);
}

/* Like dirname(1): "a/b" → "a", "b" → ".", "/b" → "/", "a/b/" → "a". */
char *tt_path_dir(tt_arena *a, const char *path)
{
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/')
        n--;
    while (n > 0 && path[n - 1] != '/')
        n--;
    if (n == 0)
        return tt_arena_str(a, ".");
    while (n > 1 && path[n - 1] == '/')
        n--;
    return tt_arena_strn(a, path, n);
}

const char *tt_path_below(const char *folder, const char *path)
{
    const size_t n = strlen(folder);
    if (strncmp(path, folder, n) != 0 || (path[n] && path[n] != '/'))
        return NULL;
    return path + n + strspn(path + n, "/");
}

static tt_status make_dir(const char *path, tt_error *err)
{
    struct stat st;
    if (mkdir(path, 0777) == 0)
        return TT_OK;
    int e = errno;
    if (stat(path, &st) == 0) {
        if (S_ISDIR(st.st_mode))
            return TT_OK;
        return TT_FAIL(err, TT_EEXIST, "%s: a file has the place of a folder; move it away", path);
    }
    return tt_fail_errno(err, e, "create the folder", path);
}

tt_status tt_mkdirs(const char *path, tt_error *err)
{
    tt_str part = {0};
    tt_status status = TT_OK;
    for (const char *p = path; *p && status == TT_OK;) {
        const char *end = strchr(p + 1, '/');
        end = end ? end : p + strlen(p);
        tt_str_addn(&part, p, (size_t)(end - p));
        p = end;
        if (strcmp(part.s, "/") != 0)
            status = make_dir(part.s, err);
    }
    tt_str_free(&part);
    return status;
}

static tt_status remove_at(int parent, const char *name, const char *path, tt_error *err);

/* Of the folder that fd refers to; closes fd. */
static tt_status remove_entries(int fd, const char *path, const char *but, tt_error *err)
{
    DIR *dir = fdopendir(fd);
    if (!dir) {
        tt_status status = tt_fail_errno(err, errno, "read the folder", path);
        close(fd);
        return status;
    }
    tt_status status = TT_OK;
    for (;;) {
        errno = 0;
        struct dirent *e = readdir(dir);
        if (!e && errno)
            status = tt_fail_errno(err, errno, "read the folder", path);
        if (!e || status != TT_OK)
            break;
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0 ||
            (but && strcmp(e->d_name, but) == 0))
            continue;
        tt_str inner = {0};
        tt_str_printf(&inner, "%s/%s", path, e->d_name);
        status = remove_at(dirfd(dir), e->d_name, inner.s, err);
        tt_str_free(&inner);
    }
    closedir(dir);
    return status;
}

/* Removes a link itself, never what it points to. */
static tt_status remove_at(int parent, const char *name, const char *path, tt_error *err)
{
    if (unlinkat(parent, name, 0) == 0 || errno == ENOENT)
        return TT_OK;
    if (errno != EISDIR && errno != EPERM) /* EPERM: POSIX's errno for unlinking a folder */
        return tt_fail_errno(err, errno, "remove", path);
    int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return tt_fail_errno(err, errno, "remove", path);
    TT_TRY(remove_entries(fd, path, NULL, err));
    if (unlinkat(parent, name, AT_REMOVEDIR) != 0 && errno != ENOENT)
        return tt_fail_errno(err, errno, "remove", path);
    return TT_OK;
}

tt_status tt_remove_tree(const char *path, tt_error *err)
{
    return remove_at(AT_FDCWD, path, path, err);
}

tt_status tt_remove_entries(int folder, const char *path, const char *but, tt_error *err)
{
    const int fd = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return fd < 0 ? tt_fail_errno(err, errno, "read the folder", path)
                  : remove_entries(fd, path, but, err);
}

tt_status tt_remove_below(const char *folder, const char *path, tt_error *err)
{
    const char *name = tt_path_below(folder, path);
    if (!name || !*name)
        return TT_FAIL(err, TT_EINVAL, "%s does not lie below %s", path, folder);
    int at = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    tt_str part = {0};
    for (const char *end; at >= 0 && (end = strchr(name, '/')); name = end + strspn(end, "/")) {
        tt_str_clear(&part);
        tt_str_addn(&part, name, (size_t)(end - name));
        const int next = strcmp(part.s, "..")
                             ? openat(at, part.s, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)
                             : (errno = EINVAL, -1);
        const int why = errno;
        close(at);
        errno = why;
        at = next;
    }
    tt_str_free(&part);
    if (at < 0)
        return tt_fail_errno(err, errno, "remove", path);
    const tt_status s = remove_at(at, name, path, err);
    close(at);
    return s;
}

static bool has_text(int folder, const char *name, const char *text)
{
    char has[4096 + 64];
    struct stat st;
    const size_t n = strlen(text);
    const int fd = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    const bool same = fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && n < sizeof has &&
                      pread(fd, has, sizeof has, 0) == (ssize_t)n && memcmp(has, text, n) == 0;
    if (fd >= 0)
        close(fd);
    return same;
}

/* -1: path is not a marked folder */
static int open_marked(const char *path, const char *mark, const char *text)
{
    struct stat st;
    const int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd >= 0 && fstat(fd, &st) == 0 && (st.st_uid == geteuid() || geteuid() == 0) &&
        has_text(fd, mark, text))
        return fd;
    if (fd >= 0)
        close(fd);
    return -1;
}

bool tt_has_mark(const char *path, const char *mark, const char *text)
{
    const int fd = open_marked(path, mark, text);
    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

tt_status tt_remove_marked(const char *path, const char *mark, const char *text, tt_error *err)
{
    const int fd = open_marked(path, mark, text);
    if (fd < 0)
        return TT_FAIL(err, TT_EINVAL, "%s has no file %s of ttrun, so it is left as it is", path,
                       mark);
    tt_status s = tt_remove_entries(fd, path, mark, err);
    if (s == TT_OK && (unlinkat(fd, mark, 0) != 0 || rmdir(path) != 0))
        s = tt_fail_errno(err, errno, "remove", path);
    close(fd);
    return s;
}
