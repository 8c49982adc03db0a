/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "train/console.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define REDRAW_NS 100000000ll       /* 10 Hz */
#define FIRST_PLAIN_NS 2000000000ll /* whatever takes longer than two seconds shows progress */
#define PLAIN_NS 10000000000ll

static double metric(const tt_metrics_record *r, const char *name)
{
    for (size_t i = 0; i < r->n_metrics; i++)
        if (strcmp(r->metrics[i].name, name) == 0)
            return r->metrics[i].value;
    return (double)NAN;
}

/* x with `digits` decimals and commas between thousands; returns the length. */
static int grouped(char *buf, size_t size, double x, int digits)
{
    char plain[64];
    if (!isfinite(x) || fabs(x) >= 1e18)
        return snprintf(buf, size, "%g", x);
    const int n = snprintf(plain, sizeof plain, "%.*f", digits, x);
    const char *dot = strchr(plain, '.');
    const int whole = dot ? (int)(dot - plain) : n, sign = plain[0] == '-';
    size_t out = 0;
    for (int i = 0; i < n && out + 2 < size; i++) {
        if (i > sign && i < whole && (whole - i) % 3 == 0)
            buf[out++] = ',';
        buf[out++] = plain[i];
    }
    buf[out] = '\0';
    return (int)out;
}

void tt_console_step(const tt_metrics_record *r, tt_str *out)
{
    char tps[40], tflops[40];
    const double mfu = metric(r, "mfu");
    const double comm = metric(r, "time/comm_exposed") / metric(r, "time_s");
    grouped(tps, sizeof tps, metric(r, "tps"), 0);
    grouped(tflops, sizeof tflops, metric(r, "tflops"), 2);
    tt_str_printf(
        out, "step: %2lld  loss: %8.5f  grad_norm: %7.4f  memory: %5.2fGiB  tps: %s  tflops: %s",
        (long long)r->step, metric(r, "loss"), metric(r, "grad_norm"), metric(r, "mem_gib"), tps,
        tflops);
    if (isnan(mfu))
        tt_str_add(out, "  mfu: N/A");
    else
        tt_str_printf(out, "  mfu: %.1f%%", 100.0 * mfu);
    if (comm > 0) /* several ranks: the share of the time spent waiting for communication */
        tt_str_printf(out, "  comm: %.1f%%", 100.0 * comm);
}

void tt_console_validation(const tt_metrics_record *r, tt_str *out)
{
    char tps[40];
    const double memory = metric(r, "mem_gib"), rate = metric(r, "tps");
    tt_str_printf(out, "validate step: %2lld  loss: %7.4f", (long long)r->step,
                  metric(r, "validation/loss"));
    if (!isnan(memory))
        tt_str_printf(out, "  memory: %5.2fGiB", memory);
    if (isnan(rate))
        return;
    grouped(tps, sizeof tps, rate, 0);
    tt_str_printf(out, "  tps: %s", tps);
}

/* ---- progress ---- */

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

/* Text to the right of the bar: counts, loss, speed, time left or spent. */
static void format_tail(const tt_progress *p, int64_t now_ns, char *buf, size_t size)
{
    char done[40], total[40], rate[40], left[40], loss[32] = "";
    const double spent = (double)(now_ns - p->begin_ns) * 1e-9;
    const int64_t here = p->done - p->begin_done;
    grouped(done, sizeof done, (double)p->done, 0);
    grouped(total, sizeof total, (double)p->total, 0);
    size_t n = (size_t)snprintf(buf, size, p->total > 0 ? "%s/%s" : "%s", done, total);
    if (!isnan(p->loss))
        snprintf(loss, sizeof loss, "  loss %.4f", p->loss);
    if (n < size)
        n += (size_t)snprintf(buf + n, size - n, "%s", loss);
    grouped(rate, sizeof rate, p->rate, 0);
    if (!isnan(p->rate) && n < size)
        n += (size_t)snprintf(buf + n, size - n, "  %s tok/s", rate);
    const bool known = p->total > 0 && here > 0;
    clock_text(left, sizeof left,
               known ? spent * (double)(p->total - p->done) / (double)here : spent);
    if (n < size)
        snprintf(buf + n, size - n, "  %s %s", left, known ? "left" : "so far");
}

void tt_progress_format(const tt_progress *p, int64_t now_ns, char *buf, size_t size)
{
    char tail[200];
    format_tail(p, now_ns, tail, sizeof tail);
    if (p->total <= 0) {
        snprintf(buf, size, "%s  %s", p->title, tail);
        return;
    }
    const double part = TT_MIN(1.0, TT_MAXV(0.0, (double)p->done / (double)p->total));
    const int percent = (int)(100.0 * part);
    /* the bar fills the width that the text leaves, and is left out if that is too little */
    const int room = p->width - (int)(strlen(p->title) + strlen(tail)) - 12;
    const int cells = p->tty ? TT_MIN(room, 40) : 0;
    char bar[48] = "";
    if (cells >= 8) {
        const size_t n = (size_t)cells, full = (size_t)(part * cells);
        memcpy(bar, " [", 2);
        memset(bar + 2, '#', full);
        memset(bar + 2 + full, '.', n - full);
        memcpy(bar + 2 + n, "]", 2);
    }
    snprintf(buf, size, "%s %3d%%%s  %s", p->title, percent, bar, tail);
}

/* Must be called with p->lock held. */
static void draw(tt_progress *p)
{
    char line[512] = "\r", text[400];
    tt_progress_format(p, tt_now_ns(), text, sizeof text);
    const int most = TT_MAXV(p->width - 1, 1); /* a full last column would wrap */
    const int n = p->tty ? snprintf(line, sizeof line, "\r%.*s\033[K", most, text)
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
    const char *term = getenv("TERM");
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
    /* with --nproc, mpirun's pipe lies between the rank and the terminal: the width of the terminal
     * comes by the environment */
    const char *through = getenv("TTRUN_TTY");
    p->tty = (isatty(p->fd) || through) && !(term && strcmp(term, "dumb") == 0);
    struct winsize w;
    if (p->tty && ioctl(p->fd, TIOCGWINSZ, &w) == 0 && w.ws_col > 0)
        p->width = w.ws_col;
    else if (through && atoi(through) > 0)
        p->width = TT_MIN(atoi(through), 1000);
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
        bar_put(p->fd, "\r\033[K", 4);
    pthread_mutex_unlock(&p->lock);
    pthread_mutex_destroy(&p->lock);
}
