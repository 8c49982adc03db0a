/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <ttrun/status.h>
#include <unistd.h>

TT_EXPORT int tt_cli_main(int argc, char **argv, const char *commit);
TT_EXPORT void tt_ranks_leave(void);

/* These take the place of libc's for plugins and their libraries, too: a process that ends with success by them before its run
 * is done must not (launch/ranks.c). No other status says that. */
TT_EXPORT _Noreturn void _exit(int status)
{
    if (!status)
        tt_ranks_leave();
    for (;;)
        syscall(SYS_exit_group, status);
}

TT_EXPORT _Noreturn void _Exit(int status)
{
    _exit(status);
}

int main(int argc, char **argv)
{
    return tt_cli_main(argc, argv, TT_BUILD_COMMIT);
}
