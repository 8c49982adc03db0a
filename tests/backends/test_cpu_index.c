/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "cpu_harness.h"

/* Kernels that move, pick, sort or draw elements, RoPE and conv1d, compared with plain loops. */

static void test_embedding_reads_its_box_and_sums_gradients(void **state)
{
    enum { T = 200, V = 37, D = 19, FIRST = 5 };
    (void)state;
    tt_tensor ids = I32(T), w = filled(F32(V, D)), y = F32(T, D), dy = filled(F32(T, D)),
              dw = F32(V, D), scattered = F32(V, D), added = F32(V, D);
    w.begin[0] = dw.begin[0] = scattered.begin[0] = added.begin[0] = FIRST;
    double want[V * D] = {0};
    for (int t = 0; t < T; t++) {
        int id = t % 50, v = id - FIRST;
        ip(&ids)[t] = t == 7 ? -1 : id;
        for (int d = 0; d < D && t != 7 && v >= 0 && v < V; d++)
            want[v * D + d] += (double)fp(&dy)[t * D + d];
    }
    EACH_ISA
    {
        tt_tensor in[] = {ids, w}, gin[] = {w, ids}, bin[] = {ids, dy}, sin_[] = {dy, ids};
        for (int k = 0; k < 2; k++) {
            run(isa, k ? "gather" : "embedding", k ? gin : in, 2, &y, 1, NULL);
            for (int i = 0; i < T * D; i++) {
                int v = ip(&ids)[i / D] - FIRST;
                assert_true(fp(&y)[i] == (v >= 0 && v < V ? fp(&w)[v * D + i % D] : 0.0f));
            }
        }
        run(isa, "embedding_dw", bin, 2, &dw, 1, NULL);
        assert_near("embedding_dw", isa, fp(&dw), want, V * D, 1e-6);
        run(isa, "scatter_add", sin_, 2, &scattered, 1, NULL);
        assert_memory_equal(scattered.data, dw.data, V * D * sizeof(float));
        double twice[V * D];
        for (int i = 0; i < V * D; i++)
            twice[i] = 2 * want[i];
        run_with(isa, "embedding_dw", bin, 2, &dw, 1, NULL, 1);
        assert_near("embedding_dw, accumulated", isa, fp(&dw), twice, V * D, 2e-6);
        /* added to a table, or made and then added: the same bits */
        memcpy(added.data, w.data, V * D * sizeof(float));
        run_with(isa, "embedding_dw", bin, 2, &added, 1, NULL, 1);
        for (int i = 0; i < V * D; i++)
            assert_true(fp(&added)[i] == fp(&w)[i] + fp(&scattered)[i]);
    }
    tt_tensor all[] = {ids, w, y, dy, dw, scattered, added};
    drop(all, 7);
}

static void test_top_k_puts_the_lower_index_first_on_ties(void **state)
{
    enum { R = 40, N = 23, K = 5 };
    (void)state;
    tt_tensor x = filled(F32(R, N)), v = F32(R, K), i = I32(R, K), dy = filled(F32(R, K)),
              dx = F32(R, N);
    for (int j = 0; j < R * N; j++)
        fp(&x)[j] = roundf(fp(&x)[j] * 4);
    EACH_ISA
    {
        tt_tensor out[] = {v, i}, bin[] = {i, dy};
        run(isa, "top_k", &x, 1, out, 2, NULL);
        run(isa, "top_k_bwd", bin, 2, &dx, 1, NULL);
        for (int r = 0; r < R; r++) {
            int used[N] = {0};
            for (int k = 0; k < K; k++) {
                int best = -1;
                for (int j = 0; j < N; j++)
                    if (!used[j] && (best < 0 || fp(&x)[r * N + j] > fp(&x)[r * N + best]))
                        best = j;
                used[best] = 1;
                assert_int_equal(ip(&i)[r * K + k], best);
                assert_true(fp(&v)[r * K + k] == fp(&x)[r * N + best]);
                assert_true(fp(&dx)[r * N + best] == fp(&dy)[r * K + k]);
            }
            for (int j = 0; j < N; j++)
                assert_true(used[j] || fp(&dx)[r * N + j] == 0.0f);
        }
    }
    tt_tensor all[] = {x, v, i, dy, dx};
    drop(all, 5);
}

