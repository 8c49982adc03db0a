/* SPDX-License-Identifier: Apache-2.0 */
#include "base/reserve.h"
#include "config/config.h"
#include "config/internal.h"
#include <stdlib.h>
#include <string.h>

/* A strict reader of JSON (RFC 8259) with comments. It keeps the position of every key and value.
 * It is safe against hostile input: depth and the number of values are bounded (a value of two bytes is
 * some 130 bytes of tree), and no step is quadratic in the input's size.
 * The tree is in the caller's arena. */

#define MAX_DEPTH 512
#define SORT_FROM 16 /* keys; for fewer, comparing all pairs is faster than sorting */

typedef struct reader {
    tt_arena *arena;
    const tt_json_origin *origin;
    const char *p, *end, *line_start; /* line_start: column 1 of the current line */
    const char *mark; /* `column` is counted up to here; positions are requested in order */
    int line, column, depth;
    size_t n_values, most_values;
    tt_json **stack; /* items of the open lists and objects */
    const char **keys;
    tt_json_pos *pos;
    size_t n, cap;
    tt_error *err;
} reader;

static tt_json_pos position(reader *r, const char *at)
{
    if (r->mark < r->line_start || at < r->mark) {
        r->mark = r->line_start;
        r->column = 1;
    }
    for (; r->mark < at; r->mark++)
        r->column += ((unsigned char)*r->mark & 0xc0) != 0x80; /* do not count continuation bytes */
    return (tt_json_pos){r->line, r->column};
}

static tt_status fail_at(reader *r, tt_json_pos at, const char *text)
{
    return TT_FAIL(r->err, TT_EFORMAT, "%s:%d:%d: %s", r->origin->name, at.line, at.column, text);
}

static tt_status json_fail(reader *r, const char *at, const char *text)
{
    return fail_at(r, position(r, at), text);
}

/* "expected …, found x" at the reader's place. */
static tt_status fail_expected(reader *r, const char *what)
{
    char text[160], found[32] = "the end of the text";
    if (r->p < r->end) {
        unsigned char c = (unsigned char)*r->p;
        if (c > 0x20 && c < 0x7f)
            snprintf(found, sizeof found, "'%c'", c);
        else
            snprintf(found, sizeof found, c >= 0x80 ? "a non-ASCII character" : "byte 0x%02x", c);
    }
    snprintf(text, sizeof text, "expected %s, found %s", what, found);
    return json_fail(r, r->p, text);
}

static void newline(reader *r, const char *at)
{
    r->line++;
    r->line_start = at + 1;
}

static tt_status skip_comment(reader *r)
{
    const char *start = r->p;
    tt_json_pos begin = position(r, start);
    bool block = r->end - r->p > 1 && r->p[1] == '*';
    if (!block && !(r->end - r->p > 1 && r->p[1] == '/'))
        return fail_expected(r, "a value or a comment (// or /* */)");
    for (r->p += 2; r->p < r->end; r->p++) {
        if (!block && *r->p == '\n')
            return TT_OK;
        if (block && *r->p == '*' && r->end - r->p > 1 && r->p[1] == '/') {
            r->p += 2;
            return TT_OK;
        }
        if (*r->p == '\n')
            newline(r, r->p);
    }
    return block ? fail_at(r, begin, "comment without an end (*/)") : TT_OK;
}

static tt_status skip_blanks(reader *r)
{
    for (; r->p < r->end; r->p++) {
        if (*r->p == '\n') {
            newline(r, r->p);
        } else if (*r->p == '/') {
            TT_TRY(skip_comment(r));
            r->p--; /* the loop steps over it */
        } else if (*r->p != ' ' && *r->p != '\t' && *r->p != '\r') {
            break;
        }
    }
    return TT_OK;
}

/* Four hex digits at p, or -1. */
static int32_t hex4(const reader *r, const char *p)
{
    int32_t v = 0;
    if (r->end - p < 4)
        return -1;
    for (int i = 0; i < 4; i++) {
        char c = p[i];
        int d = c >= '0' && c <= '9'   ? c - '0'
                : c >= 'a' && c <= 'f' ? c - 'a' + 10
                : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                       : -1;
        if (d < 0)
            return -1;
        v = v * 16 + d;
    }
    return v;
}

