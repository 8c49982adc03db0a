/* SPDX-License-Identifier: Apache-2.0 */
#include "eval.h"
#include "graph/graph.h"
#include <jansson.h>
#include <ttrun/ops.h>

/* The reference kernels against PyTorch, and rope's frequencies against transformers:
 * tests/golden/ops.json, written by ops_golden.py; attention with a bias: attention.json, written by
 * attention_golden.py. PyTorch's values are f64; the tolerance 1e-11
 * is the error of some hundred roundings. */

#define TOLERANCE 1e-11

static json_t *golden, *golden_bias;
static const tt_backend_vt *backend;

static double number(const json_t *o, const char *key, double otherwise)
{
    const json_t *v = json_object_get(o, key);
    return v == NULL ? otherwise : json_number_value(v);
}

static tt_tensor new_tensor(tt_dtype dtype, int n, const int64_t *shape)
{
    tt_tensor t = {.dtype = dtype, .n_dims = n};
    for (int d = 0; d < n; d++)
        t.shape[d] = t.global[d] = shape[d];
    t.data = calloc((size_t)tt_tensor_numel(&t) + 1, tt_dtype_size(dtype));
    assert_non_null(t.data);
    return t;
}

static tt_tensor from_json(const json_t *values, tt_dtype dtype, int n, const int64_t *shape)
{
    tt_tensor t = new_tensor(dtype, n, shape);
    assert_int_equal((int64_t)json_array_size(values), tt_tensor_numel(&t));
    for (int64_t i = 0; i < tt_tensor_numel(&t); i++)
        put(&t, i, json_number_value(json_array_get(values, (size_t)i)));
    return t;
}

static void release(tt_tensor *t, int n)
{
    for (int i = 0; i < n; i++)
        free(t[i].data);
}

static void check(const char *name, const char *what, const tt_tensor *t, const json_t *want)
{
    assert_int_equal((int64_t)json_array_size(want), tt_tensor_numel(t));
    for (int64_t i = 0; i < tt_tensor_numel(t); i++) {
        double w = json_number_value(json_array_get(want, (size_t)i)), g = get(t, i);
        if (!(fabs(g - w) <= TOLERANCE * (1.0 + fabs(w))))
            fail_msg("%s: %s[%lld] is %.17g, PyTorch has %.17g", name, what, (long long)i, g, w);
    }
}

static void call(const char *op, const tt_tensor *in, int n_in, tt_tensor *out, int n_out,
                 const void *attrs)
{
    tt_error err = {0};
    const tt_kernel *k = backend->kernel(NULL, op);
    if (k == NULL)
        fail_msg("no kernel for %s", op);
    tt_kernel_call c = {.struct_size = sizeof c,
                        .op = op,
                        .in = in,
                        .n_in = n_in,
                        .out = out,
                        .n_out = n_out,
                        .attrs = attrs};
    if (k->scratch_bytes != NULL)
        c.scratch_bytes = k->scratch_bytes(&c, 1);
    c.scratch = aligned_alloc(64, (c.scratch_bytes + 127) / 64 * 64);
    if (k->run(NULL, &c, &err) != TT_OK)
        fail_msg("%s", err.text);
    free(c.scratch);
}

static void test_rope_frequencies_are_those_of_transformers(void **state)
{
    size_t i;
    const json_t *c;
    (void)state;
    json_array_foreach(json_object_get(golden, "rope"), i, c)
    {
        const char *name = json_string_value(json_object_get(c, "name"));
        double inv[256], low = number(c, "low", 1), high = number(c, "high", 4),
                         factor = number(c, "factor", 1);
        const json_t *want = json_object_get(c, "inv");
        int64_t hd = (int64_t)number(c, "head_dim", 0);
        tt_rope_opts o = {.head_dim = hd,
                          .rotary_dim = hd,
                          .theta = number(c, "theta", 0),
                          .scaling = (tt_rope_scaling)number(c, "scaling", 0),
                          .factor = factor,
                          .low_freq_factor = low,
                          .high_freq_factor = high,
                          .original_max_position = number(c, "original", 8192),
                          .beta_fast = 32,
                          .beta_slow = 1,
                          .attention_factor = 0.1 * log(factor) + 1.0,
                          .no_truncate = (int)number(c, "no_truncate", 0)};
        double attention = tt_rope_frequencies(&o, inv, hd / 2);
        assert_int_equal((int64_t)json_array_size(want), hd / 2);
        if (fabs(attention - number(c, "attention_factor", 0)) > 1e-12)
            fail_msg("%s: attention factor %.17g", name, attention);
        for (int64_t j = 0; j < hd / 2; j++) { /* transformers computes these in f32 */
            double w = json_number_value(json_array_get(want, (size_t)j));
            if (!(fabs(inv[j] - w) <= 2e-6 * w))
                fail_msg("%s: frequency %lld is %.9g, transformers has %.9g", name, (long long)j,
                         inv[j], w);
        }
    }
}

