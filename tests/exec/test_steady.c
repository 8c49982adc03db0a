/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "exec/job.h"
#include "train/ctl.h"
#include <dlfcn.h>
#include <fcntl.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <ttrun/hook.h>
#include <unistd.h>

/* From step 3 to step 10, neither ttrun nor a plugin allocates memory, in any thread of the
 * process, logging included. The test's own malloc and mmap override the C library's for all
 * objects of the process. */

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define INTERPOSED 0 /* the sanitizer's own stand there */
#else
#define INTERPOSED 1
#endif

static _Atomic bool counting;
static _Atomic int n_calls;
static const char *_Atomic first_kind;
static void *_Atomic first_caller;

#if INTERPOSED
void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t n);
void *__libc_memalign(size_t align, size_t n);

static void count(const char *kind, void *caller)
{
    if (!atomic_load(&counting))
        return;
    if (atomic_fetch_add(&n_calls, 1))
        return;
    atomic_store(&first_caller, caller);
    atomic_store(&first_kind, kind);
}

TT_EXPORT void *malloc(size_t n)
{
    count("malloc", __builtin_return_address(0));
    return __libc_malloc(n);
}
TT_EXPORT void *calloc(size_t n, size_t size)
{
    count("calloc", __builtin_return_address(0));
    return __libc_calloc(n, size);
}
TT_EXPORT void *realloc(void *p, size_t n)
{
    count("realloc", __builtin_return_address(0));
    return __libc_realloc(p, n);
}
TT_EXPORT void *aligned_alloc(size_t align, size_t n)
{
    count("aligned_alloc", __builtin_return_address(0));
    return __libc_memalign(align, n);
}
TT_EXPORT void *memalign(size_t align, size_t n);
TT_EXPORT void *memalign(size_t align, size_t n)
{
    count("memalign", __builtin_return_address(0));
    return __libc_memalign(align, n);
}
TT_EXPORT int posix_memalign(void **out, size_t align, size_t n)
{
    count("posix_memalign", __builtin_return_address(0));
    *out = __libc_memalign(align, n);
    return *out ? 0 : 12;
}
TT_EXPORT void *mmap(void *at, size_t n, int prot, int flags, int fd, off_t offset)
{
    count("mmap", __builtin_return_address(0));
    return (void *)syscall(SYS_mmap, at, n, prot, flags, fd, offset); /* NOLINT */
}
#endif

/* ---- a client of `ttrun ctl`, which allocates nothing itself ---- */

static bool asking; /* for the status, before each step from step 2 on */
static int n_answers;

static void ask(void)
{
    struct sockaddr_un a;
    char text[2048], path[256];
    int folder = -1;
    snprintf(path, sizeof path, "%s/exec-test-run", job_folder());
    const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    if (tt_ctl_address(path, &a, &folder) && !connect(fd, (struct sockaddr *)&a, sizeof a) &&
        send(fd, "status json\n", 12, MSG_NOSIGNAL) == 12)
        n_answers += recv(fd, text, sizeof text, 0) > 2 && text[0] == '0';
    if (folder >= 0)
        close(folder);
    close(fd);
}

/* ---- a swap of converters before step 2: what is left to do of it ends beside the next steps ---- */

static int n_threads, n_settled; /* of the process at step 3; of a run that did not swap, 0: any */

static int threads_now(void)
{
    char text[4096];
    int n = 0;
    const int fd = open("/proc/self/status", O_RDONLY);
    const ssize_t got = read(fd, text, sizeof text - 1);
    close(fd);
    text[got > 0 ? got : 0] = 0;
    const char *line = strstr(text, "Threads:");
    return line && sscanf(line, "Threads: %d", &n) == 1 ? n : 0;
}

static void settle(void)
{
    while (n_settled && threads_now() > n_settled)
        sched_yield();
    n_threads = threads_now();
}

static tt_status before(void *self, int64_t step, tt_error *err)
{
    (void)self;
    (void)err;
    if (step == 3) {
        settle();
        atomic_store(&counting, true);
    }
    if (step == 11)
        atomic_store(&counting, false);
    if (asking && step >= 2)
        ask();
    return TT_OK;
}

static const tt_hook_vt hook_vt = {.struct_size = sizeof hook_vt, .before_step = before};
static const tt_component hook = {.struct_size = sizeof hook,
                                  .kind = TT_KIND_HOOK,
                                  .name = "count",
                                  .doc = "",
                                  .vtable = &hook_vt};

