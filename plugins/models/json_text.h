/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_MODELS_JSON_TEXT_H
#define TT_MODELS_JSON_TEXT_H
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ttrun/status.h>

/* Writes config.json as text, for models that Hugging Face has too. This is code in a header
 * because each model is a library of its own. */

/* Appends to the text `at` of `size` bytes; once the text no longer fits, n is `size` or more. */
typedef struct {
    char *at;
    size_t size, n;
} json_text;

static inline void json_add(json_text *t, const char *fmt, ...) TT_PRINTF(2, 3);
static inline void json_add(json_text *t, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    const int more = t->n < t->size ? vsnprintf(t->at + t->n, t->size - t->n, fmt, ap) : 0;
    va_end(ap);
    t->n = more < 0 ? t->size : t->n + (size_t)more;
}

/* A number that readers take for a float, in the shortest text that reads back the same. */
static inline void json_add_number(json_text *t, double x)
{
    char text[40];
    snprintf(text, sizeof text, "%.15g", x);
    if (strtod(text, NULL) != x)
        snprintf(text, sizeof text, "%.17g", x);
    json_add(t, "%s%s", text, strpbrk(text, ".e") ? "" : ".0");
}

/* A member with such a number. */
static inline void json_add_real(json_text *t, const char *key, double x)
{
    json_add(t, "\"%s\": ", key);
    json_add_number(t, x);
}

/* The first members of every config.json: what kind of model it is. */
static inline void json_begin_config(json_text *t, const char *architecture, const char *model_type)
{
    json_add(t, "{\n  \"architectures\": [\"%s\"],\n  \"model_type\": \"%s\"", architecture,
             model_type);
}

static inline tt_status json_end_config(json_text *t, const char *model_type, tt_error *err)
{
    json_add(t, "\n}");
    if (t->n >= t->size)
        return TT_FAIL(err, TT_EINVAL, "%s: its config.json is longer than %zu bytes", model_type,
                       t->size);
    return TT_OK;
}

#endif
