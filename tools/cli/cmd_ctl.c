/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "cli/cli.h"
#include "cli/runs.h"
#include "train/ctl.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

/* ttrun ctl RUN_DIR COMMAND: talks to the run that trains in a folder (train/ctl.h). */

/* Why nothing listens in the folder. */
static tt_status not_there(const char *run, int why, tt_error *err)
{
    tt_arena *a = tt_arena_new();
    tt_error busy = {0};
    struct stat st;
    int fds[2] = {-1, -1};
    const int reached = stat(run, &st) ? errno : 0;
    const bool folder = !reached && S_ISDIR(st.st_mode);
    const bool is_run = folder && (tt_path_exists(tt_path_join(a, run, "run.json")) ||
                                   tt_path_exists(tt_path_join(a, run, ".lock")));
    tt_arena_free(a);
    if (!folder)
        return TT_FAIL(err, TT_ENOTFOUND, "%s: %s", run,
                       reached && reached != ENOENT ? strerror(reached) : "no such folder");
    if (!is_run)
        return TT_FAIL(err, TT_ENOTFOUND,
                       "%s: not the folder of a run (it has no run.json); ttrun runs lists them",
                       run);
    if (why == EACCES || why == EPERM)
        return TT_FAIL(err, TT_EINVAL, "%s: this run belongs to another user", run);
    const tt_status s = tt_run_hold(run, fds, &busy);
    for (int i = 0; i < 2; i++)
        if (fds[i] >= 0)
            close(fds[i]);
    if (s == TT_OK)
        return TT_FAIL(err, TT_ENOTFOUND, "%s: no job is training there", run);
    if (busy.code != TT_EBUSY)
        return TT_FAIL(err, busy.code, "%s", busy.text);
    return TT_FAIL(err, TT_EBUSY,
                   "%s, but takes no commands: it is starting or ending, or rank 0 is on another "
                   "machine",
                   busy.text);
}

static tt_status ctl_connect(const char *run, int *out, tt_error *err)
{
    struct sockaddr_un a;
    int folder = -1;
    if (!tt_ctl_address(run, &a, &folder))
        return not_there(run, errno, err);
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const int rc = fd < 0 ? -1 : connect(fd, (struct sockaddr *)&a, sizeof a);
    const int why = errno;
    if (folder >= 0)
        close(folder);
    if (!rc && tt_ctl_same_user(fd)) {
        *out = fd;
        return TT_OK;
    }
    if (fd >= 0)
        close(fd);
    return not_there(run, rc ? why : EACCES, err);
}

/* Sends the line and reads the answer to its end. */
static tt_status talk(int fd, const char *run, const tt_str *line, tt_str *answer, tt_error *err)
{
    char piece[4096];
    ssize_t n;
    for (size_t at = 0; at < line->n; at += (size_t)n) {
        n = send(fd, line->s + at, line->n - at, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            n = 0;
        if (n < 0)
            break; /* the answer says why */
    }
    while ((n = recv(fd, piece, sizeof piece, 0)) > 0 || (n < 0 && errno == EINTR))
        if (n > 0)
            tt_str_addn(answer, piece, (size_t)n);
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
        return TT_FAIL(err, TT_ETIMEOUT,
                       "%s: the run does not answer within %g s; is it suspended?", run,
                       1e-9 * (double)tt_patience(TT_CTL_ANSWER_NS));
    if (!answer->n)
        return TT_FAIL(err, TT_ECOMM, "%s: the run ended before it answered", run);
    return TT_OK;
}

/* "0 text" or "-1 text". */
static tt_status answered(const char *run, const char *answer, tt_str *text, tt_error *err)
{
    char *end;
    const long s = strtol(answer, &end, 10);
    const char *said = *end == ' ' ? end + 1 : end;
    if (s > 0 || s < TT_EINTERNAL)
        return TT_FAIL(err, TT_ECOMM, "%s: the answer is not one of ttrun", run);
    if (s != TT_OK)
        return TT_FAIL(err, (tt_status)s, "%s: %s", run, said);
    tt_str_add(text, said);
    if (text->n && text->s[text->n - 1] != '\n')
        tt_str_addc(text, '\n');
    return TT_OK;
}

/* The words as one line; a newline within a word becomes a blank. */
static void join_words(const tt_cli *cli, bool json, tt_str *line)
{
    for (int i = 1; i < cli->n_words; i++)
        tt_str_printf(line, "%s%s", i > 1 ? " " : "", cli->words[i]);
    if (json)
        tt_str_add(line, " json");
    for (size_t i = 0; i < line->n; i++)
        if (line->s[i] == '\n' || line->s[i] == '\r')
            line->s[i] = ' ';
}

static tt_status cmd_ctl_run(tt_cli *cli, tt_error *err)
{
    tt_str line = {0}, answer = {0}, text = {0};
    tt_ctl_command c = {0};
    int fd = -1;
    if (cli->n_words < 2)
        return TT_FAIL(err, TT_EINVAL, "%s", tt_cli_usage(cli->arena, &tt_cmd_ctl, NULL));
    join_words(cli, false, &line);
    tt_status s = tt_ctl_parse(tt_str_get(&line), &c, err);
    if (s == TT_OK && cli->json && c.kind != TT_CTL_STATUS)
        s = TT_FAIL(err, TT_EINVAL, "--json: only status has an object to print");
    if (s == TT_OK)
        s = ctl_connect(cli->words[0], &fd, err);
    if (s == TT_OK && c.kind == TT_CTL_STATUS) {
        const int64_t us = tt_patience(TT_CTL_ANSWER_NS) / 1000;
        const struct timeval wait = {(time_t)(us / 1000000), (suseconds_t)(us % 1000000)};
        setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait);
    }
    tt_str_clear(&line);
    join_words(cli, cli->json, &line);
    tt_str_addc(&line, '\n');
    if (s == TT_OK)
        s = talk(fd, cli->words[0], &line, &answer, err);
    if (s == TT_OK)
        s = answered(cli->words[0], tt_str_get(&answer), &text, err);
    if (s == TT_OK)
        tt_cli_print(&text);
    if (fd >= 0)
        close(fd);
    tt_str_free(&line);
    tt_str_free(&answer);
    tt_str_free(&text);
    return s;
}

const tt_command tt_cmd_ctl = {
    .name = "ctl",
    .forms = "RUN_DIR status [--json]\nRUN_DIR save|validate|profile|stop\n"
             "RUN_DIR lr RATE|xFACTOR|job\nRUN_DIR log error|warn|info|debug\n"
             "RUN_DIR set converters LIST|job\nRUN_DIR reload NAME",
    .doc = "talk to the job that is training in a folder: status, save, validate, lr, stop, …",
    .run = cmd_ctl_run,
    .words = 4,
    .no_job = true};
