/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "cli/line_input.h"
#include "launch/signals.h"
#include "plugin/library.h"
#include <locale.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ttrun/option.h>
#include <unistd.h>
#include <wchar.h>

#define PROMPT "> "
#define HISTORY_LINES 1000

/* ---- libedit: what is used of <histedit.h> ---- */

enum { EL_PROMPT = 0, EL_EDITOR = 2, EL_HIST = 10, EL_GETCFN = 13 };
enum { H_SETSIZE = 1, H_ENTER = 10 };

typedef struct edit_event {
    int number;
    const char *text;
} edit_event;

typedef struct edit_library {
    void *(*init)(const char *program, FILE *in, FILE *out, FILE *err);
    void (*end)(void *editor);
    int (*set)(void *editor, int what, ...);
    const char *(*gets)(void *editor, int *n);
    int (*source)(void *editor, const char *file);
    void (*reset)(void *editor);
    void *(*history_init)(void);
    void (*history_end)(void *past);
    int (*history)(void *past, edit_event *e, int what, ...);
} edit_library;

static const char *const functions[] = {
    "el_init",  "el_end",       "el_set",      "el_gets", "el_source",
    "el_reset", "history_init", "history_end", "history",
};

struct tt_line_input {
    char *line;
    size_t cap;
    bool terminal;
    edit_library lib;
    void *editor, *past; /* NULL: lines are as the terminal gives them */
};

/* ---- reading ---- */

/* Waits for input. False: a signal came first, also one that came before this call. */
static bool wait_for_input(void)
{
    struct pollfd in = {.fd = STDIN_FILENO, .events = POLLIN};
    sigset_t asked, before;
    sigemptyset(&asked);
    sigaddset(&asked, SIGINT);
    sigaddset(&asked, SIGTERM);
    sigaddset(&asked, SIGHUP);
    pthread_sigmask(SIG_BLOCK, &asked, &before);
    int ready = 0;
    while (ready <= 0 && !tt_signals_stop() && !tt_signals_interrupted())
        ready = ppoll(&in, 1, NULL, &before);
    pthread_sigmask(SIG_SETMASK, &before, NULL); /* also lets in what came with the input */
    return ready > 0 && !tt_signals_stop() && !tt_signals_interrupted();
}

static const char *prompt_of(void *editor)
{
    (void)editor;
    return PROMPT;
}

/* A character of the terminal: 1, 0 at its end, or -1 if a signal came first. */
static int next_character(void *editor, wchar_t *out)
{
    mbstate_t state = {0};
    (void)editor;
    for (;;) {
        char byte;
        if (!wait_for_input())
            return -1;
        const ssize_t n = read(STDIN_FILENO, &byte, 1);
        if (n <= 0)
            return (int)n;
        const size_t whole = mbrtowc(out, &byte, 1, &state);
        if (whole == (size_t)-2) /* a part of a character */
            continue;
        if (whole == (size_t)-1)
            *out = 0xFFFD;
        return 1;
    }
}

/* libedit makes bytes of characters by the thread's locale, and models read UTF-8. */
static bool take_utf8(void)
{
    locale_t own = duplocale(uselocale(NULL)),
             utf8 = own ? newlocale(LC_CTYPE_MASK, "C.UTF-8", own) : NULL;
    if (utf8)
        uselocale(utf8);
    else if (own)
        freelocale(own);
    return utf8 != NULL;
}

static void open_editor(tt_line_input *in)
{
    void *found[TT_COUNT(functions)];
    const char *kind = getenv("TERM");
    edit_event e;
    tt_error why = {0};
    _Static_assert(sizeof found == sizeof in->lib, "a function each");
    if (!isatty(STDERR_FILENO) || !kind || !*kind || !strcmp(kind, "dumb"))
        return;
    if (tt_library_open("libedit.so.2", "libedit2", functions, TT_COUNT(functions), found, &why) !=
        TT_OK) {
        tt_log(TT_DEBUG, "cli", "lines are not edited: %s", why.text);
        return;
    }
    memcpy(&in->lib, found, sizeof in->lib);
    const edit_library *lib = &in->lib;
    in->editor = take_utf8() ? lib->init("ttrun", stdin, stderr, stderr) : NULL;
    if (!in->editor)
        return;
    lib->set(in->editor, EL_PROMPT, prompt_of);
    lib->set(in->editor, EL_EDITOR, "emacs");
    lib->set(in->editor, EL_GETCFN, next_character);
    in->past = lib->history_init();
    if (in->past) {
        lib->history(in->past, &e, H_SETSIZE, HISTORY_LINES);
        lib->set(in->editor, EL_HIST, lib->history, in->past);
    }
    lib->source(in->editor, NULL); /* ~/.editrc */
}

tt_line_input *tt_line_input_new(bool terminal)
{
    tt_line_input *in = calloc(1, sizeof *in);
    if (!in)
        return NULL;
    in->terminal = terminal;
    if (terminal)
        open_editor(in);
    return in;
}

static tt_line_end edited_line(tt_line_input *in, const char **line)
{
    int n = 0;
    edit_event e;
    const char *text = in->lib.gets(in->editor, &n);
    if (!text || n <= 0)
        return TT_LINE_END;
    free(in->line);
    in->line = strdup(text);
    if (!in->line)
        return TT_LINE_END;
    in->line[strcspn(in->line, "\r\n")] = 0;
    if (in->past && *in->line)
        in->lib.history(in->past, &e, H_ENTER, in->line);
    *line = in->line;
    return TT_LINE;
}

static tt_line_end plain_line(tt_line_input *in, const char **line)
{
    if (in->terminal) {
        fputs(PROMPT, stderr);
        if (!wait_for_input())
            return TT_LINE_END;
    }
    ssize_t n = getline(&in->line, &in->cap, stdin);
    if (n < 0)
        return TT_LINE_END;
    while (n > 0 && (in->line[n - 1] == '\n' || in->line[n - 1] == '\r'))
        in->line[--n] = 0;
    *line = in->line;
    return TT_LINE;
}

tt_line_end tt_line_input_next(tt_line_input *in, const char **line)
{
    tt_signals_go_on();
    const tt_line_end end = in->editor ? edited_line(in, line) : plain_line(in, line);
    if (end == TT_LINE || !in->terminal)
        return end;
    fputc('\n', stderr); /* the prompt is left alone */
    if (tt_signals_stop() || !tt_signals_interrupted())
        return TT_LINE_END;
    if (in->editor)
        in->lib.reset(in->editor);
    return TT_LINE_INTERRUPTED;
}

void tt_line_input_free(tt_line_input *in)
{
    if (!in)
        return;
    if (in->editor)
        in->lib.end(in->editor);
    if (in->past)
        in->lib.history_end(in->past);
    free(in->line);
    free(in);
}
