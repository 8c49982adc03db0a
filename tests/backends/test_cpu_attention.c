/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "attention_twin.h"
#include "tier.h"
#include <float.h>

/* attention and attention_bwd of the cpu backend against plain loops in double; the gradients of
 * those loops against finite differences of themselves. */

static void check(const problem *p)
{
    data d = make(p);
    const tt_attrs_attention at = ATTRS(p);
    double *q = doubles(&d.q), *k = doubles(&d.k), *v = doubles(&d.v), *s = doubles(&d.sinks);
    double *out = zeros(p->tq * p->heads * p->dv), *lse = zeros(p->tq * p->heads),
           *dq = zeros(p->tq * p->heads * p->hd);
    double *dk = zeros(p->tk * p->kv * p->hd), *dv = zeros(p->tk * p->kv * p->dv),
           *ds = zeros(p->heads), *dbias = zeros(p->heads * p->distances);
    const int biased = p->distances > 0, drops = p->dropout > 0;
    const double wide =
        1 / (1 - p->dropout); /* weights, and so their rounding, are larger by this */
    forward(p, &d, q, k, v, s, out, lse);
    backward(p, &d, q, k, v, s, dq, dk, dv, ds, dbias);
    EACH_ISA
    {
        tt_tensor in[10] = {d.q, d.k, d.v, d.pos_q, d.seg_q, d.pos_k, d.seg_k},
                  o[] = {d.out, d.lse};
        int n = 7;
        if (p->sinks)
            in[n++] = d.sinks;
        if (biased)
            in[n++] = d.bias;
        if (drops)
            in[n++] = d.token_index;
        run(isa, "attention", in, n, o, 2, &at);
        assert_near("out", isa, fp(&d.out), out, p->tq * p->heads * p->dv, 2e-6 * wide);
        assert_near("lse", isa, fp(&d.lse), lse, p->tq * p->heads, 2e-6);
        tt_tensor bi[12] = {d.q,     d.k,     d.v,     d.out,   d.lse, d.dout,
                            d.pos_q, d.seg_q, d.pos_k, d.seg_k, d.bias};
        bi[10 + biased] = drops ? d.token_index : d.bias;
        tt_tensor bo[] = {d.dq, d.dk, d.dv, d.dbias};
        if (biased) {
            run(isa, "attention_bias_bwd", bi, 11 + drops, bo, 4, &at);
            assert_near("dbias", isa, fp(&d.dbias), dbias, p->heads * p->distances, 2e-5 * wide);
        }
        run(isa, "attention_bwd", bi, 10 + biased + drops, bo, 3, &at);
        assert_near("dq", isa, fp(&d.dq), dq, p->tq * p->heads * p->hd, 1e-5 * wide);
        assert_near("dk", isa, fp(&d.dk), dk, p->tk * p->kv * p->hd, 2e-5 * wide);
        assert_near("dv", isa, fp(&d.dv), dv, p->tk * p->kv * p->dv, 2e-5 * wide);
    }
    double *all[] = {q, k, v, s, out, lse, dq, dk, dv, ds, dbias};
    for (size_t i = 0; i < TT_COUNT(all); i++)
        free(all[i]);
    release(&d);
}

static problem plain(int64_t tokens, int64_t heads, int64_t kv, int64_t hd)
{
    return (problem){tokens, tokens, heads, kv, hd, hd, 0, 0, 1 / sqrt((double)hd),
                     0,      0,      1,     0,  0,  0,  0};
}

static void test_attention_matches_double_for_many_shapes(void **state)
{
    static const int64_t hds[] = {1, 3, 8, 16, 20, 24, 32, 40, 64, 72, 80, 96, 128, 160, 256};
    static const int64_t ts[] = {1, 2, 13, 48, 97, 200};
    (void)state;
    for (size_t i = 0; i < TT_COUNT(hds); i++)
        for (size_t j = 0; j < TT_COUNT(ts); j++) {
            problem p = plain(ts[j], 4, i % 2 ? 2 : 1, hds[i]);
            check(&p);
        }
    problem p = plain(700, 2, 2, 16);
    check(&p);
    p = plain(150, 18, 18, 8); /* more kv heads than tasks aimed at */
    check(&p);
}