/* Rows [begin, begin + n) of a tensor of 1 or 2 dims, as they lie. */
static tt_tensor rows_of(const tt_tensor *t, int64_t begin, int64_t n)
{
    tt_tensor p = *t;
    const int64_t width = t->n_dims == 2 ? t->shape[1] : 1;
    p.data = (char *)t->data + (size_t)(begin * width) * tt_dtype_size(t->dtype);
    p.shape[0] = n;
    p.global[0] = n;
    return p;
}

/* The same with keys in three pieces, in the order in which a rank in the middle of a ring gets
 * them: outs are merged, dq is summed. */
static void check_pieces(const char *name, const json_t *c, const tt_attrs_attention *a,
                         tt_tensor *in, int n_in, const tt_tensor *dout)
{
    static const int64_t begin[] = {3, 5, 0}, n[] = {2, 2, 3};
    const json_t *grads = json_object_get(c, "grads");
    const int64_t t = in[0].shape[0], h = in[0].shape[1] / a->head_dim;
    const int64_t wide[2] = {t, h * a->v_head_dim}, narrow[2] = {t, h};
    const int biased = a->bias ? 1 : 0;
    tt_tensor sum[2], part[2], both[2], d[4], dq = new_tensor(TT_F64, 2, in[0].shape), dbias = dq;
    if (biased)
        dbias = new_tensor(TT_F64, 2, in[n_in - 1].shape);
    assert_int_equal(t, 7);
    for (int k = 0; k < 2; k++) {
        sum[k] = new_tensor(TT_F64, 2, k ? narrow : wide);
        part[k] = new_tensor(TT_F64, 2, k ? narrow : wide);
        both[k] = new_tensor(TT_F64, 2, k ? narrow : wide);
    }
    for (int i = 0; i < 3; i++) {
        tt_tensor x[9] = {
            in[0], rows_of(&in[1], begin[i], n[i]), rows_of(&in[2], begin[i], n[i]), in[3],
            in[4], rows_of(&in[5], begin[i], n[i]), rows_of(&in[6], begin[i], n[i]), in[7],
            in[8]};
        if (i) /* the sinks count once */
            x[7] = in[n_in - 1];
        call("attention", x, i ? 7 + biased : n_in, i ? part : sum, 2, a);
        tt_tensor m[4] = {sum[0], sum[1], part[0], part[1]};
        if (!i)
            continue;
        call("attention_merge", m, 4, both, 2, NULL);
        for (int k = 0; k < 2; k++) {
            const tt_tensor old = sum[k];
            sum[k] = both[k];
            both[k] = old;
        }
    }
    check(name, "out of pieces", &sum[0], json_object_get(c, "out"));
    check(name, "lse of pieces", &sum[1], json_object_get(c, "lse"));
    for (int k = 0; k < 3 + biased; k++)
        d[k] = new_tensor(TT_F64, 2, in[k < 3 ? k : n_in - 1].shape);
    for (int i = 0; i < 3; i++) {
        tt_tensor y[4] = {dq, rows_of(&d[1], begin[i], n[i]), rows_of(&d[2], begin[i], n[i]),
                          dbias};
        tt_tensor x[11] = {in[0],
                           rows_of(&in[1], begin[i], n[i]),
                           rows_of(&in[2], begin[i], n[i]),
                           sum[0],
                           sum[1],
                           *dout,
                           in[3],
                           in[4],
                           rows_of(&in[5], begin[i], n[i]),
                           rows_of(&in[6], begin[i], n[i]),
                           in[n_in - 1]};
        call(biased ? "attention_bias_bwd" : "attention_bwd", x, 10 + biased, y, 3 + biased, a);
        for (int64_t e = 0; e < tt_tensor_numel(&dq); e++)
            put(&d[0], e, get(&d[0], e) + get(&dq, e));
        for (int64_t e = 0; biased && e < tt_tensor_numel(&dbias); e++)
            put(&d[3], e, get(&d[3], e) + get(&dbias, e));
    }
    for (int k = 0; k < 3 + biased; k++)
        check(
            name,
            (const char *[]){"dq of pieces", "dk of pieces", "dv of pieces", "dbias of pieces"}[k],
            &d[k], json_array_get(grads, (size_t)k));
    release(sum, 2);
    release(part, 2);
    release(both, 2);
    release(d, 3 + biased);
    release(&dq, 1);
    if (biased)
        release(&dbias, 1);
}

