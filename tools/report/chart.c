/* SPDX-License-Identifier: Apache-2.0 */
#include "report/report.h"
#include <math.h>
#include <string.h>

/* Draws charts as inline SVG. If a curve has more points than the chart has columns, the smallest
 * and the largest value of each column are drawn, so that no spike is lost. Colours are defined in
 * style.c. */

#define WIDTH 620 /* of a chart on half of the page; letters have the same height in all charts */
#define WIDE 1280
#define HEIGHT 250
#define LEFT 58
#define RIGHT 14
#define TOP 12
#define BOTTOM 34
#define COLUMNS 300       /* of the drawing */
#define DATA_COLUMNS 1500 /* of what the script draws when it shows a part of the curve */

typedef struct frame {
    const tt_chart *c;
    double x0, x1, y0, y1; /* range of the data; y is log10 of the value if log is set */
    bool log;
    int right; /* x of the right end of the x axis */
} frame;

void tt_html(tt_str *out, const char *text)
{
    size_t n = strlen(text);
    while (n) {
        const size_t good = tt_utf8_valid(text, n);
        for (size_t i = 0; i < good; i++) {
            const char c = text[i];
            if (c == '<')
                tt_str_add(out, "&lt;");
            else if (c == '>')
                tt_str_add(out, "&gt;");
            else if (c == '&')
                tt_str_add(out, "&amp;");
            else if (c == '"')
                tt_str_add(out, "&quot;");
            else if (c == '\'')
                tt_str_add(out, "&#39;");
            else if ((unsigned char)c >= 0x20 || c == '\n' || c == '\t')
                tt_str_addc(out, c);
        }
        if (good < n)
            tt_str_add(out, "&#xFFFD;");
        text += TT_MIN(good + 1, n);
        n -= TT_MIN(good + 1, n);
    }
}

void tt_html_number(tt_str *out, double v, int digits)
{
    static const struct {
        double unit;
        const char *suffix;
    } units[] = {
        {1e12, "T"},
        {1e9,  "G"},
        {1e6,  "M"},
        {1e3,  "k"}
    };
    if (!isfinite(v)) {
        tt_str_add(out, "–");
        return;
    }
    for (size_t i = 0; i < TT_COUNT(units); i++)
        if (fabs(v) >= (i == 3 ? 1e4 : units[i].unit)) {
            tt_str_printf(out, "%.*g%s", TT_MAXV(digits, 3), v / units[i].unit, units[i].suffix);
            return;
        }
    tt_str_printf(out, "%.*g", digits, v);
}

static double at(const double *p, const tt_curve *c, size_t i)
{
    return p[i * c->stride];
}

/* ---- ranges ---- */

static void widen(double v, double *lo, double *hi)
{
    if (!isfinite(v))
        return;
    *lo = isfinite(*lo) ? TT_MIN(*lo, v) : v;
    *hi = isfinite(*hi) ? TT_MAXV(*hi, v) : v;
}

static void find_range(frame *f)
{
    const tt_chart *c = f->c;
    f->x0 = f->x1 = f->y0 = f->y1 = (double)NAN;
    for (size_t k = 0; k < c->n; k++)
        for (size_t i = 0; i < c->curves[k].n; i++) {
            double y = at(c->curves[k].y, &c->curves[k], i);
            for (size_t below = 0; c->stacked && below < k; below++)
                y += at(c->curves[below].y, &c->curves[below], i);
            if (isfinite(y))
                widen(at(c->curves[k].x, &c->curves[k], i), &f->x0, &f->x1);
            widen(y, &f->y0, &f->y1);
        }
    if (!isfinite(f->y0))
        return;
    if (c->level > 0)
        widen(c->level, &f->y0, &f->y1);
    if (c->from_zero || c->stacked)
        f->y0 = TT_MIN(f->y0, 0.0);
    f->log = !c->stacked && !c->from_zero && f->y0 > 0 && f->y1 / f->y0 > 50;
    if (f->log) {
        f->y0 = log10(f->y0);
        f->y1 = log10(f->y1);
    }
    const double slack = f->y1 > f->y0 ? 0.05 * (f->y1 - f->y0) : TT_MAXV(fabs(f->y1) * 0.1, 1e-9);
    f->y1 += slack;
    if (!c->stacked && !c->from_zero)
        f->y0 -= slack;
    if (f->x1 <= f->x0) {
        f->x0 -= 0.5;
        f->x1 += 0.5;
    }
}

