/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE /* setenv */
#include "cuda/cuda_config.h"
#include "tier.h"
#include <stdio.h>
#include <ttrun/ops.h>

/* The cuda backend's attention against the reference on calls of several tiles; the battery of
 * tests/ops has small ones. Each call runs twice: the fake driver runs blocks and warps in another
 * order then, and the bits must be the same. */

typedef struct attention_case {
    const char *name;
    int64_t n_q, n_k, heads, kv_heads, hd, dv;
    int64_t segment; /* tokens of a segment, about */
    int64_t window, n_bias;
    double softcap;
    bool bidirectional, sinks;
    int64_t prefix; /* the keys of the first positions are seen by all queries of the segment */
} attention_case;

static const attention_case cases[] = {
    {.name = "64",
     .n_q = 300,
     .n_k = 300,
     .heads = 4,
     .kv_heads = 2,
     .hd = 64,
     .dv = 64,
     .segment = 170                               },
    {.name = "64, short segments",
     .n_q = 700,
     .n_k = 700,
     .heads = 1,
     .kv_heads = 1,
     .hd = 64,
     .dv = 64,
     .segment = 23                                },
    {.name = "64, one segment, two heads",
     .n_q = 257,
     .n_k = 257,
     .heads = 2,
     .kv_heads = 1,
     .hd = 64,
     .dv = 64,
     .segment = 999                               },
    {.name = "96, cross",
     .n_q = 130,
     .n_k = 241,
     .heads = 2,
     .kv_heads = 1,
     .hd = 96,
     .dv = 96,
     .segment = 90,
     .bidirectional = true},
    {.name = "128, window, softcap, sinks",
     .n_q = 300,
     .n_k = 300,
     .heads = 3,
     .kv_heads = 1,
     .hd = 128,
     .dv = 128,
     .segment = 220,
     .window = 70,
     .softcap = 3,
     .sinks = true},
    {.name = "128, window of one segment",
     .n_q = 300,
     .n_k = 300,
     .heads = 1,
     .kv_heads = 1,
     .hd = 128,
     .dv = 128,
     .segment = 999,
     .window = 90},
    {.name = "192, 128",
     .n_q = 150,
     .n_k = 150,
     .heads = 2,
     .kv_heads = 2,
     .hd = 192,
     .dv = 128,
     .segment = 999                                   },
    {.name = "256, sinks",
     .n_q = 150,
     .n_k = 150,
     .heads = 2,
     .kv_heads = 1,
     .hd = 256,
     .dv = 256,
     .segment = 100,
     .sinks = true},
    {.name = "80, 72, bias",
     .n_q = 190,
     .n_k = 190,
     .heads = 2,
     .kv_heads = 1,
     .hd = 80,
     .dv = 72,
     .segment = 130,
     .n_bias = 100},
    {.name = "40, 24, bias, cross",
     .n_q = 140,
     .n_k = 90,
     .heads = 2,
     .kv_heads = 2,
     .hd = 40,
     .dv = 24,
     .segment = 60,
     .n_bias = 121,
     .bidirectional = true,
     .softcap = 2},
    {.name = "64, prefix",
     .n_q = 210,
     .n_k = 210,
     .heads = 2,
     .kv_heads = 1,
     .hd = 64,
     .dv = 64,
     .segment = 105,
     .prefix = 33},
    {.name = "300, 260",
     .n_q = 70,
     .n_k = 70,
     .heads = 2,
     .kv_heads = 1,
     .hd = 300,
     .dv = 260,
     .segment = 50                                     },
    {.name = "7, 5",
     .n_q = 140,
     .n_k = 150,
     .heads = 4,
     .kv_heads = 2,
     .hd = 7,
     .dv = 5,
     .segment = 60                                    },
    {.name = "64, no keys",
     .n_q = 70,
     .n_k = 0,
     .heads = 2,
     .kv_heads = 1,
     .hd = 64,
     .dv = 64,
     .segment = 60                                      },
    {.name = "64, no queries",
     .n_q = 0,
     .n_k = 70,
     .heads = 2,
     .kv_heads = 1,
     .hd = 64,
     .dv = 64,
     .segment = 60                                     },
};

static struct {
    subject reference, it;
    uint64_t random;
} s;

