/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "train/memory_snapshot.h"
#include "base/thread.h"
#include "train/loop.h"
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* profiling.enable_memory_snapshot: while a step runs, a thread reads the resident memory of the process every
 * millisecond. Afterwards step-N-rank-R.json has these samples, the phases of the step and what the plan allocates;
 * `ttrun report` draws them. Rank-threads share a process, so rank 0 writes for all of them. */

#define EVERY_NS INT64_C(1000000)

typedef struct tt_memory_sample {
    int64_t ns;
    double bytes;
} tt_memory_sample;

typedef struct tt_memory_snapshot {
    pthread_t thread;
    _Atomic bool done;
    int statm; /* /proc/self/statm */
    int64_t begin_ns, every_ns;
    tt_memory_sample *samples; /* [most] */
    size_t n, most;
    double device_before; /* bytes in use on the device; NaN: there is none */
    tt_times before;
} tt_memory_snapshot;

static bool snapshot_due(const tt_loop *l)
{
    const tt_profiling_config *c = &l->s->core.profiling;
    return c->enable_memory_snapshot && (l->main || l->rank.dist.session) &&
           (l->step == l->began_step + 1 || tt_loop_due(l, l->step, c->memory_snapshot_freq));
}

static double resident_bytes(int statm)
{
    char text[128];
    const ssize_t n = pread(statm, text, sizeof text - 1, 0);
    text[TT_MAXV(n, 0)] = 0;
    const char *pages = strchr(text, ' '); /* "size resident …" */
    return pages ? strtod(pages, NULL) * (double)sysconf(_SC_PAGESIZE) : (double)NAN;
}

/* Keeps every second sample, so that a long step is covered from its begin to its end. */
static void thin_out(tt_memory_snapshot *m)
{
    for (size_t i = 0; i < m->most / 2; i++)
        m->samples[i] = m->samples[2 * i];
    m->n = m->most / 2;
    m->every_ns *= 2;
}

static void take_sample(tt_memory_snapshot *m)
{
    if (m->n == m->most)
        thin_out(m);
    m->samples[m->n++] = (tt_memory_sample){tt_now_ns(), resident_bytes(m->statm)};
}

static void *watch_memory(void *arg)
{
    tt_memory_snapshot *m = arg;
    while (!atomic_load(&m->done)) {
        const int64_t s = m->every_ns / 1000000000;
        nanosleep(&(struct timespec){(time_t)s, (long)(m->every_ns - s * 1000000000)}, NULL);
        if (!atomic_load(&m->done))
            take_sample(m);
    }
    take_sample(m);
    return NULL;
}

static void snapshot_free(tt_loop *l)
{
    tt_memory_snapshot *m = l->snapshot;
    if (m->statm >= 0)
        close(m->statm);
    free(m->samples);
    free(m);
    l->snapshot = NULL;
}

void tt_loop_memory_begin(tt_loop *l)
{
    if (!snapshot_due(l))
        return;
    tt_memory_snapshot *m = calloc(1, sizeof *m);
    if (!m)
        return;
    l->snapshot = m;
    m->most = (size_t)l->s->core.profiling.memory_snapshot_max_entries;
    m->samples = calloc(m->most, sizeof *m->samples);
    m->statm = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    m->every_ns = EVERY_NS;
    m->before = l->t;
    m->device_before = tt_loop_device_bytes(l);
    m->begin_ns = tt_now_ns();
    const bool ready = m->samples && m->statm >= 0;
    if (ready)
        take_sample(m); /* a short step may be over before the thread runs */
    if (ready && tt_thread_start(&m->thread, watch_memory, m) == 0)
        return;
    tt_log(TT_WARN, "profile", "step %lld: no memory snapshot: %s", (long long)l->step,
           ready        ? "its thread cannot be started"
           : m->samples ? "there is no /proc/self/statm"
                        : "no memory for its samples");
    snapshot_free(l);
}

/* ---- the file ---- */

/* Each with the seconds at which it begins. */
static void add_phases(const tt_loop *l, tt_str *o)
{
    const tt_times *b = &l->snapshot->before;
    const double data = l->t.data - b->data, work = l->t.forward_backward - b->forward_backward;
    tt_str_printf(o,
                  "\"phases\": [[\"data\", 0], [\"forward and backward\", %.6f], [\"optimizer\", "
                  "%.6f]],\n ",
                  data, data + work);
}

static void add_number(tt_str *o, const char *key, double v)
{
    tt_str_printf(o, "\"%s\": ", key);
    tt_str_json_number(o, v);
    tt_str_add(o, ", ");
}

static void add_samples(const tt_memory_snapshot *m, tt_str *o)
{
    tt_str_add(o, "\"seconds\": [");
    for (size_t i = 0; i < m->n; i++)
        tt_str_printf(o, "%s%.6f", i ? ", " : "", 1e-9 * (double)(m->samples[i].ns - m->begin_ns));
    tt_str_add(o, "],\n \"resident\": [");
    for (size_t i = 0; i < m->n; i++) {
        tt_str_add(o, i ? ", " : "");
        tt_str_json_number(o, m->samples[i].bytes);
    }
    tt_str_add(o, "]}\n");
}

static double planned_bytes(const tt_loop *l)
{
    double sum = 0;
    for (int k = 0; k < TT_N_SPACES; k++)
        sum += (double)l->rank.plan->program->bytes[k];
    return sum;
}

static void print_snapshot(const tt_loop *l, tt_str *o)
{
    const tt_memory_snapshot *m = l->snapshot;
    const int here = l->rank.dist.session ? 1 : l->s->world; /* ranks of this process */
    tt_str_printf(o, "{\"step\": %lld, \"rank\": %d, \"ranks_in_process\": %d, ",
                  (long long)l->step, l->rank.dist.rank, here);
    add_number(o, "planned_per_rank", planned_bytes(l));
    add_number(o, "device_before", m->device_before);
    add_number(o, "device_after", tt_loop_device_bytes(l));
    add_phases(l, o);
    add_samples(m, o);
}

/* A failure is a line of the log: training does not depend on the picture. */
void tt_loop_memory_end(tt_loop *l)
{
    tt_memory_snapshot *m = l->snapshot;
    tt_error err = {0};
    tt_str text = {0};
    if (!m)
        return;
    const int64_t t0 = tt_now_ns();
    atomic_store(&m->done, true);
    pthread_join(m->thread, NULL);
    print_snapshot(l, &text);
    tt_arena *a = tt_arena_new();
    const char *folder =
        tt_path_join(a, l->s->core.dump_folder, l->s->core.profiling.save_memory_snapshot_folder);
    const char *path = tt_arena_printf(a, "%s/step-%lld-rank-%d.json", folder, (long long)l->step,
                                       l->rank.dist.rank);
    tt_status s = tt_mkdirs(folder, &err);
    if (s == TT_OK)
        s = tt_write_file_atomic(path, tt_str_get(&text), text.n, &err);
    if (s != TT_OK)
        tt_log(TT_WARN, "profile", "step %lld: no memory snapshot: %s", (long long)l->step,
               err.text);
    else if (l->main)
        tt_log(TT_INFO, "profile", "memory of step %lld: %s", (long long)l->step, path);
    tt_arena_free(a);
    tt_str_free(&text);
    snapshot_free(l);
    l->t.begin_ns += tt_now_ns() - t0; /* writing does not count as part of the step */
}
