/* SPDX-License-Identifier: Apache-2.0 */
#include "config/internal.h"
#include <float.h>
#include <math.h>
#include <string.h>

/* Converts an option's value between JSON, its checked form and its C struct. */

static const char *type_words(const tt_option *o)
{
    bool null = (o->flags & TT_OPT_NULLABLE) != 0;
    switch (o->type) {
    case TT_OPT_BOOL:
        return "true or false";
    case TT_OPT_INT:
        return null ? "an integer or null" : "an integer";
    case TT_OPT_FLOAT:
        return null ? "a number or null" : "a number";
    case TT_OPT_STRINGS:
        return null ? "a list of strings or null" : "a list of strings";
    case TT_OPT_JSON:
        return "a value";
    default:
        return null ? "a string or null" : "a string";
    }
}

/* "expected 1 or more, got 0" */
static tt_status fail_range(const tt_json *v, const tt_option *o, const char *path, tt_error *err)
{
    tt_str text = {0};
    bool low = o->min > -1e18, high = o->max < 1e18;
    if (!high && v->real < o->min) {
        tt_str_json_number(&text, o->min);
        tt_str_add(&text, " or more");
    } else if (!low) {
        tt_str_json_number(&text, o->max);
        tt_str_add(&text, " or less");
    } else {
        tt_str_json_number(&text, o->min);
        tt_str_add(&text, " to ");
        tt_str_json_number(&text, o->max);
    }
    tt_status s = tt_config_fail_type(v, path, text.s, err);
    tt_str_free(&text);
    return s;
}

static bool in_range(const tt_option *o, double x)
{
    return (fpclassify(o->min) == FP_ZERO && fpclassify(o->max) == FP_ZERO) ||
           (x >= o->min && x <= o->max);
}

static tt_status read_number(const tt_option *o, const char *path, const tt_json *v,
                             tt_config_value *out, tt_error *err)
{
    const double exact = 9007199254740992.0; /* 2^53: a whole double below it is one integer only */
    if (v->type != TT_JSON_INT && v->type != TT_JSON_REAL)
        return tt_config_fail_type(v, path, type_words(o), err);
    if (!isfinite(v->real))
        return tt_config_fail(v, NULL, path, err, "number too large");
    out->real = v->real;
    out->integer = v->integer;
    if (o->type == TT_OPT_INT && v->type == TT_JSON_REAL) {
        if (!(fabs(v->real) <= exact) || v->real < floor(v->real) || v->real > floor(v->real))
            return tt_config_fail_type(v, path, type_words(o), err);
        out->integer = (int64_t)v->real;
    }
    if (!in_range(o, v->real))
        return fail_range(v, o, path, err);
    if (o->type == TT_OPT_INT && out->integer == INT64_MIN) /* stands for null */
        return tt_config_fail_type(v, path, type_words(o), err);
    return TT_OK;
}

/* The value's string, which the command line may give without quotes; NULL if it is not a
 * string. */
static const char *string_of(const tt_json *v)
{
    if (v->type == TT_JSON_STRING)
        return v->string;
    return v->origin ? v->origin->raw : NULL;
}

static tt_status fail_choice(tt_job *job, const tt_option *o, const char *path, const tt_json *v,
                             const char *got, bool not_yet, tt_error *err)
{
    TT_VEC(const char *) built = {0};
    tt_str list = {0}, quoted = {0};
    for (const char *p = o->choices; p && *p;) {
        size_t n = strcspn(p, "|");
        if (*p != '~') {
            tt_vec_push(job->arena, &built, tt_arena_strn(job->arena, p, n));
            tt_str_printf(&list, "%s%.*s", list.n ? ", " : "", (int)n, p);
        }
        p += n + (p[n] == '|');
    }
    tt_config_quote(got, &quoted);
    tt_status s;
    const char *near = tt_nearest(got, built.items, built.n);
    if (not_yet)
        s = tt_config_fail(v, NULL, path, err, "%s is not built yet (built: %s)", quoted.s,
                           tt_str_get(&list));
    else if (near)
        s = tt_config_fail(v, NULL, path, err, "expected one of %s, got %s (did you mean %s?)",
                           tt_str_get(&list), quoted.s, near);
    else
        s = tt_config_fail(v, NULL, path, err, "expected one of %s, got %s", tt_str_get(&list),
                           quoted.s);
    tt_str_free(&list);
    tt_str_free(&quoted);
    return s;
}

