/* SPDX-License-Identifier: Apache-2.0 */
#include "base/pool.h"
#include "tensors.h"
#include <jansson.h>
#include <ttrun/ops.h>

/* scan, conv1d over segments and cumsum, forward and backward, against PyTorch's autograd in f64:
 * tests/golden/scan.json, written by scan_golden.py. The cached forms compute the same tokens in several
 * calls, always with the same bits. The reference's tolerance is that of some roundings in f64, the cpu backend's in f32. */

typedef struct side { /* a backend, the dtype it is tested in, and cpu's instruction set */
    const char *name;
    tt_dtype dtype;
    double tolerance;
    const char *isa;
    const tt_backend_vt *vt;
    void *self; /* NULL: this machine has no such instructions */
} side;
static side sides[] = {
    {"reference", TT_F64, 1e-13, NULL,      NULL, NULL},
    {"cpu",       TT_F32, 3e-6,  "generic", NULL, NULL},
    {"cpu",       TT_F32, 3e-6,  "avx2",    NULL, NULL},
    {"cpu",       TT_F32, 3e-6,  "avx512",  NULL, NULL},
};
#define EACH_SIDE(s)                                                                               \
    for (const side *s = sides; s < sides + TT_COUNT(sides); s++)                                  \
        if (s->self || !s->isa)
static json_t *golden;
static tt_arena *arena;

static tt_tensor new_tensor(tt_dtype dtype, int n, const int64_t *shape)
{
    tt_type t = {.dtype = dtype, .n_dims = n};
    for (int d = 0; d < n; d++)
        t.dims[d] = TT_DIM(shape[d], NULL);
    return tensor_of(arena, &t);
}

static tt_tensor filled(const json_t *values, tt_dtype dtype, int n, const int64_t *shape)
{
    tt_tensor t = new_tensor(dtype, n, shape);
    assert_true((int64_t)json_array_size(values) >= tt_tensor_numel(&t));
    for (int64_t i = 0; i < tt_tensor_numel(&t); i++)
        put(&t, i, json_number_value(json_array_get(values, (size_t)i)));
    return t;
}

static void check(const side *s, const char *what, const tt_tensor *t, const json_t *want)
{
    assert_int_equal((int64_t)json_array_size(want), tt_tensor_numel(t));
    for (int64_t i = 0; i < tt_tensor_numel(t); i++) {
        const double w = json_number_value(json_array_get(want, (size_t)i)), g = get(t, i);
        if (!(fabs(g - w) <= s->tolerance * (1.0 + fabs(w))))
            fail_msg("%s %s[%lld] is %.17g, PyTorch has %.17g", s->name, what, (long long)i, g, w);
    }
}

static tt_status call_status(const side *s, const char *op, const tt_tensor *in, int n_in,
                             tt_tensor *out, int n_out, const void *attrs, tt_error *err)
{
    const tt_kernel *k = s->vt->kernel(s->self, op);
    tt_kernel_call c = {.struct_size = sizeof c,
                        .op = op,
                        .in = in,
                        .n_in = n_in,
                        .out = out,
                        .n_out = n_out,
                        .attrs = attrs};
    if (!k)
        fail_msg("%s has no kernel for %s", s->name, op);
    c.scratch_bytes = k->scratch_bytes ? k->scratch_bytes(&c, 1) : 0;
    c.scratch = tt_arena_alloc(arena, c.scratch_bytes + 64);
    return k->run(s->self, &c, err);
}

static void call(const side *s, const char *op, const tt_tensor *in, int n_in, tt_tensor *out,
                 int n_out, const void *attrs)
{
    tt_error err = {0};
    if (call_status(s, op, in, n_in, out, n_out, attrs, &err) != TT_OK)
        fail_msg("%s", err.text);
}

typedef struct golden_case {
    const char *op;
    int n_in, rank[2];
    int64_t shape[2][TT_MAX_DIMS];
    const json_t *inputs, *grads, *y, *dy, *seg, *pos;
    bool one_decay;
    tt_attrs_cumsum cumsum;
} golden_case;