static void check(const char *overrides)
{
    job j;
    tt_error err = {0};
    char text[400];
    /* OpenBLAS, where it multiplies, takes memory of its own when more threads than before call it at once */
    snprintf(text, sizeof text, "training.steps 12 %s%s", overrides,
             strstr(overrides, "backend.name") ? "" : " backend.blas own");
    job_open(&j, text);
    j.setup.hooks[j.setup.n_hooks++] = (tt_part){.component = &hook, .name = "count"};
    atomic_store(&n_calls, 0);
    const tt_run_opts o = {.verbose = 0};
    if (tt_train(&j.setup, &o, &err) != TT_OK)
        fail_msg("%s: %s", overrides, err.text);
    assert_false(atomic_load(&counting));
    if (atomic_load(&n_calls)) {
        Dl_info at = {0};
        dladdr(atomic_load(&first_caller), &at);
        fail_msg("%s: %d allocations in steps 3 to 10, the first a %s from %s of %s (+0x%lx)",
                 overrides, atomic_load(&n_calls), atomic_load(&first_kind),
                 at.dli_sname ? at.dli_sname : "?", at.dli_fname ? at.dli_fname : "?",
                 (unsigned long)((char *)atomic_load(&first_caller) - (char *)at.dli_fbase));
    }
    job_close(&j);
}

static void test_the_allocation_counter_counts(void **state)
{
    (void)state;
    if (!INTERPOSED)
        skip();
    atomic_store(&counting, true);
    atomic_store(&n_calls, 0);
    char *p = tt_path_join(tt_arena_new(), "a", "b"); /* an arena allocates */
    atomic_store(&counting, false);
    assert_non_null(p);
    assert_true(atomic_load(&n_calls) > 0);
}

static void test_steady_state_allocates_nothing(void **state)
{
    (void)state;
    if (!INTERPOSED)
        skip();
    for (size_t i = 0; i < TT_COUNT(job_meshes); i++)
        check(job_meshes[i]);
}

static void test_steady_state_with_threads_allocates_nothing(void **state)
{
    (void)state;
    if (!INTERPOSED)
        skip();
    check("backend.threads 2");
    check("backend.threads 2 backend.name reference");
    check("metrics.enable_tensorboard true");
    check("parallelism.pipeline_parallel_degree 2 parallelism.pipeline_parallel_schedule "
          "ZBVZeroBubble model.args.tie_embeddings true comm.backend local");
    check("parallelism.pipeline_parallel_degree 2 parallelism.pipeline_parallel_schedule "
          "Interleaved1F1B comm.backend local");
}

static void test_steady_state_while_ctl_asks_for_the_status_allocates_nothing(void **state)
{
    (void)state;
    if (!INTERPOSED)
        skip();
    asking = true;
    n_answers = 0;
    check("training.steps 12");
    check("parallelism.data_parallel_shard_degree 2 comm.backend local");
    asking = false;
    assert_int_equal(n_answers, 22);
}

static void test_steps_after_a_swap_allocate_nothing(void **state)
{
    static const char *const runs[] = {
        "", "backend.threads 2", "parallelism.data_parallel_shard_degree 2 comm.backend local",
        "parallelism.pipeline_parallel_degree 2 comm.backend local"};
    (void)state;
    if (!INTERPOSED)
        skip();
    for (size_t i = 0; i < TT_COUNT(runs); i++) {
        char text[300];
        n_settled = 0;
        check(runs[i]);
        n_settled = n_threads;
        assert_true(n_settled > 0);
        /* "lora" has parameters of its own, so the states are copied */
        snprintf(text, sizeof text, "%s converters [{\"name\":\"float8\",\"from_step\":1}]",
                 runs[i]);
        check(text);
        snprintf(text, sizeof text, "%s converters [{\"name\":\"lora\",\"from_step\":1}]", runs[i]);
        check(text);
    }
    n_settled = 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_allocation_counter_counts),
        cmocka_unit_test(test_steady_state_allocates_nothing),
        cmocka_unit_test(test_steady_state_with_threads_allocates_nothing),
        cmocka_unit_test(test_steps_after_a_swap_allocate_nothing),
        cmocka_unit_test(test_steady_state_while_ctl_asks_for_the_status_allocates_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
