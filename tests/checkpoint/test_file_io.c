/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "../preload.h"
#include "ckpt_test.h"
#include <errno.h>
#include <stdatomic.h>

/* Large files as they are written and read, with what file systems do: refuse O_DIRECT, or space in
 * advance, write a part, fail, or lose a write. The definitions below take the place of libc's. */

typedef enum fault {
    NONE,
    NO_DIRECT,    /* the flag is refused */
    NO_UNALIGNED, /* with the flag each write and read is refused */
    NO_SPACE_IN_ADVANCE,
    FULL_IN_ADVANCE,
    SHORT_WRITES,
    FULL, /* the second large write */
    LOST, /* all large writes but the first are reported done, and are not */
} fault;
static fault now;
static atomic_int direct_writes, writes;
static atomic_llong bytes_read;

static bool is_direct(int fd)
{
    NEXT(int, "fcntl", int, int, ...);
    const int flags = next(fd, F_GETFL);
    return flags >= 0 && flags & O_DIRECT;
}

static int refuse(int number)
{
    errno = number;
    return -1;
}

int fcntl(int fd, int what, ...)
{
    NEXT(int, "fcntl", int, int, ...);
    va_list list;
    va_start(list, what);
    const long arg = va_arg(list, long);
    va_end(list);
    if (what == F_SETFL && arg & O_DIRECT && now == NO_DIRECT)
        return refuse(EINVAL);
    return next(fd, what, arg);
}

int open(const char *path, int flags, ...)
{
    NEXT(int, "open", const char *, int, ...);
    MODE_OF_OPEN(flags, mode);
    return flags & O_DIRECT && now == NO_DIRECT ? refuse(EINVAL) : next(path, flags, mode);
}

int fallocate(int fd, int mode, off_t at, off_t n)
{
    NEXT(int, "fallocate", int, int, off_t, off_t);
    if (now == NO_SPACE_IN_ADVANCE || now == FULL_IN_ADVANCE)
        return refuse(now == FULL_IN_ADVANCE ? ENOSPC : EOPNOTSUPP);
    return next(fd, mode, at, n);
}

ssize_t pwrite(int fd, const void *p, size_t n, off_t at)
{
    NEXT(ssize_t, "pwrite", int, const void *, size_t, off_t);
    const int k = atomic_fetch_add(&writes, 1);
    if (is_direct(fd) && now == NO_UNALIGNED)
        return refuse(EINVAL);
    atomic_fetch_add(&direct_writes, is_direct(fd));
    if (now == FULL && k == 1)
        return refuse(ENOSPC);
    if (now == SHORT_WRITES && n > 4096)
        n = n / 2 / 4096 * 4096;
    return now == LOST && at > 0 ? (ssize_t)n : next(fd, p, n, at);
}

ssize_t pread(int fd, void *p, size_t n, off_t at)
{
    NEXT(ssize_t, "pread", int, void *, size_t, off_t);
    if (is_direct(fd) && now == NO_UNALIGNED)
        return refuse(EINVAL);
    const ssize_t k = next(fd, p, n, at);
    atomic_fetch_add(&bytes_read, k > 0 ? k : 0);
    return k;
}

/* ---- files ---- */

/* 11 MiB and some bytes in memory, whose parts are of odd sizes; with gaps between them they are no run. */
typedef struct data {
    uint8_t *p, *file; /* the memory; what the file is to hold */
    size_t bytes;
    tt_file_part parts[400];
    size_t n;
} data;

static data make_data(fixture *f, size_t shift, size_t gap, size_t bytes)
{
    data d = {0};
    const size_t room = 4096 + shift + 2 * bytes;
    d.p = tt_arena_alloc(f->a, room + 4096);
    d.p += (4096 - (uintptr_t)d.p % 4096) % 4096 + shift;
    d.file = tt_arena_alloc(f->a, bytes + 1);
    for (size_t at = 0, k = 0; d.bytes < bytes; k++) {
        const size_t n =
            k % 7 == 3 ? 0 : TT_MIN(bytes - d.bytes, (size_t)1 + (k * k * 977) % 300000);
        for (size_t i = 0; i < n; i++)
            d.p[at + i] = (uint8_t)((d.bytes + i) * 2654435761u >> 13);
        memcpy(d.file + d.bytes, d.p + at, n);
        d.parts[d.n++] = (tt_file_part){d.p + at, n};
        at += n + gap;
        d.bytes += n;
    }
    return d;
}

