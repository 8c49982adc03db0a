/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "plugin_check.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* The file is loaded and its descriptor checked before any stage runs, so there is nothing left. */
static tt_status stage_loads(const tt_check_job *job, tt_error *err)
{
    (void)job;
    (void)err;
    return TT_OK;
}

static const tt_check_stage stages[] = {
    {"loads", "the file loads and its descriptor tells the truth", 20, stage_loads},
};

/* ---- one stage, one process ---- */

/* In the child: the plugin's folder-mates are found as in a run, and FILE is loaded beside them. */
static tt_status run_stage(const tt_check_stage *stage, const tt_cli *cli, const char *file,
                           tt_error *err)
{
    tt_check_job job = {.cli = cli, .file = file};
    tt_registry_opts o = {.dirs = cli->plugin_dirs, .n_dirs = cli->n_plugin_dirs};
    TT_TRY(tt_registry_new(&o, &job.registry, err));
    tt_status status = tt_registry_load_file(job.registry, file, &job.plugin, err);
    if (status == TT_OK)
        status = stage->run(&job, err);
    tt_registry_free(job.registry);
    return status;
}

/* Everything up to the end of the file or the deadline; false = the deadline. */
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

static tt_status judge(const tt_check_stage *stage, bool in_time, int how, size_t n, size_t wanted,
                       const tt_error *said, tt_error *err)
{
    if (!in_time)
        return TT_FAIL(err, TT_ETIMEOUT, "took longer than %d seconds", stage->seconds);
    if (WIFSIGNALED(how))
        return TT_FAIL(err, TT_EABI, "crashed: %s (signal %d)", strsignal(WTERMSIG(how)),
                       WTERMSIG(how));
    if (n != wanted)
        return TT_FAIL(err, TT_EABI, "ended the process (status %d)", WEXITSTATUS(how));
    if (said->code != TT_OK)
        return TT_FAIL(err, said->code, "%.*s", (int)sizeof said->text - 1, said->text);
    return TT_OK;
}

static tt_status isolate(const tt_check_stage *stage, const tt_cli *cli, const char *file,
                         tt_error *err)
{
    int ends[2], how = 0;
    tt_error said = {.code = TT_EINTERNAL};
    size_t n = 0;
    if (pipe2(ends, O_CLOEXEC) != 0)
        return TT_FAIL(err, TT_EIO, "no pipe to the stage's process: %s", strerror(errno));
    fflush(NULL);
    pid_t child = fork();
    if (child < 0) {
        close(ends[0]);
        close(ends[1]);
        return TT_FAIL(err, TT_EIO, "no process for the stage: %s", strerror(errno));
    }
    if (child == 0) {
        tt_error mine = {.code = TT_OK};
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(ends[0]);
        tt_status status = run_stage(stage, cli, file, &mine);
        mine.code = status;
        ssize_t k = write(ends[1], &mine, sizeof mine); /* less than a pipe holds */
        _exit(k == (ssize_t)sizeof mine ? 0 : 1);
    }
    close(ends[1]);
    bool in_time = read_until(ends[0], (char *)&said, sizeof said, &n,
                              tt_now_ns() + (int64_t)stage->seconds * 1000000000);
    if (!in_time)
        kill(child, SIGKILL);
    close(ends[0]);
    while (waitpid(child, &how, 0) < 0 && errno == EINTR)
        continue;
    return judge(stage, in_time, how, n, sizeof said, &said, err);
}

/* ---- the report ---- */

static void report(const tt_cli *cli, const tt_check_stage *stage, const tt_error *e, tt_str *out)
{
    const char *word = e->code == TT_OK ? "ok" : e->code == TT_EUNSUPPORTED ? "skip" : "FAIL";
    if (cli->json) {
        tt_str_printf(out, "%s{\"stage\":\"%s\",\"result\":\"%s\",\"error\":",
                      out->s[out->n - 1] == '[' ? "" : ",", stage->name, word);
        if (e->code == TT_OK)
            tt_str_add(out, "null");
        else
            tt_str_json(out, e->text);
        tt_str_addc(out, '}');
        return;
    }
    tt_str_printf(out, "%-4s %-9s %s\n", word, stage->name,
                  e->code == TT_OK ? stage->doc : e->text);
}

/* The failure with the file's name in front, once. */
static tt_status name_file(const char *file, const char *stage, const tt_error *e, tt_error *err)
{
    if (strncmp(e->text, file, strlen(file)) == 0)
        return TT_FAIL(err, e->code, "%s", e->text);
    return TT_FAIL(err, e->code, "%s: fails the check \"%s\": %s", file, stage, e->text);
}

tt_status tt_plugin_check(const tt_cli *cli, const char *file, tt_str *out, tt_error *err)
{
    tt_status first = TT_OK;
    if (cli->json) {
        tt_str_add(out, "{\"file\":");
        tt_str_json(out, file);
        tt_str_add(out, ",\"stages\":[");
    }
    for (size_t i = 0; i < TT_COUNT(stages) && (i == 0 || first == TT_OK); i++) {
        tt_error e = {.code = TT_OK};
        e.code = isolate(&stages[i], cli, file, &e);
        report(cli, &stages[i], &e, out);
        if (e.code != TT_OK && e.code != TT_EUNSUPPORTED)
            first = name_file(file, stages[i].name, &e, err);
    }
    if (cli->json)
        tt_str_add(out, "]}\n");
    return first;
}