static int32_t whole(const json_t *c, const char *key)
{
    return (int32_t)json_integer_value(json_object_get(c, key));
}

static golden_case case_of(const json_t *c)
{
    golden_case g = {
        .op = json_string_value(json_object_get(c, "op")),
        .inputs = json_object_get(c, "inputs"),
        .grads = json_object_get(c, "grads"),
        .y = json_object_get(c, "y"),
        .dy = json_object_get(c, "dy"),
        .seg = json_object_get(c, "seg"),
        .pos = json_object_get(c, "pos"),
        .one_decay = json_is_true(json_object_get(c, "one_decay")),
        .cumsum = {whole(c, "dim"), whole(c, "reverse"), whole(c, "exclusive")}
    };
    const json_t *shapes = json_object_get(c, "shapes");
    g.n_in = (int)json_array_size(shapes);
    for (int i = 0; i < g.n_in; i++) {
        const json_t *shape = json_array_get(shapes, (size_t)i);
        g.rank[i] = (int)json_array_size(shape);
        for (int d = 0; d < g.rank[i]; d++)
            g.shape[i][d] = json_integer_value(json_array_get(shape, (size_t)d));
    }
    return g;
}

static tt_tensor input_of(const side *s, const golden_case *g, int i, bool one_row)
{
    int64_t shape[TT_MAX_DIMS];
    memcpy(shape, g->shape[i], sizeof shape);
    if (one_row)
        shape[0] = 1;
    return filled(json_array_get(g->inputs, (size_t)i), s->dtype, g->rank[i], shape);
}

static void check_case(const side *s, const golden_case *g)
{
    const bool sum = !strcmp(g->op, "cumsum"), scan = !strcmp(g->op, "scan");
    tt_tensor x = input_of(s, g, 0, false), y = new_tensor(s->dtype, g->rank[0], g->shape[0]),
              dy = filled(g->dy, s->dtype, g->rank[0], g->shape[0]),
              d[2] = {new_tensor(s->dtype, g->rank[0], g->shape[0])};
    if (sum) {
        tt_attrs_cumsum back = g->cumsum;
        back.reverse = !back.reverse;
        call(s, "cumsum", &x, 1, &y, 1, &g->cumsum);
        call(s, "cumsum", &dy, 1, d, 1, &back);
    } else {
        const tt_tensor w = input_of(s, g, 1, g->one_decay),
                        seg = filled(g->seg, TT_I32, 1, g->shape[0]),
                        pos = filled(g->pos, TT_I32, 1, g->shape[0]);
        const tt_tensor in[4] = {x, w, seg, pos}, scan_in[5] = {y, w, dy, seg, pos},
                        conv_in[5] = {x, w, seg, pos, dy};
        d[1] = new_tensor(s->dtype, g->rank[1], g->shape[1]);
        call(s, g->op, in, 4, &y, 1, NULL);
        call(s, scan ? "scan_bwd" : "conv1d_bwd", scan ? scan_in : conv_in, 5, d, 2, NULL);
    }
    check(s, g->op, &y, g->y);
    for (int i = 0; i < g->n_in; i++)
        check(s, (const char *[]){"dx", "da or dw"}[i], &d[i], json_array_get(g->grads, (size_t)i));
}

static void test_values_and_gradients_are_those_of_pytorch(void **state)
{
    (void)state;
    assert_int_equal(json_array_size(golden), 20);
    for (size_t i = 0; i < json_array_size(golden); i++) {
        const golden_case g = case_of(json_array_get(golden, i));
        EACH_SIDE(s) check_case(s, &g);
    }
}

/* ---- the cached forms ---- */

static tt_tensor rows_of(const tt_tensor *t, int64_t begin, int64_t n)
{
    tt_tensor r = *t;
    if (t->shape[0] == 1) /* one decay for all tokens */
        return r;
    r.shape[0] = n;
    r.data = (char *)t->data +
             (size_t)(tt_tensor_numel(t) / t->shape[0] * begin) * tt_dtype_size(t->dtype);
    return r;
}

