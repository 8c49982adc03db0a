/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TTRUN_OPTION_H
#define TTRUN_OPTION_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <ttrun/status.h>

/* Option tables: one row a key of the job file. From these the core checks the job, prints --help,
 * writes the JSON schema and docs/reference.md. A component's config struct is zero-filled, then
 * defaults, then the job's values. Strings and lists are owned by the job and live as long as it
 * does. */

#ifdef __cplusplus
extern "C" {
#endif

/* The C type of each in the config struct. Append only. */
typedef enum tt_option_type {
    TT_OPT_BOOL,    /* bool */
    TT_OPT_INT,     /* int64_t */
    TT_OPT_FLOAT,   /* double; integers accepted */
    TT_OPT_STRING,  /* const char * */
    TT_OPT_ENUM,    /* const char *, one of `choices` ("a|b|c") */
    TT_OPT_STRINGS, /* tt_strings; a single string is accepted as a list of one */
    TT_OPT_JSON,    /* const char *: the value's JSON text, for nested tables of a plugin */
    TT_OPT_CHOICE,  /* int: which of `choices`, counted from 0, as an enum counts */
} tt_option_type;

typedef struct tt_strings {
    const char *const *items;
    size_t n;
} tt_strings;

/* null is a legal value: strings NULL; INT: INT64_MIN; FLOAT: NaN; BOOL is never nullable */
#define TT_OPT_NULLABLE 1u
/* known, not built: any value but the default is an error that says so */
#define TT_OPT_NOT_YET 2u

typedef struct tt_option {
    const char *name; /* the JSON key */
    const char *doc;  /* one line, no full stop */
    tt_option_type type;
    size_t offset;            /* in the config struct */
    const char *default_json; /* the default as JSON text: "8e-4", "\"adamw\"", "null", "[]" */
    double min, max;          /* inclusive range for INT and FLOAT; both 0 = any */
    const char *choices;      /* "none|selective|~full", canonical first; ~: not built yet */
    uint32_t flags;           /* TT_OPT_NULLABLE | … */
    const char *aliases;      /* other accepted spellings, "a|b"; NULL = none */
} tt_option;

#define TT_COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* A row whose key is the field's name, and one with choices, flags and aliases between the range
 * and the doc: TT_OPTION(config, lr, TT_OPT_FLOAT, "8e-4", 0, 1e6, "learning rate") */
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
