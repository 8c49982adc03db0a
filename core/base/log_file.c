/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "internal.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

/* Log files, one per rank of this process. What is said before the first one is opened is kept in memory
 * and becomes its beginning. */

#define MAX_FILES 1024
#define EARLY_BYTES 32768

static struct {
    pthread_mutex_t lock;
    int fds[MAX_FILES]; /* by rank; plus 1, 0: none */
    bool opened, failed;
    size_t n_early;
    char early[EARLY_BYTES];
} files = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* The first failure is said on stderr; there is no other place. */
static void write_line(int fd, const char *line, size_t n)
{
    static const char text[] = "[log] a log file cannot be written, so lines go to stderr alone\n";
    if (tt_write_all(fd, line, n) || files.failed)
        return;
    files.failed = true;
    (void)tt_write_all(STDERR_FILENO, text, sizeof text - 1);
}

void tt_log_file_put(int rank, const char *line, size_t n)
{
    const int saved = errno;
    pthread_mutex_lock(&files.lock);
    if (rank >= 0 && rank < MAX_FILES && files.fds[rank]) {
        write_line(files.fds[rank] - 1, line, n);
    } else if (!files.opened && n <= EARLY_BYTES - files.n_early) {
        memcpy(files.early + files.n_early, line, n);
        files.n_early += n;
    }
    pthread_mutex_unlock(&files.lock);
    errno = saved;
}

tt_status tt_log_file_open(int rank, const char *path, tt_error *err)
{
    if (rank < 0 || rank >= MAX_FILES)
        return TT_OK;
    pthread_mutex_lock(&files.lock);
    const bool has = files.fds[rank] != 0;
    pthread_mutex_unlock(&files.lock);
    if (has)
        return TT_OK;
    int fd;
    TT_TRY(tt_open_own(path, O_WRONLY | O_CREAT | O_APPEND, 0644, &fd, err));
    pthread_mutex_lock(&files.lock);
    files.fds[rank] = fd + 1;
    if (!files.opened)
        write_line(fd, files.early, files.n_early);
    files.opened = true;
    files.n_early = 0;
    pthread_mutex_unlock(&files.lock);
    return TT_OK;
}

void tt_log_file_close(int rank)
{
    if (rank < 0 || rank >= MAX_FILES)
        return;
    pthread_mutex_lock(&files.lock);
    if (files.fds[rank])
        close(files.fds[rank] - 1);
    files.fds[rank] = 0;
    pthread_mutex_unlock(&files.lock);
}
