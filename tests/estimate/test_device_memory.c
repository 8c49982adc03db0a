/* SPDX-License-Identifier: Apache-2.0 */
#include "estimate/estimate.h"
#include "exec/steps.h"
#include "plugins/far/far.h"
#include "rank/device_memory.h"

/* `ttrun plan` counts a device's memory and pinned memory to the byte: what it says is what a run has
 * allocated on the test backend "far". */

static void open_far(job *j, const char *overrides)
{
    tt_override all[20] = {
        {"backend.name", "far"}
    };
    size_t n = 1;
    tt_error err = {0};
    memset(j, 0, sizeof *j);
    tt_log_setup(TT_ERROR, 0, 1, false);
    j->arena = tt_arena_new();
    all[n++] =
        (tt_override){"dataloader.path", tt_arena_printf(j->arena, "[\"%s\"]", job_data(j->arena))};
    char *words = tt_arena_str(j->arena, overrides), *save = NULL;
    for (char *w = strtok_r(words, " ", &save); w; w = strtok_r(NULL, " ", &save))
        all[n++] = (tt_override){w, strtok_r(NULL, " ", &save)};
    const char *dirs[] = {getenv("PLUGINS"),
                          tt_arena_printf(j->arena, "%s/tests/plugins/far", getenv("BUILD"))};
    const tt_registry_opts ro = {.dirs = dirs, .n_dirs = 2};
    const tt_setup_opts o = {.mode = TT_MODE_TRAIN, .compile = true, .data = true};
    tt_job *parsed;
    if (tt_job_load_text(j->arena, "test", job_text, strlen(job_text), all, n, &parsed, &err) !=
            TT_OK ||
        tt_registry_new(&ro, &j->registry, &err) != TT_OK ||
        tt_setup_make(&o, j->registry, parsed, j->arena, &j->setup, &err) != TT_OK)
        fail_msg("%s: %s", overrides, err.text);
}

typedef struct planned {
    int64_t device, pinned, peak, inputs;
    bool fits_unknown;
} planned;

static planned plan_of(job *j)
{
    tt_plan **plans;
    tt_str text = {0};
    tt_error err = {0};
    const tt_setup *s = &j->setup;
    const tt_json *o;
    if (tt_setup_plan_all(s, j->arena, &plans, &err) != TT_OK ||
        tt_plan_report(s, plans, s->pipeline_ranks, NULL, true, &text, &err) != TT_OK)
        fail_msg("%s", err.text);
    const char *copy = tt_arena_strn(j->arena, tt_str_get(&text), text.n);
    if (tt_json_parse(j->arena, "plan", copy, text.n, &o, &err) != TT_OK)
        fail_msg("%s", err.text);
    tt_str_free(&text);
    const tt_json *b = tt_json_get(o, "bytes_per_rank");
    return (planned){tt_json_get(b, "device")->integer, tt_json_get(b, "pinned")->integer,
                     tt_json_get(b, "peak")->integer, tt_json_get(b, "inputs")->integer,
                     tt_json_get(o, "fits")->type == TT_JSON_NULL};
}

static void compare(const char *overrides, bool with_eval)
{
    const tt_dist d = {.world = 1};
    tt_error err = {0};
    uint64_t left = 0, all = 0;
    tt_rank r;
    job j;
    open_far(&j, overrides);
    const planned p = plan_of(&j);
    steps s = {.setup = &j.setup};
    if (tt_rank_open(&j.setup, &d, with_eval, &r, &err) != TT_OK ||
        tt_rank_init_params(&r, &err) != TT_OK || steps_one(&s, &r, 0, 0, &err) != TT_OK)
        fail_msg("%s: %s", overrides, err.text);
    assert_int_equal(tt_device_memory(&r.device, &left, &all, &err), TT_OK);
    const far_rank *f = r.backend;
    if (p.device != (int64_t)(all - left) || p.pinned != (int64_t)f->pinned)
        fail_msg("%s: planned %lld and %lld pinned, allocated %lld and %lld", overrides,
                 (long long)p.device, (long long)p.pinned, (long long)(all - left),
                 (long long)f->pinned);
    assert_true(p.peak == p.device && p.inputs > 0 && p.fits_unknown);
    tt_rank_close(&r);
    job_close(&j);
}

