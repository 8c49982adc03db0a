/* SPDX-License-Identifier: Apache-2.0 */
#include <fnmatch.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>
#include <ttrun/converter.h>

/* lora: low-rank adapters of linear layers (Hu et al. 2021, arXiv:2106.09685). A layer of weight
 * w [out,in] computes x·wᵀ + scale · (drop(x)·Aᵀ)·Bᵀ, A [r,in], B [out,r]. A starts uniform in
 * ±1/√in (kaiming with a = √5), B at zero, so the model starts as it was. Names, initial values and
 * scales are PEFT's.
 * With use_dora (Liu et al. 2024, arXiv:2402.09353) the rows of w + scale·B·A are made m long, a parameter that
 * starts as the norms of w's rows; their norms count as constants in the backward, as in PEFT.
 * qlora: the same, and w is stored as codes of 4 or 8 bits (Dettmers et al. 2023, arXiv:2305.14314). */

typedef struct {
    int64_t rank;
    double alpha, dropout;
    bool rslora, use_dora;
    tt_strings targets;
    int base; /* of qlora: 0 nf4, 1 int8 */
} config;

#define LORA_OPTIONS                                                                               \
    TT_OPTION(config, rank, TT_OPT_INT, "8", 1, 65536, "r: columns of B and rows of A"),           \
        TT_OPTION(config, alpha, TT_OPT_FLOAT, "16", 1e-9, 1e9,                                    \
                  "the adapter's result is multiplied by alpha / rank"),                           \
        TT_OPTION(config, dropout, TT_OPT_FLOAT, "0", 0, 0.999,                                    \
                  "probability that an element of the adapter's input is dropped in training"),    \
        TT_OPTION(config, rslora, TT_OPT_BOOL, "false", 0, 0,                                      \
                  "multiply by alpha / sqrt(rank) (rank-stabilized, arXiv:2312.03732)"),           \
        TT_OPTION(config, use_dora, TT_OPT_BOOL, "false", 0, 0,                                    \
                  "train the length of the weight's rows, too (DoRA)"),                            \
        TT_OPTION(                                                                                 \
            config, targets, TT_OPT_STRINGS, "[]", 0, 0,                                           \
            "layers with adapters: ends of names (q_proj, mlp.up_proj) or patterns of whole "      \
            "names "                                                                               \
            "with * and [] (model.layers.[01].*); [] = every linear layer of the blocks, not the " \
            "head")

static const tt_option options[] = {LORA_OPTIONS};
static const tt_option qlora_options[] = {
    LORA_OPTIONS,
    TT_OPTION_MORE(
        config, base, TT_OPT_CHOICE, "\"nf4\"", 0, 0, "nf4|int8", 0, NULL,
        "how the frozen weights of these layers are stored: nf4 (4 bits, an f32 scale per "
        "64 elements of a row) or int8 (an f32 scale per row)"),
};

/* The layer of a weight: its name without ".weight". Returns its length. */
static size_t layer_length(const char *name)
{
    static const char end[] = ".weight";
    const size_t n = strlen(name), k = sizeof end - 1;
    return n > k && !strcmp(name + n - k, end) ? n - k : n;
}

/* Does a target mean this layer? It is the end of the layer's name at a dot, or a pattern of the
 * whole name. */
static int is_target(const char *target, const char *layer)
{
    const size_t n = strlen(layer), k = strlen(target);
    if (k && k <= n && !strcmp(layer + n - k, target) && (k == n || layer[n - k - 1] == '.'))
        return 1;
    return fnmatch(target, layer, 0) == 0;
}

/* A or B of a converter of this kind that comes before this one in the job's list. */
static int is_adapter(const char *name)
{
    static const char *const ends[] = {".lora_A.weight", ".lora_B.weight"};
    const size_t n = strlen(name);
    for (size_t i = 0; i < 2; i++)
        if (n > strlen(ends[i]) && !strcmp(name + n - strlen(ends[i]), ends[i]))
            return 1;
    return 0;
}

static int wants(const config *c, const tt_builder *b, const char *name)
{
    char layer[512];
    const size_t n = layer_length(name);
    if (is_adapter(name))
        return 0;
    if (!c->targets.n)
        return tt_builder_block(b) >= 0;
    if (n >= sizeof layer)
        return 0;
    memcpy(layer, name, n);
    layer[n] = '\0';
    for (size_t i = 0; i < c->targets.n; i++)
        if (is_target(c->targets.items[i], layer))
            return 1;
    return 0;
}

/* m / ‖row of w + scale·B·A‖, [out] in y's dtype. The norm's derivative is not taken. */
static tt_value *lengths(tt_builder *b, tt_value *w, tt_value *lora_a, tt_value *lora_b,
                         double scale, tt_value *m)
{
    tt_value *ba = tt_cast(b, tt_matmul(b, lora_b, lora_a, 0, 0), TT_F32); /* [out,in] */
    tt_value *v = tt_add(b, tt_cast(b, w, TT_F32), tt_scale(b, ba, scale));
    tt_value *norm = tt_sqrt(b, tt_sum(b, tt_mul(b, v, v), 1, 0)); /* [out] */
    norm = tt_maximum(b, tt_stop_gradient(b, norm), tt_const(b, 1e-30, TT_F32));
    return tt_div(b, tt_cast(b, m, TT_F32), norm);
}