static tt_tensor make(tt_arena *a, tt_dtype dtype, int64_t rows, int64_t columns)
{
    return cuda_test_tensor(a, &s.random, dtype, rows, columns);
}

/* Segments of about the case's length; positions begin anew, and some are left out. */
static void fill_tokens(const attention_case *c, const tt_tensor *pos, const tt_tensor *seg,
                        int64_t prefix)
{
    int64_t p = 0, g = 3, left = c->segment;
    for (int64_t i = 0; i < pos->shape[0]; i++, p++, left--) {
        if (left == 0) {
            left = c->segment / 2 + (int64_t)(eval_uniform(&s.random) * (double)c->segment);
            p = 0;
            g++;
        }
        p += eval_uniform(&s.random) < 0.05 ? 2 : 0;
        put(pos, i, (double)(p < prefix ? 0 : p));
        put(seg, i, (double)g);
    }
}

static void compare(const char *name, const char *op, tt_dtype dtype, int output,
                    const tt_tensor *want, const tt_tensor *got)
{
    /* f32: sums of up to 700 products; bf16: weights are rounded to it before they are summed up */
    const double tolerance = dtype == TT_F32 ? 5e-5 : want->dtype == TT_F32 ? 4e-3 : 1.0 / 100.0;
    double largest = 1e-3;
    for (int64_t i = 0; i < tt_tensor_numel(want); i++)
        if (isfinite(get(want, i)))
            largest = fmax(largest, fabs(get(want, i)));
    for (int64_t i = 0; i < tt_tensor_numel(want); i++) {
        const double x = get(want, i), y = get(got, i);
        if (x != y && !(fabs(x - y) <= tolerance * largest))
            fail_msg("%s of \"%s\" in %s: element %lld (row %lld) of output %d is %.9g, the "
                     "reference has %.9g (largest %.3g)",
                     op, name, tt_dtype_name(dtype), (long long)i,
                     (long long)(i / want->shape[want->n_dims - 1]), output, y, x, largest);
    }
}

/* Runs the op on both backends, on this one twice, and compares; want[i] stays for the caller. */
static void check(const char *name, tt_kernel_call *call, tt_dtype dtype, tt_tensor *want,
                  tt_arena *a)
{
    tt_tensor got[2][TT_MAX_OUTS];
    for (int run = 0; run < 2; run++)
        for (int i = 0; i < call->n_out; i++) {
            got[run][i] = want[i];
            got[run][i].data = tt_arena_array(a, (size_t)tt_tensor_numel(&want[i]) + 1,
                                              tt_dtype_size(want[i].dtype));
            /* what was there, and of a cache what is in it */
            memcpy(got[run][i].data, want[i].data, subject_bytes(&want[i]));
        }
    (void)subject_run(&s.reference, 0, s.reference.vt->kernel(NULL, call->op), call, want);
    for (int run = 0; run < 2; run++)
        assert_true(
            subject_run(&s.it, run, s.it.vt->kernel(s.it.self[run], call->op), call, got[run]));
    for (int i = 0; i < call->n_out; i++) {
        compare(name, call->op, dtype, i, &want[i], &got[0][i]);
        if (memcmp(got[0][i].data, got[1][i].data, subject_bytes(&want[i])) != 0)
            fail_msg("%s of \"%s\" in %s: another order gives other bits in output %d", call->op,
                     name, tt_dtype_name(dtype), i);
    }
}

