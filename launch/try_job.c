/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "launch/try_job.h"
#include "base/thread.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

/* A trial of a job in another process: whatever its plugins do there, the run goes on. */

#define TRY_JOB_FD 3
#define TRY_JOB_PATH "/proc/self/fd/3"
#define TRY_TICK_MS 50
#define TRY_MOST_TEXT ((size_t)64 << 10)

extern char **environ;

typedef struct trial_child {
    pid_t pid;
    int out;     /* what it writes to its streams */
    tt_str text; /* at most TRY_MOST_TEXT bytes */
} trial_child;

static int hold_text(const char *job)
{
    const int fd = memfd_create("job", MFD_CLOEXEC);
    if (fd >= 0 && tt_write_all(fd, job, strlen(job)))
        return fd;
    if (fd >= 0)
        close(fd);
    return -1;
}

static char **arguments(const tt_try_opts *o, tt_arena *a)
{
    const tt_registry_opts *plugins = &o->start->plugins;
    const char **v = tt_arena_array(a, 2 * plugins->n_dirs + 13, sizeof *v);
    int n = 0;
    v[n++] = "ttrun";
    v[n++] = "plan";
    v[n++] = TRY_JOB_PATH;
    v[n++] = "--quiet";
    v[n++] = "--json";
    v[n++] = "--world";
    v[n++] = tt_arena_printf(a, "%d", o->world);
    if (o->start->spec) {
        v[n++] = "--spec";
        v[n++] = o->start->spec;
    }
    if (plugins->only_dirs)
        v[n++] = "--only-plugin-dirs";
    for (size_t i = 0; i < plugins->n_dirs; i++) {
        v[n++] = "--plugin-dir";
        v[n++] = plugins->dirs[i];
    }
    return (char **)(uintptr_t)v;
}

/* With the default effect of every signal, and none blocked but those that a terminal sends to all. */
static int spawn(pid_t *pid, char **argv, int job, int out)
{
    posix_spawn_file_actions_t files;
    posix_spawnattr_t how;
    sigset_t all, none;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&files, out, 1);
    posix_spawn_file_actions_adddup2(&files, out, 2);
    posix_spawn_file_actions_adddup2(&files, job, TRY_JOB_FD);
    posix_spawn_file_actions_addclosefrom_np(&files, TRY_JOB_FD + 1);
    posix_spawnattr_init(&how);
    sigfillset(&all);
    sigemptyset(&none);
    posix_spawnattr_setsigdefault(&how, &all);
    posix_spawnattr_setsigmask(&how, &none);
    posix_spawnattr_setpgroup(&how, 0); /* Ctrl-C is for the run, which stops the trial */
    posix_spawnattr_setflags(&how, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK |
                                       POSIX_SPAWN_SETPGROUP);
    const int rc = posix_spawn(pid, "/proc/self/exe", &files, &how, argv, environ);
    posix_spawnattr_destroy(&how);
    posix_spawn_file_actions_destroy(&files);
    return rc;
}

static tt_status start(const tt_try_opts *o, const char *job, trial_child *c, tt_error *err)
{
    int ends[2] = {-1, -1};
    tt_arena *a = tt_arena_new();
    const int text = hold_text(job);
    int rc = text < 0 || pipe2(ends, O_CLOEXEC) ? errno : 0;
    /* dup2 of a descriptor to itself would leave it closed in the child */
    const int held = rc ? -1 : fcntl(text, F_DUPFD_CLOEXEC, TRY_JOB_FD + 1);
    const int out = rc ? -1 : fcntl(ends[1], F_DUPFD_CLOEXEC, TRY_JOB_FD + 1);
    if (!rc)
        rc = held < 0 || out < 0 ? errno : spawn(&c->pid, arguments(o, a), held, out);
    const int mine[] = {text, ends[1], held, out, rc ? ends[0] : -1};
    for (size_t i = 0; i < TT_COUNT(mine); i++)
        if (mine[i] >= 0)
            close(mine[i]);
    c->out = ends[0];
    tt_arena_free(a);
    return rc ? TT_FAIL(err, TT_EIO, "no process can be started to try it: %s", strerror(rc))
              : TT_OK;
}

