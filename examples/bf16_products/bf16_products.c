/* SPDX-License-Identifier: Apache-2.0 */
/* bf16_products: products multiply numbers that are rounded to bf16 and sum in f32; everything else stays
 * as it is. The job says for which layers and roles:
 *
 *     "converters": [{"name": "bf16_products", "roles": ["forward", "grad_input"], "filter": ["lm_head"]}]
 */
#include <ttrun/converter.h>

typedef struct {
    bool attention;
    int64_t least;
} config;

static const tt_option options[] = {
    TT_OPTION(config, attention, TT_OPT_BOOL, "false", 0, 0, "attention's operands, too"),
    TT_OPTION(config, least, TT_OPT_INT, "1", 1, 1e9, "layers with fewer inputs are left alone"),
};

/* The nearest bf16 number, in x's dtype. The cast back is exact, so the product sums as before. */
static tt_value *rounded(tt_builder *b, tt_value *x)
{
    return tt_cast(b, tt_cast(b, x, TT_BF16), tt_value_type(x)->dtype);
}

static tt_value *multiply(tt_builder *b, const tt_product *p, tt_value *x, tt_value *y)
{
    static const char *const ops[2][3] = {
        {"linear",         "linear_dx",         "linear_dw"        },
        {"grouped_linear", "grouped_linear_dx", "grouped_linear_dw"}
    };
    tt_value *in[3] = {x, y, p->counts}, *out = NULL;
    tt_op(b, ops[p->layer][p->role], in, p->counts ? 3 : 2, NULL, &out, 1);
    return out;
}

/* Called for each product of the job's roles that its filter does not leave out; NULL leaves it as it is.
 * b places what is built: the operands may be cut over ranks in any way. */
static tt_value *product(const void *cfg, tt_builder *b, const tt_product *p)
{
    const config *c = (const config *)cfg;
    if (p->layer == TT_PRODUCT_ATTENTION) /* one operand at a time */
        return c->attention ? rounded(b, p->a) : NULL;
    if (p->in < c->least)
        return NULL;
    return multiply(b, p, rounded(b, p->a), rounded(b, p->b));
}

static const tt_converter_vt vt = {sizeof(vt), NULL, product, 0, NULL};
static const tt_component components[] = {
    TT_COMPONENT(TT_KIND_CONVERTER, "bf16_products", "products of bf16 numbers", config, options,
                 &vt),
};
TT_PLUGIN("bf16_products", "0.1", components);
