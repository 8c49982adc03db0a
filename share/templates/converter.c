/* SPDX-License-Identifier: Apache-2.0 */
/* @NAME@: products of linear layers are those of bf16 numbers; parameters and what follows stay as
 * they are. The job says for which layers and products: filter, roles. */
#include <ttrun/converter.h>

typedef struct {
    int64_t least;
} config;

static const tt_option options[] = {
    TT_OPTION(config, least, TT_OPT_INT, "1", 1, 1e9, "layers with fewer inputs are left alone"),
};

static tt_value *rounded(tt_builder *b, tt_value *x)
{
    return tt_cast(b, x, TT_BF16);
}

/* Replaces a product by other ops; NULL leaves it as it is. */
static tt_value *product(const void *cfg, tt_builder *b, const tt_product *p)
{
    static const char *const ops[] = {"linear", "linear_dx", "linear_dw"}; /* by role */
    const config *c = (const config *)cfg;
    tt_value *y = NULL, *operands[2];
    if (p->layer != TT_PRODUCT_LINEAR || p->in < c->least)
        return NULL;
    operands[0] = rounded(b, p->a);
    operands[1] = rounded(b, p->b);
    tt_op(b, ops[p->role], operands, 2, NULL, &y, 1);
    return y;
}

static const tt_converter_vt vt = {sizeof(vt), NULL, product, 0, NULL};
static const tt_component components[] = {
    TT_COMPONENT(TT_KIND_CONVERTER, "@NAME@", "products of bf16 numbers", config, options, &vt),
};
TT_PLUGIN("@NAME@", "0.1", components);