static void check_attention(const json_t *c)
{
    const char *name = json_string_value(json_object_get(c, "name"));
    int64_t t = (int64_t)number(c, "tokens", 0), h = (int64_t)number(c, "heads", 0),
            k = (int64_t)number(c, "kv_heads", 0);
    int64_t hd = (int64_t)number(c, "head_dim", 0), dv = (int64_t)number(c, "v_head_dim", 0);
    double scale = number(c, "scale", 0);
    const json_t *sinks = json_object_get(c, "sinks"), *grads = json_object_get(c, "grads"),
                 *bias = json_object_get(c, "bias");
    tt_attrs_attention a = {.head_dim = hd,
                            .v_head_dim = dv,
                            .window = (int64_t)number(c, "window", 0),
                            .softcap = number(c, "softcap", 0),
                            .scale = scale != 0.0 ? scale : 1.0 / sqrt((double)hd),
                            .bidirectional = (int32_t)number(c, "bidirectional", 0),
                            .bias = bias != NULL};
    tt_tensor pos = from_json(json_object_get(c, "pos"), TT_I32, 1, &t),
              seg = from_json(json_object_get(c, "seg"), TT_I32, 1, &t);
    tt_tensor in[9] = {from_json(json_object_get(c, "q"), TT_F64, 2, (int64_t[]){t, h * hd}),
                       from_json(json_object_get(c, "k"), TT_F64, 2, (int64_t[]){t, k * hd}),
                       from_json(json_object_get(c, "v"), TT_F64, 2, (int64_t[]){t, k * dv}),
                       pos,
                       seg,
                       pos,
                       seg};
    tt_tensor out[2] = {new_tensor(TT_F64, 2, (int64_t[]){t, h * dv}),
                        new_tensor(TT_F64, 2, (int64_t[]){t, h})};
    const int biased = a.bias ? 1 : 0;
    int n_in = 7;
    if (json_is_array(sinks))
        in[n_in++] = from_json(sinks, TT_F64, 1, &h);
    if (biased)
        in[n_in++] = from_json(bias, TT_F64, 2, (int64_t[]){h, (int64_t)number(c, "distances", 0)});
    call("attention", in, n_in, out, 2, &a);
    check(name, "out", &out[0], json_object_get(c, "out"));
    check(name, "lse", &out[1], json_object_get(c, "lse"));
    tt_tensor dout = from_json(json_object_get(c, "dout"), TT_F64, 2, (int64_t[]){t, h * dv});
    tt_tensor bin[11] = {in[0], in[1], in[2], out[0], out[1],      dout,
                         pos,   seg,   pos,   seg,    in[n_in - 1]};
    tt_tensor d[4];
    for (int i = 0; i < 3 + biased; i++)
        d[i] = new_tensor(TT_F64, 2, in[i < 3 ? i : n_in - 1].shape);
    call("attention_bwd", bin, 10 + biased, d, 3, &a);
    if (biased)
        call("attention_bias_bwd", bin, 11, d, 4, &a);
    for (int i = 0; i < 3 + biased; i++)
        check(name, (const char *[]){"dq", "dk", "dv", "dbias"}[i], &d[i],
              json_array_get(grads, (size_t)i));
    check_pieces(name, c, &a, in, n_in, &dout);
    release(d, 3 + biased);
    release(out, 2);
    release(in, 5);
    release(in + 7, n_in - 7);
    free(dout.data);
}

static void test_attention_is_that_of_pytorch(void **state)
{
    size_t i;
    const json_t *c;
    (void)state;
    json_array_foreach(json_object_get(golden, "attention"), i, c) check_attention(c);
}

static void test_attention_with_a_bias_is_that_of_pytorch(void **state)
{
    size_t i;
    const json_t *c;
    (void)state;
    assert_int_equal(json_array_size(json_object_get(golden_bias, "bias")), 10);
    json_array_foreach(json_object_get(golden_bias, "bias"), i, c) check_attention(c);
}

static void put_json(eval *e, const tt_value *v, const json_t *values)
{
    tt_tensor *t = &e->tensors[v->id];
    assert_int_equal((int64_t)json_array_size(values), tt_tensor_numel(t));
    for (int64_t i = 0; i < tt_tensor_numel(t); i++)
        put(t, i, json_number_value(json_array_get(values, (size_t)i)));
}

