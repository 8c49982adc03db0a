/* SPDX-License-Identifier: Apache-2.0 */
#include "estimate/budget_test.h"

/* activation_checkpoint.mode budget by the plan: it takes no more memory than it is allowed, and is never
 * slower than full or selective with as much memory, over models, meshes, backends and budgets. */

/* A number "few/many" is few, in the long tier many. */
static const char *const jobs[] = {
    "model.flavor debugmodel training.local_batch_size 2 training.seq_len 128",
    "model.flavor debugmodel model.args.n_layers 1 training.local_batch_size 1 training.seq_len 33",
    "model.flavor debugmodel model.args.n_layers 13/24 training.local_batch_size 4 "
    "training.seq_len 256" BF16,
    "spec gpt2 model.args.n_layers 5 training.local_batch_size 2 training.seq_len 64",
    "model.flavor 1B model.args.n_layers 6/16 training.local_batch_size 1 training.seq_len 512 " P
    "data_parallel_shard_degree 4" BF16,
    "model.flavor debugmodel model.args.n_layers 9 training.local_batch_size 2 training.seq_len "
    "256 " P "tensor_parallel_degree 2",
    "model.flavor debugmodel model.args.n_layers 12 training.local_batch_size 8 training.seq_len "
    "128 " P "pipeline_parallel_degree 4",
    "model.flavor debugmodel model.args.n_layers 12 training.local_batch_size 8 training.seq_len "
    "128 " P "pipeline_parallel_degree 2 " P "pipeline_parallel_schedule ZBVZeroBubble",
    "model.flavor debugmodel training.local_batch_size 2 training.seq_len 256 " P
    "context_parallel_degree 2" BF16,
    "model.flavor 8B model.args.n_layers 5/8 training.local_batch_size 2 training.seq_len 4096 " P
    "data_parallel_shard_degree 8 " P "tensor_parallel_degree 2" BF16,
    "model.flavor 70B model.args.n_layers 8/16 training.local_batch_size 8 training.seq_len 4096 " P
    "pipeline_parallel_degree 4 " P "tensor_parallel_degree 8" BF16,
};

static const char *job_at(size_t i)
{
    static char text[TT_COUNT(jobs)][400];
    const char *slash = strchr(jobs[i], '/'), *digits = "0123456789", *few = slash;
    if (!slash)
        return jobs[i];
    while (strchr(digits, few[-1]))
        few--;
    const size_t n_many = strspn(slash + 1, digits);
    snprintf(text[i], sizeof text[i], "%.*s%.*s%s", (int)(few - jobs[i]), jobs[i],
             (int)(is_long() ? n_many : (size_t)(slash - few)), is_long() ? slash + 1 : few,
             slash + 1 + n_many);
    return text[i];
}

/* Plans are what the choice costs: about as many for many layers on many ranks of a pipeline as for two small layers,
 * which have far fewer levels. */
static void assert_few_plans(const planned *p)
{
    print_message("%d plans\n", p->n_plans);
    assert_in_range(p->n_plans, 3, 30);
}

static void test_never_worse_than_full_or_selective(void **state)
{
    static const char *const others[] = {AC "mode full", AC "mode selective",
                                         AC "mode selective " AC "selective_ac_option 2"};
    (void)state;
    for (size_t i = 0; i < TT_COUNT(jobs); i++)
        for (int device = 0; device < 2; device++)
            for (size_t k = 0; k < TT_COUNT(others); k++) {
                char mode[120];
                if (!in_tier(i + (size_t)device, k, TT_COUNT(others)))
                    continue;
                const planned other = plan(job_at(i), others[k], device);
                budget_of(mode, sizeof mode, other.bytes);
                const planned ours = plan(job_at(i), mode, device);
                assert_few_plans(&ours);
                if (ours.bytes > other.bytes || ours.time > other.time * (1 + 1e-9))
                    fail_msg("%s, %s, %s: %.0f bytes and time %.17g, budget %.0f and %.17g",
                             job_at(i), device ? "cuda" : "cpu", others[k], other.bytes, other.time,
                             ours.bytes, ours.time);
            }
}

