/* SPDX-License-Identifier: Apache-2.0 */
#include "base/pool.h"
#include "eval.h"
#include <ttrun/ops.h>

/* Every kernel of the cpu backend against the reference on random shapes: odd, one, empty,
 * broadcast, boxes inside a larger tensor. Also: a kernel that accumulates adds, a kernel that
 * works in place and one with two threads compute the same bits. */

#define TRIALS 24

/* Operands, separated by blanks: KIND:dim,dim…; a dim is a letter, a letter*n (units of n) or 1.
 * Kinds: f float, g float that is f32 whatever the others are, b bool, n positive float, z float in [-1, 1], p positions, s segments, m row maxima (large), iX
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
#define ROPE(...)                                                                                  \
    A(tt_attrs_rope, .opts = {.head_dim = 6,                                                       \
                              .theta = 1e4,                                                        \
                              .factor = 1,                                                         \
                              .low_freq_factor = 1,                                                \
                              .high_freq_factor = 4,                                               \
                              .original_max_position = 64,                                         \
                              .beta_fast = 32,                                                     \
                              .beta_slow = 1,                                                      \
                              .attention_factor = 1,                                               \
                              __VA_ARGS__})
#define ATTENTION(...)                                                                             \
    A(tt_attrs_attention, .head_dim = 6, .v_head_dim = 4, .scale = 0.4, __VA_ARGS__)
#define QKV "f:t,h*6 f:s,k*6 f:s,k*4"
#define WHERE " p:t s:t p:s s:s"
/* 3 sequences with room for 128 tokens. Tokens come in runs: u has their positions, q their
 * sequences. */
#define CACHED "f:t,h*6 f:t,k*6 f:t,k*4 u:t q:t f:3,k,4,6,32 f:3,k,128,4"
#define UNARY(op)                                                                                  \
    {                                                                                              \
        op, "f:t,d", NULL, SCALAR                                                                  \
    }
#define BINARY(op)                                                                                 \
    {op, "f:t,d f:t,d", NULL, SCALAR}, {op, "f:t,d f:d", NULL, SCALAR},                            \
    {                                                                                              \
        op, "f:t,1 f:a,1,d", NULL, SCALAR                                                          \
    }

static const row rows[] = {
#include "backends.def"
};

typedef struct bench {          /* the two backends and the sizes of this trial's letters */
    const tt_backend_vt *vt[2]; /* reference, cpu */
    void *self[2][2];           /* of 1 and 2 threads */
    tt_pool *pool[2];
    int64_t size[128];
    uint64_t random;
    tt_dtype dtype; /* of the floats */
} bench;
static bench s;

static int64_t draw(int64_t n)
{
    return (int64_t)(eval_uniform(&s.random) * (double)n);
}

static void draw_sizes(int trial)
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
    s.size['w'] = s.size['v'] + 12; /* v is [5, 5+v) of v + 11 */
    s.size['y'] = s.size['o'] > 0 ? s.size['o'] - 1 : 0;
    if (s.size['o'] == 0)
        s.size['o'] = 1;
}

static tt_dim parse_dim(const char **p)
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

