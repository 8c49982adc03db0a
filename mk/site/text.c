/* SPDX-License-Identifier: Apache-2.0 */
#include "site.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>
#include <wctype.h>

/* Room for element n of an array that grows by one. */
void *site_grow(void *array, size_t n, size_t size)
{
    if (n & (n - 1))
        return array; /* the room doubles at each power of two */
    void *room = realloc(array, (n ? 2 * n : 1) * size);
    if (!room) {
        fprintf(stderr, "site: out of memory\n");
        exit(1);
    }
    memset((char *)room + n * size, 0, (n ? n : 1) * size);
    return room;
}

char *site_format(const char *format, ...)
{
    va_list list;
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    if (!f)
        exit(1);
    va_start(list, format);
    vfprintf(f, format, list);
    va_end(list);
    fclose(f);
    return text;
}

void site_error(site *s, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    fputs("site: ", stderr);
    vfprintf(stderr, format, list);
    fputc('\n', stderr);
    va_end(list);
    s->errors++;
}

/* A whole file, or NULL. */
char *site_read(const char *path)
{
    FILE *f = fopen(path, "rb");
    if (!f)
        return NULL;
    char *text = NULL;
    size_t size = 0, n;
    FILE *to = open_memstream(&text, &size);
    char block[65536];
    while ((n = fread(block, 1, sizeof block, f)) > 0)
        fwrite(block, 1, n, to);
    bool bad = ferror(f) != 0;
    fclose(f);
    fclose(to);
    return bad ? NULL : text;
}

/* For text and for attributes in double quotes. */
void site_escape(FILE *f, const char *text)
{
    for (; *text; text++) {
        switch (*text) {
        case '&':
            fputs("&amp;", f);
            break;
        case '<':
            fputs("&lt;", f);
            break;
        case '>':
            fputs("&gt;", f);
            break;
        case '"':
            fputs("&quot;", f);
            break;
        default:
            fputc(*text, f);
        }
    }
}

/* A string of JavaScript. */
void site_quote(FILE *f, const char *text)
{
    fputc('"', f);
    for (; *text; text++) {
        if (*text == '"' || *text == '\\')
            fputc('\\', f);
        if ((unsigned char)*text < 32)
            fprintf(f, "\\u%04x", *text);
        else
            fputc(*text, f);
    }
    fputc('"', f);
}

/* GitHub's anchor of a heading: small letters, digits, - and _; a blank becomes -. */
char *site_slug(const char *text)
{
    char *slug = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&slug, &size);
    wchar_t c;
    mbstate_t state = {0};
    size_t n, left = strlen(text);
    while (left > 0 && (n = mbrtowc(&c, text, left, &state)) > 0 && n <= left) {
        if (c == ' ')
            fputc('-', f);
        else if (c == '-' || c == '_' || iswalnum((wint_t)c))
            fprintf(f, "%lc", (wint_t)towlower((wint_t)c));
        text += n;
        left -= n;
    }
    fclose(f);
    return slug;
}

/* The text of a node and all below it; blocks and cells are separated by blanks. */
char *site_text(cmark_node *node)
{
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    cmark_iter *iter = cmark_iter_new(node);
    cmark_event_type event;
    while ((event = cmark_iter_next(iter)) != CMARK_EVENT_DONE) {
        cmark_node *at = cmark_iter_get_node(iter);
        cmark_node_type type = cmark_node_get_type(at);
        const char *literal = cmark_node_get_literal(at);
        if (event == CMARK_EVENT_EXIT) {
            if ((type & CMARK_NODE_TYPE_MASK) == CMARK_NODE_TYPE_BLOCK)
                fputc(' ', f);
        } else if (type == CMARK_NODE_SOFTBREAK || type == CMARK_NODE_LINEBREAK ||
                   type == CMARK_NODE_HTML_INLINE) {
            fputc(' ', f);
        } else if (literal && type != CMARK_NODE_HTML_BLOCK) {
            fputs(literal, f);
            if (type == CMARK_NODE_CODE_BLOCK)
                fputc(' ', f);
        }
    }
    cmark_iter_free(iter);
    fclose(f);
    return site_one_line(text);
}

/* In place: runs of white space become one blank; none at the ends. */
char *site_one_line(char *text)
{
    char *to = text;
    for (const char *p = text; *p; p++) {
        bool blank = *p == ' ' || *p == '\n' || *p == '\t' || *p == '\r';
        if (!blank)
            *to++ = *p;
        else if (to > text && to[-1] != ' ')
            *to++ = ' ';
    }
    if (to > text && to[-1] == ' ')
        to--;
    *to = 0;
    return text;
}
