/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TTRUN_PLUGIN_H
#define TTRUN_PLUGIN_H
#include <ttrun/option.h>
#include <ttrun/tensor.h>

/* The descriptor a plugin .so exports: `const tt_plugin tt_plugin_entry`. Data only; checked in
 * full before any function of the plugin is called. Every struct starts with struct_size, every
 * array carries count and stride. No ELF constructors. */

#ifdef __cplusplus
extern "C" {
#endif

/* The version of everything under include/ttrun. It is 0.x until devices, experts and float8 have
 * stretched it: any minor may then change any struct, and a plugin loads only where major and minor
 * are its own. From 1.0 on a minor only appends fields, functions and kinds, and a plugin loads on
 * every later minor of its major. */
#define TT_ABI_MAJOR 0
#define TT_ABI_MINOR 1
#define TT_PLUGIN_MAGIC 0x6e757274u

/* Values are part of the ABI; append only. */
typedef enum tt_kind {
    TT_KIND_TRAIN_SPEC = 1,
    TT_KIND_MODEL = 2,
    TT_KIND_TOKENIZER = 3,
    TT_KIND_DATALOADER = 4,
    TT_KIND_LOSS = 5,
    TT_KIND_OPTIMIZER = 6,
    TT_KIND_LR_SCHEDULER = 7,
    TT_KIND_METRICS = 8,
    TT_KIND_CONVERTER = 9,
    TT_KIND_BACKEND = 10,
    TT_KIND_COMM = 11,
    TT_KIND_HOOK = 12,
    TT_KIND_OP = 13,
    TT_KIND_KERNELS = 14,
    TT_KIND_END /* one past the last kind this header knows */
} tt_kind;

typedef struct tt_component {
    size_t struct_size;       /* sizeof at the plugin's build; the host reads no further        */
    tt_kind kind;             /* unknown kinds are skipped with a note, not an error            */
    const char *name, *doc;   /* unique per kind; doc is the line in --help                     */
    const tt_option *options; /* table over the config struct, zero-filled before parsing       */
    size_t n_options, option_size, config_size;
    const void *vtable; /* tt_model_vt, tt_loss_vt, …: begins with struct_size */
    const void *(*extension)(const char *id); /* may be NULL; "ttrun.draft.x/1" until settled    */
} tt_component;

typedef struct tt_plugin {
    uint32_t magic;
    uint16_t abi_major, abi_minor; /* these four never move, in any major                       */
    size_t struct_size;
    const char *name, *version, *license;
    const tt_component *components;
    size_t n_components, component_size; /* count and stride: elements may grow                 */
} tt_plugin;

#define TT_HAS(p, type, field) ((p)->struct_size >= offsetof(type, field) + sizeof((p)->field))

/* Functions of a vtable that are marked (optional) may be NULL; all others are required. */

/* One component: TT_COMPONENT(TT_KIND_MODEL, "mini", "a tiny decoder", config, options, &vt)
 *   options_: an array of tt_option (its count is taken); config_: the config struct's type. */
#define TT_COMPONENT(kind_, name_, doc_, config_, options_, vtable_)                               \
    {                                                                                              \
        sizeof(tt_component), (kind_), (name_), (doc_), (options_), TT_COUNT(options_),            \
            sizeof(tt_option), sizeof(config_), (vtable_), NULL                                    \
    }
/* The same with an extension: a function from its id to what it is, NULL for ids it does not
 * know. */
#define TT_COMPONENT_EXT(kind_, name_, doc_, config_, options_, vtable_, extension_)               \
    {                                                                                              \
        sizeof(tt_component), (kind_), (name_), (doc_), (options_), TT_COUNT(options_),            \
            sizeof(tt_option), sizeof(config_), (vtable_), (extension_)                            \
    }
/* The same for a component without options. */
#define TT_COMPONENT_PLAIN(kind_, name_, doc_, vtable_)                                            \
    {                                                                                              \
        sizeof(tt_component), (kind_), (name_), (doc_), NULL, 0, sizeof(tt_option), 0, (vtable_),  \
            NULL                                                                                   \
    }

#ifdef __cplusplus
#define TT_PLUGIN_LINKAGE extern "C"
#else
#define TT_PLUGIN_LINKAGE extern
#endif

/* TT_PLUGIN_LICENSED("mini", "1.0", "MIT", components): defines the one exported symbol from a static
 * array of components. The licence is an SPDX expression. */
#define TT_PLUGIN_LICENSED(name_, version_, license_, components_)                                 \
    TT_PLUGIN_LINKAGE TT_EXPORT const tt_plugin tt_plugin_entry;                                   \
    const tt_plugin tt_plugin_entry = {                                                            \
        TT_PLUGIN_MAGIC, TT_ABI_MAJOR, TT_ABI_MINOR,  sizeof(tt_plugin),     (name_),              \
        (version_),      (license_),   (components_), TT_COUNT(components_), sizeof(tt_component)}
/* The same, under the licence ttrun has. */
#define TT_PLUGIN(name_, version_, components_)                                                    \
    TT_PLUGIN_LICENSED(name_, version_, "Apache-2.0", components_)

#ifdef __cplusplus
}
#endif
#endif
