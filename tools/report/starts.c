/* SPDX-License-Identifier: Apache-2.0 */
#include "report/report.h"
#include <string.h>

/* How often a run was started, and what was other than the time before. */

static const char *start_text(const tt_json *start, const char *key, const char *absent)
{
    const tt_json *v = tt_json_get(start, key);
    return v && v->type == TT_JSON_STRING ? v->string : absent;
}

static const tt_json *starts_of(const tt_json *facts)
{
    const tt_json *list = facts ? tt_json_get(facts, "starts") : NULL;
    return list && list->type == TT_JSON_ARRAY && list->n ? list : NULL;
}

static void add_step(tt_str *o, const tt_json *start, const char *key)
{
    const tt_json *v = tt_json_get(start, key);
    if (v && v->type == TT_JSON_INT)
        tt_str_printf(o, "%lld", (long long)v->integer);
    else
        tt_str_addc(o, '?');
}

/* live: the run's folder is locked, so the newest start goes on. */
static const char *status_of(const tt_json *list, size_t at, bool live)
{
    const char *open = at + 1 < list->n ? "was killed"
                       : live           ? "running"
                                        : "was killed, or runs on another machine";
    return start_text(list->items[at], "status", open);
}

void tt_report_starts_text(const tt_json *facts, bool live, tt_str *o)
{
    const tt_json *list = starts_of(facts);
    for (size_t i = 0; list && i < list->n; i++) {
        const tt_json *s = list->items[i], *changed = tt_json_get(s, "changed");
        tt_str_printf(o, "%s  steps ", start_text(s, "started", "?"));
        add_step(o, s, "from_step");
        tt_str_add(o, " to ");
        add_step(o, s, "to_step");
        tt_str_add(o, ", ranks ");
        add_step(o, s, "world");
        tt_str_printf(o, ", host %s, ttrun %s, git %.12s: %s\n", start_text(s, "host", "?"),
                      start_text(s, "ttrun", "?"), start_text(s, "git", "-"),
                      status_of(list, i, live));
        for (size_t k = 0; changed && changed->type == TT_JSON_ARRAY && k < changed->n; k++)
            if (changed->items[k]->type == TT_JSON_STRING)
                tt_str_printf(o, "    %s\n", changed->items[k]->string);
    }
}

static void add_cell(tt_str *o, const char *text)
{
    tt_str_add(o, "<td>");
    tt_html(o, text);
    tt_str_add(o, "</td>");
}

void tt_report_print_starts(const tt_json *facts, bool live, tt_str *o)
{
    const tt_json *list = starts_of(facts);
    if (!list)
        return;
    tt_str_add(o, "<h3>Starts</h3><div class=\"card\"><table><tr><th>started</th><th>steps</th>"
                  "<th>ranks</th><th>host</th><th>git</th><th>end</th>"
                  "<th>what of the job was other than before</th></tr>\n");
    for (size_t i = 0; i < list->n; i++) {
        const tt_json *s = list->items[i], *changed = tt_json_get(s, "changed");
        tt_str_add(o, "<tr>");
        add_cell(o, start_text(s, "started", "?"));
        tt_str_add(o, "<td>");
        add_step(o, s, "from_step");
        tt_str_add(o, " – ");
        add_step(o, s, "to_step");
        tt_str_add(o, "</td><td>");
        add_step(o, s, "world");
        tt_str_add(o, "</td>");
        add_cell(o, start_text(s, "host", "?"));
        add_cell(o, start_text(s, "git", "–"));
        add_cell(o, status_of(list, i, live));
        tt_str_add(o, "<td>");
        for (size_t k = 0; changed && changed->type == TT_JSON_ARRAY && k < changed->n; k++) {
            tt_str_add(o, k ? "<br>" : "");
            tt_html(o, changed->items[k]->type == TT_JSON_STRING ? changed->items[k]->string : "");
        }
        tt_str_add(o, "</td></tr>\n");
    }
    tt_str_add(o, "</table></div>\n");
}
