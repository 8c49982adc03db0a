/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "internal.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* What a killed process leaves must be told from what a live one uses, also in another container
 * that shares the folder. So each temporary file and folder is locked with flock(2) by its process;
 * what can be locked belongs to nobody. Where the file system has no flock, nothing is cleared. */

/* The locked file of a temporary folder; nothing else has this name. */
#define MARK ".ttrun-temporary"

/* Locks a file that this process has just made. False: another process took it for a leftover, and
 * has removed it, or holds it for no reason. */
static bool take(const char *path, int fd)
{
    for (int tries = 0; flock(fd, LOCK_EX | LOCK_NB) != 0; tries++) {
        if (errno != EWOULDBLOCK && errno != EINTR)
            return true; /* no locks here, so nobody clears either */
        if (tries == 100)
            return false;
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    }
    return tt_path_is_fd(path, fd);
}

/* Opens and locks a file of a folder that no process holds; -1: it is in use, or not a file of this user. */
static int take_leftover(int folder, const char *name)
{
    struct stat st;
    const int fd = openat(folder, name, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_uid == geteuid() &&
        flock(fd, LOCK_EX | LOCK_NB) == 0 && tt_entry_is_fd(folder, name, fd))
        return fd;
    if (fd >= 0)
        close(fd);
    return -1;
}

/* ---- files that are being written ---- */

int tt_unfinished_open(const char *path, tt_str *name)
{
    static _Atomic unsigned counter; /* two threads may write the same file; the last rename wins */
    for (int tries = 0; tries < 100; tries++) {
        tt_str_clear(name);
        tt_str_printf(name, "%s.tmp.%ld.%u", path, (long)getpid(), counter++);
        unlink(name->s); /* of a process that had this number before */
        const int fd = open(name->s, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
        if (fd < 0 || take(name->s, fd))
            return fd;
        close(fd);
    }
    errno = EAGAIN;
    return -1;
}

/* NAME.tmp.PID.NUMBER */
static bool is_unfinished(const char *name)
{
    const char *tmp = strstr(name, ".tmp.");
    for (const char *p = tmp; p; p = strstr(p + 1, ".tmp."))
        tmp = p;
    const size_t pid = tmp ? strspn(tmp + 5, "0123456789") : 0;
    const char *number = pid && tmp[5 + pid] == '.' ? tmp + 6 + pid : "";
    return tmp != name && *number && !number[strspn(number, "0123456789")];
}

void tt_unfinished_clear(const char *folder)
{
    DIR *d = opendir(folder);
    for (const struct dirent *e = d ? readdir(d) : NULL; e; e = readdir(d)) {
        const int fd = is_unfinished(e->d_name) ? take_leftover(dirfd(d), e->d_name) : -1;
        if (fd < 0)
            continue;
        unlinkat(dirfd(d), e->d_name, 0);
        close(fd);
    }
    if (d)
        closedir(d);
}

/* ---- folders below $TMPDIR ---- */

static const char *temporary_base(void)
{
    const char *base = getenv("TMPDIR");
    return base && *base ? base : "/tmp";
}

/* Removes what is in a folder whose MARK this process holds, and the folder. The mark goes last, so what a kill leaves
 * here can be cleared again. */
static void remove_temporary(int base, const char *name, int folder)
{
    (void)tt_remove_entries(folder, name, MARK, NULL);
    unlinkat(folder, MARK, 0);
    unlinkat(base, name, AT_REMOVEDIR);
}

/* A folder that mkdtemp(3) made for this user, not one that a link leads to: $TMPDIR may belong to everybody. -1: no. */
static int open_temporary(int base, const char *name)
{
    struct stat st;
    const int fd = openat(base, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd >= 0 && fstat(fd, &st) == 0 && st.st_uid == geteuid() && (st.st_mode & 07777) == 0700)
        return fd;
    if (fd >= 0)
        close(fd);
    return -1;
}

void tt_temporary_clear(const char *kind)
{
    tt_str start = {0};
    tt_str_printf(&start, "ttrun-%s-", kind);
    DIR *d = opendir(temporary_base());
    for (const struct dirent *e = d ? readdir(d) : NULL; e; e = readdir(d)) {
        if (strncmp(e->d_name, start.s, start.n) != 0 || strlen(e->d_name) != start.n + 6)
            continue;
        const int folder = open_temporary(dirfd(d), e->d_name);
        const int mark = folder >= 0 ? take_leftover(folder, MARK) : -1;
        if (mark >= 0) {
            remove_temporary(dirfd(d), e->d_name, folder);
            close(mark);
        }
        if (folder >= 0)
            close(folder);
    }
    if (d)
        closedir(d);
    tt_str_free(&start);
}

static bool make_temporary(const char *kind, tt_str *path, int *fd)
{
    tt_str mark = {0};
    tt_str_clear(path);
    tt_str_printf(path, "%s/ttrun-%s-XXXXXX", temporary_base(), kind);
    bool made = mkdtemp(path->s) != NULL;
    if (made) {
        tt_str_printf(&mark, "%s/%s", path->s, MARK);
        *fd = open(mark.s, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        if (*fd < 0)
            rmdir(path->s);
        made = *fd >= 0 && take(mark.s, *fd);
        if (*fd >= 0 && !made)
            close(*fd);
    }
    tt_str_free(&mark);
    return made;
}

bool tt_temporary_new(const char *kind, tt_temporary *out)
{
    tt_str path = {0};
    int fd = -1;
    bool made = false;
    for (int tries = 0; tries < 3 && !made; tries++)
        made = make_temporary(kind, &path, &fd);
    *out = (tt_temporary){.fd = -1};
    if (made)
        *out = (tt_temporary){path.s, fd};
    else
        tt_str_free(&path);
    return made;
}

void tt_temporary_remove(tt_temporary *t)
{
    if (t->path) {
        const int folder = open_temporary(AT_FDCWD, t->path);
        if (folder >= 0 && tt_entry_is_fd(folder, MARK, t->fd))
            remove_temporary(AT_FDCWD, t->path, folder);
        if (folder >= 0)
            close(folder);
        close(t->fd);
    }
    free(t->path);
    *t = (tt_temporary){.fd = -1};
}
