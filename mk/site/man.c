/* SPDX-License-Identifier: Apache-2.0 */
#include "site.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* A manual page as Markdown: the macros that docs/ttrun.1 uses. Another one is an error. */

typedef struct man {
    site *s;
    const char *path;
    FILE *out;
    bool tag;     /* the next line is the name of an item */
    bool in_item; /* what follows belongs to it */
    bool plain;   /* between .nf and .fi */
    bool begun;   /* the line of the paragraph has text */
} man;

static void put(man *m, char c)
{
    if (!m->plain && (strchr("\\`*_[]<>#|~&", c) || (!m->begun && strchr("-+=", c))))
        fputc('\\', m->out);
    fputc(c, m->out);
    m->begun = true;
}

static void put_tag(man *m, const char *slash, const char *tag)
{
    if (*tag && !m->plain)
        fprintf(m->out, "<%s%s>", slash, tag);
    m->begun = m->begun || *tag;
}

/* Text with \-, \e, \& and \f. tag: of its font, "b" or "i"; "" = upright. */
static void put_text(man *m, const char *text, size_t n, const char *tag)
{
    put_tag(m, "", tag);
    for (size_t i = 0; i < n; i++) {
        if (text[i] != '\\' || i + 1 == n) {
            put(m, text[i]);
            continue;
        }
        const char c = text[++i];
        if (c == 'f' && i + 1 < n) {
            const char font = text[++i];
            put_tag(m, "/", tag);
            tag = font == 'I' ? "i" : font == 'B' ? "b" : "";
            put_tag(m, "", tag);
        } else if (c == 'e') {
            put(m, '\\');
        } else if (c != '&') {
            put(m, c);
        }
    }
    put_tag(m, "/", tag);
}

/* The next argument of a macro, a word or "with blanks"; false: there is none. */
static bool next_argument(const char **at, char *to, size_t *n)
{
    const char *s = *at + strspn(*at, " ");
    const bool quoted = *s == '"';
    *n = 0;
    if (!*s)
        return false;
    for (s += quoted; *s && (quoted || *s != ' '); s++) {
        if (quoted && *s == '"' && s[1] != '"')
            break;
        s += quoted && *s == '"';
        to[(*n)++] = *s;
    }
    *at = s + (*s == '"');
    return true;
}

static const char *tag_of(char font)
{
    return font == 'B' ? "b" : font == 'I' ? "i" : "";
}

/* .B and .I join their arguments by blanks; .BR and its like alternate between two fonts. */
static void put_fonts(man *m, const char *fonts, const char *arguments)
{
    char *text = malloc(strlen(arguments) + 1);
    size_t n, all = 0;
    if (!fonts[1]) {
        char *joined = malloc(2 * strlen(arguments) + 1);
        while (next_argument(&arguments, text, &n)) {
            if (all)
                joined[all++] = ' ';
            memcpy(joined + all, text, n);
            all += n;
        }
        put_text(m, joined, all, tag_of(fonts[0]));
        free(joined);
    } else {
        for (int i = 0; next_argument(&arguments, text, &n); i ^= 1)
            put_text(m, text, n, tag_of(fonts[i]));
    }
    free(text);
}

static void begin_line(man *m)
{
    m->begun = false;
    if (m->in_item && !m->tag)
        fputs("  ", m->out);
    if (m->tag)
        fputs("- ", m->out);
}

static void end_line(man *m)
{
    if (m->tag) {
        m->tag = false;
        fputs("\\\n", m->out); /* the name has a line of its own */
    } else {
        fputc('\n', m->out);
    }
}

static void heading(man *m, const char *marks, const char *title)
{
    m->in_item = m->tag = false;
    fprintf(m->out, "\n%s ", marks);
    m->begun = true;
    bool first = true;
    for (; *title; title++) {
        if (*title == '"')
            continue;
        put(m, (char)(first ? *title : tolower((unsigned char)*title)));
        first = false;
    }
    fputs("\n\n", m->out);
}

static void macro(man *m, const char *line)
{
    const size_t n = strcspn(line, " ");
    const char *rest = line + n + strspn(line + n, " ");
    char name[8] = "";
    if (n < sizeof name)
        memcpy(name, line, n);
    if (!strcmp(name, "TH")) {
        size_t k;
        char *word = malloc(strlen(rest) + 1);
        next_argument(&rest, word, &k);
        for (size_t i = 0; i < k; i++)
            word[i] = (char)tolower((unsigned char)word[i]);
        fprintf(m->out, "# %.*s(%.1s)\n", (int)k, word, rest + strspn(rest, " "));
        free(word);
    } else if (!strcmp(name, "SH") || !strcmp(name, "SS")) {
        heading(m, name[1] == 'H' ? "##" : "###", rest);
    } else if (!strcmp(name, "TP")) {
        fputs("\n", m->out);
        m->in_item = m->tag = true;
    } else if (!strcmp(name, "PP")) {
        fputs("\n", m->out);
        m->in_item = false;
    } else if (!strcmp(name, "br")) {
        fprintf(m->out, "%s<br>\n", m->in_item ? "  " : "");
    } else if (!strcmp(name, "nf") || !strcmp(name, "fi")) {
        m->plain = name[0] == 'n';
        m->in_item = false;
        fputs(m->plain ? "\n```\n" : "```\n\n", m->out);
    } else if (*name && strspn(name, "BIR") == strlen(name) && strlen(name) <= 2) {
        begin_line(m);
        put_fonts(m, name, rest);
        end_line(m);
    } else {
        site_error(m->s, "%s: .%s: this macro of manual pages is not known", m->path, line);
    }
}

char *site_man(site *s, const char *path, char *text)
{
    char *markdown = NULL, *state = NULL;
    size_t n = 0;
    man m = {.s = s, .path = path, .out = open_memstream(&markdown, &n)};
    for (char *line = strtok_r(text, "\n", &state); line; line = strtok_r(NULL, "\n", &state)) {
        if (!strncmp(line, ".\\\"", 3))
            continue;
        if (*line == '.') {
            macro(&m, line + 1);
            continue;
        }
        begin_line(&m);
        put_text(&m, line, strlen(line), "");
        end_line(&m);
    }
    fclose(m.out);
    return markdown;
}