static void test_expert_sort_is_stable(void **state)
{
    enum { T = 50, K = 2, E = 7 };
    (void)state;
    tt_tensor a = I32(T, K), order = I32(T * K), counts = I32(E), out[] = {order, counts};
    for (int i = 0; i < T * K; i++)
        ip(&a)[i] = i % 13 == 0 ? -1 : (i * 5) % E;
    EACH_ISA
    {
        run(isa, "expert_sort", &a, 1, out, 2, NULL);
        int at = 0;
        for (int e = 0; e <= E; e++) {
            int n = 0;
            for (int i = 0; i < T * K; i++)
                if (ip(&a)[i] == (e < E ? e : -1)) {
                    assert_int_equal(ip(&order)[at++], i);
                    n++;
                }
            assert_true(e == E || ip(&counts)[e] == n);
        }
    }
    tt_tensor all[] = {a, order, counts};
    drop(all, 3);
}

static void test_shape_ops_move_elements(void **state)
{
    enum { A = 5, B = 7, C = 11 };
    (void)state;
    tt_tensor x = filled(F32(A, B, C)), t = F32(C, A, B), s = F32(A, 3, C), z = F32(A, B, C),
              r = F32(A * B, C), b = F32(A, B, C);
    tt_tensor row = filled(F32(B, 1)), cat = F32(A, B + 3, C);
    const tt_attrs_perm perm = {
        {2, 0, 1}
    };
    const tt_attrs_slice slice = {.dim = 1, .begin = 2, .end = 5};
    const tt_attrs_concat concat = {1};
    EACH_ISA
    {
        run(isa, "transpose", &x, 1, &t, 1, &perm);
        run(isa, "slice", &x, 1, &s, 1, &slice);
        run(isa, "slice_bwd", &s, 1, &z, 1, &slice);
        run(isa, "reshape", &x, 1, &r, 1, NULL);
        run(isa, "broadcast", &row, 1, &b, 1, NULL);
        tt_tensor both[] = {x, s};
        run(isa, "concat", both, 2, &cat, 1, &concat);
        assert_memory_equal(r.data, x.data, A * B * C * sizeof(float));
        for (int i = 0; i < A; i++)
            for (int j = 0; j < B; j++)
                for (int k = 0; k < C; k++) {
                    float v = fp(&x)[(i * B + j) * C + k];
                    int in = j >= 2 && j < 5;
                    assert_true(fp(&t)[(k * A + i) * B + j] == v);
                    assert_true(!in || fp(&s)[(i * 3 + j - 2) * C + k] == v);
                    assert_true(fp(&z)[(i * B + j) * C + k] == (in ? v : 0.0f));
                    assert_true(fp(&b)[(i * B + j) * C + k] == fp(&row)[j]);
                    assert_true(fp(&cat)[(i * (B + 3) + j) * C + k] == v);
                    assert_true(!in || fp(&cat)[(i * (B + 3) + B + j - 2) * C + k] == v);
                }
    }
    tt_tensor all[] = {x, t, s, z, r, b, row, cat};
    drop(all, 8);
}

static void test_random_depends_on_the_global_index_only(void **state)
{
    (void)state;
    const tt_attrs_random at = {.stream = "noise", .normal = 1};
    tt_tensor whole = F32(12, 9), part = F32(4, 5);
    part.begin[0] = 3;
    part.begin[1] = 2;
    part.global[0] = 12;
    part.global[1] = 9;
    EACH_ISA
    {
        run(isa, "random", NULL, 0, &whole, 1, &at);
        run(isa, "random", NULL, 0, &part, 1, &at);
        for (int i = 0; i < 4; i++)
            for (int j = 0; j < 5; j++)
                assert_true(fp(&part)[i * 5 + j] == fp(&whole)[(i + 3) * 9 + j + 2]);
        assert_true(fp(&whole)[40] == (float)tt_random_at(7, 3, "noise", 40, 1));
    }
    tt_tensor all[] = {whole, part};
    drop(all, 2);
}