static double px(const frame *f, double x)
{
    return LEFT + (x - f->x0) / (f->x1 - f->x0) * (f->right - LEFT);
}

static double py(const frame *f, double y)
{
    const double v = f->log ? log10(y) : y;
    return HEIGHT - BOTTOM - (v - f->y0) / (f->y1 - f->y0) * (HEIGHT - TOP - BOTTOM);
}

/* Returns 1, 2 or 5 times a power of ten, so that about `want` such steps fill the span. */
static double tick_step(double span, int want)
{
    const double raw = span / want, unit = pow(10, floor(log10(raw))), m = raw / unit;
    return unit * (m > 5 ? 10 : m > 2 ? 5 : m > 1 ? 2 : 1);
}

static void y_tick(const frame *f, double y, double value, tt_str *o)
{
    tt_str_printf(o, "<line class=\"grid\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/>", LEFT,
                  f->right, y, y);
    tt_str_printf(o, "<text class=\"tick\" text-anchor=\"end\" x=\"%d\" y=\"%.1f\">", LEFT - 7,
                  y + 4);
    tt_html_number(o, value, 4);
    if (f->c->unit && !strcmp(f->c->unit, "%"))
        tt_str_add(o, "%");
    tt_str_add(o, "</text>");
}

static void print_axes(const frame *f, tt_str *o)
{
    const double h = HEIGHT - BOTTOM;
    if (f->log) {
        const double step = TT_MAXV(1.0, ceil((f->y1 - f->y0) / 6));
        static const double minor[] = {1, 2, 5};
        const int n_minor = f->y1 - f->y0 < 3 ? 3 : 1;
        for (double e = floor(f->y0); e <= f->y1; e += step)
            for (int k = 0; k < n_minor; k++) {
                const double v = minor[k] * pow(10, e);
                if (log10(v) >= f->y0 && log10(v) <= f->y1)
                    y_tick(f, py(f, v), v, o);
            }
    } else {
        const double step = tick_step(f->y1 - f->y0, 5);
        for (double v = ceil(f->y0 / step) * step; v <= f->y1; v += step)
            y_tick(f, py(f, v), fabs(v) < step * 1e-6 ? 0 : v, o);
    }
    const double step = TT_MAXV(tick_step(f->x1 - f->x0, 6), f->c->bands ? 1e300 : 1.0);
    int odd = 0;
    for (double v = ceil(f->x0 / step) * step; v <= f->x1 && !f->c->bands; v += step, odd = !odd) {
        tt_str_printf(o, "<text class=\"tick%s\" text-anchor=\"middle\" x=\"%.1f\" y=\"%.1f\">",
                      odd ? " odd" : "", px(f, v), h + 17);
        tt_html_number(o, v, 7);
        tt_str_add(o, "</text>");
    }
    tt_str_printf(o, "<line class=\"axis\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/>", LEFT,
                  f->right, h, h);
    if (f->c->x_name)
        tt_str_printf(o, "<text class=\"tick\" text-anchor=\"end\" x=\"%d\" y=\"%d\">%s</text>",
                      f->right, HEIGHT - 3, f->c->x_name);
}

/* ---- lines ---- */

typedef struct pen {
    tt_str *o;
    bool down;
} pen;

static void draw_to(const frame *f, pen *p, double x, double y)
{
    if (!isfinite(y) || !isfinite(x) || (f->log && y <= 0)) {
        p->down = false;
        return;
    }
    tt_str_printf(p->o, "%s%.1f %.1f", p->down ? "L" : "M", px(f, x), py(f, y));
    p->down = true;
}

/* What is made of a curve's points: a line, or the numbers that the script reads. */
typedef struct sink {
    pen *pen;
    tt_str *data; /* NULL: a line */
} sink;

static void put(const frame *f, const sink *k, double x, double y)
{
    if (!k->data)
        draw_to(f, k->pen, x, y);
    else if (isfinite(y) && isfinite(x))
        tt_str_printf(k->data, "%.9g %.6g ", x, y);
    else if (isfinite(x))
        tt_str_printf(k->data, "%.9g NaN ", x); /* a gap */
}

/* Takes of points [i, end), which fall into one column, the smallest and the largest in their order:
 * the result looks the same as all points. A column without any value is a gap. */