/* Prefix-LM, and keys of other tokens, as a model writes them. */
static void test_prefix_and_cross_attention_are_those_of_pytorch(void **state)
{
    size_t i;
    const json_t *c;
    (void)state;
    assert_int_equal(json_array_size(json_object_get(golden_bias, "masked")), 3);
    json_array_foreach(json_object_get(golden_bias, "masked"), i, c)
    {
        const json_t *prefix = json_object_get(c, "prefix"), *pos_k = json_object_get(c, "pos_k");
        const tt_dim S = tt_dim_make((int64_t)number(c, "keys", 0), "tokens", 1, EVAL_SEQUENCES),
                     K = TT_DIM_UNIT(6, "kv_heads", 3),
                     q_dims[2] = {tokens_dim(), TT_DIM_UNIT(12, "heads", 3)}, k_dims[2] = {S, K};
        tt_attention_opts o = {.bidirectional = (int)number(c, "bidirectional", 0)};
        eval e;
        eval_init(&e, backend, false);
        tt_value *q = leaf_of(&e, TT_F64, 0, 1, 2, q_dims),
                 *k = leaf_of(&e, TT_F64, 0, 1, 2, k_dims),
                 *v = leaf_of(&e, TT_F64, 0, 1, 2, k_dims);
        if (prefix)
            o.prefix = leaf_of(&e, TT_I32, 0, 1, 1, &S);
        if (pos_k) {
            o.pos_k = leaf_of(&e, TT_I32, 0, 1, 1, &S);
            o.seg_k = leaf_of(&e, TT_I32, 0, 1, 1, &S);
        }
        const tt_value *y = tt_attention(e.b, q, k, v, 3, &o);
        if (tt_builder_error(e.b))
            fail_msg("%s", tt_builder_error(e.b)->text);
        eval_prepare(&e);
        put_json(&e, q, json_object_get(c, "q"));
        put_json(&e, k, json_object_get(c, "k"));
        put_json(&e, v, json_object_get(c, "v"));
        if (prefix)
            put_json(&e, o.prefix, prefix);
        if (pos_k) {
            put_json(&e, o.pos_k, pos_k);
            put_json(&e, o.seg_k, json_object_get(c, "seg_k"));
        }
        eval_run(&e, e.g->nodes.n);
        check(json_string_value(json_object_get(c, "name")), "out", &e.tensors[y->id],
              json_object_get(c, "out"));
        eval_release(&e);
    }
}

static void test_a_prefix_is_alone(void **state)
{
    eval e;
    (void)state;
    eval_init(&e, backend, false);
    const tt_dim dims[2] = {tokens_dim(), TT_DIM_UNIT(6, "heads", 3)};
    tt_value *x = leaf_of(&e, TT_F64, 0, 1, 2, dims), *p = leaf_of(&e, TT_I32, 0, 1, 1, dims);
    tt_attention(e.b, x, x, x, 3, &(tt_attention_opts){.prefix = p, .window = 2});
    assert_non_null(strstr(tt_builder_error(e.b)->text, "attention: prefix with bias, window"));
    eval_release(&e);
    eval_init(&e, backend, false);
    const tt_dim other[2] = {tt_dim_make(6, "tokens", 1, EVAL_SEQUENCES), dims[1]};
    x = leaf_of(&e, TT_F64, 0, 1, 2, dims);
    p = leaf_of(&e, TT_F64, 0, 1, 2, other);
    tt_attention(e.b, x, p, p, 3, NULL);
    assert_non_null(strstr(tt_builder_error(e.b)->text, "give pos_k and seg_k of k's tokens"));
    eval_release(&e);
}

/* The only constant that a builder function made. */
static void check_constant(eval *e, const json_t *c)
{
    const json_t *want = json_object_get(c, "values");
    if (tt_builder_error(e->b))
        fail_msg("%s", tt_builder_error(e->b)->text);
    assert_int_equal(e->g->states.n, 1);
    const float *have = ((const tt_state *)e->g->states.items[0])->values;
    for (size_t i = 0; i < json_array_size(want); i++) {
        const float w = (float)json_number_value(json_array_get(want, i));
        if (!(fabsf(have[i] - w) <= 1e-6f * fabsf(w)))
            fail_msg("element %zu is %.9g, not %.9g", i, (double)have[i], (double)w);
    }
    eval_release(e);
}

