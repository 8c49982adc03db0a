/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* startup RUNS MARK COMMAND…: runs the command RUNS times and prints the milliseconds from before
 * fork to the arrival of the first line of its stderr that holds MARK: median, least, most; and the
 * median to its end. MARK "": to its end, all four. The first run warms caches and is not counted. */

enum { MAX_RUNS = 1000 };

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e3 * (double)t.tv_sec + 1e-6 * (double)t.tv_nsec;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Reads to the end; the time at which `mark` was complete, or -1. Lines longer than the buffer are
 * cut. */
static double wait_for(int fd, const char *mark)
{
    char text[65536];
    size_t n = 0;
    double at = -1;
    for (;;) {
        const ssize_t k = read(fd, text + n, sizeof text - 1 - n);
        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0)
            return at;
        n += (size_t)k;
        text[n] = 0;
        if (at < 0 && strstr(text, mark))
            at = now_ms();
        if (n > sizeof text / 2)
            n = 0;
    }
}

static int once(const char *mark, char **command, double *to_mark, double *to_end)
{
    int fd[2], status;
    if (pipe(fd))
        return -1;
    const double begin = now_ms();
    const pid_t pid = fork();
    if (pid < 0)
        return -1;
    if (pid == 0) {
        const int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
        dup2(nowhere, 1);
        dup2(fd[1], 2);
        close(fd[0]);
        close(fd[1]);
        execvp(command[0], command);
        _exit(127);
    }
    close(fd[1]);
    *to_mark = wait_for(fd[0], mark) - begin;
    close(fd[0]);
    if (waitpid(pid, &status, 0) != pid)
        return -1;
    *to_end = now_ms() - begin;
    if (!*mark)
        *to_mark = *to_end;
    return WIFEXITED(status) && WEXITSTATUS(status) == 0 && *to_mark > 0 ? 0 : -1;
}

int main(int argc, char **argv)
{
    static double mark[MAX_RUNS], end[MAX_RUNS];
    const int n = argc > 3 ? atoi(argv[1]) : 0;
    if (n < 1 || n > MAX_RUNS) {
        fprintf(stderr, "usage: startup RUNS MARK COMMAND...\n");
        return 2;
    }
    double x, y;
    for (int i = -1; i < n; i++) {
        if (once(argv[2], argv + 3, &x, &y)) {
            fprintf(stderr, "startup: %s failed, or printed no line with \"%s\"\n", argv[3],
                    argv[2]);
            return 1;
        }
        if (i < 0)
            continue;
        mark[i] = x;
        end[i] = y;
    }
    qsort(mark, (size_t)n, sizeof *mark, by_value);
    qsort(end, (size_t)n, sizeof *end, by_value);
    const double median = (mark[(n - 1) / 2] + mark[n / 2]) / 2;
    printf("| %6.1f | %6.1f | %6.1f | %6.1f |\n", median, mark[0], mark[n - 1],
           (end[(n - 1) / 2] + end[n / 2]) / 2);
    return 0;
}
