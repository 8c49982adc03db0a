/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_CONFIG_H
#define TT_CONFIG_H
#include "base/base.h"
#include <ttrun/option.h>

/* core/config reads a job file into typed, checked values, each with its origin. Only this folder
 * parses JSON.
 *   Load order: option defaults < "extends" chain < the job file < command line. Comments // and
 *   block comments are allowed. Every value keeps its position, so an error reads
 *   `job.json:14:7: training.seq_length: unknown key (did you mean training.seq_len?)`. Errors from
 *   the command line read `--training.seq_len: …`. [setup] */

typedef struct tt_job tt_job;

typedef struct tt_override {
    const char *key;   /* "training.steps", without the dashes */
    const char *value; /* as typed: JSON if the option's type needs it, else a string */
} tt_override;

/* Reads a job file. path NULL: an empty job, which has only defaults and overrides; a folder with a
 * config.json: the same as --model.hf FOLDER. */
tt_status tt_job_load(tt_arena *a, const char *path, const tt_override *overrides, size_t n,
                      tt_job **out, tt_error *err);
/* The same from text in memory, for tests and checkpoints; errors show name as the file. */
tt_status tt_job_load_text(tt_arena *a, const char *name, const char *text, size_t n_bytes,
                           const tt_override *overrides, size_t n, tt_job **out, tt_error *err);
const char *tt_job_dir(const tt_job *job); /* folder relative paths start from */

/* Raises an error at a key: file:line:col (or the command line), the key's path, the text. */
tt_status tt_job_fail(const tt_job *job, const char *key, tt_error *err, const char *fmt, ...)
    TT_PRINTF(4, 5);

/* Parses the object at `key` ("training"; "" = the top level; "hooks[1]", "converters[0]" for
 * lists) by an option table into out: zero-filled, then defaults, then the job's values. If the
 * object is absent, all values are defaults.
 *   ignore  keys that belong to other tables ("name", "param_groups"), NULL-terminated, or NULL
 *   Errors: wrong types and ranges, unknown keys (with the nearest known), TT_OPT_NOT_YET values, a
 *   key that is set twice by aliases.
 * The job remembers each key's value and origin for tt_job_print, and the table for --schema. */
tt_status tt_job_section(tt_job *job, const char *key, const tt_option *options, size_t n_options,
                         size_t option_size, const char *const *ignore, void *out, tt_error *err);
/* The same with a layer of values between the defaults and the job, such as the model's flavor
 * ("flavor debugmodel" and its args_json). NULL = no layer. */
tt_status tt_job_section_over(tt_job *job, const char *key, const char *base_name,
                              const char *base_json, const tt_option *options, size_t n_options,
                              size_t option_size, const char *const *ignore, void *out,
                              tt_error *err);
/* The same for the text of a JSON object that overrides values of a filled struct: flavors' args,
 * param_groups' overrides. where: its name in errors. For a text from this job (tt_job_text, a JSON
 * option) errors show the position in the file. */
tt_status tt_job_overlay(tt_job *job, const char *where, const char *json, const tt_option *options,
                         size_t n_options, size_t option_size, void *inout, tt_error *err);
/* The number of elements of the list at key; 0 if it is absent; an error if it is not a list. */
tt_status tt_job_list(const tt_job *job, const char *key, size_t *n, tt_error *err);
/* The string at key, or fallback if it is absent; the key then counts as known. */
tt_status tt_job_string(tt_job *job, const char *key, const char *fallback, const char **out,
                        tt_error *err);
/* The path at key, absolute as that of an option with these flags (TT_OPT_PATH | …); NULL if it is absent or
 * null. */
tt_status tt_job_path(tt_job *job, const char *key, uint32_t flags, const char **out,
                      tt_error *err);
/* Sets a key that the job does not set to JSON text. origin: what `ttrun config` shows for it. */
tt_status tt_job_default(tt_job *job, const char *key, const char *json, const char *origin,
                         tt_error *err);
/* Sets a key as a further `--key VALUE` of the command line would, before its section is parsed. */
tt_status tt_job_override(tt_job *job, const char *key, const char *value, tt_error *err);
/* Replaces the value of a key in the resolved job, after it was parsed. */
tt_status tt_job_derive(tt_job *job, const char *key, const char *json, const char *origin,
                        tt_error *err);
/* The keys of the object at key, which is part of the resolved job; none if it is absent. */
tt_status tt_job_members(const tt_job *job, const char *key, const char *const **names, size_t *n,
                         tt_error *err);
/* The JSON text at key with all it contains, NULL if it is absent. Owner: the job. */
const char *tt_job_text(const tt_job *job, const char *key);
bool tt_job_has(const tt_job *job, const char *key);
/* Adds tables whose keys "did you mean …?" suggests before their sections are parsed. They must
 * outlive the job. */
typedef struct tt_section_doc tt_section_doc;
void tt_job_know(tt_job *job, const tt_section_doc *docs, size_t n);
/* Call it after all sections were parsed: a key that no table has is an error, at the top level or
 * among the keys that a section ignored. */
tt_status tt_job_finish(tt_job *job, tt_error *err);

/* The resolved job as JSON text, every claimed key with its value; origins: as comments `//
 * job.json:14:7`, "default",
 * "--training.steps", "flavor debugmodel". */
