/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/schedule.h"
#include <string.h>

/* Prints schedules as text, and draws the abstract run as a picture. */

void tt_schedule_print(const tt_schedule *s, tt_str *out)
{
    for (int r = 0; r < s->n_ranks; r++) {
        tt_str_printf(out, "rank %d:", r);
        for (int i = 0; i < s->n_actions[r]; i++)
            tt_str_printf(out, " %d%c%d", s->actions[r][i].stage,
                          TT_ACTION_LETTERS[s->actions[r][i].kind], s->actions[r][i].micro);
        tt_str_addc(out, '\n');
    }
}

#define ROW 28     /* pixels per rank */
#define LEFT 60    /* before time 0 */
#define WIDTH 1400 /* of the makespan */
#define RIGHT 14
#define TOP 54 /* title and legend */
#define BOTTOM 26

static const char *const action_names[TT_N_ACTIONS] = {[TT_ACTION_F] = "forward",
                                                       [TT_ACTION_B] = "backward",
                                                       [TT_ACTION_I] = "I: backward, inputs",
                                                       [TT_ACTION_W] = "W: backward, weights"};

/* By kind, two shades: the first half of the stages and the second. */
static const char *const colour[TT_N_ACTIONS][2] = {
    {"#9ecae1", "#4a90c2"},
    {"#a1d99b", "#41ab5d"},
    {"#c7e9c0", "#74c476"},
    {"#fdd0a2", "#fd8d3c"}
};

/* Several stages on a rank: the shades tell them apart. */
static bool has_shades(const tt_schedule *s)
{
    return s->n_stages > s->n_ranks;
}

static int shade(const tt_schedule *s, int stage)
{
    return has_shades(s) && 2 * stage >= s->n_stages;
}

static void swatch(tt_str *out, int x, const char *fill)
{
    tt_str_printf(out,
                  "<rect x=\"%d\" y=\"28\" width=\"14\" height=\"14\" fill=\"%s\" "
                  "stroke=\"#888\" stroke-width=\"0.5\"/>",
                  x, fill);
}

static void draw_legend(const tt_schedule *s, const tt_run *run, tt_str *out)
{
    bool seen[TT_N_ACTIONS] = {false};
    int x = LEFT;
    for (int i = 0; i < run->n; i++)
        seen[run->order[i].action.kind] = true;
    for (int k = 0; k < TT_N_ACTIONS; k++) {
        if (!seen[k])
            continue;
        swatch(out, x, colour[k][0]);
        if (has_shades(s))
            swatch(out, x += 16, colour[k][1]);
        tt_str_printf(out, "<text x=\"%d\" y=\"39\" font-size=\"12\">%s</text>\n", x + 20,
                      action_names[k]);
        x += 44 + 7 * (int)strlen(action_names[k]);
    }
    tt_str_printf(
        out, "<text x=\"%d\" y=\"39\" font-size=\"12\">%snumber: micro-batch; white: idle</text>\n",
        x, has_shades(s) ? "dark: a rank's later stages; " : "");
}

static void draw_action(const tt_schedule *s, const tt_event *e, double scale, tt_str *out)
{
    const double x = LEFT + e->start * scale, w = (e->end - e->start) * scale;
    const int y = TOP + ROW * e->rank;
    tt_str_printf(out,
                  "<rect x=\"%.2f\" y=\"%d\" width=\"%.2f\" height=\"%d\" fill=\"%s\" "
                  "stroke=\"white\" stroke-width=\"0.5\"><title>%d%c%d %.6g-%.6g</title>"
                  "</rect>\n",
                  x, y, w, ROW - 4, colour[e->action.kind][shade(s, e->action.stage)],
                  e->action.stage, TT_ACTION_LETTERS[e->action.kind], e->action.micro, e->start,
                  e->end);
    if (w > 12)
        tt_str_printf(out, "<text x=\"%.2f\" y=\"%d\" text-anchor=\"middle\">%d</text>\n",
                      x + w / 2, y + ROW / 2 + 1, e->action.micro);
}

void tt_schedule_draw_svg(const tt_schedule *s, const tt_run *run, tt_str *out)
{
    const double scale = run->makespan > 0 ? WIDTH / run->makespan : 1;
    const int width = LEFT + WIDTH + RIGHT, height = TOP + ROW * s->n_ranks + BOTTOM;
    double busy = 0;
    for (int i = 0; i < run->n; i++)
        busy += run->order[i].end - run->order[i].start;
    const double all = run->makespan * s->n_ranks;
    tt_str_printf(out,
                  "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" "
                  "height=\"%d\" style=\"max-width:100%%;height:auto\" "
                  "font-family=\"sans-serif\" font-size=\"10\">\n"
                  "<title>%s, %d ranks, %d stages, %d micro-batches</title>\n"
                  "<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n"
                  "<text x=\"6\" y=\"18\" font-size=\"14\" font-weight=\"bold\">%s: %d ranks, %d "
                  "stages, %d micro-batches, idle %.1f %%</text>\n",
                  width, height, width, height, s->name, s->n_ranks, s->n_stages, s->n_micro,
                  s->name, s->n_ranks, s->n_stages, s->n_micro,
                  all > 0 ? 100 * (1 - busy / all) : 0);
    draw_legend(s, run, out);
    for (int r = 0; r < s->n_ranks; r++)
        tt_str_printf(out, "<text x=\"6\" y=\"%d\">rank %d</text>\n", TOP + ROW * r + ROW / 2 + 1,
                      r);
    for (int i = 0; i < run->n; i++)
        draw_action(s, &run->order[i], scale, out);
    tt_str_printf(out,
                  "<text x=\"%d\" y=\"%d\" text-anchor=\"end\" font-size=\"12\">time of the "
                  "micro-batches of one step →</text>\n</svg>\n",
                  LEFT + WIDTH, height - 8);
}
