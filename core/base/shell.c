/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "base/internal.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* Commands that a job names. posix_spawn() does not copy the memory of this process, which may be
 * most of the machine's. */

extern char **environ;

#define MOST_OUTPUT ((size_t)1 << 20)

/* Signals that ttrun handles have their default effect in the command. */
static void shell_signals(posix_spawnattr_t *attr)
{
    static const int reset[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGPIPE};
    sigset_t none, defaults;
    sigemptyset(&none);
    sigemptyset(&defaults);
    for (size_t i = 0; i < sizeof reset / sizeof reset[0]; i++)
        sigaddset(&defaults, reset[i]);
    posix_spawnattr_setsigmask(attr, &none);
    posix_spawnattr_setsigdefault(attr, &defaults);
    posix_spawnattr_setflags(attr, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
}

/* to: what the command's stdout is. Returns 0 or an error of the system's. */
static int shell_spawn(char *const *argv, int to, pid_t *child)
{
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attr;
    posix_spawn_file_actions_init(&files);
    posix_spawnattr_init(&attr);
    posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&files, to, STDOUT_FILENO);
    shell_signals(&attr);
    const int number = posix_spawn(child, "/bin/sh", &files, &attr, argv, environ);
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&attr);
    return number;
}

/* Reads to the end; what is more than MOST_OUTPUT is dropped, so that the command can end. */
static void shell_read(int fd, tt_str *out)
{
    char block[4096];
    for (;;) {
        const ssize_t k = read(fd, block, sizeof block);
        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0)
            return;
        for (ssize_t i = 0; i < k && out->n < MOST_OUTPUT; i++)
            tt_str_addc(out, block[i]);
    }
}

static tt_status shell_wait(pid_t child, const char *command, tt_error *err)
{
    int how = 0;
    while (waitpid(child, &how, 0) < 0)
        if (errno != EINTR)
            return TT_FAIL(err, TT_EIO, "'%s': cannot wait for it: %s", command, strerror(errno));
    if (WIFSIGNALED(how))
        return TT_FAIL(err, TT_EIO, "'%s' was ended by signal %d (%s)", command, WTERMSIG(how),
                       strsignal(WTERMSIG(how)));
    if (WEXITSTATUS(how))
        return TT_FAIL(err, TT_EIO, "'%s' ended with status %d", command, WEXITSTATUS(how));
    return TT_OK;
}

tt_status tt_shell(const char *command, const char *const *args, size_t n, tt_str *out,
                   tt_error *err)
{
    int ends[2] = {-1, -1};
    pid_t child;
    tt_arena *a = tt_arena_new();
    const char **argv = tt_arena_array(a, n + 5, sizeof *argv); /* zeroed: NULL at the end */
    tt_status status;
    argv[0] = "/bin/sh";
    argv[1] = "-c";
    argv[2] = command;
    argv[3] = "ttrun";
    for (size_t i = 0; i < n; i++)
        argv[4 + i] = args[i];
    argv[4 + n] = NULL;
    int number = out && pipe2(ends, O_CLOEXEC) != 0 ? errno : 0;
    if (!number)
        number = shell_spawn((char *const *)argv, out ? ends[1] : STDERR_FILENO, &child);
    if (ends[1] >= 0)
        close(ends[1]);
    if (number) {
        status = TT_FAIL(err, TT_EIO, "'%s': cannot start it: %s", command, strerror(number));
    } else {
        if (out)
            shell_read(ends[0], out);
        status = shell_wait(child, command, err);
    }
    if (ends[0] >= 0)
        close(ends[0]);
    tt_arena_free(a);
    return status;
}
