/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <ttrun/dataloader.h>
#include <ttrun/hook.h>
#include <unistd.h>

/* The hook "gate", and a dataloader of this name: at a point that the test names a rank stands still until the test lets it go on. lib.sh builds it, and has the
 * functions for the test: gate, stands, let_go.
 *
 * The folder has a file "at": "POINT STEP RANK". A rank of this number (-1: each rank) that comes to this point of this step, or
 * of a later one, writes "POINT STEP PID" to the file "stands.N" (N: its rank) by a rename, and waits. It goes on when the file
 * "at" is gone, or says something that does not hold it. If the folder is gone (the test has ended), the run fails.
 *
 * The hook does nothing about signals: the handlers of ttrun run while a rank stands. So a first SIGTERM is noted, and the rank
 * stops after the step that it does when it is let go; a second one ends the process where it stands.
 *
 * The dataloader has some samples of numbers; its point is "sample", its step the sample's number, its rank 0 in each process. */

typedef struct {
    const char *folder;
    int64_t samples;
} config;

typedef struct {
    const char *folder;
    int rank;
    int64_t samples, vocab;
} state;

static const tt_option options[] = {
    TT_OPTION_MORE(config, folder, TT_OPT_STRING, "null", 0, 0, NULL, TT_OPT_NULLABLE, NULL,
                   "where the test and the ranks talk"),
    TT_OPTION(config, samples, TT_OPT_INT, "64", 1, 1e6, "of the dataloader, per epoch"),
};

static tt_status open_gate(const config *c, state with, void **self, tt_error *err)
{
    if (!c->folder || access(c->folder, W_OK))
        return TT_FAIL(err, TT_EINVAL, "gate: no folder %s", c->folder ? c->folder : "is given");
    with.folder = c->folder;
    state *s = calloc(1, sizeof *s);
    *s = with;
    *self = s;
    return TT_OK;
}

static tt_status open_hook(const void *c, const tt_hook_env *env, void **self, tt_error *err)
{
    return open_gate(c, (state){.rank = env->rank}, self, err);
}

static tt_status open_data(const void *c, const tt_dataloader_env *env, void **self, tt_error *err)
{
    const state s = {.samples = ((const config *)c)->samples, .vocab = env->vocab_size};
    return open_gate(c, s, self, err);
}

/* Whether the file "at" holds this rank here. */
static int is_held(const state *s, const char *point, int64_t step)
{
    char path[4096], text[128], held_point[32];
    long long at;
    int rank;
    snprintf(path, sizeof path, "%s/at", s->folder);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    const ssize_t n = fd >= 0 ? read(fd, text, sizeof text - 1) : -1;
    if (fd >= 0)
        close(fd);
    text[n > 0 ? n : 0] = 0;
    return sscanf(text, "%31s %lld %d", held_point, &at, &rank) == 3 &&
           !strcmp(held_point, point) && step >= at && (rank < 0 || rank == s->rank);
}

static int announce(const state *s, const char *point, int64_t step)
{
    char path[4096], part[4096 + 32];
    snprintf(path, sizeof path, "%s/stands.%d", s->folder, s->rank);
    snprintf(part, sizeof part, "%s.part.%d", path, (int)gettid());
    FILE *f = fopen(part, "w");
    if (!f)
        return -1;
    fprintf(f, "%s %lld %ld\n", point, (long long)step, (long)getpid());
    return fclose(f) || rename(part, path);
}

static void withdraw(const state *s)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/stands.%d", s->folder, s->rank);
    unlink(path); /* the test has it already, if it has looked */
}

static tt_status pass(const state *s, const char *point, int64_t step, tt_error *err)
{
    if (!is_held(s, point, step))
        return TT_OK;
    if (announce(s, point, step))
        return TT_FAIL(err, TT_EIO, "gate: cannot write in %s", s->folder);
    while (is_held(s, point, step))
        nanosleep(&(struct timespec){0, 2000000}, NULL); /* between two looks */
    withdraw(s);
    return access(s->folder, W_OK) ? TT_FAIL(err, TT_EIO, "gate: %s is gone", s->folder) : TT_OK;
}

static tt_status start(void *self, const tt_hook_progress *at, tt_error *err)
{
    return pass(self, "start", at->step, err);
}

static tt_status before_step(void *self, int64_t step, tt_error *err)
{
    return pass(self, "before", step, err);
}

static tt_status after_backward(void *self, const tt_hook_progress *at, tt_error *err)
{
    return pass(self, "backward", at->step, err);
}

static tt_status after_step(void *self, const tt_metrics_record *r, tt_error *err)
{
    return pass(self, "after", r->step, err);
}

static tt_status saved(void *self, const tt_hook_saved *what, tt_error *err)
{
    return pass(self, "saved", what->step, err);
}

static tt_status validated(void *self, const tt_metrics_record *r, tt_error *err)
{
    return pass(self, "validated", r->step, err);
}

static const tt_hook_vt gate = {.struct_size = sizeof gate,
                                .all_ranks = 1,
                                .open = open_hook,
                                .start = start,
                                .before_step = before_step,
                                .after_backward = after_backward,
                                .after_step = after_step,
                                .saved = saved,
                                .validated = validated,
                                .close = free};

static int64_t n_samples(void *self)
{
    return ((const state *)self)->samples;
}

static tt_status read_sample(void *self, int64_t i, tt_sample *out, tt_error *err)
{
    const state *s = self;
    for (int64_t k = 0; k < out->seq_len; k++) {
        out->ids[k] = (int32_t)((i * 7 + k * 3) % s->vocab);
        out->labels[k] = (int32_t)((i * 7 + (k + 1) * 3) % s->vocab);
    }
    return pass(s, "sample", i, err);
}

static const tt_dataloader_vt data = {.struct_size = sizeof data,
                                      .open = open_data,
                                      .close = free,
                                      .n_samples = n_samples,
                                      .read = read_sample,
                                      .samples_are_whole = 1};
static const tt_component components[] = {
    TT_COMPONENT(TT_KIND_HOOK, "gate", "stands still until a test lets it go", config, options,
                 &gate),
    TT_COMPONENT(TT_KIND_DATALOADER, "gate", "samples that stand still until a test lets them go",
                 config, options, &data),
};
TT_PLUGIN("gate", "1.0", components);
