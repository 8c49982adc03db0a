/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

/* stop_tool K first|every COMMAND...: runs the command, and sends SIGTERM at the K-th stop at a system call (each has one before
 * and one after it) of all processes and threads of the command together, counted from the moment when the first process handles
 * SIGTERM: to that process, or to every one. Which K is a moment of the program, not of the clock. K = 0: no signal; prints the
 * number of these stops. The exit status is the command's, 128 + N after signal N. */

enum { MOST = 4096 };

static pid_t known[MOST]; /* threads that were seen */
static int n_known;

static bool is_new(pid_t t)
{
    for (int i = 0; i < n_known; i++)
        if (known[i] == t)
            return false;
    if (n_known < MOST)
        known[n_known++] = t;
    return true;
}

static void forget(pid_t t)
{
    for (int i = 0; i < n_known; i++)
        if (known[i] == t)
            known[i--] = known[--n_known];
}

/* A number of /proc/PID/status; 0 if it is not there. */
static unsigned long long number_of(pid_t pid, const char *name, int base)
{
    char path[64], line[256];
    unsigned long long found = 0;
    snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    FILE *f = fopen(path, "r");
    while (f && fgets(line, sizeof line, f))
        if (!strncmp(line, name, strlen(name)))
            found = strtoull(line + strlen(name), NULL, base);
    if (f)
        fclose(f);
    return found;
}

static bool handles(pid_t pid)
{
    return number_of(pid, "SigCgt:", 16) >> (SIGTERM - 1) & 1;
}

static void stop(pid_t first, bool every)
{
    if (!every)
        kill(first, SIGTERM);
    for (int i = 0; i < n_known && every; i++)
        if (number_of(known[i], "Tgid:", 10) == (unsigned long long)known[i]) /* not a thread */
            kill(known[i], SIGTERM);
}

static pid_t begin(char **command)
{
    const pid_t parent = getpid(), pid = fork();
    if (pid)
        return pid;
    if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) || getppid() != parent ||
        ptrace(PTRACE_TRACEME, 0, NULL, NULL) || raise(SIGSTOP))
        _exit(126);
    execvp(command[0], command);
    _exit(127);
}

/* Follows them until the first process has ended; its wait status. */
static int follow(pid_t first, long k, bool every, long *n)
{
    const long options = PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK |
                         PTRACE_O_TRACECLONE | PTRACE_O_TRACEEXEC;
    bool counts = false, sent = false;
    int how;
    *n = 0;
    for (;;) {
        const pid_t t = waitpid(-1, &how, __WALL);
        if (t < 0)
            return 127 << 8;
        if (!WIFSTOPPED(how)) {
            forget(t);
            if (t == first)
                return how;
            continue;
        }
        int sig = WSTOPSIG(how);
        const bool is_call = sig == (SIGTRAP | 0x80);
        if (is_new(t) && sig == SIGSTOP) { /* of the tracing */
            ptrace(PTRACE_SETOPTIONS, t, NULL, options);
            sig = 0;
        }
        if (is_call && !counts && t == first)
            counts = handles(first);
        *n += is_call && counts;
        if (is_call || how >> 16)
            sig = 0;
        if (k && *n >= k && !sent) {
            sent = true;
            stop(first, every);
        }
        ptrace(sent ? PTRACE_CONT : PTRACE_SYSCALL, t, NULL, (long)sig);
    }
}

int main(int argc, char **argv)
{
    long n;
    if (argc < 4)
        return 2;
    const long k = atol(argv[1]);
    const int how = follow(begin(argv + 3), k, !strcmp(argv[2], "every"), &n);
    if (!k)
        printf("%ld\n", n);
    return WIFEXITED(how) ? WEXITSTATUS(how) : 128 + WTERMSIG(how);
}