static void test_attention_variants_match_double(void **state)
{
    (void)state;
    for (int v = 0; v < 64; v++) {
        problem p = plain(150, 4, 2, 16);
        p.dv = v & 1 ? 24 : 16;
        p.window = v & 2 ? 37 : 0;
        p.softcap = v & 4 ? 0.7 : 0;
        p.sinks = v >> 3 & 1;
        p.bidirectional = v >> 4 & 1;
        p.lines = v & 32 ? 5 : 1;
        p.scale = 1.5;
        check(&p);
    }
}

/* A bias with as many distances as there are, fewer, and one; queries of several documents, where a
 * vector of queries is at positions that do not follow each other; other ranks' keys. */
static void test_attention_with_a_bias_matches_double(void **state)
{
    static const int64_t distances[] = {1, 20, 150, 299};
    (void)state;
    for (int v = 0; v < 64; v++) {
        problem p = plain(150, 4, 2, 16);
        p.window = v & 1 ? 37 : 0;
        p.softcap = v & 2 ? 0.7 : 0;
        p.sinks = v >> 2 & 1;
        p.bidirectional = v >> 3 & 1;
        p.lines = v & 3 ? 5 : 1;
        p.scale = 1.5;
        p.distances = distances[v >> 4];
        check(&p);
    }
    problem p = plain(700, 4, 2, 24); /* several parts of keys per kv head */
    p.distances = 700;
    check(&p);
    p = plain(300, 3, 1, 16);
    p.tq = 77;
    p.distances = 9;
    check(&p);
    p = plain(100, 2, 2, 16);
    p.first_head = 2;
    p.all_heads = 4;
    p.distances = 64;
    check(&p);
    p = plain(10, 2, 1, 16);
    p.distances = 3;
    p.tk = 0;
    check(&p);
    p.tk = 10;
    p.tq = 0;
    check(&p);
}

/* The weights that are dropped, forward and backward, with all that attention can have, and of any rank's
 * queries and heads. */
static void test_attention_with_dropout_matches_double(void **state)
{
    static const double rates[] = {0.1, 0.5, 0.93};
    (void)state;
    for (int v = 0; v < 64; v += is_long() ? 1 : 3) {
        problem p = plain(150, 4, 2, v & 32 ? 24 : 16);
        p.window = v & 1 ? 37 : 0;
        p.softcap = v & 2 ? 0.7 : 0;
        p.sinks = v >> 2 & 1;
        p.bidirectional = v >> 3 & 1;
        p.lines = v & 3 ? 5 : 1;
        p.scale = 1.5;
        p.distances = v & 16 ? 20 : 0;
        p.dropout = rates[v % 3];
        check(&p);
    }
    problem p = plain(700, 2, 1, 16); /* several parts of keys per kv head */
    p.dropout = 0.3;
    check(&p);
    p = plain(300, 4, 2, 16);
    p.tq = 77;
    p.dropout = 0.3;
    check(&p);
    p = plain(100, 2, 2, 16);
    p.first_head = 2;
    p.all_heads = 4;
    p.dropout = 0.3;
    check(&p);
    p = plain(10, 2, 1, 16);
    p.dropout = 0.3;
    p.tk = 0;
    check(&p);
    p.tk = 10;
    p.tq = 0;
    check(&p);
}

static void test_attention_sees_keys_of_other_ranks(void **state)
{
    (void)state;
    problem p = plain(300, 4, 2, 16);
    p.tq = 77; /* context parallel: fewer queries than keys */
    check(&p);
    p = plain(100, 2, 2, 16); /* heads 2, 3 of 4: both belong to the second of two kv heads */
    p.first_head = 2;
    p.all_heads = 4;
    check(&p);
    p = plain(50, 3, 1, 16);
    p.tk = 20; /* fewer keys than queries */
    check(&p);
}

static void test_attention_of_no_tokens_computes_nothing(void **state)
{
    (void)state;
    problem p = plain(10, 2, 1, 16);
    p.tk = 0;
    check(&p);
    p = plain(10, 2, 1, 16);
    p.tq = 0;
    check(&p);
    p.tk = 0;
    check(&p);
}

