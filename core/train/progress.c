/* SPDX-License-Identifier: Apache-2.0 */
#include "train/console.h"
#include <math.h>
#include <string.h>
#include <unistd.h>

/* The progress bar. Each drawing asks for the width of the window, and leaves the cursor at the
 * beginning of the bar: a terminal that breaks lines anew when it becomes narrower keeps the cursor
 * there, so erasing from the cursor to the end of the screen removes all of the bar. */

#define REDRAW_NS 100000000ll       /* 10 Hz */
#define FIRST_PLAIN_NS 2000000000ll /* whatever takes longer than two seconds shows progress */
#define PLAIN_NS 10000000000ll

static void bar_put(int fd, const char *p, size_t n)
{
    (void)tt_write_all(fd, p, n); /* an error is ignored: the bar is only an aid */
}

/* "1:02" or "3:04:05" */
static void clock_text(char *buf, size_t size, double seconds)
{
    const int64_t s = seconds < 0 ? 0 : seconds > 3.6e8 ? 360000000 : (int64_t)(seconds + 0.5);
    if (s >= 3600)
        snprintf(buf, size, "%lld:%02d:%02d", (long long)(s / 3600), (int)(s / 60 % 60),
                 (int)(s % 60));
    else
        snprintf(buf, size, "%d:%02d", (int)(s / 60), (int)(s % 60));
}

/* Text to the right of the bar: counts, loss, speed, time left or spent; of these the first `parts`
 * most important ones. */
static void format_tail(const tt_progress *p, int64_t now_ns, int parts, char *buf, size_t size)
{
    char done[32], total[32], rate[64] = "", left[32], loss[32] = "";
    const double spent = (double)(now_ns - p->begin_ns) * 1e-9;
    const int64_t here = p->done - p->begin_done;
    const bool known = p->total > 0 && here > 0;
    tt_grouped(done, sizeof done, (double)p->done, 0);
    tt_grouped(total, sizeof total, (double)p->total, 0);
    if (!isnan(p->loss) && parts > 2)
        snprintf(loss, sizeof loss, "  loss %.4f", p->loss);
    if (!isnan(p->rate) && parts > 3) {
        char number[40];
        tt_grouped(number, sizeof number, p->rate, 0);
        snprintf(rate, sizeof rate, "  %s %s", number, p->unit ? p->unit : "tok/s");
    }
    clock_text(left, sizeof left,
               known ? spent * (double)(p->total - p->done) / (double)here : spent);
    const char *slash = p->total > 0 ? "/" : "";
    if (parts > 1)
        snprintf(buf, size, "%s%s%s%s%s  %s %s", done, slash, p->total > 0 ? total : "", loss, rate,
                 left, known ? "left" : "so far");
    else
        snprintf(buf, size, "%s%s%s", done, slash, p->total > 0 ? total : "");
}

void tt_progress_format(const tt_progress *p, int64_t now_ns, char *buf, size_t size)
{
    char tail[200], bar[48] = "", percent[8] = "";
    const double part =
        p->total > 0 ? TT_MIN(1.0, TT_MAXV(0.0, (double)p->done / (double)p->total)) : 0;
    if (p->total > 0)
        snprintf(percent, sizeof percent, " %3d%%", (int)(100.0 * part));
    const int head = (int)(strlen(p->title) + strlen(percent)) + 2;
    for (int parts = 4; parts > 0; parts--) { /* what does not fit is left out */
        format_tail(p, now_ns, parts, tail, sizeof tail);
        if (!p->tty || head + (int)strlen(tail) < p->width)
            break;
    }
    /* the bar fills the width that the text leaves, and is left out if that is too little */
    const int room = p->width - head - (int)strlen(tail) - 5;
    const int cells = p->tty && p->total > 0 ? TT_MIN(room, 40) : 0;
    if (cells >= 8) {
        const size_t n = (size_t)cells, full = (size_t)(part * cells);
        memcpy(bar, " [", 2);
        memset(bar + 2, '#', full);
        memset(bar + 2 + full, '.', n - full);
        memcpy(bar + 2 + n, "]", 2);
    }
    snprintf(buf, size, "%s%s%s  %s", p->title, percent, bar, tail);
}

/* Must be called with p->lock held. */
static void draw(tt_progress *p)
{
    char line[512], text[400];
    const int columns = p->tty ? tt_terminal_columns() : 0;
    if (columns)
        p->width = columns;
    tt_progress_format(p, tt_now_ns(), text, sizeof text);
    const int most = TT_MAXV(p->width - 1, 1); /* a full last column would wrap */
    const int n = p->tty ? snprintf(line, sizeof line, "\r%.*s\033[J\r", most, text)
                         : snprintf(line, sizeof line, "%s\n", text);
    bar_put(p->fd, line, (size_t)n);
}

/* Called by the log, with its lock held, after a log line has replaced the bar. */
static void redraw(void *arg)
{
    tt_progress *p = arg;
    pthread_mutex_lock(&p->lock);
    if (!p->finished && p->drawn_ns != 0)
        draw(p);
    pthread_mutex_unlock(&p->lock);
}

void tt_progress_init(tt_progress *p, const char *title, int64_t done, int64_t total, bool quiet)
{
    *p = (tt_progress){.total = total,
                       .done = done,
                       .begin_done = done,
                       .loss = (double)NAN,
                       .rate = (double)NAN,
                       .begin_ns = tt_now_ns(),
                       .quiet = quiet,
                       .fd = STDERR_FILENO,
                       .width = 80};
    snprintf(p->title, sizeof p->title, "%s", title);
    pthread_mutex_init(&p->lock, NULL);
    p->tty = tt_terminal_moves();
    if (p->tty) {
        tt_log_set_redraw(redraw, p);
        tt_log_hold(true);
    }
}

void tt_progress_update(tt_progress *p, int64_t done, double loss, double rate)
{
    const int64_t now = tt_now_ns();
    pthread_mutex_lock(&p->lock);
    p->done = done;
    p->loss = loss;
    p->rate = rate;
    bool due;
    if (p->tty)
        due = p->drawn_ns == 0 || now - p->drawn_ns >= REDRAW_NS;
    else
        due = !p->quiet && now - (p->drawn_ns ? p->drawn_ns : p->begin_ns) >=
                               (p->drawn_ns ? PLAIN_NS : FIRST_PLAIN_NS);
    if (due && !p->finished) {
        p->drawn_ns = now;
        draw(p);
    }
    pthread_mutex_unlock(&p->lock);
}

void tt_progress_finish(tt_progress *p)
{
    if (p->finished)
        return;
    if (p->tty) {
        tt_log_hold(false);
        tt_log_set_redraw(NULL, NULL); /* waits for a log line that is being written */
    }
    pthread_mutex_lock(&p->lock);
    p->finished = true;
    if (p->tty && p->drawn_ns != 0)
        bar_put(p->fd, "\r\033[J", 4);
    pthread_mutex_unlock(&p->lock);
    pthread_mutex_destroy(&p->lock);
}