static void test_the_tables_of_alibi_and_t5(void **state)
{
    size_t i;
    const json_t *c;
    eval e;
    (void)state;
    json_array_foreach(json_object_get(golden_bias, "alibi"), i, c)
    {
        eval_init(&e, backend, false);
        const tt_value *v =
            tt_alibi(e.b, TT_DIM((int64_t)number(c, "heads", 0), "heads"),
                     (int64_t)number(c, "distances", 0), (int)number(c, "bidirectional", 0));
        assert_int_equal(tt_value_type(v)->dims[0].size * tt_value_type(v)->dims[1].size,
                         json_array_size(json_object_get(c, "values")));
        check_constant(&e, c);
    }
    assert_int_equal(i, 7);
    json_array_foreach(json_object_get(golden_bias, "t5"), i, c)
    {
        const int64_t n = (int64_t)number(c, "distances", 0);
        const tt_t5_bias_opts o = {.buckets = (int64_t)number(c, "buckets", 0),
                                   .max_distance = (int64_t)number(c, "max_distance", 0),
                                   .bidirectional = (int)number(c, "bidirectional", 0)};
        eval_init(&e, backend, false);
        const tt_type *t = tt_value_type(tt_t5_bias(e.b, "bias", TT_DIM(3, "heads"), n, &o));
        assert_true(t->n_dims == 2 && t->dims[0].size == 3 && t->dims[1].size == n);
        check_constant(&e, c);
    }
    assert_int_equal(i, 5);
}

static void test_tables_want_sizes(void **state)
{
    eval e;
    (void)state;
    eval_init(&e, backend, false);
    tt_alibi(e.b, TT_DIM(3, "heads"), 0, 0);
    assert_non_null(strstr(tt_builder_error(e.b)->text, "alibi: 3 heads and 0 distances"));
    eval_release(&e);
    eval_init(&e, backend, false);
    tt_t5_bias(e.b, "bias", TT_DIM(3, "heads"), 9,
               &(tt_t5_bias_opts){.buckets = 8, .max_distance = 4});
    assert_non_null(
        strstr(tt_builder_error(e.b)->text, "t5_bias bias: 8 buckets up to distance 4"));
    eval_release(&e);
}

static tt_tensor layer_input(const json_t *c, size_t i)
{
    const json_t *shape = json_array_get(json_object_get(c, "shapes"), i);
    int64_t s[TT_MAX_DIMS];
    for (size_t d = 0; d < json_array_size(shape); d++)
        s[d] = json_integer_value(json_array_get(shape, d));
    return from_json(json_array_get(json_object_get(c, "inputs"), i), TT_F64,
                     (int)json_array_size(shape), s);
}

/* The forward runs the op's kernel, the derivative the op's backward kernels. */
typedef struct layer {
    const char *op,
        *bwd[2]; /* bwd[i]: the kernel of cotangent i; one kernel with all outputs: bwd[0] alone */
    const char
        *args[2]; /* of each: x w b inputs, y output, d cotangent, s seg, p pos, l labels, e lse */
} layer;
static const layer layers[] = {
    {"rms_norm",      {"rms_norm_bwd", NULL},      {"xwd", NULL}  },
    {"layer_norm",    {"layer_norm_bwd", NULL},    {"xwd", NULL}  },
    {"softmax",       {"softmax_bwd", NULL},       {"yd", NULL}   },
    {"silu",          {"silu_bwd", NULL},          {"xd", NULL}   },
    {"gelu",          {"gelu_bwd", NULL},          {"xd", NULL}   },
    {"gelu_tanh",     {"gelu_tanh_bwd", NULL},     {"xd", NULL}   },
    {"sigmoid",       {"sigmoid_bwd", NULL},       {"yd", NULL}   },
    {"tanh",          {"tanh_bwd", NULL},          {"yd", NULL}   },
    {"relu",          {"relu_bwd", NULL},          {"xd", NULL}   },
    {"linear",        {"linear_dx", "linear_dw"},  {"dw", "dx"}   },
    {"cross_entropy", {"cross_entropy_bwd", NULL}, {"xled", NULL} },
    {"conv1d",        {"conv1d_bwd", NULL},        {"xwspd", NULL}},
};

typedef struct room { /* every tensor of one layer's test, by letter */
    tt_tensor t[128];
} room;

static int gather_args(const room *r, const char *letters, tt_tensor *in)
{
    int n = 0;
    for (; letters[n] != '\0'; n++)
        in[n] = r->t[(unsigned char)letters[n]];
    return n;
}

