/* SPDX-License-Identifier: Apache-2.0 */
#include "ckpt_test.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>

static const model_tensor w =
                              {
                                  "w", TT_F32, 2, {40, 60},
                                     3
},
                          changed = {"w", TT_F32, 2, {40, 60}, 4};

static tt_ckpt_piece part(fixture *f, const model_tensor *t, int64_t begin, int64_t end, bool owner)
{
    tt_box b = {
        {begin, 0 },
        {end,   60}
    };
    return piece_of(f->a, t, &b, owner, true);
}

static void assert_holds(fixture *f, const char *step, const model_tensor *t)
{
    tt_ckpt_reader *r;
    tt_box all = whole_box(t);
    tt_ckpt_piece p = piece_of(f->a, t, &all, true, false);
    assert_ok(tt_ckpt_open(in(f, step), &r, &f->err), f);
    assert_ok(tt_ckpt_load(r, &p, 1, &f->err), f);
    assert_piece(f->a, t, &p);
    tt_ckpt_close(r);
}

static void test_commit_publishes_only_shards_and_state(void **state)
{
    fixture *f = *state;
    const char **names;
    size_t n;
    assert_ok(save_whole(f, f->folder, 5, &w, 1, 0, &f->err), f);
    assert_ok(tt_folder_names(f->a, f->folder, NULL, &names, &n, &f->err), f);
    assert_int_equal(n, 1);
    assert_ok(tt_folder_names(f->a, in(f, "step-5"), NULL, &names, &n, &f->err), f);
    assert_int_equal(n, 2);
    assert_string_equal(names[0], "shard-00001-model-00001-of-00001.safetensors");
    assert_string_equal(names[1], "trainer.json");
    tt_trainer_state s;
    assert_ok(tt_ckpt_read_state(in(f, "step-5"), f->a, &s, &f->err), f);
    assert_int_equal(s.samples_seen, 50);
}

static void test_commit_replaces_a_step(void **state)
{
    fixture *f = *state;
    const char **names;
    size_t n;
    assert_ok(save_whole(f, f->folder, 5, &w, 1, 1, &f->err), f);
    assert_ok(save_whole(f, f->folder, 5, &changed, 1, 1, &f->err), f);
    assert_holds(f, "step-5", &changed);
    assert_ok(tt_folder_names(f->a, f->folder, NULL, &names, &n, &f->err), f);
    assert_int_equal(n, 1);
}

static void test_replace_works_without_an_exchange_of_names(void **state)
{
    fixture *f = *state;
    const char **names;
    size_t n;
    assert_ok(save_whole(f, f->folder, 5, &w, 1, 1, &f->err), f);
    assert_int_not_equal(
        tt_ckpt_replace_by_renames(f->a, in(f, "absent.tmp"), in(f, "step-5"), &f->err), TT_OK);
    assert_holds(f, "step-5", &w); /* moved back */
    assert_ok(save_whole(f, in(f, "other"), 5, &changed, 1, 1, &f->err), f);
    assert_ok(tt_ckpt_replace_by_renames(f->a, in(f, "other/step-5"), in(f, "step-5"), &f->err), f);
    assert_holds(f, "step-5", &changed);
    assert_ok(tt_folder_names(f->a, f->folder, NULL, &names, &n, &f->err), f);
    assert_int_equal(n, 2); /* other, step-5 */
}

static void test_commit_needs_the_shard_of_every_rank(void **state)
{
    fixture *f = *state;
    tt_trainer_state s = {.step = 1, .world = 2};
    tt_ckpt_piece p = part(f, &w, 0, 40, true);
    assert_ok(tt_ckpt_begin(f->folder, 1, &f->err), f);
    assert_ok(tt_ckpt_write(f->folder, 1, 0, &p, 1, &f->err), f);
    assert_int_equal(tt_ckpt_commit(f->folder, 1, &s, &f->err), TT_EIO);
    assert_has(f->err.text, "rank 1 has not written its part");
    assert_ok(tt_ckpt_write(f->folder, 1, 1, NULL, 0, &f->err), f); /* nothing of its own */
    assert_ok(tt_ckpt_commit(f->folder, 1, &s, &f->err), f);
    s.step = 2;
    assert_int_equal(tt_ckpt_commit(f->folder, 1, &s, &f->err), TT_EINVAL);
}