static void assert_written(fixture *f, const data *d)
{
    char hash[33], want[33], disk[33], *text;
    int64_t bytes;
    size_t n;
    tt_hash128_hex(d->file, d->bytes, want);
    assert_ok(tt_write_parts(in(f, "x"), d->parts, d->n, hash, &f->err), f);
    assert_string_equal(hash, want);
    assert_ok(tt_read_file(in(f, "x"), 0, &text, &n, &f->err), f);
    assert_int_equal(n, d->bytes);
    assert_memory_equal(text, d->file, n);
    free(text);
    assert_ok(tt_hash_file(in(f, "x"), &bytes, disk, &f->err), f);
    assert_string_equal(disk, want);
    assert_int_equal(bytes, (int64_t)d->bytes);
}

#define LARGE_BYTES (((size_t)17 << 20) + 4321)

static void test_parts_become_one_file(void **state)
{
    fixture *f = *state;
    static const size_t sizes[] = {0, 1, 4096, 70000, 1 << 20, ((size_t)8 << 20) + 1, LARGE_BYTES};
    for (size_t i = 0; i < TT_COUNT(sizes); i++)
        for (size_t shift = 0; shift < 2; shift++) {
            const data d = make_data(f, 24 * shift, i % 2 ? 8 : 0, sizes[i]);
            assert_written(f, &d);
        }
}

static void test_aligned_memory_is_written_past_the_cache(void **state)
{
    fixture *f = *state;
    const data d = make_data(f, 0, 0, LARGE_BYTES);
    const int probe = open(in(f, "probe"), O_WRONLY | O_CREAT | O_DIRECT, 0666);
    if (probe < 0)
        skip(); /* the folder's file system has no O_DIRECT */
    close(probe);
    direct_writes = writes = 0;
    assert_written(f, &d);
    assert_int_equal(direct_writes, 3); /* 8 MiB, 8 MiB, the rest */
    assert_int_equal(writes, 3);
}

static void test_file_systems_without_it_get_the_same_bytes(void **state)
{
    fixture *f = *state;
    static const fault of[] = {NO_DIRECT, NO_UNALIGNED, NO_SPACE_IN_ADVANCE, SHORT_WRITES};
    for (size_t i = 0; i < TT_COUNT(of); i++) {
        const data d = make_data(f, 40, 0, LARGE_BYTES);
        now = of[i];
        direct_writes = 0;
        assert_written(f, &d);
        if (now == NO_DIRECT || now == NO_UNALIGNED)
            assert_int_equal(direct_writes, 0);
        now = NONE;
    }
}

static void assert_not_written(fixture *f, fault why, const char *says)
{
    const data d = make_data(f, 0, 0, LARGE_BYTES);
    char hash[33];
    now = why;
    writes = 0;
    assert_int_equal(tt_write_parts(in(f, "x"), d.parts, d.n, hash, &f->err), TT_EIO);
    now = NONE;
    assert_has(f->err.text, says);
    assert_false(tt_path_exists(in(f, "x")));
}

static void test_failed_writes_leave_no_file(void **state)
{
    fixture *f = *state;
    assert_not_written(f, FULL_IN_ADVANCE, "No space left on device; free some space");
    assert_int_equal(writes, 0);
    assert_not_written(f, FULL, "No space left on device; free some space");
    assert_not_written(f, LOST, "reads back wrong");
}

/* ---- runs ---- */

static void test_runs_are_read(void **state)
{
    fixture *f = *state;
    static const fault of[] = {NONE, NO_DIRECT, NO_UNALIGNED};
    const data d = make_data(f, 0, 0, LARGE_BYTES);
    put_file(in(f, "x"), d.file, d.bytes);
    const int fd = open(in(f, "x"), O_RDONLY);
    fsync(fd);
    for (int round = 0; round < 6; round++) {
        tt_file_run runs[2000];
        size_t n = 0;
        uint8_t *to = calloc(2, d.bytes);
        for (size_t at = round % 3 == 1 ? (9u << 20) + 7 : 0; at < d.bytes && n < TT_COUNT(runs);) {
            const size_t left = TT_READ_BLOCK - at % TT_READ_BLOCK;
            const size_t bytes = TT_MIN(TT_MIN(left, d.bytes - at), 513 + (n * n * 31) % 90000);
            runs[n++] = (tt_file_run){at, bytes, to + at + 3};
            at += bytes + (n % 3 ? 0 : 100);
        }
        if (round >= 3) /* not in the page cache */
            posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
        now = of[round % 3];
        assert_ok(tt_read_runs(in(f, "x"), runs, n, NULL, &f->err), f);
        now = NONE;
        for (size_t i = 0; i < n; i++)
            assert_memory_equal(runs[i].to, d.file + runs[i].at, runs[i].bytes);
        free(to);
    }
    close(fd);
    assert_ok(tt_read_runs(in(f, "absent"), NULL, 0, NULL, &f->err), f);
}