static void put_column(const frame *f, const tt_curve *c, size_t i, size_t end, const sink *to)
{
    size_t lo = i, hi = i;
    for (size_t k = i; k < end; k++) {
        const double y = at(c->y, c, k);
        if (!isfinite(at(c->y, c, lo)) || y < at(c->y, c, lo))
            lo = k;
        if (!isfinite(at(c->y, c, hi)) || y > at(c->y, c, hi))
            hi = k;
    }
    const size_t two[2] = {TT_MIN(lo, hi), TT_MAXV(lo, hi)};
    for (int k = 0; k < (two[0] == two[1] ? 1 : 2); k++)
        put(f, to, at(c->x, c, two[k]), at(c->y, c, two[k]));
}

static void put_curve(const frame *f, const tt_curve *c, int columns, const sink *to)
{
    size_t i = 0;
    if (c->n <= (size_t)columns) { /* every point */
        for (; i < c->n; i++)
            put(f, to, at(c->x, c, i), at(c->y, c, i));
        return;
    }
    for (int col = 0; col < columns && i < c->n; col++) {
        size_t end = i + 1;
        const double stop = f->x0 + (f->x1 - f->x0) * (col + 1) / columns;
        if (at(c->x, c, i) > stop && col + 1 < columns)
            continue;
        while (end < c->n && (at(c->x, c, end) <= stop || col + 1 == columns))
            end++;
        put_column(f, c, i, end, to);
        i = end;
    }
}

static void print_line(const frame *f, const tt_curve *c, tt_str *o)
{
    tt_str data = {0};
    pen p = {o, false};
    tt_str_printf(o, "<path class=\"line s%d%s\" d=\"", c->color, c->dashed ? " dashed" : "");
    put_curve(f, c, COLUMNS, &(sink){.pen = &p});
    put_curve(f, c, DATA_COLUMNS, &(sink){.data = &data});
    if (c->key) {
        tt_str_printf(o, "\" data-k=\"%s\" data-c=\"%d\" data-m=\"%d\" data-s=\"", c->key, c->color,
                      c->points);
        const double scale[3] = {c->steps, c->tokens, c->hours};
        for (int i = 0; i < 3; i++) /* 0: not known */
            tt_str_printf(o, "%.9g ", isfinite(scale[i]) ? scale[i] : 0);
    }
    tt_str_add(o, "\" data-name=\"");
    tt_html(o, c->name);
    tt_str_printf(o, "\" data-p=\"%s\"/>", tt_str_get(&data));
    for (size_t k = 0; (c->points || c->n == 1) && k < c->n && c->n <= 2 * COLUMNS; k++) {
        const double y = at(c->y, c, k);
        if (isfinite(y) && !(f->log && y <= 0))
            tt_str_printf(o, "<circle class=\"f%d\" r=\"3\" cx=\"%.1f\" cy=\"%.1f\"/>", c->color,
                          px(f, at(c->x, c, k)), py(f, y));
    }
    tt_str_free(&data);
}

/* ---- stacked areas ---- */

static double sum_below(const tt_chart *c, size_t k, size_t i)
{
    double y = 0;
    for (size_t j = 0; j < k; j++) {
        const double v = at(c->curves[j].y, &c->curves[j], i);
        y += isfinite(v) ? v : 0;
    }
    return y;
}

/* Returns the point that represents a column: where the sum of the stack is largest. */
static size_t highest(const tt_chart *c, size_t i, size_t end)
{
    size_t best = i;
    for (size_t k = i; k < end; k++)
        if (sum_below(c, c->n, k) > sum_below(c, c->n, best))
            best = k;
    return best;
}

static void print_areas(const frame *f, tt_str *o)
{
    const tt_chart *c = f->c;
    const size_t n = c->n ? c->curves[0].n : 0, every = n / COLUMNS + 1;
    size_t shown[COLUMNS + 1], n_shown = 0;
    for (size_t i = 0; i < n; i += every)
        shown[n_shown++] = highest(c, i, TT_MIN(i + every, n));
    for (size_t k = 0; k < c->n; k++) {
        const tt_curve *v = &c->curves[k];
        tt_str_printf(o, "<path class=\"area f%d\" d=\"", v->color);
        for (size_t i = 0; i < n_shown; i++)
            tt_str_printf(o, "%s%.1f %.1f", i ? "L" : "M", px(f, at(v->x, v, shown[i])),
                          py(f, sum_below(c, k + 1, shown[i])));
        for (size_t i = n_shown; i-- > 0;)
            tt_str_printf(o, "L%.1f %.1f", px(f, at(v->x, v, shown[i])),
                          py(f, sum_below(c, k, shown[i])));
        tt_str_add(o, n_shown ? "Z\" data-name=\"" : "\" data-name=\"");
        tt_html(o, v->name);
        tt_str_add(o, "\" data-p=\"");
        for (size_t i = 0; i < n_shown; i++)
            tt_str_printf(o, "%.9g %.6g ", at(v->x, v, shown[i]),
                          sum_below(c, k + 1, shown[i]) - sum_below(c, k, shown[i]));
        tt_str_add(o, "\"/>");
    }
}