static void check_case(const attention_case *c, tt_dtype dtype)
{
    tt_arena *a = tt_arena_new();
    const tt_attrs_attention attrs = {.head_dim = c->hd,
                                      .v_head_dim = c->dv,
                                      .scale = 2.0 / sqrt((double)c->hd),
                                      .window = c->window,
                                      .softcap = c->softcap,
                                      .bidirectional = c->bidirectional,
                                      .bias = c->n_bias > 0};
    tt_tensor q = make(a, dtype, c->n_q, c->heads * c->hd),
              k = make(a, dtype, c->n_k, c->kv_heads * c->hd),
              v = make(a, dtype, c->n_k, c->kv_heads * c->dv), index[4], in[9], bwd[11];
    tt_tensor out[2] = {make(a, dtype, c->n_q, c->heads * c->dv),
                        make(a, TT_F32, c->n_q, c->heads)};
    const bool self = c->n_q == c->n_k;
    for (int i = 0; i < 4; i++)
        index[i] = make(a, TT_I32, i < 2 ? c->n_q : c->n_k, 0);
    const uint64_t random = s.random;
    fill_tokens(c, &index[0], &index[1], 0);
    if (self)
        s.random = random;
    fill_tokens(c, &index[2], &index[3], c->prefix);
    int n = 7, n_bwd = 10;
    const tt_tensor operands[7] = {q, k, v, index[0], index[1], index[2], index[3]};
    memcpy(in, operands, sizeof operands);
    if (c->sinks)
        in[n++] = make(a, dtype, c->heads, 0);
    if (c->n_bias > 0)
        in[n++] = make(a, TT_F32, c->heads, c->n_bias);
    tt_kernel_call call = {.struct_size = sizeof call,
                           .op = "attention",
                           .in = in,
                           .n_in = n,
                           .n_out = 2,
                           .attrs = &attrs};
    check(c->name, &call, dtype, out, a);
    const tt_tensor more[10] = {
        q,        k,        v,        out[0],  out[1], make(a, dtype, c->n_q, c->heads * c->dv),
        index[0], index[1], index[2], index[3]};
    memcpy(bwd, more, sizeof more);
    if (c->n_bias > 0)
        bwd[n_bwd++] = in[n - 1];
    tt_tensor d[4] = {make(a, dtype, c->n_q, c->heads * c->hd),
                      make(a, dtype, c->n_k, c->kv_heads * c->hd),
                      make(a, dtype, c->n_k, c->kv_heads * c->dv)};
    if (c->n_bias > 0)
        d[3] = make(a, TT_F32, c->heads, c->n_bias);
    tt_kernel_call back = {.struct_size = sizeof back,
                           .op = c->n_bias > 0 ? "attention_bias_bwd" : "attention_bwd",
                           .in = bwd,
                           .n_in = n_bwd,
                           .n_out = c->n_bias > 0 ? 4 : 3,
                           .attrs = &attrs};
    check(c->name, &back, dtype, d, a);
    tt_arena_free(a);
}

static void check_cases(tt_dtype dtype)
{
    const char *only = getenv("TT_ATTENTION"); /* cases whose name has it */
    for (size_t i = 0; i < TT_COUNT(cases); i++)
        if (only == NULL ? in_tier(i, dtype == TT_F32, 2) : strstr(cases[i].name, only) != NULL)
            check_case(&cases[i], dtype);
}

static void test_attention_of_several_tiles_in_bf16(void **state)
{
    (void)state;
    check_cases(TT_BF16);
}

static void test_attention_of_several_tiles_in_f32(void **state)
{
    (void)state;
    check_cases(TT_F32);
}

/* Tiles of keys that no query of a tile sees are not read: 0 times NaN would be NaN. */
static void test_tiles_of_other_segments_are_skipped(void **state)
{
    enum { TOKENS = 512, SEGMENT = 128, HD = 64 };
    const tt_dtype dtypes[] = {TT_BF16, TT_F32};
    const tt_attrs_attention attrs = {.head_dim = HD, .v_head_dim = HD, .scale = 0.1};
    (void)state;
    for (int d = 0; d < 2; d++) {
        tt_arena *a = tt_arena_new();
        tt_tensor in[7], out[2] = {make(a, dtypes[d], TOKENS, HD), make(a, TT_F32, TOKENS, 1)};
        for (int i = 0; i < 7; i++)
            in[i] = make(a, i < 3 ? dtypes[d] : TT_I32, TOKENS, i < 3 ? HD : 0);
        for (int64_t t = 0; t < TOKENS; t++)
            for (int i = 3; i < 7; i++)
                put(&in[i], t, (double)(i % 2 ? t % SEGMENT : t / SEGMENT));
        for (int64_t i = 2 * SEGMENT * HD; i < 3 * SEGMENT * HD; i++) { /* values of segment 2 */
            const uint32_t nan = 0x7fc00000u;
            if (dtypes[d] == TT_F32)
                ((uint32_t *)in[2].data)[i] = nan;
            else
                ((uint16_t *)in[2].data)[i] = (uint16_t)(nan >> 16);
        }
        tt_kernel_call c = {.struct_size = sizeof c,
                            .op = "attention",
                            .in = in,
                            .n_in = 7,
                            .n_out = 2,
                            .attrs = &attrs};
        assert_true(subject_run(&s.it, 0, s.it.vt->kernel(s.it.self[0], c.op), &c, out));
        for (int64_t i = 0; i < TOKENS * HD; i++)
            assert_int_equal(isnan(get(&out[0], i)) != 0, i / HD / SEGMENT == 2);
        tt_arena_free(a);
    }
}

