/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "launch/line.h"
#include "launch/nodes.h"
#include "launch/supervise.h"
#include "launch/supervise_copies.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

/* When node 0 of --nnodes MIN:MAX tells ranks to save and stop, so that a larger mesh begins: once after nodes have come,
 * and for no other reason. */

static int n_here, n_came,
    n_fits; /* nodes, those that have come since it was asked, searches for a mesh */

static int came(tt_machines *n, char *who, size_t size)
{
    const int k = n_came;
    (void)n;
    if (k)
        snprintf(who, size, "node 2 has come");
    n_came = 0;
    return k;
}

static int here(const tt_machines *n)
{
    (void)n;
    return n_here;
}

static bool divide(const tt_machines *n, int world, int *nodes, int *local)
{
    (void)n;
    *nodes = world;
    *local = 1;
    return true;
}

/* Two, or four, or none. */
static tt_status refit(const tt_refit_job *j, int least, int most, int largest, tt_refit *out,
                       tt_error *err)
{
    (void)j;
    (void)least;
    (void)largest;
    n_fits++;
    *out = (tt_refit){.world = most >= 4 ? 4 : 2};
    return most < 2 ? TT_FAIL(err, TT_EINVAL, "no mesh") : TT_OK;
}

#define tt_nodes_came came
#define tt_nodes_here here
#define tt_nodes_divide divide
#define tt_refit_mesh refit
#include "../../launch/supervise.c"

typedef struct look {
    int comes;       /* nodes, before it */
    int64_t step;    /* the newest that is done; the ranks go on from step 10 */
    bool leaves;     /* the ranks are told to */
    int n_fits;      /* so many meshes have been looked for until then */
    const char *why; /* what the next start is said to be for */
} look;

static void check(int world, int nodes, bool saves, const look *looks, int n)
{
    const tt_nodes_opts no = {.nproc = 1};
    const tt_supervise_opts o = {.n = 4, .least = 2, .saves = saves, .nodes = &no};
    supervisor s = {.o = &o, .most = 3, .mesh = {.world = world}, .from = 10};
    n_here = nodes;
    n_came = n_fits = 0;
    for (int i = 0; i < n; i++) {
        n_came = looks[i].comes;
        n_here += looks[i].comes;
        s.from = looks[i].step < 0 ? -1 : 10;
        s.step = looks[i].step;
        assert_int_equal(must_leave(&s), looks[i].leaves);
        assert_int_equal(s.leaving, looks[i].leaves);
        assert_int_equal(n_fits, looks[i].n_fits);
        assert_string_equal(s.came, looks[i].why);
    }
}

static void test_ranks_leave_when_nodes_have_come(void **state)
{
    static const char two[] = "node 2 has come";
    (void)state;
    /* nobody comes, though there is room: a rank of the larger mesh has failed before its first step */
    check(2, 4, true,
          (look[]){
              {0, 11, false, 0, ""},
              {0, 12, false, 0, ""}
    },
          2);
    /* enough for a larger mesh */
    check(2, 3, true,
          (look[]){
              {0, 11, false, 0, "" },
              {1, 12, true,  1, two}
    },
          2);
    /* before the ranks have begun, and before their first step; the news wait */
    check(2, 3, true,
          (look[]){
              {1, -1, false, 0, two},
              {0, 10, false, 0, two},
              {0, 11, true,  1, two}
    },
          3);
    /* too few for a larger mesh, which is not looked for again until others come */
    check(2, 2, true,
          (look[]){
              {1, 11, false, 1, two},
              {0, 12, false, 1, two},
              {1, 13, true,  2, two}
    },
          3);
    /* the mesh that runs is the largest already */
    check(4, 4, true,
          (look[]){
              {1, 11, false, 1, two},
              {0, 12, false, 1, two}
    },
          2);
    /* what is done would be lost */
    check(2, 3, false,
          (look[]){
              {1, 11, false, 0, two},
              {0, 12, false, 0, two}
    },
          2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ranks_leave_when_nodes_have_come),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