/* Computes the tokens in calls of `step` tokens. The states begin as NaN: no sequence reads what another
 * left. */
static void check_cached(const side *s, const golden_case *g, int64_t step)
{
    const bool scan = !strcmp(g->op, "scan");
    const int64_t tokens = g->shape[0][0], taps = g->shape[1][1];
    tt_tensor x = input_of(s, g, 0, false), w = input_of(s, g, 1, g->one_decay),
              y = new_tensor(s->dtype, g->rank[0], g->shape[0]),
              seg = filled(g->seg, TT_I32, 1, g->shape[0]),
              pos = filled(g->pos, TT_I32, 1, g->shape[0]);
    int64_t shape[TT_MAX_DIMS] = {8};
    for (int i = 1; i < TT_MAX_DIMS; i++)
        shape[i] = g->shape[0][i];
    if (!scan) {
        shape[1] = taps > 1 ? taps - 1 : 1;
        shape[2] = g->shape[0][1];
    }
    tt_tensor held = new_tensor(s->dtype, scan ? g->rank[0] : 3, shape);
    for (int64_t i = 0; i < tt_tensor_numel(&held); i++)
        put(&held, i, (double)NAN);
    for (int64_t t = 0; t < tokens; t += step) {
        const int64_t n = TT_MIN(step, tokens - t);
        tt_tensor updated = new_tensor(s->dtype, held.n_dims, shape);
        const tt_tensor in[5] = {rows_of(&x, t, n), scan ? rows_of(&w, t, n) : w,
                                 rows_of(&seg, t, n), rows_of(&pos, t, n), held};
        tt_tensor out[2] = {rows_of(&y, t, n), t % 2 ? updated : held};
        call(s, scan ? "scan_cached" : "conv1d_cached", in, 5, out, 2, NULL);
        held = out[1];
    }
    check(s, "cached", &y, g->y);
    put(&seg, 0, 8);
    const tt_tensor in[5] = {x, w, seg, pos, held};
    tt_error err = {0};
    assert_int_equal(call_status(s, scan ? "scan_cached" : "conv1d_cached", in, 5,
                                 (tt_tensor[]){y, held}, 2, NULL, &err),
                     TT_EINVAL);
    assert_non_null(strstr(err.text, "there is room for 8 sequences"));
}

static void test_calls_of_a_few_tokens_continue_the_states(void **state)
{
    int n = 0;
    (void)state;
    for (size_t i = 0; i < json_array_size(golden); i++) {
        const golden_case g = case_of(json_array_get(golden, i));
        if (!g.pos || json_integer_value(json_array_get(g.pos, 0)) != 0)
            continue; /* tokens of a sequence come from its first on */
        EACH_SIDE(s)
        for (int64_t step = 1; step < 10; step += 2)
            check_cached(s, &g, step);
        n++;
    }
    assert_int_equal(n, 5);
}

static void check_no_sequence(const side *s, bool conv)
{
    const int64_t x_shape[2] = {3, 37}, w_shape[2] = {37, 3}, rows_shape[3] = {2, 2, 37},
                  state_shape[2] = {2, 37};
    tt_tensor x = new_tensor(s->dtype, 2, x_shape), y = new_tensor(s->dtype, 2, x_shape),
              w = new_tensor(s->dtype, 2, conv ? w_shape : x_shape),
              slot = new_tensor(TT_I32, 1, x_shape), pos = new_tensor(TT_I32, 1, x_shape),
              held = new_tensor(s->dtype, conv ? 3 : 2, conv ? rows_shape : state_shape);
    for (int64_t i = 0; i < tt_tensor_numel(&held); i++)
        put(&held, i, 0.5);
    for (int64_t i = 0; i < 3; i++) {
        put(&slot, i, i == 1 ? 1 : -1);
        put(&pos, i, 4);
    }
    for (int64_t i = 0; i < 3 * 37; i++) {
        put(&x, i, 1);
        put(&w, i, 2);
        put(&y, i, 9);
    }
    const tt_tensor in[5] = {x, w, slot, pos, held};
    tt_tensor out[2] = {y, held};
    call(s, conv ? "conv1d_cached" : "scan_cached", in, 5, out, 2, NULL);
    for (int64_t i = 0; i < 3 * 37; i++) /* 2 · 1 + 2 · 0.5 + 2 · 0.5, or 2 · 0.5 + 1 */
        assert_true(get(&y, i) == (i / 37 != 1 ? 0.0 : conv ? 4.0 : 2.0));
    const int64_t n = tt_tensor_numel(&held), begin = conv ? 2 * 37 : 37;
    for (int64_t i = 0; i < n; i++) { /* of sequence 1, conv1d's row 4 mod 2 */
        const bool changed = i >= begin && i < begin + 37;
        assert_true(get(&held, i) == (!changed ? 0.5 : conv ? 1.0 : 2.0));
    }
}