static size_t put_utf8(char *out, int32_t c)
{
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    if (c < 0x800) {
        out[0] = (char)(0xc0 | c >> 6);
        out[1] = (char)(0x80 | (c & 0x3f));
        return 2;
    }
    if (c < 0x10000) {
        out[0] = (char)(0xe0 | c >> 12);
        out[1] = (char)(0x80 | (c >> 6 & 0x3f));
        out[2] = (char)(0x80 | (c & 0x3f));
        return 3;
    }
    out[0] = (char)(0xf0 | c >> 18);
    out[1] = (char)(0x80 | (c >> 12 & 0x3f));
    out[2] = (char)(0x80 | (c >> 6 & 0x3f));
    out[3] = (char)(0x80 | (c & 0x3f));
    return 4;
}

/* \uXXXX, r->p at the u; a pair of surrogates is one character. */
static tt_status read_unicode(reader *r, char *out, size_t *n)
{
    const char *at = r->p - 1;
    int32_t c = hex4(r, r->p + 1);
    if (c < 0)
        return json_fail(r, at, "\\u needs four hex digits");
    r->p += 5;
    if (c >= 0xdc00 && c <= 0xdfff)
        return json_fail(r, at, "half of a surrogate pair");
    if (c >= 0xd800 && c <= 0xdbff) {
        bool more = r->end - r->p > 1 && r->p[0] == '\\' && r->p[1] == 'u';
        int32_t low = more ? hex4(r, r->p + 2) : -1;
        if (low < 0xdc00 || low > 0xdfff)
            return json_fail(r, at, "half of a surrogate pair");
        c = 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
        r->p += 6;
    }
    if (c == 0 && !r->origin->nul)
        return json_fail(r, at, "a string cannot hold \\u0000");
    if (c == 0)
        memcpy(out + *n, "\xc0\x80", 2);
    *n += c ? put_utf8(out + *n, c) : 2;
    return TT_OK;
}

static tt_status read_escape(reader *r, char *out, size_t *n)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    r->p++;
    if (r->p < r->end && *r->p == 'u')
        return read_unicode(r, out, n);
    const char *found = r->p < r->end && *r->p ? strchr(from, *r->p) : NULL;
    if (!found)
        return json_fail(r, r->p - 1,
                         "unknown escape (known: \\\" \\\\ \\/ \\b \\f \\n \\r \\t \\uXXXX)");
    out[(*n)++] = to[found - from];
    r->p++;
    return TT_OK;
}

/* r->p is at the opening quote. An escape is never shorter than its value, so a buffer of the
 * source's length is enough. */
static tt_status read_string(reader *r, const char **out)
{
    const char *start = r->p, *q = start + 1;
    while (q < r->end && *q != '"' && (unsigned char)*q >= 0x20)
        q += *q == '\\' && r->end - q > 1 ? 2 : 1;
    if (q >= r->end)
        return json_fail(r, start, "string without an end (\")");
    char *text = tt_arena_alloc(r->arena, (size_t)(q - start));
    size_t n = 0;
    r->p = start + 1;
    while (r->p < r->end && *r->p != '"') {
        if ((unsigned char)*r->p < 0x20)
            return json_fail(r, r->p,
                             *r->p == '\n' ? "line end inside a string (write \\n)"
                                           : "control character inside a string");
        if (*r->p == '\\')
            TT_TRY(read_escape(r, text, &n));
        else
            text[n++] = *r->p++;
    }
    if (r->p >= r->end)
        return json_fail(r, start, "string without an end (\")");
    r->p++;
    *out = text;
    return TT_OK;
}

static const char *digits(const char *p, const char *end)
{
    while (p < end && *p >= '0' && *p <= '9')
        p++;
    return p;
}

/* The end of the number at r->p by JSON's grammar. */
static tt_status scan_number(reader *r, const char **end, bool *whole)
{
    const char *p = r->p + (*r->p == '-'), *q = digits(p, r->end);
    *whole = true;
    if (q == p)
        return json_fail(r, r->p, "a number needs digits (NaN and Infinity are not JSON)");
    if (q - p > 1 && *p == '0')
        return json_fail(r, r->p, "a number cannot start with 0");
    if (q < r->end && *q == '.') {
        *whole = false;
        p = q + 1;
        q = digits(p, r->end);
        if (q == p)
            return json_fail(r, r->p, "digits missing after the decimal point");
    }
    if (q < r->end && (*q == 'e' || *q == 'E')) {
        *whole = false;
        p = q + 1;
        if (p < r->end && (*p == '+' || *p == '-'))
            p++;
        q = digits(p, r->end);
        if (q == p)
            return json_fail(r, r->p, "digits missing in the exponent");
    }
    *end = q;
    return TT_OK;
}