static void assert_refused(fixture *f, tt_ckpt_piece first, tt_ckpt_piece second, const char *says)
{
    tt_trainer_state s = {.step = 1, .world = 2};
    assert_ok(tt_ckpt_begin(f->folder, 1, &f->err), f);
    assert_ok(tt_ckpt_write(f->folder, 1, 0, &first, 1, &f->err), f);
    assert_ok(tt_ckpt_write(f->folder, 1, 1, &second, 1, &f->err), f);
    assert_int_not_equal(tt_ckpt_commit(f->folder, 1, &s, &f->err), TT_OK);
    assert_has(f->err.text, says);
    assert_false(tt_path_exists(in(f, "step-1")));
}

static void test_commit_refuses_tensors_that_are_not_whole(void **state)
{
    fixture *f = *state;
    const model_tensor longer = {
        "w", TT_F32, 2, {41, 60},
           3
    };
    assert_refused(f, part(f, &w, 0, 20, true), part(f, &w, 21, 40, true),
                   "[20:21, 0:60] is in no file");
    assert_refused(f, part(f, &w, 0, 20, true), part(f, &w, 20, 39, true),
                   "[39:40, 0:60] is in no file");
    assert_refused(f, part(f, &w, 0, 20, false), part(f, &w, 20, 40, false),
                   "[0:40, 0:60] is in no file");
    assert_refused(f, part(f, &w, 0, 21, true), part(f, &w, 20, 40, true), "is in two files");
    assert_refused(f, part(f, &w, 0, 20, true), part(f, &longer, 20, 41, true), "another shape");
}

/* Bytes in between are compared by the rank that wrote them, and by their hash when they are loaded. */
static void test_commit_refuses_a_shard_that_is_not_whole(void **state)
{
    fixture *f = *state;
    tt_trainer_state s = {.step = 1, .world = 1};
    tt_ckpt_piece p = part(f, &w, 0, 40, true);
    const char *shard = in(f, "step-1.tmp/shard-00001-model-00001-of-00001.safetensors");
    struct stat st;
    for (int round = 0; round < 2; round++) {
        assert_ok(tt_ckpt_begin(f->folder, 1, &f->err), f);
        assert_ok(tt_ckpt_write(f->folder, 1, 0, &p, 1, &f->err), f);
        assert_int_equal(stat(shard, &st), 0);
        FILE *file = fopen(shard, "r+b");
        fputc(0x5a, file);
        fclose(file);
        if (round == 0)
            assert_int_equal(truncate(shard, st.st_size - 1), 0);
        assert_int_equal(tt_ckpt_commit(f->folder, 1, &s, &f->err), TT_EIO);
        assert_has(f->err.text, "not whole");
        assert_has(f->err.text, round == 0 ? " bytes, " : "header");
        assert_false(tt_path_exists(in(f, "step-1")));
    }
}

/* ---- killed at any time, or without power ---- */

/* Calls that change the folder, of a child; it dies before the call of this number. */
static int64_t calls, die_at = INT64_MAX;

static void call_comes(void)
{
    if (++calls >= die_at)
        raise(SIGKILL);
}

/* Folders in which names have changed since their last sync. A change elsewhere is early while there are any: a loss of
 * power could keep it alone. */
static struct {
    ino_t folders[4];
    int n, early;
} unsynced;

static ino_t folder_of(const char *path)
{
    char folder[PATH_MAX];
    struct stat st;
    snprintf(folder, sizeof folder, "%.*s", (int)(strrchr(path, '/') - path), path);
    return stat(folder, &st) == 0 ? st.st_ino : 0;
}

static void changes(ino_t folder, bool needs_sync)
{
    bool known = false;
    for (int i = 0; i < unsynced.n; i++)
        known |= unsynced.folders[i] == folder;
    unsynced.early += unsynced.n > 0 && !known;
    if (needs_sync && !known && unsynced.n < 4)
        unsynced.folders[unsynced.n++] = folder;
}

static void is_synced(int fd)
{
    struct stat st;
    for (int i = 0; fstat(fd, &st) == 0 && i < unsynced.n; i++)
        if (unsynced.folders[i] == st.st_ino)
            unsynced.folders[i--] = unsynced.folders[--unsynced.n];
}

ssize_t pwrite(int fd, const void *p, size_t n, off_t at)
{
    call_comes();
    return syscall(SYS_pwrite64, fd, p, n, at);
}

int fsync(int fd)
{
    call_comes();
    is_synced(fd);
    return (int)syscall(SYS_fsync, fd);
}