/* A model, mesh and batch of small random sizes, odd ones too. */
static void random_job(char *text, size_t n, uint64_t seed)
{
    static const char *const meshes[] = {
        "",
        " " P "data_parallel_shard_degree 2",
        " " P "tensor_parallel_degree 2",
        " " P "context_parallel_degree 2",
        " " P "pipeline_parallel_degree 2 training.global_batch_size 12",
        " " P "data_parallel_replicate_degree 2 " P "tensor_parallel_degree 2" BF16,
        " " P "pipeline_parallel_degree 2 " P "tensor_parallel_degree 2 "
        "training.global_batch_size 12",
        " training.mixed_precision_param float16 " P "data_parallel_shard_degree 3",
    };
    int64_t r[8];
    for (size_t i = 0; i < TT_COUNT(r); i++)
        r[i] = (int64_t)(tt_hash64(&i, sizeof i, seed) >> 8 & 0xffff);
    const int64_t heads = 2 * (1 + r[0] % 3), dim = heads * 8 * (1 + r[1] % 3);
    snprintf(text, n,
             "spec llama3 model.args.dim %d model.args.n_heads %d model.args.n_kv_heads %d "
             "model.args.hidden_dim %d model.args.vocab_size %d model.args.n_layers %d "
             "training.local_batch_size 6 training.seq_len %d%s",
             (int)dim, (int)heads, (int)(r[2] % 2 ? heads : 2), (int)(8 + r[3] % 200),
             (int)(263 + r[4] % 300), (int)(2 + r[5] % 7), (int)(4 * (3 + r[6] % 30)),
             meshes[seed % TT_COUNT(meshes)]);
}

#define RANDOM_JOBS 16

/* At the memory of each other mode, no slower than it; with more than is needed, as mode none. */
static void test_random_jobs_are_never_worse(void **state)
{
    static const char *const others[] = {AC "mode full", AC "mode selective", AC "mode none"};
    (void)state;
    for (uint64_t i = 0; i < RANDOM_JOBS; i++) {
        char job[700], mode[120];
        random_job(job, sizeof job, i);
        for (size_t k = 0; k < TT_COUNT(others); k++) {
            if (!in_tier(i, k, TT_COUNT(others)))
                continue;
            const planned other = plan(job, others[k], false);
            budget_of(mode, sizeof mode, other.bytes);
            const planned ours = plan(job, mode, false);
            if (ours.bytes > other.bytes || ours.time > other.time * (1 + 1e-9))
                fail_msg("%s, %s: %.0f bytes and time %.17g, budget %.0f and %.17g", job, others[k],
                         other.bytes, other.time, ours.bytes, ours.time);
        }
        const planned none = plan(job, AC "mode none", false);
        budget_of(mode, sizeof mode, 1e4 * none.bytes);
        const planned rich = plan(job, mode, false);
        if (rich.time > none.time || rich.bytes > none.bytes * (1 + 1e-9))
            fail_msg("%s: with 10000 times the memory %.17g, mode none %.17g", job, rich.time,
                     none.time);
    }
}

/* More memory is never slower, every budget is kept, and the ends are those of none and full. */
static void test_every_budget_is_kept(void **state)
{
    static const double budgets[] = {0, 0.1, 0.25, 0.5, 0.75, 0.9, 1};
    (void)state;
    for (size_t i = 0; i < TT_COUNT(jobs) - 2; i++) {
        const planned none = plan(job_at(i), AC "mode none", false),
                      full = plan(job_at(i), AC "mode full", false);
        double before = (double)INFINITY;
        for (size_t k = 0; k < TT_COUNT(budgets); k++) {
            char mode[120];
            if (k != 0 && k + 1 != TT_COUNT(budgets) && !in_tier(i, k, 3))
                continue;
            snprintf(mode, sizeof mode, AC "mode budget " AC "memory_budget %g", budgets[k]);
            const planned p = plan(job_at(i), mode, false);
            assert_true(p.bytes <= p.budget);
            if (p.time > before * 1.02) /* levels that a search does not try may be faster */
                fail_msg("%s %s: %.17g, with less memory %.17g", job_at(i), mode, p.time, before);
            before = p.time;
            if (!k)
                assert_true(p.bytes <= fmax(full.bytes, none.bytes));
        }
        assert_true(before <= none.time);
    }
}

