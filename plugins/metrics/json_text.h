/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_METRICS_JSON_TEXT_H
#define TT_METRICS_JSON_TEXT_H
#include <stdio.h>

/* A JSON string of n bytes of UTF-8, quotes included. Code in a header because each sink is a library of its own. */
static inline void json_put_string(FILE *f, const char *s, size_t n)
{
    fputc('"', f);
    for (size_t i = 0; i < n; i++) {
        const unsigned char c = (unsigned char)s[i];
        if (c == '"' || c == '\\')
            fputc('\\', f);
        if (c < 0x20)
            fprintf(f, "\\u%04x", c);
        else
            fputc(c, f);
    }
    fputc('"', f);
}

#endif
