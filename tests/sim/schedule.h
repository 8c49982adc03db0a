/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_TESTS_SIM_SCHEDULE_H
#define TT_TESTS_SIM_SCHEDULE_H
#include "journal.h"
#include "random_test.h"
#include "sim_files.h"
#include <dirent.h>
#include <stdarg.h>
#include <stdio.h>

/* A schedule of sim_tool.c, and what must hold of the steps in its run's folder. */

enum { STEPS = 7, MORE = 2, LINE = 4096 };

static struct {
    const char *ttrun, *plugins, *job, *folder, *shim;
} places;

#define L "--training.local_batch_size"
#define P "--parallelism."
static const char *const meshes[] = {
    L " 4",
    "--nproc 2 --comm.backend local " L " 2 " P "data_parallel_shard_degree 2",
    "--nproc 2 --comm.backend local " L " 4 " P "tensor_parallel_degree 2",
    "--nproc 2 --comm.backend local " L " 2 " P "data_parallel_replicate_degree 2",
    "--nproc 2 --comm.backend local " L " 4 " P "pipeline_parallel_degree 2",
    "--nproc 4 --comm.backend local " L " 2 " P "data_parallel_shard_degree 2 " P
    "tensor_parallel_degree 2",
    "--nproc 2 --comm.backend shm " L " 2 " P "data_parallel_shard_degree 2",
    "--nproc 2 --comm.backend shm --max-restarts 3 --checkpoint.peer_copy_interval 1 " L " 2 " P
    "data_parallel_shard_degree 2",
};
enum { N_MESHES = sizeof meshes / sizeof *meshes };

typedef struct schedule {
    uint64_t seed;
    test_rng rng;
    int mesh, keep, status, start;
    char rules[LINE], dir[600], run[640], whole[640], err[640];
    int64_t promised, newest; /* the step that a line told of; the newest whole one */
    int n_whole, removed;     /* steps with a flipped bit that were removed */
    int64_t flipped;          /* the step with a flipped bit; -1: none */
    bool back;                /* it went back with load_step, which one job does once */
    bool lossy;               /* lines of metrics.jsonl may be lost */
    sim_shared *sim;
    char faults[LINE];
} schedule;

static inline void note(schedule *s, const char *format, ...)
{
    va_list list;
    const size_t n = strlen(s->faults);
    va_start(list, format);
    vsnprintf(s->faults + n, sizeof s->faults - n, format, list);
    va_end(list);
}

static inline bool wrong(const schedule *s, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    flockfile(stdout);
    printf("not ok seed %llu: ", (unsigned long long)s->seed);
    vprintf(format, list);
    printf("\n    %s %s\n    %s\n    again: SEED=%llu SCHEDULES=1 sh tests/sim/test_sim.sh\n",
           meshes[s->mesh], s->rules, s->faults, (unsigned long long)s->seed);
    fflush(stdout);
    funlockfile(stdout);
    va_end(list);
    return false;
}

/* ---- files ---- */

/* Compares a step folder with that step of the run without faults. */
static inline likeness compare_step(const schedule *s, int64_t step)
{
    char of[800], mine[1100], theirs[1100];
    struct stat st;
    likeness l = SAME;
    snprintf(of, sizeof of, "%s/checkpoint/step-%lld", s->whole, (long long)step);
    DIR *d = opendir(of);
    for (struct dirent *e = d ? readdir(d) : NULL; e && l != OTHER_SIZE; e = readdir(d)) {
        snprintf(mine, sizeof mine, "%s/checkpoint/step-%lld/%s", s->run, (long long)step,
                 e->d_name);
        snprintf(theirs, sizeof theirs, "%s/%s", of, e->d_name);
        if (strstr(e->d_name, ".safetensors")) {
            const likeness one = compare_files(mine, theirs);
            l = one != SAME ? one : l;
        } else if (!strcmp(e->d_name, "trainer.json") && (stat(mine, &st) != 0 || !st.st_size)) {
            l = OTHER_SIZE;
        }
    }
    if (!d)
        return OTHER_SIZE;
    closedir(d);
    return l;
}

/* After each start: what has the name of a step and all its files has its bits; the newest one is not lost, nor one that
 * a line said is saved or was continued from. A loss of power may take the newest one that no line has told of. */
static inline bool check_steps(schedule *s, bool end, bool lost)
{
    char path[800];
    int64_t newest = 0;
    int whole = 0, others = 0;
    snprintf(path, sizeof path, "%s/checkpoint", s->run);
    DIR *d = opendir(path);
    bool good = true;
    for (struct dirent *e = d ? readdir(d) : NULL; e && good; e = readdir(d)) {
        const int64_t step = step_of(e->d_name);
        if (step < 0 || step == s->flipped)
            continue;
        const likeness l = compare_step(s, step);
        if (l == OTHER_BITS)
            good = wrong(s, "%s/%s is taken for whole and has other bits", path, e->d_name);
        whole += l == SAME;
        others += l != SAME;
        newest = l == SAME && step > newest ? step : newest;
    }
    if (d)
        closedir(d);
    if (good && newest < s->newest && !lost)
        good = wrong(s, "step %lld was whole, now it is step %lld", (long long)s->newest,
                     (long long)newest);
    if (good && newest < s->promised)
        good = wrong(s, "a line told of step %lld, now the newest is step %lld",
                     (long long)s->promised, (long long)newest);
    if (good && s->keep && whole < s->n_whole - lost && whole < s->keep)
        good = wrong(s, "%d whole steps are left of %d, keep_latest_k is %d", whole, s->n_whole,
                     s->keep);
    /* A supervisor's copies can carry a run past a step whose save was killed, so a step that was removed is not
     * always made up for. */
    const int least = s->keep - s->removed;
    if (good && end && (others || (s->keep && (whole < least || whole > s->keep))))
        good = wrong(s, "%d whole steps and %d others at the end, keep_latest_k is %d", whole,
                     others, s->keep);
    s->newest = newest;
    s->n_whole = whole;
    return good;
}

#endif
