/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_TESTS_PROCESSES_H
#define TT_TESTS_PROCESSES_H
#include "comm/world.h"
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

/* Ranks that are processes: the test forks, and the children join one session. */

static bool processes_buffered_only; /* copy through shared memory only, never directly */

static inline void *processes_shared(size_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(p != MAP_FAILED);
    return p;
}

/* One rank, in its own process. */
static inline void processes_rank(world *w, const tt_launch *l, rank_fn fn)
{
    const tt_session_opts so = {.launch = l, .timeout_s = 3600};
    tt_session *s;
    tt_dist d;
    tt_error err = {0};
    if (tt_session_open(&so, &s, &err) != TT_OK) {
        world_fail(w, "session: %s", err.text);
        return;
    }
    const tt_processes_opts po = {
        .launch = l, .session = s, .buffered_only = processes_buffered_only};
    if (tt_processes_join(&po, &d, &err) == TT_OK) {
        tt_dist_set_timeout(&d, 0);
        fn(w, &d);
        tt_dist_leave(&d);
    } else {
        world_fail(w, "join: %s", err.text);
    }
    tt_session_close(s, true);
}

/* The pids of n ranks that were started: each other's siblings, as a launcher's are. */
static inline void processes_start(world *w, int n, rank_fn fn, pid_t *pids)
{
    static int start;
    start++;
    for (int i = 0; i < n; i++) {
        pids[i] = fork();
        assert_true(pids[i] >= 0);
        if (pids[i])
            continue;
        tt_launch l = {
            .rank = i, .world = n, .local_rank = i, .local_world = n, .launcher = "test"};
        snprintf(l.key, sizeof l.key, "t%ld-%d", (long)getppid(), start);
        processes_rank(w, &l, fn);
        _exit(0);
    }
}

static inline int world_run(int n, rank_fn fn)
{
    world *w = processes_shared(sizeof *w);
    pid_t pids[16];
    int status, n_bad = 0;
    processes_start(w, n, fn, pids);
    for (int i = 0; i < n; i++)
        if (waitpid(pids[i], &status, 0) != pids[i] || status)
            n_bad++;
    const int counted = world_end(w);
    assert_int_equal(n_bad, 0);
    munmap(w, sizeof *w);
    return counted;
}

#endif
