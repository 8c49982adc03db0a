/* SPDX-License-Identifier: Apache-2.0 */
#include "launch/environment.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* The meaning of launchers' environment variables. */

static const char *const *variables; /* name, value, name, value, …, NULL */

static char *get(const char *name)
{
    for (const char *const *v = variables; v && v[0]; v += 2)
        if (!strcmp(v[0], name))
            return (char *)(uintptr_t)v[1];
    return NULL;
}

static tt_launch read_ok(const char *const *v)
{
    tt_launch l;
    tt_error err = {0};
    variables = v;
    if (tt_launch_read(get, &l, &err) != TT_OK)
        fail_msg("%s", err.text);
    return l;
}

static void is(const tt_launch *l, const char *launcher, int rank, int world, int local_rank,
               int local_world)
{
    assert_string_equal(l->launcher, launcher);
    assert_int_equal(l->rank, rank);
    assert_int_equal(l->world, world);
    assert_int_equal(l->local_rank, local_rank);
    assert_int_equal(l->local_world, local_world);
}

static void test_no_launcher_is_one_rank(void **state)
{
    (void)state;
    const tt_launch l = read_ok(NULL);
    assert_int_equal(l.world, 1);
    assert_null(l.launcher);
    /* a batch script of Slurm is no rank */
    const tt_launch batch = read_ok(
        (const char *[]){"SLURM_PROCID", "0", "SLURM_NTASKS", "4", "SLURM_JOB_ID", "7", NULL});
    assert_int_equal(batch.world, 1);
    const tt_launch one =
        read_ok((const char *[]){"OMPI_COMM_WORLD_RANK", "0", "OMPI_COMM_WORLD_SIZE", "1", NULL});
    assert_int_equal(one.world, 1);
}

static void test_mpirun_torchrun_srun_and_mpiexec_are_known(void **state)
{
    (void)state;
    tt_launch l = read_ok((const char *[]){"OMPI_COMM_WORLD_RANK", "5", "OMPI_COMM_WORLD_SIZE", "8",
                                           "OMPI_COMM_WORLD_LOCAL_RANK", "1",
                                           "OMPI_COMM_WORLD_LOCAL_SIZE", "4", NULL});
    is(&l, "mpirun", 5, 8, 1, 4);
    l = read_ok((const char *[]){"RANK", "3", "WORLD_SIZE", "4", "LOCAL_RANK", "1",
                                 "LOCAL_WORLD_SIZE", "2", "MASTER_ADDR", "a", "MASTER_PORT",
                                 "29500", NULL});
    is(&l, "torchrun", 3, 4, 1, 2);
    l = read_ok((const char *[]){"RANK", "1", "WORLD_SIZE", "2", NULL});
    is(&l, "torchrun", 1, 2, 1, 2);
    l = read_ok((const char *[]){"SLURM_PROCID", "6", "SLURM_STEP_NUM_TASKS", "8", "SLURM_LOCALID",
                                 "2", "SLURM_STEP_NUM_NODES", "2", "SLURM_STEP_TASKS_PER_NODE",
                                 "4(x2)", NULL});
    is(&l, "srun", 6, 8, 2, 4);
    l = read_ok((const char *[]){"SLURM_PROCID", "1", "SLURM_STEP_NUM_TASKS", "3", "SLURM_LOCALID",
                                 "1", "SLURM_STEP_NUM_NODES", "1", NULL});
    is(&l, "srun", 1, 3, 1, 3);
    l = read_ok((const char *[]){"PMI_RANK", "1", "PMI_SIZE", "2", "MPI_LOCALRANKID", "1",
                                 "MPI_LOCALNRANKS", "2", NULL});
    is(&l, "mpiexec", 1, 2, 1, 2);
}

