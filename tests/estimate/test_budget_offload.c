/* SPDX-License-Identifier: Apache-2.0 */
#include "estimate/budget_test.h"

/* activation_checkpoint.mode budget with offload auto on a device: keeping, computing again and offloading
 * are one choice. It is never slower than the choice without offload, nor than another mode with the
 * copies that hide, at the same memory. */

#define AUTO " " AC "offload auto"

static const char *const jobs[] = {
    "model.flavor 8B model.args.n_layers 6 training.local_batch_size 1 training.seq_len 8192 " P
    "data_parallel_shard_degree 8" BF16,
    "model.flavor 8B model.args.n_layers 7 training.local_batch_size 1 training.seq_len 3001 " P
    "tensor_parallel_degree 2",
    "model.flavor 70B model.args.n_layers 8 training.local_batch_size 8 training.seq_len 4096 " P
    "pipeline_parallel_degree 4 " P "tensor_parallel_degree 8" BF16,
    "model.flavor 8B model.args.n_layers 8 training.local_batch_size 8 training.seq_len 2048 " P
    "pipeline_parallel_degree 2 " P "pipeline_parallel_schedule ZBVZeroBubble" BF16,
    "spec qwen3 model.flavor 8B model.args.n_layers 5 training.local_batch_size 2 "
    "training.seq_len 4096 training.global_batch_size 8" BF16,
    /* as above with more layers: the long tier */
    "model.flavor 8B model.args.n_layers 12 training.local_batch_size 1 training.seq_len 8192 " P
    "data_parallel_shard_degree 8" BF16,
    "model.flavor 70B model.args.n_layers 16 training.local_batch_size 8 training.seq_len 4096 " P
    "pipeline_parallel_degree 4 " P "tensor_parallel_degree 8" BF16,
    "model.flavor 8B model.args.n_layers 16 training.local_batch_size 8 training.seq_len 2048 " P
    "pipeline_parallel_degree 2 " P "pipeline_parallel_schedule ZBVZeroBubble" BF16,
};

static size_t n_jobs(void)
{
    return is_long() ? TT_COUNT(jobs) : 5;
}

static planned plan_at(const char *job, double bytes, const char *more)
{
    char mode[240];
    budget_of(mode, sizeof mode, bytes);
    strncat(mode, more, sizeof mode - strlen(mode) - 1);
    const planned p = plan(job, mode, true);
    if (p.bytes > p.budget)
        fail_msg("%s %s: %.0f bytes, allowed are %.0f", job, mode, p.bytes, p.budget);
    return p;
}

static void test_every_budget_is_kept_and_offload_is_never_slower(void **state)
{
    static const double parts[] = {0, 0.1, 0.4, 0.8};
    double gained = 0;
    (void)state;
    for (size_t i = 0; i < n_jobs(); i++) {
        const planned none = plan(jobs[i], AC "mode none", true),
                      full = plan(jobs[i], AC "mode full", true);
        for (size_t k = 0; k < TT_COUNT(parts); k++) {
            if (!in_tier(i, k, TT_COUNT(parts)))
                continue;
            const double bytes = full.bytes + parts[k] * (none.bytes - full.bytes);
            const planned stays = plan_at(jobs[i], bytes, ""),
                          joint = plan_at(jobs[i], bytes, AUTO);
            if (joint.time > stays.time * (1 + 1e-9))
                fail_msg("%s, %.0f bytes: %.17g s, without offload %.17g", jobs[i], bytes,
                         joint.time, stays.time);
            assert_true(stays.host <= 0);
            gained = fmax(gained, stays.time / joint.time - 1);
        }
    }
    assert_true(gained > 0.05);
}

/* At the memory that another mode takes with the copies that hide. */
static void test_never_slower_than_a_mode_with_hidden_copies(void **state)
{
    static const char *const modes[] = {AC "mode none", AC "mode selective", AC "mode full"};
    (void)state;
    for (size_t i = 0; i < n_jobs(); i++)
        for (size_t k = 0; k < TT_COUNT(modes); k++) {
            if (!in_tier(i, k, TT_COUNT(modes)))
                continue;
            char mode[120];
            snprintf(mode, sizeof mode, "%s%s", modes[k], AUTO);
            const planned other = plan(jobs[i], mode, true),
                          joint = plan_at(jobs[i], other.bytes, AUTO);
            if (joint.time > other.time * (1 + 1e-9))
                fail_msg("%s %s: %.17g s, by the budget %.17g", jobs[i], mode, other.time,
                         joint.time);
        }
}

/* What leaves the device is no longer kept there, layer by layer, and it is what the program copies. */
static void test_an_offloaded_value_is_not_kept(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        const planned none = plan(jobs[i], AC "mode none", true),
                      hidden = plan(jobs[i], AC "mode none" AUTO, true),
                      joint = plan_at(jobs[i], (none.bytes + 3 * hidden.bytes) / 4, AUTO);
        double moved = 0;
        assert_int_equal(joint.n_blocks, none.n_blocks);
        for (int b = 0; b < joint.n_blocks; b++) {
            const tt_recomputed_block *x = &joint.blocks[b], *y = &none.blocks[b];
            moved += (double)x->moved;
            if (x->made == 0)
                assert_true(x->kept + x->moved == y->kept);
            else
                assert_true(x->kept + x->moved < y->kept);
            assert_true(x->moved == 0 || x->copy > 0);
        }
        assert_true(moved > 0 && fabs(moved - joint.host) < 1);
        assert_true(joint.bytes < none.bytes);
        assert_true(joint.blocks[joint.n_blocks - 1].moved == 0);
    }
}

