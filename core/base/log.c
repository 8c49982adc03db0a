/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "base/shown.h"
#include "internal.h"
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_SHOWN 1024

/* The process has one stderr, so this is the one place with process-wide state. Under `lock` one
 * thread at a time writes a line and redraws the progress bar. */
static struct {
    _Atomic int level, rank;
    _Atomic bool color, held, all;
    _Atomic bool alone;                     /* one rank, on a terminal: lines do not name it */
    _Atomic uint64_t shown[MAX_SHOWN / 64]; /* bit r: show rank r's info and debug lines */
    _Atomic int64_t origin_ns;              /* when time +0 was; 0 = the first line sets it */
    pthread_mutex_t lock;
    void (*redraw)(void *);
    void *redraw_arg;
} state = {.level = TT_INFO, .shown = {1}, .lock = PTHREAD_MUTEX_INITIALIZER};

static _Thread_local int thread_rank = -1;

void tt_log_setup(tt_log_level level, int rank, int world, bool color)
{
    TT_ASSERT(rank >= 0 && rank < world);
    atomic_store(&state.level, (int)level);
    atomic_store(&state.rank, rank);
    atomic_store(&state.color, color);
    atomic_store(&state.alone, world == 1 && tt_terminal());
    atomic_store(&state.origin_ns, tt_now_ns());
}

void tt_log_set_level(tt_log_level level)
{
    atomic_store(&state.level, (int)level);
}

tt_log_level tt_log_get_level(void)
{
    return (tt_log_level)atomic_load(&state.level);
}

void tt_log_set_thread_rank(int rank)
{
    thread_rank = rank;
}

int tt_log_thread_rank(void)
{
    return thread_rank;
}

static int my_rank(void)
{
    return thread_rank >= 0 ? thread_rank : atomic_load(&state.rank);
}

int tt_rank_listed(const char *ranks, int rank)
{
    int found = 0;
    if (!strcmp(ranks, "all"))
        return 1;
    for (const char *p = ranks;; p++) {
        char *end;
        const long r = *p >= '0' && *p <= '9' ? strtol(p, &end, 10) : -1;
        if (r < 0 || (*end && *end != ','))
            return -1;
        found |= r == rank;
        if (!*end)
            return found;
        p = end;
    }
}

/* Ranks from MAX_SHOWN on are shown with "all" only. */
bool tt_log_show_ranks(const char *ranks)
{
    if (tt_rank_listed(ranks, 0) < 0)
        return false;
    for (int i = 0; i < MAX_SHOWN / 64; i++) {
        uint64_t bits = 0;
        for (int k = 0; k < 64; k++)
            bits |= (uint64_t)(tt_rank_listed(ranks, 64 * i + k) > 0) << k;
        atomic_store(&state.shown[i], bits);
    }
    atomic_store(&state.all, !strcmp(ranks, "all"));
    return true;
}

static bool shown(int rank)
{
    if (atomic_load(&state.all))
        return true;
    return rank < MAX_SHOWN && atomic_load(&state.shown[rank / 64]) >> rank % 64 & 1;
}

static bool log_enabled(tt_log_level level)
{
    return (int)level <= atomic_load(&state.level);
}

/* -q is for the terminal: log files have what a run says without it. */
static bool log_keeps(tt_log_level level)
{
    return level <= TT_INFO || log_enabled(level);
}

void tt_log_hold(bool hold)
{
    atomic_store(&state.held, hold);
}

/* fn draws the bar; it runs under the log's lock and must not log. */
void tt_log_set_redraw(void (*fn)(void *), void *arg)
{
    pthread_mutex_lock(&state.lock);
    state.redraw = fn;
    state.redraw_arg = arg;
    pthread_mutex_unlock(&state.lock);
}

static double seconds_since_start(void)
{
    int64_t now = tt_now_ns(), zero = 0;
    if (atomic_compare_exchange_strong(&state.origin_ns, &zero, now))
        return 0.0;
    return (double)(now - zero) * 1e-9; /* a failed exchange left the origin in zero */
}

static void log_put(const char *p, size_t n)
{
    (void)tt_write_all(STDERR_FILENO, p, n); /* there is no other place to report a failure */
}

/* On a terminal: breaks the line at blanks instead of inside words, by replacing a blank with a
 * newline. */