/* The index of the word in "a|~b|c". */
static int64_t index_of(const char *choices, const char *word)
{
    const size_t n = strlen(word);
    int64_t i = 0;
    for (const char *p = choices; strncmp(p, word, n) || (p[n] && p[n] != '|'); i++)
        p += strcspn(p, "|") + 1;
    return i;
}

static tt_status read_enum(tt_job *job, const tt_option *o, const char *path, const tt_json *v,
                           tt_config_value *out, tt_error *err)
{
    const char *got = string_of(v);
    if (!got)
        return tt_config_fail_type(v, path, type_words(o), err);
    bool marked = got[0] == '~'; /* ~ is a mark in tables and not part of a word */
    bool not_yet =
        !marked && tt_config_spelling(o->choices, tt_arena_printf(job->arena, "~%s", got));
    if (marked || not_yet || !tt_config_spelling(o->choices, got))
        return fail_choice(job, o, path, v, got, not_yet, err);
    out->string = got;
    out->integer = index_of(o->choices, got);
    return TT_OK;
}

static tt_status read_strings(tt_job *job, const tt_option *o, const char *path, const tt_json *v,
                              tt_config_value *out, tt_error *err)
{
    size_t n = v->type == TT_JSON_ARRAY ? v->n : 1;
    const char **items = tt_arena_array(job->arena, n, sizeof *items);
    if (v->type != TT_JSON_ARRAY) {
        items[0] = string_of(v);
        if (!items[0])
            return tt_config_fail_type(v, path, type_words(o), err);
    } else {
        for (size_t i = 0; i < n; i++) {
            const tt_json *e = v->items[i];
            if (e->type != TT_JSON_STRING)
                return tt_config_fail_type(e, tt_arena_printf(job->arena, "%s[%zu]", path, i),
                                           "a string", err);
            items[i] = e->string;
        }
    }
    out->strings = (tt_strings){items, n};
    return TT_OK;
}

static tt_status read_json(tt_job *job, const char *path, const tt_json *v, tt_config_value *out,
                           tt_error *err)
{
    const char *raw = v->origin ? v->origin->raw : NULL;
    if (raw && v->type == TT_JSON_STRING && (*raw == '{' || *raw == '['))
        return tt_config_fail_type(v, path, "JSON", err);
    tt_str text = {0};
    tt_json_write(v, &text);
    tt_config_text t = {tt_arena_str(job->arena, text.s), path, v};
    tt_str_free(&text);
    tt_vec_push(job->arena, &job->book->texts, t);
    out->string = t.text;
    return TT_OK;
}

static tt_status read_plain(tt_job *job, const tt_option *o, const char *path, const tt_json *v,
                            tt_config_value *out, tt_error *err)
{
    if (v->type == TT_JSON_NULL && (o->flags & TT_OPT_NULLABLE) && o->type != TT_OPT_BOOL) {
        *out = (tt_config_value){.null = true, .integer = INT64_MIN, .real = (double)NAN};
        return TT_OK;
    }
    switch (o->type) {
    case TT_OPT_BOOL:
        out->boolean = v->boolean;
        return v->type == TT_JSON_BOOL ? TT_OK : tt_config_fail_type(v, path, type_words(o), err);
    case TT_OPT_INT:
    case TT_OPT_FLOAT:
        return read_number(o, path, v, out, err);
    case TT_OPT_STRING:
        out->string = string_of(v);
        return out->string ? TT_OK : tt_config_fail_type(v, path, type_words(o), err);
    case TT_OPT_ENUM:
    case TT_OPT_CHOICE:
        return read_enum(job, o, path, v, out, err);
    case TT_OPT_STRINGS:
        return read_strings(job, o, path, v, out, err);
    case TT_OPT_JSON:
        if (v->type == TT_JSON_NULL)
            return tt_config_fail_type(v, path, type_words(o), err);
        return read_json(job, path, v, out, err);
    }
    return tt_config_fail(v, NULL, path, err,
                          "its option table has a type this ttrun does not know");
}

static void write_canonical(tt_job *job, const tt_option *o, const tt_config_value *v, tt_str *out)
{
    tt_json_write(tt_config_json(job, o, v), out);
}

/* An option that is not implemented may only have its default value. */
static tt_status check_built(tt_job *job, const tt_option *o, const char *path, const tt_json *v,
                             const tt_config_value *got, tt_error *err)
{
    tt_config_value usual = {0};
    tt_str a = {0}, b = {0};
    tt_status s = tt_config_default(job, o, path, &usual, err);
    if (s == TT_OK) {
        write_canonical(job, o, got, &a);
        write_canonical(job, o, &usual, &b);
        if (strcmp(a.s, b.s) != 0)
            s = tt_config_fail(v, NULL, path, err, "not built yet; only the default %s works", b.s);
    }
    tt_str_free(&a);
    tt_str_free(&b);
    return s;
}

