/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

/* Microseconds of a collective among processes of one machine, f32: ours through shared memory, or,
 * with -DWITH_MPI, MPI's own. Lines "op bytes microseconds"; the least of the rounds, each the mean
 * of as many calls as take some 50 ms. bytes: of the whole tensor. "memcpy" is no collective: every
 * process copies so many bytes of its own, all at the same time, which is about what an all-gather
 * or an all-reduce must move in each. */

enum { ALL_GATHER, REDUCE_SCATTER, ALL_REDUCE, COPY, N_OPS };
static const char *const names[] = {"all_gather", "reduce_scatter", "all_reduce", "memcpy"};

static void call(int op, float *a, float *b, int64_t n); /* n elements, a multiple of the ranks */
static void meet(void);
static double slowest(double seconds); /* of all ranks */

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double time_calls(int op, float *a, float *b, int64_t n, int calls)
{
    meet();
    const double t0 = now();
    for (int i = 0; i < calls; i++)
        if (op == COPY)
            memcpy(b, a, (size_t)n * sizeof *a);
        else
            call(op, a, b, n);
    return slowest(now() - t0) / calls;
}

/* As the trainer's arena is, in huge pages where there are any; and written, for all that never was
 * is one page of zeros. */
static float *buffer(int64_t bytes, float value)
{
    float *p =
        mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        exit(1);
    (void)madvise(p, (size_t)bytes, MADV_HUGEPAGE);
    for (int64_t i = 0; i < bytes / (int64_t)sizeof *p; i++)
        p[i] = value;
    return p;
}

static void measure(int rank, int rounds)
{
    const int64_t most = INT64_C(64) << 20;
    float *a = buffer(most, (float)rank + 1), *b = buffer(most, 0);
    for (int op = 0; op < N_OPS; op++)
        for (int64_t bytes = 1024; bytes <= most; bytes *= 4) {
            const int64_t n = bytes / 4;
            double best = time_calls(op, a, b, n, 1);
            for (int r = 0; r < rounds; r++) {
                const double wanted = 0.05 / best;
                const int calls = wanted < 1 ? 1 : wanted > 20000 ? 20000 : (int)wanted;
                const double t = time_calls(op, a, b, n, calls);
                best = t < best ? t : best;
            }
            if (rank == 0) {
                printf("%s %lld %.2f\n", names[op], (long long)bytes, 1e6 * best);
                fflush(stdout);
            }
        }
    munmap(a, (size_t)most);
    munmap(b, (size_t)most);
}

#ifdef WITH_MPI
#include <mpi.h>

static int n_ranks;

static void call(int op, float *a, float *b, int64_t n)
{
    if (op == ALL_GATHER)
        MPI_Allgather(a, (int)(n / n_ranks), MPI_FLOAT, b, (int)(n / n_ranks), MPI_FLOAT,
                      MPI_COMM_WORLD);
    else if (op == REDUCE_SCATTER)
        MPI_Reduce_scatter_block(a, b, (int)(n / n_ranks), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    else
        MPI_Allreduce(MPI_IN_PLACE, a, (int)n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

static void meet(void)
{
    MPI_Barrier(MPI_COMM_WORLD);
}

static double slowest(double seconds)
{
    MPI_Allreduce(MPI_IN_PLACE, &seconds, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return seconds;
}

int main(int argc, char **argv)
{
    int rank;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &n_ranks);
    measure(rank, argc > 1 ? atoi(argv[1]) : 5);
    MPI_Finalize();
    return 0;
}
#else
#include "comm/dist.h"
#include <sys/wait.h>
#include <unistd.h>

static tt_dist d;
static int64_t counts[64];

static void check(tt_status s, const tt_error *err)
{
    if (s != TT_OK) {
        fprintf(stderr, "%s\n", err->text);
        exit(1);
    }
}

static void call(int op, float *a, float *b, int64_t n)
{
    tt_error err;
    for (int i = 0; i < d.world; i++)
        counts[i] = n / d.world;
    if (op == ALL_GATHER)
        check(d.vt->all_gather(d.all, a, b, counts, TT_F32, &err), &err);
    else if (op == REDUCE_SCATTER)
        check(d.vt->reduce_scatter(d.all, a, b, counts, TT_F32, TT_SUM, &err), &err);
    else
        check(d.vt->all_reduce(d.all, a, n, TT_F32, TT_SUM, &err), &err);
}

static void meet(void)
{
    tt_error err;
    check(d.vt->barrier(d.all, &err), &err);
}

static double slowest(double seconds)
{
    tt_error err;
    check(d.vt->all_reduce(d.all, &seconds, 1, TT_F64, TT_MAX, &err), &err);
    return seconds;
}

static int run_rank(int rank, int n, int rounds)
{
    tt_launch l = {
        .rank = rank, .world = n, .local_rank = rank, .local_world = n, .launcher = "bench"};
    const tt_session_opts so = {.launch = &l, .timeout_s = 60};
    tt_processes_opts po = {.launch = &l};
    tt_error err;
    snprintf(l.key, sizeof l.key, "bench-%ld", (long)getppid());
    check(tt_session_open(&so, &po.session, &err), &err);
    check(tt_processes_join(&po, &d, &err), &err);
    measure(rank, rounds);
    tt_dist_leave(&d);
    tt_session_close(po.session, true);
    return 0;
}

int main(int argc, char **argv)
{
    const int rounds = argc > 1 ? atoi(argv[1]) : 5, n = argc > 2 ? atoi(argv[2]) : 2;
    int bad = n < 1 || n > 64, status;
    for (int i = 0; !bad && i < n; i++) {
        const pid_t pid = fork();
        if (pid == 0)
            return run_rank(i, n, rounds);
        bad = pid < 0;
    }
    while (wait(&status) > 0)
        bad = bad || status;
    return bad;
}
#endif
