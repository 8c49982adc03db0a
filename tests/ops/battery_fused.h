/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_TESTS_OPS_BATTERY_FUSED_H
#define TT_TESTS_OPS_BATTERY_FUSED_H
#include "battery.h"

/* Fused programs have the bits of the single ops, one after the other (R11). */

#define FUSED_INS 3
/* clang-format off: version 14 crashes on this table */
static const tt_fused_instr program[] = {
    {"add",       {0, 1, 0},   2, TT_F32,  0   },
    {"silu",      {3, 0, 0},   1, TT_F32,  0   },
    {"scale_by",  {4, 2, 0},   2, TT_F32,  0   },
    {"scale",     {5, 0, 0},   1, TT_F32,  0.37},
    {"cast_down", {6, 0, 0},   1, TT_BF16, 0   },
    {"cast",      {7, 0, 0},   1, TT_F32,  0   },
    {"maximum",   {8, 0, 0},   2, TT_F32,  0   },
    {"less",      {9, 1, 0},   2, TT_BOOL, 0   },
    {"select",    {10, 9, 0},  3, TT_F32,  0   },
    {"gelu_tanh", {11, 0, 0},  1, TT_F32,  0   },
    {"tanh",      {12, 0, 0},  1, TT_F32,  0   },
    {"div",       {13, 0, 0},  2, TT_F32,  0   },
    {"const",     {0, 0, 0},   0, TT_F32,  0.25},
    {"mul",       {14, 15, 0}, 2, TT_F32,  0   },
    {"silu_bwd",  {0, 16, 0},  2, TT_F32,  0   },
    {"sin",       {17, 0, 0},  1, TT_F32,  0   },
    {"cos",       {1, 0, 0},   1, TT_F32,  0   },
    {"mod",       {17, 19, 0}, 2, TT_F32,  0   },
    {"floor_div", {18, 20, 0}, 2, TT_F32,  0   },
    {"erf",       {20, 0, 0},  1, TT_F32,  0   },
    {"add",       {21, 22, 0}, 2, TT_F32,  0   },
};
/* clang-format on */
static const int16_t program_out[] = {23, 9};

static inline void fused_trial(subject *u)
{
    tt_arena *a = tt_arena_new();
    tt_tensor r[FUSED_INS + TT_COUNT(program)], out[2];
    tt_fused f = {FUSED_INS, (int)TT_COUNT(program), 2, program, program_out};
    tt_type t = {
        .dtype = TT_F32,
        .n_dims = 2,
        .dims = {TT_DIM(s.size['t'], NULL), TT_DIM(s.size['d'], NULL)}
    };
    tt_type row_type = {.dtype = TT_F32, .n_dims = 1, .dims = {t.dims[1]}},
            scalar = {.dtype = TT_F32};
    const tt_type *in_types[FUSED_INS] = {&t, &row_type, &scalar};
    for (int i = 0; i < FUSED_INS; i++) {
        r[i] = tensor_of(a, in_types[i]);
        fill(&r[i], "f");
    }
    tt_kernel_call c = {.struct_size = sizeof c,
                        .op = "fused",
                        .in = r,
                        .n_in = FUSED_INS,
                        .n_out = 2,
                        .attrs = &f};
    for (int i = 0; i < 2; i++)
        out[i] = tensor_of(a, &t);
    assert_true(subject_run(u, 1, u->vt->kernel(u->self[1], "fused"), &c, out));
    for (size_t i = 0; i < TT_COUNT(program); i++) {
        const tt_fused_instr *p = &program[i];
        tt_tensor in[3];
        union {
            tt_attrs_scale scale;
            tt_attrs_const value;
            tt_attrs_cast cast;
        } attrs;
        for (int k = 0; k < p->n_src; k++)
            in[k] = r[p->src[k]];
        tt_type o = p->n_src > 0 ? t : scalar;
        o.dtype = p->dtype;
        r[FUSED_INS + i] = tensor_of(a, &o);
        if (strcmp(p->op, "scale") == 0)
            attrs.scale.factor = p->imm;
        if (strcmp(p->op, "const") == 0)
            attrs.value = (tt_attrs_const){.value = p->imm, .dtype = p->dtype};
        if (strncmp(p->op, "cast", 4) == 0)
            attrs.cast.to = p->dtype;
        tt_kernel_call one = {.struct_size = sizeof one,
                              .op = p->op,
                              .in = in,
                              .n_in = p->n_src,
                              .n_out = 1,
                              .attrs = &attrs};
        assert_true(subject_run(u, 0, u->vt->kernel(u->self[0], p->op), &one, &r[FUSED_INS + i]));
    }
    for (int i = 0; i < 2; i++)
        if (memcmp(out[i].data, r[program_out[i]].data, subject_bytes(&out[i])) != 0)
            fail_msg("%s: output %d of the fused program differs from the single ops", u->name, i);
    tt_arena_free(a);
}

static inline void check_fused(void)
{
    s.random = 9;
    s.dtype = TT_F32;
    for (int trial = 0; trial < s.trials && battery_chosen("fused"); trial++) {
        draw_sizes(trial);
        s.it.tight = trial % 2 == 1 && !s.is_strict;
        fused_trial(&s.reference);
        fused_trial(&s.it);
    }
}

#endif
