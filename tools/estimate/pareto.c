/* SPDX-License-Identifier: Apache-2.0 */
#include "estimate/estimate.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The picture of `ttrun plan --pareto`: time of a step against memory per rank, for the ways to recompute
 * that activation_checkpoint.mode budget chooses from, and what it chose if that is the job's mode. On a
 * device there are two curves: without offload, and with it. Every point is a program that was compiled
 * and planned. */

#define STEPS 16 /* the points of mode budget, from level 0 to the last one */
#define WIDTH 640
#define HEIGHT 400
#define LEFT 70
#define RIGHT 20
#define TOP 44
#define BOTTOM 52

typedef struct point {
    const char *name; /* "none", …; NULL: a level */
    tt_cut_way way;   /* of a level */
    double bytes, time;
} point;

typedef struct picture {
    const tt_setup *s;
    point points[2 * STEPS + 8];
    int n;
    double bytes[2], time[2]; /* of the axes */
} picture;

/* The time of a step on the machine that is planned for, else that of a micro-batch, whose unit means
 * nothing and is taken out later. */
static tt_status add_point(picture *p, tt_recompute_try t, const char *name, tt_error *err)
{
    tt_arena *a = tt_arena_new();
    tt_setup s = *p->s;
    s.core.activation_checkpoint.offload = TT_ACTIVATIONS_STAY; /* of the modes; not of CUT */
    const tt_status st = tt_setup_try_recompute(&s, &t, a, err);
    if (st == TT_OK) {
        tt_step_time time = {.step = t.time};
        s.graph = t.graph;
        if (s.machine)
            tt_step_time_of(&s, s.machine, &time);
        p->points[p->n++] =
            (point){name, t.way ? (tt_cut_way)*t.way : TT_CUT_STAYS, t.bytes, time.step};
    }
    tt_arena_free(a);
    return st;
}

static int points_by_bytes(const void *a, const void *b)
{
    const point *x = a, *y = b;
    return x->bytes < y->bytes   ? -1
           : x->bytes > y->bytes ? 1
                                 : (x->time > y->time) - (x->time < y->time);
}

/* Round steps of an axis: about n of them. */
static double step_of(double length, int n)
{
    const double raw = length / n, ten = pow(10, floor(log10(raw)));
    return ten * (raw / ten < 1.5 ? 1 : raw / ten < 3.5 ? 2 : raw / ten < 7.5 ? 5 : 10);
}

static double x_of(const picture *p, double bytes)
{
    return LEFT + (bytes - p->bytes[0]) / (p->bytes[1] - p->bytes[0]) * (WIDTH - LEFT - RIGHT);
}

static double y_of(const picture *p, double time)
{
    return HEIGHT - BOTTOM -
           (time - p->time[0]) / (p->time[1] - p->time[0]) * (HEIGHT - TOP - BOTTOM);
}

static void widen_axis(double axis[2])
{
    const double room =
        axis[1] > axis[0] ? 0.06 * (axis[1] - axis[0]) : 0.01 * fabs(axis[1]) + 1e-9;
    axis[0] -= room;
    axis[1] += room;
}

static void find_axes(picture *p)
{
    p->bytes[0] = p->time[0] = (double)INFINITY;
    p->bytes[1] = p->time[1] = -(double)INFINITY;
    for (int i = 0; i < p->n; i++) {
        p->bytes[0] = TT_MIN(p->bytes[0], p->points[i].bytes);
        p->bytes[1] = TT_MAXV(p->bytes[1], p->points[i].bytes);
        p->time[0] = TT_MIN(p->time[0], p->points[i].time);
        p->time[1] = TT_MAXV(p->time[1], p->points[i].time);
    }
    widen_axis(p->bytes);
    widen_axis(p->time);
}

static void draw_axes(const picture *p, tt_str *o)
{
    const double gib = 1 << 30, step = step_of((p->bytes[1] - p->bytes[0]) / gib, 6),
                 tick = step_of(p->time[1] - p->time[0], 6);
    for (double g = ceil(p->bytes[0] / gib / step) * step; g * gib <= p->bytes[1]; g += step)
        tt_str_printf(o,
                      "<line class=\"grid\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%d\" y2=\"%d\"/>"
                      "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%.4g</text>\n",
                      x_of(p, g * gib), x_of(p, g * gib), TOP, HEIGHT - BOTTOM, x_of(p, g * gib),
                      HEIGHT - BOTTOM + 16, g);
    for (double t = ceil(p->time[0] / tick) * tick; t <= p->time[1]; t += tick)
        tt_str_printf(o,
                      "<line class=\"grid\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/>"
                      "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%.4g</text>\n",
                      LEFT, WIDTH - RIGHT, y_of(p, t), y_of(p, t), LEFT - 6, y_of(p, t) + 4, t);
    tt_str_printf(o, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">GiB per rank</text>\n",
                  (LEFT + WIDTH - RIGHT) / 2, HEIGHT - 14);
    tt_str_printf(o, "<text x=\"14\" y=\"%d\" class=\"title\">", 18);
    if (p->s->machine)
        tt_str_printf(o, "Seconds per step on %s", p->s->machine->name);
    else
        tt_str_add(o, "Time of forward and backward, mode none = 1");
    tt_str_printf(o, " against memory: %s %s</text>\n", p->s->model.name, p->s->core.flavor);
}