/* A whole number beyond 64 bits becomes a real, and a number beyond double becomes infinite: this
 * is no error as long as nobody uses the number. tt_config_read refuses an infinite one. */
static tt_status read_number(reader *r, tt_json *v)
{
    const char *end = r->p;
    char small[64], *text = small;
    bool whole;
    TT_TRY(scan_number(r, &end, &whole));
    size_t n = (size_t)(end - r->p);
    if (n < sizeof small) {
        memcpy(small, r->p, n);
        small[n] = '\0';
    } else {
        text = tt_arena_strn(r->arena, r->p, n);
    }
    v->real = strtod(text, NULL);
    bool negative = *text == '-';
    int64_t value = 0;
    for (const char *p = text + negative; whole && *p; p++)
        whole = tt_mul_i64(value, 10, &value) &&
                tt_add_i64(value, negative ? '0' - *p : *p - '0', &value);
    v->type = whole ? TT_JSON_INT : TT_JSON_REAL;
    v->integer = whole ? value : 0;
    if (!whole)
        v->digits = text == small ? tt_arena_strn(r->arena, small, n) : text;
    r->p = end;
    return TT_OK;
}

static tt_status read_word(reader *r, tt_json *v)
{
    static const char *const words[] = {"null", "true", "false"};
    for (int i = 0; i < 3; i++) {
        size_t n = strlen(words[i]);
        if ((size_t)(r->end - r->p) < n || memcmp(r->p, words[i], n) != 0)
            continue;
        v->type = i == 0 ? TT_JSON_NULL : TT_JSON_BOOL;
        v->boolean = i == 1;
        r->p += n;
        return TT_OK;
    }
    if (*r->p == '\'')
        return json_fail(r, r->p, "write strings in double quotes");
    if (*r->p == 'N' || *r->p == 'I')
        return json_fail(r, r->p, "NaN and Infinity are not JSON");
    if (*r->p == 'T' || *r->p == 'F')
        return json_fail(r, r->p, "write true and false in lower case");
    return fail_expected(r, "a value");
}

static void json_push(reader *r, const char *key, tt_json_pos pos, tt_json *item)
{
    if (r->n == r->cap) {
        r->cap = r->cap ? 2 * r->cap : 64;
        r->stack = tt_reserve_realloc(r->stack, r->cap * sizeof *r->stack);
        r->keys = tt_reserve_realloc(r->keys, r->cap * sizeof *r->keys);
        r->pos = tt_reserve_realloc(r->pos, r->cap * sizeof *r->pos);
        TT_ASSERT(r->stack && r->keys && r->pos);
    }
    r->stack[r->n] = item;
    r->keys[r->n] = key;
    r->pos[r->n++] = pos;
}

/* qsort has no argument for the keys, so the order is found by merging runs of indices. */
static void sort_keys(const char *const *keys, uint32_t *index, uint32_t *spare, size_t n)
{
    if (n < 2)
        return;
    size_t half = n / 2, i = 0, j = half, k = 0;
    sort_keys(keys, index, spare, half);
    sort_keys(keys, index + half, spare, n - half);
    while (i < half && j < n)
        spare[k++] = strcmp(keys[index[i]], keys[index[j]]) <= 0 ? index[i++] : index[j++];
    while (i < half)
        spare[k++] = index[i++];
    memcpy(index, spare, k * sizeof *index); /* the rest of the second run is in place */
}

static tt_status fail_duplicate(reader *r, const tt_json *v, size_t first, size_t again)
{
    tt_str text = {0};
    tt_json_pos at = v->key_pos[first];
    tt_str_add(&text, "key ");
    tt_config_quote(v->keys[again], &text);
    tt_str_printf(&text, " occurs twice (first at %d:%d)", at.line, at.column);
    tt_status s = fail_at(r, v->key_pos[again], text.s);
    tt_str_free(&text);
    return s;
}

