/* SPDX-License-Identifier: Apache-2.0 */
#include "delayed.h"
#include <string.h>

/* float8: torchao's three recipes (torchao/float8/config.py). Scales follow from each operand itself, the
 * maximum over all ranks that share it; with scaling "delayed" from those of earlier steps.
 *   recipe               x and w            dy                 dx             dw
 *   tensorwise           e4m3, one scale    e5m2, one scale    float8         float8
 *   rowwise              e4m3, per row      e4m3, per row      float8         float8
 *   rowwise_with_gw_hp   e4m3, per row      e4m3, per row      w: one scale   not converted
 * A row runs along the sum of the product. Row-wise scales are powers of 2. */

typedef struct {
    const char *recipe, *scaling, *amax_compute_algo;
    int auto_filter_small_kn, enable_fsdp_float8_all_gather;
    int64_t amax_history_len;
} config;

static const tt_option options[] = {
    TT_OPTION_MORE(config, recipe, TT_OPT_ENUM, "\"tensorwise\"", 0, 0,
                   "tensorwise|rowwise|rowwise_with_gw_hp", 0, "recipe_name",
                   "torchao's recipe: how many scales, and which products stay as they are"),
    TT_OPTION(config, auto_filter_small_kn, TT_OPT_BOOL, "false", 0, 0,
              "leave out layers so small that float8 does not pay on an H100"),
    TT_OPTION(
        config, enable_fsdp_float8_all_gather, TT_OPT_BOOL, "false", 0, 0,
        "gather sharded weights as float8 numbers, where that is less to send; no bit changes"),
    TT_OPTION_MORE(config, scaling, TT_OPT_ENUM, "\"dynamic\"", 0, 0, "dynamic|delayed", 0, NULL,
                   "delayed: tensorwise scales follow from the maxima of earlier steps, which are "
                   "state"),
    TT_OPTION(config, amax_history_len, TT_OPT_INT, "1024", 1, 65536,
              "delayed scaling: how many steps' maxima count"),
    TT_OPTION_MORE(config, amax_compute_algo, TT_OPT_ENUM, "\"max\"", 0, 0, "max|most_recent", 0,
                   NULL, "delayed scaling: the largest of the maxima, or the last step's alone"),
};

/* torchao's measured limits, of a weight [n,k]. */
static int is_small(const config *c, int64_t n, int64_t k)
{
    if (strcmp(c->recipe, "tensorwise") == 0)
        return k <= 4096 && n <= 1024;
    return n <= 2048 || k <= 1024 || (n <= 4096 && k <= 2048);
}

/* Fails for options that do not go together. */
static int is_refused(const config *c, tt_builder *b)
{
    const int tensor = strcmp(c->recipe, "tensorwise") == 0;
    if (c->auto_filter_small_kn && strcmp(c->recipe, "rowwise_with_gw_hp") == 0)
        tt_builder_fail(b, TT_EINVAL,
                        "float8: auto_filter_small_kn has no limits for the recipe "
                        "rowwise_with_gw_hp; name the layers by filter");
    else if (strcmp(c->scaling, "delayed") == 0 && !tensor)
        tt_builder_fail(b, TT_EINVAL,
                        "float8: scaling \"delayed\" keeps one scale per tensor, so it needs the "
                        "recipe tensorwise, not %s",
                        c->recipe);
    else
        return 0;
    return 1;
}

static void delay(const config *c, tt_builder *b, const tt_product *p, low_side side, tt_value *x,
                  tt_quantize_opts *o)
{
    static delayed_rule rules[2][2] = {
        {{TT_LOW_E4M3, 0}, {TT_LOW_E4M3, 1}}, /* by amax_compute_algo */
        {{TT_LOW_E5M2, 0}, {TT_LOW_E5M2, 1}}
    };
    const int recent = strcmp(c->amax_compute_algo, "most_recent") == 0;
    if (strcmp(c->scaling, "delayed") == 0)
        o->times = delayed_factor(b, p, side, x, o, c->amax_history_len,
                                  &rules[o->format == TT_LOW_E5M2][recent]);
}

static tt_value *product(const void *self, tt_builder *b, const tt_product *p)
{
    const config *c = (const config *)self;
    const int tensor = strcmp(c->recipe, "tensorwise") == 0;
    const int high = strcmp(c->recipe, "rowwise_with_gw_hp") == 0;
    if (is_refused(c, b) || p->layer == TT_PRODUCT_ATTENTION ||
        (high && p->role == TT_PRODUCT_GRAD_WEIGHT) ||
        (c->auto_filter_small_kn && is_small(c, p->out, p->in)))
        return NULL;
    const tt_scale_rule rule = tensor ? TT_SCALE_F32 : TT_SCALE_POW2;
    const tt_low_format dy = tensor && p->role != TT_PRODUCT_FORWARD ? TT_LOW_E5M2 : TT_LOW_E4M3;
    const int whole = tensor || (high && p->role == TT_PRODUCT_GRAD_INPUT);
    tt_quantize_opts of_a = low_blocks(p, LOW_A, dy, rule, 0, tensor ? 0 : 1);
    tt_quantize_opts of_b = low_blocks(p, LOW_B, TT_LOW_E4M3, rule, 0, whole ? 0 : 1);
    of_b.before_gather = c->enable_fsdp_float8_all_gather && low_is_weight(p, LOW_B);
    delay(c, b, p, LOW_A, p->a, &of_a);
    delay(c, b, p, LOW_B, p->b, &of_b);
    return low_scaled_product(b, p, p->a, &of_a, p->b, &of_b);
}

static const tt_converter_vt vt = {
    .struct_size = sizeof vt, .product = product, .flags = TT_CONVERTER_FINAL};

static const tt_component components[] = {
    TT_COMPONENT(TT_KIND_CONVERTER, "float8", "linear layers in float8: tensorwise, rowwise",
                 config, options, &vt),
};
TT_PLUGIN("float8", "1.0", components);
