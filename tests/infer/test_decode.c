/* SPDX-License-Identifier: Apache-2.0 */
#include "exec/job.h"
#include "infer/generate.h"
#include <math.h>

/* Decoding compared with computing the whole context again: the logits of every token of several
 * sequences, which arrive in pieces and then one by one, all in one call. Equal bit for bit with
 * our own matrix products and the same instruction set; to 1e-5 with OpenBLAS, whose sums depend on
 * the number of rows. */

#define SLOTS 3
#define PIECE 16
#define LENGTH 330 /* more than one block of keys */

static tt_cache cache; /* of all programs; a test that changes it sets it back to TT_CACHE_AUTO */

static const char *const models[][2] = {
    {"llama3",      "{\"dim\":48,\"n_layers\":3,\"n_heads\":6,\"n_kv_heads\":2,\"hidden_dim\":70,"
               "\"vocab_size\":263}"                                                    },
    {"gpt2",        "{\"dim\":48,\"n_layers\":3,\"n_heads\":4,\"vocab_size\":263,\"n_positions\":330}"},
    {"qwen3",       "{\"dim\":40,\"n_layers\":3,\"n_heads\":4,\"n_kv_heads\":2,\"head_dim\":24,"
              "\"hidden_dim\":70,\"vocab_size\":263}"                                    },
    {"gemma3",
     "{\"dim\":40,\"n_layers\":3,\"n_heads\":4,\"n_kv_heads\":2,\"head_dim\":24,"
     "\"hidden_dim\":70,\"vocab_size\":263,\"sliding_window\":21,\"sliding_window_pattern\":2}"       },
    {"phi3",
     "{\"dim\":48,\"n_layers\":3,\"n_heads\":6,\"n_kv_heads\":2,\"hidden_dim\":70,"
     "\"vocab_size\":263,\"partial_rotary_factor\":0.75,\"sliding_window\":50,\"rope_scaling\":{"
     "\"rope_type\":\"longrope\",\"factor\":4,\"original_max_position_embeddings\":64,"
     "\"short_factor\":[1,1,1],\"long_factor\":[1.5,2.5,7]}}"                                         },
    {"olmo2",       "{\"dim\":48,\"n_layers\":3,\"n_heads\":6,\"n_kv_heads\":2,\"hidden_dim\":70,"
              "\"vocab_size\":263}"                                                      },
 /* experts: choices of all, biases, groups and shared experts */
    {"mixtral",     "{\"dim\":40,\"n_layers\":2,\"n_heads\":4,\"n_kv_heads\":2,\"hidden_dim\":30,"
                "\"vocab_size\":263,\"num_local_experts\":5,\"num_experts_per_tok\":5}"},
    {"qwen3_moe",
     "{\"dim\":40,\"n_layers\":3,\"n_heads\":4,\"n_kv_heads\":2,\"head_dim\":12,\"hidden_dim\":31,"
     "\"vocab_size\":263,\"num_experts\":7,\"num_experts_per_tok\":3,"
     "\"moe_intermediate_size\":13,\"mlp_only_layers\":[1]}"                                          },
    {"qwen3_next",
     "{\"dim\":40,\"n_layers\":3,\"n_heads\":4,\"n_kv_heads\":2,\"head_dim\":16,\"hidden_dim\":31,"
     "\"vocab_size\":263,\"full_attention_interval\":2,\"linear_num_key_heads\":2,"
     "\"linear_num_value_heads\":6,\"linear_key_head_dim\":10,\"linear_value_head_dim\":7,"
     "\"num_experts\":7,\"num_experts_per_tok\":3,\"moe_intermediate_size\":13}"                      },
    {"gpt_oss",
     "{\"dim\":40,\"n_layers\":3,\"n_heads\":4,\"n_kv_heads\":2,\"head_dim\":12,\"hidden_dim\":31,"
     "\"vocab_size\":263,\"num_local_experts\":6,\"num_experts_per_tok\":2,\"sliding_window\":21}"    },
    {"glm4_moe",
     "{\"dim\":40,\"n_layers\":3,\"n_heads\":4,\"n_kv_heads\":2,\"head_dim\":12,\"hidden_dim\":31,"
     "\"vocab_size\":263,\"num_experts\":8,\"num_experts_per_tok\":3,\"n_group\":4,"
     "\"topk_group\":2,\"moe_intermediate_size\":13}"                                                 },
    {"deepseek_v3",
     "{\"dim\":40,\"n_layers\":3,\"n_heads\":4,\"hidden_dim\":31,\"vocab_size\":263,"
     "\"kv_lora_rank\":20,\"qk_nope_head_dim\":10,\"qk_rope_head_dim\":6,\"v_head_dim\":10,"
     "\"num_experts\":8,\"num_experts_per_tok\":3,\"n_group\":4,\"topk_group\":2,"
     "\"moe_intermediate_size\":13,\"topk_method\":\"noaux_tc\",\"rope_scaling\":null}"               },
};

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