/* The end of what it writes is of interest. */
static void keep_text(tt_str *text, const char *piece, size_t n)
{
    tt_str_addn(text, piece, n);
    if (text->n <= TRY_MOST_TEXT)
        return;
    text->n -= TRY_MOST_TEXT / 2;
    memmove(text->s, text->s + TRY_MOST_TEXT / 2, text->n + 1);
}

/* Reads until the child has closed its streams. False: it was cancelled, or it is too late. */
static bool listen_to(trial_child *c, const _Atomic bool *cancel, int64_t until_ns)
{
    char piece[4096];
    while (!atomic_load(cancel) && tt_now_ns() < until_ns) {
        struct pollfd p = {.fd = c->out, .events = POLLIN};
        if (poll(&p, 1, TRY_TICK_MS) <= 0)
            continue;
        const ssize_t n = read(c->out, piece, sizeof piece);
        if (n == 0 || (n < 0 && errno != EINTR))
            return true;
        if (n > 0)
            keep_text(&c->text, piece, (size_t)n);
    }
    return false;
}

/* A process that a plugin has started may hold the streams, and a plugin may close them. */
static bool wait_for(const trial_child *c, const _Atomic bool *cancel, int64_t until_ns, int *how)
{
    pid_t ended;
    while ((ended = waitpid(c->pid, how, WNOHANG)) == 0 || (ended < 0 && errno == EINTR)) {
        if (atomic_load(cancel) || tt_now_ns() >= until_ns)
            return false;
        poll(NULL, 0, 1);
    }
    return true;
}

/* The last line, without the names of the program and of the job's file. */
static const char *last_line(tt_str *text)
{
    static const char program[] = "ttrun: ", file[] = TRY_JOB_PATH ":";
    while (text->n && text->s[text->n - 1] == '\n')
        text->s[--text->n] = 0;
    const char *line = strrchr(tt_str_get(text), '\n');
    line = line ? line + 1 : tt_str_get(text);
    if (!strncmp(line, program, sizeof program - 1))
        line += sizeof program - 1;
    if (!strncmp(line, file, sizeof file - 1)) {
        line += sizeof file - 1;
        line += strspn(line, "0123456789:"); /* a place in a text that nobody has written */
        line += *line == ' ';
    }
    return line;
}

static tt_status judge(trial_child *c, bool ended, int how, const tt_try_opts *o, tt_error *err)
{
    if (!ended)
        return TT_FAIL(err, TT_ETIMEOUT,
                       "a trial of it in another process did not end within %g s "
                       "(comm.init_timeout_seconds)",
                       o->limit_s);
    const char *said = last_line(&c->text);
    if (WIFEXITED(how) && WEXITSTATUS(how) == 0 && c->text.n && c->text.s[c->text.n - 1] == '}')
        return TT_OK; /* the plan was printed: no plugin has called exit() before */
    if (WIFEXITED(how) && WEXITSTATUS(how) == 0)
        return TT_FAIL(err, TT_EABI,
                       "in a trial of it in another process a plugin or a library called exit()");
    if (WIFSIGNALED(how))
        return TT_FAIL(err, TT_EABI, "a trial of it in another process ended by %s",
                       tt_signal_name(WTERMSIG(how)));
    if (!*said)
        return TT_FAIL(err, TT_EABI, "a trial of it in another process ended with status %d",
                       WEXITSTATUS(how));
    return TT_FAIL(err, TT_EINVAL, "%s", said);
}

tt_status tt_try_job(const void *opts, const char *job, _Atomic bool *cancel, tt_error *err)
{
    const tt_try_opts *o = opts;
    const int64_t until_ns = tt_now_ns() + (int64_t)(o->limit_s * 1e9);
    trial_child c = {0};
    int how = 0;
    TT_TRY(start(o, job, &c, err));
    bool ended = listen_to(&c, cancel, until_ns);
    ended = ended && wait_for(&c, cancel, until_ns, &how);
    if (!ended) {
        kill(-c.pid, SIGKILL); /* and what it has started */
        while (waitpid(c.pid, &how, 0) < 0 && errno == EINTR)
            continue;
    }
    close(c.out);
    const tt_status s = judge(&c, ended, how, o, err);
    tt_str_free(&c.text);
    return s;
}
