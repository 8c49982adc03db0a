/* SPDX-License-Identifier: Apache-2.0 */
#include "config/internal.h"
#include <string.h>

/* An alias with a dot stands for a member of an object: with the alias "adamw.lr" of the option adamw_lr,
 * {"adamw": {"lr": 1e-3}} is the same as {"adamw_lr": 1e-3}. */

/* The length of "adamw." if an alias in the list begins with it, else 0. */
static size_t prefix(const char *list, const char *key)
{
    const size_t n = strlen(key);
    for (const char *p = list; p && *p;) {
        if (strncmp(p, key, n) == 0 && p[n] == '.')
            return n + 1;
        p += strcspn(p, "|");
        p += *p == '|';
    }
    return 0;
}

/* The option that member `key` of the object `outer` is; NULL = none, and *own gets the members that exist. */
static const char *option_of(const tt_job *job, const tt_option *options, size_t n,
                             size_t option_size, const char *outer, const char *key,
                             const char ***own, size_t *n_own)
{
    const char *alias = tt_config_join(job->arena, outer, key);
    *own = tt_arena_array(job->arena, n ? n : 1, sizeof **own);
    *n_own = 0;
    for (size_t i = 0; i < n; i++) {
        const tt_option o = tt_config_row(options, option_size, i);
        const char *p = o.aliases;
        if (tt_config_spelling(p, alias))
            return o.name;
        for (; p && *p; p += *p == '|') {
            const size_t at = prefix(p, outer), k = strcspn(p, "|");
            if (at && at < k && strncmp(p, outer, at - 1) == 0)
                (*own)[*n_own] = tt_arena_strn(job->arena, p + at, k - at);
            p += k;
        }
        *n_own += (*own)[*n_own] != NULL;
    }
    return NULL;
}

static bool has_object(const tt_option *options, size_t n, size_t option_size, const char *key)
{
    for (size_t i = 0; i < n; i++)
        if (prefix(tt_config_row(options, option_size, i).aliases, key))
            return true;
    return false;
}

tt_status tt_config_nested(tt_job *job, const char *path, tt_json *object, const tt_option *options,
                           size_t n, size_t option_size, tt_error *err)
{
    for (size_t i = 0; i < object->n; i++) {
        const char *outer = object->keys[i], **own;
        tt_json *inner = object->items[i];
        size_t n_own;
        if (!has_object(options, n, option_size, outer))
            continue;
        const char *inside = tt_config_join(job->arena, path, outer);
        if (inner->type != TT_JSON_OBJECT)
            return tt_config_fail_type(inner, inside, "an object", err);
        for (size_t k = 0; k < inner->n; k++) {
            const char *name =
                option_of(job, options, n, option_size, outer, inner->keys[k], &own, &n_own);
            if (!name)
                return tt_config_fail_unknown(job, inner, k, inside, own, n_own, err);
            const tt_json *flat = tt_json_get(object, name), *v = inner->items[k];
            const int before = flat && flat->origin ? flat->origin->layer : -1;
            const int layer = v->origin ? v->origin->layer : -1;
            if (flat && before == layer)
                return tt_config_fail(v, &inner->key_pos[k],
                                      tt_config_join(job->arena, inside, inner->keys[k]), err,
                                      "the same option as %s; keep one of them",
                                      tt_config_join(job->arena, path, name));
            if (!flat || layer > before)
                tt_config_put(job->arena, object, name, inner->key_pos[k], inner->items[k]);
        }
        tt_config_remove(object, outer);
        i = (size_t)-1; /* the members have moved */
    }
    return TT_OK;
}
