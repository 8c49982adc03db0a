/* SPDX-License-Identifier: Apache-2.0 */
#include "infer/decode_compare.h"

/* Decoding of models that are described here: options and ops that no shipped model has. */

/* Attention with all its options, and no positions but a bias: a combination that no shipped model has.
 * The bias is ALiBi's in the first block, and a learned one of 20 distances in the second. */
static void describe_blocks(tt_builder *b, bool biased)
{
    const tt_dim V = TT_DIM(263, "vocab"), D = TT_DIM(24, "embed"), H = TT_DIM(4, "heads"),
                 Q = TT_DIM_UNIT(24, "heads", 6), K = TT_DIM_UNIT(12, "kv_heads", 6),
                 W = TT_DIM_UNIT(20, "kv_heads", 10), learned[2] = {H, TT_DIM(20, NULL)};
    tt_value *x = tt_embedding(b, tt_input(b, "ids"), "embed", V, D, NULL);
    for (int i = 0; i < 2; i++) {
        tt_block(b, "layers.%d", i);
        const tt_param_opts po = {
            .init = {TT_INIT_NORMAL, 1.0, 0, 0}
        };
        tt_attention_opts o = {.v_head_dim = 10,
                               .window = i ? 33 : 5,
                               .softcap = i ? 2.0 : 0.0,
                               .scale = 0.7,
                               .sinks = tt_param(b, "sinks", &H, 1, &po)};
        if (biased)
            o.bias = i ? tt_param(b, "bias", learned, 2, &po) : tt_alibi(b, H, LENGTH, 0);
        tt_value *y = tt_attention(b, tt_linear(b, x, "q", Q, NULL), tt_linear(b, x, "k", K, NULL),
                                   tt_linear(b, x, "v", W, NULL), 6, &o);
        /* the heads apart and together again: a reshape that names the token dim */
        const tt_dim *T = &tt_value_type(y)->dims[0];
        const tt_dim apart[3] = {*T, TT_DIM(4, "heads"), TT_DIM(10, NULL)},
                     joined[2] = {*T, TT_DIM_UNIT(40, "heads", 10)};
        y = tt_reshape(b, tt_silu(b, tt_reshape(b, y, apart, 3)), joined, 2);
        x = tt_add(b, x, tt_linear(b, y, "o", D, NULL));
        tt_block_end(b);
    }
    tt_output(b, "logits", tt_linear(b, tt_rms_norm(b, x, "norm", 1e-5), "head", V, NULL));
}

static void describe_odd(const void *cfg, tt_builder *b)
{
    (void)cfg;
    describe_blocks(b, false);
}

static void describe_biased(const void *cfg, tt_builder *b)
{
    (void)cfg;
    describe_blocks(b, true);
}

static tt_value *param_of(tt_builder *b, const char *name, const tt_dim *dims, int n)
{
    const tt_param_opts po = {
        .init = {TT_INIT_NORMAL, 0.5, 0, 0}
    };
    return tt_param(b, name, dims, n, &po);
}

/* Convolutions of several numbers of taps and recurrences: a decay per state, per head and token, and
 * per head alone. */
static void describe_recurrent(const void *cfg, tt_builder *b)
{
    const tt_dim V = TT_DIM(263, "vocab"), D = TT_DIM(24, "embed"), H = TT_DIM(4, "heads"),
                 one = TT_DIM(1, NULL);
    const int64_t n_taps[3] = {4, 1, 2};
    (void)cfg;
    tt_value *x = tt_embedding(b, tt_input(b, "ids"), "embed", V, D, NULL);
    const tt_dim T = tt_value_type(x)->dims[0],
                 states[4] = {T, H, TT_DIM(6, NULL), TT_DIM(5, NULL)},
                 rows[4] = {T, H, TT_DIM(6, NULL), one}, columns[4] = {T, H, one, TT_DIM(5, NULL)},
                 heads[4] = {T, H, one, one}, fixed[4] = {one, H, one, one}, joined[2] = {T, D};
    for (int i = 0; i < 3; i++) {
        tt_block(b, "layers.%d", i);
        const tt_dim taps[2] = {D, TT_DIM(n_taps[i], NULL)};
        x = tt_add(b, x, tt_silu(b, tt_conv1d(b, x, param_of(b, "taps", taps, 2))));
        tt_value *v = tt_reshape(b, tt_linear(b, x, "v", D, NULL), rows, 4);
        tt_value *k = tt_linear(b, x, "k", TT_DIM(20, "heads"), NULL), *a;
        v = tt_mul(b, v, tt_reshape(b, k, columns, 4)); /* [T,H,6,5] */
        if (i == 0)
            a = tt_reshape(b, tt_linear(b, x, "a", TT_DIM(120, "heads"), NULL), states, 4);
        else if (i == 1)
            a = tt_reshape(b, tt_linear(b, x, "a", H, NULL), heads, 4);
        else
            a = param_of(b, "a", fixed, 4);
        v = tt_sum(b, tt_scan(b, tt_sigmoid(b, a), v), 3, 0);
        x = tt_add(b, x, tt_reshape(b, v, joined, 2));
        tt_block_end(b);
    }
    tt_output(b, "logits", tt_linear(b, tt_rms_norm(b, x, "norm", 1e-5), "head", V, NULL));
}

