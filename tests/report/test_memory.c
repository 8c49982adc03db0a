/* SPDX-License-Identifier: Apache-2.0 */
#include "exec/job.h"
#include "report/report.h"

/* The memory line of a step agrees with the plan: never above it, and at its peak near it (values
 * do not fill the space without gaps); what the backward needs grows in the forward and is gone at
 * its end. */

static double total(const tt_memory_line *m, size_t i)
{
    return m->params + m->optimizer + m->gradients + m->other + m->points[i].activations +
           m->points[i].workspace;
}

static void check_mesh(const char *overrides)
{
    job j;
    job_open(&j, overrides);
    j.setup.helpers = 0; /* their scratch memory depends on the machine's cores */
    for (int pp = 0; pp < j.setup.pipeline_ranks; pp++) {
        tt_plan *p;
        tt_error err = {0};
        if (tt_setup_plan(&j.setup, j.setup.graph, j.setup.schedule, pp, j.arena, &p, &err))
            fail_msg("%s", err.text);
        const tt_memory_line *m = tt_report_memory(p, j.arena);
        double peak = 0, kept = 0, before = 0;
        for (size_t i = 0; i < m->n; i++) {
            peak = TT_MAXV(peak, total(m, i));
            kept = TT_MAXV(kept, m->points[i].activations);
            if (m->points[i].activations < 0 || m->points[i].workspace < 0)
                fail_msg("%s: less than nothing at %zu", overrides, i);
            if (!strcmp(m->points[i].phase, "epilogue") && m->points[i].activations > 0)
                fail_msg("%s: activations outlive the backward", overrides);
        }
        /* a pipeline holds slots of up to three classes, and not all of them at once */
        const double near = j.setup.n_stages > 1 ? 0.7 : 0.85;
        if (m->n < 100 || peak > m->planned || peak < near * m->planned)
            fail_msg("%s: %zu points, peak %.0f of %.0f planned", overrides, m->n, peak,
                     m->planned);
        for (size_t i = 0; i < m->n && !strcmp(m->points[i].phase, "forward"); i++) {
            if (pp == 0 && m->points[i].activations < before)
                fail_msg("%s: activations shrink in the first forward", overrides);
            before = m->points[i].activations;
        }
        if (kept < 0.02 * peak)
            fail_msg("%s: %.0f bytes of activations", overrides, kept);
    }
    job_close(&j);
}

static void test_memory_agrees_with_the_plan_on_every_mesh(void **state)
{
    (void)state;
    for (size_t i = 0; i < TT_COUNT(job_meshes); i++)
        check_mesh(job_meshes[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_memory_agrees_with_the_plan_on_every_mesh)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