/* Two sequences that grow by several tokens, one by one, and a token of none; more query heads than a
 * block takes, more columns of values, more positions than a part. */
static void check_cached(tt_dtype dtype, tt_dtype cache, int64_t window, bool sinks)
{
    enum { TOKENS = 8, HEADS = 22, KV = 2, HD = 24, DV = 136, BLOCKS = 20, SLOTS = 3 };
    static const int64_t slot[TOKENS] = {2, 2, 2, -1, 0, 1, 1, 1},
                         pos[TOKENS] = {577, 578, 579, 5, 0, 31, 32, 33};
    tt_arena *a = tt_arena_new();
    const tt_attrs_attention attrs = {
        .head_dim = HD, .v_head_dim = DV, .scale = 0.3, .window = window};
    tt_tensor in[8] = {make(a, dtype, TOKENS, HEADS * HD),
                       make(a, dtype, TOKENS, KV * HD),
                       make(a, dtype, TOKENS, KV * DV),
                       make(a, TT_I32, TOKENS, 0),
                       make(a, TT_I32, TOKENS, 0),
                       make(a, cache, SLOTS, KV * BLOCKS * HD * TT_CACHE_BLOCK),
                       make(a, cache, SLOTS, KV * BLOCKS * TT_CACHE_BLOCK * DV),
                       make(a, TT_F32, HEADS, 0)};
    const int64_t keys[5] = {SLOTS, KV, BLOCKS, HD, TT_CACHE_BLOCK},
                  values[4] = {SLOTS, KV, (int64_t)BLOCKS * TT_CACHE_BLOCK, DV};
    in[5].n_dims = 5;
    memcpy(in[5].shape, keys, sizeof keys);
    in[6].n_dims = 4;
    memcpy(in[6].shape, values, sizeof values);
    for (int i = 0; i < TOKENS; i++) {
        put(&in[3], i, (double)pos[i]);
        put(&in[4], i, (double)slot[i]);
    }
    tt_tensor out[3] = {make(a, dtype, TOKENS, HEADS * DV), in[5], in[6]};
    tt_kernel_call c = {.struct_size = sizeof c,
                        .op = "attention_cached",
                        .in = in,
                        .n_in = sinks ? 8 : 7,
                        .n_out = 3,
                        .attrs = &attrs};
    for (int i = 1; i < 3; i++) { /* the reference writes into a cache of its own */
        out[i].data =
            tt_arena_array(a, (size_t)tt_tensor_numel(&in[4 + i]) + 1, tt_dtype_size(cache));
        memcpy(out[i].data, in[4 + i].data, subject_bytes(&out[i]));
    }
    check("cached", &c, dtype, out, a);
    tt_arena_free(a);
}

static void test_cached_attention_of_several_parts(void **state)
{
    (void)state;
    check_cached(TT_F32, TT_F32, 0, false);
    check_cached(TT_BF16, TT_BF16, 300, true);
    check_cached(TT_BF16, TT_F32, 0, true);
}

static int load(void **state)
{
    static max_align_t config_of_reference[64]; /* zero = the defaults */
    (void)state;
    cuda_config config = *cuda_test_config();
    config.attention = "own";
    setenv("FAKE_CUDA_SEED", "1", 0);
    s.random = 7;
    subject_open(&s.reference, "reference", config_of_reference);
    subject_open(&s.it, "cuda", &config);
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
        cmocka_unit_test(test_attention_of_several_tiles_in_bf16),
        cmocka_unit_test(test_attention_of_several_tiles_in_f32),
        cmocka_unit_test(test_tiles_of_other_segments_are_skipped),
        cmocka_unit_test(test_cached_attention_of_several_parts),
    };
    return cmocka_run_group_tests_name("cuda attention", tests, load, unload);
}
