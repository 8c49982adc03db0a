/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "estimate/search.h"
#include "folder_test.h"
#include "heap.h"
#include "tier.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

/* plan --search finds the mesh that planning every mesh in full finds, although it plans only a few
 * in full. */

static tt_registry *registry;
static char path[TEST_FOLDER + 16];

#define MODEL                                                                                      \
    "{\"spec\": \"llama3\", \"model\": {\"flavor\": \"debugmodel\", \"args\": {\"n_layers\": %d, " \
    "\"dim\": 512, \"n_heads\": 8, \"n_kv_heads\": 4, \"vocab_size\": 4000}}, "                    \
    "\"dataloader\": {\"path\": [\"none.txt\"]}, "

static int layers; /* of the model; 0: as many as the tier has */

static tt_status search(const char *job, int world, double gib, int best, bool all, tt_arena *a,
                        tt_search *out, tt_error *err)
{
    const char *text = tt_arena_printf(a, MODEL "%s}", layers ? layers : is_long() ? 16 : 8, job);
    assert_int_equal(tt_write_file_atomic(path, text, strlen(text), err), TT_OK);
    const tt_search_opts o = {.job = path,
                              .registry = registry,
                              .world = world,
                              .machine = tt_machine_find("h100"),
                              .memory = gib * (1 << 30),
                              .best = best,
                              .all = all};
    return tt_search_meshes(&o, a, out, err);
}

static tt_search found(const char *job, int world, double gib, int best, bool all, tt_arena *a)
{
    tt_search s;
    tt_error err = {0};
    if (search(job, world, gib, best, all, a, &s, &err) != TT_OK)
        fail_msg("%s", err.text);
    return s;
}

#define BATCH "\"training\": {\"local_batch_size\": 2, \"global_batch_size\": 32, \"seq_len\": 512}"

static void test_search_finds_what_planning_every_mesh_finds(void **state)
{
    static const struct {
        const char *job;
        int world;
        double gib;
    } cases[] = {
        {BATCH,                                                                          4,  80 },
        {BATCH,                                                                          8,  0.9},
        {BATCH ", \"activation_checkpoint\": {\"mode\": \"full\"}",                      12, 0.4},
        {BATCH ", \"parallelism\": {\"pipeline_parallel_schedule\": \"ZBVZeroBubble\"}", 8,  2  },
        {BATCH ", \"parallelism\": {\"fsdp_reshard_after_forward\": \"never\"}",         8,  1  },
    };
    int few = 0;
    (void)state;
    for (size_t i = 0; i < TT_COUNT(cases); i++) {
        if (!in_tier(i, 0, 2))
            continue;
        tt_arena *a = tt_arena_new();
        const double gib = is_long() ? cases[i].gib : 0.6 * cases[i].gib; /* half the layers */
        const tt_search quick = found(cases[i].job, cases[i].world, gib, 4, false, a),
                        all = found(cases[i].job, cases[i].world, gib, 4, true, a);
        print_message("    %d ranks: %d meshes, %d refused, %d too big, %d planned in full\n",
                      cases[i].world, quick.meshes, quick.refused, all.too_big, quick.planned);
        assert_int_equal(quick.meshes, all.meshes);
        assert_int_equal(quick.refused, all.refused);
        assert_int_equal(all.planned, all.meshes - all.refused);
        assert_int_equal(quick.n, all.n);
        assert_int_equal(quick.n, 4);
        few += quick.planned < all.planned;
        for (int k = 0; k < all.n; k++) {
            const tt_found *x = &quick.best[k], *y = &all.best[k];
            assert_memory_equal(&x->degrees, &y->degrees, sizeof x->degrees);
            assert_true(x->time.step == y->time.step && x->bytes == y->bytes);
            const tt_mesh_degrees *d = &x->degrees;
            assert_int_equal(d->pp * d->dp_replicate * d->dp_shard * d->cp * d->tp, cases[i].world);
            assert_true(x->bytes <= gib * (1 << 30));
            assert_true(k == 0 || x->time.step >= quick.best[k - 1].time.step);
        }
        tt_arena_free(a);
    }
    assert_true(few >= 3); /* the estimates spare something */
}