/* Prints the names of the bands along the x axis, and a line between two bands. */
static void print_bands(const frame *f, tt_str *o)
{
    const tt_chart *c = f->c;
    const size_t n = c->n ? c->curves[0].n : 0;
    double text_end = 0;
    for (size_t i = 0, end; c->bands && i < n; i = end) {
        end = i + 1;
        while (end < n && !strcmp(c->bands[end], c->bands[i]))
            end++;
        const double a = px(f, (double)i), b = px(f, (double)TT_MIN(end, n - 1));
        if (i && b - a > 4)
            tt_str_printf(o, "<line class=\"band\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%d\" y2=\"%d\"/>",
                          a, a, TOP, HEIGHT - BOTTOM);
        const double mid = (a + b) / 2, half = 3.2 * (double)strlen(c->bands[i]);
        if (mid - half < text_end || mid + half > f->right + RIGHT)
            continue;
        text_end = mid + half + 4;
        tt_str_printf(o,
                      "<text class=\"tick\" text-anchor=\"middle\" x=\"%.1f\" y=\"%d\">%s</text>",
                      mid, HEIGHT - BOTTOM + 17, c->bands[i]);
    }
}

static void print_legend(const tt_chart *c, tt_str *o)
{
    if (c->n < 2 && !(c->level > 0))
        return;
    tt_str_add(o, "<div class=\"legend\">");
    for (size_t k = 0; k < c->n; k++) {
        if (c->curves[k].key)
            tt_str_printf(o, "<span data-k=\"%s\"><i class=\"b%d\"></i>", c->curves[k].key,
                          c->curves[k].color);
        else
            tt_str_printf(o, "<span><i class=\"b%d\"></i>", c->curves[k].color);
        tt_html(o, c->curves[k].name);
        tt_str_add(o, "</span>");
    }
    if (c->level > 0) {
        tt_str_add(o, "<span><i class=\"dash\"></i>");
        tt_html(o, c->level_name);
        tt_str_add(o, "</span>");
    }
    tt_str_add(o, "</div>");
}

void tt_chart_print(const tt_chart *c, tt_str *o)
{
    const int width = c->wide ? WIDE : WIDTH;
    frame f = {.c = c, .right = width - RIGHT};
    find_range(&f);
    tt_str_add(o, "<figure><figcaption>");
    tt_html(o, c->title);
    if (c->unit || f.log)
        tt_str_printf(o, " <small>%s%s%s</small>", c->unit ? c->unit : "",
                      c->unit && f.log ? ", " : "", f.log ? "log scale" : "");
    tt_str_add(o, "</figcaption>");
    if (!isfinite(f.y0)) {
        tt_str_add(o, "<p class=\"none\">nothing recorded</p></figure>\n");
        return;
    }
    const bool lines = c->n && !c->stacked && c->curves[0].key;
    tt_str_printf(o, "<div class=\"%s\"><svg viewBox=\"0 0 %d %d\" role=\"img\"",
                  c->wide ? "plot broad" : "plot", width, HEIGHT);
    tt_str_printf(o, " data-x=\"%.9g %.9g %d %d\"%s%s%s%s>", f.x0, f.x1, LEFT, f.right,
                  c->bands ? " data-n=\"op\"" : "", lines ? " data-lines=\"" : "",
                  !lines         ? ""
                  : c->from_zero ? "zero\""
                  : f.log        ? "log\""
                                 : "free\"",
                  lines && c->unit && !strcmp(c->unit, "%") ? " data-u=\"%\"" : "");
    print_axes(&f, o);
    if (c->stacked)
        print_areas(&f, o);
    for (size_t k = 0; !c->stacked && k < c->n; k++)
        print_line(&f, &c->curves[k], o);
    print_bands(&f, o);
    if (c->level > 0)
        tt_str_printf(o, "<line class=\"level\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/>",
                      LEFT, f.right, py(&f, c->level), py(&f, c->level));
    tt_str_add(o, "</svg></div>");
    print_legend(c, o);
    if (c->note) {
        tt_str_add(o, "<p class=\"note\">");
        tt_html(o, c->note);
        tt_str_add(o, "</p>");
    }
    tt_str_add(o, "</figure>\n");
}
