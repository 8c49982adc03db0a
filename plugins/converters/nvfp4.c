/* SPDX-License-Identifier: Apache-2.0 */
#include "low.h"
#include <stdio.h>

/* nvfp4: NVIDIA's recipe for training in 4 bits (arXiv:2509.25149, TransformerEngine): e2m1 numbers, an
 * e4m3 scale for each 16 along the sum and an f32 scale for the tensor.
 *   weights    blocks of 16 x 16, so that w and its transpose are the same numbers
 *   gradients  rounded stochastically, by random numbers that are the tokens' own
 *   dw         both operands are rotated first (tt_hadamard); their maxima are taken after that
 * Its last layers and the head should stay in high precision: filter. */

typedef struct {
    int stochastic_rounding, hadamard;
} config;

static const tt_option options[] = {
    TT_OPTION(config, stochastic_rounding, TT_OPT_BOOL, "true", 0, 0,
              "round gradients stochastically; false: to the nearest"),
    TT_OPTION(config, hadamard, TT_OPT_BOOL, "true", 0, 0,
              "rotate the operands of the weights' gradients, which spreads large numbers"),
};

static tt_value *product(const void *self, tt_builder *b, const tt_product *p)
{
    const config *c = (const config *)self;
    const int dw = p->role == TT_PRODUCT_GRAD_WEIGHT;
    char stream[512];
    if (p->layer == TT_PRODUCT_ATTENTION)
        return NULL;
    tt_quantize_opts of_a = low_blocks(p, LOW_A, TT_LOW_E2M1, TT_SCALE_NV, 16, 1);
    const tt_quantize_opts of_b =
        low_blocks(p, LOW_B, TT_LOW_E2M1, TT_SCALE_NV, 16, low_is_weight(p, LOW_B) ? 16 : 1);
    if (c->stochastic_rounding && low_is_gradient(p, LOW_A)) {
        snprintf(stream, sizeof stream, "nvfp4.%s.%s", dw ? "dw" : "dx", p->param);
        of_a.stochastic = true;
        of_a.stream = stream;
    }
    /* rows of several experts do not mix */
    const int rotate = dw && c->hadamard && p->layer == TT_PRODUCT_LINEAR;
    tt_value *x = rotate ? tt_hadamard(b, p->a) : p->a, *y = rotate ? tt_hadamard(b, p->b) : p->b;
    return low_scaled_product(b, p, x, &of_a, y, &of_b);
}

static const tt_converter_vt vt = {
    .struct_size = sizeof vt, .product = product, .flags = TT_CONVERTER_FINAL};

static const tt_component components[] = {
    TT_COMPONENT(TT_KIND_CONVERTER, "nvfp4", "linear layers in NVFP4: 4 bits in blocks of 16",
                 config, options, &vt),
};
TT_PLUGIN("nvfp4", "1.0", components);
