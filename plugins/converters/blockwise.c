/* SPDX-License-Identifier: Apache-2.0 */
#include "low.h"

/* blockwise: DeepSeek-V3's tiles (arXiv:2412.19437, section 3.3): all operands in e4m3; weights have one
 * scale for each 128 x 128 elements, x and dy one for each 128 along the sum. */

typedef struct {
    int power_of_2_scales;
} config;

static const tt_option options[] = {
    TT_OPTION(config, power_of_2_scales, TT_OPT_BOOL, "false", 0, 0,
              "round scales to powers of 2, as TransformerEngine does; torchao does not"),
};

static tt_value *product(const void *self, tt_builder *b, const tt_product *p)
{
    const config *c = (const config *)self;
    const tt_scale_rule rule = c->power_of_2_scales ? TT_SCALE_POW2 : TT_SCALE_F32;
    if (p->layer == TT_PRODUCT_ATTENTION)
        return NULL;
    const tt_quantize_opts of_a = low_blocks(p, LOW_A, TT_LOW_E4M3, rule, 128, 1);
    const tt_quantize_opts of_b =
        low_blocks(p, LOW_B, TT_LOW_E4M3, rule, 128, low_is_weight(p, LOW_B) ? 128 : 1);
    return low_scaled_product(b, p, p->a, &of_a, p->b, &of_b);
}

static const tt_converter_vt vt = {
    .struct_size = sizeof vt, .product = product, .flags = TT_CONVERTER_FINAL};

static const tt_component components[] = {
    TT_COMPONENT(TT_KIND_CONVERTER, "blockwise",
                 "linear layers in float8 with blocks of 1 x 128 and 128 x 128", config, options,
                 &vt),
};
TT_PLUGIN("blockwise", "1.0", components);