static void test_a_token_of_no_sequence_is_zero_and_leaves_the_states(void **state)
{
    (void)state;
    EACH_SIDE(s)
    {
        check_no_sequence(s, false);
        check_no_sequence(s, true);
    }
}

/* ---- the cached forms: the bits of a sequence do not depend on calls ---- */

#define LONG 150 /* more than two chunks of the delta rule */
#define BESIDE 2 /* tokens of another sequence in each call */
#define FORM_OPERANDS 5

typedef struct form {
    const char *op;
    int n; /* operands before slot and pos; then the state */
    struct {
        int rank; /* of the operand; its first dim is that of tokens, if it is `rows` */
        bool rows;
        int64_t shape[4];
    } in[FORM_OPERANDS];
    int state_rank;
    int64_t state[5];
    int out; /* the result has the shape of this operand */
} form;
static const form forms[] = {
    {"scan_cached",       2, {{2, true, {0, 37}}, {2, true, {0, 37}}},  2, {2, 37},           0},
    {"conv1d_cached",     2, {{2, true, {0, 37}}, {2, false, {37, 4}}}, 3, {2, 3, 37},        0},
    {"delta_rule_cached",
     5,                      {{3, true, {0, 2, 20}},
      {3, true, {0, 2, 20}},
      {4, true, {0, 2, 3, 75}},
      {3, true, {0, 2, 3}},
      {3, true, {0, 2, 3}}},
     5,                                                                    {2, 2, 3, 20, 75},
     2                                                                                         },
};

/* Numbers in (0, 0.4): decays that are decays, and states that stay small. */
static double number_at(int64_t operand, int64_t row, int64_t i)
{
    return 0.4 * fabs(sin(1.3 * (double)(operand + 1) + 0.7 * (double)row + 0.11 * (double)i));
}

/* Rows of a call: BESIDE of sequence 0 if it is `beside`, then n of sequence 1 from token t on. The result's rows of
 * sequence 1 go to y. */
static void call_form(const side *s, const form *f, int64_t t, int64_t n, bool beside,
                      int64_t other, tt_tensor *state, tt_tensor *y)
{
    const int64_t first = beside ? BESIDE : 0, rows = first + n;
    tt_tensor in[FORM_OPERANDS + 3], out[2];
    for (int i = 0; i < f->n; i++) {
        int64_t shape[TT_MAX_DIMS] = {0};
        memcpy(shape, f->in[i].shape, sizeof f->in[i].shape);
        shape[0] = f->in[i].rows ? rows : shape[0];
        in[i] = new_tensor(s->dtype, f->in[i].rank, shape);
        const int64_t each = tt_tensor_numel(&in[i]) / shape[0];
        for (int64_t k = 0; k < tt_tensor_numel(&in[i]); k++)
            put(&in[i], k,
                number_at(i, !f->in[i].rows || k / each < first ? 0 : t + k / each - first,
                          k % each) *
                    (i == 3 ? -1 : 1)); /* a decay's logarithm */
    }
    in[f->n] = new_tensor(TT_I32, 1, &rows);
    in[f->n + 1] = new_tensor(TT_I32, 1, &rows);
    in[f->n + 2] = out[1] = *state;
    for (int64_t k = 0; k < rows; k++) {
        put(&in[f->n], k, k >= first);
        put(&in[f->n + 1], k, (double)(k < first ? other + k : t + k - first));
    }
    out[0] = new_tensor(s->dtype, in[f->out].n_dims, in[f->out].shape);
    call(s, f->op, in, f->n + 3, out, 2, NULL);
    const tt_tensor from = rows_of(&out[0], first, n), to = rows_of(y, t, n);
    memcpy(to.data, from.data, (size_t)tt_tensor_numel(&from) * tt_dtype_size(s->dtype));
}

