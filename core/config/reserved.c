/* SPDX-License-Identifier: Apache-2.0 */
#include "config/dialects.h"
#include <stdlib.h>
#include <string.h>

const tt_reserved *tt_reserved_table(size_t *n)
{
    *n = tt_dialects_known.n_keys;
    return tt_dialects_known.keys;
}

static int compare(const void *key, const void *row)
{
    return strcmp(key, ((const tt_reserved *)row)->key);
}

static const tt_reserved *look_up(const char *key)
{
    return bsearch(key, tt_dialects_known.keys, tt_dialects_known.n_keys, sizeof(tt_reserved),
                   compare);
}

const tt_reserved *tt_reserved_find(const char *key)
{
    char section[64];
    const size_t n = strcspn(key, ".");
    const tt_reserved *r = look_up(key);
    if (r || n + 3 > sizeof section)
        return r;
    memcpy(section, key, n);
    memcpy(section + n, ".*", 3);
    return look_up(section);
}

const char *tt_reserved_answer(tt_arena *a, const tt_reserved *r)
{
    switch (r->kind) {
    case TT_RESERVED_MOVED:
    case TT_RESERVED_ALIAS:
        return tt_arena_printf(a, "unknown key (did you mean %s?)", r->text);
    case TT_RESERVED_SAME:
        return tt_arena_printf(a, "the same as %s", r->text);
    case TT_RESERVED_IDLE:
        return r->otherwise ? r->otherwise : tt_arena_printf(a, "not needed: %s", r->text);
    default:
        return r->text;
    }
}