/* A sum along sequences, which a reshape split off: it has no incremental form. */
static void describe_sums(const void *cfg, tt_builder *b)
{
    const tt_dim V = TT_DIM(263, "vocab"), D = TT_DIM(24, "embed");
    (void)cfg;
    tt_value *x = tt_embedding(b, tt_input(b, "ids"), "embed", V, D, NULL);
    const tt_dim T = tt_value_type(x)->dims[0], joined[2] = {T, D},
                 apart[3] = {TT_DIM(T.lines, NULL), TT_DIM(T.size / T.lines, NULL), D};
    tt_value *sums = tt_cumsum(b, tt_reshape(b, x, apart, 3), 1, NULL);
    x = tt_add(b, x, tt_reshape(b, sums, joined, 2));
    tt_output(b, "logits", tt_linear(b, x, "head", V, NULL));
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

static int64_t vocab(const void *cfg)
{
    (void)cfg;
    return 263;
}
static const tt_model_vt
    odd_vt = {sizeof odd_vt, NULL, 0, NULL, describe_odd, vocab, NULL, NULL},
    biased_vt = {sizeof biased_vt, NULL, 0, NULL, describe_biased, vocab, NULL, NULL},
    recurrent_vt = {sizeof recurrent_vt, NULL, 0, NULL, describe_recurrent, vocab, NULL, NULL},
    sums_vt = {sizeof sums_vt, NULL, 0, NULL, describe_sums, vocab, NULL, NULL},
    latent_vt = {sizeof latent_vt, NULL, 0, NULL, describe_latent, vocab, NULL, NULL},
    called_vt = {sizeof called_vt, NULL, 0, NULL, describe_called, vocab, NULL, NULL};

typedef struct program {
    job j;
    tt_component model;
    tt_rank rank;
    tt_tensor logits;
} program;

/* vt: the model to use instead of the spec's. */
static void open_program(program *p, const char *spec, const char *args, const tt_model_vt *vt,
                         const char *overrides, tt_mode mode, const tt_decode_opts *d)
{
    char text[1024], all[1024];
    const tt_setup_opts parts = {.mode = mode};
    const tt_setup_opts whole = {.mode = mode, .decode = *d};
    const tt_dist one = {.world = 1};
    tt_error err = {0};
    memset(p, 0, sizeof *p);
    tt_log_setup(TT_ERROR, 0, 1, false);
    snprintf(text, sizeof text,
             "{\"spec\":\"%s\",\"model\":{\"flavor\":\"debugmodel\",\"args\":%s},"
             "\"training\":{\"local_batch_size\":1,\"seq_len\":%d},\"dataloader\":{\"name\":"
             "\"text\"}}",
             spec, args ? args : "{}", LENGTH);
    snprintf(all, sizeof all, "%s", overrides);
    tt_setup_opts with_data = parts;
    with_data.data = true;
    if (job_try(&p->j, text, all, &with_data, &err) != TT_OK)
        fail_msg("%s: %s", spec, err.text);
    tt_setup *s = &p->j.setup;
    if (vt) {
        p->model = *s->model.component;
        p->model.vtable = vt;
        s->model.component = &p->model;
    }
    s->ops.extra = local_ops;
    s->ops.n_extra = TT_COUNT(local_ops);
    if (tt_setup_compile(s, &whole, &err) != TT_OK ||
        tt_rank_open(s, &one, false, &p->rank, &err) != TT_OK ||
        tt_exec_state_tensor(p->rank.exec, TT_METRIC_LOGITS, &p->logits, &err) != TT_OK)
        fail_msg("%s %s: %s", spec, overrides, err.text);
    assert_int_equal(tt_rank_init_params(&p->rank, &err), TT_OK);
}

static void close_program(program *p)
{
    tt_rank_close(&p->rank);
    job_close(&p->j);
}

static int32_t token(int64_t sequence, int64_t pos)
{
    return (int32_t)((pos * 7919 + sequence * 104729 + pos * pos % 31) % 263);
}

typedef struct call {
    int32_t ids[PIECE], pos[PIECE], slot[PIECE], pick[SLOTS];
    int64_t n, n_pick;
} call;

static tt_status fill_call(void *user, const char *input, int micro, int64_t begin, int64_t end,
                           int32_t *dst, tt_error *err)
{
    const call *c = user;
    const int32_t *src = !strcmp(input, "pick")  ? c->pick
                         : !strcmp(input, "ids") ? c->ids
                         : !strcmp(input, "pos") ? c->pos
                                                 : c->slot;
    (void)micro;
    (void)err;
    memcpy(dst, src + begin, (size_t)(end - begin) * sizeof *dst);
    return TT_OK;
}

static tt_status fill_whole(void *user, const char *input, int micro, int64_t begin, int64_t end,
                            int32_t *dst, tt_error *err)
{
    const int64_t sequence = *(const int64_t *)user;
    (void)micro;
    (void)err;
    for (int64_t t = begin; t < end; t++)
        dst[t - begin] = !strcmp(input, "ids")   ? token(sequence, t)
                         : !strcmp(input, "pos") ? (int32_t)t
                                                 : 0;
    return TT_OK;
}

typedef struct want {
    float *logits; /* [SLOTS][LENGTH][vocab] of the whole context */
    int64_t vocab;
    double tolerance; /* 0: every bit */
    const char *name;
    int64_t compared;
} want;

static void run_call(program *p, call *c)
{
    tt_error err = {0};
    tt_exec_set_rows(p->rank.exec, c->n, c->n_pick);
    if (tt_exec_micro_batches(p->rank.exec, 1, fill_call, c, &err) != TT_OK)
        fail_msg("%s", err.text);
}

static void check_row(const program *p, want *w, int64_t row, int64_t sequence, int64_t pos)
{
    const float *got = (const float *)p->logits.data + row * w->vocab,
                *whole = w->logits + (sequence * LENGTH + pos) * w->vocab;
    double largest = 1;
    for (int64_t i = 0; i < w->vocab; i++)
        largest = fmax(largest, fabs((double)whole[i]));
    for (int64_t i = 0; i < w->vocab; i++)
        if (w->tolerance > 0 ? !(fabs((double)got[i] - (double)whole[i]) <= w->tolerance * largest)
                             : memcmp(&got[i], &whole[i], sizeof *got))
            fail_msg("%s: sequence %lld, token %lld, logit %lld: %.9g, of the whole context %.9g",
                     w->name, (long long)sequence, (long long)pos, (long long)i, (double)got[i],
                     (double)whole[i]);
    w->compared++;
}

static void add_token(call *c, int64_t sequence, int64_t pos, int64_t slot, bool pick)
{
    c->ids[c->n] = token(sequence, pos);
    c->pos[c->n] = (int32_t)pos;
    c->slot[c->n] = (int32_t)slot;
    if (pick)
        c->pick[c->n_pick++] = (int32_t)c->n;
    c->n++;
}

/* Computes a prompt in pieces; returns the logits of the last token of each piece. */
static void prompt(program *p, want *w, int64_t sequence, int64_t slot, int64_t n)
{
    for (int64_t t = 0; t < n; t += PIECE) {
        call c = {.n = 0};
        const int64_t end = TT_MIN(t + PIECE, n);
        for (int64_t k = t; k < end; k++)
            add_token(&c, sequence, k, slot, k == end - 1);
        run_call(p, &c);
        check_row(p, w, 0, sequence, end - 1);
    }
}

/* Computes one more token of every sequence that is not finished, until all are. */
static void steps(program *p, want *w, int64_t *at, const int64_t *slot)
{
    for (;;) {
        call c = {.n = 0};
        for (int64_t s = 0; s < SLOTS; s++)
            if (at[s] < LENGTH)
                add_token(&c, s, at[s], slot[s], true);
        if (!c.n)
            return;
        run_call(p, &c);
        for (int64_t s = 0, row = 0; s < SLOTS; s++)
            if (at[s] < LENGTH)
                check_row(p, w, row++, s, at[s]++);
    }
}

static void whole_logits(want *w, const char *spec, const char *args, const tt_model_vt *vt,
                         const char *overrides)
{
    program p;
    tt_error err = {0};
    const tt_decode_opts none = {0};
    open_program(&p, spec, args, vt, overrides, TT_MODE_LOGITS, &none);
    w->vocab = p.logits.shape[1];
    assert_int_equal(p.logits.shape[0], LENGTH);
    const size_t bytes = (size_t)(LENGTH * w->vocab) * sizeof(float);
    w->logits = malloc(SLOTS * bytes);
    for (int64_t s = 0; s < SLOTS; s++) {
        if (tt_exec_micro_batches(p.rank.exec, 1, fill_whole, &s, &err) != TT_OK)
            fail_msg("%s", err.text);
        memcpy(w->logits + s * LENGTH * w->vocab, p.logits.data, bytes);
    }
    close_program(&p);
}

static void compare(const char *spec, const char *args, const tt_model_vt *vt,
                    const char *overrides, double tolerance)
{
    const tt_decode_opts d = {.rows = PIECE, .slots = SLOTS, .length = LENGTH, .cache = cache};
    const int64_t slot[SLOTS] = {2, 0, 1};
    int64_t at[SLOTS] = {1, 300, 17};
    want w = {.tolerance = tolerance, .name = vt == &odd_vt ? "odd" : vt ? "recurrent" : spec};
    program p;
    whole_logits(&w, spec, args, vt, overrides);
    open_program(&p, spec, args, vt, overrides, TT_MODE_DECODE, &d);
    assert_int_equal(p.j.setup.graph->slots, SLOTS);
    assert_int_equal(p.logits.shape[0], SLOTS);
    /* what another sequence left in the slots is not seen */
    for (int64_t s = 0; s < SLOTS; s++)
        prompt(&p, &w, s, (slot[s] + 1) % SLOTS, 33);
    for (int64_t s = 0; s < SLOTS; s++)
        prompt(&p, &w, s, slot[s], at[s]);
    steps(&p, &w, at, slot);
    assert_int_equal(w.compared, 3 * 3 + 1 + 19 + 2 + 3 * LENGTH - 1 - 300 - 17);
    free(w.logits);
    close_program(&p);
}

/* Products that give a row the same bits for any number of rows. */
#define OWN "backend.name cpu backend.blas own backend.f32_products fma"

/* The chunks of a delta net begin where a call begins, so its sums are in another order than in the whole context. */
static double tolerance_of(const char *spec)
{
    return strcmp(spec, "qwen3_next") == 0 ? 1e-5 : 0.0;
}

static void test_decoding_has_the_bits_of_the_whole_context(void **state)
{
    static const char *const overrides[] = {
        OWN " backend.threads 1",
        OWN " backend.threads 2",
        OWN " backend.isa generic backend.threads 1",
        OWN " debug.disable_fusion true backend.threads 1",
    };
    (void)state;
    for (size_t o = 0; o < TT_COUNT(overrides); o++) {
        for (size_t m = 0; m < TT_COUNT(models); m++) {
            cache = strcmp(models[m][0], "deepseek_v3") ? TT_CACHE_AUTO : TT_CACHE_HEADS;
            compare(models[m][0], models[m][1], NULL, overrides[o], tolerance_of(models[m][0]));
        }
        compare("llama3", models[0][1], &latent_vt, overrides[o], 0); /* heads */
        cache = TT_CACHE_AUTO;
        compare("llama3", models[0][1], &odd_vt, overrides[o], 0);
        compare("llama3", models[0][1], &biased_vt, overrides[o], 0);
        compare("llama3", models[0][1], &recurrent_vt, overrides[o], 0);
    }
}

/* The sums of a chunk begin anew in its cache, so they are in another order than in the whole context. */
static void test_decoding_agrees_in_chunks(void **state)
{
    static const char chunks[] = "{\"dim\":40,\"n_layers\":4,\"n_heads\":4,\"n_kv_heads\":2,\"head_"
                                 "dim\":12,\"hidden_dim\":31,"
                                 "\"vocab_size\":263,\"num_experts\":6,\"moe_intermediate_size\":"
                                 "13,\"attention_chunk_size\":21}";
    (void)state;
    compare("llama4", chunks, NULL, OWN " backend.threads 1", 1e-5);
    compare("llama4", chunks, NULL, OWN " debug.poison true backend.threads 2", 1e-5);
    compare("llama4", chunks, NULL, "backend.name reference backend.threads 1", 1e-5);
}

static void test_decoding_agrees_where_sums_depend_on_rows(void **state)
{
    (void)state;
    static const char *const overrides[] = {
        "backend.name cpu backend.blas openblas backend.threads 1",
        "backend.name cpu backend.blas own backend.f32_products auto backend.threads 1", /* AMX */
    };
    for (size_t o = 0; o < TT_COUNT(overrides); o++)
        for (size_t m = 0; m < TT_COUNT(models); m++)
            compare(models[m][0], models[m][1], NULL, overrides[o], 1e-5);
    compare("llama3", models[0][1], &odd_vt, "backend.name reference backend.threads 1", 1e-5);
    compare("llama3", models[0][1], &biased_vt, "backend.name reference backend.threads 1", 1e-5);
    compare("llama3", models[0][1], &recurrent_vt, "backend.name reference backend.threads 1",
            1e-5);
}

/* Bytes that were not written are NaN: a decoding program must not read them. */
static void test_decoding_reads_only_cached_tokens(void **state)
{
    (void)state;
    compare(models[0][0], models[0][1], NULL, OWN " debug.poison true backend.threads 1", 0);
    compare("llama3", models[0][1], &recurrent_vt, OWN " debug.poison true backend.threads 1", 0);
    for (size_t m = 0; m < TT_COUNT(models); m++) {
        cache = TT_CACHE_HEADS;
        if (strstr(models[m][1], "num_experts_per_tok"))
            compare(models[m][0], models[m][1], NULL, OWN " debug.poison true backend.threads 1",
                    tolerance_of(models[m][0]));
    }
    cache = TT_CACHE_AUTO;
}

/* Sums are in another order than in the whole context. */
#define WITHIN 1e-5

static void test_latent_vectors_are_enough(void **state)
{
    static const char *const overrides[] = {
        OWN " backend.threads 1",
        OWN " backend.threads 2",
        OWN " backend.isa generic backend.threads 1",
        OWN " debug.disable_fusion true backend.threads 1",
        OWN " debug.poison true backend.threads 2",
        "backend.name cpu backend.blas openblas backend.threads 1",
        "backend.name reference backend.threads 1",
    };
    static const char odd_sizes[] =
        "{\"dim\":40,\"n_layers\":2,\"n_heads\":5,\"hidden_dim\":31,\"vocab_size\":263,"
        "\"q_lora_rank\":18,\"kv_lora_rank\":21,\"qk_nope_head_dim\":9,\"qk_rope_head_dim\":4,"
        "\"v_head_dim\":11,\"num_experts\":6,\"num_experts_per_tok\":2,"
        "\"moe_intermediate_size\":13}";
    (void)state;
    cache = TT_CACHE_LATENT;
    for (size_t o = 0; o < TT_COUNT(overrides); o++) {
        compare("deepseek_v3", models[TT_COUNT(models) - 1][1], NULL, overrides[o], WITHIN);
        compare("llama3", models[0][1], &latent_vt, overrides[o], WITHIN);
    }
    compare("deepseek_v3", odd_sizes, NULL, overrides[1], WITHIN);
    cache = TT_CACHE_AUTO;
}

static void kept(const char *spec, const char *args, const tt_model_vt *vt, tt_cache c,
                 double bytes, double heads)
{
    const tt_decode_opts d = {.rows = PIECE, .slots = SLOTS, .length = LENGTH, .cache = c};
    program p;
    open_program(&p, spec, args, vt, "backend.name cpu backend.threads 1", TT_MODE_DECODE, &d);
    const tt_graph *g = p.j.setup.graph;
    if (g->kept_bytes != bytes || g->heads_bytes != heads)
        fail_msg("%s: %g bytes per token, of heads %g; expected %g and %g", spec, g->kept_bytes,
                 g->heads_bytes, bytes, heads);
    int64_t total = 0;
    for (size_t i = 0; i < g->states.n; i++)
        if (g->states.items[i]->kind == TT_STATE_MEMORY)
            total += tt_type_numel(&g->states.items[i]->type) * 4;
    assert_int_equal(total, (int64_t)bytes * SLOTS * ((LENGTH + 31) / 32 * 32));
    close_program(&p);
}

static void test_what_has_fewer_bytes_is_kept(void **state)
{
    const char *deepseek = models[TT_COUNT(models) - 1][1];
    (void)state;
    kept("llama3", models[0][1], NULL, TT_CACHE_AUTO, 3 * 2 * 16 * 4, 3 * 2 * 16 * 4);
    kept("deepseek_v3", deepseek, NULL, TT_CACHE_AUTO, 3 * 26 * 4, 3 * 4 * 26 * 4);
    kept("deepseek_v3", deepseek, NULL, TT_CACHE_LATENT, 3 * 26 * 4, 3 * 4 * 26 * 4);
    kept("deepseek_v3", deepseek, NULL, TT_CACHE_HEADS, 3 * 4 * 26 * 4, 3 * 4 * 26 * 4);
    kept("llama3", models[0][1], &latent_vt, TT_CACHE_AUTO, (17 + 33) * 4, 3 * (17 + 17) * 4);
    /* one head of 16 + 4 is less than the latent vector */
    kept("deepseek_v3",
         "{\"dim\":40,\"n_layers\":2,\"n_heads\":1,\"hidden_dim\":31,\"vocab_size\":263,"
         "\"kv_lora_rank\":20,\"qk_nope_head_dim\":10,\"qk_rope_head_dim\":6,\"v_head_dim\":4,"
         "\"num_experts\":4,\"num_experts_per_tok\":2,\"moe_intermediate_size\":13}",
         NULL, TT_CACHE_AUTO, 2 * 20 * 4, 2 * 20 * 4);
}

static void test_an_op_without_incremental_form_recomputes(void **state)
{
    const tt_decode_opts d = {.rows = PIECE, .slots = SLOTS, .length = 20, .cache = cache};
    program p;
    (void)state;
    open_program(&p, "llama3", models[0][1], &sums_vt, "backend.name reference", TT_MODE_DECODE,
                 &d);
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
    compare("llama3", models[0][1], &called_vt, OWN " backend.threads 1", 0);
    called = &attend_silent; /* decomposed when described, so that attention is seen in it */
    compare("llama3", models[0][1], &called_vt, OWN " backend.threads 1", 0);
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
        whole_logits(&w[i], "llama3", models[0][1], &called_vt, OWN " backend.threads 1");
        assert_memory_equal(w[i].logits, w[0].logits,
                            (size_t)(SLOTS * LENGTH * w[i].vocab) * sizeof(float));
    }
    for (size_t i = 0; i < TT_COUNT(ops); i++) {
        program p;
        called = ops[i];
        open_program(&p, "llama3", models[0][1], &called_vt, "backend.name cpu", TT_MODE_DECODE,
                     &d);
        /* decomposed into attention, the silent one is decoded by attention's form */
        assert_int_equal(p.j.setup.graph->slots, ops[i] == &attend_whole ? 0 : SLOTS);
        close_program(&p);
        free(w[i].logits);
    }
}