/* Attention of latent vectors with all its options. In the second block the latent vector is of 30 numbers, above
 * what a key and a value of the 2 heads have. */
static void describe_latent(const void *cfg, tt_builder *b)
{
    const tt_dim V = TT_DIM(263, "vocab"), D = TT_DIM(24, "embed"), H = TT_DIM(3, "heads");
    (void)cfg;
    tt_value *x = tt_embedding(b, tt_input(b, "ids"), "embed", V, D, NULL);
    for (int i = 0; i < 2; i++) {
        const int64_t n = i ? 5 : 7, r = i ? 3 : 6;
        tt_block(b, "layers.%d", i);
        const tt_param_opts po = {
            .init = {TT_INIT_NORMAL, 1.0, 0, 0}
        };
        const tt_attention_opts o = {.v_head_dim = i ? 9 : 4,
                                     .window = i ? 33 : 5,
                                     .softcap = i ? 2.0 : 0.0,
                                     .scale = 0.7,
                                     .sinks = i ? tt_param(b, "sinks", &H, 1, &po) : NULL};
        tt_value *y = tt_latent_attention(
            b, tt_linear(b, x, "q", TT_DIM_UNIT(3 * (n + r), "heads", n + r), NULL),
            tt_linear(b, x, "down", TT_DIM(i ? 30 : 11, NULL), NULL),
            tt_linear(b, x, "key", TT_DIM(r, NULL), NULL), "up", NULL, &o);
        x = tt_add(b, x, tt_linear(b, y, "o", D, NULL));
        tt_block_end(b);
    }
    tt_output(b, "logits", tt_linear(b, tt_rms_norm(b, x, "norm", 1e-5), "head", V, NULL));
}

/* An op without a kernel, placed before it is decomposed: with attention's incremental form, or with
 * none, or with a decomposition that mixes tokens though the op does not say so. */
static tt_op_def attend, attend_whole, attend_silent;
static const tt_op_def *const local_ops[] = {&attend, &attend_whole, &attend_silent};

static void decompose_attend(tt_builder *b, const tt_shape_query *q, tt_value *const *in,
                             tt_value **outs)
{
    tt_op(b, "attention", in, q->n_in, q->attrs, outs, 2);
}

static void make_local_ops(void)
{
    tt_op_table core = {0};
    core.core = tt_core_ops(&core.n_core);
    attend = *tt_op_find(&core, "attention");
    attend.flags |= TT_OP_LOCAL;
    attend.decompose = decompose_attend;
    attend.ring_form = NULL;
    attend.vjp = NULL;
    attend_whole = attend_silent = attend;
    attend.name = "attend";
    attend_whole.name = "attend_whole";
    attend_whole.incremental = NULL;
    attend_silent.name = "attend_silent";
    attend_silent.flags &= ~TT_OP_MIXES_TOKENS;
    attend_silent.incremental = NULL;
    more_ops = local_ops;
    n_more_ops = TT_COUNT(local_ops);
}

static void describe_attend(const void *cfg, tt_builder *b)
{
    const tt_op_def *const *def = cfg;
    const tt_dim V = TT_DIM(263, "vocab"), D = TT_DIM(24, "embed"), Q = TT_DIM_UNIT(24, "heads", 6);
    const tt_attrs_attention a = {.head_dim = 6, .v_head_dim = 6, .scale = 0.5};
    tt_value *pos = tt_input(b, "pos"), *seg = tt_input(b, "seg"), *y[2];
    tt_value *x = tt_embedding(b, tt_input(b, "ids"), "embed", V, D, NULL);
    for (int i = 0; i < 2; i++) {
        tt_block(b, "layers.%d", i);
        tt_value *in[7] = {tt_linear(b, x, "q", Q, NULL),
                           tt_linear(b, x, "k", Q, NULL),
                           tt_linear(b, x, "v", Q, NULL),
                           pos,
                           seg,
                           pos,
                           seg};
        tt_op(b, *def ? (*def)->name : "attention", in, 7, &a, y, 2);
        x = tt_add(b, x, tt_linear(b, y[0], "o", D, NULL));
        tt_block_end(b);
    }
    tt_output(b, "logits", tt_linear(b, tt_rms_norm(b, x, "norm", 1e-5), "head", V, NULL));
}

static const tt_op_def *called; /* by the models below; NULL: attention itself */
static void describe_called(const void *cfg, tt_builder *b)
{
    (void)cfg;
    describe_attend(&called, b);
}

