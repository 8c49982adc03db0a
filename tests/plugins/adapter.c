/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>
#include <ttrun/converter.h>

/* adapter.so, for test_swap.sh: "adapter" adds to each linear layer a second one of rank 4, with parameters of
 * its own; "broken" makes a graph that does not verify. */

typedef struct {
    int64_t rank;
} config;

static const tt_option options[] = {
    TT_OPTION(config, rank, TT_OPT_INT, "4", 1, 1 << 20, "of the second layer"),
};

static tt_value *adapter(const void *self, tt_builder *b, const char *name, tt_value *x,
                         tt_value *w)
{
    const config *c = (const config *)self;
    char down[128], up[128];
    const tt_linear_opts zero = {.init = {.kind = TT_INIT_CONSTANT}};
    const char *end = strstr(name, ".weight"), *begin = end;
    while (begin > name && begin[-1] != '.')
        begin--;
    snprintf(down, sizeof down, "%.*s.down", (int)(end - begin), begin);
    snprintf(up, sizeof up, "%.*s.up", (int)(end - begin), begin);
    tt_value *y = tt_linear_w(b, x, w);
    tt_value *h = tt_linear(b, x, down, TT_DIM(c->rank, "rank"), NULL);
    return tt_add(b, y, tt_linear(b, h, up, tt_value_type(w)->dims[0], &zero));
}

static tt_value *broken(const void *self, tt_builder *b, const char *name, tt_value *x, tt_value *w)
{
    (void)self;
    (void)name;
    (void)w;
    return tt_add(b, x, tt_linear(b, x, "wrong", TT_DIM(3, "rank"), NULL));
}

static const tt_converter_vt vt = {.struct_size = sizeof(vt), .linear = adapter};
static const tt_converter_vt broken_vt = {.struct_size = sizeof(broken_vt), .linear = broken};
static const tt_component components[] = {
    TT_COMPONENT(TT_KIND_CONVERTER, "adapter", "a second layer of low rank", config, options, &vt),
    TT_COMPONENT(TT_KIND_CONVERTER, "broken", "does not verify", config, options, &broken_vt),
};
TT_PLUGIN("adapter", "1.0", components);
