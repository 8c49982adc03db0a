/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TTRUN_PLUGIN_H
#define TTRUN_PLUGIN_H
#include <ttrun/option.h>
#include <ttrun/tensor.h>

/* The descriptor that a plugin's .so exports: `const tt_plugin tt_plugin_entry`. It is only data,
 * and the core checks all of it before it calls any function of the plugin. Every struct starts
 * with struct_size; every array comes with its count and stride. A plugin may not have ELF
 * constructors. Rows of a vtable that are marked (optional) may be NULL. The tags say who calls a
 * function: [setup] the main thread, before the steps; [step] the rank's thread, during them;
 * [any-thread] several threads, perhaps concurrently; [collective] all ranks of a group, in the
 * same order. */

#ifdef __cplusplus
extern "C" {
#endif

/* The version of everything under include/ttrun. It stays 0.x until devices, experts and float8
 * exist: until then any minor version may change any struct, and a plugin loads only if major and
 * minor are equal. From 1.0 on a minor version only appends fields, functions and kinds, and a
 * plugin loads with every later minor version of its major. */
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
    size_t struct_size;       /* sizeof when the plugin was built; the core reads no further    */
    tt_kind kind;             /* a component of an unknown kind is skipped and logged           */
    const char *name, *doc;   /* name is unique per kind; --help shows doc, one line            */
    const tt_option *options; /* rows for the config struct, which is zero-filled first         */
    size_t n_options, option_size, config_size;
    const void *vtable; /* tt_model_vt, tt_loss_vt, …: begins with struct_size */
    /* (optional) The extension of that id, or NULL; an id is "ttrun.draft.x/1" until it is settled.
     * [setup] */
    const void *(*extension)(const char *id);
} tt_component;

typedef struct tt_plugin {
    uint32_t magic;
    uint16_t abi_major, abi_minor; /* the offsets of the first four fields never change         */
    size_t struct_size;
    const char *name, *version, *license;
    const tt_component *components;
    size_t n_components, component_size; /* count and stride, so that components may grow       */
} tt_plugin;

/* Whether a struct from the other side of the ABI is long enough to have the field. */
#define TT_HAS(p, type, field) ((p)->struct_size >= offsetof(type, field) + sizeof((p)->field))

/* Functions of a vtable that are marked (optional) may be NULL; all others are required. */

/* One component: TT_COMPONENT(TT_KIND_MODEL, "mini", "a tiny decoder", config, options, &vt)
 *   options_: an array (not a pointer) of tt_option; config_: the config struct's type. */
#define TT_COMPONENT(kind_, name_, doc_, config_, options_, vtable_)                               \
    {                                                                                              \
        sizeof(tt_component), (kind_), (name_), (doc_), (options_), TT_COUNT(options_),            \
            sizeof(tt_option), sizeof(config_), (vtable_), NULL                                    \
    }
/* The same with an extension function. */
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