static void test_cut_file_is_an_error(void **state)
{
    fixture *f = *state;
    uint8_t to[4096];
    const tt_file_run run = {8192, sizeof to, to};
    put_file(in(f, "x"), to, 4096);
    assert_int_equal(tt_read_runs(in(f, "x"), &run, 1, NULL, &f->err), TT_EFORMAT);
    assert_has(f->err.text, "cut short");
    assert_int_equal(tt_read_runs(in(f, "absent"), &run, 1, NULL, &f->err), TT_ENOTFOUND);
}

/* ---- runs of a file that is hashed ---- */

#define MORE_BYTES (((size_t)45 << 20) + 4321) /* more blocks than buffers */
enum { LAST_BLOCK = 11 };

/* Reads runs of 5 bytes to 90 KB of some blocks, and compares them. */
static void read_blocks(fixture *f, const data *d, size_t first, size_t end, tt_file_check *check)
{
    tt_file_run runs[2000];
    size_t n = 0;
    uint8_t *to = calloc(1, d->bytes);
    for (size_t at = first * TT_READ_BLOCK + 7; at < TT_MIN(end * TT_READ_BLOCK, d->bytes);) {
        const size_t left = TT_READ_BLOCK - at % TT_READ_BLOCK;
        const size_t bytes = TT_MIN(TT_MIN(left, d->bytes - at), 5 + (n * n * 31) % 90000);
        runs[n++] = (tt_file_run){at, bytes, to + at};
        at += bytes + (n % 3 ? 0 : 100);
    }
    assert_ok(tt_read_runs(in(f, "x"), runs, n, check, &f->err), f);
    for (size_t i = 0; i < n; i++)
        assert_memory_equal(runs[i].to, d->file + runs[i].at, runs[i].bytes);
    free(to);
}

static void assert_rest(fixture *f, const data *d, tt_file_check *check)
{
    char want[33], hash[33];
    int64_t bytes = 0;
    tt_hash128_hex(d->file, d->bytes, want);
    assert_ok(tt_hash_rest(in(f, "x"), check, &bytes, hash, &f->err), f);
    assert_string_equal(hash, want);
    assert_int_equal(bytes, (int64_t)d->bytes);
    tt_hasher_free(check->hasher);
    *check = (tt_file_check){0};
}

static void test_what_is_loaded_is_hashed_and_read_once(void **state)
{
    fixture *f = *state;
    static const fault of[] = {NONE, NO_DIRECT, NO_UNALIGNED};
    static const size_t sizes[] = {100, TT_READ_BLOCK, MORE_BYTES};
    for (size_t i = 0; i < TT_COUNT(of) * TT_COUNT(sizes); i++) {
        const data d = make_data(f, 0, 0, sizes[i % 3]);
        tt_file_check check = {0};
        put_file(in(f, "x"), d.file, d.bytes);
        now = of[i / 3];
        bytes_read = 0;
        read_blocks(f, &d, 0, 1, &check);
        if (d.bytes == MORE_BYTES) {
            read_blocks(f, &d, 1, 2, &check);
            read_blocks(f, &d, 3, LAST_BLOCK - 1, &check); /* block 2 is hashed on the way */
            assert_int_equal(bytes_read, (LAST_BLOCK - 1) * (long long)TT_READ_BLOCK);
        }
        assert_rest(f, &d, &check);
        assert_int_equal(bytes_read, (long long)d.bytes);
        assert_rest(f, &d, &check); /* nothing was loaded before */
        assert_int_equal(bytes_read, 2 * (long long)d.bytes);
        now = NONE;
    }
}

static void test_loads_in_any_order_have_one_hash(void **state)
{
    fixture *f = *state;
    static const size_t firsts[][4] = {
        {LAST_BLOCK, 0, 5, 2},
        {3,          9, 1, 6},
        {0,          0, 4, 4}
    };
    const data d = make_data(f, 0, 0, MORE_BYTES);
    put_file(in(f, "x"), d.file, d.bytes);
    for (size_t i = 0; i < TT_COUNT(firsts); i++) {
        tt_file_check check = {0};
        for (size_t k = 0; k < 4; k++) /* k + 1 blocks: some are hashed already, some are not */
            read_blocks(f, &d, firsts[i][k], firsts[i][k] + k + 1, &check);
        assert_rest(f, &d, &check);
    }
}

