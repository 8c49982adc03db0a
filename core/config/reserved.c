/* SPDX-License-Identifier: Apache-2.0 */
#include "config/reserved.h"
#include <stdlib.h>
#include <string.h>
#include <ttrun/option.h>

/* One row per name, sorted by strcmp(). */

/* clang-format off */
#define MOVED(key, text) {key, TT_RESERVED_MOVED, text, NULL, NULL},
#define SAME(key, text) {key, TT_RESERVED_SAME, text, NULL, NULL},
#define ANSWER(key, text) {key, TT_RESERVED_ANSWER, text, NULL, NULL},
#define ALIAS(key, text) {key, TT_RESERVED_ALIAS, text, NULL, NULL},
#define IDLE(key, text) {key, TT_RESERVED_IDLE, text, NULL, NULL},
/* only with these values; the answer to any other */
#define IDLE_IF(key, values, text, otherwise) {key, TT_RESERVED_IDLE, text, values, otherwise},

static const tt_reserved reserved[] = {
#include "config/reserved.def"
};
/* clang-format on */

const tt_reserved *tt_reserved_table(size_t *n)
{
    *n = TT_COUNT(reserved);
    return reserved;
}

static int compare(const void *key, const void *row)
{
    return strcmp(key, ((const tt_reserved *)row)->key);
}

static const tt_reserved *look_up(const char *key)
{
    return bsearch(key, reserved, TT_COUNT(reserved), sizeof *reserved, compare);
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