static void fill(const tt_tensor *t, const char *kind)
{
    int64_t n = tt_tensor_numel(t), left = s.size['t'], at = 0;
    for (int64_t i = 0; i < n; i++) {
        double u = eval_uniform(&s.random);
        switch (kind[0]) {
        case 'f':
        case 'g':
            put(t, i, 4.0 * u - 2.0);
            break;
        case 'z':
            put(t, i, 2.0 * u - 1.0);
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
static void parse_operand(const char **p, tt_arena *a, tt_type *type, tt_tensor *x)
{
    const char *kind = *p;
    *p = strchr(*p, ':') + 1;
    type->dtype = strchr("fnmz", kind[0]) != NULL ? s.dtype : kind[0] == 'b' ? TT_BOOL : TT_I32;
    if (kind[0] == 'm' || kind[0] == 'g')
        type->dtype = TT_F32;
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

static bool run(int which, int threads, const tt_kernel *k, tt_kernel_call *c, tt_tensor *out)
{
    tt_error err = {0};
    c->out = out;
    c->pool = s.pool[threads];
    if (k->supports != NULL && !k->supports(c))
        return false;
    c->scratch_bytes = k->scratch_bytes != NULL ? k->scratch_bytes(c, threads + 1) : 0;
    c->scratch = aligned_alloc(64, (c->scratch_bytes + 127) / 64 * 64);
    memset(c->scratch, 0xff, c->scratch_bytes); /* NaN: scratch holds nothing yet */
    if (k->run(s.self[which][threads], c, &err) != TT_OK)
        fail_msg("%s: %s", c->op, err.text);
    free(c->scratch);
    return true;
}

static void compare(const row *r, int k, const tt_tensor *want, const tt_tensor *got,
                    const tt_tensor *before)
{
    double largest = 1.0, tolerance = r->tolerance + (want->dtype == TT_BF16 ? 1.0 / 128.0 : 0.0) +
                                      (before != NULL ? 1e-6 : 0.0);
    int64_t n = tt_tensor_numel(want);
    for (int64_t i = 0; i < n; i++)
        if (isfinite(get(want, i)))
            largest = fmax(largest, fabs(get(want, i)));
    for (int64_t i = 0; i < n; i++) {
        double a = get(want, i) + (before != NULL ? get(before, i) : 0.0), b = get(got, i);
        if (a == b || (isnan(a) && isnan(b)) || fabs(a - b) <= tolerance * largest)
            continue;
        fail_msg(
            "%s(%s) %s%s: output %d element %lld is %.9g, the reference has %.9g (largest %.3g)",
            r->op, r->ins, tt_dtype_name(s.dtype), before != NULL ? " accumulated" : "", k,
            (long long)i, b, a, largest);
    }
}

static size_t bytes_of(const tt_tensor *t)
{
    return (size_t)tt_tensor_numel(t) * tt_dtype_size(t->dtype);
}

static bool is_attention_bwd(const row *r)
{
    return strcmp(r->op, "attention_bwd") == 0 || strcmp(r->op, "attention_bias_bwd") == 0;
}

/* attention_bwd needs the out and lse that attention computes from the same q, k, v and bias. */
static void make_attention_true(const row *r, tt_tensor *in)
{
    if (!is_attention_bwd(r))
        return;
    const bool bias = ((const tt_attrs_attention *)r->attrs)->bias != 0;
    tt_tensor fin[8] = {in[0], in[1], in[2], in[6], in[7], in[8], in[9]};
    if (bias)
        fin[7] = in[10];
    tt_kernel_call c = {.struct_size = sizeof c,
                        .op = "attention",
                        .in = fin,
                        .n_in = bias ? 8 : 7,
                        .n_out = 2,
                        .attrs = r->attrs};
    run(0, 0, s.vt[0]->kernel(NULL, "attention"), &c, &in[3]);
}

static bool check_row(const row *r, const tt_op_table *table)
{
    tt_arena *a = tt_arena_new();
    tt_type types[TT_MAX_INS], outs[TT_MAX_OUTS];
    const tt_type *type_p[TT_MAX_INS];
    tt_tensor in[TT_MAX_INS], out[3][TT_MAX_OUTS];
    tt_error err = {0};
    const tt_op_def *def = tt_op_find(table, r->op);
    const tt_kernel *k[2] = {s.vt[0]->kernel(NULL, r->op), s.vt[1]->kernel(NULL, r->op)};
    int n = 0;
    bool ran = false;
    memset(types, 0, sizeof types);
    memset(outs, 0, sizeof outs);
    if (def == NULL || k[0] == NULL || k[1] == NULL)
        fail_msg("%s: no %s", r->op, def == NULL ? "op" : "kernel");
    for (const char *p = r->ins; *p != '\0'; n++) {
        parse_operand(&p, a, &types[n], &in[n]);
        type_p[n] = &types[n];
        if (is_attention_bwd(r) && n == 4) {
            types[n].dtype = TT_F32; /* lse */
            in[n] = tensor_of(a, &types[n]);
        }
    }
    tt_shape_query q = {sizeof q, n, type_p, r->attrs, r->op};
    if (def->infer(&q, outs, &err) != TT_OK)
        fail_msg("%s", err.text);
    for (int i = 0; i < 3; i++)
        for (int o = 0; o < def->n_out; o++) {
            out[i][o] = tensor_of(a, &outs[o]);
            if (strcmp(r->op, "embedding_dw") == 0)
                out[i][o].begin[0] = 5;
            memset(out[i][o].data, 0x5a, bytes_of(&out[i][o]));
        }
    make_attention_true(r, in);
    tt_kernel_call c = {.struct_size = sizeof c,
                        .op = r->op,
                        .in = in,
                        .n_in = n,
                        .n_out = def->n_out,
                        .attrs = r->attrs,
                        .seed = &(const uint64_t){5},
                        .step = &(const double){2}};
    run(0, 0, k[0], &c, out[0]);
    ran = run(1, 0, k[1], &c, out[1]) && run(1, 1, k[1], &c, out[2]);
    for (int o = 0; ran && o < def->n_out; o++) {
        compare(r, o, &out[0][o], &out[1][o], NULL);
        if (memcmp(out[1][o].data, out[2][o].data, bytes_of(&out[1][o])) != 0)
            fail_msg("%s(%s): two threads give other bits", r->op, r->ins);
    }
    if (ran && k[1]->can_accumulate && out[0][0].dtype != TT_I32) {
        fill(&out[2][0], "f");
        tt_tensor before = tensor_of(a, &outs[0]);
        memcpy(before.data, out[2][0].data, bytes_of(&before));
        c.accumulate = 1;
        run(1, 1, k[1], &c, out[2]);
        compare(r, 0, &out[0][0], &out[2][0], &before);
        c.accumulate = 0;
    }
    for (int i = 0; ran && i < n; i++) {
        if (!(k[1]->in_place >> i & 1) || bytes_of(&in[i]) != bytes_of(&out[2][0]) ||
            in[i].dtype != out[2][0].dtype)
            continue;
        tt_tensor mine[TT_MAX_INS];
        memcpy(mine, in, sizeof mine);
        memcpy(out[2][0].data, in[i].data, bytes_of(&in[i]));
        mine[i].data = out[2][0].data;
        c.in = mine;
        run(1, 1, k[1], &c, out[2]);
        c.in = in;
        if (memcmp(out[1][0].data, out[2][0].data, bytes_of(&out[1][0])) != 0)
            fail_msg("%s(%s): in place of input %d gives other bits", r->op, r->ins, i);
    }
    tt_arena_free(a);
    return ran;
}

static void check_all(tt_dtype dtype, bool must_run)
{
    tt_op_table table = {0};
    table.core = tt_core_ops(&table.n_core);
    s.random = 42;
    s.dtype = dtype;
    for (size_t i = 0; i < TT_COUNT(rows); i++)
        for (int trial = 0; trial < TRIALS; trial++) {
            draw_sizes(trial);
            if (!check_row(&rows[i], &table) && must_run)
                fail_msg("%s(%s): not supported in %s", rows[i].op, rows[i].ins,
                         tt_dtype_name(dtype));
        }
}

static void test_cpu_agrees_with_the_reference_in_f32(void **state)
{
    (void)state;
    check_all(TT_F32, true);
}

static void test_cpu_agrees_with_the_reference_in_bf16(void **state)
{
    (void)state;
    check_all(TT_BF16, false);
}

/* Every op of the core's table is in `rows`; fused has its own test, a product with a program is
 * compared in tests/backends/test_cpu_linear_fused.c and, of the reference, by every test of
 * fusion. */
static void test_every_op_is_compared(void **state)
{
    size_t n;
    const tt_op_def *const *ops = tt_core_ops(&n);
    (void)state;
    for (size_t i = 0; i < n; i++) {
        bool found = strstr(ops[i]->name, "fused") != NULL;
        if (ops[i]->expand_letters && !ops[i]->expand_letters[0])
            continue; /* it always expands into other ops */
        for (size_t k = 0; k < TT_COUNT(rows); k++)
            found |= strcmp(rows[k].op, ops[i]->name) == 0;
        if (!found)
            fail_msg("%s is in no row", ops[i]->name);
        if (s.vt[1]->kernel(NULL, ops[i]->name) == NULL && ops[i]->decompose == NULL)
            fail_msg("cpu has no %s, nor has it a decomposition", ops[i]->name);
    }
}

/* ---- fused programs: the bits of the single ops, one after the other (R11) ---- */

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

static void fused_trial(int which)
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
    assert_true(run(which, 1, s.vt[which]->kernel(NULL, "fused"), &c, out));
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
            attrs.value = (tt_attrs_const){p->imm, p->dtype};
        if (strncmp(p->op, "cast", 4) == 0)
            attrs.cast.to = p->dtype;
        tt_kernel_call one = {.struct_size = sizeof one,
                              .op = p->op,
                              .in = in,
                              .n_in = p->n_src,
                              .n_out = 1,
                              .attrs = &attrs};
        assert_true(run(which, 0, s.vt[which]->kernel(NULL, p->op), &one, &r[FUSED_INS + i]));
    }
    for (int i = 0; i < 2; i++)
        if (memcmp(out[i].data, r[program_out[i]].data, bytes_of(&out[i])) != 0)
            fail_msg("%s: output %d of the fused program differs from the single ops",
                     which ? "cpu" : "reference", i);
    tt_arena_free(a);
}

static void test_fused_has_the_bits_of_the_single_ops(void **state)
{
    (void)state;
    s.random = 9;
    s.dtype = TT_F32;
    for (int trial = 0; trial < TRIALS; trial++) {
        draw_sizes(trial);
        fused_trial(0);
        fused_trial(1);
    }
}

/* ---- attention on some of the heads: kv heads may be more than this rank's query heads use ----
 */

static tt_tensor head_box(tt_arena *a, const tt_tensor *whole, int64_t unit, int64_t begin,
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
static void check_heads(const tt_tensor *whole, const tt_tensor *boxes, const int64_t *at,
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

static void test_attention_reads_heads_of_a_larger_tensor(void **state)
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
    (void)state;
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
    run(0, 0, s.vt[0]->kernel(NULL, c.op), &c, dwhole);
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
        assert_true(run(1, 1, s.vt[1]->kernel(NULL, fwd.op), &fwd, &boxes[b][3]));
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
        assert_true(run(1, 1, s.vt[1]->kernel(NULL, bwd.op), &bwd, out));
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

static int load(void **state)
{
    static const char *const names[2] = {"reference", "cpu"};
    static max_align_t config[64]; /* zero = the defaults, for any backend's config */
    tt_error err = {0};
    (void)state;
    for (int t = 0; t < 2; t++)
        if (tt_pool_new(t + 1, &s.pool[t], &err) != TT_OK)
            fail_msg("%s", err.text);
    for (int i = 0; i < 2; i++) {
        s.vt[i] = backend_load(names[i]);
        for (int t = 0; t < 2; t++) {
            tt_backend_env env = {
                .struct_size = sizeof env, .n_threads = t + 1, .rank = 0, .world = 1};
            if (s.vt[i]->open(config, &env, &s.self[i][t], &err) != TT_OK)
                fail_msg("%s: %s", names[i], err.text);
        }
    }
    return 0;
}

static int unload(void **state)
{
    (void)state;
    for (int t = 0; t < 2; t++) {
        for (int i = 0; i < 2; i++)
            s.vt[i]->close(s.self[i][t]);
        tt_pool_free(s.pool[t]);
    }
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_op_is_compared),
        cmocka_unit_test(test_fused_has_the_bits_of_the_single_ops),
        cmocka_unit_test(test_attention_reads_heads_of_a_larger_tensor),
        cmocka_unit_test(test_cpu_agrees_with_the_reference_in_f32),
        cmocka_unit_test(test_cpu_agrees_with_the_reference_in_bf16),
    };
    return cmocka_run_group_tests(tests, load, unload);
}
