/* SPDX-License-Identifier: Apache-2.0 */
#include "internal.h"
#include <math.h>
#include <string.h>

#define OPTIONS_MAX 1024
#define CONFIG_MAX ((size_t)1 << 20)

/* The size of the config field of an option type; 0 = unknown type. Each is aligned to its size,
 * and tt_strings to a pointer's. */
static size_t field_size(tt_option_type t)
{
    switch (t) {
    case TT_OPT_BOOL:
        return sizeof(bool);
    case TT_OPT_INT:
        return sizeof(int64_t);
    case TT_OPT_FLOAT:
        return sizeof(double);
    case TT_OPT_STRING:
    case TT_OPT_ENUM:
    case TT_OPT_JSON:
        return sizeof(char *);
    case TT_OPT_STRINGS:
        return sizeof(tt_strings);
    case TT_OPT_CHOICE:
        return sizeof(int);
    }
    return 0;
}

/* Whether word is one of a list "a|b|c". */
static bool listed(const char *list, const char *word)
{
    size_t n = strlen(word);
    for (const char *p = list; p; p = strchr(p, '|')) {
        p += *p == '|';
        if (strncmp(p, word, n) == 0 && (p[n] == '|' || p[n] == '\0'))
            return true;
    }
    return false;
}

static tt_status check_strings(const tt_json *v, tt_error *err)
{
    if (v->type == TT_JSON_STRING)
        return TT_OK;
    if (v->type != TT_JSON_ARRAY)
        return TT_FAIL(err, TT_EABI, "is not a list of strings");
    for (size_t i = 0; i < v->n; i++)
        if (v->items[i]->type != TT_JSON_STRING)
            return TT_FAIL(err, TT_EABI, "is not a list of strings");
    return TT_OK;
}

static tt_status check_default_value(const tt_option *o, const tt_json *v, tt_error *err)
{
    const bool ranged = o->min != 0.0 || o->max != 0.0;
    if (v->type == TT_JSON_NULL)
        return (o->flags & TT_OPT_NULLABLE) || o->type == TT_OPT_JSON
                   ? TT_OK
                   : TT_FAIL(err, TT_EABI, "is null without TT_OPT_NULLABLE");
    switch (o->type) {
    case TT_OPT_BOOL:
        return v->type == TT_JSON_BOOL ? TT_OK : TT_FAIL(err, TT_EABI, "is neither true nor false");
    case TT_OPT_INT:
    case TT_OPT_FLOAT:
        if (v->type != TT_JSON_INT && (o->type == TT_OPT_INT || v->type != TT_JSON_REAL))
            return TT_FAIL(err, TT_EABI,
                           o->type == TT_OPT_INT ? "is not an integer" : "is not a number");
        if (ranged && (v->real < o->min || v->real > o->max))
            return TT_FAIL(err, TT_EABI, "is outside its range of %g to %g", o->min, o->max);
        return TT_OK;
    case TT_OPT_STRING:
        return v->type == TT_JSON_STRING ? TT_OK : TT_FAIL(err, TT_EABI, "is not a string");
    case TT_OPT_ENUM:
    case TT_OPT_CHOICE:
        if (v->type != TT_JSON_STRING || !listed(o->choices, v->string))
            return TT_FAIL(err, TT_EABI, "is not one of %.200s", o->choices);
        return TT_OK;
    case TT_OPT_STRINGS:
        return check_strings(v, err);
    case TT_OPT_JSON:
        return TT_OK;
    }
    return TT_OK;
}

static tt_status check_default(const tt_check *c, const tt_option *o, tt_error *err)
{
    const tt_json *v = NULL;
    tt_error why;
    TT_TRY(tt_check_text(c, "default_json", o->default_json, true, err));
    if (tt_json_parse(c->arena, "default_json", o->default_json, strlen(o->default_json), &v,
                      &why) != TT_OK)
        return TT_FAIL(err, TT_EABI, "%s", why.text);
    if (check_default_value(o, v, err) != TT_OK)
        return tt_error_context(err, "the default %.80s", o->default_json);
    return TT_OK;
}

static tt_status check_field(const tt_component *k, const tt_option *o, tt_error *err)
{
    const size_t size = field_size(o->type);
    if (size == 0)
        return TT_FAIL(err, TT_EABI, "its type %d is unknown", (int)o->type);
    if (o->offset > k->config_size || size > k->config_size - o->offset)
        return TT_FAIL(err, TT_EABI, "%zu bytes at offset %zu do not fit the config of %zu bytes",
                       size, o->offset, k->config_size);
    if (o->offset % TT_MIN(size, sizeof(void *)) != 0)
        return TT_FAIL(err, TT_EABI, "offset %zu is not aligned for its type", o->offset);
    return TT_OK;
}

static tt_status check_option(const tt_check *c, const tt_component *k, const tt_option *o,
                              tt_error *err)
{
    TT_TRY(tt_check_text(c, "doc", o->doc, true, err));
    TT_TRY(tt_check_text(c, "choices", o->choices,
                         o->type == TT_OPT_ENUM || o->type == TT_OPT_CHOICE, err));
    TT_TRY(tt_check_text(c, "aliases", o->aliases, false, err));
    TT_TRY(check_field(k, o, err));
    if (isnan(o->min) || isnan(o->max) || o->min > o->max)
        return TT_FAIL(err, TT_EABI, "its range %g to %g is empty", o->min, o->max);
    return check_default(c, o, err);
}

static bool same_key(const tt_option *a, const tt_option *b)
{
    return strcmp(a->name, b->name) == 0 || (a->aliases && listed(a->aliases, b->name)) ||
           (b->aliases && listed(b->aliases, a->name));
}

static tt_status check_pair(const tt_option *a, const tt_option *b, tt_error *err)
{
    if (same_key(a, b))
        return TT_FAIL(err, TT_EABI, "options \"%s\" and \"%s\" share a key", a->name, b->name);
    if (a->offset < b->offset + field_size(b->type) && b->offset < a->offset + field_size(a->type))
        return TT_FAIL(err, TT_EABI, "options \"%s\" and \"%s\" share bytes of the config", a->name,
                       b->name);
    return TT_OK;
}

tt_status tt_check_options(const tt_check *c, const tt_component *k, tt_error *err)
{
    if (k->config_size > CONFIG_MAX)
        return TT_FAIL(err, TT_EABI, "config_size %zu is more than %zu", k->config_size,
                       CONFIG_MAX);
    if (k->n_options == 0)
        return TT_OK;
    if (k->n_options > OPTIONS_MAX)
        return TT_FAIL(err, TT_EABI, "it claims %zu options; at most %d are possible", k->n_options,
                       OPTIONS_MAX);
    TT_TRY(tt_check_size(c, "tt_option", k->option_size, TT_V1_0(tt_option, aliases),
                         sizeof(tt_option), err));
    if (k->option_size % sizeof(void *) != 0)
        return TT_FAIL(err, TT_EABI, "option_size %zu is not a multiple of %zu", k->option_size,
                       sizeof(void *));
    TT_TRY(tt_check_array(c, "options", k->options, k->n_options, k->option_size, err));
    for (size_t i = 0; i < k->n_options; i++) {
        const tt_option *o = tt_option_at(k, i);
        if (tt_check_text(c, "name", o->name, true, err) != TT_OK)
            return tt_error_context(err, "option %zu", i);
        if (check_option(c, k, o, err) != TT_OK)
            return tt_error_context(err, "option \"%s\"", o->name);
        for (size_t j = 0; j < i; j++)
            TT_TRY(check_pair(tt_option_at(k, j), o, err));
    }
    return TT_OK;
}