/* The line joins the levels of a way that no other level of it beats in memory and time. */
static void draw_line(const picture *p, tt_cut_way way, tt_str *o)
{
    double best = (double)INFINITY;
    tt_str_printf(o, "<polyline class=\"line%s\" points=\"", way == TT_CUT_JOINT ? " moved" : "");
    for (int i = 0; i < p->n; i++)
        if (!p->points[i].name && p->points[i].way == way && p->points[i].time < best) {
            best = p->points[i].time;
            tt_str_printf(o, "%.1f,%.1f ", x_of(p, p->points[i].bytes), y_of(p, best));
        }
    tt_str_add(o, "\"/>\n");
}

static void draw_points(const picture *p, tt_str *o)
{
    for (int i = 0; i < p->n; i++) {
        const point *q = &p->points[i];
        const double x = x_of(p, q->bytes), y = y_of(p, q->time);
        const bool moved = q->way == TT_CUT_JOINT;
        tt_str_printf(o,
                      "<circle class=\"%s\" cx=\"%.1f\" cy=\"%.1f\" r=\"%d\"><title>%s: %.3f GiB, "
                      "%.6g</title></circle>\n",
                      q->name ? "mode"
                      : moved ? "level moved"
                              : "level",
                      x, y, q->name ? 5 : 3,
                      q->name ? q->name
                      : moved ? "budget with offload"
                              : "budget",
                      q->bytes / (1 << 30), q->time);
        if (q->name)
            tt_str_printf(o, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">%s</text>\n",
                          x > WIDTH - 90 ? x - 9 : x + 9, y - 7, x > WIDTH - 90 ? "end" : "start",
                          q->name);
    }
}

/* Which of the two lines is which. */
static void draw_legend(tt_str *o)
{
    static const struct {
        const char *cls, *text;
    } lines[] = {
        {"line",       "activations stay on the device"         },
        {"line moved", "some wait in host memory (offload auto)"}
    };
    for (int i = 0; i < (int)TT_COUNT(lines); i++)
        tt_str_printf(o,
                      "<polyline class=\"%s\" points=\"%d,%d %d,%d\"/><text x=\"%d\" y=\"%d\">%s"
                      "</text>\n",
                      lines[i].cls, WIDTH - 290, TOP + 12 + 18 * i, WIDTH - 266, TOP + 12 + 18 * i,
                      WIDTH - 260, TOP + 16 + 18 * i, lines[i].text);
}

static void draw(picture *p, tt_str *o)
{
    tt_str_printf(
        o,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" "
        "height=\"%d\" class=\"pareto\">\n"
        "<style>.pareto text{font:12px system-ui,sans-serif;fill:#445}.pareto .title{"
        "font-size:14px}.pareto .grid{stroke:#e3e6eb}.pareto .line{fill:none;stroke:"
        "#2563c9;stroke-width:1.5}.pareto .level{fill:#2563c9;stroke:none}.pareto .mode{fill:"
        "#d9690b}.pareto .line.moved{stroke:#1a8a4a}.pareto .level.moved{fill:#1a8a4a}</style>\n"
        "<rect width=\"%d\" height=\"%d\" fill=\"#fff\"/>\n",
        WIDTH, HEIGHT, WIDTH, HEIGHT, WIDTH, HEIGHT);
    draw_axes(p, o);
    draw_line(p, TT_CUT_STAYS, o);
    if (tt_setup_has_device(p->s)) {
        draw_line(p, TT_CUT_JOINT, o);
        draw_legend(o);
    }
    draw_points(p, o);
    tt_str_add(o, "</svg>\n");
}

static tt_status add_levels(picture *p, tt_cut_way way, tt_error *err)
{
    int *ways = tt_arena_array(p->s->arena, (size_t)p->s->pipeline_ranks + 1, sizeof *ways);
    for (int r = 0; r < p->s->pipeline_ranks; r++)
        ways[r] = (int)way;
    for (int i = 0; i <= STEPS; i++)
        TT_TRY(add_point(
            p, (tt_recompute_try){.mode = TT_RECOMPUTE_CUT, .part = (double)i / STEPS, .way = ways},
            NULL, err));
    return TT_OK;
}

tt_status tt_pareto_svg(const tt_setup *s, tt_str *out, tt_error *err)
{
    static const struct {
        tt_recompute_mode mode;
        const char *name;
    } modes[] = {
        {TT_RECOMPUTE_NONE,      "none"     },
        {TT_RECOMPUTE_SELECTIVE, "selective"},
        {TT_RECOMPUTE_FULL,      "full"     }
    };
    picture p = {.s = s};
    for (size_t i = 0; i < TT_COUNT(modes); i++)
        TT_TRY(add_point(&p, (tt_recompute_try){.mode = modes[i].mode}, modes[i].name, err));
    const double one = s->machine ? 1 : p.points[0].time;
    TT_TRY(add_levels(&p, TT_CUT_STAYS, err));
    if (tt_setup_has_device(s))
        TT_TRY(add_levels(&p, TT_CUT_JOINT, err));
    const tt_recompute_choice *c = s->recompute_choice;
    if (c)
        TT_TRY(add_point(
            &p, (tt_recompute_try){.mode = TT_RECOMPUTE_CUT, .level = c->level, .way = c->way},
            "this job", err));
    for (int i = 0; i < p.n && one > 0; i++)
        p.points[i].time /= one;
    qsort(p.points, (size_t)p.n, sizeof *p.points, points_by_bytes);
    find_axes(&p);
    draw(&p, out);
    return TT_OK;
}