static void test_search_leaves_out_meshes_above_the_memory_limit(void **state)
{
    tt_arena *a = tt_arena_new();
    (void)state;
    const tt_search wide = found(BATCH, 8, 80, 1000, true, a);
    assert_int_equal(wide.too_big, 0);
    assert_int_equal(wide.n, wide.meshes - wide.refused);
    double least = wide.best[0].bytes, most = least;
    for (int i = 0; i < wide.n; i++) {
        least = TT_MIN(least, wide.best[i].bytes);
        most = TT_MAXV(most, wide.best[i].bytes);
    }
    const double limit = (least + most) / 2;
    int fit = 0;
    for (int i = 0; i < wide.n; i++)
        fit += wide.best[i].bytes <= limit;
    const tt_search tight = found(BATCH, 8, limit / (1 << 30), 1000, false, a);
    assert_true(fit > 0 && fit < wide.n);
    assert_int_equal(tight.n, fit);
    const tt_search none = found(BATCH, 8, 0.5 * least / (1 << 30), 4, false, a);
    assert_int_equal(none.n, 0);
    assert_true(none.smallest.bytes > 0.8 * least && none.smallest.bytes < 1.2 * least);
    tt_arena_free(a);
}

static void test_search_keeps_degrees_that_the_job_sets(void **state)
{
    tt_arena *a = tt_arena_new();
    tt_search s;
    tt_error err = {0};
    (void)state;
    s = found(BATCH ", \"parallelism\": {\"tensor_parallel_degree\": 2, "
                    "\"context_parallel_degree\": 1, \"data_parallel_shard_degree\": -1}",
              8, 80, 100, true, a);
    assert_int_equal(s.meshes, 6); /* pp × dp_replicate × dp_shard = 4 */
    for (int i = 0; i < s.n; i++)
        assert_true(s.best[i].degrees.tp == 2 && s.best[i].degrees.cp == 1);
    assert_int_equal(search(BATCH ", \"parallelism\": {\"tensor_parallel_degree\": 3}", 8, 80, 1,
                            false, a, &s, &err),
                     TT_EINVAL);
    assert_non_null(strstr(err.text, "world of 8"));
    err = (tt_error){0}; /* 8 heads: wrong on every mesh */
    assert_int_equal(search(BATCH ", \"parallelism\": {\"tensor_parallel_degree\": 16}", 16, 80, 1,
                            false, a, &s, &err),
                     TT_EINVAL);
    assert_non_null(strstr(err.text, "no mesh of 16 ranks"));
    assert_non_null(strstr(err.text, "8 heads do not divide over the 16 ranks of tp"));
    tt_arena_free(a);
}

/* ---- estimates ---- */

#define ONE_MESH                                                                                   \
    BATCH ", \"parallelism\": {\"data_parallel_replicate_degree\": 1, "                            \
          "\"data_parallel_shard_degree\": 1, \"context_parallel_degree\": 1, "                    \
          "\"tensor_parallel_degree\": 1}"

/* The mesh of pp ranks. In full: as it is planned; else with so little memory that the estimate says no. */
static tt_found one_mesh(int n_layers, int pp, bool in_full, int *planned)
{
    tt_arena *a = tt_arena_new();
    layers = n_layers;
    const tt_search s = found(ONE_MESH, pp, in_full ? 80 : 0.001, 1, in_full, a);
    layers = 0;
    assert_int_equal(s.meshes, 1);
    assert_int_equal(s.n, in_full);
    *planned = s.planned;
    const tt_found f = in_full ? s.best[0] : s.smallest;
    tt_arena_free(a);
    return f;
}

/* Time and bytes of k layers per stage are on the line through those of one and of two. */
static void test_an_estimate_is_on_the_line_of_one_and_two_layers(void **state)
{
    (void)state;
    for (int pp = 1; pp <= 2; pp++) {
        int n;
        const tt_found one = one_mesh(pp, pp, true, &n), two = one_mesh(2 * pp, pp, true, &n),
                       full = one_mesh(8 * pp, pp, true, &n),
                       guess = one_mesh(8 * pp, pp, false, &n);
        assert_int_equal(n, 0);
        assert_true(two.bytes > 1.02 * one.bytes && two.time.step > 1.02 * one.time.step);
        assert_true(guess.bytes == one.bytes + (two.bytes - one.bytes) * 7);
        assert_true(guess.time.step == one.time.step + (two.time.step - one.time.step) * 7);
        /* only about: some buffers are reused, and the first and last layers differ a little */
        assert_true(fabs(guess.bytes / full.bytes - 1) < 0.05);
        assert_true(fabs(guess.time.step / full.time.step - 1) < 0.01);
    }
}

static void test_few_layers_are_planned_at_once(void **state)
{
    (void)state;
    for (int pp = 1; pp <= 2; pp++) {
        int n;
        one_mesh(3 * pp, pp, false, &n);
        assert_int_equal(n, 1);
        one_mesh(3 * pp + 1, pp, false, &n);
        assert_int_equal(n, 0);
    }
}