/* Copies take the time of their bytes on the link, in each direction: no more is offloaded than fits into
 * the forward, and little over a link that is slow. */
static void test_copies_take_time(void **state)
{
    tt_machine slow = *tt_machine_find("h100");
    (void)state;
    for (int i = 0; i < 2; i++) {
        const planned none = plan(jobs[0], AC "mode none", true),
                      full = plan(jobs[0], AC "mode full", true),
                      joint = plan_at(jobs[0], 0.8 * full.bytes + 0.2 * none.bytes, AUTO);
        const double link =
            slow_link ? slow.host_bandwidth : tt_machine_find("h100")->host_bandwidth;
        assert_true(joint.host > 0);
        assert_true(joint.host / link < 0.5 * joint.time);
        assert_true(joint.late < 0.02 * joint.time);
        slow.host_bandwidth /= 16;
        slow_link = &slow;
    }
    slow_link = NULL;
}

/* If all fits, nothing is offloaded, and less memory never offloads for nothing. */
static void test_nothing_is_offloaded_if_all_fits(void **state)
{
    (void)state;
    for (size_t i = 0; i < n_jobs(); i++) {
        const planned none = plan(jobs[i], AC "mode none", true),
                      p = plan_at(jobs[i], 1.01 * none.bytes, AUTO),
                      stays = plan_at(jobs[i], 1.01 * none.bytes, "");
        assert_true(p.time <= none.time);
        if (p.time >= stays.time)
            assert_true(p.host <= 0);
    }
}

static void test_host_memory_is_bounded(void **state)
{
    static const char *const limits[] = {"0.25", "1", "2.5"};
    const planned none = plan(jobs[0], AC "mode none", true),
                  full = plan(jobs[0], AC "mode full", true);
    const double bytes = 0.8 * full.bytes + 0.2 * none.bytes;
    const planned stays = plan_at(jobs[0], bytes, ""), all = plan_at(jobs[0], bytes, AUTO);
    double before = stays.time;
    (void)state;
    for (size_t i = 0; i < TT_COUNT(limits); i++) {
        char more[100];
        snprintf(more, sizeof more, AUTO " " AC "offload_budget_gb %s", limits[i]);
        const planned p = plan_at(jobs[0], bytes, more);
        assert_true(p.host > 0 && p.host <= atof(limits[i]) * (1 << 30) + 1);
        assert_true(p.time <= before * 1.002 && p.time >= all.time);
        before = p.time;
    }
}

/* The error names the least without offload and the least with it, and both can be reached. */
static void test_the_least_with_and_without(void **state)
{
    static const char *const ways[] = {" " AC "offload none", AUTO, " " AC "offload all"};
    (void)state;
    for (size_t i = 0; i < 3; i++)
        for (size_t k = 0; k < TT_COUNT(ways); k++) {
            char mode[160];
            planned p;
            tt_error err = {0};
            if (!in_tier(i, k, TT_COUNT(ways)))
                continue;
            snprintf(mode, sizeof mode, AC "mode budget " AC "memory_gib 0.001%s", ways[k]);
            assert_int_not_equal(plan_try(jobs[i], mode, true, &p, &err), TT_OK);
            const char *without = strstr(err.text, "at least "),
                       *with = strstr(err.text, "GiB, and ");
            assert_non_null(without);
            assert_non_null(with);
            assert_non_null(strstr(with, "with activations in host memory"));
            const double a = (strtod(without + 9, NULL) + 0.001) * (1 << 30),
                         b = (strtod(with + 9, NULL) + 0.001) * (1 << 30);
            assert_true(b <= a);
            assert_true((strstr(err.text, "offload \"auto\"") != NULL) == (k == 0));
            plan_at(jobs[i], a, "");
            plan_at(jobs[i], b, AUTO);
        }
}

/* Where nothing is copied, auto changes nothing. */
static void test_no_device_no_change(void **state)
{
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        const planned p = plan(jobs[i], AC "mode budget " AC "memory_budget 0.3", false),
                      q = plan(jobs[i], AC "mode budget " AC "memory_budget 0.3" AUTO, false);
        assert_memory_equal(&p, &q, sizeof p);
    }
}

static void test_the_same_choice_every_time(void **state)
{
    (void)state;
    for (size_t i = is_long() ? 1 : 3; i < 4; i++) {
        const planned p = plan_anew(jobs[i], AC "mode budget " AC "memory_budget 0.2" AUTO, true),
                      q = plan_anew(jobs[i], AC "mode budget " AC "memory_budget 0.2" AUTO, true);
        assert_memory_equal(&p, &q, sizeof p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_budget_is_kept_and_offload_is_never_slower),
        cmocka_unit_test(test_never_slower_than_a_mode_with_hidden_copies),
        cmocka_unit_test(test_an_offloaded_value_is_not_kept),
        cmocka_unit_test(test_copies_take_time),
        cmocka_unit_test(test_nothing_is_offloaded_if_all_fits),
        cmocka_unit_test(test_host_memory_is_bounded),
        cmocka_unit_test(test_the_least_with_and_without),
        cmocka_unit_test(test_no_device_no_change),
        cmocka_unit_test(test_the_same_choice_every_time),
    };
    return cmocka_run_group_tests(tests, open_registry, free_plans);
}
