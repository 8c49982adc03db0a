/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* ctl_tool FOLDER WAY [N]: clients of a run's socket that no ttrun would be.
 *   garbage    N connections that send random bytes (some hold lines)
 *   huge       one command of N bytes without an end; prints the answer
 *   half       N connections that send "sta" and stay; prints how many were made, then waits for stdin
 *   drop       N connections that send "save" and close at once
 *   raw        sends what stdin holds, prints the answer
 *   other      as another user: prints the answer, or why there is no connection */

static int connected(const char *folder)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    const int at = open(folder, O_PATH | O_DIRECTORY);
    snprintf(a.sun_path, sizeof a.sun_path, "/proc/self/fd/%d/.ctl", at);
    const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    if (connect(fd, (struct sockaddr *)&a, sizeof a)) {
        const int why = errno;
        close(fd);
        close(at);
        errno = why;
        return -1;
    }
    close(at);
    return fd;
}

static int sends(int fd, const char *text, size_t n)
{
    return send(fd, text, n, MSG_NOSIGNAL) == (ssize_t)n;
}

static void print_answer(int fd)
{
    char text[4096];
    ssize_t n;
    while ((n = recv(fd, text, sizeof text, 0)) > 0)
        fwrite(text, 1, (size_t)n, stdout);
    putchar('\n');
}

static int garbage(const char *folder, long n)
{
    char bytes[9000];
    srand(7);
    for (long i = 0; i < n; i++) {
        const int fd = connected(folder);
        if (fd < 0)
            return 1;
        const size_t length = (size_t)rand() % sizeof bytes;
        for (size_t k = 0; k < length; k++)
            bytes[k] = (char)(rand() % (i % 3 ? 256 : 100));
        sends(fd, bytes, length);
        close(fd);
    }
    return 0;
}

static int huge(const char *folder, long n)
{
    char piece[1 << 16];
    const int fd = connected(folder);
    memset(piece, 'a', sizeof piece);
    for (long at = 0; fd >= 0 && at < n; at += (long)sizeof piece)
        if (!sends(fd, piece, sizeof piece))
            break;
    if (fd >= 0)
        print_answer(fd);
    return fd < 0;
}

static int half(const char *folder, long n)
{
    long made = 0;
    char c;
    for (long i = 0; i < n; i++) {
        const int fd = connected(folder);
        made += fd >= 0 && sends(fd, "sta", 3);
    }
    printf("%ld\n", made);
    fflush(stdout);
    return read(0, &c, 1) < 0;
}

static int drop(const char *folder, long n)
{
    for (long i = 0; i < n; i++) {
        const int fd = connected(folder);
        if (fd < 0 || !sends(fd, "log info\n", 9))
            return 1;
        close(fd);
    }
    return 0;
}

static int raw(const char *folder)
{
    static char text[1 << 20];
    const int fd = connected(folder);
    const size_t n = fread(text, 1, sizeof text, stdin);
    if (fd < 0)
        return 1;
    sends(fd, text, n);
    print_answer(fd);
    return 0;
}

static int other(const char *folder)
{
    if (setresgid(65534, 65534, 65534) || setresuid(65534, 65534, 65534)) {
        puts("skip: not root");
        return 0;
    }
    const int fd = connected(folder);
    if (fd < 0) {
        puts(strerror(errno));
        return 0;
    }
    sends(fd, "stop\n", 5);
    print_answer(fd);
    return 0;
}

int main(int argc, char **argv)
{
    const char *folder = argc > 2 ? argv[1] : "", *way = argc > 2 ? argv[2] : "";
    const long n = argc > 3 ? atol(argv[3]) : 1;
    if (!strcmp(way, "garbage"))
        return garbage(folder, n);
    if (!strcmp(way, "huge"))
        return huge(folder, n);
    if (!strcmp(way, "half"))
        return half(folder, n);
    if (!strcmp(way, "drop"))
        return drop(folder, n);
    if (!strcmp(way, "raw"))
        return raw(folder);
    if (!strcmp(way, "other"))
        return other(folder);
    return 2;
}
