/* SPDX-License-Identifier: Apache-2.0 */
#include "internal.h"
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The control groups of a process, of both versions: the least limit of a group and of its parents. */

typedef struct hierarchy {
    const char *controller;
    tt_cgroup_limit *limit;
    bool v1;
} hierarchy;

/* Up to the root of the hierarchy. In a container the path may name groups that the container cannot see: these have no
 * files and so no limit. A path that is too long has none either. */
static double least_limit(const hierarchy *h, const char *root, const char *group)
{
    char folder[PATH_MAX];
    const size_t top = strlen(root);
    size_t n = (size_t)snprintf(folder, sizeof folder, "%s%s", root, group);
    double least = (double)INFINITY;
    while (n < sizeof folder) {
        while (n > top && folder[n - 1] == '/')
            n--;
        folder[n] = '\0';
        const double limit = h->limit(folder, h->v1);
        least = TT_MIN(least, limit);
        if (n <= top)
            break;
        while (n > top && folder[n - 1] != '/')
            n--;
    }
    return least;
}

static bool has_controller(const char *controllers, size_t n, const char *wanted)
{
    for (const char *p = controllers, *end = p + n; p < end;) {
        const size_t k = strcspn(p, ",:");
        if (k == strlen(wanted) && !memcmp(p, wanted, k))
            return true;
        p += k + 1;
    }
    return false;
}

/* A line is "0::/group" (v2) or "5:cpu,memory:/group" (v1). */
static double limit_of_line(hierarchy h, const char *line, const char *root)
{
    char folder[PATH_MAX];
    const char *controllers = strchr(line, ':');
    const char *path = controllers ? strchr(controllers + 1, ':') : NULL;
    if (!path)
        return (double)INFINITY;
    const size_t n = (size_t)(path - controllers - 1);
    snprintf(folder, sizeof folder, "%s/%s", root, n ? h.controller : "unified");
    if (n == 0) {
        const double limit = least_limit(&h, root, path + 1),
                     unified = least_limit(&h, folder, path + 1);
        return TT_MIN(limit, unified);
    }
    if (!has_controller(controllers + 1, n, h.controller))
        return (double)INFINITY;
    h.v1 = true;
    return least_limit(&h, folder, path + 1);
}

double tt_cgroup_least(const char *cgroup_file, const char *root, const char *controller,
                       tt_cgroup_limit *limit)
{
    const hierarchy h = {controller, limit, false};
    char *text = NULL, *save = NULL;
    size_t n;
    double least = limit(root, false);
    if (tt_read_file(cgroup_file, 1 << 20, &text, &n, NULL) != TT_OK)
        return least;
    for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        const double here = limit_of_line(h, line, root);
        least = TT_MIN(least, here);
    }
    free(text);
    return least;
}
