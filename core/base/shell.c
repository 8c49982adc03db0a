/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "base/internal.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Commands that a job names. posix_spawn() does not copy the memory of this process, which may be
 * most of the machine's. */

extern char **environ;

#define MOST_OUTPUT ((size_t)1 << 20)

/* Signals that ttrun handles have their default effect in the command. own_group: so that it can be killed
 * with all that it has started. */
static void shell_signals(posix_spawnattr_t *attr, bool own_group)
{
    static const int reset[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGPIPE};
    sigset_t none, defaults;
    sigemptyset(&none);
    sigemptyset(&defaults);
    for (size_t i = 0; i < sizeof reset / sizeof reset[0]; i++)
        sigaddset(&defaults, reset[i]);
    posix_spawnattr_setsigmask(attr, &none);
    posix_spawnattr_setsigdefault(attr, &defaults);
    posix_spawnattr_setpgroup(attr, 0);
    posix_spawnattr_setflags(attr, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF |
                                       (own_group ? POSIX_SPAWN_SETPGROUP : 0));
}

/* to: what the command's stdout is. Returns 0 or an error of the system's. */
static int shell_spawn(char *const *argv, int to, bool own_group, pid_t *child)
{
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attr;
    posix_spawn_file_actions_init(&files);
    posix_spawnattr_init(&attr);
    posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&files, to, STDOUT_FILENO);
    shell_signals(&attr, own_group);
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

static tt_status shell_status(int how, const char *command, tt_error *err)
{
    if (WIFSIGNALED(how))
        return TT_FAIL(err, TT_EIO, "'%s' was ended by signal %d (%s)", command, WTERMSIG(how),
                       strsignal(WTERMSIG(how)));
    if (WEXITSTATUS(how))
        return TT_FAIL(err, TT_EIO, "'%s' ended with status %d", command, WEXITSTATUS(how));
    return TT_OK;
}

static tt_status shell_wait(pid_t child, const char *command, tt_error *err)
{
    int how = 0;
    while (waitpid(child, &how, 0) < 0)
        if (errno != EINTR)
            return TT_FAIL(err, TT_EIO, "'%s': cannot wait for it: %s", command, strerror(errno));
    return shell_status(how, command, err);
}

/* Looks now and then whether the command has ended. */
static tt_status shell_wait_within(pid_t child, const char *command, double seconds, tt_error *err)
{
    const int64_t began = tt_now_ns();
    int how = 0;
    for (;;) {
        const pid_t got = waitpid(child, &how, WNOHANG);
        if (got == child)
            return shell_status(how, command, err);
        if (got < 0 && errno != EINTR)
            return TT_FAIL(err, TT_EIO, "'%s': cannot wait for it: %s", command, strerror(errno));
        if (1e-9 * (double)(tt_now_ns() - began) > seconds)
            break;
        nanosleep(&(struct timespec){0, 10000000}, NULL);
    }
    kill(-child, SIGKILL);
    shell_wait(child, command, NULL);
    return TT_FAIL(err, TT_ETIMEOUT, "'%s' had not ended after %g s and was killed", command,
                   seconds);
}

/* argv of `sh -c command ttrun args…` */
static char *const *shell_argv(tt_arena *a, const char *command, const char *const *args, size_t n)
{
    const char **argv = tt_arena_array(a, n + 5, sizeof *argv); /* zeroed: NULL at the end */
    argv[0] = "/bin/sh";
    argv[1] = "-c";
    argv[2] = command;
    argv[3] = "ttrun";
    for (size_t i = 0; i < n; i++)
        argv[4 + i] = args[i];
    return (char *const *)argv;
}

static tt_status cannot_start(const char *command, int number, tt_error *err)
{
    return TT_FAIL(err, TT_EIO, "'%s': cannot start it: %s", command, strerror(number));
}

tt_status tt_shell_within(const char *command, const char *const *args, size_t n, double seconds,
                          tt_error *err)
{
    pid_t child;
    tt_arena *a = tt_arena_new();
    const int number = shell_spawn(shell_argv(a, command, args, n), STDERR_FILENO, true, &child);
    tt_arena_free(a);
    if (number)
        return cannot_start(command, number, err);
    return seconds > 0 ? shell_wait_within(child, command, seconds, err)
                       : shell_wait(child, command, err);
}

tt_status tt_shell(const char *command, const char *const *args, size_t n, tt_str *out,
                   tt_error *err)
{
    int ends[2] = {-1, -1};
    pid_t child;
    tt_arena *a = tt_arena_new();
    tt_status status;
    int number = out && pipe2(ends, O_CLOEXEC) != 0 ? errno : 0;
    if (!number)
        number = shell_spawn(shell_argv(a, command, args, n), out ? ends[1] : STDERR_FILENO, false,
                             &child);
    if (ends[1] >= 0)
        close(ends[1]);
    if (number) {
        status = cannot_start(command, number, err);
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