/* Whatever is estimated to take up to a tenth more than the best one is planned in full, and nothing else. */
static void test_meshes_about_as_fast_as_the_best_are_planned(void **state)
{
    static const char job[] = BATCH ", \"parallelism\": {\"pipeline_parallel_degree\": 1}";
    tt_arena *a = tt_arena_new();
    int least = 0, most = 0;
    (void)state;
    layers = 4;
    const tt_search all = found(job, 4, 80, 1000, true, a), quick = found(job, 4, 80, 1, false, a);
    layers = 0;
    for (int i = 0; i < all.n; i++) { /* estimates of time are right to 1 % */
        least += all.best[i].time.step < 1.08 * all.best[0].time.step;
        most += all.best[i].time.step < 1.12 * all.best[0].time.step;
    }
    print_message("    %d meshes, %d to %d about as fast as the best\n", all.n, least, most);
    assert_true(least > 1 && most < all.n);
    assert_in_range(quick.planned, least, most);
    tt_arena_free(a);
}

#define EXPERTS                                                                                    \
    "{\"spec\": \"qwen3_moe\", \"model\": {\"args\": {\"n_layers\": 4, \"dim\": 256, "             \
    "\"n_heads\": 8, "                                                                             \
    "\"n_kv_heads\": 4, \"vocab_size\": 1000, \"num_experts\": %d, \"num_experts_per_tok\": 2, "   \
    "\"moe_intermediate_size\": 1024}}, \"training\": {\"local_batch_size\": 1, "                  \
    "\"global_batch_size\": 8, \"seq_len\": 64}, \"dataloader\": {\"path\": [\"none.txt\"]}"

static int experts = 48;

static tt_search found_experts(const char *job, double gib, double skew, bool all, tt_arena *a)
{
    tt_search s;
    tt_error err = {0};
    const char *text = tt_arena_printf(a, EXPERTS "%s}", experts, job);
    assert_int_equal(tt_write_file_atomic(path, text, strlen(text), &err), TT_OK);
    const tt_search_opts o = {.job = path,
                              .registry = registry,
                              .world = 8,
                              .machine = tt_machine_find("h100"),
                              .memory = gib * (1 << 30),
                              .best = 1000,
                              .expert_skew = skew,
                              .all = all};
    if (tt_search_meshes(&o, a, &s, &err) != TT_OK)
        fail_msg("%s", err.text);
    return s;
}

/* The least memory of meshes with ep (or without it). */
static double least_bytes(const tt_search *s, bool ep)
{
    double least = 1e30;
    for (int i = 0; i < s->n; i++)
        if ((s->best[i].degrees.ep > 1) == ep)
            least = TT_MIN(least, s->best[i].bytes);
    return least;
}

static tt_arena *even_arena;
static tt_search even_found;

#define NO_PIPELINE                                                                                \
    ", \"parallelism\": {\"pipeline_parallel_degree\": 1, \"tensor_parallel_degree\": 1}"

/* Every mesh with routing that is even, for two tests. */
static tt_search even_experts(void)
{
    if (!even_arena) {
        even_arena = tt_arena_new();
        even_found = found_experts(NO_PIPELINE, 80, 0, true, even_arena);
    }
    return even_found;
}

static void test_search_cuts_experts_that_do_not_fit(void **state)
{
    tt_arena *a = tt_arena_new();
    tt_str text = {0};
    (void)state;
    const tt_search wide = even_experts();
    assert_true(wide.experts);
    const double with = least_bytes(&wide, true), without = least_bytes(&wide, false);
    print_message("    %d meshes; least memory %.3f GiB with ep, %.3f without\n", wide.meshes,
                  with / (1 << 30), without / (1 << 30));
    assert_true(with < 0.9 * without); /* a rank gathers all experts of a layer, or its own */
    const double limit = (with + without) / 2 / (1 << 30);
    const tt_search tight = found_experts(NO_PIPELINE, limit, 0, false, a);
    assert_true(tight.n > 0);
    for (int i = 0; i < tight.n; i++) {
        const tt_mesh_degrees *d = &tight.best[i].degrees;
        assert_true(d->ep > 1 && 48 % d->ep == 0 && d->dp_shard * d->cp * d->tp % d->ep == 0);
        assert_int_equal(d->pp * d->dp_replicate * d->dp_shard * d->cp * d->tp, 8);
    }
    const tt_search_opts o = {
        .world = 8, .machine = tt_machine_find("h100"), .memory = limit * (1 << 30)};
    tt_search_print(&o, &tight, false, &text);
    assert_non_null(strstr(tt_str_get(&text), "  tp  ep   s/step"));
    assert_non_null(strstr(tt_str_get(&text), " --parallelism.expert_parallel_degree "));
    tt_str_clear(&text);
    tt_search_print(&o, &tight, true, &text);
    assert_non_null(strstr(tt_str_get(&text), ",\"ep\":"));
    tt_str_clear(&text);
    const tt_search dense = found(BATCH, 2, 80, 3, false, a);
    tt_search_print(&o, &dense, false, &text);
    assert_true(!dense.experts && !strstr(tt_str_get(&text), "  ep "));
    tt_str_free(&text);
    tt_arena_free(a);
}

