/* SPDX-License-Identifier: Apache-2.0 */
#include "base/wrapped.h"
#include <string.h>

#define COLUMNS 80

static int columns_of(const char *text, size_t n)
{
    int sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += ((unsigned char)text[i] & 0xc0) != 0x80; /* not inside a character */
    return sum;
}

void tt_wrapped_text(tt_str *o, int indent, const char *text)
{
    int at = indent;
    for (const char *p = text; *p;) {
        const size_t n = strcspn(p, " ");
        const int wide = columns_of(p, n);
        if (at > indent && at + 1 + wide > COLUMNS) {
            tt_str_printf(o, "\n%*s", indent, "");
            at = indent;
        }
        if (at > indent) {
            tt_str_addc(o, ' ');
            at++;
        }
        tt_str_printf(o, "%.*s", (int)n, p);
        at += wide;
        p += n + (p[n] == ' ');
    }
    tt_str_addc(o, '\n');
}
