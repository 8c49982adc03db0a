/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_PLUGIN_INTERNAL_H
#define TT_PLUGIN_INTERNAL_H
#include "plugin/registry.h"
#include <pthread.h>

/* Functions and types shared by the files of core/plugin only. */

/* ---- elf.c: the file's headers, before the dynamic loader sees it ---- */

/* The dynamic loader maps what the headers say, so a truncated file would kill the process with
 * SIGBUS on its first access. This checks all bounds in the file's bytes before that. The error is
 * the reason only, without the file's name. */
tt_status tt_elf_check(const unsigned char *p, size_t n, tt_error *err);
/* The part of it that is about the header and the bounds of the segments. */
tt_status tt_elf_check_head(const unsigned char *p, size_t n, tt_error *err);

/* ---- peek.c ---- */

typedef struct tt_peek {
    tt_kind kind; /* may be unknown */
    const char *name;
} tt_peek;
/* Reads which components the plugin of these n bytes has; false: it cannot be told without loading
 * it. */
bool tt_plugin_peek(const unsigned char *p, size_t n, tt_arena *a, tt_peek **out, size_t *n_out);

/* ---- image.c: which addresses a descriptor may point to ---- */

typedef struct tt_segment {
    uintptr_t begin, end;
    bool readable, executable;
} tt_segment;

/* The segments of all loaded objects: every pointer of a valid descriptor is into one of them. */
typedef struct tt_image {
    TT_VEC(tt_segment) segments;
} tt_image;
void tt_image_collect(tt_arena *a, tt_image *out);
bool tt_image_readable(const tt_image *m, const void *p, size_t n, size_t align);
bool tt_image_code(const tt_image *m, uintptr_t address);
/* Whether s is NUL-terminated text of at most max bytes inside a segment. */
bool tt_image_text(const tt_image *m, const char *s, size_t max);
/* The size of the dynamic symbol that begins at p; 0 = unknown. */
size_t tt_image_symbol_size(const void *p);

/* ---- descriptor.c, kinds.c, verify.c, verify_kinds.c, verify_options.c ---- */

#define TT_TEXT_MAX 4096    /* bytes of a name, doc, choices, … */
#define TT_STRUCT_MAX 65536 /* no descriptor struct of any minor version is larger */

#define TT_CHECK_ALIGN sizeof(void *) /* the alignment of every array in a descriptor */

/* The size of a struct in minor version 0, where `last` was its last field. */
#define TT_V1_0(type, last) (offsetof(type, last) + sizeof(((type *)0)->last))

typedef struct tt_check {
    const tt_plugin *plugin;
    tt_image image;
    tt_arena *arena;
} tt_check;

/* Checks the size that a plugin states for a struct: equal to ours for our minor version, between
 * minor 0's and ours for an older one, at least ours for a newer one. */
tt_status tt_check_size(const tt_check *c, const char *what, size_t got, size_t v1_0, size_t ours,
                        tt_error *err);
/* Checks a text; it may be NULL unless it is required. */
tt_status tt_check_text(const tt_check *c, const char *what, const char *s, bool required,
                        tt_error *err);
/* Checks an array of n elements of `size` bytes at p; with n 0, p may be anything. */
tt_status tt_check_array(const tt_check *c, const char *what, const void *p, size_t n, size_t size,
                         tt_error *err);
tt_status tt_check_options(const tt_check *c, const tt_component *k, tt_error *err);
tt_status tt_check_vtable(const tt_check *c, const tt_component *k, tt_error *err);

/* A function pointer of a vtable; optional ones may be NULL. */
typedef struct tt_slot {
    const char *name;
    size_t offset;
    bool optional;
} tt_slot;
typedef struct tt_slots {
    const tt_slot *items;
    size_t n;
} tt_slots;
extern const tt_slots tt_device_functions, tt_op_functions, tt_kernel_functions;
/* Checks the functions of a struct of `size` bytes. */
tt_status tt_check_functions(const tt_check *c, const void *vt, size_t size, const tt_slots *slots,
                             tt_error *err);