tt_status tt_config_read(tt_job *job, const tt_option *o, const char *path, const tt_json *v,
                         tt_config_value *out, tt_error *err)
{
    tt_config_value value = {0};
    TT_TRY(read_plain(job, o, path, v, &value, err));
    if (o->flags & TT_OPT_NOT_YET)
        TT_TRY(check_built(job, o, path, v, &value, err));
    tt_config_resolve(job, o, v, &value);
    *out = value;
    return TT_OK;
}

tt_status tt_config_default(tt_job *job, const tt_option *o, const char *path, tt_config_value *out,
                            tt_error *err)
{
    const char *text = o->default_json;
    tt_json_origin *origin = tt_arena_alloc(job->arena, sizeof *origin);
    tt_json *v;
    tt_option any = *o; /* a default may be outside the range: -1 for "choose" */
    any.min = any.max = 0;
    any.flags = TT_OPT_NULLABLE;
    origin->name = tt_arena_printf(job->arena, "option table, default of %s", path);
    origin->layer = -1;
    if (!text && (o->type == TT_OPT_ENUM || o->type == TT_OPT_CHOICE) && o->choices) {
        *out = (tt_config_value){
            .string = tt_arena_strn(job->arena, o->choices, strcspn(o->choices, "|"))};
        return TT_OK;
    }
    if (!text) {
        *out = (tt_config_value){.null = o->type == TT_OPT_STRING || o->type == TT_OPT_JSON};
        return TT_OK;
    }
    TT_TRY(tt_config_parse(job->arena, origin, text, strlen(text), &v, err));
    any.flags |= o->flags & (TT_OPT_PATH | TT_OPT_HUB);
    TT_TRY(read_plain(job, &any, path, v, out, err));
    tt_config_resolve(job, &any, v, out);
    return TT_OK;
}

void tt_config_store(const tt_option *o, const tt_config_value *v, void *config)
{
    char *p = (char *)config + o->offset;
    const int choice = (int)v->integer;
    switch (o->type) {
    case TT_OPT_BOOL:
        memcpy(p, &v->boolean, sizeof v->boolean);
        break;
    case TT_OPT_INT:
        memcpy(p, &v->integer, sizeof v->integer);
        break;
    case TT_OPT_FLOAT:
        memcpy(p, &v->real, sizeof v->real);
        break;
    case TT_OPT_STRING:
    case TT_OPT_ENUM:
    case TT_OPT_JSON:
        memcpy(p, &v->string, sizeof v->string);
        break;
    case TT_OPT_STRINGS:
        memcpy(p, &v->strings, sizeof v->strings);
        break;
    case TT_OPT_CHOICE:
        memcpy(p, &choice, sizeof choice);
        break;
    }
}

static tt_json *string_json(tt_job *job, const char *text)
{
    tt_json *v = tt_config_node(job->arena, TT_JSON_STRING, NULL);
    v->string = text;
    return v;
}

static const tt_json *text_json(tt_job *job, const char *text)
{
    for (size_t i = job->book->texts.n; i > 0; i--)
        if (job->book->texts.items[i - 1].text == text)
            return job->book->texts.items[i - 1].node;
    return tt_config_node(job->arena, TT_JSON_NULL, NULL);
}

const tt_json *tt_config_json(tt_job *job, const tt_option *o, const tt_config_value *v)
{
    tt_json *j = tt_config_node(job->arena, TT_JSON_NULL, NULL);
    if (v->null)
        return j;
    switch (o->type) {
    case TT_OPT_BOOL:
        j->type = TT_JSON_BOOL;
        j->boolean = v->boolean;
        break;
    case TT_OPT_INT:
        j->type = TT_JSON_INT;
        j->integer = v->integer;
        j->real = (double)v->integer;
        break;
    case TT_OPT_FLOAT:
        j->type = TT_JSON_REAL;
        j->real = v->real;
        break;
    case TT_OPT_STRING:
    case TT_OPT_ENUM:
    case TT_OPT_CHOICE:
        return v->string ? string_json(job, v->string) : j;
    case TT_OPT_STRINGS:
        j->type = TT_JSON_ARRAY;
        j->n = v->strings.n;
        j->items = tt_arena_array(job->arena, j->n, sizeof *j->items);
        for (size_t i = 0; i < j->n; i++)
            j->items[i] = string_json(job, v->strings.items[i]);
        break;
    case TT_OPT_JSON:
        return text_json(job, v->string);
    }
    return j;
}