static void test_a_table_of_positions_bounds_the_context(void **state)
{
    const tt_decode_opts d = {.rows = PIECE, .slots = SLOTS, .length = 4096, .cache = cache};
    program p;
    (void)state;
    open_program(&p, models[1][0], models[1][1], NULL, "backend.threads 1", TT_MODE_DECODE, &d);
    assert_int_equal(p.j.setup.graph->length, 330);
    close_program(&p);
    open_program(&p, models[0][0], models[0][1], NULL, "backend.threads 1", TT_MODE_DECODE, &d);
    assert_int_equal(p.j.setup.graph->length, 4096);
    close_program(&p);
}

/* ---- tt_generate ---- */

#define TEXTS 7

typedef struct texts {
    int32_t ids[TEXTS][LENGTH];
    size_t n[TEXTS];
    tt_finish finish[TEXTS];
} texts;

static void generate(texts *out, int64_t slots, const tt_model_vt *vt, size_t only, int32_t stop)
{
    static const int64_t prompts[TEXTS] = {1, 5, LENGTH - 20, 16, 17, 2, LENGTH};
    const tt_decode_opts d = {.rows = PIECE, .slots = slots, .length = LENGTH, .cache = cache};
    int32_t ids[TEXTS][LENGTH];
    tt_sequence s[TEXTS];
    tt_generate_stats stats;
    tt_error err = {0};
    program p;
    open_program(&p, "llama3", models[0][1], vt,
                 vt ? "backend.name reference" : "backend.name cpu backend.blas own",
                 TT_MODE_DECODE, &d);
    for (size_t i = 0; i < TEXTS; i++) {
        for (int64_t t = 0; t < prompts[i]; t++)
            ids[i][t] = token((int64_t)i, t);
        s[i] = (tt_sequence){.prompt = ids[i], .n_prompt = prompts[i], .stream = i};
    }
    const tt_generate_opts o = {
        .exec = p.rank.exec,
        .graph = p.j.setup.graph,
        .vocab = 260,
        .max_new = 30,
        .stop_ids = &stop,
        .n_stop_ids = stop >= 0,
        .sampling = {.temperature = 1.3, .top_k = 50, .top_p = 0.9, .seed = 5}
    };
    const bool one = only < TEXTS;
    if (tt_generate(&o, one ? &s[only] : s, one ? 1 : TEXTS, &stats, &err) != TT_OK)
        fail_msg("%s", err.text);
    for (size_t i = one ? only : 0; i < (one ? only + 1 : TEXTS); i++) {
        out->n[i] = s[i].ids.n;
        out->finish[i] = s[i].finish;
        memcpy(out->ids[i], s[i].ids.ids, s[i].ids.n * sizeof(int32_t));
        for (size_t k = 0; k < s[i].ids.n; k++)
            assert_in_range(s[i].ids.ids[k], 0, 259);
        tt_ids_free(&s[i].ids);
    }
    close_program(&p);
}