/* Calls fn with each function of a checked component of a known kind: those of its vtable, its
 * device, its op and its kernels. */
void tt_component_functions(const tt_component *k, void (*fn)(void *arg, uintptr_t code),
                            void *arg);
/* Check what is no function in the vtables of these kinds. */
tt_status tt_check_train_spec_vt(const tt_check *c, const tt_component *k, tt_error *err);
tt_status tt_check_model_vt(const tt_check *c, const tt_component *k, tt_error *err);
tt_status tt_check_optimizer_vt(const tt_check *c, const tt_component *k, tt_error *err);
tt_status tt_check_backend_vt(const tt_check *c, const tt_component *k, tt_error *err);
tt_status tt_check_converter_vt(const tt_check *c, const tt_component *k, tt_error *err);
tt_status tt_check_comm_vt(const tt_check *c, const tt_component *k, tt_error *err);
tt_status tt_check_op_vt(const tt_check *c, const tt_component *k, tt_error *err);
tt_status tt_check_kernels_vt(const tt_check *c, const tt_component *k, tt_error *err);
/* Row i of a table of kernels, whose rows may be longer than ours. */
const tt_kernel *tt_kernel_at(const tt_kernels_vt *v, size_t i);
bool tt_kind_known(tt_kind k);
const tt_option *tt_option_at(const tt_component *k, size_t i);
const tt_component *tt_component_at(const tt_plugin *p, size_t i);

/* ---- copy.c: the private copies that plugins are loaded from ---- */

typedef struct tt_copy {
    char *path;             /* the file to load, absolute */
    tt_temporary temporary; /* the folder that it is in, if it is removed afterwards */
    int fd;                 /* of a copy in memory, until it is loaded; -1: the copy is a file */
} tt_copy;

/* Copies n bytes of `file` to private_dir (NULL: no such folder), else to memory if in_memory, else
 * to a new folder under $TMPDIR. Returns false if it can be written to none of them. */
bool tt_copy_make(tt_arena *a, const char *file, const char *private_dir, bool in_memory,
                  const char *bytes, size_t n, tt_copy *out);
/* After it is loaded: removes the copy unless it is in private_dir. Its mapping stays valid, and a
 * killed process leaves no file behind. */
void tt_copy_drop(tt_copy *c);

/* ---- place.c: what code belongs to, for the handler of crashes ---- */

/* Keeps which file the copy at `path` was made of, and which functions its components have; NULL:
 * no memory for it. */
typedef struct tt_copy_name tt_copy_name;
tt_copy_name *tt_copy_remember(const char *path, const char *file, const tt_plugin *plugin);
void tt_copy_forget(tt_copy_name *name);
/* Component i of the plugin was looked up, so its functions may be called. */
void tt_copy_component_used(tt_copy_name *name, size_t i);

/* ---- load.c ---- */

typedef struct tt_loaded {
    void *handle; /* from libltdl */
    const tt_plugin *plugin;
    tt_copy_name *name; /* for tt_plugin_at; NULL: it has none */
    uint64_t hash;      /* of the file's bytes, as they were loaded */
} tt_loaded;

#define TT_PLUGIN_MOST_BYTES ((size_t)1 << 30)
/* Loads one file from a private copy and checks it; TT_EIO: somebody is writing it. private_dir NULL: the copy is in memory, or
 * where that is not possible in a folder under $TMPDIR, which is removed before this returns. */
tt_status tt_plugin_open(const char *path, const char *private_dir, tt_loaded *out, tt_error *err);
void tt_plugin_close(tt_loaded *l);
/* libltdl counts these calls; each registry makes one pair. */
tt_status tt_plugin_loader_begin(tt_error *err);
void tt_plugin_loader_end(void);