static tt_value *times(tt_builder *b, tt_value *y, tt_value *length)
{
    return tt_mul(b, y, tt_cast(b, length, tt_value_type(y)->dtype));
}

/* The layer of DoRA: base and adapter times the lengths. Where x is dropped, what the lengths change of the
 * base is computed from what is left of x, as in PEFT. */
static tt_value *dora(const config *c, tt_builder *b, tt_value *x, tt_value *w, tt_value *y,
                      tt_value *h, tt_value *adapter, tt_value *length)
{
    if (!(c->dropout > 0))
        return times(b, tt_add(b, y, adapter), length);
    tt_value *less = tt_sub(b, length, tt_const(b, 1, TT_F32));
    tt_value *base = h == x ? y : tt_linear_w(b, h, w);
    return tt_add(b, y, tt_add(b, times(b, base, less), times(b, adapter, length)));
}

/* The layer with an adapter. */
static tt_value *adapted(const config *c, tt_builder *b, tt_value *x, tt_value *w)
{
    const tt_dim out = tt_value_type(w)->dims[0], in = tt_value_type(w)->dims[1];
    const tt_dim r = TT_DIM(c->rank, NULL), a_dims[] = {r, in}, b_dims[] = {out, r};
    const double bound = 1 / sqrt((double)in.size);
    const tt_param_opts uniform = {
        .init = {.kind = TT_INIT_UNIFORM, .lo = -bound, .hi = bound},
        .tags = TT_TAG_ADAPTER ",lora_A"
    };
    const tt_param_opts zero = {.init = {.kind = TT_INIT_CONSTANT},
                                .tags = TT_TAG_ADAPTER ",lora_B"};
    const tt_adapter_opts opts = {c->alpha, c->dropout, c->rslora};
    tt_value *lora_a = tt_param(b, "lora_A.weight", a_dims, 2, &uniform);
    tt_value *lora_b = tt_param(b, "lora_B.weight", b_dims, 2, &zero);
    const double scale = tt_param_adapter(b, w, lora_a, lora_b, &opts);
    tt_value *y = tt_linear_w(b, x, w);                         /* [T,out] */
    tt_value *h = tt_dropout(b, x, c->dropout, "lora_dropout"); /* [T,in]  */
    tt_value *d = tt_linear_w(b, tt_linear_w(b, h, lora_a), lora_b);
    d = tt_scale(b, d, scale); /* [T,out] */
    if (!c->use_dora)
        return tt_add(b, y, d);
    const tt_param_opts magnitude = {
        .init = {.kind = TT_INIT_CONSTANT, .a = 1},
        .tags = TT_TAG_ADAPTER ",lora_magnitude_vector"
    };
    tt_value *m = tt_param(b, "lora_magnitude_vector", &out, 1, &magnitude);
    tt_param_magnitude(b, w, m);
    return dora(c, b, x, w, y, h, d, lengths(b, w, lora_a, lora_b, scale, m));
}

static tt_value *linear(const void *cfg, tt_builder *b, const char *name, tt_value *x, tt_value *w)
{
    return wants(cfg, b, name) ? adapted(cfg, b, x, w) : NULL;
}

static tt_value *qlora_linear(const void *cfg, tt_builder *b, const char *name, tt_value *x,
                              tt_value *w)
{
    const config *c = cfg;
    if (!wants(c, b, name))
        return NULL;
    tt_param_store_codes(b, w, c->base == 0 ? TT_CODES_NF4 : TT_CODES_INT8);
    return adapted(c, b, x, w);
}

/* Has a layer that the target means got an adapter? */
static int is_used(const char *target, const char *const *names, size_t n)
{
    static const char end[] = ".lora_A.weight";
    const size_t k = sizeof end - 1;
    for (size_t i = 0; i < n; i++) {
        char layer[512];
        const size_t length = strlen(names[i]);
        if (length <= k || length - k >= sizeof layer || strcmp(names[i] + length - k, end) != 0)
            continue;
        memcpy(layer, names[i], length - k);
        layer[length - k] = '\0';
        if (is_target(target, layer))
            return 1;
    }
    return 0;
}

static void described(const void *cfg, tt_builder *b, const char *const *names, size_t n)
{
    const config *c = cfg;
    for (size_t i = 0; i < c->targets.n; i++)
        if (!is_used(c->targets.items[i], names, n))
            tt_builder_fail(b, TT_EINVAL,
                            "targets: no linear layer is named \"%s\" (parameters are like %s)",
                            c->targets.items[i], n ? names[n - 1] : "(none)");
    if (!c->targets.n && !is_used("*", names, n))
        tt_builder_fail(b, TT_EINVAL, "the model has no linear layer in a block");
}

static const tt_converter_vt vt = {
    .struct_size = sizeof vt, .linear = linear, .described = described};
static const tt_converter_vt qlora_vt = {.struct_size = sizeof qlora_vt,
                                         .linear = qlora_linear,
                                         .described = described,
                                         .flags = TT_CONVERTER_STORES};
static const tt_component components[] = {
    TT_COMPONENT(TT_KIND_CONVERTER, "lora", "low-rank adapters of linear layers (LoRA)", config,
                 options, &vt),
    TT_COMPONENT(TT_KIND_CONVERTER, "qlora",
                 "adapters of linear layers whose frozen weights are codes of 4 or 8 bits (QLoRA)",
                 config, qlora_options, &qlora_vt),
};
TT_PLUGIN("lora", "1.0", components);
