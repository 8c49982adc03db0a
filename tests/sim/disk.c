/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "../preload.h"
#include "journal.h"
#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Preloaded into the trainer by tests/sim: the disk below the run folder, the wall clock and the messages between
 * ranks, with the fault that $SIM_JOURNAL (journal.h) asks for. A sync costs nothing: it only marks what a
 * loss of power can no longer take back. */

static sim_shared *sim;
static int journal_fd = -1;
static pthread_mutex_t in_process = PTHREAD_MUTEX_INITIALIZER;

__attribute__((constructor)) static void map_journal(void)
{
    const char *path = getenv("SIM_JOURNAL");
    journal_fd = path ? (int)syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC) : -1;
    void *p = journal_fd < 0 ? MAP_FAILED
                             : mmap(NULL, sizeof(sim_shared), PROT_READ | PROT_WRITE, MAP_SHARED,
                                    journal_fd, 0);
    sim = p == MAP_FAILED ? NULL : p;
}

/* ---- where and whether ---- */

static bool below(const char *path)
{
    const size_t n = sim ? strlen(sim->folder) : 0;
    return n && path && strncmp(path, sim->folder, n) == 0 && (path[n] == '/' || !path[n]);
}

static bool path_of(int fd, char out[4096])
{
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    const ssize_t k = sim && fd > 2 ? readlink(link, out, 4095) : -1;
    out[k > 0 ? k : 0] = 0;
    return k > 0;
}

static void lock(void)
{
    pthread_mutex_lock(&in_process);
    flock(journal_fd, LOCK_EX);
}

static void unlock(void)
{
    flock(journal_fd, LOCK_UN);
    pthread_mutex_unlock(&in_process);
}

static void die(void) /* with the lock held: no other call is half done */
{
    atomic_store(&sim->reached, 1);
    for (;;) {
        kill(getpid(), SIGKILL);
        pause();
    }
}

/* Lets other processes and threads go first at some calls; no verdict depends on how long. */
static void stall(uint64_t number)
{
    if (sim->stall_every && sim_mix(sim->seed ^ number) % (uint64_t)sim->stall_every == 0)
        nanosleep(&(struct timespec){0, sim->stall_us * 1000L}, NULL);
}

typedef struct call {
    bool ours, torn, last, part; /* last: the process ends after it; part: a short write */
    int error;                   /* 0: none */
} call;

/* A call that changes what is below the folder; `leave` ends it. grows: a full disk refuses it. */
static call enter(const char *path, bool grows)
{
    call c = {.ours = below(path)};
    if (!c.ours)
        return c;
    const int64_t n = atomic_fetch_add(&sim->calls, 1);
    stall((uint64_t)n);
    lock();
    sim->call = n;
    const bool here = n == sim->at, from = n >= sim->at;
    const bool fits = sim->number != ENOSPC || grows;
    const sim_fault f = sim->fault;
    if (f == SIM_KILL_BEFORE && here)
        die();
    c.torn = f == SIM_KILL_TORN && here;
    c.last = (f == SIM_KILL_AFTER && here) || c.torn;
    c.part = f == SIM_SHORT && from;
    if (fits && ((f == SIM_ERROR_ONCE && here) || (f == SIM_ERROR_ON && from)))
        c.error = sim->number;
    if (c.error || c.part)
        atomic_store(&sim->reached, 1);
    errno = c.error ? c.error : errno;
    return c;
}

static void leave(call c)
{
    const int e = errno;
    if (c.ours && c.last)
        die();
    if (c.ours)
        unlock();
    errno = e;
}

/* ---- the journal ---- */

static uint64_t inode_of(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0 ? (uint64_t)st.st_ino : 0;
}

static uint64_t split(const char *path, char name[SIM_NAME])
{
    char folder[4096];
    const char *slash = strrchr(path, '/');
    snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - path) : 0, path);
    snprintf(name, SIM_NAME, "%s", slash ? slash + 1 : path);
    return inode_of(folder);
}

static sim_op *add(sim_kind kind, const char *path)
{
    const int i = atomic_load(&sim->n_ops);
    if (i >= SIM_OPS)
        abort();
    sim_op *o = &sim->ops[i];
    memset(o, 0, sizeof *o);
    o->kind = kind;
    o->call = sim->call;
    if (path)
        o->folder = o->to_folder = split(path, o->name);
    atomic_store(&sim->n_ops, i + 1);
    return o;
}

