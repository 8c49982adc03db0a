/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_TEST_PRELOAD_H
#define TT_TEST_PRELOAD_H
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>

/* For functions that take the place of libc's. The file defines _GNU_SOURCE. */

/* Declares `next`, which is libc's function of this name. */
#define NEXT(type, name, ...)                                                                      \
    static type (*next)(__VA_ARGS__);                                                              \
    if (!next)                                                                                     \
    *(void **)&next = dlsym(RTLD_NEXT, name)

/* Declares `mode`, the last argument of open() or openat(), which is there where a file may be created. */
#define MODE_OF_OPEN(flags, mode)                                                                  \
    va_list mode##_list;                                                                           \
    va_start(mode##_list, flags);                                                                  \
    const mode_t mode =                                                                            \
        flags & O_CREAT || (flags & O_TMPFILE) == O_TMPFILE ? va_arg(mode##_list, mode_t) : 0;     \
    va_end(mode##_list)

#endif
