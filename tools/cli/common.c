/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "base/shown.h"
#include "cli/cli.h"
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
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

tt_status tt_cli_hold_job(tt_cli *cli, const char **of_ranks, tt_error *err)
{
    const size_t most = (size_t)64 << 20;
    const int fd = cli->job ? descriptor_of(cli->job) : -1;
    char *text = NULL;
    size_t n = 0;
    *of_ranks = cli->job;
    if (fd < 0)
        return TT_OK;
    TT_TRY(tt_read_file(cli->job, most, &text, &n, err));
    const int kept = memfd_create("job", MFD_CLOEXEC);
    const bool held = kept >= 0 && tt_write_all(kept, text, n) && dup2(kept, fd) == fd;
    if (!held)
        tt_fail(err, TT_EIO, "%s: cannot be kept in memory: %s", cli->job, strerror(errno));
    *of_ranks = tt_arena_printf(cli->arena, "/proc/%ld/fd/%d", (long)getpid(), kept);
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

tt_registry_opts tt_cli_plugins(const tt_cli *cli)
{
    return (tt_registry_opts){
        .dirs = cli->plugin_dirs, .n_dirs = cli->n_plugin_dirs, .only_dirs = cli->only_plugin_dirs};
}

tt_status tt_cli_registry(const tt_cli *cli, tt_registry **out, tt_error *err)
{
    const tt_registry_opts o = tt_cli_plugins(cli);
    return tt_registry_new(&o, out, err);
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
    const tt_registry_opts plugins = tt_cli_plugins(cli);
    const int64_t begin = tt_now_ns();
    TT_TRY(tt_job_load(cli->arena, cli->job, cli->overrides, cli->n_overrides, &job, err));
    TT_TRY(tt_registry_new_for_job(&plugins, job, r, err));
    const int64_t read = tt_now_ns();
    const tt_status s = tt_setup_make(o, *r, job, cli->arena, out, err);
    tt_log(TT_DEBUG, "time", "job read and plugins listed: %.3f s; graph made: %.3f s",
           1e-9 * (double)(read - begin), 1e-9 * (double)(tt_now_ns() - read));
    return s;
}
