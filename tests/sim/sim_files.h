/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_TESTS_SIM_FILES_H
#define TT_TESTS_SIM_FILES_H
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Files of a run: read, compared, and the number in the name of a step. */

static inline char *text_of(const char *path, size_t *n)
{
    struct stat st;
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    char *p = fd >= 0 && fstat(fd, &st) == 0 ? malloc((size_t)st.st_size + 1) : NULL;
    const ssize_t k = p ? read(fd, p, (size_t)st.st_size) : -1;
    if (fd >= 0)
        close(fd);
    if (k >= 0)
        p[k] = 0;
    *n = k > 0 ? (size_t)k : 0;
    return p;
}

typedef enum likeness { SAME, OTHER_SIZE, OTHER_BITS } likeness;

static inline likeness compare_files(const char *a, const char *b)
{
    size_t n, m;
    char *x = text_of(a, &n), *y = text_of(b, &m);
    const likeness l = !x || !y || n != m ? OTHER_SIZE : memcmp(x, y, n) ? OTHER_BITS : SAME;
    free(x);
    free(y);
    return l;
}

static inline int64_t step_of(const char *name)
{
    char *end;
    if (strncmp(name, "step-", 5))
        return -1;
    const long long step = strtoll(name + 5, &end, 10);
    return *end || end == name + 5 ? -1 : step;
}

#endif
