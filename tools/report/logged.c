/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/graph.h"
#include "graph/metric_name.h"
#include "report/report.h"
#include <math.h>
#include <string.h>

/* Of metrics.jsonl: what the model and the loss of a run log, such as a preference loss's rewards. Their names are known
 * to the plugin alone, so whatever is not the training loop's own has a curve. */

#define MOST_NAME 160 /* bytes of a name; tt_log_metric() takes 64, after "losses/" */

/* "rewards" and "margin" are "rewards/margin", as the plugin wrote it. False: it is longer than any. */
static bool whole_name(const char *group, size_t n_group, const char *key, size_t n, char *out)
{
    if (n_group + n + 2 > MOST_NAME)
        return false;
    memcpy(out, group, n_group);
    out[n_group] = '/';
    const size_t head = n_group ? n_group + 1 : 0;
    memcpy(out + head, key, n);
    out[head + n] = 0;
    return true;
}

static tt_logged *logged_at(tt_logged_list *all, const char *name)
{
    for (size_t i = 0; i < all->n; i++) /* lines have them in one order */
        if (!strcmp(all->items[(all->next + i) % all->n].name, name)) {
            all->next = (all->next + i + 1) % all->n;
            return &all->items[(all->next + all->n - 1) % all->n];
        }
    if (all->n == TT_MAX_LOGGED)
        return NULL;
    tt_vec_push(all->arena, all, (tt_logged){.name = tt_arena_str(all->arena, name)});
    return &all->items[all->n - 1];
}

void tt_report_logged_add(tt_logged_list *all, const char *group, size_t n_group, const char *key,
                          size_t n, double value)
{
    char name[MOST_NAME];
    if (!n || !whole_name(group, n_group, key, n, name) || !tt_metric_of_model(name))
        return;
    tt_logged *at = logged_at(all, name);
    if (!at)
        return;
    at->newest = value;
    at->has_newest = true;
}

void tt_report_logged_end(tt_logged_list *all, double step, bool taken)
{
    for (size_t i = 0; i < all->n; i++) {
        tt_logged *l = &all->items[i];
        while (l->points.n && taken && l->points.items[l->points.n - 1].step >= step)
            l->points.n--; /* of an earlier attempt */
        if (l->has_newest && taken)
            tt_vec_push(all->arena, &l->points, ((tt_logged_point){step, l->newest}));
        l->has_newest = false;
    }
}

const tt_logged *tt_report_logged_find(const tt_logged_list *all, const char *name)
{
    for (size_t i = 0; i < all->n; i++)
        if (!strcmp(all->items[i].name, name))
            return &all->items[i];
    return NULL;
}