static tt_status check_duplicates(reader *r, tt_json *v)
{
    if (v->n < SORT_FROM) {
        for (size_t i = 1; i < v->n; i++)
            for (size_t j = 0; j < i; j++)
                if (strcmp(v->keys[i], v->keys[j]) == 0)
                    return fail_duplicate(r, v, j, i);
        return TT_OK;
    }
    TT_ASSERT(v->n <= UINT32_MAX);
    uint32_t *index = tt_arena_array(r->arena, v->n, sizeof *index);
    uint32_t *spare = tt_reserve_calloc(v->n, sizeof *spare);
    TT_ASSERT(spare);
    for (size_t i = 0; i < v->n; i++)
        index[i] = (uint32_t)i;
    sort_keys(v->keys, index, spare, v->n);
    free(spare);
    for (size_t i = 1; i < v->n; i++) /* the sort is stable: the earlier one comes first */
        if (strcmp(v->keys[index[i]], v->keys[index[i - 1]]) == 0)
            return fail_duplicate(r, v, index[i - 1], index[i]);
    v->sorted = index;
    return TT_OK;
}

static tt_status read_value(reader *r, tt_json **out);

/* One `"key": value` or `value` onto the stack. */
static tt_status read_member(reader *r, bool object)
{
    const char *key = NULL;
    tt_json_pos pos = {0, 0};
    tt_json *item;
    if (object) {
        if (r->p >= r->end || *r->p != '"')
            return fail_expected(r, "a key in double quotes");
        pos = position(r, r->p);
        TT_TRY(read_string(r, &key));
        TT_TRY(skip_blanks(r));
        if (r->p >= r->end || *r->p != ':')
            return fail_expected(r, "':' after the key");
        r->p++;
        TT_TRY(skip_blanks(r));
    }
    TT_TRY(read_value(r, &item));
    json_push(r, key, pos, item);
    return skip_blanks(r);
}

typedef struct member_call member_call;
static tt_status give_member(reader *r, bool object, const member_call *call);

/* call NULL: the items are left on the stack. */
static tt_status read_items(reader *r, bool object, char close, const member_call *call)
{
    r->p++;
    TT_TRY(skip_blanks(r));
    if (r->p < r->end && *r->p == close) {
        r->p++;
        return TT_OK;
    }
    for (;;) {
        TT_TRY(call ? give_member(r, object, call) : read_member(r, object));
        if (r->p < r->end && *r->p == close) {
            r->p++;
            return TT_OK;
        }
        if (r->p >= r->end || *r->p != ',')
            return fail_expected(r, object ? "',' or '}'" : "',' or ']'");
        tt_json_pos comma = position(r, r->p++);
        TT_TRY(skip_blanks(r));
        if (r->p < r->end && *r->p == close)
            return fail_at(r, comma, "comma after the last element");
    }
}

static tt_status read_container(reader *r, tt_json *v)
{
    bool object = *r->p == '{';
    size_t base = r->n;
    v->type = object ? TT_JSON_OBJECT : TT_JSON_ARRAY;
    if (++r->depth > MAX_DEPTH)
        return json_fail(r, r->p, "nested deeper than 512");
    TT_TRY(read_items(r, object, object ? '}' : ']', NULL));
    r->depth--;
    v->n = r->n - base;
    r->n = base;
    if (!v->n)
        return TT_OK;
    v->items = tt_arena_dup(r->arena, r->stack + base, v->n * sizeof *v->items);
    if (!object)
        return TT_OK;
    v->keys = tt_arena_dup(r->arena, r->keys + base, v->n * sizeof *v->keys);
    v->key_pos = tt_arena_dup(r->arena, r->pos + base, v->n * sizeof *v->key_pos);
    return check_duplicates(r, v);
}

static tt_status fail_many(reader *r)
{
    char text[64];
    snprintf(text, sizeof text, "more than %zu values are too many", r->most_values);
    return json_fail(r, r->p, text);
}

static tt_status read_value(reader *r, tt_json **out)
{
    if (++r->n_values > r->most_values)
        return fail_many(r);
    if (tt_reserve_is_low())
        return TT_FAIL(r->err, TT_ENOMEM, "out of memory for the values of %s", r->origin->name);
    tt_json *v = tt_arena_alloc(r->arena, sizeof *v);
    tt_json_pos at = position(r, r->p);
    v->line = at.line;
    v->column = at.column;
    v->origin = r->origin;
    *out = v;
    if (r->p >= r->end)
        return fail_expected(r, "a value");
    if (*r->p == '{' || *r->p == '[')
        return read_container(r, v);
    if (*r->p == '"') {
        v->type = TT_JSON_STRING;
        return read_string(r, &v->string);
    }
    if (*r->p == '-' || (*r->p >= '0' && *r->p <= '9'))
        return read_number(r, v);
    return read_word(r, v);
}

