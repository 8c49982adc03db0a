/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <ttrun/converter.h>

/* converter.so: "half" halves what a linear layer gives and writes the names it was asked for to a
 * file; "own" has an option "roles" of its own. Built by test_lists.sh against the public headers
 * alone. */

typedef struct {
    const char *file, *roles;
} config;

static const tt_option options[] = {
    TT_OPTION_MORE(config, file, TT_OPT_STRING, "null", 0, 0, NULL, TT_OPT_NULLABLE, NULL,
                   "where to write"),
};

static const tt_option own_options[] = {
    TT_OPTION_MORE(config, file, TT_OPT_STRING, "null", 0, 0, NULL, TT_OPT_NULLABLE, NULL,
                   "where to write"),
    TT_OPTION(config, roles, TT_OPT_STRING, "\"all\"", 0, 0, "a key that converters may have"),
};

static tt_value *linear(const void *self, tt_builder *b, const char *name, tt_value *x, tt_value *w)
{
    const config *c = (const config *)self;
    FILE *f = c->file ? fopen(c->file, "a") : NULL;
    if (f) {
        fprintf(f, "%s%s\n", name, c->roles ? c->roles : "");
        fclose(f);
    }
    return tt_scale(b, tt_linear_w(b, x, w), 0.5);
}

static const tt_converter_vt vt = {.struct_size = sizeof(vt), .linear = linear};
static const tt_component components[] = {
    TT_COMPONENT(TT_KIND_CONVERTER, "half", "half of a layer", config, options, &vt),
    TT_COMPONENT(TT_KIND_CONVERTER, "own", "with roles of its own", config, own_options, &vt),
};
TT_PLUGIN("converter", "1.0", components);
