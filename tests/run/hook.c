/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ttrun/hook.h>
#include <unistd.h>

/* hook.so: "watch" writes its calls to a file; "fail" ends the run at a step of one rank, or of
 * all, by an error or by exit(), or stops there. test_hooks.sh builds it against the public headers alone. */

typedef struct {
    const char *file;
    int64_t fail_at, rank, code, threads, fail_backward, stop, at_once, closes;
} config;

typedef struct {
    const config *c;
    FILE *f;
    int rank;
} state;

static const tt_option options[] = {
    TT_OPTION_MORE(config, file, TT_OPT_STRING, "null", 0, 0, NULL, TT_OPT_NULLABLE, NULL,
                   "where to write"),
    TT_OPTION(config, fail_at, TT_OPT_INT, "-1", -1, 1e9, "step to fail before"),
    TT_OPTION(config, rank, TT_OPT_INT, "0", -1000, 1e6,
              "rank that fails, or silent's status; -1: all"),
    TT_OPTION(config, code, TT_OPT_INT, "-1", -1, 255, "status to exit with; -1: no exit()"),
    TT_OPTION(config, threads, TT_OPT_INT, "0", 0, 10000,
              "threads of its own that call exit() together"),
    TT_OPTION(config, fail_backward, TT_OPT_INT, "-1", -1, 1e9,
              "step whose backward it fails after"),
    TT_OPTION(config, at_once, TT_OPT_INT, "0", 0, 2, "1: by _exit(), 2: by quick_exit()"),
    TT_OPTION(config, closes, TT_OPT_INT, "0", 0, 1, "1: closes all descriptors above 2 instead"),
    TT_OPTION(config, stop, TT_OPT_INT, "0", 0, 1, "1: its process stops by SIGSTOP instead"),
};

static tt_status open_hook(const void *c, const tt_hook_env *env, void **self, tt_error *err)
{
    state *s = calloc(1, sizeof *s);
    s->c = c;
    s->rank = env->rank;
    if (s->c->file && !(s->f = fopen(s->c->file, "a"))) {
        const char *file = s->c->file;
        free(s);
        return TT_FAIL(err, TT_EIO, "cannot write %s", file);
    }
    if (s->f)
        fprintf(s->f, "open %d/%d\n", env->rank, env->world);
    *self = s;
    return TT_OK;
}

static pthread_barrier_t together;

static void *exit_together(void *code)
{
    pthread_barrier_wait(&together);
    exit((int)*(const int64_t *)code);
}

static void exit_with_threads(const config *c)
{
    pthread_t t;
    pthread_barrier_init(&together, NULL, (unsigned)c->threads);
    for (int64_t i = 0; i < c->threads; i++)
        if (pthread_create(&t, NULL, exit_together, (void *)&c->code))
            _exit(99);
    for (;;)
        pause();
}

static tt_status before_step(void *self, int64_t step, tt_error *err)
{
    const state *s = self;
    if (s->f)
        fprintf(s->f, "before %lld\n", (long long)step);
    if (step != s->c->fail_at || (s->c->rank >= 0 && s->rank != s->c->rank))
        return TT_OK;
    if (s->c->stop)
        return raise(SIGSTOP), TT_OK;
    for (int fd = 3; s->c->closes && fd < 1024; fd++)
        close(fd);
    if (s->c->closes)
        return TT_OK;
    if (s->c->at_once == 1)
        _exit((int)s->c->code);
    if (s->c->at_once == 2)
        quick_exit((int)s->c->code);
    if (s->c->code < 0)
        return TT_FAIL(err, TT_EIO, "enough at step %lld", (long long)step);
    if (s->c->threads)
        exit_with_threads(s->c);
    exit((int)s->c->code);
}

static tt_status after_step(void *self, const tt_metrics_record *r, tt_error *err)
{
    const state *s = self;
    (void)err;
    double loss = 0;
    for (size_t i = 0; i < r->n_metrics; i++)
        if (!strcmp(r->metrics[i].name, "loss"))
            loss = r->metrics[i].value;
    if (s->f)
        fprintf(s->f, "after %lld %d\n", (long long)r->step, loss > 1);
    return TT_OK;
}

static tt_status start(void *self, const tt_hook_progress *at, tt_error *err)
{
    const state *s = self;
    (void)err;
    if (s->f)
        fprintf(s->f, "start %lld of %lld, %lld tokens\n", (long long)at->step,
                (long long)at->steps, (long long)at->tokens);
    return TT_OK;
}

