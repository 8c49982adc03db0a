/* SPDX-License-Identifier: Apache-2.0 */
/* @NAME@: linear layers multiply in bf16; parameters, gradients and what follows stay f32. */
#include <string.h>
#include <ttrun/converter.h>

typedef struct {
    const char *skip;
} config;

static const tt_option options[] = {
    {"skip", "part of names left alone", TT_OPT_STRING, offsetof(config, skip), "\"lm_head\"", 0, 0,
     NULL, 0, NULL},
};

/* The replacement of x [T,i] times w [o,i] transposed for the parameter `name`; NULL leaves it. */
static tt_value *linear(const void *cfg, tt_builder *b, const char *name, tt_value *x, tt_value *w)
{
    const config *c = (const config *)cfg;
    if (c->skip[0] && strstr(name, c->skip))
        return NULL;
    return tt_cast(b, tt_linear_w(b, tt_cast(b, x, TT_BF16), tt_cast(b, w, TT_BF16)), TT_F32);
}

static const tt_converter_vt vt = {.struct_size = sizeof(vt), .linear = linear};
static const tt_component components[] = {
    TT_COMPONENT(TT_KIND_CONVERTER, "@NAME@", "bf16 linears", config, options, &vt),
};
TT_PLUGIN("@NAME@", "0.1", components);
