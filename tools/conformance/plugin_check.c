/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "base/pool.h"
#include "base/thread.h"
#include "conformance/check_rig.h"
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <ttrun/patience.h>
#include <unistd.h>

/* <ttrun/plugin.h> forbids constructors: they run before anything of the plugin is checked. */
static void note_constructors(const tt_check_job *job)
{
    tt_mapping m;
    if (tt_map_file(job->file, &m, NULL) != TT_OK)
        return;
    const int n = tt_elf_constructors(m.p, m.n);
    tt_unmap_file(&m);
    if (n > 0)
        tt_str_printf(
            job->note,
            "; NOTE %d constructor%s (.init_array) as it is loaded, before its descriptor "
            "is checked",
            n, n == 1 ? " runs" : "s run");
}

/* The file was loaded and its descriptor checked before any stage runs, so nothing is left to do.
 */
static tt_status stage_loads(const tt_check_job *job, tt_error *err)
{
    (void)err;
    tt_str_printf(job->note, "%s %s, ABI %d.%d, %zu component%s", job->plugin->name,
                  job->plugin->version, job->plugin->abi_major, job->plugin->abi_minor,
                  job->plugin->n_components, job->plugin->n_components == 1 ? "" : "s");
    note_constructors(job);
    return TT_OK;
}

typedef tt_status (*component_fn)(const tt_check_job *job, const tt_component *c, tt_str *note,
                                  tt_error *err);

/* Runs fn on every component. The stage fails if a component fails, and is skipped if every
 * component is skipped. */
/* Many errors begin with the component that they are of. */
static tt_status fail_component(const tt_component *c, tt_status s, const char *text, tt_error *err)
{
    char who[128];
    const int n = snprintf(who, sizeof who, "%s %s: ", tt_kind_name(c->kind), c->name);
    const bool named = n < (int)sizeof who && !strncmp(text, who, (size_t)n);
    return TT_FAIL(err, s, "%s%s", named ? "" : who, text);
}

static tt_status each(const tt_check_job *job, component_fn fn, tt_error *err)
{
    tt_error skipped = {.text = "no component is of a kind that this ttrun knows"};
    bool any = false;
    for (size_t i = 0; i < job->plugin->n_components; i++) {
        const tt_component *c = tt_rig_component(job->plugin, i);
        tt_error e = {0};
        tt_str note = {0};
        const tt_status s = c->kind < TT_KIND_END ? fn(job, c, &note, &e) : TT_EUNSUPPORTED;
        if (s == TT_OK)
            tt_str_printf(job->note, "%s%s %s: %s", any ? "; " : "", tt_kind_name(c->kind), c->name,
                          tt_str_get(&note));
        tt_str_free(&note);
        if (s == TT_EUNSUPPORTED && e.text[0])
            skipped = e;
        else if (s != TT_OK && s != TT_EUNSUPPORTED)
            return fail_component(c, s, e.text, err);
        any = any || s == TT_OK;
    }
    return any ? TT_OK : TT_FAIL(err, TT_EUNSUPPORTED, "%s", skipped.text);
}

static tt_status stage_describes(const tt_check_job *job, tt_error *err)
{
    return each(job, tt_check_describes, err);
}

static tt_status stage_gradients(const tt_check_job *job, tt_error *err)
{
    return each(job, tt_check_gradients, err);
}

static tt_status stage_ranks(const tt_check_job *job, tt_error *err)
{
    return each(job, tt_check_tp, err);
}

static tt_status stage_trains(const tt_check_job *job, tt_error *err)
{
    return each(job, tt_check_trains, err);
}

static const tt_check_stage stages[] = {
    {"loads",     20,  stage_loads    },
    {"describes", 30,  stage_describes},
    {"gradients", 300, stage_gradients},
    {"two ranks", 120, stage_ranks    },
    {"trains",    120, stage_trains   },
};

/* ---- each stage runs in its own process ---- */

