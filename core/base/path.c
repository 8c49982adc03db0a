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

/* Removes all entries of the folder that fd refers to, and closes fd. */
static tt_status remove_entries(int fd, const char *path, tt_error *err)
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
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
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
    TT_TRY(remove_entries(fd, path, err));
    if (unlinkat(parent, name, AT_REMOVEDIR) != 0 && errno != ENOENT)
        return tt_fail_errno(err, errno, "remove", path);
    return TT_OK;
}

tt_status tt_remove_tree(const char *path, tt_error *err)
{
    return remove_at(AT_FDCWD, path, path, err);
}
