/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE /* setenv */
#include "cuda/cuda_config.h"
#include <dlfcn.h>
#include <stdio.h>
#include <ttrun/ops.h>

/* attention by cuDNN's graphs against the reference. The fake cuDNN computes a graph one operation after
 * the other, so this proves the graph, its operands and its memory; NVIDIA's library must recognise it
 * as a whole: test_dnn_plans.sh. */

typedef struct line_case {
    int64_t lines, line, heads, kv_heads, hd, dv, window;
    bool bidirectional;
} line_case;
static const line_case cases[] = {
    {.lines = 2,             .line = 24, .heads = 4, .kv_heads = 2,                   .hd = 16,       .dv = 8},
    {.lines = 1,             .line = 33, .heads = 2, .kv_heads = 2,                   .hd = 8,        .dv = 8, .window = 5},
    {.lines = 3,                      .line = 10,                       .heads = 3,  .kv_heads = 1, .hd = 8, .dv = 24, .bidirectional = true},
    {.lines = 2, .line = 1,           .heads = 1,            .kv_heads = 1,                                  .hd = 8,                            .dv = 8          },
};

static struct {
    subject reference, it;
    uint64_t random;
    int64_t (*runs)(void); /* of the fake library */
} s;

static tt_tensor make(tt_arena *a, tt_dtype dtype, int64_t rows, int64_t columns)
{
    return cuda_test_tensor(a, &s.random, dtype, rows, columns);
}

/* Runs the call on both backends; want receives the reference's results. dnn: cuDNN must compute it. */
static void check(tt_kernel_call *call, tt_tensor *want, tt_arena *a, bool dnn)
{
    tt_tensor got[3];
    for (int i = 0; i < call->n_out; i++)
        got[i] = make(a, want[i].dtype, want[i].shape[0], want[i].shape[1]);
    (void)subject_run(&s.reference, 0, s.reference.vt->kernel(NULL, call->op), call, want);
    const int64_t before = s.runs();
    s.it.tight = false;
    assert_true(subject_run(&s.it, 0, s.it.vt->kernel(s.it.self[0], call->op), call, got));
    assert_int_equal(s.runs() - before, dnn ? 1 : 0);
    for (int i = 0; i < call->n_out; i++)
        for (int64_t e = 0; e < tt_tensor_numel(&want[i]); e++)
            if (!(fabs(get(&want[i], e) - get(&got[i], e)) <=
                  0.02 * fmax(1, fabs(get(&want[i], e)))))
                fail_msg("%s: output %d element %lld is %.9g, the reference has %.9g", call->op, i,
                         (long long)e, get(&got[i], e), get(&want[i], e));
}

static void check_case(const line_case *c, bool told)
{
    tt_arena *a = tt_arena_new();
    const tt_attrs_attention attrs = {.head_dim = c->hd,
                                      .v_head_dim = c->dv,
                                      .scale = 1.0 / sqrt((double)c->hd),
                                      .window = c->window,
                                      .bidirectional = c->bidirectional,
                                      .line = told ? c->line : 0};
    const int64_t n = c->lines * c->line;
    tt_tensor in[10],
        out[2] = {make(a, TT_BF16, n, c->heads * c->dv), make(a, TT_F32, n, c->heads)}, d[3];
    in[0] = make(a, TT_BF16, n, c->heads * c->hd);
    in[1] = make(a, TT_BF16, n, c->kv_heads * c->hd);
    in[2] = make(a, TT_BF16, n, c->kv_heads * c->dv);
    for (int i = 0; i < 3; i++)
        d[i] = make(a, TT_BF16, n, in[i].shape[1]);
    tt_tensor index[4];
    for (int i = 0; i < 4; i++) {
        index[i] = make(a, TT_I32, n, 0);
        for (int64_t t = 0; t < n; t++)
            put(&index[i], t, (double)(i % 2 ? t / c->line : t % c->line));
        in[3 + i] = index[i];
    }
    tt_kernel_call call = {.struct_size = sizeof call,
                           .op = "attention",
                           .in = in,
                           .n_in = 7,
                           .n_out = 2,
                           .attrs = &attrs};
    check(&call, out, a, told);
    in[3] = out[0];
    in[4] = out[1];
    in[5] = make(a, TT_BF16, n, c->heads * c->dv);
    memcpy(&in[6], index, sizeof index);
    call.op = "attention_bwd";
    call.n_in = 10;
    call.n_out = 3;
    check(&call, d, a, told);
    tt_arena_free(a);
}

static void test_lines_are_computed_by_cudnn(void **state)
{
    (void)state;
    for (size_t i = 0; i < TT_COUNT(cases); i++)
        check_case(&cases[i], true);
}

static void test_sums_in_any_order_have_their_memory(void **state)
{
    cuda_backend *b = s.it.self[0];
    (void)state;
    b->config.deterministic = false;
    for (size_t i = 0; i < TT_COUNT(cases); i++)
        check_case(&cases[i], true);
    b->config.deterministic = true;
}

static void test_unknown_segments_are_left_to_our_kernels(void **state)
{
    (void)state;
    check_case(&cases[0], false);
}

static int load(void **state)
{
    cuda_config config = *cuda_test_config();
    char path[1100];
    (void)state;
    if (!cuda_test_is_fake()) {
        printf("skipped: only for the fake library\n");
        exit(0);
    }
    config.attention = "cudnn";
    config.deterministic = true;
    s.random = 5;
    subject_open(&s.reference, "reference", NULL);
    subject_open(&s.it, "cuda", &config);
    snprintf(path, sizeof path, "%s/libcudnn.so.9", config.libraries);
    void *lib = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
    if (lib == NULL)
        fail_msg("the backend did not open %s", path);
    *(void **)&s.runs = dlsym(lib, "fake_cudnn_runs");
    assert_true(s.runs != NULL);
    return 0;
}

static int unload(void **state)
{
    (void)state;
    subject_close(&s.it);
    subject_close(&s.reference);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lines_are_computed_by_cudnn),
        cmocka_unit_test(test_sums_in_any_order_have_their_memory),
        cmocka_unit_test(test_unknown_segments_are_left_to_our_kernels),
    };
    return cmocka_run_group_tests(tests, load, unload);
}