enum { LINE = 384 }; /* whole blocks of any level, of queries and of keys */

static void spoil(tt_tensor *t, int64_t begin, int64_t end)
{
    const int64_t width = t->shape[1];
    for (int64_t i = begin * width; i < end * width; i++)
        fp(t)[i] = NAN;
}

static void forward_and_backward(int isa, const problem *p, data *d)
{
    const tt_attrs_attention at = ATTRS(p);
    tt_tensor in[] = {d->q, d->k, d->v, d->pos_q, d->seg_q, d->pos_k, d->seg_k};
    tt_tensor o[] = {d->out, d->lse}, bo[] = {d->dq, d->dk, d->dv};
    run(isa, "attention", in, 7, o, 2, &at);
    tt_tensor bi[] = {d->q,    d->k,     d->v,     d->out,   d->lse,
                      d->dout, d->pos_q, d->seg_q, d->pos_k, d->seg_k};
    run(isa, "attention_bwd", bi, 10, bo, 3, &at);
}

/* Rows [begin, end) of the outputs have the same bits. */
static void assert_rows_equal(const char *what, int isa, const tt_tensor *got,
                              const tt_tensor *want, int64_t begin, int64_t end)
{
    const size_t row = (size_t)got->shape[1] * sizeof(float);
    if (memcmp((char *)got->data + (size_t)begin * row, (char *)want->data + (size_t)begin * row,
               (size_t)(end - begin) * row))
        fail_msg("%s (%s): rows %d to %d read what they cannot see", what, H.isa[isa], (int)begin,
                 (int)end);
}

/* Blocks that no query sees are not computed: NaN times a weight of zero would be NaN. */
static void test_attention_skips_blocks_that_are_not_seen(void **state)
{
    problem p = plain(3 * LINE, 4, 2, 32);
    (void)state;
    p.lines = 3;
    EACH_ISA
    {
        data d = make(&p);
        ip(&d.seg_q)[3] = 0; /* a plain batch of three lines */
        forward_and_backward(isa, &p, &d);
        const tt_tensor *kept[] = {&d.out, &d.lse, &d.dq, &d.dk, &d.dv};
        tt_tensor want[5];
        for (int i = 0; i < 5; i++) {
            want[i] = F32(kept[i]->shape[0], kept[i]->shape[1]);
            memcpy(want[i].data, kept[i]->data, (size_t)tt_tensor_numel(kept[i]) * sizeof(float));
        }
        tt_tensor *spoilt[] = {&d.q, &d.k, &d.v, &d.dout};
        for (int i = 0; i < 4; i++) { /* other lines than the second */
            spoil(spoilt[i], 0, LINE);
            spoil(spoilt[i], 2 * LINE, 3 * LINE);
        }
        forward_and_backward(isa, &p, &d);
        for (int i = 0; i < 5; i++)
            assert_rows_equal("another segment", isa, kept[i], &want[i], LINE, 2 * LINE);
        spoil(&d.k, LINE + LINE / 2, 2 * LINE); /* and the keys behind its first half */
        spoil(&d.v, LINE + LINE / 2, 2 * LINE);
        forward_and_backward(isa, &p, &d);
        for (int i = 0; i < 3; i++)
            assert_rows_equal("later keys", isa, kept[i], &want[i], LINE, LINE + LINE / 2);
        drop(want, 5);
        release(&d);
    }
}

static size_t scratch_of(const char *op, int64_t tokens)
{
    const tt_kernel *k = H.vt->kernel(H.self[0], op);
    const tt_attrs_attention at = {.head_dim = 64, .v_head_dim = 64, .scale = 0.125};
    const bool backward_ = strstr(op, "bwd") != NULL;
    tt_tensor x =
                  {
                      .dtype = TT_F32,
                      .n_dims = 2,
                      .shape = {tokens, 512},
                      .global = {tokens, 512}
    },
              l = {.dtype = TT_F32, .n_dims = 2, .shape = {tokens, 8}, .global = {tokens, 8}},
              i = {.dtype = TT_I32, .n_dims = 1, .shape = {tokens}, .global = {tokens}};
    tt_tensor in[] = {x, x, x, i, i, i, i}, out[] = {x, l}, bi[] = {x, x, x, x, l, x, i, i, i, i},
              bo[] = {x, x, x};
    const tt_kernel_call c = {.struct_size = sizeof c,
                              .op = op,
                              .in = backward_ ? bi : in,
                              .n_in = backward_ ? 10 : 7,
                              .out = backward_ ? bo : out,
                              .n_out = backward_ ? 3 : 2,
                              .attrs = &at};
    return k->scratch_bytes(&c, 2);
}

