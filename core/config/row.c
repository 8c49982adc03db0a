/* SPDX-License-Identifier: Apache-2.0 */
#include "config/internal.h"
#include <string.h>

/* Reads a row of an option table, whose rows may be shorter or longer than tt_option. */

tt_option tt_config_row(const tt_option *options, size_t option_size, size_t i)
{
    tt_option o = {0};
    memcpy(&o, (const char *)options + i * option_size, TT_MIN(option_size, sizeof o));
    return o;
}

bool tt_config_spelling(const char *list, const char *name)
{
    size_t n = strlen(name);
    for (const char *p = list; p && *p;) {
        size_t k = strcspn(p, "|");
        if (k == n && memcmp(p, name, n) == 0)
            return true;
        p += k + (p[k] == '|');
    }
    return false;
}
