/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "base/shown.h"
#include "cli/cli.h"
#include "launch/line.h"
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

/* Functions that several subcommands use. */

void tt_cli_print(const tt_str *text)
{
    tt_str o = {0};
    for (const char *p = tt_str_get(text), *end = p + text->n; p < end;) {
        const char *line = memchr(p, '\n', (size_t)(end - p));
        tt_str_shown(&o, p, (size_t)((line ? line : end) - p));
        if (line)
            tt_str_addc(&o, '\n');
        p = line ? line + 1 : end;
    }
    tt_cli_print_exact(&o);
    tt_str_free(&o);
}

void tt_cli_print_exact(const tt_str *text)
{
    fwrite(tt_str_get(text), 1, text->n, stdout);
    fflush(stdout);
}

const char *tt_cli_option(const tt_cli *cli, const char *name)
{
    for (size_t i = cli->n_options; i-- > 0;)
        if (!strcmp(cli->options[i].key, name))
            return cli->options[i].value;
    return NULL;
}

void tt_cli_add(tt_cli *cli, tt_override **list, size_t *n, const char *key, const char *value)
{
    tt_override *more = tt_arena_array(cli->arena, *n + 1, sizeof *more);
    if (*n)
        memcpy(more, *list, *n * sizeof *more);
    more[*n] = (tt_override){key, value};
    *list = more;
    ++*n;
}

void tt_cli_override(tt_cli *cli, const char *key, const char *value)
{
    tt_cli_add(cli, &cli->overrides, &cli->n_overrides, key, value);
}

/* The descriptor that a path of this process names, -1: none. */
static int descriptor_of(const char *path)
{
    static const char *const folders[] = {"/dev/fd/", "/proc/self/fd/"};
    if (!strcmp(path, "/dev/stdin"))
        return 0;
    for (size_t i = 0; i < TT_COUNT(folders); i++) {
        const char *number = path + strlen(folders[i]);
        char *end;
        if (strncmp(path, folders[i], strlen(folders[i])) || *number < '0' || *number > '9')
            continue;
        const long fd = strtol(number, &end, 10);
        return *end || fd > INT_MAX ? -1 : (int)fd;
    }
    return -1;
}

tt_status tt_cli_hold_job(tt_cli *cli, tt_error *err)
{
    const size_t most = (size_t)64 << 20;
    const int fd = cli->job ? descriptor_of(cli->job) : -1;
    char *text = NULL;
    size_t n = 0;
    if (fd < 0)
        return TT_OK;
    TT_TRY(tt_read_file(cli->job, most, &text, &n, err));
    const int kept = memfd_create("job", MFD_CLOEXEC);
    const bool held = kept >= 0 && tt_write_all(kept, text, n) && dup2(kept, fd) == fd;
    if (!held)
        tt_fail(err, TT_EIO, "%s: cannot be kept in memory: %s", cli->job, strerror(errno));
    cli->job_of_ranks = tt_arena_printf(cli->arena, "/proc/%ld/fd/%d", (long)getpid(), kept);
    free(text);
    return held ? TT_OK : TT_EIO;
}

/* The job may be words of the command line alone: --model.hf DIR. */
tt_status tt_cli_take_job(tt_cli *cli, int word, const tt_command *c, tt_error *err)
{
    bool hf = false;
    for (size_t i = 0; i < cli->n_overrides; i++)
        hf = hf || !strcmp(cli->overrides[i].key, "model.hf");
    cli->job = cli->n_words > word ? cli->words[word] : NULL;
    if (cli->job || hf)
        return TT_OK;
    return TT_FAIL(err, TT_EINVAL, "no job file, and no Hugging Face folder (--model.hf DIR); %s",
                   tt_cli_usage(cli->arena, c, word ? cli->words[0] : NULL));
}

tt_status tt_cli_registry(const tt_cli *cli, tt_registry **out, tt_error *err)
{
    const tt_registry_opts o = {
        .dirs = cli->plugin_dirs, .n_dirs = cli->n_plugin_dirs, .only_dirs = cli->only_plugin_dirs};
    return tt_registry_new(&o, out, err);
}

tt_status tt_cli_registry_for(const tt_cli *cli, tt_job *job, tt_registry **out, tt_error *err)
{
    tt_strings of_job;
    TT_TRY(tt_job_plugin_dirs(job, &of_job, err));
    const tt_registry_opts o = {.dirs = cli->plugin_dirs,
                                .n_dirs = cli->n_plugin_dirs,
                                .job_dirs = of_job.items,
                                .n_job_dirs = of_job.n,
                                .only_dirs = cli->only_plugin_dirs};
    const tt_status s = tt_registry_new(&o, out, err);
    return s == TT_OK || !of_job.n ? s : tt_job_fail(job, "plugin_dirs", err, "%s", err->text);
}