/* Memory grows with the number of tokens, not with the number of pairs of tokens. */
static void test_attention_scratch_grows_with_tokens_alone(void **state)
{
    static const char *const ops[] = {"attention", "attention_bwd"};
    (void)state;
    for (int i = 0; i < 2; i++) {
        const size_t some = scratch_of(ops[i], 8192), many = scratch_of(ops[i], 65536);
        assert_true(some > 0 && many > some);
        assert_true((double)many < 8.1 * (double)some);
    }
}

static void test_reference_gradients_match_finite_differences(void **state)
{
    (void)state;
    problem p = plain(9, 4, 2, 3);
    p.softcap = 1.3;
    p.sinks = 1;
    data d = make(&p);
    double *x[4] = {doubles(&d.q), doubles(&d.k), doubles(&d.v), doubles(&d.sinks)};
    const int64_t n[4] = {9 * 12, 9 * 6, 9 * 6, 4};
    double *g[4], *out = zeros(9 * 12), *lse = zeros(9 * 4);
    for (int i = 0; i < 4; i++)
        g[i] = zeros(n[i]);
    backward(&p, &d, x[0], x[1], x[2], x[3], g[0], g[1], g[2], g[3], NULL);
    for (int i = 0; i < 4; i++)
        for (int64_t j = 0; j < n[i]; j++) {
            double at = x[i][j], e = 1e-5;
            x[i][j] = at + e;
            double up = forward(&p, &d, x[0], x[1], x[2], x[3], out, lse);
            x[i][j] = at - e;
            double down = forward(&p, &d, x[0], x[1], x[2], x[3], out, lse);
            x[i][j] = at;
            assert_true(fabs((up - down) / (2 * e) - g[i][j]) < 1e-7);
        }
    for (int i = 0; i < 4; i++) {
        free(x[i]);
        free(g[i]);
    }
    free(out);
    free(lse);
    release(&d);
}

/* ---- by AMX tiles (backend.f32_products bf16x6) ---- */

/* -1: this machine has no AMX; otherwise the index of bf16x6. The instruction set before it is
 * "amx" without it. */
static int by_six(void)
{
    int six = -1;
    EACH_ISA if (is_bf16x6(isa)) six = isa;
    return six;
}

static void attend(int isa, const problem *p, const data *d, tt_tensor *out, tt_tensor *lse)
{
    const tt_attrs_attention at = ATTRS(p);
    tt_tensor in[] = {d->q, d->k, d->v, d->pos_q, d->seg_q, d->pos_k, d->seg_k, d->sinks},
              o[] = {*out, *lse};
    run(isa, "attention", in, p->sinks ? 8 : 7, o, 2, &at);
}

/* Largest and rms error of out, in 2^-24 of the sum of |weight × value|. */
static void errors(int isa, const problem *p, const data *d, const double *want, const double *size,
                   double e[2])
{
    const int64_t n = p->tq * p->heads * p->dv;
    tt_tensor out = F32(p->tq, p->heads * p->dv), lse = F32(p->tq, p->heads);
    attend(isa, p, d, &out, &lse);
    e[0] = e[1] = 0;
    for (int64_t i = 0; i < n; i++) {
        const double x = fabs((double)fp(&out)[i] - want[i]) / size[i] * 0x1p24;
        assert_true(x >= 0); /* no NaN */
        e[0] = x > e[0] ? x : e[0];
        e[1] += x * x / (double)n;
    }
    e[1] = sqrt(e[1]);
    drop(&out, 1);
    drop(&lse, 1);
}