static void break_line(char *line, size_t n, int columns)
{
    size_t blank = 0;
    int at = 0, since = 0; /* columns since the last break, and since the last blank */
    bool escape = false;
    for (size_t i = 0; columns >= 40 && i < n; i++) {
        const unsigned char c = (unsigned char)line[i];
        escape = escape || c == '\033';
        const bool seen = !escape && c != '\r' && (c & 0xc0) != 0x80; /* begins a character */
        escape = escape && (c == '[' || c == '\033' || c < '@');
        at += seen;
        since += seen;
        if (c == ' ') {
            blank = i;
            since = 0;
        }
        if (at > columns && blank) {
            line[blank] = '\n';
            at = since;
            blank = 0;
        }
    }
}

static int letter(tt_log_level level)
{
    return level < TT_ERROR ? TT_ERROR : level > TT_DEBUG ? TT_DEBUG : (int)level;
}

static const char letters[] = "EWID";

/* What stands before a line's text in a file. */
static size_t format_file_head(char *buf, size_t size, tt_log_level level, const char *area)
{
    char wall[32];
    tt_wall_iso(tt_wall_seconds(), wall);
    const int n = snprintf(buf, size, "%s r%d %c %s: ", wall, my_rank(), letters[letter(level)],
                           area ? area : "train");
    return TT_MIN((size_t)TT_MAXV(n, 0), size - 2);
}

/* What stands before a line's text. The first bytes erase the progress bar. */
static size_t format_head(char *buf, size_t size, tt_log_level level, const char *area)
{
    static const char *const tint[] = {"\033[31m", "\033[33m", "\033[32m", "\033[36m"};
    const bool color = atomic_load(&state.color);
    const int i = letter(level);
    const char *erase = atomic_load(&state.held) ? "\r\033[J" : "";
    char rank[16] = "";
    if (!area)
        return (size_t)snprintf(buf, size, "%s", erase);
    if (thread_rank >= 0 || !atomic_load(&state.alone))
        snprintf(rank, sizeof rank, "r%d ", my_rank());
    const int n = snprintf(buf, size, "%s[%s+%.1fs %s%c%s %s] ", erase, rank, seconds_since_start(),
                           color ? tint[i] : "", letters[i], color ? "\033[0m" : "", area);
    return TT_MIN((size_t)TT_MAXV(n, 0), size - 2);
}

/* Formats one line with its newline into buf, behind its head; returns its length. */
TT_PRINTF(4, 0)
static size_t format_line(char *buf, size_t size, size_t head, const char *fmt, va_list ap)
{
    const int n = vsnprintf(buf + head, size - 1 - head, fmt, ap);
    const size_t text = TT_MIN((size_t)TT_MAXV(n, 0), size - 2 - head);
    for (size_t k = head, n_control; k < head + text; k += n_control ? n_control : 1) {
        n_control = buf[k] == '\t' ? 0 : tt_control_bytes(buf + k, head + text - k);
        memset(buf + k, buf[k] == '\n' || buf[k] == '\r' ? ' ' : '?', n_control);
    }
    size_t end = head + text;
    while (end > head && buf[end - 1] == ' ')
        end--;
    buf[end++] = '\n';
    return end;
}

TT_PRINTF(3, 0)
static void log_line(tt_log_level level, const char *area, const char *fmt, va_list ap)
{
    if (!log_keeps(level))
        return;
    int saved = errno;
    char line[4096];
    va_list again;
    va_copy(again, ap);
    size_t n = format_line(line, sizeof line, format_file_head(line, sizeof line, level, area), fmt,
                           again);
    va_end(again);
    tt_log_file_put(my_rank(), line, n);
    if (!log_enabled(level) || (level > TT_WARN && !shown(my_rank())))
        return;
    n = format_line(line, sizeof line, format_head(line, sizeof line, level, area), fmt, ap);
    break_line(line, n - 1, tt_terminal_columns());
    pthread_mutex_lock(&state.lock);
    log_put(line, n);
    if (atomic_load(&state.held) && state.redraw)
        state.redraw(state.redraw_arg);
    pthread_mutex_unlock(&state.lock);
    errno = saved;
}

void tt_log(tt_log_level level, const char *area, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    log_line(level, area, fmt, ap);
    va_end(ap);
}

void tt_log_to_file(tt_log_level level, const char *area, const char *text)
{
    char line[4096];
    const size_t head = format_file_head(line, sizeof line, level, area);
    const int n = snprintf(line + head, sizeof line - head, "%s\n", text);
    if (log_keeps(level))
        tt_log_file_put(my_rank(), line, TT_MIN(head + (size_t)TT_MAXV(n, 0), sizeof line - 1));
}

TT_PRINTF(2, 3)
static void log_bare(tt_log_level level, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    log_line(level, NULL, fmt, ap);
    va_end(ap);
}

void tt_log_bare(tt_log_level level, const char *text)
{
    log_bare(level, "%s", text);
}
