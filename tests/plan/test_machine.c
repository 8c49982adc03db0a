/* SPDX-License-Identifier: Apache-2.0 */
#include "estimate/estimate.h"
#include "exec/job.h"
#include <math.h>

/* The estimated time of a step on a machine, compared with sums done by hand, and its changes
 * when the machine changes. */

/* A machine on which only FLOPs take time: bytes, starts and links cost nothing. */
static tt_machine only_flops(void)
{
    return (tt_machine){.name = "flops",
                        .ranks_per_node = 4,
                        .flops_f32 = 1e9,
                        .memory_bandwidth = 1e30,
                        .link_bandwidth = 1e30,
                        .net_bandwidth = 1e30,
                        .matmul_efficiency = 1,
                        .attention_efficiency = 1,
                        .memory_efficiency = 1,
                        .network_efficiency = 1};
}

static tt_machine only_links(void)
{
    tt_machine m = only_flops();
    m.flops_f32 = 1e30;
    m.link_bandwidth = 1e6;
    m.net_bandwidth = 1e3;
    return m;
}

static tt_step_time time_of(const char *overrides, const tt_machine *m)
{
    job j;
    tt_step_time t;
    job_open(&j, overrides);
    tt_step_time_of(&j.setup, m, &t);
    job_close(&j);
    return t;
}

/* FLOPs of every matmul and of attention, forward and backward, from the sizes in job.h. */
static double matmul_flops(void)
{
    const double tokens = 4 * 37, dim = 48, kv = 16, ffn = 70, vocab = 263, layers = 5;
    const double block = dim * dim * 2 + 2 * dim * kv + 3 * dim * ffn;
    return 6 * tokens * (layers * block + dim * vocab);
}

static double attention_flops(void)
{
    const double tokens = 4 * 37, keys = 37 / 2.0, heads = 6, d = 8, layers = 5;
    return layers * tokens * keys * heads * ((4 * d + 10) + (10 * d + 15));
}

static void test_compute_is_the_flops_of_the_graph(void **state)
{
    (void)state;
    tt_machine m = only_flops();
    const double least = (matmul_flops() + attention_flops()) * 1e-9;
    const tt_step_time t = time_of("", &m);
    /* the other ops (norms, rope, the optimizer) cost little */
    assert_true(t.step > least && t.step < 1.15 * least);
    assert_true(t.comm == 0 && t.bubble == 0);
    m.matmul_efficiency = m.attention_efficiency = 0.5;
    assert_true(fabs(time_of("", &m).step / t.step - 2) < 1e-9);
    assert_true(t.mfu <= 1.2 && t.mfu > 0.7); /* FLOPs as in the contract over this time */
}

static void test_ranks_share_the_compute(void **state)
{
    (void)state;
    const tt_machine m = only_flops();
    const double one = time_of("training.local_batch_size 4", &m).step;
    const double two = time_of("parallelism.data_parallel_shard_degree 2 "
                               "training.local_batch_size 2 training.global_batch_size 4",
                               &m)
                           .step;
    assert_true(two > 0.49 * one && two < 0.52 * one);
}

static void test_communication_takes_the_bytes_over_the_link(void **state)
{
    (void)state;
    tt_machine m = only_links();
    const char *tp = "parallelism.tensor_parallel_degree 2";
    const double in_node = time_of(tp, &m).comm;
    assert_true(in_node > 0);
    m.link_bandwidth *= 2;
    assert_true(fabs(time_of(tp, &m).comm / in_node - 0.5) < 1e-6);
    m.link_bandwidth /= 2;
    m.ranks_per_node = 1; /* now through the network, a thousandth as fast */
    assert_true(fabs(time_of(tp, &m).comm / in_node / 1000 - 1) < 1e-6);
    m.net_latency = 1; /* one hop for two ranks: a second a collective */
    assert_true(time_of(tp, &m).comm - 1000 * in_node > 20);
}

