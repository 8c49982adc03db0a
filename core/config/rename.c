/* SPDX-License-Identifier: Apache-2.0 */
#include "config/rename.h"
#include <string.h>

static tt_status make_rule(tt_arena *a, const char *text, tt_rename *out, tt_error *err)
{
    const char *equals = strrchr(text, '=');
    tt_error why = {0};
    if (!equals || equals == text)
        return TT_FAIL(err, TT_EINVAL, "expected \"PATTERN=NAME\"; got \"%.80s\"", text);
    *out = (tt_rename){.text = text, .to = equals + 1};
    const char *pattern = tt_arena_strn(a, text, (size_t)(equals - text));
    if (tt_pattern_new(a, pattern, &out->pattern, &why) == TT_OK)
        return TT_OK;
    return TT_FAIL(err, TT_EINVAL, "\"%.80s\": %s", text, why.text);
}

tt_status tt_renames_make(tt_arena *a, const tt_strings *texts, tt_renames *out, tt_error *err)
{
    *out = (tt_renames){tt_arena_array(a, texts->n + 1, sizeof *out->items), texts->n};
    for (size_t i = 0; i < texts->n; i++)
        TT_TRY(make_rule(a, texts->items[i], &out->items[i], err));
    return TT_OK;
}

tt_status tt_renames_apply(tt_renames *r, tt_arena *a, const char *name, const char **out,
                           tt_error *err)
{
    tt_error why = {0};
    *out = name;
    for (size_t i = 0; i < r->n; i++) {
        tt_rename *rule = &r->items[i];
        bool matched = false;
        if (tt_pattern_replace(rule->pattern, a, name, rule->to, &matched, out, &why) != TT_OK)
            return TT_FAIL(err, TT_EINVAL, "\"%.80s\": %s", rule->text, why.text);
        if (!matched)
            continue;
        rule->used = true;
        if (!**out)
            return TT_FAIL(err, TT_EINVAL, "\"%.80s\" leaves no name of tensor '%s'", rule->text,
                           name);
        return TT_OK;
    }
    return TT_OK;
}