/* Checks the bytes, and goes to the first value. */
static tt_status text_begin(reader *r)
{
    size_t n = (size_t)(r->end - r->p), valid = tt_utf8_valid(r->p, n);
    if (valid < n) { /* count the lines before the error to give its position */
        for (const char *p = r->p; p < r->p + valid; p++)
            if (*p == '\n')
                newline(r, p);
        return json_fail(r, r->p + valid, "not UTF-8");
    }
    if (n >= 3 && memcmp(r->p, "\xef\xbb\xbf", 3) == 0) /* a byte order mark is no character */
        r->line_start = r->mark = r->p += 3;
    return skip_blanks(r);
}

static tt_status text_end(reader *r)
{
    TT_TRY(skip_blanks(r));
    return r->p == r->end ? TT_OK : fail_expected(r, "nothing more");
}

static tt_status read_text(reader *r, tt_json **out)
{
    TT_TRY(text_begin(r));
    TT_TRY(read_value(r, out));
    return text_end(r);
}

static reader reader_of(tt_arena *a, const tt_json_origin *origin, const char *text, size_t n,
                        tt_error *err)
{
    return (reader){.arena = a,
                    .origin = origin,
                    .p = text,
                    .end = text + n,
                    .line_start = text,
                    .mark = text,
                    .line = 1,
                    .column = 1,
                    .most_values = TT_JSON_MOST_VALUES,
                    .err = err};
}

static void reader_release(reader *r)
{
    free(r->stack);
    free(r->keys);
    free(r->pos);
}

tt_status tt_config_parse(tt_arena *a, const tt_json_origin *origin, const char *text, size_t n,
                          tt_json **out, tt_error *err)
{
    tt_json *v = NULL;
    reader r = reader_of(a, origin, text, n, err);
    tt_status s = read_text(&r, &v);
    reader_release(&r);
    if (s == TT_OK)
        *out = v;
    return s;
}

static tt_status parse_file(tt_arena *a, const char *name, const char *text, size_t n, bool nul,
                            const tt_json **out, tt_error *err)
{
    tt_json_origin *origin = tt_arena_alloc(a, sizeof *origin);
    tt_json *v;
    origin->name = tt_arena_str(a, name);
    origin->nul = nul;
    TT_TRY(tt_config_parse(a, origin, text, n, &v, err));
    *out = v;
    return TT_OK;
}

tt_status tt_json_parse(tt_arena *a, const char *name, const char *text, size_t n,
                        const tt_json **out, tt_error *err)
{
    return parse_file(a, name, text, n, false, out, err);
}

tt_status tt_json_parse_tokens(tt_arena *a, const char *name, const char *text, size_t n,
                               const tt_json **out, tt_error *err)
{
    return parse_file(a, name, text, n, true, out, err);
}

struct member_call {
    tt_json_member_fn *fn;
    void *user;
};

/* The root, or a member of it if it is an object: the reader then stands behind it. */
static tt_status give_member(reader *r, bool object, const member_call *call)
{
    tt_json *root = NULL;
    r->arena = tt_arena_new();
    r->n = r->n_values = 0;
    tt_status s = object ? read_member(r, true) : read_value(r, &root);
    if (s == TT_OK)
        s = call->fn(call->user, object ? r->keys[0] : NULL, object ? r->stack[0] : root, r->err);
    tt_arena_free(r->arena);
    return s;
}

static tt_status give_members(reader *r, const member_call *call)
{
    TT_TRY(text_begin(r));
    if (r->p >= r->end || *r->p != '{')
        return give_member(r, false, call);
    return read_items(r, true, '}', call);
}

tt_status tt_json_each(const char *name, const char *text, size_t n, size_t most_values,
                       tt_json_member_fn *fn, void *user, tt_error *err)
{
    const tt_json_origin origin = {.name = name};
    const member_call call = {fn, user};
    reader r = reader_of(NULL, &origin, text, n, err);
    r.most_values = most_values;
    tt_status s = give_members(&r, &call);
    if (s == TT_OK)
        s = text_end(&r);
    reader_release(&r);
    return s;
}
