/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "train/ctl.h"
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* The commands of `ttrun ctl` as text, and the address of a run's socket. */

const tt_ctl_form tt_ctl_forms[] = {
    {TT_CTL_STATUS,   "status",   NULL,
     "step, loss, speed, time left and converters, as a table or --json"                                               },
    {TT_CTL_SAVE,     "save",     NULL,              "save a checkpoint after this step; answers when it is complete"  },
    {TT_CTL_VALIDATE, "validate", NULL,              "validate after this step; answers with the loss"                 },
    {TT_CTL_STOP,     "stop",     NULL,              "save and stop after this step, like SIGTERM"                     },
    {TT_CTL_LR,       "lr",       "VALUE",           "set optimizer.lr from the next step on: 3e-4, x0.5 times, or job"},
    {TT_CTL_LOG,      "log",      "LEVEL",           "log error, warn, info or debug from now on"                      },
    {TT_CTL_PROFILE,  "profile",  NULL,              "trace the next step; answers with the file"                      },
    {TT_CTL_SET,      "set",      "converters LIST",
     "another list of converters, as JSON, from one of the next steps on; job: the job's"                              },
    {TT_CTL_RELOAD,   "reload",   "NAME",
     "opens a converter's plugin again after it was rebuilt, from one of the next steps on"                            },
};
const size_t tt_ctl_n_forms = TT_COUNT(tt_ctl_forms);

static const tt_ctl_form *form_of(const char *name, size_t n)
{
    for (size_t i = 0; i < tt_ctl_n_forms; i++)
        if (strlen(tt_ctl_forms[i].name) == n && !memcmp(tt_ctl_forms[i].name, name, n))
            return &tt_ctl_forms[i];
    return NULL;
}

static tt_status unknown(const char *word, size_t n, tt_error *err)
{
    const char *names[TT_CTL_N_KINDS];
    char text[48], list[160] = "";
    size_t at = 0;
    snprintf(text, sizeof text, "%.*s", (int)TT_MIN(n, sizeof text - 1), word);
    for (size_t i = 0; i < tt_ctl_n_forms; i++) {
        names[i] = tt_ctl_forms[i].name;
        at += (size_t)snprintf(list + at, sizeof list - at, "%s%s", i ? ", " : "", names[i]);
    }
    const char *near = tt_nearest(text, names, tt_ctl_n_forms);
    if (near)
        return TT_FAIL(err, TT_EINVAL, "\"%s\": no command of ctl (did you mean %s?)", text, near);
    return TT_FAIL(err, TT_EINVAL, "\"%s\": no command of ctl; there are %s", text, list);
}

/* "3e-4", "x0.5" or "0.5x", "job" */
static tt_status parse_rate(const char *text, tt_ctl_command *c, tt_error *err)
{
    const size_t n = strlen(text);
    const bool before = text[0] == 'x', after = !before && n && text[n - 1] == 'x';
    const char *number = text + before;
    char *end;
    if (!strcmp(text, "job")) {
        c->rate = TT_CTL_RATE_OF_JOB;
        return TT_OK;
    }
    c->rate = before || after ? TT_CTL_RATE_TIMES : TT_CTL_RATE_SET;
    c->value = strtod(number, &end);
    const bool is_number =
        (*number == '.' || (*number >= '0' && *number <= '9')) && end > number &&
        strspn(number, "0123456789.eE+-") >= (size_t)(end - number); /* no 0x10 */
    if (is_number && !strcmp(end, after ? "x" : "") && isfinite(c->value))
        return TT_OK;
    return TT_FAIL(err, TT_EINVAL,
                   "lr: expected a learning rate (3e-4), a factor (x0.5) or job, got \"%.40s\"",
                   text);
}

static tt_status parse_level(const char *text, tt_ctl_command *c, tt_error *err)
{
    static const char *const names[] = {"error", "warn", "info", "debug"};
    for (size_t i = 0; i < TT_COUNT(names); i++)
        if (!strcmp(text, names[i])) {
            c->level = (tt_log_level)i;
            return TT_OK;
        }
    return TT_FAIL(err, TT_EINVAL, "log: expected error, warn, info or debug, got \"%.40s\"", text);
}

/* "converters [...]" */
static tt_status parse_list(const char *text, tt_ctl_command *c, tt_error *err)
{
    static const char key[] = "converters";
    const char *list = text + sizeof key - 1;
    const bool named = !strncmp(text, key, sizeof key - 1) && (*list == ' ' || !*list);
    list += named ? strspn(list, " \t") : 0;
    const bool of_job = !strcmp(list, "job");
    if (!named)
        return TT_FAIL(err, TT_EINVAL, "set: only converters can be set, got \"%.40s\"", text);
    if (*list != '[' && !of_job)
        return TT_FAIL(err, TT_EINVAL,
                       "set converters: expected a JSON list, like '[{\"name\": \"float8\"}]' or "
                       "'[]', or job, got \"%.40s\"",
                       list);
    c->list = list;
    return TT_OK;
}

tt_status tt_ctl_parse(const char *line, tt_ctl_command *out, tt_error *err)
{
    const size_t n = strcspn(line, " ");
    const tt_ctl_form *f = form_of(line, n);
    const char *argument = line + n + strspn(line + n, " ");
    tt_ctl_command c = {0};
    if (!f)
        return unknown(line, n, err);
    c.kind = f->kind;
    if (f->kind == TT_CTL_STATUS && !strcmp(argument, "json")) { /* the client's --json */
        c.json = true;
        argument = "";
    }
    if (!f->argument != !*argument)
        return f->argument ? TT_FAIL(err, TT_EINVAL, "%s: no %s given", f->name, f->argument)
                           : TT_FAIL(err, TT_EINVAL, "%s: takes no value, got \"%.40s\"", f->name,
                                     argument);
    if (f->kind == TT_CTL_LR)
        TT_TRY(parse_rate(argument, &c, err));
    if (f->kind == TT_CTL_LOG)
        TT_TRY(parse_level(argument, &c, err));
    if (f->kind == TT_CTL_SET)
        TT_TRY(parse_list(argument, &c, err));
    if (f->kind == TT_CTL_RELOAD)
        c.list = argument;
    *out = c;
    return TT_OK;
}

/* ---- the address ---- */

bool tt_ctl_address(const char *folder, struct sockaddr_un *out, int *folder_fd)
{
    *out = (struct sockaddr_un){.sun_family = AF_UNIX};
    *folder_fd = -1;
    const int n = snprintf(out->sun_path, sizeof out->sun_path, "%s/" TT_CTL_SOCKET, folder);
    if (n > 0 && (size_t)n < sizeof out->sun_path)
        return true;
    *folder_fd = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (*folder_fd < 0)
        return false;
    snprintf(out->sun_path, sizeof out->sun_path, "/proc/self/fd/%d/" TT_CTL_SOCKET, *folder_fd);
    return true;
}

bool tt_ctl_same_user(int fd)
{
    struct ucred who;
    socklen_t n = sizeof who;
    return !getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &n) && who.uid == geteuid();
}