/* sharp: scores are large, and therefore their errors are. The table is in docs/numerics.md
 * (TT_SHOW_ERRORS=1 prints it). */
static void compare(int six, int64_t hd, int64_t tokens, double sharp)
{
    problem p = plain(tokens, 2, 1, hd);
    p.scale *= sharp;
    data d = make(&p);
    const int64_t n = tokens * 2 * hd;
    double *q = doubles(&d.q), *k = doubles(&d.k), *v = doubles(&d.v), *out = zeros(n),
           *lse = zeros(tokens * 2), *size = zeros(n), a[2], b[2];
    forward(&p, &d, q, k, v, NULL, out, lse);
    for (int64_t i = 0; i < tokens * hd; i++)
        v[i] = fabs(v[i]);
    forward(&p, &d, q, k, v, NULL, size, lse);
    errors(six - 1, &p, &d, out, size, a);
    errors(six, &p, &d, out, size, b);
    if (getenv("TT_SHOW_ERRORS"))
        fprintf(stderr, "| %lld | %lld | %g | %.2f, %.3f | %.2f, %.3f |\n", (long long)hd,
                (long long)tokens, sharp, a[0], a[1], b[0], b[1]);
    if (!(b[0] <= 1.5 * fmax(1, a[0])) || !(b[1] <= 1.05 * a[1]))
        fail_msg("width %lld, %lld tokens, scale %g: bf16x6 errs by %.3f at most, rms %.3f; "
                 "multiply-adds by %.3f, %.3f",
                 (long long)hd, (long long)tokens, sharp, b[0], b[1], a[0], a[1]);
    double *all[] = {q, k, v, out, lse, size};
    for (size_t i = 0; i < TT_COUNT(all); i++)
        free(all[i]);
    release(&d);
}

static void test_bf16x6_attention_is_no_less_exact_than_multiply_adds(void **state)
{
    static const int64_t hds[] = {16, 20, 64, 128}, ts[] = {50, 300, 600};
    const int six = by_six();
    (void)state;
    if (six < 0)
        skip();
    for (size_t i = 0; i < TT_COUNT(hds); i++)
        for (size_t j = 0; j < TT_COUNT(ts); j++)
            for (int sharp = 0; sharp < 2; sharp++)
                compare(six, hds[i], ts[j], sharp ? 10 : 1);
}

/* A query's result does not depend on the others: computing all queries, or the last ones alone,
 * gives the same bits. */
static void test_a_row_of_attention_does_not_depend_on_others(void **state)
{
    (void)state;
    for (int variant = 0; variant < 8; variant++)
        EACH_ISA
        {
            problem p = plain(333, 2, 1, variant & 1 ? 40 : 16);
            p.window = variant & 2 ? 50 : 0;
            p.lines = variant & 4 ? 3 : 1;
            p.scale = 4; /* references rise at many keys */
            data d = make(&p), part = d;
            tt_tensor out = F32(333, 2 * p.dv), lse = F32(333, 2);
            attend(isa, &p, &d, &out, &lse);
            for (int64_t n = 1; n < 333; n += 83) {
                const int64_t skip = 333 - n;
                tt_tensor some = F32(n, 2 * p.dv), some_lse = F32(n, 2);
                part.q.shape[0] = part.q.global[0] = n;
                part.pos_q.shape[0] = part.pos_q.global[0] = n;
                part.seg_q.shape[0] = part.seg_q.global[0] = n;
                part.q.data = fp(&d.q) + skip * 2 * p.hd;
                part.pos_q.data = ip(&d.pos_q) + skip;
                part.seg_q.data = ip(&d.seg_q) + skip;
                attend(isa, &p, &part, &some, &some_lse);
                assert_memory_equal(fp(&some), fp(&out) + skip * 2 * p.dv,
                                    (size_t)(n * 2 * p.dv) * sizeof(float));
                assert_memory_equal(fp(&some_lse), fp(&lse) + skip * 2,
                                    (size_t)(n * 2) * sizeof(float));
                drop(&some, 1);
                drop(&some_lse, 1);
            }
            drop(&out, 1);
            drop(&lse, 1);
            release(&d);
        }
}