tt_setup_opts tt_cli_training(const tt_cli *cli)
{
    return (tt_setup_opts){.spec = cli->spec,
                           .nproc = cli->nproc,
                           .mode = TT_MODE_TRAIN,
                           .compile = true,
                           .data = true};
}

tt_status tt_cli_setup(const tt_cli *cli, const tt_setup_opts *o, tt_registry **r, tt_setup *out,
                       tt_error *err)
{
    tt_job *job;
    const int64_t begin = tt_now_ns();
    TT_TRY(tt_job_load(cli->arena, cli->job, cli->overrides, cli->n_overrides, &job, err));
    TT_TRY(tt_cli_registry_for(cli, job, r, err));
    const int64_t read = tt_now_ns();
    const tt_status s = tt_setup_make(o, *r, job, cli->arena, out, err);
    tt_log(TT_DEBUG, "time", "job read and plugins listed: %.3f s; graph made: %.3f s",
           1e-9 * (double)(read - begin), 1e-9 * (double)(tt_now_ns() - read));
    return s;
}

/* The exit status: 0 success; 1 a failure while running; 2 wrong usage, job, data, weights or
 * plugin; 3 a NaN or infinity; 4 stopped by a signal. */
int tt_cli_exit_status(tt_status s)
{
    switch (s) {
    case TT_OK:
        return 0;
    case TT_ENUMERIC:
        return 3;
    case TT_ESIGNAL:
        return 4;
    case TT_EINVAL:
    case TT_EFORMAT:
    case TT_ENOTFOUND:
    case TT_EEXIST:
    case TT_EABI:
    case TT_EUNSUPPORTED:
    case TT_EBUSY:
        return 2;
    default:
        return 1;
    }
}

static void print_line(const char *prefix, const char *text)
{
    tt_str o = {0};
    tt_str_add(&o, prefix);
    tt_str_shown(&o, text, strlen(text));
    tt_str_addc(&o, '\n');
    fwrite(tt_str_get(&o), 1, o.n, stderr);
    tt_str_free(&o);
}

/* torchrun names this file in the environment of each rank and shows what the first failing rank
 * wrote. The members are those of torch.distributed.elastic's ErrorHandler; an error file that a
 * launcher's other process wrote before is replaced. It is written beside stderr, which has the
 * error in any case, so a failure is a warning. */
static void write_error_file(const char *text)
{
    const char *path = getenv("TORCHELASTIC_ERROR_FILE");
    if (!path || !*path)
        return;
    tt_str o = {0};
    tt_str_add(&o, "{\"message\": {\"message\": ");
    tt_str_json(&o, text);
    tt_str_printf(&o, ", \"extraInfo\": {\"py_callstack\": \"\", \"timestamp\": \"%lld\"}}}\n",
                  (long long)time(NULL));
    FILE *f = fopen(path, "we");
    const bool written = f && fwrite(tt_str_get(&o), 1, o.n, f) == o.n;
    if ((f && fclose(f) != 0) || !written)
        tt_log(TT_WARN, "cli", "TORCHELASTIC_ERROR_FILE: cannot write %s: %s", path,
               strerror(errno));
    tt_str_free(&o);
}

void tt_cli_report(tt_status s, tt_error *err)
{
    if (s == TT_OK || !err->text[0]) /* another rank prints the error, or it is printed already */
        return;
    const bool told = s != TT_ESIGNAL && tt_line_say_failure(s, err->text);
    if (!told)
        tt_line_say(TT_LINE_SPOKE);
    if (s == TT_ESIGNAL)
        tt_log(TT_WARN, "train", "%s", err->text);
    else if (!told)
        print_line(tt_error_place(err->text) ? "" : "ttrun: ", err->text);
    if (s != TT_ESIGNAL && !told) /* the supervisor may recover from what it is told */
        write_error_file(err->text);
    err->text[0] = 0;
}

void tt_cli_log_setup(const tt_cli *cli, int rank, int world)
{
    tt_log_setup(cli->verbose > 0   ? TT_DEBUG
                 : cli->verbose < 0 ? TT_WARN
                                    : TT_INFO,
                 rank, world, tt_terminal_colors());
}
