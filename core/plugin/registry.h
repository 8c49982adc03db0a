/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_REGISTRY_H
#define TT_REGISTRY_H
#include "config/config.h"
#include <ttrun/kernels.h>
#include <ttrun/plugin.h>

/* core/plugin finds, checks and loads plugins and looks components up by kind and name. Only this
 * folder loads code. */

typedef struct tt_registry tt_registry;

typedef struct tt_registry_opts {
    const char *const *dirs; /* --plugin-dir, in order; n 0: those of TTRUN_PLUGIN_PATH */
    size_t n_dirs;
    const char *private_dir; /* each .so is loaded from a private copy here (R19), or in the folder
                                that TTRUN_PLUGIN_COPIES names; NULL: in memory */
    bool only_dirs;          /* search nothing else. Otherwise ttrun's own folder is searched after
                                them, and what they have wins over it: the first that exists of
                                plugins/ in the executable's folder, lib/ttrun/plugins/ in its
                                parent, and the installed folder */
    const char *const *
        job_dirs; /* plugin_dirs of the job, searched before ttrun's own folder; not with only_dirs */
    size_t n_job_dirs;
} tt_registry_opts;

/* Lists files and folders at once, but opens a .so only when someone looks up a component that it
 * has: what it has is read from its bytes. A faulty .so is reported
 * when it is needed or listed: one line with the file and the reason. */
tt_status tt_registry_new(const tt_registry_opts *o, tt_registry **out, tt_error *err);
/* The same with the job's own folders, plugin_dirs, as o->job_dirs. */
tt_status tt_registry_new_for_job(const tt_registry_opts *o, tt_job *job, tt_registry **out,
                                  tt_error *err);
void tt_registry_free(tt_registry *r);
/* Calls fn(arg), which is a plugin's or needs one, when the arena is freed, or before the plugins are
 * closed if that is earlier. */
void tt_registry_hold(tt_registry *r, tt_arena *a, void (*fn)(void *), void *arg);

/* Looks a component up.
 *   Errors: an unknown name (with the known ones of that kind and the nearest), a faulty file, two
 *   files with the same component (but ttrun's own gives way, and a notice says so). */
tt_status tt_registry_find(tt_registry *r, tt_kind kind, const char *name, const tt_component **out,
                           tt_error *err);
/* Opens the files of this kind that have this name. What is open need not be searched for the names of
 * other components. */
void tt_registry_open_named(tt_registry *r, tt_kind kind, const char *name);
/* Lists all components of a kind, for which it opens all files that have one or do not tell; faults
 * gets a line per faulty file. */
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
const char *tt_registry_file(tt_registry *r, const tt_component *c);    /* path it came from */
const char *tt_registry_version(tt_registry *r, const tt_component *c); /* of its plugin */
const char *tt_kind_name(tt_kind k);                                    /* "lr_scheduler"     */
const char *tt_kind_folder(tt_kind k);                                  /* "lr_schedulers"    */
tt_status tt_kind_parse(const char *name, tt_kind *out, tt_error *err);

/* Loads and checks one file (ttrun plugins check FILE, tests); the error has the dynamic loader's
 * text. From then on its components win over those of the same name in other files. */
tt_status tt_registry_load_file(tt_registry *r, const char *path, const tt_plugin **out,
                                tt_error *err);
/* ---- reload.c: files that change while a job runs ---- */
/* Finds files that were put into the folders since, and looks again at those that were faulty or
 * never opened. A file that is open stays as it is. */
void tt_registry_refresh(tt_registry *r);
/* Opens the file of a converter that is open once more, as it is now, beside the old version. Look-ups
 * still find the old one. Components that were found before stay valid until their version is released.
 *   Errors: no open file has it, the new file is faulty or lacks it, the file has components of kinds that a
 *   running job holds open (a hook, a dataloader, …). */
typedef struct tt_plugin_version tt_plugin_version;
tt_status tt_registry_reload(tt_registry *r, const char *converter, tt_plugin_version **out,
                             tt_error *err);
/* From now on look-ups find the new version, or the old one again. */
void tt_registry_use(tt_registry *r, tt_plugin_version *v, bool newer);
/* Closes the version that look-ups do not find, and frees v. Nothing uses its components any more. */
void tt_registry_release(tt_registry *r, tt_plugin_version *v);
uint64_t tt_plugin_version_hash(const tt_plugin_version *v); /* of the new file's bytes */

/* Checks a descriptor without calling any function of the plugin: magic, ABI, sizes, names, tables
 * and vtables. */
tt_status tt_plugin_verify(const tt_plugin *p, const char *file, tt_error *err);

/* Row i of a component's option table, whose rows may be larger than ours; and the address of a
 * row's value in its config. */
const tt_option *tt_component_option(const tt_component *c, size_t i);
const void *tt_part_value(const tt_component *c, const void *config, const char *option,
                          tt_option_type type); /* NULL = no such option of that type */

/* A component that the job selects by {section}.name (by a fallback if that is absent), with its
 * options. */
typedef struct tt_part {
    const tt_component *component;
    void *config; /* arena memory, component->config_size */
    const char *name, *file;
} tt_part;
/* ignore: as in tt_job_section; "name" is always ignored. */
tt_status tt_registry_part(tt_registry *r, tt_job *job, tt_kind kind, const char *section,
                           const char *fallback, const char *const *ignore, tt_arena *a,
                           tt_part *out, tt_error *err);
/* The same with a layer of values between the defaults and the job, as in tt_job_section_over. */
tt_status tt_registry_part_over(tt_registry *r, tt_job *job, tt_kind kind, const char *section,
                                const char *fallback, const char *base_name, const char *base_json,
                                const char *const *ignore, tt_arena *a, tt_part *out,
                                tt_error *err);

/* The plugin's file and, where it is known, the function that this address of code lies in; NULL: no
 * plugin's. [in handlers of faults] */
const char *tt_plugin_at(const void *address, const char **function);
/* What crashed: the plugin of the innermost of n frames that is in one, and the component whose
 * function the core called. Several: the ones that may be it, because they share that function, or
 * because the thread is one of the plugin's own. */
#define TT_CRASH_COMPONENTS 4
typedef struct tt_plugin_crash {
    const char *file, *function;                 /* function NULL: unknown */
    const char *components[TT_CRASH_COMPONENTS]; /* `hook "mine"` */
    size_t n_components;                         /* may be more than the array holds */
} tt_plugin_crash;
/* Returns false if no frame is in a plugin, or if abort was called (aborted), but not by a plugin: where
 * ttrun calls it, it has given the reason. The first frames are the handler's. [in handlers of faults] */
bool tt_plugin_of_frames(void *const *frames, int n, bool aborted, tt_plugin_crash *out);
/* `hook "mine" of plugins/mine.so crashed (SIGSEGV in after_step)`; file NULL: without it. [in handlers
 * of faults] */
void tt_plugin_crash_text(const tt_plugin_crash *c, const char *signal_name, char *text,
                          size_t size);
/* The file of the plugin that this thread is loading; NULL: none. [in handlers of faults] */
const char *tt_plugin_being_loaded(void);
/* How many constructors the plugin of these n bytes runs as it is loaded, but for the compiler's
 * own. */
int tt_elf_constructors(const unsigned char *p, size_t n);

#endif