static void compute_form(const side *s, const form *f, int64_t step, bool beside, tt_tensor *y,
                         tt_tensor *state)
{
    int64_t shape[TT_MAX_DIMS] = {0};
    memcpy(shape, f->in[f->out].shape, sizeof f->in[f->out].shape);
    shape[0] = LONG;
    *y = new_tensor(s->dtype, f->in[f->out].rank, shape);
    *state = new_tensor(s->dtype, f->state_rank, f->state);
    for (int64_t i = 0; i < tt_tensor_numel(state); i++) /* no sequence reads what another left */
        put(state, i, (double)NAN);
    int64_t other = 0;
    for (int64_t t = 0; t < LONG; t += step, other += BESIDE)
        call_form(s, f, t, TT_MIN(step, LONG - t), beside, other, state, y);
}

static void test_the_bits_of_a_sequence_do_not_depend_on_the_calls_that_compute_it(void **state)
{
    static const int64_t steps[] = {LONG, 1, 7, 64, 100};
    (void)state;
    for (size_t k = 0; k < TT_COUNT(forms); k++)
        EACH_SIDE(s)
        {
            tt_tensor y, held, y2, held2;
            compute_form(s, &forms[k], LONG, false, &y, &held);
            const size_t part = (size_t)(tt_tensor_numel(&held) / 2) * tt_dtype_size(s->dtype);
            for (int64_t i = 0; i < tt_tensor_numel(&y); i++)
                assert_true(isfinite(get(&y, i)) && get(&y, i) != 0.0);
            for (size_t i = 0; i < TT_COUNT(steps); i++) {
                compute_form(s, &forms[k], steps[i], i % 2 == 0, &y2, &held2);
                if (memcmp(y.data, y2.data,
                           (size_t)tt_tensor_numel(&y) * tt_dtype_size(s->dtype)) ||
                    memcmp((char *)held.data + part, (char *)held2.data + part, part))
                    fail_msg("%s of %s %s: other bits in calls of %d", forms[k].op, s->name,
                             s->isa ? s->isa : "", (int)steps[i]);
            }
        }
}

static int load(void **state)
{
    char path[1024];
    const char *src = getenv("SRC");
    json_error_t why;
    tt_error err = {0};
    (void)state;
    arena = tt_arena_new();
    snprintf(path, sizeof path, "%s/tests/golden/scan.json", src ? src : ".");
    golden = json_load_file(path, 0, &why);
    if (!golden)
        fail_msg("%s: %s", path, why.text);
    for (size_t k = 0; k < TT_COUNT(sides); k++) {
        const char *config[8] = {sides[k].isa}; /* the first option is the instruction set */
        sides[k].vt = backend_load(sides[k].name);
        if (sides[k].vt->open(config, NULL, &sides[k].self, &err) != TT_OK &&
            err.code != TT_EUNSUPPORTED)
            fail_msg("%s", err.text);
    }
    return 0;
}

static int unload(void **state)
{
    (void)state;
    EACH_SIDE(s) s->vt->close(s->self);
    json_decref(golden);
    tt_arena_free(arena);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values_and_gradients_are_those_of_pytorch),
        cmocka_unit_test(test_calls_of_a_few_tokens_continue_the_states),
        cmocka_unit_test(test_a_token_of_no_sequence_is_zero_and_leaves_the_states),
        cmocka_unit_test(test_the_bits_of_a_sequence_do_not_depend_on_the_calls_that_compute_it),
    };
    return cmocka_run_group_tests(tests, load, unload);
}
