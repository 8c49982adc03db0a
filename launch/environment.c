/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "launch/environment.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <ttrun/option.h>
#include <unistd.h>

/* Which rank this process is, from the launcher's environment variables. Asking MPI would take
 * 0.3 s; reading the variables opens nothing. */

typedef struct launcher {
    const char *name;
    const char *rank, *world, *local_rank, *local_world; /* variables; the last two may be NULL */
    const char *nodes;                                   /* number of machines, or NULL */
    const char *ids[5];                                  /* together unique per start of a job */
} launcher;

/* The first launcher whose variables are set is taken: torchrun before mpirun before Slurm, since
 * mpirun may run inside a Slurm allocation and torchrun inside either. */
static const launcher launchers[] = {
    {"ttrun",
     "TTRUN_RANK",           "TTRUN_WORLD",
     "TTRUN_LOCAL_RANK",           "TTRUN_LOCAL_WORLD",
     NULL,                   {"TTRUN_SESSION"}                                                                   },
    {"torchrun",
     "RANK",                 "WORLD_SIZE",
     "LOCAL_RANK",                 "LOCAL_WORLD_SIZE",
     NULL,                   {"MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT"} },
    {"mpirun",
     "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
     "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE",
     NULL,                   {"PMIX_NAMESPACE", "OMPI_MCA_orte_hnp_uri", "PMIX_SERVER_URI41", "PMIX_SERVER_URI2"}},
    {"srun",
     "SLURM_PROCID",         "SLURM_STEP_NUM_TASKS",
     "SLURM_LOCALID",              NULL,
     "SLURM_STEP_NUM_NODES", {"SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT"}                            },
    {"mpiexec",
     "PMI_RANK",             "PMI_SIZE",
     "MPI_LOCALRANKID",            "MPI_LOCALNRANKS",
     NULL,                   {"PMI_ID", "PMI_PORT", "PMI_FD", "HYDI_CONTROL_FD"}                                 },
};

/* The variable's value, an integer ≥ 0; -1: it is not set, or not such a number. */
static int launch_number(tt_getenv get, const char *name)
{
    char *end;
    const char *text = name ? get(name) : NULL;
    if (!text || *text < '0' || *text > '9')
        return -1;
    errno = 0;
    const long n = strtol(text, &end, 10);
    return *end || errno || n > 1 << 20 ? -1 : (int)n;
}

/* Slurm writes the tasks per node in node order, as in "2(x3),1". Returns that number if all nodes
 * have the same one, else 0. */
static int slurm_tasks_here(tt_getenv get)
{
    const char *text = get("SLURM_STEP_TASKS_PER_NODE");
    char *end;
    if (!text)
        return 0;
    const long n = strtol(text, &end, 10);
    return strchr(end, ',') || n < 1 || n > 1 << 20 ? 0 : (int)n;
}

static void make_key(tt_getenv get, const launcher *l, char out[33])
{
    tt_str s = {0};
    tt_str_add(&s, l->name);
    for (size_t i = 0; i < TT_COUNT(l->ids) && l->ids[i]; i++) {
        const char *v = get(l->ids[i]);
        tt_str_printf(&s, " %s", v ? v : "");
    }
    tt_hash128_hex(tt_str_get(&s), s.n, out);
    tt_str_free(&s);
}

/* What is set and is none would be taken as not set. */
static tt_status must_be_number(tt_getenv get, const char *name, int value, tt_error *err)
{
    if (!name || !get(name) || value >= 0)
        return TT_OK;
    return TT_FAIL(err, TT_EINVAL, "%s=%s: expected a number from 0; unset it if there is none",
                   name, get(name));
}

static tt_status read_one(tt_getenv get, const launcher *l, tt_launch *out, tt_error *err)
{
    tt_launch r = {.launcher = l->name};
    r.rank = launch_number(get, l->rank);
    r.world = launch_number(get, l->world);
    if (r.world == 1 && r.rank <= 0) { /* the only rank */
        *out = (tt_launch){.world = 1, .local_world = 1};
        return TT_OK;
    }
    if (r.rank < 0 || r.world < 1 || r.rank >= r.world)
        return TT_FAIL(err, TT_EINVAL, "%s=%s and %s=%s do not name a rank of %s", l->rank,
                       get(l->rank), l->world, get(l->world) ? get(l->world) : "(not set)",
                       l->name);
    r.local_world = launch_number(get, l->local_world);
    r.local_rank = launch_number(get, l->local_rank);
    TT_TRY(must_be_number(get, l->local_world, r.local_world, err));
    TT_TRY(must_be_number(get, l->local_rank, r.local_rank, err));
    if (r.local_world < 0 && launch_number(get, l->nodes) == 1)
        r.local_world = r.world;
    if (r.local_world < 0 && l->nodes)
        r.local_world = slurm_tasks_here(get);
    if (r.local_world < 0) /* the launcher does not say: all ranks are on this machine */
        r.local_world = r.world;
    if (r.local_rank < 0)
        r.local_rank = r.local_world == r.world ? r.rank : -1;
    if (r.local_world < 1 || r.local_rank < 0 || r.local_rank >= r.local_world)
        return TT_FAIL(err, TT_EINVAL,
                       "%s does not set the local rank of rank %d on this machine; set %s and "
                       "%s",
                       l->name, r.rank, l->local_rank,
                       l->local_world ? l->local_world : "an equal number of tasks per node");
    make_key(get, l, r.key);
    *out = r;
    return TT_OK;
}

tt_status tt_launch_read(tt_getenv get, tt_launch *out, tt_error *err)
{
    for (size_t i = 0; i < TT_COUNT(launchers); i++)
        if (get(launchers[i].rank) && get(launchers[i].world))
            return read_one(get, &launchers[i], out, err);
    *out = (tt_launch){.world = 1, .local_world = 1};
    return TT_OK;
}

tt_status tt_launch_alone(tt_getenv get, tt_error *err)
{
    const int world = launch_number(get, "WORLD_SIZE"), rank = launch_number(get, "RANK");
    if (rank > 0 && !get("WORLD_SIZE"))
        return TT_FAIL(
            err, TT_EINVAL,
            "RANK=%d without WORLD_SIZE: this process would train alone; set WORLD_SIZE, "
            "LOCAL_RANK and LOCAL_WORLD_SIZE for each process as torchrun does, or "
            "unset RANK and use --nproc",
            rank);
    if (world < 2 || get("RANK"))
        return TT_OK;
    return TT_FAIL(
        err, TT_EINVAL,
        "WORLD_SIZE=%d without RANK: this process would train alone; set RANK (0 to %d), "
        "LOCAL_RANK and LOCAL_WORLD_SIZE for each process as torchrun does, or unset "
        "WORLD_SIZE and use --nproc",
        world, world - 1);
}

tt_status tt_launch_follow(tt_error *err)
{
    const pid_t parent = getppid();
    if (prctl(PR_SET_PDEATHSIG, 9, 0, 0, 0) || getppid() != parent)
        return TT_FAIL(err, TT_ECOMM, "the launcher of this rank has exited");
    return TT_OK;
}