/* A removed file stays under a number, so that a loss of power can bring it back. */
static int keep(const char *path)
{
    char to[800];
    struct stat st;
    if (lstat(path, &st) != 0 || S_ISDIR(st.st_mode))
        return 0;
    snprintf(to, sizeof to, "%s/%d", sim->removed, ++sim->n_kept);
    return linkat(AT_FDCWD, path, AT_FDCWD, to, 0) == 0 ? sim->n_kept : 0;
}

/* An empty folder stays under a number, too: so its inode number is not given to another one. */
static int keep_folder(const char *path, int *kept)
{
    char to[800];
    int entries = 0;
    DIR *d = opendir(path);
    if (!d)
        return -1;
    while (readdir(d))
        entries++;
    closedir(d);
    errno = ENOTEMPTY;
    *kept = ++sim->n_kept;
    snprintf(to, sizeof to, "%s/%d", sim->removed, *kept);
    return entries > 2 ? -1 : renameat(AT_FDCWD, path, AT_FDCWD, to);
}

static void wrote(int fd, int64_t at, int64_t n)
{
    struct stat st;
    if (n <= 0 || fstat(fd, &st) != 0 || !S_ISREG(st.st_mode))
        return;
    sim_op *o = add(SIM_DATA, NULL);
    o->inode = (uint64_t)st.st_ino;
    o->begin = at;
    o->end = at + n;
}

static int mark_synced(int fd)
{
    struct stat st;
    if (fstat(fd, &st) != 0)
        return -1;
    const uint64_t i = (uint64_t)st.st_ino;
    const int n = atomic_load(&sim->n_ops);
    for (sim_op *o = sim->ops; o < sim->ops + n; o++) {
        o->after_barrier |= o->kind != SIM_DATA;
        if (S_ISDIR(st.st_mode))
            o->synced |= o->kind != SIM_DATA && o->to_folder == i;
        else if (o->inode == i)
            *(o->kind == SIM_DATA ? &o->synced : &o->file_synced) = true;
    }
    return 0;
}

/* ---- the calls ---- */

static size_t part_of(call c, size_t n)
{
    return c.torn ? n / 2 : c.part && n > 1 ? 1 + sim_mix(sim->seed ^ n) % (n - 1) : n;
}

ssize_t write(int fd, const void *p, size_t n)
{
    NEXT(ssize_t, "write", int, const void *, size_t);
    char path[4096];
    if (!path_of(fd, path) || !below(path))
        return next(fd, p, n);
    const call c = enter(path, true);
    const ssize_t k = next(fd, p, c.error ? n / 2 : part_of(c, n));
    wrote(fd, lseek(fd, 0, SEEK_CUR) - (k > 0 ? k : 0), k);
    if (c.error)
        errno = c.error;
    leave(c);
    return c.error ? -1 : k;
}

ssize_t pwrite(int fd, const void *p, size_t n, off_t at)
{
    NEXT(ssize_t, "pwrite", int, const void *, size_t, off_t);
    char path[4096];
    if (!path_of(fd, path) || !below(path))
        return next(fd, p, n, at);
    const call c = enter(path, true);
    size_t part = c.error ? n / 2 : part_of(c, n);
    part = part < n ? part / 4096 * 4096 : part; /* O_DIRECT */
    const ssize_t k = next(fd, p, part ? part : n, at);
    wrote(fd, at, k);
    if (c.error)
        errno = c.error;
    leave(c);
    return c.error ? -1 : k;
}

static int sync_fd(int fd, int (*next)(int))
{
    char path[4096];
    if (!path_of(fd, path) || !below(path))
        return next(fd);
    const call c = enter(path, false);
    const int rc = c.error ? -1 : mark_synced(fd);
    leave(c);
    return rc;
}

int fsync(int fd)
{
    NEXT(int, "fsync", int);
    return sync_fd(fd, next);
}

int fdatasync(int fd)
{
    NEXT(int, "fdatasync", int);
    return sync_fd(fd, next);
}

int ftruncate(int fd, off_t n)
{
    NEXT(int, "ftruncate", int, off_t);
    char path[4096];
    if (!path_of(fd, path) || !below(path))
        return next(fd, n);
    const call c = enter(path, false);
    const int rc = c.error ? -1 : next(fd, n);
    leave(c);
    return rc;
}

int fallocate(int fd, int mode, off_t at, off_t n)
{
    NEXT(int, "fallocate", int, int, off_t, off_t);
    char path[4096];
    if (!path_of(fd, path) || !below(path))
        return next(fd, mode, at, n);
    const call c = enter(path, true);
    const int rc = c.error ? -1 : next(fd, mode, at, n);
    leave(c);
    return rc;
}

