/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "../preload.h"
#include "ckpt_test.h"
#include <errno.h>
#include <stdatomic.h>
#include <sys/wait.h>

/* Every call of the system that a save makes fails once, or is the last one of the process: the
 * checkpoint before stays whole, and a save afterwards succeeds. The definitions below take the place of
 * libc's in this program. */

static int at = -1;      /* the call that fails; -1: none */
static atomic_int calls; /* large files are written by threads */
static int number;       /* its error; 0: the process ends there */

static bool fails(void)
{
    if (at < 0 || atomic_fetch_add(&calls, 1) != at)
        return false;
    if (!number)
        _exit(77);
    errno = number;
    return true;
}

ssize_t write(int fd, const void *p, size_t n)
{
    NEXT(ssize_t, "write", int, const void *, size_t);
    if (fd > 2 && fails()) {
        const int e = errno;
        const ssize_t half = next(fd, p, n / 2); /* a torn write */
        (void)half;
        errno = e;
        return -1;
    }
    return next(fd, p, n);
}

ssize_t pwrite(int fd, const void *p, size_t n, off_t where)
{
    NEXT(ssize_t, "pwrite", int, const void *, size_t, off_t);
    if (fails()) {
        const int e = errno;
        const ssize_t half = next(fd, p, n / 2 / 4096 * 4096, where);
        (void)half;
        errno = e;
        return -1;
    }
    return next(fd, p, n, where);
}

/* The disk itself is not waited for: no power is lost here (tests/sim has that). */
int fsync(int fd)
{
    (void)fd;
    return fails() ? -1 : 0;
}

int open(const char *path, int flags, ...)
{
    NEXT(int, "open", const char *, int, ...);
    MODE_OF_OPEN(flags, mode);
    return fails() ? -1 : next(path, flags, mode);
}

int mkdir(const char *path, mode_t mode)
{
    NEXT(int, "mkdir", const char *, mode_t);
    return fails() ? -1 : next(path, mode);
}

int rename(const char *from, const char *to)
{
    NEXT(int, "rename", const char *, const char *);
    return fails() ? -1 : next(from, to);
}

int renameat2(int from_fd, const char *from, int to_fd, const char *to, unsigned flags)
{
    NEXT(int, "renameat2", int, const char *, int, const char *, unsigned);
    return fails() ? -1 : next(from_fd, from, to_fd, to, flags);
}

int unlink(const char *path)
{
    NEXT(int, "unlink", const char *);
    return fails() ? -1 : next(path);
}

int close(int fd)
{
    NEXT(int, "close", int);
    const bool bad = fails();
    const int e = errno, rc = next(fd);
    if (bad)
        errno = e;
    return bad ? -1 : rc;
}

/* What steps 1 and 2 have: [0] files that are written at once, [1] files of several blocks. */
static const model_tensor first[2] =
    {
        {"w", TT_F32, 2, {40, 60},    3},
        {"w", TT_F32, 2, {640, 1030}, 3},
},
                          second[2] = {
                              {"w", TT_F32, 2, {40, 60}, 4},
                              {"w", TT_F32, 2, {640, 1030}, 4},
};

static bool holds(fixture *f, const char *step, const model_tensor *t)
{
    tt_ckpt_reader *r;
    tt_box all = whole_box(t);
    tt_ckpt_piece p = piece_of(f->a, t, &all, true, false),
                  want = piece_of(f->a, t, &all, true, true);
    if (tt_ckpt_open(in(f, step), &r, &f->err) != TT_OK)
        return false;
    const bool same =
        tt_ckpt_load(r, &p, 1, &f->err) == TT_OK &&
        memcmp(p.data, want.data, (size_t)(t->shape[0] * t->shape[1]) * sizeof(float)) == 0;
    tt_ckpt_close(r);
    return same;
}

/* Saves `step` of `second` with a fault; returns whether the fault's call was reached. *saved: the save
 * said so. number 0: in a child that ends there. */
static bool save_with_fault(fixture *f, int64_t step, const model_tensor *t, int fault, bool *saved)
{
    int how;
    at = fault;
    calls = 0;
    if (number) {
        *saved = save_whole(f, f->folder, step, t, 1, 2, &f->err) == TT_OK;
        at = -1;
        return calls > fault;
    }
    const pid_t child = fork();
    if (child == 0)
        _exit(save_whole(f, f->folder, step, t, 1, 2, &f->err) == TT_OK ? 0 : 1);
    at = -1;
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_true(WIFEXITED(how) && WEXITSTATUS(how) != 1);
    *saved = WEXITSTATUS(how) == 0;
    return WEXITSTATUS(how) == 77;
}

/* step 2 beside step 1, or step 1 again. */
static void try_all(void **state, int error, int64_t step, int size)
{
    fixture *f = *state;
    const model_tensor *one = &first[size], *two = &second[size];
    tt_str faults = {0};
    int reached = 0, failed = 0;
    number = error;
    for (bool more = true; more; reached++) {
        bool saved = false;
        tt_remove_tree(f->folder, &f->err);
        assert_ok(save_whole(f, f->folder, 1, one, 1, 2, &f->err), f);
        more = save_with_fault(f, step, two, reached, &saved);
        failed += !saved;
        assert_ok(tt_ckpt_clear(f->folder, &f->err), f); /* as the next start does */
        if (!holds(f, "step-1", one) && !(step == 1 && holds(f, "step-1", two)))
            fail_msg("fault %d, error %d: step 1 is lost: %s", reached, error, f->err.text);
        if (tt_path_exists(in(f, "step-2")) && !holds(f, "step-2", two))
            fail_msg("fault %d, error %d: step 2 is there and not whole", reached, error);
        if (saved && !holds(f, step == 1 ? "step-1" : "step-2", two))
            fail_msg("fault %d, error %d: step %d is not what was said to be saved", reached, error,
                     (int)step);
        assert_ok(save_whole(f, f->folder, 2, two, 1, 2, &f->err), f);
        assert_ok(tt_ckpt_verify(in(f, "step-2"), &faults, &f->err), f);
    }
    tt_str_free(&faults);
    assert_true(reached > 15); /* the calls were seen at all */
    assert_true(failed > 8);
}

static void test_no_full_disk_loses_a_checkpoint(void **state)
{
    try_all(state, ENOSPC, 2, 0);
    try_all(state, ENOSPC, 1, 0);
    try_all(state, ENOSPC, 2, 1);
}

static void test_no_failing_device_loses_a_checkpoint(void **state)
{
    try_all(state, EIO, 2, 0);
    try_all(state, EIO, 1, 0);
}

static void test_no_refused_permission_loses_a_checkpoint(void **state)
{
    try_all(state, EACCES, 2, 0);
}

static void test_no_kill_loses_a_checkpoint(void **state)
{
    try_all(state, 0, 2, 0);
    try_all(state, 0, 1, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_no_full_disk_loses_a_checkpoint),
        TEST(test_no_failing_device_loses_a_checkpoint),
        TEST(test_no_refused_permission_loses_a_checkpoint),
        TEST(test_no_kill_loses_a_checkpoint),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