static bool agree(float a, float b) /* NaN equals NaN; finite elements agree to rounding */
{
    return (isnan(a) && isnan(b)) || a == b ||
           fabs((double)a - (double)b) <= 1e-5 * (1 + fabs((double)b));
}

/* If operands are not finite, or too large for bf16 or for their products, the result is that of
 * multiply-adds; queries that do not see them stay finite. */
static void test_bf16x6_attention_keeps_infinities_and_nan(void **state)
{
    static const float special[] = {INFINITY, -INFINITY, NAN, FLT_MAX, -FLT_MAX, 3.4e38f, 1e30f};
    const int six = by_six();
    (void)state;
    if (six < 0)
        skip();
    for (size_t s = 0; s < TT_COUNT(special); s++)
        for (int variant = 0; variant < 24; variant++) {
            problem p = plain(250, 2, 1, variant & 1 ? 16 : 40);
            p.softcap = variant & 2 ? 5 : 0;
            p.sinks = variant >> 2 & 1;
            data d = make(&p);
            tt_tensor *to[] = {&d.q, &d.k, &d.v};
            fp(to[variant / 8])[130 * to[variant / 8]->shape[1] + 7] = special[s];
            tt_tensor out[2], lse[2];
            for (int i = 0; i < 2; i++) {
                out[i] = F32(250, 2 * p.dv);
                lse[i] = F32(250, 2);
                attend(six - 1 + i, &p, &d, &out[i], &lse[i]);
            }
            for (int64_t i = 0; i < 250 * 2 * p.dv; i++)
                assert_true(agree(fp(&out[1])[i], fp(&out[0])[i]));
            for (int64_t i = 0; i < 500; i++)
                assert_true(agree(fp(&lse[1])[i], fp(&lse[0])[i]));
            for (int64_t i = 0; i < 96 * 2 * p.dv; i++) /* a block before it */
                assert_true(isfinite(fp(&out[1])[i]));
            drop(out, 2);
            drop(lse, 2);
            release(&d);
        }
}

/* fma turns tiles off here too: with or without AMX, multiply-adds give the same bits, and bf16x6
 * gives others. */
static void test_option_f32_products_selects_attentions_matmul(void **state)
{
    const int six = by_six();
    (void)state;
    if (six < 0)
        skip();
    problem p = plain(200, 2, 2, 64);
    data d = make(&p);
    tt_tensor out[3], lse = F32(200, 2);
    const size_t bytes = 200 * 128 * sizeof(float);
    for (int i = 0; i < 3; i++) { /* avx512, amx fma, amx bf16x6 */
        out[i] = F32(200, 128);
        attend(six - 2 + i, &p, &d, &out[i], &lse);
    }
    assert_string_equal(H.isa[six - 2], "avx512");
    assert_memory_equal(fp(&out[0]), fp(&out[1]), bytes);
    assert_memory_not_equal(fp(&out[1]), fp(&out[2]), bytes);
    drop(out, 3);
    drop(&lse, 1);
    release(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reference_gradients_match_finite_differences),
        cmocka_unit_test(test_attention_matches_double_for_many_shapes),
        cmocka_unit_test(test_attention_variants_match_double),
        cmocka_unit_test(test_attention_with_a_bias_matches_double),
        cmocka_unit_test(test_attention_with_dropout_matches_double),
        cmocka_unit_test(test_attention_sees_keys_of_other_ranks),
        cmocka_unit_test(test_attention_of_no_tokens_computes_nothing),
        cmocka_unit_test(test_attention_skips_blocks_that_are_not_seen),
        cmocka_unit_test(test_attention_scratch_grows_with_tokens_alone),
        cmocka_unit_test(test_a_row_of_attention_does_not_depend_on_others),
        cmocka_unit_test(test_bf16x6_attention_is_no_less_exact_than_multiply_adds),
        cmocka_unit_test(test_bf16x6_attention_keeps_infinities_and_nan),
        cmocka_unit_test(test_option_f32_products_selects_attentions_matmul),
    };
    return cmocka_run_group_tests(tests, harness_open, harness_close);
}