static void same_text(const texts *a, const texts *b, size_t i)
{
    assert_int_equal(a->n[i], b->n[i]);
    assert_int_equal(a->finish[i], b->finish[i]);
    assert_memory_equal(a->ids[i], b->ids[i], a->n[i] * sizeof(int32_t));
}

static void test_a_text_does_not_depend_on_other_texts(void **state)
{
    texts all, few, single;
    (void)state;
    generate(&all, TEXTS, NULL, TEXTS, -1);
    generate(&few, 2, NULL, TEXTS, -1);
    for (size_t i = 0; i < TEXTS; i++) {
        same_text(&all, &few, i);
        generate(&single, 1, NULL, i, -1);
        same_text(&all, &single, i);
    }
    assert_int_equal(all.n[0], 30);
    assert_int_equal(all.finish[0], TT_FINISH_LENGTH);
    assert_int_equal(all.n[2], 21); /* the last one needs no position of its own */
    assert_int_equal(all.finish[2], TT_FINISH_CONTEXT);
    assert_int_equal(all.n[6], 1);
    assert_true(memcmp(all.ids[0], all.ids[1], 30 * sizeof(int32_t)) != 0);
}

static void test_an_id_that_ends_a_text_is_not_in_it(void **state)
{
    texts all, cut;
    (void)state;
    generate(&all, 3, NULL, TEXTS, -1);
    const int32_t stop = all.ids[1][11];
    generate(&cut, 3, NULL, TEXTS, stop);
    size_t first = 0;
    while (all.ids[1][first] != stop)
        first++;
    assert_int_equal(cut.n[1], first);
    assert_int_equal(cut.finish[1], TT_FINISH_STOP);
    assert_memory_equal(all.ids[1], cut.ids[1], first * sizeof(int32_t));
}