void tt_job_print(const tt_job *job, bool origins, tt_str *out);
/* Lists the keys whose resolved values differ, "training.steps: 10 → 20", one per line; a resumed
 * run prints them. */
void tt_job_diff(const char *old_resolved_json, const char *new_resolved_json, tt_str *out);
/* The same for a job that is open, without keys that the old one has not and that have their defaults: of a newer ttrun, or
 * of a part that the old one does not have. */
void tt_job_changes(const char *old_resolved_json, const tt_job *job, tt_str *out);

/* A line per key or value that was taken in another trainer's spelling, or that changes nothing:
 * "job.json:3:5: training.gc_freq: changes nothing here: …". */
const char *const *tt_job_notices(const tt_job *job, size_t *n);
/* Has the job an option by this other spelling of its key? The tree has the option's name. */
bool tt_job_spelt(const tt_job *job, const char *key);

/* Documentation from tables. A list of sections describes everything that a job may contain. */
struct tt_section_doc {
    const char *key; /* "training", "model.args", "hooks[]" (a list of such), "" = the top level */
    const char *component; /* "adamw"; NULL: keys of the section whatever its component */
    const char *doc;
    const tt_option *options;
    size_t n_options, option_size;
    const char *same_as; /* instead of options: the section that has the same keys; or NULL */
};
/* The first key whose last part is `name`, "optimizer.lr" for "lr"; NULL = none. Owner: the arena. */
const char *tt_docs_key_ending_in(tt_arena *a, const tt_section_doc *s, size_t n, const char *name);
void tt_schema_print(const tt_section_doc *s, size_t n, tt_str *out); /* JSON Schema 2020-12 */
void tt_explain_print(const tt_section_doc *s, size_t n, const char *key,
                      tt_str *out);                                       /* key NULL = all      */
void tt_explain_sections(const tt_section_doc *s, size_t n, tt_str *out); /* a line per section */
void tt_reference_print(const tt_section_doc *s, size_t n, tt_str *out);  /* docs/reference.md   */

/* A small JSON reader, also for other files (checkpoints, Hugging Face's configs). It makes a tree
 * with positions in the arena, and is safe against hostile input: depth ≤ 512, at most
 * TT_JSON_MOST_VALUES values, duplicate keys are errors, numbers are checked. */
#define TT_JSON_MOST_VALUES ((size_t)1 << 24)
typedef enum tt_json_type {
    TT_JSON_NULL,
    TT_JSON_BOOL,
    TT_JSON_INT,
    TT_JSON_REAL,
    TT_JSON_STRING,
    TT_JSON_ARRAY,
    TT_JSON_OBJECT
} tt_json_type;
typedef struct tt_json {
    tt_json_type type;
    bool boolean;
    int64_t integer;
    double real;        /* also set for INT; infinite where a number is beyond double */
    const char *digits; /* of a REAL of a file: as it was written there; else NULL */
    const char *string; /* NUL-terminated UTF-8 */
    size_t n;           /* elements or members */
    const char **keys;  /* OBJECT */
    struct tt_json **items;
    int line, column; /* of the value, from 1, columns in characters; 0 = from the command line */
    struct tt_json_pos *key_pos; /* OBJECT: the position of each key */
    const uint32_t
        *sorted; /* OBJECT of many keys: indices in key order, for tt_json_get; else NULL */
    const struct tt_json_origin *origin; /* the file or command line that it was read from */
} tt_json;
typedef struct tt_json_pos {
    int line, column;
} tt_json_pos;
typedef struct tt_json_origin {
    const char *name; /* file as given, "--training.steps", … */
    int layer; /* a higher one wins: extends chain, job file, command line; -1 = no file of the
                  job's */
    bool command_line;
    const char *raw; /* command line: the value as typed */
    bool nul;        /* U+0000 in a string is read, as the bytes c0 80, which no UTF-8 has */
} tt_json_origin;
tt_status tt_json_parse(tt_arena *a, const char *name, const char *text, size_t n,
                        const tt_json **out, tt_error *err);
/* json_file.c: reads a file of at most so many bytes (0: any) and parses it. The other one: what is no object is TT_EINVAL. */
tt_status tt_json_read(tt_arena *a, const char *path, size_t max_bytes, const tt_json **out,
                       tt_error *err);
tt_status tt_json_read_object(tt_arena *a, const char *path, size_t max_bytes, const tt_json **out,
                              tt_error *err);
/* tt_json_parse for a tokenizer's file, whose tokens may have U+0000: tt_json_origin.nul. */
tt_status tt_json_parse_tokens(tt_arena *a, const char *name, const char *text, size_t n,
                               const tt_json **out, tt_error *err);
/* For a large text of strangers: gives fn one member of the root after another, so that no more than one, of at most
 * most_values, is in memory. Whether keys are unique is fn's to see. A root that is no object is given with key NULL. */
typedef tt_status tt_json_member_fn(void *user, const char *key, const tt_json *v, tt_error *err);
tt_status tt_json_each(const char *name, const char *text, size_t n, size_t most_values,
                       tt_json_member_fn *fn, void *user, tt_error *err);
const tt_json *tt_json_get(const tt_json *object,
                           const char *key);       /* NULL = absent or not an object */
void tt_json_write(const tt_json *v, tt_str *out); /* compact */
/* The same, with each number as it was written. */
void tt_json_write_exact(const tt_json *v, tt_str *out);

#endif