/* The key is equal on the ranks of one start and differs between two starts. */
static void test_key_differs_between_starts(void **state)
{
    (void)state;
    const tt_launch a = read_ok((const char *[]){"RANK", "0", "WORLD_SIZE", "2", "MASTER_ADDR", "h",
                                                 "MASTER_PORT", "1", NULL}),
                    b = read_ok((const char *[]){"RANK", "1", "WORLD_SIZE", "2", "MASTER_ADDR", "h",
                                                 "MASTER_PORT", "1", NULL}),
                    c = read_ok((const char *[]){"RANK", "1", "WORLD_SIZE", "2", "MASTER_ADDR", "h",
                                                 "MASTER_PORT", "2", NULL});
    assert_string_equal(a.key, b.key);
    assert_string_not_equal(a.key, c.key);
}

static void refused(const char *const *v, const char *text)
{
    tt_launch l;
    tt_error err = {0};
    variables = v;
    assert_int_equal(tt_launch_read(get, &l, &err), TT_EINVAL);
    if (!strstr(err.text, text))
        fail_msg("\"%s\" is not in: %s", text, err.text);
}

static void test_contradictory_variables_are_errors(void **state)
{
    (void)state;
    refused((const char *[]){"RANK", "2", "WORLD_SIZE", "2", NULL}, "RANK=2 and WORLD_SIZE=2");
    refused((const char *[]){"RANK", "x", "WORLD_SIZE", "2", NULL}, "RANK=x");
    refused((const char *[]){"RANK", "-1", "WORLD_SIZE", "2", NULL}, "RANK=-1");
    refused((const char *[]){"RANK", "0", "WORLD_SIZE", "99999999999999999999", NULL}, "99999");
    refused((const char *[]){"RANK", "3", "WORLD_SIZE", "4", "LOCAL_WORLD_SIZE", "2", NULL},
            "LOCAL_RANK");
    refused((const char *[]){"RANK", "1", "WORLD_SIZE", "2", "LOCAL_RANK", "x", NULL},
            "LOCAL_RANK=x: expected a number");
    refused((const char *[]){"RANK", "1", "WORLD_SIZE", "2", "LOCAL_WORLD_SIZE", "2y", NULL},
            "LOCAL_WORLD_SIZE=2y: expected a number");
    refused((const char *[]){"SLURM_PROCID", "2", "SLURM_STEP_NUM_TASKS", "3", "SLURM_LOCALID", "0",
                             "SLURM_STEP_NUM_NODES", "2", "SLURM_STEP_TASKS_PER_NODE", "2,1", NULL},
            "equal number of tasks");
}

static void alone(const char *const *v, const char *text)
{
    tt_error err = {0};
    variables = v;
    const tt_status s = tt_launch_alone(get, &err);
    assert_int_equal(s, text ? TT_EINVAL : TT_OK);
    if (text && !strstr(err.text, text))
        fail_msg("\"%s\" is not in: %s", text, err.text);
}

static void test_a_world_without_a_rank_is_an_error(void **state)
{
    (void)state;
    alone((const char *[]){"WORLD_SIZE", "2", NULL}, "WORLD_SIZE=2 without RANK");
    alone((const char *[]){"WORLD_SIZE", "2", "LOCAL_RANK", "0", NULL}, "set RANK (0 to 1)");
    alone((const char *[]){"WORLD_SIZE", "1", NULL}, NULL);
    alone((const char *[]){"WORLD_SIZE", "many", NULL}, NULL);
    alone((const char *[]){"RANK", "1", NULL}, "RANK=1 without WORLD_SIZE");
    alone((const char *[]){"RANK", "0", NULL}, NULL);
    alone((const char *[]){NULL}, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_launcher_is_one_rank),
        cmocka_unit_test(test_a_world_without_a_rank_is_an_error),
        cmocka_unit_test(test_mpirun_torchrun_srun_and_mpiexec_are_known),
        cmocka_unit_test(test_key_differs_between_starts),
        cmocka_unit_test(test_contradictory_variables_are_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
