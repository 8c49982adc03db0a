/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_TESTS_MUTANTS_SOURCE_H
#define TT_TESTS_MUTANTS_SOURCE_H
#include "base/base.h"
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* A C file as tokens, without comments and lines of the preprocessor; each bracket knows its partner. */

typedef struct token {
    char kind; /* i: identifier, n: number, s: text, else punctuation */
    size_t at, end;
    int partner;   /* of a bracket */
    int enclosing; /* the bracket around it; -1: none */
} token;

typedef struct source {
    const char *name;
    char *text;
    size_t n;
    token *tokens;
    int n_tokens;
} source;

static tt_arena *arena; /* of all files, for as long as the program runs */

static inline void die(const char *what, const char *where)
{
    fprintf(stderr, "mutate_tool: %s: %s\n", where, what);
    exit(1);
}

static inline size_t skip_space(const char *s, size_t i, size_t n)
{
    bool line_start = i == 0 || s[i - 1] == '\n';
    while (i < n) {
        if (s[i] == '\n') {
            line_start = true;
            i++;
        } else if (isspace((unsigned char)s[i])) {
            i++;
        } else if (s[i] == '/' && s[i + 1] == '*') {
            const char *end = strstr(s + i + 2, "*/");
            i = end ? (size_t)(end - s) + 2 : n;
        } else if ((s[i] == '/' && s[i + 1] == '/') || (s[i] == '#' && line_start)) {
            while (i < n && (s[i] != '\n' || s[i - 1] == '\\'))
                i++;
        } else {
            break;
        }
    }
    return i;
}

static inline size_t token_end(const char *s, size_t i, char *kind)
{
    static const char *const longer[] = {"<<=", ">>=", "...", "->", "++", "--", "<<", ">>",
                                         "<=",  ">=",  "==",  "!=", "&&", "||", "+=", "-=",
                                         "*=",  "/=",  "%=",  "&=", "|=", "^="};
    size_t k = i;
    if (isalpha((unsigned char)s[i]) || s[i] == '_') {
        *kind = 'i';
        while (isalnum((unsigned char)s[k]) || s[k] == '_')
            k++;
    } else if (isdigit((unsigned char)s[i]) || (s[i] == '.' && isdigit((unsigned char)s[i + 1]))) {
        *kind = 'n';
        while (isalnum((unsigned char)s[k]) || s[k] == '.' ||
               ((s[k] == '+' || s[k] == '-') && strchr("eEpP", s[k - 1]) && s[i + 1] != 'x'))
            k++;
    } else if (s[i] == '"' || s[i] == '\'') {
        *kind = 's';
        for (k++; s[k] && s[k] != s[i]; k++)
            k += s[k] == '\\';
        k++;
    } else {
        *kind = s[i];
        k++;
        for (size_t l = 0; l < sizeof longer / sizeof *longer; l++)
            if (strncmp(s + i, longer[l], strlen(longer[l])) == 0)
                return i + strlen(longer[l]);
    }
    return k;
}

static inline void tokenize(source *f)
{
    TT_VEC(token) all = {0};
    TT_VEC(int) open = {0};
    for (size_t i = skip_space(f->text, 0, f->n); i < f->n; i = skip_space(f->text, i, f->n)) {
        token t = {.at = i, .partner = -1};
        t.end = i = token_end(f->text, i, &t.kind);
        int here = (int)all.n;
        if (strchr(")]}", t.kind)) {
            if (open.n == 0)
                die("a bracket that closes none", f->name);
            t.partner = open.items[--open.n];
            all.items[t.partner].partner = here;
        }
        t.enclosing = open.n > 0 ? open.items[open.n - 1] : -1;
        tt_vec_push(arena, &all, t);
        if (strchr("([{", t.kind))
            tt_vec_push(arena, &open, here);
    }
    if (open.n > 0)
        die("a bracket that nothing closes", f->name);
    f->tokens = all.items;
    f->n_tokens = (int)all.n;
}

static inline bool is(const source *f, int i, const char *text)
{
    if (i < 0 || i >= f->n_tokens)
        return false;
    const token *t = &f->tokens[i];
    return t->end - t->at == strlen(text) && memcmp(f->text + t->at, text, t->end - t->at) == 0;
}

static inline bool is_one_of(const source *f, int i, const char *const *words)
{
    for (; *words; words++)
        if (is(f, i, *words))
            return true;
    return false;
}

static inline bool is_keyword(const source *f, int i)
{
    static const char *const words[] = {"if",      "else",       "for",           "while",
                                        "do",      "switch",     "case",          "default",
                                        "return",  "break",      "goto",          "static",
                                        "const",   "struct",     "enum",          "union",
                                        "sizeof",  "typedef",    "extern",        "continue",
                                        "inline",  "void",       "_Thread_local", "_Static_assert",
                                        "__asm__", "__typeof__", "__attribute__", "_Alignas",
                                        NULL};
    return is_one_of(f, i, words);
}

static inline bool identifier(const source *f, int i)
{
    return i >= 0 && i < f->n_tokens && f->tokens[i].kind == 'i' && !is_keyword(f, i);
}

static inline const char *text_of(const source *f, int from, int to) /* tokens [from, to) */
{
    return from < to ? tt_arena_strn(arena, f->text + f->tokens[from].at,
                                     f->tokens[to - 1].end - f->tokens[from].at)
                     : "";
}

/* The tokens at which the parts of a list in brackets begin, and that of its end. */
static inline int parts_of(const source *f, int open, int starts[32])
{
    int n = 0, close = f->tokens[open].partner;
    if (close == open + 1)
        return 0;
    starts[n++] = open + 1;
    for (int i = open + 1; i < close; i++) {
        if (f->tokens[i].enclosing == open && is(f, i, ",") && n < 31)
            starts[n++] = i + 1;
    }
    starts[n] = close + 1;
    return n;
}

/* The end of the operand that begins at token i: the first of `stops` in the same brackets. */
static inline int operand_end(const source *f, int i, const char *const *stops)
{
    int around = f->tokens[i].enclosing;
    int k = i;
    while (k < f->n_tokens) {
        bool closes = strchr(")]}", f->tokens[k].kind) && f->tokens[k].partner == around;
        if (closes || (f->tokens[k].enclosing == around && is_one_of(f, k, stops)))
            break;
        bool opens = strchr("([{", f->tokens[k].kind) != NULL;
        k = opens ? f->tokens[k].partner + 1 : k + 1;
    }
    return k;
}

#endif
