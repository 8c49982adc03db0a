/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_TESTS_EXEC_FAR_FOLDER_H
#define TT_TESTS_EXEC_FAR_FOLDER_H
#include "exec/job.h"
#include <unistd.h>

/* A group's setup: jobs may name the backend and the communicator of tests/plugins/far. Include it after
 * _GNU_SOURCE or _DEFAULT_SOURCE. */
static int far_folder(void **state)
{
    static char folder[4096];
    char so[4096], link[4200];
    tt_error err;
    const char *build = getenv("BUILD");
    (void)state;
    snprintf(so, sizeof so, "%s/tests/plugins/far/far.so", build ? build : "build/release");
    snprintf(folder, sizeof folder, "%s/far", job_folder());
    snprintf(link, sizeof link, "%s/backends", folder);
    if (tt_mkdirs(link, &err) != TT_OK)
        return -1;
    snprintf(link, sizeof link, "%s/backends/far.so", folder);
    (void)unlink(link);
    job_more_plugins = folder;
    return symlink(so, link);
}

#endif
