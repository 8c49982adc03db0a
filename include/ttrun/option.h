/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TTRUN_OPTION_H
#define TTRUN_OPTION_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <ttrun/status.h>

/* Option tables: one row per key of the job file. From them the core checks the job, prints --help
 * and writes the JSON schema and docs/reference.md. A component's config struct is zero-filled,
 * then gets the defaults, then the job's values. The job owns the strings and lists; they live as
 * long as the job. */

#ifdef __cplusplus
extern "C" {
#endif

/* Each with the C type of its field in the config struct. Append only. */
typedef enum tt_option_type {
    TT_OPT_BOOL,    /* bool */
    TT_OPT_INT,     /* int64_t */
    TT_OPT_FLOAT,   /* double; integers accepted */
    TT_OPT_STRING,  /* const char * */
    TT_OPT_ENUM,    /* const char *, one of `choices` ("a|b|c") */
    TT_OPT_STRINGS, /* tt_strings; a single string is accepted as a list of one */
    TT_OPT_JSON,    /* const char *: the value's JSON text, for a plugin's nested tables */
    TT_OPT_CHOICE,  /* int: index into `choices` from 0, hence the value of a matching enum */
} tt_option_type;

typedef struct tt_strings {
    const char *const *items;
    size_t n;
} tt_strings;

/* null is allowed and is stored as NULL (strings), INT64_MIN (INT) or NaN (FLOAT); a BOOL is never
 * nullable */
#define TT_OPT_NULLABLE 1u
/* known but not implemented: any value but the default is an error that says so */
#define TT_OPT_NOT_YET 2u
/* STRING, STRINGS: file names, globs or folders. The component gets absolute paths: a relative one
 * of a job file starts in the folder of that file, one of the command line in the current folder.
 * `choices` of such an option lists words that are not paths ("auto|off"). */
#define TT_OPT_PATH 4u
/* with TT_OPT_PATH: where there is no such path, the value may be the id of a model on the Hugging Face
 * hub, ORG/NAME, and the component gets its folder in the hub's local cache */
#define TT_OPT_HUB 8u

typedef struct tt_option {
    const char *name; /* the JSON key */
    const char *doc;  /* one line, no full stop */
    tt_option_type type;
    size_t offset;            /* in the config struct */
    const char *default_json; /* the default as JSON text: "8e-4", "\"adamw\"", "null", "[]" */
    double min, max;          /* inclusive range for INT and FLOAT; both 0 = any value */
    const char *choices;      /* "none|selective|~full"; a leading ~: not implemented yet */
    uint32_t flags;           /* TT_OPT_NULLABLE | … */
    const char *
        aliases; /* other accepted spellings, "a|b"; NULL = none. "c.d": as member d of an object c */
} tt_option;

#define TT_COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* TT_OPTION: a row whose key is the field's name,
 *   TT_OPTION(config, lr, TT_OPT_FLOAT, "8e-4", 0, 1e6, "learning rate")
 * TT_OPTION_MORE: the same with choices, flags and aliases between the range and the doc. */
#define TT_OPTION(config_, field_, type_, default_, min_, max_, doc_)                              \
    TT_OPTION_MORE(config_, field_, type_, default_, min_, max_, NULL, 0, NULL, doc_)
#define TT_OPTION_MORE(config_, field_, type_, default_, min_, max_, choices_, flags_, aliases_,   \
                       doc_)                                                                       \
    {                                                                                              \
#field_, (doc_), (type_), offsetof(config_, field_), (default_), (min_), (max_),           \
            (choices_), (flags_), (aliases_)                                                       \
    }

#ifdef __cplusplus
}
#endif
#endif
