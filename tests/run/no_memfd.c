/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>

/* A kernel or a sandbox without files in memory. */

int memfd_create(const char *name, unsigned flags);
int memfd_create(const char *name, unsigned flags)
{
    (void)name;
    (void)flags;
    errno = ENOSYS;
    return -1;
}