int open(const char *path, int flags, ...)
{
    NEXT(int, "open", const char *, int, ...);
    MODE_OF_OPEN(flags, mode);
    if (!below(path) || ((flags & O_ACCMODE) == O_RDONLY && !(flags & O_CREAT)))
        return next(path, flags, mode);
    const call c = enter(path, flags & O_CREAT);
    const bool isnew = (flags & O_CREAT) && !inode_of(path);
    const int fd = c.error ? -1 : next(path, flags, mode);
    if (fd >= 0 && isnew)
        add(SIM_CREATE, path)->inode = inode_of(path);
    leave(c);
    return fd;
}

int mkdir(const char *path, mode_t mode)
{
    NEXT(int, "mkdir", const char *, mode_t);
    const call c = enter(path, true);
    const int rc = c.error ? -1 : next(path, mode);
    if (c.ours && rc == 0)
        add(SIM_MKDIR, path)->inode = inode_of(path);
    leave(c);
    return rc;
}

static void renamed(sim_kind kind, const char *from, const char *to, int kept)
{
    sim_op *o = add(kind, from);
    o->to_folder = split(to, o->to_name);
    o->kept = kept;
    o->inode = inode_of(to);
}

int rename(const char *from, const char *to)
{
    NEXT(int, "rename", const char *, const char *);
    const call c = enter(from, false);
    const int kept = c.ours && !c.error ? keep(to) : 0;
    const int rc = c.error ? -1 : next(from, to);
    if (c.ours && rc == 0)
        renamed(SIM_RENAME, from, to, kept);
    leave(c);
    return rc;
}

int renameat2(int from_fd, const char *from, int to_fd, const char *to, unsigned flags)
{
    NEXT(int, "renameat2", int, const char *, int, const char *, unsigned);
    const call c = enter(from, false);
    const int rc = c.error ? -1 : next(from_fd, from, to_fd, to, flags);
    if (c.ours && rc == 0)
        renamed(flags & RENAME_EXCHANGE ? SIM_EXCHANGE : SIM_RENAME, from, to, 0);
    leave(c);
    return rc;
}

static int remove_name(int parent, const char *name, const char *path, int flags,
                       int (*next)(int, const char *, int))
{
    const call c = enter(path, false);
    const bool folder = flags & AT_REMOVEDIR;
    int kept = c.ours && !c.error && !folder ? keep(path) : 0;
    const uint64_t inode = c.ours ? inode_of(path) : 0;
    const int rc = c.error            ? -1
                   : c.ours && folder ? keep_folder(path, &kept)
                                      : next(parent, name, flags);
    if (c.ours && rc == 0) {
        sim_op *o = add(folder ? SIM_RMDIR : SIM_UNLINK, path);
        o->kept = kept;
        o->inode = inode;
    }
    leave(c);
    return rc;
}

int unlinkat(int parent, const char *name, int flags)
{
    NEXT(int, "unlinkat", int, const char *, int);
    char folder[4096], path[8300];
    if (*name == '/' || !path_of(parent, folder))
        snprintf(path, sizeof path, "%s", name);
    else
        snprintf(path, sizeof path, "%s/%s", folder, name);
    return remove_name(parent, name, path, flags, next);
}

int unlink(const char *path)
{
    NEXT(int, "unlinkat", int, const char *, int);
    return remove_name(AT_FDCWD, path, path, 0, next);
}

int rmdir(const char *path)
{
    NEXT(int, "unlinkat", int, const char *, int);
    return remove_name(AT_FDCWD, path, path, AT_REMOVEDIR, next);
}

/* ---- the clocks ---- */

/* Every rank looks at the monotonic clock before and after each of its messages: there it stalls or is killed. The
 * wall clock jumps or stands. */
int clock_gettime(clockid_t clock, struct timespec *t)
{
    NEXT(int, "clock_gettime", clockid_t, struct timespec *);
    const int rc = next(clock, t);
    if (!sim || rc)
        return rc;
    if (clock == CLOCK_MONOTONIC) {
        const int64_t n = atomic_fetch_add(&sim->messages, 1);
        if (sim->fault == SIM_KILL_MESSAGE && n == sim->at) {
            lock();
            die();
        }
        stall((uint64_t)n ^ 0x5eed);
    } else if (clock == CLOCK_REALTIME && sim->clock_at >= 0 &&
               atomic_fetch_add(&sim->looks, 1) >= sim->clock_at) {
        t->tv_sec = (sim->clock_stands ? 1700000000 : t->tv_sec) + (time_t)sim->clock_jump;
        t->tv_nsec = sim->clock_stands ? 0 : t->tv_nsec;
    }
    return 0;
}
