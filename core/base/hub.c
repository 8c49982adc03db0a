/* SPDX-License-Identifier: Apache-2.0 */
#include "base/hub.h"
#include <stdlib.h>
#include <string.h>
#include <ttrun/option.h>

/* The local cache of the Hugging Face hub, as the package huggingface_hub keeps it:
 * CACHE/models--ORG--NAME/refs/main has the name of a folder in snapshots. */

#define LONGEST_ID 96 /* of the hub */

/* Organization or name: letters, digits and - _ . of which it does not begin with one. */
static size_t word_of(const char *text)
{
    const size_t n =
        strspn(text, "-_.abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789");
    return strchr("-_.", *text) ? 0 : n;
}

bool tt_hub_is_id(const char *text)
{
    const size_t org = word_of(text);
    if (!org || text[org] != '/' || strlen(text) > LONGEST_ID)
        return false;
    const size_t name = word_of(text + org + 1);
    return name && !text[org + 1 + name];
}

/* A folder that the variable names, with ~ for the user's own; NULL: it is not set. */
static const char *folder_of(tt_arena *a, const char *variable)
{
    const char *path = getenv(variable), *home = getenv("HOME");
    if (!path || !*path)
        return NULL;
    return path[0] == '~' && path[1] == '/' && home ? tt_path_join(a, home, path + 2)
                                                    : tt_arena_str(a, path);
}

/* NULL: there is no home folder */
static const char *hub_cache(tt_arena *a)
{
    static const struct {
        const char *variable, *below;
    } rows[] = {
        {"HF_HUB_CACHE",          NULL             },
        {"HUGGINGFACE_HUB_CACHE", NULL             },
        {"HF_HOME",               "hub"            },
        {"XDG_CACHE_HOME",        "huggingface/hub"},
    };
    for (size_t i = 0; i < TT_COUNT(rows); i++) {
        const char *path = folder_of(a, rows[i].variable);
        if (path)
            return rows[i].below ? tt_path_join(a, path, rows[i].below) : path;
    }
    const char *home = getenv("HOME");
    return home && *home ? tt_path_join(a, home, ".cache/huggingface/hub") : NULL;
}

const char *tt_hub_folder(tt_arena *a, const char *id)
{
    const char *cache = tt_hub_is_id(id) ? hub_cache(a) : NULL, *slash = strchr(id, '/');
    char *text = NULL;
    size_t n = 0;
    if (!cache)
        return NULL;
    const char *repo = tt_path_join(
        a, cache, tt_arena_printf(a, "models--%.*s--%s", (int)(slash - id), id, slash + 1));
    if (tt_read_file(tt_path_join(a, repo, "refs/main"), 256, &text, &n, NULL) != TT_OK)
        return NULL;
    text[strcspn(text, " \t\r\n")] = '\0';
    const char *found = strchr(text, '/') || text[0] == '.' || !text[0]
                            ? NULL
                            : tt_path_join(a, tt_path_join(a, repo, "snapshots"), text);
    free(text);
    return found && tt_path_exists(found) ? found : NULL;
}

const char *tt_hub_advice(tt_arena *a, const char *id)
{
    const char *cache = tt_hub_is_id(id) ? hub_cache(a) : NULL;
    if (!cache)
        return "";
    return tt_arena_printf(a,
                           "; a model of the Hugging Face hub is downloaded first, by: hf download "
                           "%s (looked in %s)",
                           id, cache);
}
