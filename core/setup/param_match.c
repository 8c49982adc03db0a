/* SPDX-License-Identifier: Apache-2.0 */
#include "setup/param_match.h"
#include <string.h>

bool tt_has_tag(const char *tags, const char *tag)
{
    const size_t n = strlen(tag);
    for (const char *p = tags; p && *p; p = strchr(p, ',') ? strchr(p, ',') + 1 : NULL)
        if (!strncmp(p, tag, n) && (p[n] == ',' || !p[n]))
            return true;
    return false;
}

const char *tt_param_match_shown(tt_arena *a, const char *text)
{
    const size_t most = 60;
    if (strlen(text) <= most)
        return text;
    return tt_arena_printf(a, "%s…", tt_arena_strn(a, text, tt_utf8_valid(text, most)));
}

tt_status tt_param_match_make(tt_arena *a, const char *text, tt_param_match *out, tt_error *err)
{
    tt_error why = {0};
    *out = (tt_param_match){.text = text};
    if (!strncmp(text, "tag:", 4)) {
        out->tag = text + 4;
        return TT_OK;
    }
    if (tt_pattern_new(a, text, &out->pattern, &why) != TT_OK)
        return TT_FAIL(err, TT_EINVAL, "\"%s\" is not a regular expression: %s",
                       tt_param_match_shown(a, text), why.text);
    return TT_OK;
}

bool tt_param_match_test(tt_param_match *m, const char *name, const char *tags, tt_arena *a)
{
    bool yes = false;
    tt_error why = {0};
    if (m->tag)
        return tt_has_tag(tags, m->tag);
    if (m->fault) /* reported when all parameters are known */
        return false;
    if (tt_pattern_match(m->pattern, name, &yes, &why) != TT_OK)
        m->fault = tt_arena_printf(a, "%s: %s", name, why.text);
    return yes;
}
