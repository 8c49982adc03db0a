/* SPDX-License-Identifier: Apache-2.0 */
#include "base.h"
#include "number.h"
#include <math.h>
#include <string.h>

int tt_grouped(char *buf, size_t size, double x, int digits)
{
    char plain[64];
    if (!isfinite(x) || fabs(x) >= 1e18)
        return snprintf(buf, size, "%g", x);
    const int n = snprintf(plain, sizeof plain, "%.*f", digits, x);
    const char *dot = strchr(plain, '.');
    const int whole = dot ? (int)(dot - plain) : n, sign = plain[0] == '-';
    size_t out = 0;
    for (int i = 0; i < n && out + 2 < size; i++) {
        if (i > sign && i < whole && (whole - i) % 3 == 0)
            buf[out++] = ',';
        buf[out++] = plain[i];
    }
    buf[out] = '\0';
    return (int)out;
}

const char *tt_memory_text(char buf[24], double gib)
{
    if (isnan(gib))
        snprintf(buf, 24, "-");
    else if (gib < 1)
        snprintf(buf, 24, "%.0f MiB", gib * 1024);
    else
        snprintf(buf, 24, "%.2f GiB", gib);
    return buf;
}
