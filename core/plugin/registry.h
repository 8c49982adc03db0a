/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_REGISTRY_H
#define TT_REGISTRY_H
#include "config/config.h"
#include <ttrun/kernels.h>
#include <ttrun/plugin.h>

/* core/plugin: find, check and hold plugins; look components up by kind and name. The only place
 * that loads code. */

typedef struct tt_registry tt_registry;

typedef struct tt_registry_opts {
    const char *const *dirs; /* --plugin-dir, in order; n 0: TTRUN_PLUGIN_PATH, then the first that
                                exists of plugins/ and lib/ttrun/plugins/ beside and above the
                                executable's folder, and the installed folder */
    size_t n_dirs;
    const char *private_dir; /* each .so is loaded from a private copy here (R19); NULL: a fresh
                                folder under $TMPDIR, removed at once (the mapping stays) */
} tt_registry_opts;

/* Scan lazily: file names and folders are listed at once, a .so is opened when a component of its
 * kind and name is asked for (plugins/<kind>/<name>.so first, then any other file). A faulty .so is
 * reported when it is needed or listed: one line naming file and reason. */
tt_status tt_registry_new(const tt_registry_opts *o, tt_registry **out, tt_error *err);
void tt_registry_free(tt_registry *r);

/* The component, or an error: unknown name (lists the known ones of that kind and the nearest),
 * faulty file, duplicates. */
tt_status tt_registry_find(tt_registry *r, tt_kind kind, const char *name, const tt_component **out,
                           tt_error *err);
/* Every component of a kind (opens everything); faulty files go to faults as lines. */
tt_status tt_registry_all(tt_registry *r, tt_kind kind, tt_arena *a, const tt_component ***out,
                          size_t *n, tt_str *faults, tt_error *err);
/* kernels.c: the kernel that plugins bring for an op of a backend; *out NULL: there is none.
 * own: only from the file that the plugin op `own` came from; NULL: from every file. Opens files
 * that are likely to hold one; a faulty one is skipped. Two kernels are an error. */
typedef struct tt_plugin_kernel {
    const tt_kernel *kernel; /* NULL = none */
    const tt_component *component;
} tt_plugin_kernel;
tt_status tt_registry_kernel(tt_registry *r, const char *backend, const char *op,
                             const tt_component *own, tt_plugin_kernel *out, tt_error *err);
/* The kernel of a component of kind TT_KIND_KERNELS for an op; NULL = it has none. */
const tt_kernel *tt_component_kernel(const tt_component *c, const char *op);
const char *tt_registry_file(const tt_registry *r, const tt_component *c); /* path it came from */
const char *tt_registry_version(const tt_registry *r,
                                const tt_component *c); /* of the plugin it came in */
const char *tt_kind_name(tt_kind k);                    /* "lr_scheduler"     */
const char *tt_kind_folder(tt_kind k);                  /* "lr_schedulers"    */
tt_status tt_kind_parse(const char *name, tt_kind *out, tt_error *err);

/* Load and check one file (ttrun plugins check FILE, tests): verdict with the dynamic loader's own
 * words. What it offers is found before the namesakes of other files. */
tt_status tt_registry_load_file(tt_registry *r, const char *path, const tt_plugin **out,
                                tt_error *err);
/* The descriptor's checks, no function of the plugin called: magic, ABI, sizes, names, tables,
 * vtables. */
tt_status tt_plugin_verify(const tt_plugin *p, const char *file, tt_error *err);

/* Row i of a component's option table (rows may be larger than ours), and where a row's value lies
 * in its config. */
const tt_option *tt_component_option(const tt_component *c, size_t i);
const void *tt_part_value(const tt_component *c, const void *config, const char *option,
                          tt_option_type type); /* NULL = no such option of that type */

/* A component with its options parsed from the job: {section}.name names it (fallback where
 * absent). */
typedef struct tt_part {
    const tt_component *component;
    void *config; /* arena memory, component->config_size */
    const char *name, *file;
} tt_part;
/* ignore: as in tt_job_section; "name" is always ignored. */
tt_status tt_registry_part(tt_registry *r, tt_job *job, tt_kind kind, const char *section,
                           const char *fallback, const char *const *ignore, tt_arena *a,
                           tt_part *out, tt_error *err);
/* The same with a layer between defaults and job, as in tt_job_section_over. */
tt_status tt_registry_part_over(tt_registry *r, tt_job *job, tt_kind kind, const char *section,
                                const char *fallback, const char *base_name, const char *base_json,
                                const char *const *ignore, tt_arena *a, tt_part *out,
                                tt_error *err);

/* The plugin's file name and, where it is known, the function that this address of code lies in;
 * NULL: no plugin's. [in handlers of faults] */
const char *tt_plugin_at(const void *address, const char **function);
/* How many constructors the plugin of these n bytes runs as it is loaded, but for the compiler's
 * own. */
int tt_elf_constructors(const unsigned char *p, size_t n);

#endif
