/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>

/* Preloaded: a Ctrl-C when standard output was flushed for the third time, which is in the middle of an answer. */
int fflush(FILE *f)
{
    static int calls;
    int (*real)(FILE *) = (int (*)(FILE *))dlsym(RTLD_NEXT, "fflush");
    const int r = real(f);
    if (f == stdout && ++calls == 3)
        raise(SIGINT);
    return r;
}
