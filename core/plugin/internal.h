/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_PLUGIN_INTERNAL_H
#define TT_PLUGIN_INTERNAL_H
#include "plugin/registry.h"

/* What the files of core/plugin share. */

/* ---- elf.c: the file's headers, before the dynamic loader sees it ---- */

/* The loader maps what the headers promise: a file cut short kills the process with SIGBUS on the
 * first touch. So all bounds are checked on the bytes first. The reason only, without the file's
 * name. */
tt_status tt_elf_check(const unsigned char *p, size_t n, tt_error *err);

/* ---- image.c: which addresses a descriptor may point to ---- */

typedef struct tt_segment {
    uintptr_t begin, end;
    bool readable, executable;
} tt_segment;

/* Segments of every loaded object: a pointer of a truthful descriptor lies in one of them. */
typedef struct tt_image {
    TT_VEC(tt_segment) segments;
} tt_image;
void tt_image_collect(tt_arena *a, tt_image *out);
bool tt_image_readable(const tt_image *m, const void *p, size_t n, size_t align);
bool tt_image_code(const tt_image *m, uintptr_t address);
/* s is NUL-terminated text of at most max bytes inside a segment. */
bool tt_image_text(const tt_image *m, const char *s, size_t max);
/* Size of the dynamic symbol that begins at p; 0 = unknown. */
size_t tt_image_symbol_size(const void *p);

/* ---- descriptor.c, kinds.c, verify.c, verify_options.c ---- */

#define TT_TEXT_MAX 4096    /* bytes of a name, doc, choices, … */
#define TT_STRUCT_MAX 65536 /* no descriptor struct of any minor is larger */

#define TT_CHECK_ALIGN sizeof(void *) /* of every array of a descriptor */

/* Bytes of a struct in minor 0, where `last` was its last field. */
#define TT_V1_0(type, last) (offsetof(type, last) + sizeof(((type *)0)->last))

typedef struct tt_check {
    const tt_plugin *plugin;
    tt_image image;
    tt_arena *arena;
} tt_check;

/* A struct's size as the plugin states it, against minor 0's and ours: equal to ours within our
 * minor, between both when older, at least ours when newer. */
tt_status tt_check_size(const tt_check *c, const char *what, size_t got, size_t v1_0, size_t ours,
                        tt_error *err);
/* Text that must be there (required) or may be NULL. */
tt_status tt_check_text(const tt_check *c, const char *what, const char *s, bool required,
                        tt_error *err);
/* n elements of `size` bytes at p; n 0 asks nothing of p. */
tt_status tt_check_array(const tt_check *c, const char *what, const void *p, size_t n, size_t size,
                         tt_error *err);
tt_status tt_check_options(const tt_check *c, const tt_component *k, tt_error *err);
tt_status tt_check_vtable(const tt_check *c, const tt_component *k, tt_error *err);
bool tt_kind_known(tt_kind k);
const tt_option *tt_option_at(const tt_component *k, size_t i);
const tt_component *tt_component_at(const tt_plugin *p, size_t i);

/* ---- load.c ---- */

typedef struct tt_loaded {
    void *handle; /* libltdl's */
    const tt_plugin *plugin;
} tt_loaded;

/* Load one file from a private copy and check it. private_dir NULL: a folder under $TMPDIR, gone
 * when this returns. */
tt_status tt_plugin_open(const char *path, const char *private_dir, tt_loaded *out, tt_error *err);
void tt_plugin_close(tt_loaded *l);
/* libltdl counts these; each registry holds one. */
tt_status tt_plugin_loader_begin(tt_error *err);
void tt_plugin_loader_end(void);

/* ---- spec.c: a TrainSpec that is a file of names ---- */
bool tt_spec_is_file(const char *path); /* by its name: a .json */
/* As a plugin of one component; its memory is the arena's. */
tt_status tt_spec_open(const char *path, const char *name, tt_arena *a, tt_loaded *out,
                       tt_error *err);

/* ---- scan.c: the files of the plugin folders ---- */

typedef enum tt_file_state { TT_FILE_CLOSED, TT_FILE_LOADED, TT_FILE_FAULTY } tt_file_state;

typedef struct tt_plugin_file {
    const char *path;
    const char *stem; /* file name without ".so" or ".json" */
    tt_kind folder;   /* the kind whose folder it lies in; TT_KIND_END = none */
    uint64_t device, inode;
    tt_file_state state;
    tt_loaded loaded;
    const char *fault; /* one line */
    bool asked;        /* for by its path: wins over namesakes */
} tt_plugin_file;

typedef TT_VEC(tt_plugin_file *) tt_plugin_files;

/* Adds every .so below dir, and every .json of a folder specs, in bytewise order of paths, each file once however often it is reached.
 * A subfolder that cannot be read becomes an entry that is faulty. */
tt_status tt_scan_folder(tt_arena *a, const char *dir, tt_plugin_files *files, tt_error *err);
/* The folders to search where none is named: TTRUN_PLUGIN_PATH, then those of this ttrun. */
tt_status tt_scan_default(tt_arena *a, tt_plugin_files *files, tt_str *searched, tt_error *err);
/* Adds one file, or finds it. */
tt_plugin_file *tt_scan_file(tt_arena *a, const char *path, tt_plugin_files *files);
/* A component of this name may be in the file: its bytes hold the name. */
bool tt_scan_mentions(const char *path, const char *name);

/* ---- registry.c ---- */
struct tt_registry {
    tt_arena *arena;
    const char *private_dir;
    tt_plugin_files files;
    const char *searched; /* the folders, for messages */
};
/* Once per file; its fault is kept. */
tt_file_state tt_registry_open(tt_registry *r, tt_plugin_file *f);
const tt_plugin_file *tt_registry_file_of(const tt_registry *r, const tt_component *c);
const char *tt_registry_searched(const tt_registry *r);

#endif