/* A machine whose link takes about as long as its arithmetic. */
static void test_overlap_hides_communication(void **state)
{
    static const char *const meshes[] = {"parallelism.data_parallel_shard_degree 2",
                                         "parallelism.tensor_parallel_degree 2",
                                         "parallelism.context_parallel_degree 2"};
    tt_machine m = only_flops();
    (void)state;
    m.link_bandwidth = 1e8;
    for (size_t i = 0; i < TT_COUNT(meshes); i++) {
        char text[200];
        snprintf(text, sizeof text, "%s comm.overlap off", meshes[i]);
        const tt_step_time off = time_of(text, &m);
        snprintf(text, sizeof text, "%s comm.overlap on", meshes[i]);
        const tt_step_time on = time_of(text, &m);
        assert_true(off.comm > 0 && fabs(off.exposed / off.comm - 1) < 1e-9);
        assert_true(fabs(on.comm / off.comm - 1) < 1e-9);
        /* the step is shorter by exactly the hidden time */
        assert_true(fabs((off.step - on.step) - (off.exposed - on.exposed)) < 1e-9 * off.step);
        if (on.exposed > (i == 0 ? 0.7 : 0.95) * off.exposed)
            fail_msg("%s: %g s exposed of %g", meshes[i], on.exposed, off.exposed);
    }
    m.flops_f32 = 1e30; /* nothing to hide it behind */
    const tt_step_time t = time_of("parallelism.data_parallel_shard_degree 2 comm.overlap on", &m);
    assert_true(t.exposed > 0.99 * t.comm);
}

#define IN_PIECES " parallelism.enable_async_tensor_parallel true"

/* Asynchronous tensor parallelism sends as many bytes and hides most of the communication, in
 * the forward, too. Each message goes to one rank, one hop away; a reduce-scatter over six ranks
 * is a tree of depth three. */
static void test_async_tp_hides_communication(void **state)
{
    const char *tp2 = "parallelism.tensor_parallel_degree 2 comm.overlap on model.args.dim 192";
    char text[300];
    tt_machine m = only_flops();
    (void)state;
    m.link_bandwidth = 1e8;
    snprintf(text, sizeof text, "%s%s", tp2, IN_PIECES);
    const tt_step_time whole = time_of(tp2, &m), pieces = time_of(text, &m);
    assert_true(fabs(pieces.comm / whole.comm - 1) < 1e-9);
    if (pieces.exposed > 0.6 * whole.exposed)
        fail_msg("%g s exposed of %g", pieces.exposed, whole.exposed);

    job j;
    const char *tp6 = "parallelism.tensor_parallel_degree 6";
    m = only_links();
    m.ranks_per_node = 8;
    snprintf(text, sizeof text, "%s%s", tp6, IN_PIECES);
    const double before = time_of(text, &m).comm - time_of(tp6, &m).comm;
    m.link_latency = 1;
    const double after = time_of(text, &m).comm - time_of(tp6, &m).comm;
    job_open(&j, text);
    const int n = j.setup.graph->async_tp.gathers + j.setup.graph->async_tp.reductions;
    job_close(&j);
    assert_true(n >= 40 && fabs(after - before - n * (5 * 1 - 3)) < 1e-6 * n);
}

/* Two nodes of two ranks: a group of four uses the network cards of both members of a node. */
static void test_a_ring_uses_every_card_of_a_node(void **state)
{
    (void)state;
    tt_machine m = only_links();
    const char *four = "parallelism.data_parallel_shard_degree 4 training.local_batch_size 1";
    m.ranks_per_node = 1;
    const double alone = time_of(four, &m).comm;
    m.ranks_per_node = 2;
    assert_true(fabs(alone / time_of(four, &m).comm - 2) < 1e-6);
}

static void test_a_pipeline_has_a_bubble(void **state)
{
    (void)state;
    const tt_machine m = only_flops();
    const tt_step_time t = time_of("parallelism.pipeline_parallel_degree 2 "
                                   "parallelism.pipeline_parallel_microbatches 4",
                                   &m);
    assert_true(t.bubble > 0.05 && t.bubble < 0.5);
}