int rename(const char *from, const char *to)
{
    call_comes();
    changes(folder_of(to), true);
    return (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
}

static int no_exchange; /* the error of a file system that cannot exchange names; 0: it can */

int renameat2(int from_fd, const char *from, int to_fd, const char *to, unsigned flags)
{
    call_comes();
    errno = no_exchange;
    if (no_exchange)
        return -1;
    changes(folder_of(to), true);
    return (int)syscall(SYS_renameat2, from_fd, from, to_fd, to, flags);
}

int unlink(const char *path)
{
    call_comes();
    changes(folder_of(path), true);
    return (int)syscall(SYS_unlinkat, AT_FDCWD, path, 0);
}

/* Of a tree that has a name which is never read, and is removed by the next start if it is there again. */
int unlinkat(int fd, const char *path, int flags)
{
    struct stat st;
    call_comes();
    if (fstat(fd, &st) == 0)
        changes(st.st_ino, false);
    return (int)syscall(SYS_unlinkat, fd, path, flags);
}

static int64_t *saved; /* the newest step that the child has saved */

/* Saves one step after the other, keeps two, and saves every third one twice; the tensors of step N
 * have salt N. */
static void save_for_ever(fixture *f, int64_t from)
{
    for (int64_t step = from;; step++) {
        tt_error err = {0};
        model_tensor t = w;
        t.salt = step;
        for (int times = step % 3 == 0 ? 2 : 1; times > 0; times--) {
            if (save_whole(f, f->folder, step, &t, 1, 2, &err) != TT_OK)
                _exit(1);
            *saved = step;
        }
    }
}

static void test_kill_at_any_time_leaves_whole_steps(void **state)
{
    fixture *f = *state;
    int64_t last = 0;
    uint32_t seed[4];
    saved = mmap(NULL, sizeof *saved, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(saved, MAP_FAILED);
    for (int round = 0; round < 60;
         round++) { /* first before each call of a step that is saved twice */
        tt_rng_u32x4(tt_rng_key_make(1, "kill", 0), (uint64_t)round, seed);
        pid_t pid = fork();
        if (pid == 0) {
            calls = 0;
            die_at = round < 40 ? round + 1 : 40 + (int64_t)(seed[0] % 200);
            save_for_ever(f, round < 40 ? last / 3 * 3 + 3 : last + 1);
        }
        int64_t *steps;
        size_t n;
        int status;
        waitpid(pid, &status, 0);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL); /* no save had failed */
        assert_ok(tt_ckpt_list(f->folder, f->a, &steps, &n, &f->err), f);
        if (n == 0) {
            assert_int_equal(*saved, 0);
            continue;
        }
        assert_true(steps[n - 1] >= *saved); /* nothing published is lost */
        last = steps[n - 1];
        const char **names;
        size_t n_names, whole = 0;
        assert_ok(tt_folder_names(f->a, f->folder, NULL, &names, &n_names, &f->err), f);
        for (size_t i = 0; i < n_names; i++) { /* a name without a suffix is a whole step */
            tt_str faults = {0};
            int64_t step = tt_step_of_name(names[i], NULL);
            if (step < 0)
                continue;
            model_tensor t = w;
            t.salt = step;
            assert_ok(tt_ckpt_verify(in(f, names[i]), &faults, &f->err), f);
            assert_holds(f, names[i], &t);
            whole++;
        }
        assert_int_equal(whole, n);
    }
    assert_true(last > 0);
    munmap(saved, sizeof *saved);
}

static void test_only_a_missing_exchange_of_names_is_made_up_for(void **state)
{
    fixture *f = *state;
    assert_ok(save_whole(f, f->folder, 1, &w, 1, 1, &f->err), f);
    no_exchange = EINVAL;
    assert_ok(save_whole(f, f->folder, 1, &changed, 1, 1, &f->err), f);
    assert_holds(f, "step-1", &changed);
    no_exchange = ENOSYS;
    assert_ok(save_whole(f, f->folder, 1, &w, 1, 1, &f->err), f);
    assert_holds(f, "step-1", &w);
    no_exchange = EIO;
    assert_int_equal(save_whole(f, f->folder, 1, &changed, 1, 1, &f->err), TT_EIO);
    assert_has(f->err.text, "cannot rename");
    assert_holds(f, "step-1", &w);
    no_exchange = 0;
}

static void assert_synced(const char *what)
{
    if (unsynced.n || unsynced.early)
        fail_msg("%s: %d folders are not synced, %d changes came before a sync", what, unsynced.n,
                 unsynced.early);
}

static void test_names_are_synced_before_files_go(void **state)
{
    fixture *f = *state;
    memset(&unsynced, 0, sizeof unsynced);
    assert_ok(save_whole(f, f->folder, 1, &w, 1, 1, &f->err), f);
    assert_synced("a step");
    assert_ok(save_whole(f, f->folder, 2, &w, 1, 1, &f->err), f);
    assert_false(tt_path_exists(in(f, "step-1")));
    assert_synced("a step that removes another one");
    assert_ok(save_whole(f, f->folder, 2, &changed, 1, 1, &f->err), f);
    assert_synced("a step that is saved again");
    no_exchange = EINVAL;
    assert_ok(save_whole(f, f->folder, 2, &w, 1, 1, &f->err), f);
    no_exchange = 0;
    assert_synced("a step that is saved again without an exchange of names");
    static const char *const left[] = {"step-1.tmp", "step-1.purged.tmp", "step-2.old-1",
                                       "step-3.old-1"};
    for (size_t i = 0; i < TT_COUNT(left); i++) { /* by a run that was killed before its sync */
        assert_int_equal(mkdir(in(f, "x"), 0777), 0);
        put_file(in(f, "x/trainer.json"), "x", 1);
        assert_int_equal(rename(in(f, "x"), in(f, left[i])), 0);
        assert_ok(tt_ckpt_clear(f->folder, &f->err), f);
        assert_false(tt_path_exists(in(f, left[i])));
        assert_synced(left[i]);
    }
    assert_true(tt_path_exists(in(f, "step-3")));
    assert_holds(f, "step-2", &w);
}

/* Of steps that are snapshots where `snapshots` has their number, those that stay after step n was saved. */
static const char *kept_of(fixture *f, int n, const char *snapshots, const tt_ckpt_keep *keep)
{
    tt_str out = {0};
    int64_t *steps = NULL;
    size_t n_steps = 0;
    tt_remove_tree(f->folder, &f->err);
    for (int step = 1; step <= n; step++) {
        tt_box all = whole_box(&w);
        const tt_ckpt_piece p = piece_of(f->a, &w, &all, true, true);
        const tt_trainer_state s = {.step = step,
                                    .world = 1,
                                    .job_json = "{}",
                                    .snapshot = strchr(snapshots, '0' + step) != NULL};
        assert_ok(tt_ckpt_begin(f->folder, step, &f->err), f);
        assert_ok(tt_ckpt_write(f->folder, step, 0, &p, 1, &f->err), f);
        assert_ok(tt_ckpt_commit(f->folder, step, &s, &f->err), f);
        assert_ok(tt_ckpt_purge(f->folder, step, keep, &f->err), f);
    }
    assert_ok(tt_ckpt_list(f->folder, f->a, &steps, &n_steps, &f->err), f);
    for (size_t i = 0; i < n_steps; i++)
        tt_str_printf(&out, "%lld", (long long)steps[i]);
    const char *text = tt_arena_str(f->a, tt_str_get(&out));
    tt_str_free(&out);
    return text;
}

static void test_purge_keeps_the_newest_snapshot_beside_the_latest(void **state)
{
    fixture *f = *state;
    const tt_ckpt_keep two = {.latest = 2, .snapshots = true}, all = {.snapshots = true},
                       marked = {.latest = 2, .every = 3, .snapshots = true}, plain = {.latest = 2};
    assert_string_equal(kept_of(f, 9, "2468", &two), "789");
    assert_string_equal(kept_of(f, 8, "2468", &two), "578");
    assert_string_equal(kept_of(f, 8, "2", &two), "278");
    assert_string_equal(kept_of(f, 7, "246", &all), "13567");
    assert_string_equal(kept_of(f, 9, "2468", &marked), "356789"); /* 6 is no snapshot then */
    assert_string_equal(kept_of(f, 6, "246", &plain), "356");
    assert_string_equal(kept_of(f, 5, "", &two), "45");
    const tt_ckpt_keep room = {.bytes = 25000, .snapshots = true}; /* a step has about 10 kB */
    assert_string_equal(kept_of(f, 6, "4", &room), "46");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_commit_publishes_only_shards_and_state),
        TEST(test_commit_replaces_a_step),
        TEST(test_replace_works_without_an_exchange_of_names),
        TEST(test_commit_needs_the_shard_of_every_rank),
        TEST(test_commit_refuses_tensors_that_are_not_whole),
        TEST(test_commit_refuses_a_shard_that_is_not_whole),
        TEST(test_purge_keeps_the_newest_snapshot_beside_the_latest),
        TEST(test_only_a_missing_exchange_of_names_is_made_up_for),
        TEST(test_names_are_synced_before_files_go),
        TEST(test_kill_at_any_time_leaves_whole_steps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