static void check_rope(int64_t heads, int64_t hd, int64_t rot, int interleaved)
{
    enum { TOKENS = 33, MOST = 5 * 80 };
    const int64_t n = rot / 2, all = TOKENS * heads * hd;
    tt_attrs_rope at = {
        .opts = {.head_dim = hd,
                 .rotary_dim = rot,
                 .theta = 1e4,
                 .factor = 1,
                 .low_freq_factor = 1,
                 .high_freq_factor = 4,
                 .original_max_position = 8192,
                 .beta_fast = 32,
                 .beta_slow = 1,
                 .attention_factor = 1,
                 .interleaved = interleaved}
    };
    tt_tensor x = filled(F32(TOKENS, heads * hd)), pos = I32(TOKENS), y = F32(TOKENS, heads * hd),
              back = F32(TOKENS, heads * hd);
    double inv[MOST], want[TOKENS * MOST], same[TOKENS * MOST],
        factor = tt_rope_frequencies(&at.opts, inv, n);
    for (int64_t t = 0; t < TOKENS; t++)
        ip(&pos)[t] = (int32_t)(t * t * 977 % 1000003);
    for (int64_t i = 0; i < all; i++)
        want[i] = same[i] = (double)fp(&x)[i];
    for (int64_t i = 0; i < TOKENS * heads; i++)
        for (int64_t j = 0; j < n; j++) {
            int64_t p = i * hd + (interleaved ? 2 * j : j), q = interleaved ? p + 1 : p + n;
            double angle = ip(&pos)[i / heads] * inv[j], c = cos(angle) * factor,
                   s = sin(angle) * factor;
            want[p] = same[p] * c - same[q] * s;
            want[q] = same[q] * c + same[p] * s;
        }
    EACH_ISA
    {
        tt_tensor in[] = {x, pos}, in2[] = {y, pos}, in3[] = {back, pos};
        at.inverse = 0;
        run(isa, "rope", in, 2, &y, 1, &at);
        assert_near("rope", isa, fp(&y), want, all, 4e-7);
        at.inverse = 1;
        run(isa, "rope", in2, 2, &back, 1, &at);
        assert_near("rope back", isa, fp(&back), same, all, 1e-6);
        memcpy(back.data, y.data, (size_t)all * sizeof(float));
        run(isa, "rope", in3, 2, &back, 1, &at);
        assert_near("rope in place", isa, fp(&back), same, all, 1e-6);
    }
    tt_tensor mine[] = {x, pos, y, back};
    drop(mine, 4);
}

/* Heads smaller than a vector, as large as one, and larger; rotated wholly and in part. */
static void test_rope_rotates_pairs_and_back(void **state)
{
    static const int64_t cases[][3] = {
        {5, 2,  2 },
        {3, 4,  4 },
        {5, 8,  8 },
        {3, 16, 16},
        {3, 16, 8 },
        {4, 16, 12},
        {3, 24, 24},
        {3, 24, 14},
        {5, 32, 32},
        {2, 64, 64},
        {2, 64, 48},
        {5, 80, 80},
    };
    (void)state;
    for (size_t i = 0; i < TT_COUNT(cases); i++)
        for (int interleaved = 0; interleaved < 2; interleaved++)
            check_rope(cases[i][0], cases[i][1], cases[i][2], interleaved);
}

static void test_conv1d_does_not_cross_segments(void **state)
{
    enum { T = 60, D = 130, K = 4 };
    (void)state;
    tt_tensor x = filled(F32(T, D)), w = filled(F32(D, K)), seg = I32(T), pos = I32(T),
              dy = filled(F32(T, D));
    tt_tensor y = F32(T, D), dx = F32(T, D), dw = F32(D, K);
    double *wy = calloc(T * D, 8), *wdx = calloc(T * D, 8), *wdw = calloc(D * K, 8);
    for (int t = 0; t < T; t++) {
        ip(&seg)[t] = t / 17;
        ip(&pos)[t] = t % 17;
    }
    for (int t = 0; t < T; t++)
        for (int j = 0; j < K && j <= t % 17; j++)
            for (int d = 0; d < D; d++) {
                wy[t * D + d] +=
                    (double)fp(&w)[d * K + K - 1 - j] * (double)fp(&x)[(t - j) * D + d];
                wdx[(t - j) * D + d] +=
                    (double)fp(&w)[d * K + K - 1 - j] * (double)fp(&dy)[t * D + d];
                wdw[d * K + K - 1 - j] +=
                    (double)fp(&x)[(t - j) * D + d] * (double)fp(&dy)[t * D + d];
            }
    EACH_ISA
    {
        tt_tensor in[] = {x, w, seg, pos, dy}, out[] = {dx, dw};
        run(isa, "conv1d", in, 4, &y, 1, NULL);
        assert_near("conv1d", isa, fp(&y), wy, T * D, 1e-6);
        run(isa, "conv1d_bwd", in, 5, out, 2, NULL);
        assert_near("conv1d_bwd dx", isa, fp(&dx), wdx, T * D, 1e-6);
        assert_near("conv1d_bwd dw", isa, fp(&dw), wdw, D * K, 1e-5);
    }
    free(wy);
    free(wdx);
    free(wdw);
    tt_tensor all[] = {x, w, seg, pos, dy, y, dx, dw};
    drop(all, 8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_embedding_reads_its_box_and_sums_gradients),
        cmocka_unit_test(test_top_k_puts_the_lower_index_first_on_ties),
        cmocka_unit_test(test_expert_sort_is_stable),
        cmocka_unit_test(test_shape_ops_move_elements),
        cmocka_unit_test(test_random_depends_on_the_global_index_only),
        cmocka_unit_test(test_rope_rotates_pairs_and_back),
        cmocka_unit_test(test_conv1d_does_not_cross_segments),
    };
    return cmocka_run_group_tests(tests, harness_open, harness_close);
}