/* Of 12 experts 8 ranks can have parts in three ways: 8 does not divide them. */
static void test_search_tries_degrees_that_divide_the_experts(void **state)
{
    tt_arena *a = tt_arena_new();
    (void)state;
    experts = 12;
    const tt_search s =
        found_experts(", \"parallelism\": {\"pipeline_parallel_degree\": 1, "
                      "\"data_parallel_replicate_degree\": 1, \"context_parallel_degree\": 1, "
                      "\"tensor_parallel_degree\": 1}",
                      80, 0, true, a);
    experts = 48;
    assert_int_equal(s.meshes, 3);
    assert_int_equal(s.refused, 0);
    for (int ep = 1, i = 0; ep <= 4; ep *= 2) {
        for (i = 0; i < s.n && s.best[i].degrees.ep != ep; i++)
            ;
        assert_true(i < s.n);
    }
    tt_arena_free(a);
}

static const tt_found *mesh_of(const tt_search *s, const tt_mesh_degrees *d)
{
    for (int i = 0; i < s->n; i++)
        if (!memcmp(&s->best[i].degrees, d, sizeof *d))
            return &s->best[i];
    fail_msg("a mesh is missing");
    return NULL;
}

static void test_search_estimates_skewed_routing(void **state)
{
    tt_arena *a = tt_arena_new();
    int slower = 0;
    (void)state;
    const tt_search even = even_experts(), skewed = found_experts(NO_PIPELINE, 80, 3, true, a);
    assert_int_equal(even.n, skewed.n);
    for (int i = 0; i < even.n; i++) {
        const tt_found *x = &even.best[i], *y = mesh_of(&skewed, &x->degrees);
        assert_true(y->time.step >= x->time.step && y->bytes == x->bytes);
        assert_true(x->degrees.ep > 1 || y->time.step == x->time.step);
        slower += y->time.step > x->time.step;
    }
    assert_true(slower > 0);
    /* the job's degree of ep is kept */
    const tt_search fixed = found_experts(", \"parallelism\": {\"expert_parallel_degree\": 4, "
                                          "\"tensor_parallel_degree\": 1, "
                                          "\"pipeline_parallel_degree\": 1}",
                                          80, 0, true, a);
    assert_true(fixed.n > 0);
    assert_true(fixed.experts); /* so it is printed */
    for (int i = 0; i < fixed.n; i++)
        assert_int_equal(fixed.best[i].degrees.ep, 4);
    tt_arena_free(a);
}

int main(void)
{
    const char *plugins = getenv("PLUGINS") ? getenv("PLUGINS") : "plugins";
    char folder[TEST_FOLDER];
    const tt_registry_opts o = {.dirs = &plugins, .n_dirs = 1};
    tt_error err = {0};
    if (!test_folder("search", folder))
        return 1;
    snprintf(path, sizeof path, "%s/job.json", folder);
    tt_log_setup(TT_ERROR, 0, 1, false);
    if (tt_registry_new(&o, &registry, &err) != TT_OK)
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_search_finds_what_planning_every_mesh_finds),
        cmocka_unit_test(test_search_leaves_out_meshes_above_the_memory_limit),
        cmocka_unit_test(test_search_keeps_degrees_that_the_job_sets),
        cmocka_unit_test(test_an_estimate_is_on_the_line_of_one_and_two_layers),
        cmocka_unit_test(test_few_layers_are_planned_at_once),
        cmocka_unit_test(test_meshes_about_as_fast_as_the_best_are_planned),
        cmocka_unit_test(test_search_tries_degrees_that_divide_the_experts),
        cmocka_unit_test(test_search_cuts_experts_that_do_not_fit),
        cmocka_unit_test(test_search_estimates_skewed_routing),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    tt_arena_free(even_arena);
    tt_registry_free(registry);
    (void)unlink(path);
    (void)rmdir(folder);
    return failed;
}
