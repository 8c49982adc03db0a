/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/schedule.h"

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

void tt_schedule_draw_svg(const tt_schedule *s, const tt_run *run, tt_str *out)
{
    /* by kind, two shades: the first half of the stages and the second */
    static const char *const colour[TT_N_ACTIONS][2] = {
        {"#9ecae1", "#4a90c2"},
        {"#a1d99b", "#41ab5d"},
        {"#c7e9c0", "#74c476"},
        {"#fdd0a2", "#fd8d3c"}
    };
    const double scale = run->makespan > 0 ? WIDTH / run->makespan : 1;
    tt_str_printf(out,
                  "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
                  "font-family=\"sans-serif\" font-size=\"10\">\n"
                  "<title>%s, %d ranks, %d stages, %d micro-batches</title>\n"
                  "<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
                  LEFT + WIDTH + 10, ROW * s->n_ranks + 20, s->name, s->n_ranks, s->n_stages,
                  s->n_micro);
    for (int r = 0; r < s->n_ranks; r++)
        tt_str_printf(out, "<text x=\"6\" y=\"%d\">rank %d</text>\n", 10 + ROW * r + ROW / 2, r);
    for (int i = 0; i < run->n; i++) {
        const tt_event *e = &run->order[i];
        const double x = LEFT + e->start * scale, w = (e->end - e->start) * scale;
        const int y = 10 + ROW * e->rank;
        tt_str_printf(out,
                      "<rect x=\"%.2f\" y=\"%d\" width=\"%.2f\" height=\"%d\" fill=\"%s\" "
                      "stroke=\"white\" stroke-width=\"0.5\"><title>%d%c%d %.6g-%.6g</title>"
                      "</rect>\n",
                      x, y, w, ROW - 4, colour[e->action.kind][2 * e->action.stage >= s->n_stages],
                      e->action.stage, TT_ACTION_LETTERS[e->action.kind], e->action.micro, e->start,
                      e->end);
        if (w > 12)
            tt_str_printf(out, "<text x=\"%.2f\" y=\"%d\" text-anchor=\"middle\">%d</text>\n",
                          x + w / 2, y + ROW / 2 + 1, e->action.micro);
    }
    tt_str_add(out, "</svg>\n");
}