/* ---- spec.c: a TrainSpec that is a file of names ---- */
bool tt_spec_is_file(const char *path); /* whether the name ends in .json */
/* Reads it as a plugin of one component, in the arena's memory. */
tt_status tt_spec_open(const char *path, const char *name, tt_arena *a, tt_loaded *out,
                       tt_error *err);

/* ---- scan.c: the files of the plugin folders ---- */

typedef enum tt_file_state { TT_FILE_CLOSED, TT_FILE_LOADED, TT_FILE_FAULTY } tt_file_state;

typedef struct tt_plugin_file {
    const char *path;
    const char *stem; /* file name without ".so" or ".json" */
    tt_kind folder;   /* the kind whose folder it is in; TT_KIND_END = none */
    uint64_t device, inode;
    tt_file_state state;
    tt_loaded loaded;
    const char *fault;    /* why it cannot be used, one line; NULL = no fault known */
    bool is_peeked, told; /* told: what it has was read, without loading it */
    tt_peek *has;
    size_t n_has;
    int64_t changed_ns, bytes; /* of the file when what it has was read, for tt_registry_refresh */
    bool asked;                /* the user gave its path: it wins over files of the same name */
    bool own;                  /* of ttrun's own folder: every other file wins over it */
} tt_plugin_file;

typedef TT_VEC(tt_plugin_file *) tt_plugin_files;

/* Adds every .so below dir, and every .json of a folder "specs", in bytewise order of paths and
 * each file only once. A subfolder that cannot be read becomes an entry with a fault. */
tt_status tt_scan_folder(tt_arena *a, const char *dir, tt_plugin_files *files, tt_error *err);
/* The folders of TTRUN_PLUGIN_PATH. */
tt_status tt_scan_environment(tt_arena *a, tt_plugin_files *files, tt_str *searched, tt_error *err);
/* The plugins that this ttrun came with. */
tt_status tt_scan_own(tt_arena *a, tt_plugin_files *files, tt_str *searched, tt_error *err);
/* Finds the entry of a file, or adds one. */
tt_plugin_file *tt_scan_file(tt_arena *a, const char *path, tt_plugin_files *files);
/* Whether two files have the same bytes. */
bool tt_scan_same(const char *path, const char *other);
/* Whether the file may have a component of this kind, and of this name unless it is NULL. false is
 * certain; true is where the file cannot be read or is no plugin, too: opening it gives the reason. */
bool tt_scan_may_have(tt_arena *a, tt_plugin_file *f, tt_kind kind, const char *name);
/* Whether the file's bytes contain the text. */
bool tt_scan_mentions(const char *path, const char *text);

/* ---- registry.c ---- */
/* reload.c: a plugin file that is open in two versions. */
struct tt_plugin_version {
    tt_plugin_file *file; /* its `loaded` is the version that look-ups find */
    tt_loaded other;      /* the version that they do not */
    bool newer;           /* look-ups find the new one */
    uint64_t hash;        /* of the new file's bytes */
    struct tt_plugin_version *next;
};

struct tt_registry {
    tt_arena *arena;
    pthread_mutex_t lock; /* recursive; held by every function of registry.h: a running job makes a
                             new setup on another thread than the one that it runs on */
    const char **dirs;    /* those of the options, for tt_registry_refresh */
    size_t n_dirs;
    const char **job_dirs;
    size_t n_job_dirs;
    bool only_dirs;
    struct tt_plugin_version *versions;
    const char *private_dir;
    tt_plugin_files files;
    const char *searched; /* the folders, for messages */
    bool noticed;         /* that a file wins over ttrun's own */
    struct tt_held *held; /* by tt_registry_hold, the last first */
};
/* Adds the files of all folders that are not known yet. */
tt_status tt_registry_scan(tt_registry *r, tt_error *err);
/* Once per file; its fault is kept. */
tt_file_state tt_registry_open(tt_registry *r, tt_plugin_file *f);
const tt_plugin_file *tt_registry_file_of(const tt_registry *r, const tt_component *c);

#endif
