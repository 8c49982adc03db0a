/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "base.h"
#include <math.h>
#include <time.h>

int64_t tt_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

double tt_wall_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

void tt_wall_iso(double wall, char out[32])
{
    double ms = floor(wall * 1e3 + 0.5); /* round first, so that .9996 s carries into the seconds */
    time_t seconds = (time_t)floor(ms / 1e3);
    int rest = (int)(ms - (double)seconds * 1e3);
    struct tm tm;
    gmtime_r(&seconds, &tm);
    char date[24];
    strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%S", &tm);
    snprintf(out, 32, "%.19s.%03dZ", date, rest);
}
