/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
static const char carrier_name[] = "mpi";
#include "comm/started.h"

/* The battery over real MPI. */

static bool carrier_is_here(void)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/comms/mpi.so", getenv("PLUGINS"));
    const bool here =
        getenv("PLUGINS") && !access(path, R_OK) && !system("command -v mpirun >/dev/null");
    if (!here)
        print_message("# no MPI here: `make deps` installs it\n");
    return here;
}

static void carrier_line(char *line, size_t size, int n, const char *only, const char *self)
{
    /* Ranks that poll yield their core, so that those with news can run. */
    snprintf(line, size,
             "TT_TEST=%s mpirun -q --mca mpi_yield_when_idle 1 -np %d %s 2>&1 </dev/null", only, n,
             self);
}

int main(void)
{
    setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
    setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
    setenv("OMPI_MCA_rmaps_base_oversubscribe", "1", 1);
    setenv("OMPI_MCA_hwloc_base_binding_policy", "none", 1);
    setenv("OMPI_MCA_btl_vader_single_copy_mechanism", "none", 1);
    return started_main();
}
