/* SPDX-License-Identifier: Apache-2.0 */
#include "low.h"
#include <string.h>

/* mxfp8: OCP microscaling (MX v1.0): all operands in e4m3, a power of 2 as scale of each 32 elements along
 * the sum. An operand of two products is quantized for each of them from its own numbers. */

typedef struct {
    const char *scaling;
    int wgrad_with_hp;
} config;

static const tt_option options[] = {
    TT_OPTION_MORE(
        config, scaling, TT_OPT_ENUM, "\"rceil\"", 0, 0, "rceil|floor", 0, NULL,
        "rceil: the scale is rounded up, so that no number saturates; floor: as OCP MX says"),
    TT_OPTION(config, wgrad_with_hp, TT_OPT_BOOL, "false", 0, 0,
              "leave the products that make weights' gradients as they are"),
};

static tt_value *product(const void *self, tt_builder *b, const tt_product *p)
{
    const config *c = (const config *)self;
    const tt_scale_rule rule =
        strcmp(c->scaling, "floor") == 0 ? TT_SCALE_MX_FLOOR : TT_SCALE_MX_RCEIL;
    if (p->layer == TT_PRODUCT_ATTENTION || (c->wgrad_with_hp && p->role == TT_PRODUCT_GRAD_WEIGHT))
        return NULL;
    const tt_quantize_opts of_a = low_blocks(p, LOW_A, TT_LOW_E4M3, rule, 32, 1);
    const tt_quantize_opts of_b = low_blocks(p, LOW_B, TT_LOW_E4M3, rule, 32, 1);
    return low_scaled_product(b, p, p->a, &of_a, p->b, &of_b);
}

static const tt_converter_vt vt = {
    .struct_size = sizeof vt, .product = product, .flags = TT_CONVERTER_FINAL};

static const tt_component components[] = {
    TT_COMPONENT(TT_KIND_CONVERTER, "mxfp8", "linear layers in MXFP8: e4m3 in blocks of 32", config,
                 options, &vt),
};
TT_PLUGIN("mxfp8", "1.0", components);