static void test_files_that_shrink_are_not_what_was_hashed(void **state)
{
    fixture *f = *state;
    char hash[33];
    int64_t bytes = 0;
    tt_file_check check = {0};
    const data d = make_data(f, 0, 0, LARGE_BYTES);
    put_file(in(f, "x"), d.file, d.bytes);
    read_blocks(f, &d, 0, 3, &check);
    assert_int_equal(truncate(in(f, "x"), 4096), 0);
    assert_ok(tt_hash_rest(in(f, "x"), &check, &bytes, hash, &f->err), f);
    assert_int_equal(bytes, 4096);
    tt_hasher_free(check.hasher);
}

/* ---- pieces ---- */

/* Staged pieces lie as in the files, so that nothing is copied together when they are written; a second
 * box of a tensor goes to a second file, replicas take no memory. */
static void test_staged_pieces_are_what_is_written(void **state)
{
    fixture *f = *state;
    const model_tensor of[] = {
        {"b",       TT_F32,  2, {700, 300}, 1},
        {"a",       TT_BF16, 1, {5},        2},
        {"replica", TT_F32,  1, {1000},     3},
        {"c",       TT_F32,  2, {500, 601}, 4}
    };
    tt_ckpt_piece p[5], staged[5], back[4];
    size_t n = 0;
    for (size_t i = 0; i < TT_COUNT(of); i++) {
        tt_box box = whole_box(&of[i]);
        if (i == 3)
            box.end[0] = 200;
        p[n++] = piece_of(f->a, &of[i], &box, i != 2, true);
        if (i == 3) {
            box.begin[0] = 200;
            box.end[0] = 500;
            p[n++] = piece_of(f->a, &of[i], &box, true, true);
        }
    }
    const size_t bytes = tt_ckpt_stage(p, n, NULL, NULL);
    assert_int_equal(bytes % 4096, 300 * 601 * 4 % 4096); /* the second file begins with a page */
    uint8_t *memory = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    assert_int_equal(tt_ckpt_stage(p, n, staged, memory), bytes);
    for (size_t i = 0; i < n; i++)
        if (p[i].owner)
            memcpy(staged[i].data, p[i].data,
                   (size_t)tt_box_numel(&p[i].box, p[i].n_dims) * tt_dtype_size(p[i].dtype));
    const tt_trainer_state st = {.step = 1, .world = 2};
    assert_ok(tt_ckpt_begin(f->folder, 1, &f->err), f);
    direct_writes = 0;
    assert_ok(tt_ckpt_write(f->folder, 1, 0, staged, n, &f->err), f);
    const tt_box all = whole_box(&of[2]);
    const tt_ckpt_piece other = piece_of(f->a, &of[2], &all, true, true);
    assert_ok(tt_ckpt_write(f->folder, 1, 1, &other, 1, &f->err), f);
    assert_ok(tt_ckpt_commit(f->folder, 1, &st, &f->err), f);
    tt_ckpt_reader *r;
    assert_ok(tt_ckpt_open(in(f, "step-1"), &r, &f->err), f);
    for (size_t i = 0; i < TT_COUNT(of); i++) {
        const tt_box box = whole_box(&of[i]);
        back[i] = piece_of(f->a, &of[i], &box, true, false);
    }
    assert_ok(tt_ckpt_load(r, back, TT_COUNT(of), &f->err), f);
    for (size_t i = 0; i < TT_COUNT(of); i++)
        assert_piece(f->a, &of[i], &back[i]);
    tt_ckpt_close(r);
    free(memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_parts_become_one_file),
        TEST(test_aligned_memory_is_written_past_the_cache),
        TEST(test_file_systems_without_it_get_the_same_bytes),
        TEST(test_failed_writes_leave_no_file),
        TEST(test_runs_are_read),
        TEST(test_cut_file_is_an_error),
        TEST(test_what_is_loaded_is_hashed_and_read_once),
        TEST(test_loads_in_any_order_have_one_hash),
        TEST(test_files_that_shrink_are_not_what_was_hashed),
        TEST(test_staged_pieces_are_what_is_written),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
