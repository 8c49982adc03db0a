/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_TESTS_OPS_BATTERY_ROWS_H
#define TT_TESTS_OPS_BATTERY_ROWS_H
#include "subject.h"
#include <ttrun/ops.h>

/* The rows of the battery (battery.h), the sizes of a trial, and the operands that a row names. */

/* Operands, separated by blanks: KIND:dim,dim…; a dim is a letter, a letter*n (units of n) or 1.
 * Kinds: f float, g float that is f32 whatever the others are, h that is bf16, j float with some NaN and infinities, b bool, n positive float, z float in [-1, 1], y in [-1/8, 1/8], U f32 in [0, 1), N float near 1, p positions, s segments (P, S: of some hundred tokens), m row maxima (large), iX
 * integers in [-1, X] (X a letter), c counts of experts. */
typedef struct row {
    const char *op, *ins;
    const void *attrs;
    double tolerance; /* of the largest result, f32; halves add one of their own roundings */
} row;

/* Why these: one f32 operation errs by 6e-8. EXACT: the same single rounding or none. SCALAR: a few
 * roundings and our exp, erf and tanh to 2-4 ulp. SUM: sums of at most 100 products in f32,
 * ~sqrt(100) roundings of the largest term, relative to the largest result: 2e-5 has room. DEEP:
 * products of sums (attention's scores in exp, norms' derivatives). */
#define EXACT 1e-7
#define SCALAR 2e-6
#define SUM 2e-5
#define DEEP 5e-5

#define A(type, ...)                                                                               \
    &(const type)                                                                                  \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }
/* Of LongRoPE the attention factor is the row's. */
#define ROPE_BY(factor_, ...)                                                                      \
    A(tt_attrs_rope, .opts = {.head_dim = 6,                                                       \
                              .theta = 1e4,                                                        \
                              .factor = 1,                                                         \
                              .low_freq_factor = 1,                                                \
                              .high_freq_factor = 4,                                               \
                              .original_max_position = 64,                                         \
                              .beta_fast = 32,                                                     \
                              .beta_slow = 1,                                                      \
                              .attention_factor = factor_,                                         \
                              __VA_ARGS__})
#define ROPE(...) ROPE_BY(1, __VA_ARGS__)
#define ATTENTION(...)                                                                             \
    A(tt_attrs_attention, .head_dim = 6, .v_head_dim = 4, .scale = 0.4, __VA_ARGS__)
#define QKV "f:t,h*6 f:s,k*6 f:s,k*4"
#define QK "f:t,h*6 f:s,k*6"
#define WHERE " p:t s:t p:s s:s"
/* 3 sequences with room for 128 tokens. Tokens come in runs: u has their positions, q their
 * sequences. */
#define CACHED "f:t,h*6 f:t,k*6 f:t,k*4 u:t q:t f:3,k,4,6,32 f:3,k,128,4"
#define LATENT "f:t,h*6 f:t,1*6 u:t q:t f:3,128,6"
#define UNARY(op)                                                                                  \
    {                                                                                              \
        op, "f:t,d", NULL, SCALAR                                                                  \
    }
#define BINARY(op)                                                                                 \
    {op, "f:t,d f:t,d", NULL, SCALAR}, {op, "f:t,d f:d", NULL, SCALAR},                            \
    {                                                                                              \
        op, "f:t,1 f:a,1,d", NULL, SCALAR                                                          \
    }

#ifndef BATTERY_ROWS
#define BATTERY_ROWS "backends.def"
#endif
static const row rows[] = {
#include BATTERY_ROWS
};

typedef struct bench {     /* the two backends and the sizes of this trial's letters */
    subject reference, it; /* it: what is tested */
    int64_t size[128];
    uint64_t random;
    tt_dtype dtype;                     /* of the floats */
    int trials, bits_trials;            /* of a row; the first ones, whose bits are kept */
    bool keeps_bits;                    /* in this trial */
    bool (*takes)(size_t i, int trial); /* NULL: every trial of every row */
    bool is_strict; /* a device that wants every operand aligned as the plan aligns it */
    uint64_t bits[TT_COUNT(rows)]; /* a hash of all results of a row */
} bench;
static bench s;

static inline int64_t draw(int64_t n)
{
    return (int64_t)(eval_uniform(&s.random) * (double)n);
}

