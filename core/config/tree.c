/* SPDX-License-Identifier: Apache-2.0 */
#include "config/internal.h"
#include <string.h>

/* Changes, merges and walks trees of JSON. */

tt_json *tt_config_node(tt_arena *a, tt_json_type type, const tt_json_origin *origin)
{
    tt_json *v = tt_arena_alloc(a, sizeof *v);
    v->type = type;
    v->origin = origin;
    return v;
}

/* Makes room for `more` members. It copies the arrays, because other trees may share them. */
static void grow(tt_arena *a, tt_json *v, size_t more)
{
    tt_json **items = tt_arena_array(a, v->n + more, sizeof *items);
    const char **keys = tt_arena_array(a, v->n + more, sizeof *keys);
    tt_json_pos *pos = tt_arena_array(a, v->n + more, sizeof *pos);
    if (v->n) {
        memcpy(items, v->items, v->n * sizeof *items);
        if (v->type == TT_JSON_OBJECT) {
            memcpy(keys, v->keys, v->n * sizeof *keys);
            memcpy(pos, v->key_pos, v->n * sizeof *pos);
        }
    }
    v->items = items;
    v->keys = keys;
    v->key_pos = pos;
    v->sorted = NULL; /* the order is about to change */
}

static size_t index_of(const tt_json *object, const char *key)
{
    for (size_t i = 0; i < object->n; i++)
        if (strcmp(object->keys[i], key) == 0)
            return i;
    return object->n;
}

/* Appends a member; grow() must have made room for it. */
static void tree_put(tt_json *object, const char *key, tt_json_pos pos, tt_json *item)
{
    size_t i = index_of(object, key);
    object->items[i] = item;
    object->keys[i] = key;
    object->key_pos[i] = pos;
    object->n += i == object->n;
}

void tt_config_put(tt_arena *a, tt_json *object, const char *key, tt_json_pos pos, tt_json *item)
{
    grow(a, object, 1);
    tree_put(object, key, pos, item);
}

void tt_config_remove(tt_json *object, const char *key)
{
    size_t i = index_of(object, key);
    if (i == object->n)
        return;
    object->n--;
    object->sorted = NULL;
    for (; i < object->n; i++) {
        object->items[i] = object->items[i + 1];
        object->keys[i] = object->keys[i + 1];
        object->key_pos[i] = object->key_pos[i + 1];
    }
}

tt_json *tt_config_merge(tt_arena *a, tt_json *dst, tt_json *src)
{
    if (!dst || dst->type != TT_JSON_OBJECT || src->type != TT_JSON_OBJECT)
        return src;
    grow(a, dst, src->n);
    for (size_t i = 0; i < src->n; i++) {
        size_t at = index_of(dst, src->keys[i]);
        tt_json *old = at < dst->n ? dst->items[at] : NULL;
        tree_put(dst, src->keys[i], src->key_pos[i], tt_config_merge(a, old, src->items[i]));
    }
    dst->line = src->line; /* the merged section has the position of the last layer */
    dst->column = src->column;
    dst->origin = src->origin;
    return dst;
}

const char *tt_config_step(tt_arena *a, const char *path, const char **key, size_t *index)
{
    const char *end;
    if (*path == '[') {
        size_t i = 0;
        for (end = path + 1; *end >= '0' && *end <= '9' && i < 1000000; end++)
            i = i * 10 + (size_t)(*end - '0');
        if (end == path + 1 || *end != ']')
            return NULL;
        *key = NULL;
        *index = i;
        end++;
        return *end == '\0' || *end == '[' || (*end == '.' && end[1]) ? end + (*end == '.') : NULL;
    }
    end = path + strcspn(path, ".[]");
    if (end == path || *end == ']' || (*end == '.' && (end[1] == '\0' || end[1] == '[')))
        return NULL;
    *key = tt_arena_strn(a, path, (size_t)(end - path));
    return end + (*end == '.');
}

tt_json *tt_config_find(const tt_job *job, const char *path)
{
    tt_json *v = job->root;
    while (v && *path) {
        const char *key;
        size_t index = 0;
        path = tt_config_step(job->arena, path, &key, &index);
        if (!path)
            return NULL;
        if (!key)
            v = v->type == TT_JSON_ARRAY && index < v->n ? v->items[index] : NULL;
        else
            v = (tt_json *)tt_json_get(v, key); /* the tree is the job's own */
    }
    return v;
}

const char *tt_config_join(tt_arena *a, const char *section, const char *key)
{
    return *section ? tt_arena_printf(a, "%s.%s", section, key) : tt_arena_str(a, key);
}

bool tt_config_under(const char *path, const char *top)
{
    size_t n = strlen(top);
    return strncmp(path, top, n) == 0 && (path[n] == '\0' || path[n] == '.' || path[n] == '[');
}

const tt_json *tt_json_get(const tt_json *object, const char *key)
{
    if (!object || object->type != TT_JSON_OBJECT)
        return NULL;
    if (!object->sorted) {
        for (size_t i = 0; i < object->n; i++)
            if (strcmp(object->keys[i], key) == 0)
                return object->items[i];
        return NULL;
    }
    size_t low = 0, high = object->n;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        int order = strcmp(object->keys[object->sorted[mid]], key);
        if (order == 0)
            return object->items[object->sorted[mid]];
        if (order < 0)
            low = mid + 1;
        else
            high = mid;
    }
    return NULL;
}