/* What the child sends when it ends: one write, of fewer bytes than a pipe holds. */
typedef struct stage_result {
    tt_error err;
    char note[1024];
} stage_result;

/* Runs in the child. The other plugins are found as in a run, and FILE is loaded in addition. */
static tt_status run_stage(const tt_check_stage *stage, const tt_check_opts *o, const char *file,
                           tt_str *note, tt_error *err)
{
    tt_check_job job = {.opts = o, .file = file, .note = note};
    tt_registry_opts ro = {
        .dirs = o->plugin_dirs, .n_dirs = o->n_plugin_dirs, .only_dirs = o->only_plugin_dirs};
    TT_TRY(tt_registry_new(&ro, &job.registry, err));
    tt_status status = tt_registry_load_file(job.registry, file, &job.plugin, err);
    if (status == TT_OK)
        status = stage->run(&job, err);
    tt_registry_free(job.registry);
    return status;
}

/* Reads to the end of the file; false = the deadline has passed. */
static bool read_until(int fd, char *p, size_t size, size_t *n, int64_t deadline_ns)
{
    while (*n < size) {
        int64_t left_ms = (deadline_ns - tt_now_ns()) / 1000000;
        struct pollfd f = {.fd = fd, .events = POLLIN};
        int ready = left_ms > 0 ? poll(&f, 1, (int)left_ms) : 0;
        if (ready < 0 && errno == EINTR)
            continue;
        if (ready <= 0)
            return false;
        ssize_t k = read(fd, p + *n, size - *n);
        if (k == 0)
            break;
        if (k < 0 && errno != EINTR)
            break;
        *n += k > 0 ? (size_t)k : 0;
    }
    return true;
}

static tt_status judge(const tt_check_stage *stage, bool in_time, int how, size_t n,
                       const stage_result *v, tt_error *err)
{
    if (!in_time)
        return TT_FAIL(err, TT_ETIMEOUT, "took longer than %.3g seconds",
                       1e-9 * (double)tt_patience(TT_NS(stage->seconds)));
    if (WIFSIGNALED(how))
        return TT_FAIL(err, TT_EABI, "crashed: %s (signal %d)", strsignal(WTERMSIG(how)),
                       WTERMSIG(how));
    const tt_error *said = &v->err;
    if (n != sizeof *v)
        return TT_FAIL(err, TT_EABI, "ended the process (status %d)", WEXITSTATUS(how));
    if (said->code != TT_OK)
        return TT_FAIL(err, said->code, "%.*s", (int)sizeof said->text - 1, said->text);
    return TT_OK;
}

#define STAGE_FRAMES 48

/* In the child: what it sends from a handler. */
static stage_result crash_result;
static const char *crash_file; /* that is checked */
static int crash_to = -1;

/* Sends what crashed; if it cannot be found out, the parent reports the signal. */
static void on_stage_fault(int sig)
{
    void *frames[STAGE_FRAMES + 1];
    int n = backtrace(frames, STAGE_FRAMES);
    tt_plugin_crash what;
    const void *caller = tt_pool_caller();
    if (caller)
        frames[n++] = (void *)(uintptr_t)caller;
    if (tt_plugin_of_frames(frames, n, sig == SIGABRT, &what)) {
        crash_result.err.code = TT_EABI;
        if (strcmp(what.file, crash_file) == 0)
            what.file = NULL; /* the parent names it */
        tt_plugin_crash_text(&what, tt_signal_name(sig), crash_result.err.text,
                             sizeof crash_result.err.text);
        if (write(crash_to, &crash_result, sizeof crash_result) == (ssize_t)sizeof crash_result)
            _exit(1);
    }
    raise(sig); /* SA_RESETHAND: ends the process */
}

static void report_crashes(const char *file, int to)
{
    static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
    struct sigaction a = {.sa_handler = on_stage_fault, .sa_flags = (int)SA_RESETHAND | SA_ONSTACK};
    crash_file = file;
    crash_to = to;
    sigemptyset(&a.sa_mask);
    for (size_t i = 0; i < TT_COUNT(faults); i++)
        sigaction(faults[i], &a, NULL);
}

