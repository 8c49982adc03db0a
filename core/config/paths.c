/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "base/hub.h"
#include "config/internal.h"
#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* Options that are paths (TT_OPT_PATH). A relative path has one meaning: in a job file it starts in
 * the folder of that file, of "extends" too; on the command line and in a job that comes through a
 * pipe it starts in the current folder. ~/ is the user's home folder, as no shell replaces it in a
 * file. It becomes absolute when it is read, so a job that is stored in a run folder means the same
 * from everywhere. With TT_OPT_HUB, ORG/NAME may be a model in the hub's local cache, if there is no such path. */

bool tt_config_is_piped(const char *name)
{
    return !strcmp(name, "/dev/stdin") || !strncmp(name, "/dev/fd/", 8) ||
           !strncmp(name, "/proc/", 6);
}

/* The folder that relative paths of a value start in. */
static const char *start_of(tt_arena *a, const tt_json_origin *o)
{
    const bool of_file =
        o && !o->command_line && o->layer >= 0 && o->name && !tt_config_is_piped(o->name);
    char real[PATH_MAX];
    const char *folder = of_file ? tt_path_dir(a, o->name) : ".";
    return realpath(folder, real) ? tt_arena_str(a, real) : folder;
}

const char *tt_config_path(tt_arena *a, const tt_json_origin *origin, const char *path)
{
    if (!*path || *path == '/')
        return path;
    const char *home = *path == '~' && (!path[1] || path[1] == '/') ? getenv("HOME") : NULL;
    if (home && *home == '/')
        return tt_path_join(a, home, path + 1 + strspn(path + 1, "/"));
    const char *folder = start_of(a, origin);
    for (;; path += strspn(path, "/")) { /* the folder is real: its parent is what ".." means */
        if (path[0] == '.' && (path[1] == '/' || !path[1])) {
            path++;
        } else if (*folder == '/' && path[0] == '.' && path[1] == '.' &&
                   (path[2] == '/' || !path[2])) {
            path += 2;
            folder = tt_path_dir(a, folder);
        } else {
            break;
        }
    }
    return *path ? tt_path_join(a, folder, path) : folder;
}

/* Whether the value is one of the words that an option of paths has besides them ("auto|off"). */
static bool is_word(const tt_option *o, const char *value)
{
    return o->choices && tt_config_spelling(o->choices, value);
}

/* The value is a text, since null is not resolved. The node gets the path too, since it is printed where a list of the job is printed
 * whole. */
static const char *resolve(tt_job *job, const tt_option *o, const tt_json *v, const char *value)
{
    if (is_word(o, value))
        return value;
    const char *path = tt_config_path(job->arena, v->origin, value);
    if ((o->flags & TT_OPT_HUB) && !tt_path_exists(path)) {
        const char *folder = tt_hub_folder(job->arena, value);
        path = folder ? folder : path;
    }
    if (v->type == TT_JSON_STRING && v->string == value)
        ((tt_json *)v)->string = path; /* the tree is the job's own */
    return path;
}

void tt_config_resolve(tt_job *job, const tt_option *o, const tt_json *v, tt_config_value *value)
{
    if (!(o->flags & TT_OPT_PATH) || value->null)
        return;
    if (o->type == TT_OPT_STRING) {
        value->string = resolve(job, o, v, value->string);
    } else if (o->type == TT_OPT_STRINGS) {
        const char **items = tt_arena_array(job->arena, value->strings.n + 1, sizeof *items);
        for (size_t i = 0; i < value->strings.n; i++) {
            const tt_json *one = v->type == TT_JSON_ARRAY ? v->items[i] : v;
            items[i] = resolve(job, o, one, value->strings.items[i]);
        }
        value->strings.items = items;
    }
}
