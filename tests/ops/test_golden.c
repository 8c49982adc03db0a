/* SPDX-License-Identifier: Apache-2.0 */
#include "eval.h"
#include <jansson.h>
#include <ttrun/ops.h>

/* The reference kernels against PyTorch, and rope's frequencies against transformers:
 * tests/golden/ops.json, written by ops_golden.py. PyTorch's values are f64; the tolerance 1e-11
 * is the error of some hundred roundings. */

#define TOLERANCE 1e-11

static json_t *golden;
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
    tt_tensor sum[2], part[2], both[2], d[3], dq = new_tensor(TT_F64, 2, in[0].shape);
    assert_int_equal(t, 7);
    for (int k = 0; k < 2; k++) {
        sum[k] = new_tensor(TT_F64, 2, k ? narrow : wide);
        part[k] = new_tensor(TT_F64, 2, k ? narrow : wide);
        both[k] = new_tensor(TT_F64, 2, k ? narrow : wide);
    }
    for (int i = 0; i < 3; i++) {
        tt_tensor x[8] = {
            in[0], rows_of(&in[1], begin[i], n[i]), rows_of(&in[2], begin[i], n[i]), in[3],
            in[4], rows_of(&in[5], begin[i], n[i]), rows_of(&in[6], begin[i], n[i]), in[7]};
        call("attention", x, i ? 7 : n_in, i ? part : sum, 2, a);
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
    for (int k = 0; k < 3; k++)
        d[k] = new_tensor(TT_F64, 2, in[k].shape);
    for (int i = 0; i < 3; i++) {
        tt_tensor y[3] = {dq, rows_of(&d[1], begin[i], n[i]), rows_of(&d[2], begin[i], n[i])};
        tt_tensor x[10] = {in[0],
                           rows_of(&in[1], begin[i], n[i]),
                           rows_of(&in[2], begin[i], n[i]),
                           sum[0],
                           sum[1],
                           *dout,
                           in[3],
                           in[4],
                           rows_of(&in[5], begin[i], n[i]),
                           rows_of(&in[6], begin[i], n[i])};
        call("attention_bwd", x, 10, y, 3, a);
        for (int64_t e = 0; e < tt_tensor_numel(&dq); e++)
            ((double *)d[0].data)[e] = (i ? ((double *)d[0].data)[e] : 0) + ((double *)dq.data)[e];
    }
    for (int k = 0; k < 3; k++)
        check(name, (const char *[]){"dq of pieces", "dk of pieces", "dv of pieces"}[k], &d[k],
              json_array_get(grads, (size_t)k));
    release(sum, 2);
    release(part, 2);
    release(both, 2);
    release(d, 3);
    release(&dq, 1);
}

static void check_attention(const json_t *c)
{
    const char *name = json_string_value(json_object_get(c, "name"));
    int64_t t = (int64_t)number(c, "tokens", 0), h = (int64_t)number(c, "heads", 0),
            k = (int64_t)number(c, "kv_heads", 0);
    int64_t hd = (int64_t)number(c, "head_dim", 0), dv = (int64_t)number(c, "v_head_dim", 0);
    double scale = number(c, "scale", 0);
    const json_t *sinks = json_object_get(c, "sinks"), *grads = json_object_get(c, "grads");
    tt_attrs_attention a = {.head_dim = hd,
                            .v_head_dim = dv,
                            .window = (int64_t)number(c, "window", 0),
                            .softcap = number(c, "softcap", 0),
                            .scale = scale != 0.0 ? scale : 1.0 / sqrt((double)hd),
                            .bidirectional = (int32_t)number(c, "bidirectional", 0)};
    tt_tensor pos = from_json(json_object_get(c, "pos"), TT_I32, 1, &t),
              seg = from_json(json_object_get(c, "seg"), TT_I32, 1, &t);
    tt_tensor in[8] = {from_json(json_object_get(c, "q"), TT_F64, 2, (int64_t[]){t, h * hd}),
                       from_json(json_object_get(c, "k"), TT_F64, 2, (int64_t[]){t, k * hd}),
                       from_json(json_object_get(c, "v"), TT_F64, 2, (int64_t[]){t, k * dv}),
                       pos,
                       seg,
                       pos,
                       seg};
    tt_tensor out[2] = {new_tensor(TT_F64, 2, (int64_t[]){t, h * dv}),
                        new_tensor(TT_F64, 2, (int64_t[]){t, h})};
    bool has_sinks = json_is_array(sinks);
    if (has_sinks)
        in[7] = from_json(sinks, TT_F64, 1, &h);
    call("attention", in, has_sinks ? 8 : 7, out, 2, &a);
    check(name, "out", &out[0], json_object_get(c, "out"));
    check(name, "lse", &out[1], json_object_get(c, "lse"));
    tt_tensor dout = from_json(json_object_get(c, "dout"), TT_F64, 2, (int64_t[]){t, h * dv});
    tt_tensor bin[10] = {in[0], in[1], in[2], out[0], out[1], dout, pos, seg, pos, seg};
    tt_tensor d[3] = {new_tensor(TT_F64, 2, in[0].shape), new_tensor(TT_F64, 2, in[1].shape),
                      new_tensor(TT_F64, 2, in[2].shape)};
    call("attention_bwd", bin, 10, d, 3, &a);
    for (int i = 0; i < 3; i++)
        check(name, (const char *[]){"dq", "dk", "dv"}[i], &d[i], json_array_get(grads, (size_t)i));
    check_pieces(name, c, &a, in, has_sinks ? 8 : 7, &dout);
    release(d, 3);
    release(out, 2);
    release(in, 5);
    if (has_sinks)
        free(in[7].data);
    free(dout.data);
}

static void test_attention_is_that_of_pytorch(void **state)
{
    size_t i;
    const json_t *c;
    (void)state;
    json_array_foreach(json_object_get(golden, "attention"), i, c) check_attention(c);
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

static int load(void **state)
{
    char path[1024];
    const char *src = getenv("SRC");
    json_error_t err;
    (void)state;
    snprintf(path, sizeof path, "%s/tests/golden/ops.json", src != NULL ? src : ".");
    golden = json_load_file(path, 0, &err);
    if (golden == NULL)
        fail_msg("%s: %s", path, err.text);
    backend = backend_load("reference");
    return 0;
}

static int unload(void **state)
{
    (void)state;
    json_decref(golden);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rope_frequencies_are_those_of_transformers),
        cmocka_unit_test(test_attention_is_that_of_pytorch),
        cmocka_unit_test(test_layers_are_those_of_pytorch),
    };
    return cmocka_run_group_tests(tests, load, unload);
}
