/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_CONFIG_INTERNAL_H
#define TT_CONFIG_INTERNAL_H
#include "config/config.h"
#include "config/reserved.h"

/* Functions and types shared by the files of core/config only. */

/* A key with its final value. */
typedef struct tt_config_entry {
    const char *path;     /* "training.steps" */
    const tt_json *value; /* in its canonical form, whatever spelling the job used */
    const char *origin;   /* "job.json:14:7", "default", "--training.steps", "flavor debugmodel" */
    bool raw;             /* a whole list or text; entries for keys inside it are more exact */
} tt_config_entry;

typedef struct tt_config_text { /* JSON text given out, and the node it was made from */
    const char *text, *path;
    const tt_json *node;
} tt_config_text;

typedef struct tt_config_section { /* a parsed section: an overlay on the same struct updates its
                                      entries */
    const char *path;
    const void *out;
} tt_config_section;

typedef struct tt_config_book { /* what was asked for, learned while parsing; also through const
                                   jobs */
    tt_map *entries;            /* path → tt_config_entry */
    TT_VEC(const char *) claims, ignored;
    TT_VEC(tt_config_text) texts;
    TT_VEC(tt_config_section) sections;
    TT_VEC(tt_section_doc) tables; /* for suggestions */
    TT_VEC(const char *) notices;
    TT_VEC(const char *)
    spelt; /* paths of keys as the job wrote them, by another name than the option's */
} tt_config_book;

struct tt_job {
    tt_arena *arena;
    const char *name, *dir;
    tt_json *root;
    tt_config_book *book;
};

/* ---- json.c */
tt_status tt_config_parse(tt_arena *a, const tt_json_origin *origin, const char *text, size_t n,
                          tt_json **out, tt_error *err);

/* ---- tree.c: changing and walking trees */
tt_json *tt_config_node(tt_arena *a, tt_json_type type, const tt_json_origin *origin);
void tt_config_put(tt_arena *a, tt_json *object, const char *key, tt_json_pos pos, tt_json *item);
void tt_config_remove(tt_json *object, const char *key);
/* Merges src into dst and returns the result: objects merge by key, any other value is replaced. */
tt_json *tt_config_merge(tt_arena *a, tt_json *dst, tt_json *src);
/* Reads one part of a path: a key, to *key (arena memory), or an index (then *key is NULL). Returns
 * NULL if the path is malformed. */
const char *tt_config_step(tt_arena *a, const char *path, const char **key, size_t *index);
tt_json *tt_config_find(const tt_job *job, const char *path); /* NULL = absent; "" = the root */
const char *tt_config_join(tt_arena *a, const char *section, const char *key);
bool tt_config_under(const char *path, const char *top); /* path is top or inside it */

/* ---- override.c */
tt_status tt_config_override(tt_job *job, const tt_override *o, int layer, tt_error *err);
/* Sets the value at a path and makes the objects that are missing on it. */
tt_status tt_config_set_path(tt_job *job, const char *path, tt_json *v, tt_error *err);
/* The canonical name of a section ("validator" → "validation"). */
const char *tt_config_section_name(const char *key);

/* ---- alias.c */
/* Gives keys and values of other trainers that have one of the same meaning here ours. */
tt_status tt_config_take_aliases(tt_job *job, tt_error *err);
/* A string under another name. */
tt_json *tt_config_renamed(const tt_job *job, const tt_json *v, const char *text);
/* param_groups.c: takes groups in torchtitan's form; *any: there was one. */
tt_status tt_config_take_groups(tt_job *job, bool *any, tt_error *err);
/* The i-th other spelling of a value of a key; NULL = there are no more. */
const char *tt_config_value_alias(const char *key, const char *ours, size_t i);
/* Whether an unknown key is one that ttrun does without; a notice says so. */
bool tt_config_idle(const tt_job *job, const tt_json *v, const char *path);

/* ---- quote.c: texts of a job in messages */
void tt_config_quote(const char *text, tt_str *out);     /* JSON string, cut when long */
const char *tt_config_key(tt_arena *a, const char *key); /* as is when plain, else quoted */

/* ---- row.c: a row of an option table */
tt_option tt_config_row(const tt_option *options, size_t option_size,
                        size_t i);                           /* missing fields zero */
bool tt_config_spelling(const char *list, const char *name); /* name is one of "a|b|c" */

/* ---- nested.c */
/* Puts the members of objects that aliases with a dot name ("adamw.lr") into `object`, under their options' names. */
tt_status tt_config_nested(tt_job *job, const char *path, tt_json *object, const tt_option *options,
                           size_t n, size_t option_size, tt_error *err);

/* ---- fail.c: errors, suggestions, words for values */
const char *tt_config_origin(tt_arena *a, const tt_json *v);
/* "where: path: text" at a value; pos: of its key instead, or NULL. */
tt_status tt_config_fail(const tt_json *v, const tt_json_pos *pos, const char *path, tt_error *err,
                         const char *fmt, ...) TT_PRINTF(5, 6);
/* "expected <what>, got <v>", or why typed JSON could not be read. */
tt_status tt_config_fail_type(const tt_json *v, const char *path, const char *what, tt_error *err);
/* "unknown key (did you mean x?)" at the key's place. own: rows and further keys of the same
 * section. */
tt_status tt_config_fail_unknown(const tt_job *job, const tt_json *object, size_t i,
                                 const char *section, const char *const *own, size_t n_own,
                                 tt_error *err);

/* ---- values.c: one row of a table ↔ JSON ↔ C */
typedef struct tt_config_value {
    bool null, boolean;
    int64_t integer;
    double real;
    const char *string;
    tt_strings strings;
} tt_config_value;
tt_status tt_config_read(tt_job *job, const tt_option *o, const char *path, const tt_json *v,
                         tt_config_value *out, tt_error *err);
tt_status tt_config_default(tt_job *job, const tt_option *o, const char *path, tt_config_value *out,
                            tt_error *err);
/* paths.c: makes the paths of a TT_OPT_PATH option absolute. v: the node that was read. */
void tt_config_resolve(tt_job *job, const tt_option *o, const tt_json *v, tt_config_value *value);
/* Whether the file of a job is a descriptor (/dev/stdin, /dev/fd/N, /proc/PID/fd/N), which is in no folder of its own; a job in
 * /dev/shm is. */
bool tt_config_is_piped(const char *name);
/* A path as it is written at `origin`, made absolute; "" stays as it is. */
const char *tt_config_path(tt_arena *a, const tt_json_origin *origin, const char *path);
void tt_config_store(const tt_option *o, const tt_config_value *v, void *config);
const tt_json *tt_config_json(tt_job *job, const tt_option *o, const tt_config_value *v);

/* ---- job.c */
void tt_config_claim(const tt_job *job, const char *path);
void tt_config_set(const tt_job *job, const char *path, const tt_json *value, const char *origin,
                   bool raw);

#endif