static inline void draw_sizes(int trial)
{
    static const int64_t sizes[] = {1, 2, 3, 5, 8, 16, 17, 31, 33, 64, 70, 100};
    for (int c = 'a'; c <= 'z'; c++)
        s.size[c] = sizes[draw(TT_COUNT(sizes))];
    if (trial % 6 == 5)
        s.size[(int)"toiseadv"[draw(8)]] = 0;
    s.size['k'] = 1 + draw(3);
    s.size['h'] = s.size['k'] * (1 + draw(3));
    s.size['r'] = s.size['k'] > 1 ? s.size['k'] - 1 : 1; /* what conv1d keeps of a sequence */
    s.size['e'] = 1 + draw(4);
    s.size['b'] = 1 + draw(3);
    s.size['a'] = 1 + draw(3);
    s.size['6'] = 6;                /* i6: few ids, so that many are equal */
    s.size['w'] = s.size['v'] + 12; /* v is [5, 5+v) of v + 11 */
    s.size['y'] = s.size['o'] > 0 ? s.size['o'] - 1 : 0;
    if (s.size['o'] == 0)
        s.size['o'] = 1;
}

static inline tt_dim parse_dim(const char **p)
{
    int64_t n, unit = 1;
    if (**p >= 'a' && **p <= 'z')
        n = s.size[(int)*(*p)++];
    else
        n = strtol(*p, (char **)(uintptr_t)p, 10);
    if (**p == '*') {
        (*p)++;
        unit = strtol(*p, (char **)(uintptr_t)p, 10);
    }
    return tt_dim_make(n * unit, NULL, unit, 1);
}

static inline void fill(const tt_tensor *t, const char *kind)
{
    int64_t n = tt_tensor_numel(t), left = s.size['t'], at = 0;
    for (int64_t i = 0; i < n; i++) {
        double u = eval_uniform(&s.random);
        switch (kind[0]) {
        case 'f':
        case 'g':
        case 'h':
            put(t, i, 4.0 * u - 2.0);
            break;
        case 'j':
            put(t, i,
                u < 0.98    ? 4.0 * u - 2.0
                : u < 0.985 ? (double)NAN
                : u < 0.993 ? HUGE_VAL
                            : -HUGE_VAL);
            break;
        case 'z':
            put(t, i, 2.0 * u - 1.0);
            break;
        case 'y':
            put(t, i, (2.0 * u - 1.0) / 8.0);
            break;
        case 'l': /* logs of decays */
            put(t, i, -u * u);
            break;
        case 'U':
            put(t, i, floor(u * 65536.0) / 65536.0);
            break;
        case 'B': /* bytes as floats */
        case 'C': /* bytes */
            put(t, i, floor(u * 256.0));
            break;
        case 'n':
            put(t, i, 0.3 + 2.0 * u);
            break;
        case 'm':
            put(t, i, 3.0 + u);
            break;
        case 'b':
            put(t, i, u - 0.5);
            break;
        case 'i':
            put(t, i, floor(u * (double)(s.size[(int)kind[1]] + 2)) - 1.0);
            break;
        case 'p':
            put(t, i, (double)(at = u < 0.1 ? 0 : at + 1));
            break;
        case 's':
            put(t, i, (double)(at += u < 0.1));
            break;
        case 'N':
            put(t, i, 0.95 + 0.1 * u);
            break;
        case 'P':
            put(t, i, (double)(at = u < 0.003 ? 0 : at + 1));
            break;
        case 'S':
            put(t, i, (double)(at += u < 0.003));
            break;
        case 'u': /* a third of the tokens each, from 9, 18 and 27 on */
            put(t, i, (double)(9 * (1 + 3 * i / n) + i - (3 * i / n * n + 2) / 3));
            break;
        case 'q': /* the second third is of no sequence */
            put(t, i, 3 * i / n == 1 ? -1.0 : (double)(2 - 3 * i / n));
            break;
        default:
            put(t, i, floor(u * (double)(left + 1)));
            left -= (int64_t)get(t, i);
        }
    }
}

/* Reads one operand's text; its type, and a tensor with values. */
static inline void parse_operand(const char **p, tt_arena *a, tt_type *type, tt_tensor *x)
{
    const char *kind = *p;
    *p = strchr(*p, ':') + 1;
    type->dtype = strchr("fnmzyjlNB", kind[0]) != NULL ? s.dtype
                  : kind[0] == 'b'                     ? TT_BOOL
                                                       : TT_I32;
    if (kind[0] == 'm' || kind[0] == 'g' || kind[0] == 'U')
        type->dtype = TT_F32;
    if (kind[0] == 'C')
        type->dtype = TT_U8;
    if (kind[0] == 'h')
        type->dtype = TT_BF16;
    int shifted = -1;
    while (**p != ' ' && **p != '\0') {
        if (**p == 'v')
            shifted = type->n_dims;
        type->dims[type->n_dims++] = parse_dim(p);
        if (**p == ',')
            (*p)++;
    }
    *x = tensor_of(a, type);
    if (shifted >= 0) {
        x->begin[shifted] = 5;
        x->global[shifted] += 11;
    }
    fill(x, kind);
    if (**p == ' ')
        (*p)++;
}

#endif