/* Layers that are alike are chosen alike, and the oldest compute most again. */
static void test_oldest_layers_first(void **state)
{
    (void)state;
    const planned p = plan(job_at(2), AC "mode budget " AC "memory_budget 0.4", false);
    int changes = 0;
    assert_int_equal(p.n_blocks, is_long() ? 24 : 13);
    for (int i = 1; i < p.n_blocks - 1;
         i++) { /* the last layer's output is the head's, so it may differ */
        assert_true(p.blocks[i].kept >= p.blocks[i - 1].kept);
        changes += p.blocks[i].kept != p.blocks[i - 1].kept;
    }
    assert_true(changes <= 3);
    assert_true(p.blocks[0].flops > 0);
}

static void test_the_same_choice_every_time(void **state)
{
    (void)state;
    for (size_t i = 5; i < 8; i++) {
        const planned p = plan_anew(job_at(i), AC "mode budget", false),
                      q = plan_anew(job_at(i), AC "mode budget", false);
        assert_memory_equal(&p, &q, sizeof p);
    }
}

static void test_errors_say_what_to_do(void **state)
{
    static const struct {
        const char *mode, *says;
    } cases[] = {
        {AC "mode budget " AC "memory_gib 0.001",                     "training takes at least 0.1"                 },
        {AC "mode budget " AC "memory_gib 0.001",                     "lower training.local_batch_size or seq_len"  },
        {AC "mode budget " AC "memory_gib 1 " AC "memory_budget 0.3", "set one of them"                             },
        {AC "mode full " AC "memory_gib 1",                           "activation_checkpoint.mode is not \"budget\""},
        {AC "mode budget " AC "memory_budget 1.1",                    "memory_budget"                               },
        {AC "mode selective " AC "save_ops [\"liner\"]",              "there is no op \"liner\""                    },
        {AC "mode full " AC "save_ops [\"linear\"]",                  "mode is not \"selective\""                   },
        {AC "mode selective " AC "selective_ac_option 0",             "expected \"op\" or a number"                 },
        {AC "mode selective " AC "selective_ac_option 2x",            "got \"2x\""                                  },
    };
    (void)state;
    for (size_t i = 0; i < TT_COUNT(cases); i++) {
        planned p;
        tt_error err = {0};
        if (plan_try(job_at(0), cases[i].mode, false, &p, &err) == TT_OK)
            fail_msg("%s is accepted", cases[i].mode);
        if (!strstr(err.text, cases[i].says))
            fail_msg("%s: %s", cases[i].mode, err.text);
    }
}

/* The least that the error names can be reached. */
static void test_the_least_can_be_reached(void **state)
{
    (void)state;
    planned p;
    tt_error err = {0};
    assert_int_not_equal(
        plan_try(job_at(6), AC "mode budget " AC "memory_gib 0.001", false, &p, &err), TT_OK);
    const char *at = strstr(err.text, "at least ");
    assert_non_null(at);
    char mode[120];
    budget_of(mode, sizeof mode, (strtod(at + 9, NULL) + 0.001) * (1 << 30));
    p = plan(job_at(6), mode, false);
    assert_true(p.bytes <= p.budget);
}

#define LARGEST(layers, ranks)                                                                     \
    "model.flavor 405B training.seq_len 8192 training.local_batch_size 16 " P                      \
    "tensor_parallel_degree 8 " P "data_parallel_shard_degree 4 model.args.n_layers " layers " " P \
    "pipeline_parallel_degree " ranks BF16

static void test_largest_models_choose_in_seconds(void **state)
{
    (void)state;
    const planned p =
        plan(is_long() ? LARGEST("126", "16") : LARGEST("40", "8"), AC "mode budget", true);
    assert_few_plans(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_never_worse_than_full_or_selective),
        cmocka_unit_test(test_random_jobs_are_never_worse),
        cmocka_unit_test(test_every_budget_is_kept),
        cmocka_unit_test(test_oldest_layers_first),
        cmocka_unit_test(test_the_same_choice_every_time),
        cmocka_unit_test(test_errors_say_what_to_do),
        cmocka_unit_test(test_the_least_can_be_reached),
        cmocka_unit_test(test_largest_models_choose_in_seconds),
    };
    return cmocka_run_group_tests(tests, open_registry, free_plans);
}