static void test_a_known_machine_has_every_number(void **state)
{
    (void)state;
    static const char *const names[] = {"h100", "h200", "b200", "mi300x"};
    for (size_t i = 0; i < TT_COUNT(names); i++) {
        const tt_machine *m = tt_machine_find(names[i]);
        assert_non_null(m);
        assert_true(m->flops_bf16 > m->flops_f32 && m->memory_bytes > 1e10);
        assert_true(tt_machine_flops(m, TT_BF16) == m->flops_bf16);
        assert_true(m->memory_bandwidth > m->link_bandwidth &&
                    m->link_bandwidth > m->net_bandwidth);
    }
}

static tt_status load_text(const char *text, const tt_machine **out, tt_error *err)
{
    tt_arena *a = tt_arena_new();
    const char *path = tt_path_join(a, job_folder(), "machine-test.json");
    if (tt_write_file_atomic(path, text, strlen(text), err) != TT_OK)
        fail_msg("%s", err->text);
    const tt_status s = tt_machine_load(path, a, out, err);
    static tt_machine kept;
    if (s == TT_OK)
        kept = **out;
    *out = &kept;
    tt_arena_free(a);
    return s;
}

static void test_a_machine_from_a_file(void **state)
{
    (void)state;
    const tt_machine *m;
    tt_error err = {0};
    if (load_text("{\"flops_bf16\": 4e14, // half of it\n \"memory_bytes\": 48e9}", &m, &err) !=
        TT_OK)
        fail_msg("%s", err.text);
    assert_true(m->flops_bf16 == 4e14 && m->memory_bytes == 48e9 && m->ranks_per_node == 8);
}

static void test_a_wrong_machine_is_an_error_of_one_line(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says;
    } bad[] = {
        {"{",                                              ":1:"              },
        {"{\"flops_bf61\": 1e12}",                         "flops_bf16"       },
        {"{\"flops_bf16\": \"fast\"}",                     ":1:16: flops_bf16"},
        {"{\"memory_bytes\": 1e9}",                        "no peak is given" },
        {"{\"flops_f32\": 1e12, \"net_bandwidth\": 0}",    "net_bandwidth"    },
        {"{\"flops_f32\": 1e12, \"ranks_per_node\": 0}",   "ranks_per_node"   },
        {"{\"flops_f32\": -5}",                            "flops_f32"        },
        {"{\"flops_f32\": 1, \"matmul_efficiency\": 1.5}", "matmul_efficiency"},
        {"[]",                                             ":1:1"             },
    };
    for (size_t i = 0; i < TT_COUNT(bad); i++) {
        const tt_machine *m;
        tt_error err = {0};
        assert_true(load_text(bad[i].text, &m, &err) != TT_OK);
        if (!strstr(err.text, bad[i].says) || strchr(err.text, '\n'))
            fail_msg("%s: %s", bad[i].text, err.text);
    }
    const tt_machine *m;
    tt_error err = {0};
    tt_arena *a = tt_arena_new();
    assert_true(tt_machine_load("h10", a, &m, &err) != TT_OK);
    assert_non_null(strstr(err.text, "h100"));
    assert_true(tt_machine_load("/nowhere/m.json", a, &m, &err) != TT_OK);
    tt_arena_free(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_compute_is_the_flops_of_the_graph),
        cmocka_unit_test(test_ranks_share_the_compute),
        cmocka_unit_test(test_communication_takes_the_bytes_over_the_link),
        cmocka_unit_test(test_overlap_hides_communication),
        cmocka_unit_test(test_async_tp_hides_communication),
        cmocka_unit_test(test_a_ring_uses_every_card_of_a_node),
        cmocka_unit_test(test_a_pipeline_has_a_bubble),
        cmocka_unit_test(test_a_known_machine_has_every_number),
        cmocka_unit_test(test_a_machine_from_a_file),
        cmocka_unit_test(test_a_wrong_machine_is_an_error_of_one_line),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