static void test_plan_is_what_a_run_allocates(void **state)
{
    (void)state;
    compare("", false);
    compare("training.global_batch_size 12 activation_checkpoint.mode full", false);
    compare("training.mixed_precision_param bfloat16 training.seq_len 19", false);
    compare("training.enable_cpu_offload true", false);
    compare("activation_checkpoint.offload all", false);
    compare("activation_checkpoint.offload all activation_checkpoint.mode full "
            "training.enable_cpu_offload true training.global_batch_size 12",
            false);
    compare("validation.enable true validation.dataloader {\"path\":[\"/nowhere.txt\"]}", true);
}

static void test_the_copy_of_a_save_is_pinned(void **state)
{
    job j;
    (void)state;
    open_far(&j, "");
    const planned without = plan_of(&j);
    job_close(&j);
    open_far(&j, "checkpoint.enable true checkpoint.async_mode async");
    const planned with = plan_of(&j);
    tt_plan *p;
    tt_error err = {0};
    assert_int_equal(tt_setup_plan(&j.setup, j.setup.graph, j.setup.schedule, 0, j.arena, &p, &err),
                     TT_OK);
    assert_true(with.device == without.device);
    assert_true(with.pinned - without.pinned == p->state_bytes_by_kind[TT_STATE_PARAM] +
                                                    p->state_bytes_by_kind[TT_STATE_OPTIMIZER]);
    job_close(&j);
}

/* Optimizer states leave the device's memory for pinned memory; what passes through at a time finds room
 * in the work memory of the micro-batches. */
static void test_offloaded_states_are_pinned(void **state)
{
    job j;
    tt_plan *p;
    tt_error err = {0};
    (void)state;
    open_far(&j, "");
    const planned without = plan_of(&j);
    assert_int_equal(tt_setup_plan(&j.setup, j.setup.graph, j.setup.schedule, 0, j.arena, &p, &err),
                     TT_OK);
    const int64_t states = p->state_bytes_by_kind[TT_STATE_OPTIMIZER],
                  work = p->bytes[TT_SPACE_WORK];
    job_close(&j);
    open_far(&j, "training.enable_cpu_offload true");
    const planned with = plan_of(&j);
    assert_int_equal(tt_setup_plan(&j.setup, j.setup.graph, j.setup.schedule, 0, j.arena, &p, &err),
                     TT_OK);
    assert_int_equal(p->bytes[TT_SPACE_WORK], work);
    assert_int_equal(p->state_bytes_by_kind[TT_STATE_OPTIMIZER], 0);
    assert_true(p->bytes[TT_SPACE_PINNED] >= states);
    assert_int_equal(with.pinned - without.pinned, p->bytes[TT_SPACE_PINNED]);
    assert_int_equal(without.device - with.device, states);
    job_close(&j);
}

/* Activations leave work memory for pinned memory: all that their layers keep, but for those of the two
 * layers that are on their way at a time, and the last one's. Fewer under a budget, oldest first. */
static void test_offloaded_activations_are_pinned(void **state)
{
    static const char *const jobs[] = {
        "model.args.n_layers 8",
        "model.args.n_layers 8 "
        "activation_checkpoint.offload_budget_gb 0.001",
        "model.args.n_layers 8 activation_checkpoint.mode selective"};
    (void)state;
    for (size_t i = 0; i < TT_COUNT(jobs); i++) {
        job j;
        tt_plan *p;
        tt_error err = {0};
        open_far(&j, jobs[i]);
        const planned without = plan_of(&j);
        job_close(&j);
        char text[200];
        snprintf(text, sizeof text, "%s activation_checkpoint.offload all", jobs[i]);
        open_far(&j, text);
        const planned with = plan_of(&j);
        assert_int_equal(
            tt_setup_plan(&j.setup, j.setup.graph, j.setup.schedule, 0, j.arena, &p, &err), TT_OK);
        const tt_offloaded f = tt_program_offloaded(p->program);
        assert_true(f.values > 0 && f.bytes == p->bytes[TT_SPACE_OFFLOADED]);
        assert_int_equal(with.pinned - without.pinned, f.bytes);
        if (i == 1)
            assert_true(f.bytes <= (1 << 30) / 1000 + 1 && f.bytes > (1 << 30) / 1200);
        else /* of 7 layers, at most 2 are on the device when the backward begins */
            assert_true(without.device - with.device >= f.bytes * 4 / 7);
        job_close(&j);
    }
}