static const tt_model_vt odd_vt = {sizeof odd_vt, NULL, 0, NULL, describe_odd, vocab, NULL, NULL},
                         biased_vt = {sizeof biased_vt, NULL,  0,    NULL,
                                      describe_biased,  vocab, NULL, NULL},
                         recurrent_vt = {sizeof recurrent_vt, NULL,  0,    NULL,
                                         describe_recurrent,  vocab, NULL, NULL},
                         latent_vt = {sizeof latent_vt, NULL,  0,    NULL,
                                      describe_latent,  vocab, NULL, NULL},
                         called_vt = {sizeof called_vt, NULL,  0,    NULL,
                                      describe_called,  vocab, NULL, NULL};

static void test_decoding_has_the_bits_of_the_whole_context(void **state)
{
    (void)state;
    for (size_t o = 0; o < TT_COUNT(exact_overrides); o++) {
        cache = TT_CACHE_HEADS;
        compare("llama3", LLAMA3_ARGS, &latent_vt, exact_overrides[o], 0);
        cache = TT_CACHE_AUTO;
        compare("llama3", LLAMA3_ARGS, &odd_vt, exact_overrides[o], 0);
        compare("llama3", LLAMA3_ARGS, &biased_vt, exact_overrides[o], 0);
        compare("llama3", LLAMA3_ARGS, &recurrent_vt, exact_overrides[o], 0);
    }
    compare("llama3", LLAMA3_ARGS, &recurrent_vt, OWN " debug.poison true backend.threads 1", 0);
}

static void test_decoding_agrees_by_the_reference(void **state)
{
    static const char reference[] = "backend.name reference backend.threads 1";
    (void)state;
    compare("llama3", LLAMA3_ARGS, &odd_vt, reference, 1e-5);
    compare("llama3", LLAMA3_ARGS, &biased_vt, reference, 1e-5);
    compare("llama3", LLAMA3_ARGS, &recurrent_vt, reference, 1e-5);
}

/* Sums are in another order than in the whole context. */
static void test_latent_vectors_are_enough(void **state)
{
    (void)state;
    cache = TT_CACHE_LATENT;
    for (size_t o = 0; o < TT_COUNT(near_overrides); o++)
        compare("llama3", LLAMA3_ARGS, &latent_vt, near_overrides[o], 1e-5);
    cache = TT_CACHE_AUTO;
    kept("llama3", LLAMA3_ARGS, &latent_vt, TT_CACHE_AUTO, (17 + 33) * 4, 3 * (17 + 17) * 4);
}

static void test_an_op_without_incremental_form_recomputes(void **state)
{
    const tt_decode_opts d = {.rows = PIECE, .slots = SLOTS, .length = 20, .cache = cache};
    program p;
    (void)state;
    open_program(&p, "llama3", LLAMA3_ARGS, &sums_vt, "backend.name reference", TT_MODE_DECODE, &d);
    assert_int_equal(p.j.setup.graph->slots, 0);
    assert_int_equal(p.j.setup.graph->length, 20);
    assert_int_equal(p.logits.shape[0], 20);
    close_program(&p);
}

/* It decodes by its incremental form, with the bits of attention. */
static void test_a_local_op_decodes_by_its_incremental_form(void **state)
{
    (void)state;
    make_local_ops();
    called = &attend;
    compare("llama3", LLAMA3_ARGS, &called_vt, OWN " backend.threads 1", 0);
    called = &attend_silent; /* decomposed when described, so that attention is seen in it */
    compare("llama3", LLAMA3_ARGS, &called_vt, OWN " backend.threads 1", 0);
}

static void test_a_local_op_without_one_recomputes(void **state)
{
    const tt_op_def *const ops[] = {NULL, &attend, &attend_whole, &attend_silent};
    const tt_decode_opts d = {.rows = PIECE, .slots = SLOTS, .length = 20, .cache = cache};
    want w[TT_COUNT(ops)];
    (void)state;
    make_local_ops();
    for (size_t i = 0; i < TT_COUNT(ops); i++) {
        called = ops[i];
        memset(&w[i], 0, sizeof w[i]);
        whole_logits(&w[i], "llama3", LLAMA3_ARGS, &called_vt, OWN " backend.threads 1");
        assert_memory_equal(w[i].logits, w[0].logits,
                            (size_t)(SLOTS * LENGTH * w[i].vocab) * sizeof(float));
    }
    for (size_t i = 0; i < TT_COUNT(ops); i++) {
        program p;
        called = ops[i];
        open_program(&p, "llama3", LLAMA3_ARGS, &called_vt, "backend.name cpu", TT_MODE_DECODE, &d);
        /* decomposed into attention, the silent one is decoded by attention's form */
        assert_int_equal(p.j.setup.graph->slots, ops[i] == &attend_whole ? 0 : SLOTS);
        close_program(&p);
        free(w[i].logits);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_decoding_has_the_bits_of_the_whole_context),
        cmocka_unit_test(test_decoding_agrees_by_the_reference),
        cmocka_unit_test(test_latent_vectors_are_enough),
        cmocka_unit_test(test_an_op_without_incremental_form_recomputes),
        cmocka_unit_test(test_a_local_op_decodes_by_its_incremental_form),
        cmocka_unit_test(test_a_local_op_without_one_recomputes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