static tt_status after_backward(void *self, const tt_hook_progress *at, tt_error *err)
{
    const state *s = self;
    if (s->f)
        fprintf(s->f, "backward %lld\n", (long long)at->step);
    return at->step == s->c->fail_backward
               ? TT_FAIL(err, TT_EIO, "enough after the backward of %lld", (long long)at->step)
               : TT_OK;
}

/* The last part of a path. */
static const char *name_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static tt_status saved(void *self, const tt_hook_saved *what, tt_error *err)
{
    const state *s = self;
    const bool there = access(what->folder, R_OK) == 0;
    (void)err;
    if (s->f)
        fprintf(s->f, "saved %s%s%s%s%s at %lld %lld%s\n",
                what->kind == TT_SAVED_HUGGING_FACE ? "hf " : "", name_of(what->folder),
                what->model_only ? " model" : "", what->snapshot ? " snapshot" : "",
                what->kept ? " kept" : "", (long long)what->at->step, (long long)what->at->tokens,
                there ? "" : " gone");
    return TT_OK;
}

static tt_status validated(void *self, const tt_metrics_record *r, tt_error *err)
{
    const state *s = self;
    (void)err;
    if (s->f)
        fprintf(s->f, "validated %lld %s\n", (long long)r->step, r->metrics[1].name);
    return TT_OK;
}

static void end(void *self, const tt_hook_progress *at, tt_status status, const char *why)
{
    const state *s = self;
    if (s->f)
        fprintf(s->f, "end %lld %s%s\n", (long long)at->step,
                status == TT_OK        ? "done"
                : status == TT_ESIGNAL ? "stopped: "
                                       : "failed: ",
                why);
}

static void close_hook(void *self)
{
    state *s = self;
    if (s->f) {
        fprintf(s->f, "close\n");
        fclose(s->f);
    }
    free(s);
}

static const tt_hook_vt watch = {.struct_size = sizeof watch,
                                 .open = open_hook,
                                 .before_step = before_step,
                                 .after_step = after_step,
                                 .close = close_hook};
/* With a file that has the rank in its name. */
static tt_status open_all(const void *c, const tt_hook_env *env, void **self, tt_error *err)
{
    const config *o = c;
    char file[512];
    snprintf(file, sizeof file, "%s.%d", o->file, env->rank);
    config own = *o;
    own.file = file;
    TT_TRY(open_hook(&own, env, self, err));
    ((state *)*self)->c = o;
    return TT_OK;
}

static const tt_hook_vt all = {.struct_size = sizeof all,
                               .all_ranks = 1,
                               .open = open_all,
                               .start = start,
                               .before_step = before_step,
                               .after_backward = after_backward,
                               .after_step = after_step,
                               .saved = saved,
                               .validated = validated,
                               .end = end,
                               .close = close_hook};
static const tt_hook_vt fail = {.struct_size = sizeof fail,
                                .all_ranks = 1,
                                .open = open_hook,
                                .before_step = before_step,
                                .close = close_hook};
/* Fails without an error text, with a status that may not be one of <ttrun/status.h>. */
static tt_status silent_open(const void *c, const tt_hook_env *env, void **self, tt_error *err)
{
    const config *o = c;
    (void)env;
    (void)err;
    *self = NULL;
    return o->fail_at < 0 ? (tt_status)o->rank : TT_OK;
}

static void silent_close(void *self)
{
    (void)self;
}

static tt_status silent_step(void *self, int64_t step, tt_error *err)
{
    (void)self;
    (void)err;
    return step == 2 ? TT_EIO : TT_OK;
}

static const tt_hook_vt silent = {.struct_size = sizeof silent,
                                  .open = silent_open,
                                  .before_step = silent_step,
                                  .close = silent_close};
static const tt_component components[] = {
    TT_COMPONENT(TT_KIND_HOOK, "watch", "writes what it sees", config, options, &watch),
    TT_COMPONENT(TT_KIND_HOOK, "all", "writes what every rank sees", config, options, &all),
    TT_COMPONENT(TT_KIND_HOOK, "fail", "fails at a step", config, options, &fail),
    TT_COMPONENT(TT_KIND_HOOK, "silent", "fails and says nothing", config, options, &silent),
};
TT_PLUGIN("hook", "1.0", components);