static void check_layer(const json_t *c, const layer *l)
{
    static const char letters[] = "xwb";
    room r;
    memset(&r, 0, sizeof r);
    tt_attrs_norm norm = {.eps = number(c, "eps", 0)};
    const json_t *grads = json_object_get(c, "grads"), *labels = json_object_get(c, "labels");
    tt_tensor in[8], out[3];
    int n = (int)json_array_size(grads), n_out = 1;
    for (int i = 0; i < n; i++)
        r.t[(unsigned char)letters[i]] = layer_input(c, (size_t)i);
    int64_t tokens = r.t['x'].shape[0];
    r.t['s'] = new_tensor(TT_I32, 1, &tokens);
    r.t['p'] = new_tensor(TT_I32, 1, &tokens);
    for (int64_t i = 0; i < tokens; i++)
        put(&r.t['p'], i, (double)i);
    if (labels != NULL)
        r.t['l'] = from_json(labels, TT_I32, 1, &tokens);
    r.t['e'] = new_tensor(TT_F64, 1, &tokens);
    bool linear = strcmp(l->op, "linear") == 0;
    int64_t y_shape[2] = {tokens, linear ? r.t['w'].shape[0] : r.t['x'].shape[1]};
    r.t['y'] = new_tensor(TT_F64, labels != NULL ? 1 : 2, y_shape);
    r.t['d'] = from_json(json_object_get(c, "dy"), TT_F64, r.t['y'].n_dims, y_shape);
    int n_in = gather_args(&r,
                           strcmp(l->op, "conv1d") == 0 ? "xwsp"
                           : labels != NULL             ? "xl"
                           : n == 3                     ? "xwb"
                           : n == 2                     ? "xw"
                                                        : "x",
                           in);
    out[0] = r.t['y'];
    if (labels != NULL)
        out[n_out++] = r.t['e'];
    call(l->op, in, n_in, out, n_out, &norm);
    check(l->op, "y", &out[0], json_object_get(c, "y"));
    tt_tensor d[3];
    for (int i = 0; i < n; i++)
        d[i] = new_tensor(TT_F64, r.t[(unsigned char)letters[i]].n_dims,
                          r.t[(unsigned char)letters[i]].shape);
    for (int k = 0; k < 2 && l->bwd[k] != NULL; k++)
        call(l->bwd[k], in, gather_args(&r, l->args[k], in), &d[k], l->bwd[1] != NULL ? 1 : n,
             &norm);
    for (int i = 0; i < n; i++)
        check(l->op, (const char *[]){"dx", "dw", "db"}[i], &d[i],
              json_array_get(grads, (size_t)i));
    release(d, n);
    release(r.t, (int)TT_COUNT(r.t));
}

static void test_layers_are_those_of_pytorch(void **state)
{
    size_t i;
    const json_t *c;
    (void)state;
    assert_int_equal(json_array_size(json_object_get(golden, "layers")), TT_COUNT(layers));
    json_array_foreach(json_object_get(golden, "layers"), i, c)
    {
        assert_string_equal(json_string_value(json_object_get(c, "name")), layers[i].op);
        check_layer(c, &layers[i]);
    }
}

static json_t *load_golden(const char *name)
{
    char path[1024];
    const char *src = getenv("SRC");
    json_error_t err;
    snprintf(path, sizeof path, "%s/tests/golden/%s", src != NULL ? src : ".", name);
    json_t *read = json_load_file(path, 0, &err);
    if (read == NULL)
        fail_msg("%s: %s", path, err.text);
    return read;
}

static int load(void **state)
{
    (void)state;
    golden = load_golden("ops.json");
    golden_bias = load_golden("attention.json");
    backend = backend_load("reference");
    return 0;
}

static int unload(void **state)
{
    (void)state;
    json_decref(golden);
    json_decref(golden_bias);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rope_frequencies_are_those_of_transformers),
        cmocka_unit_test(test_attention_is_that_of_pytorch),
        cmocka_unit_test(test_attention_with_a_bias_is_that_of_pytorch),
        cmocka_unit_test(test_prefix_and_cross_attention_are_those_of_pytorch),
        cmocka_unit_test(test_a_prefix_is_alone),
        cmocka_unit_test(test_the_tables_of_alibi_and_t5),
        cmocka_unit_test(test_tables_want_sizes),
        cmocka_unit_test(test_layers_are_those_of_pytorch),
    };
    return cmocka_run_group_tests(tests, load, unload);
}