_Noreturn static void child_main(const tt_check_stage *stage, const tt_check_opts *o,
                                 const char *file, int to)
{
    stage_result v = {.err = {.code = TT_OK}};
    tt_str note = {0};
    report_crashes(file, to);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    tt_log_setup(o->verbose ? TT_DEBUG : TT_WARN, 0, 1, false);
    v.err.code = run_stage(stage, o, file, &note, &v.err);
    snprintf(v.note, sizeof v.note, "%s", tt_str_get(&note));
    tt_str_free(&note);
    const ssize_t k = write(to, &v, sizeof v);
    _exit(k == (ssize_t)sizeof v ? 0 : 1);
}

static tt_status isolate(const tt_check_stage *stage, const tt_check_opts *o, const char *file,
                         stage_result *said, tt_error *err)
{
    int ends[2], how = 0;
    size_t n = 0;
    if (pipe2(ends, O_CLOEXEC) != 0)
        return TT_FAIL(err, TT_EIO, "cannot make a pipe to the stage's process: %s",
                       strerror(errno));
    fflush(NULL);
    pid_t child = fork();
    if (child < 0) {
        close(ends[0]);
        close(ends[1]);
        return TT_FAIL(err, TT_EIO, "cannot start the stage's process: %s", strerror(errno));
    }
    if (child == 0) {
        close(ends[0]);
        child_main(stage, o, file, ends[1]);
    }
    close(ends[1]);
    bool in_time = read_until(ends[0], (char *)said, sizeof *said, &n,
                              tt_now_ns() + tt_patience(TT_NS(stage->seconds)));
    if (!in_time)
        kill(child, SIGKILL);
    close(ends[0]);
    while (waitpid(child, &how, 0) < 0 && errno == EINTR)
        continue;
    return judge(stage, in_time, how, n, said, err);
}

/* ---- the report ---- */

static void report(const tt_check_opts *o, const tt_check_stage *stage, const tt_error *e,
                   const char *note, tt_str *out)
{
    const char *word = e->code == TT_OK ? "ok" : e->code == TT_EUNSUPPORTED ? "skip" : "FAIL";
    const char *text = e->code == TT_OK ? note : e->text;
    if (o->json) {
        tt_str_printf(out, "%s{\"stage\":\"%s\",\"result\":\"%s\",\"text\":",
                      out->s[out->n - 1] == '[' ? "" : ",", stage->name, word);
        tt_str_json(out, text);
        tt_str_addc(out, '}');
        return;
    }
    tt_str_printf(out, "%-4s  %-9s  %s\n", word, stage->name, text);
}

/* Raises the failure with the file's name in front, once. Whatever its code was, it is the plugin's
 * fault. */
static tt_status name_file(const char *file, const char *stage, const tt_error *e, tt_error *err)
{
    if (strncmp(e->text, file, strlen(file)) == 0)
        return TT_FAIL(err, TT_EABI, "%s", e->text);
    return TT_FAIL(err, TT_EABI, "%s: fails the check \"%s\": %s", file, stage, e->text);
}

tt_status tt_plugin_check(const tt_check_opts *o, const char *file, tt_str *out, tt_error *err)
{
    tt_status first = TT_OK;
    if (o->json) {
        tt_str_add(out, "{\"file\":");
        tt_str_json(out, file);
        tt_str_add(out, ",\"stages\":[");
    }
    for (size_t i = 0; i < TT_COUNT(stages) && first == TT_OK; i++) {
        tt_error e = {.code = TT_OK};
        stage_result v = {.err = {.code = TT_EINTERNAL}};
        e.code = isolate(&stages[i], o, file, &v, &e);
        report(o, &stages[i], &e, v.note, out);
        if (e.code != TT_OK && e.code != TT_EUNSUPPORTED)
            first = name_file(file, stages[i].name, &e, err);
    }
    if (o->json)
        tt_str_add(out, "]}\n");
    return first;
}
