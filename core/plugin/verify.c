/* SPDX-License-Identifier: Apache-2.0 */
#include "internal.h"
#include <string.h>

#define COMPONENTS_MAX 4096

/* Checks a component's name, which job files and file names contain. */
static tt_status check_name(const tt_check *c, const char *what, const char *name, tt_error *err)
{
    TT_TRY(tt_check_text(c, what, name, true, err));
    if (strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_") != strlen(name) || strlen(name) > 64)
        return TT_FAIL(err, TT_EABI, "%s \"%.80s\" is not made of at most 64 of a-z, 0-9 and _",
                       what, name);
    return TT_OK;
}

static tt_status check_doc(const tt_check *c, const char *doc, tt_error *err)
{
    TT_TRY(tt_check_text(c, "doc", doc, true, err));
    return strchr(doc, '\n') ? TT_FAIL(err, TT_EABI, "doc is more than one line") : TT_OK;
}

static tt_status check_known(const tt_check *c, const tt_component *k, tt_error *err)
{
    uintptr_t extension = 0;
    TT_TRY(tt_check_size(c, "tt_component", k->struct_size, TT_V1_0(tt_component, extension),
                         sizeof *k, err));
    if (k->struct_size > c->plugin->component_size)
        return TT_FAIL(err, TT_EABI, "struct_size %zu exceeds the table's stride of %zu",
                       k->struct_size, c->plugin->component_size);
    TT_TRY(check_doc(c, k->doc, err));
    memcpy(&extension, &k->extension, sizeof extension);
    if (extension && !tt_image_code(&c->image, extension))
        return TT_FAIL(err, TT_EABI, "extension points to no function");
    TT_TRY(tt_check_options(c, k, err));
    return tt_check_vtable(c, k, err);
}

static tt_status check_component(const tt_check *c, size_t i, tt_error *err)
{
    const tt_component *k = tt_component_at(c->plugin, i);
    if (!tt_kind_known(k->kind))
        return TT_OK; /* of a newer ttrun, whose rules for it are not known here */
    tt_status status = check_name(c, "name", k->name, err);
    if (status != TT_OK)
        return tt_error_context(err, "component %zu", i);
    if (check_known(c, k, err) != TT_OK)
        return tt_error_context(err, "%s \"%s\"", tt_kind_name(k->kind), k->name);
    for (size_t j = 0; j < i; j++) {
        const tt_component *other = tt_component_at(c->plugin, j);
        if (other->kind == k->kind && strcmp(other->name, k->name) == 0)
            return TT_FAIL(err, TT_EEXIST, "it offers %s \"%s\" twice", tt_kind_name(k->kind),
                           k->name);
    }
    return TT_OK;
}

/* Checks the first four fields, whose offsets are the same in every major version. */
static tt_status check_abi(const tt_check *c, const tt_plugin *p, tt_error *err)
{
    if (!tt_image_readable(&c->image, p, offsetof(tt_plugin, name), TT_CHECK_ALIGN))
        return TT_FAIL(err, TT_EABI, "its descriptor is outside the plugin's data");
    if (p->magic != TT_PLUGIN_MAGIC)
        return TT_FAIL(err, TT_EABI,
                       "not a ttrun plugin: the descriptor's magic is 0x%08x, not 0x%08x", p->magic,
                       TT_PLUGIN_MAGIC);
    const bool any_minor = TT_ABI_MAJOR > 0; /* in 0.x each minor version is another ABI */
    if (p->abi_major != TT_ABI_MAJOR || (!any_minor && p->abi_minor != TT_ABI_MINOR))
        return TT_FAIL(err, TT_EABI,
                       "built for ABI %u.%u, this ttrun has %u.%u: rebuild it against its headers",
                       (unsigned)p->abi_major, (unsigned)p->abi_minor, (unsigned)TT_ABI_MAJOR,
                       (unsigned)TT_ABI_MINOR);
    return TT_OK;
}

static tt_status check_plugin(const tt_check *c, const tt_plugin *p, tt_error *err)
{
    TT_TRY(check_abi(c, p, err));
    TT_TRY(tt_check_size(c, "tt_plugin", p->struct_size, TT_V1_0(tt_plugin, component_size),
                         sizeof *p, err));
    size_t symbol = tt_image_symbol_size(p);
    if (symbol && symbol < p->struct_size)
        return TT_FAIL(err, TT_EABI, "tt_plugin: it claims %zu bytes, but its symbol has %zu",
                       p->struct_size, symbol);
    TT_TRY(tt_check_array(c, "tt_plugin", p, 1, p->struct_size, err));
    TT_TRY(check_name(c, "the plugin's name", p->name, err));
    TT_TRY(tt_check_text(c, "the plugin's version", p->version, true, err));
    TT_TRY(tt_check_text(c, "the plugin's license", p->license, true, err));
    TT_TRY(tt_check_size(c, "tt_component", p->component_size, TT_V1_0(tt_component, extension),
                         sizeof(tt_component), err));
    if (p->component_size % TT_CHECK_ALIGN != 0)
        return TT_FAIL(err, TT_EABI, "component_size %zu is not a multiple of %zu",
                       p->component_size, TT_CHECK_ALIGN);
    if (p->n_components == 0 || p->n_components > COMPONENTS_MAX)
        return TT_FAIL(err, TT_EABI, "it claims %zu components; 1 to %d are possible",
                       p->n_components, COMPONENTS_MAX);
    TT_TRY(tt_check_array(c, "components", p->components, p->n_components, p->component_size, err));
    for (size_t i = 0; i < p->n_components; i++)
        TT_TRY(check_component(c, i, err));
    return TT_OK;
}

tt_status tt_plugin_verify(const tt_plugin *p, const char *file, tt_error *err)
{
    tt_error local;
    err = err ? err : &local;
    tt_check c = {.plugin = p, .arena = tt_arena_new()};
    tt_image_collect(c.arena, &c.image);
    tt_status status = check_plugin(&c, p, err);
    tt_arena_free(c.arena);
    return status == TT_OK ? TT_OK : tt_error_context(err, "%s", file);
}
