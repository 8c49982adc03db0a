/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "launch/mpirun.h"
#include "base/base.h"
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ttrun/option.h>
#include <unistd.h>

/* Settings that Open MPI needs as root, in containers and with more ranks than cores. They are set
 * as environment variables, because its versions spell the options differently and other MPIs
 * ignore the variables. */
static const char *const mpi_environment[][2] = {
    {"OMPI_ALLOW_RUN_AS_ROOT",                   "1"             },
    {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM",           "1"             },
    {"OMPI_MCA_rmaps_base_oversubscribe",        "1"             },
    {"PRTE_MCA_rmaps_default_mapping_policy",    ":oversubscribe"},
    {"OMPI_MCA_hwloc_base_binding_policy",       "none"          },
    {"PRTE_MCA_hwloc_default_binding_policy",    "none"          },
    {"OMPI_MCA_orte_execute_quiet",              "1"             }, /* the ranks print the error */
    {"OMPI_MCA_btl_vader_single_copy_mechanism", "none"          }, /* not allowed in most containers */
};

bool tt_mpirun_in_allocation(void)
{
    static const char *const names[] = {"SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "PE_HOSTFILE"};
    for (size_t i = 0; i < TT_COUNT(names); i++)
        if (getenv(names[i]))
            return true;
    return false;
}

/* Open MPI keeps files of a session below $TMPDIR/ompi.HOST.UID/pid.PID. mpirun tells the ranks its
 * base, and they refuse a local one in addition; on other machines the base would stay. */
void tt_mpirun_prepare(const char *files)
{
    static const char *const session[] = {"OMPI_MCA_orte_tmpdir_base", "PRTE_MCA_prte_tmpdir_base"};
    for (size_t i = 0; files && !tt_mpirun_in_allocation() && i < TT_COUNT(session); i++)
        setenv(session[i], files, 0);
    tt_terminal_pass_on(); /* for rank 0's progress bar, whose bytes mpirun passes on unchanged */
    for (size_t i = 0; i < TT_COUNT(mpi_environment); i++)
        setenv(mpi_environment[i][0], mpi_environment[i][1], 0);
}

bool tt_mpirun_has_children(pid_t pid)
{
    char path[64], byte;
    bool any = false, known = false;
    snprintf(path, sizeof path, "/proc/%ld/task", (long)pid);
    DIR *d = opendir(path);
    for (const struct dirent *e = d ? readdir(d) : NULL; e; e = readdir(d)) {
        char file[sizeof path + sizeof e->d_name + 16];
        snprintf(file, sizeof file, "%s/%s/children", path, e->d_name);
        const int fd = e->d_name[0] == '.' ? -1 : open(file, O_RDONLY | O_CLOEXEC);
        if (fd < 0)
            continue;
        known = true;
        any = any || read(fd, &byte, 1) == 1;
        close(fd);
    }
    if (d)
        closedir(d);
    return any || !known;
}

int tt_mpirun_signal(pid_t pid)
{
    static const int stops[] = {SIGTERM, SIGINT, SIGHUP};
    char path[64], text[8192];
    snprintf(path, sizeof path, "/proc/%ld/status", (long)pid);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    const ssize_t n = fd >= 0 ? read(fd, text, sizeof text - 1) : -1;
    if (fd >= 0)
        close(fd);
    text[TT_MAXV(n, (ssize_t)0)] = 0;
    const char *pending = strstr(text, "\nShdPnd:");
    const unsigned long long bits = pending ? strtoull(pending + 8, NULL, 16) : 0;
    for (size_t i = 0; i < TT_COUNT(stops); i++)
        if (bits >> (stops[i] - 1) & 1)
            return stops[i];
    return 0;
}
