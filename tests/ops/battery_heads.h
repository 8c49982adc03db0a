/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_TESTS_OPS_BATTERY_HEADS_H
#define TT_TESTS_OPS_BATTERY_HEADS_H
#include "battery.h"

/* Attention on some of the heads: kv heads may be more than this rank's query heads use. */

static inline tt_tensor head_box(tt_arena *a, const tt_tensor *whole, int64_t unit, int64_t begin,
                                 int64_t end)
{
    tt_type t = {
        .dtype = TT_F32,
        .n_dims = 2,
        .dims = {TT_DIM(whole->shape[0], NULL), TT_DIM((end - begin) * unit, NULL)}
    };
    tt_tensor x = tensor_of(a, &t);
    x.begin[1] = begin * unit;
    x.global[1] = whole->shape[1];
    for (int64_t i = 0; i < tt_tensor_numel(&x); i++)
        put(&x, i, get(whole, i / x.shape[1] * whole->shape[1] + x.begin[1] + i % x.shape[1]));
    return x;
}

/* Compares the results of the boxes with those of the whole: q-shaped ones in place, k-shaped ones
 * added up. */
static inline void check_heads(const tt_tensor *whole, const tt_tensor *boxes, const int64_t *at,
                               int n_boxes, int64_t unit, bool added)
{
    for (int64_t i = 0; i < tt_tensor_numel(whole); i++) {
        int64_t t = i / whole->shape[1], column = i % whole->shape[1];
        double got = 0.0;
        for (int b = 0; b < n_boxes; b++) {
            const tt_tensor *x = &boxes[b];
            int64_t local = added ? column : column - at[b] * unit;
            if (local >= 0 && local < x->shape[1])
                got += get(x, t * x->shape[1] + local);
        }
        if (fabs(got - get(whole, i)) > DEEP * 10.0)
            fail_msg("column %lld: %.9g in boxes, %.9g whole", (long long)column, got,
                     get(whole, i));
    }
}

static inline void check_attention_boxes(void)
{
    enum { TOKENS = 21, HD = 6, DV = 4, HEADS = 6, KV = 2, BOXES = 3 };
    static const int64_t at[BOXES + 1] = {0, 1, 4, 6}; /* the middle box crosses the kv heads */
    const tt_attrs_attention attrs = {.head_dim = HD, .v_head_dim = DV, .scale = 0.4};
    tt_arena *a = tt_arena_new();
    tt_type f = {.dtype = TT_F32, .n_dims = 2, .dims = {TT_DIM(TOKENS, NULL)}},
            index = {.dtype = TT_I32, .n_dims = 1, .dims = {TT_DIM(TOKENS, NULL)}};
    static const int64_t widths[6] = {HEADS * HD, KV * HD, KV * DV,
                                      HEADS * DV, HEADS,   HEADS * DV}; /* q k v out lse dout */
    static const int64_t unit[6] = {HD, 0, 0, DV, 1, DV};
    tt_tensor whole[10], dwhole[3], boxes[BOXES][10], d[3][BOXES];
    if (!battery_chosen("attention") || s.it.vt->kernel(s.it.self[1], "attention") == NULL ||
        s.it.vt->kernel(s.it.self[1], "attention_bwd") == NULL)
        return;
    s.random = 3;
    s.size['t'] = TOKENS;
    for (int i = 0; i < 10; i++) {
        f.dims[1] = TT_DIM(i < 6 ? widths[i] : 1, NULL);
        whole[i] = tensor_of(a, i < 6 ? &f : &index);
        fill(&whole[i], i < 6 ? "f" : i % 2 ? "s" : "p");
    }
    whole[8] = whole[6];
    whole[9] = whole[7];
    for (int i = 0; i < 3; i++) {
        f.dims[1] = TT_DIM(widths[i], NULL);
        dwhole[i] = tensor_of(a, &f);
    }
    make_attention_true(&(row){.op = "attention_bwd", .attrs = &attrs}, whole);
    tt_kernel_call c = {.struct_size = sizeof c,
                        .op = "attention_bwd",
                        .in = whole,
                        .n_in = 10,
                        .n_out = 3,
                        .attrs = &attrs};
    subject_run(&s.reference, 0, s.reference.vt->kernel(NULL, c.op), &c, dwhole);
    for (int b = 0; b < BOXES; b++) {
        for (int i = 0; i < 10; i++)
            boxes[b][i] =
                i < 6 && unit[i] > 0 ? head_box(a, &whole[i], unit[i], at[b], at[b + 1]) : whole[i];
        tt_tensor in[7] = {boxes[b][0], boxes[b][1], boxes[b][2], whole[6],
                           whole[7],    whole[8],    whole[9]},
                  out[3];
        tt_kernel_call fwd = {.struct_size = sizeof fwd,
                              .op = "attention",
                              .in = in,
                              .n_in = 7,
                              .n_out = 2,
                              .attrs = &attrs};
        assert_true(
            subject_run(&s.it, 1, s.it.vt->kernel(s.it.self[1], fwd.op), &fwd, &boxes[b][3]));
        for (int i = 0; i < 3; i++)
            out[i] =
                i == 0 ? head_box(a, &dwhole[0], HD, at[b], at[b + 1])
                       : tensor_of(a, &(tt_type){
                                          .dtype = TT_F32,
                                          .n_dims = 2,
                                          .dims = {TT_DIM(TOKENS, NULL), TT_DIM(widths[i], NULL)}
            });
        tt_kernel_call bwd = {.struct_size = sizeof bwd,
                              .op = "attention_bwd",
                              .in = boxes[b],
                              .n_in = 10,
                              .n_out = 3,
                              .attrs = &attrs};
        assert_true(subject_run(&s.it, 1, s.it.vt->kernel(s.it.self[1], bwd.op), &bwd, out));
        for (int i = 0; i < 3; i++)
            d[i][b] = out[i];
    }
    tt_tensor outs[BOXES] = {boxes[0][3], boxes[1][3], boxes[2][3]},
              lses[BOXES] = {boxes[0][4], boxes[1][4], boxes[2][4]};
    check_heads(&whole[3], outs, at, BOXES, DV, false);
    check_heads(&whole[4], lses, at, BOXES, 1, false);
    check_heads(&dwhole[0], d[0], at, BOXES, HD, false);
    check_heads(&dwhole[1], d[1], at, BOXES, HD, true);
    check_heads(&dwhole[2], d[2], at, BOXES, DV, true);
    tt_arena_free(a);
}

#endif
