/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "base/shown.h"
#include "base/thread.h"
#include "cli/cli.h"
#include "cli/runs.h"
#include "report/watch.h"
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

/* ttrun top: the runs of some folders, live in a terminal. It reads their files and nothing else. */

#define EVERY_MS 1000
#define FIND_EVERY 5 /* looks: new runs may have begun */

static volatile sig_atomic_t stopped, suspended;

static void on_signal(int sig)
{
    if (sig == SIGTSTP)
        suspended = 1;
    else if (sig != SIGWINCH) /* which only ends the wait for a key */
        stopped = sig;
}

/* ---- the terminal ---- */

typedef struct screen {
    struct termios before;
    bool keys; /* stdin is a terminal, which gives single keys */
} screen;

static void screen_put_bytes(const char *text, size_t n)
{
    (void)tt_write_all(STDOUT_FILENO, text, n); /* a terminal that is gone needs nothing */
}

static void screen_put(const char *text)
{
    screen_put_bytes(text, strlen(text));
}

static void screen_enter(screen *s)
{
    struct termios now;
    s->keys = isatty(STDIN_FILENO) && !tcgetattr(STDIN_FILENO, &s->before);
    if (s->keys) {
        now = s->before;
        now.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
        now.c_cc[VMIN] = 0;
        now.c_cc[VTIME] = 0;
        tcsetattr(STDIN_FILENO, TCSANOW, &now);
    }
    screen_put("\033[?1049h\033[?25l\033[?7l"); /* a screen of its own, no cursor, no line breaks */
}

static void screen_leave(const screen *s)
{
    screen_put("\033[?7h\033[?25h\033[?1049l");
    if (s->keys)
        tcsetattr(STDIN_FILENO, TCSANOW, &s->before);
}

static void screen_size(int *columns, int *rows)
{
    struct winsize w = {0};
    const char *variable = getenv("COLUMNS");
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &w))
        w = (struct winsize){0};
    *columns = w.ws_col ? w.ws_col : variable ? atoi(variable) : 0;
    *rows = w.ws_row ? w.ws_row : 24;
}

static bool locale_is_utf8(void)
{
    static const char *const names[] = {"LC_ALL", "LC_CTYPE", "LANG"};
    for (size_t i = 0; i < TT_COUNT(names); i++) {
        const char *v = getenv(names[i]);
        if (v && *v)
            return strcasestr(v, "utf-8") || strcasestr(v, "utf8");
    }
    return false;
}

/* ---- looking ---- */

static tt_status find(const tt_cli *cli, tt_watches *list, tt_error *err)
{
    for (int i = 0; i < cli->n_words; i++)
        TT_TRY(tt_watch_find(cli->words[i], cli->arena, list, err));
    return cli->n_words ? TT_OK : tt_watch_find(tt_runs_default(), cli->arena, list, err);
}

static void look(tt_watches *list)
{
    for (size_t i = 0; i < list->n; i++)
        tt_watch_look(list->items[i]);
    tt_watch_sort(list);
}

static void once(const tt_cli *cli, tt_watches *list)
{
    tt_str o = {0};
    tt_top_opts t = {.utf8 = locale_is_utf8(), .now = tt_wall_seconds()};
    int rows;
    screen_size(&t.columns, &rows);
    t.columns = t.columns > 0 ? t.columns : 1000; /* a script gets all columns */
    look(list);
    if (cli->json)
        tt_top_json(list, t.now, &o);
    else
        tt_top_print(list, &t, &o);
    tt_cli_print(&o);
    tt_str_free(&o);
}

static void draw(tt_watches *list)
{
    tt_str o = {0}, table = {0};
    tt_top_opts t = {.utf8 = locale_is_utf8(), .now = tt_wall_seconds()};
    screen_size(&t.columns, &t.rows);
    t.columns = t.columns > 0 ? t.columns : 80;
    tt_top_print(list, &t, &table);
    tt_str_add(&o, "\033[H");
    int line = 0;
    for (const char *p = tt_str_get(&table); *p && line < t.rows; line++) {
        const size_t n = strcspn(p, "\n");
        /* cleared first: behind a text that fills the line, it would clear the text's last character */
        tt_str_add(&o, line ? "\r\n\033[K" : "\033[K");
        tt_str_shown(&o, p, n);
        p += n + (p[n] == '\n');
    }
    if (!list->n && line + 1 < t.rows)
        tt_str_add(&o, "\r\nno run yet\033[K");
    if (line + 2 < t.rows)
        tt_str_printf(&o, "\033[J\033[%d;1Hq: leave", t.rows);
    screen_put_bytes(tt_str_get(&o), o.n);
    tt_str_free(&o);
    tt_str_free(&table);
}

/* Waits for a key or a signal; returns whether to leave. */
static bool wait_a_while(const screen *s)
{
    struct pollfd key = {.fd = s->keys ? STDIN_FILENO : -1, .events = POLLIN};
    char c;
    if (poll(&key, 1, EVERY_MS) <= 0)
        return stopped != 0;
    if (key.revents & (POLLHUP | POLLERR))
        return true;
    while (read(STDIN_FILENO, &c, 1) == 1)
        if (c == 'q' || c == 'Q' || c == 3)
            return true;
    return stopped != 0;
}

static void suspend(screen *s)
{
    suspended = 0;
    screen_leave(s);
    raise(SIGSTOP); /* goes on at SIGCONT */
    screen_enter(s);
}

static tt_status live(const tt_cli *cli, tt_watches *list, tt_error *err)
{
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP, SIGTSTP, SIGWINCH};
    const struct sigaction a = {.sa_handler = on_signal};
    screen s;
    tt_status st = TT_OK;
    for (size_t i = 0; i < TT_COUNT(signals); i++)
        sigaction(signals[i], &a, NULL);
    screen_enter(&s);
    for (int looks = 1; !stopped; looks++) {
        tt_error ignored = {0};
        if (looks % FIND_EVERY == 0)
            find(cli, list, &ignored); /* a folder that is gone stays in the list */
        look(list);
        draw(list);
        if (wait_a_while(&s))
            break;
        if (suspended)
            suspend(&s);
    }
    screen_leave(&s);
    if (stopped == SIGTERM || stopped == SIGHUP)
        st = TT_FAIL(err, TT_ESIGNAL, "stopped by %s", tt_signal_name(stopped));
    return st;
}

static tt_status cmd_top_run(tt_cli *cli, tt_error *err)
{
    const char *term = getenv("TERM");
    const bool now = tt_cli_option(cli, "once") != NULL || cli->json;
    tt_watches list = {0};
    TT_TRY(find(cli, &list, err));
    if (now) {
        once(cli, &list);
        return TT_OK;
    }
    if (!isatty(STDOUT_FILENO) || !term || !*term || !strcmp(term, "dumb"))
        return TT_FAIL(err, TT_EINVAL,
                       "stdout is no terminal that can be drawn on; --once prints the table and "
                       "ends");
    return live(cli, &list, err);
}

static const tt_cli_row top_rows[] = {
    TT_CLI_FLAG("once", "print the table once and end"),
};
const tt_command tt_cmd_top = {
    .name = "top",
    .forms = "[RUN_DIR|FOLDER|GLOB]...",
    .doc = "watch runs while they train: steps, loss, speed, memory, time left",
    .rows = top_rows,
    .n_rows = TT_COUNT(top_rows),
    .run = cmd_top_run,
    .words = 64,
    .no_job = true};