/* Not all copies hide behind these small layers; those that "auto" chooses do. */
static void test_auto_offloads_what_hides(void **state)
{
    static const char *const machines[] = {"h100", "h200"};
    (void)state;
    for (size_t i = 0; i < TT_COUNT(machines); i++)
        for (int all = 0; all < 2; all++) {
            job j;
            tt_plan *p;
            tt_error err = {0};
            char text[400];
            tt_step_time t;
            snprintf(text, sizeof text,
                     "model.args.dim 2048 model.args.hidden_dim 4096 model.args.n_heads 16 "
                     "model.args.n_kv_heads 4 model.args.n_layers 6 training.seq_len 512 "
                     "training.mixed_precision_param bfloat16 "
                     "activation_checkpoint.offload_hardware %s activation_checkpoint.offload %s",
                     machines[i], all ? "all" : "auto");
            open_far(&j, text);
            assert_int_equal(
                tt_setup_plan(&j.setup, j.setup.graph, j.setup.schedule, 0, j.arena, &p, &err),
                TT_OK);
            tt_step_time_of(&j.setup, tt_machine_find(machines[i]), &t);
            assert_true(tt_program_offloaded(p->program).values > 0 && t.copies > 0);
            if (all)
                assert_true(t.copies_exposed > 0.1 * t.copies);
            else
                assert_true(t.copies_exposed < 1e-3 * t.copies);
            job_close(&j);
        }
}

/* Mode budget with offload auto at a budget that recomputing alone does not reach: what a run then
 * allocates on the device is what is planned, and no more than the budget. */
static void test_a_budget_that_needs_offload_is_kept(void **state)
{
    static const char *const jobs[] = {"model.args.n_layers 10",
                                       "model.args.n_layers 9 training.global_batch_size 12"};
    (void)state;
    for (size_t i = 0; i < TT_COUNT(jobs); i++) {
        double bytes[2];
        for (int all = 0; all < 2; all++) {
            job j;
            char text[200];
            snprintf(text, sizeof text, "%s activation_checkpoint.mode full%s", jobs[i],
                     all ? " activation_checkpoint.offload all" : "");
            open_far(&j, text);
            bytes[all] = (double)plan_of(&j).device;
            job_close(&j);
        }
        assert_true(bytes[1] < bytes[0]);
        const double budget = 0.3 * bytes[0] + 0.7 * bytes[1];
        char text[300];
        job j;
        snprintf(text, sizeof text,
                 "%s activation_checkpoint.mode budget activation_checkpoint.memory_gib %.17g "
                 "activation_checkpoint.offload auto",
                 jobs[i], budget / (1 << 30));
        open_far(&j, text);
        const planned p = plan_of(&j);
        job_close(&j);
        assert_true((double)p.device <= budget);
        compare(text, false);
    }
}

static void test_a_device_that_is_too_small(void **state)
{
    const tt_dist d = {.world = 1};
    tt_error err = {0};
    tt_rank r;
    job j;
    (void)state;
    open_far(&j, "backend.memory_mib 3");
    assert_true(plan_of(&j).device > 3 << 20);
    assert_int_not_equal(tt_rank_open(&j.setup, &d, false, &r, &err), TT_OK);
    if (!strstr(err.text, "of the device's memory") || !strstr(err.text, "training"))
        fail_msg("%s", err.text);
    job_close(&j);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plan_is_what_a_run_allocates),
        cmocka_unit_test(test_the_copy_of_a_save_is_pinned),
        cmocka_unit_test(test_offloaded_states_are_pinned),
        cmocka_unit_test(test_offloaded_activations_are_pinned),
        cmocka_unit_test(test_auto_offloads_what_hides),
        cmocka_unit_test(test_a_budget_that_needs_offload_is_kept),
        cmocka_unit_test(test_a_device_that_is_too_small),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