static void test_generation_without_a_cache_recomputes_the_context(void **state)
{
    texts a, b;
    (void)state;
    generate(&a, 3, &sums_vt, TEXTS, -1);
    generate(&b, 1, &sums_vt, 3, -1);
    same_text(&a, &b, 3);
    assert_int_equal(a.n[0], 30);
    assert_int_equal(a.finish[2], TT_FINISH_CONTEXT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_decoding_has_the_bits_of_the_whole_context),
        cmocka_unit_test(test_decoding_agrees_in_chunks),
        cmocka_unit_test(test_decoding_agrees_where_sums_depend_on_rows),
        cmocka_unit_test(test_decoding_reads_only_cached_tokens),
        cmocka_unit_test(test_latent_vectors_are_enough),
        cmocka_unit_test(test_what_has_fewer_bytes_is_kept),
        cmocka_unit_test(test_an_op_without_incremental_form_recomputes),
        cmocka_unit_test(test_a_local_op_decodes_by_its_incremental_form),
        cmocka_unit_test(test_a_local_op_without_one_recomputes),
        cmocka_unit_test(test_a_table_of_positions_bounds_the_context),
        cmocka_unit_test(test_a_text_does_not_depend_on_other_texts),
        cmocka_unit_test(test_an_id_that_ends_a_text_is_not_in_it),
        cmocka_unit_test(test_generation_without_a_cache_recomputes_the_context),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
