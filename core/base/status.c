/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "internal.h"
#include <errno.h>
#include <string.h>

/* Makes the text one line, as an error is. */
static void one_line(char *text)
{
    for (char *p = text; *p; p++)
        if (*p == '\n' || *p == '\r')
            *p = ' ';
    for (size_t n = strlen(text); n > 0 && text[n - 1] == ' '; n--)
        text[n - 1] = '\0';
}

/* Truncation may have split a UTF-8 sequence: this removes its first part. */
static void trim_cut(char *text, size_t size, int wanted)
{
    if (wanted >= 0 && (size_t)wanted >= size)
        text[tt_utf8_valid(text, strlen(text))] = '\0';
}

tt_status tt_fail(tt_error *err, tt_status code, const char *fmt, ...)
{
    if (!err)
        return code;
    char text[sizeof err->text]; /* the arguments may point into err->text */
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    trim_cut(text, sizeof text, n);
    one_line(text);
    err->code = code;
    memcpy(err->text, text, sizeof text);
    return code;
}

tt_status tt_error_context(tt_error *err, const char *fmt, ...)
{
    if (!err)
        return TT_EINTERNAL; /* without err the code is not known, but it is still a failure */
    char text[sizeof err->text];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    trim_cut(text, sizeof text, n);
    size_t used = strlen(text);
    n = snprintf(text + used, sizeof text - used, ": %s", err->text);
    trim_cut(text, sizeof text - used, n);
    one_line(text);
    memcpy(err->text, text, sizeof text);
    if (err->code == TT_OK) /* the caller has failed, even if no error was raised */
        err->code = TT_EINTERNAL;
    return err->code;
}

void tt_error_clear(tt_error *err)
{
    if (!err)
        return;
    err->code = TT_OK;
    err->text[0] = '\0';
}

/* Turns a plugin's text into one line without control characters. */
static void clean(char *text, size_t size)
{
    text[size - 1] = '\0';
    for (unsigned char *p = (unsigned char *)text; *p; p++)
        if (*p < ' ' || *p == 0x7f)
            *p = ' ';
    one_line(text);
}

tt_status tt_plugin_status(tt_status s, tt_error *err, const char *kind, const char *name)
{
    if (s == TT_OK)
        return TT_OK;
    const char *blank = name ? " " : "";
    name = name ? name : "";
    if (!strcmp(tt_status_name(s), "TT_UNKNOWN")) {
        const int number = (int)s;
        s = TT_EIO;
        if (!err || !err->text[0])
            return TT_FAIL(err, s,
                           "%s%s%s failed without a message; it returned %d, which is not a "
                           "status of <ttrun/status.h>",
                           kind, blank, name, number);
    }
    if (!err)
        return s;
    clean(err->text, sizeof err->text);
    if (!err->text[0])
        return TT_FAIL(err, s, "%s%s%s failed without a message (%s)", kind, blank, name,
                       tt_status_text(s));
    err->code = s;
    return s;
}

tt_status tt_fail_errno(tt_error *err, int errno_value, const char *verb, const char *path)
{
    char buf[128];
    const char *text = strerror_r(errno_value, buf, sizeof buf); /* GNU's: thread-safe */
    tt_status code = errno_value == ENOENT || errno_value == ENOTDIR ? TT_ENOTFOUND
                     : errno_value == EEXIST                         ? TT_EEXIST
                     : errno_value == ENOMEM                         ? TT_ENOMEM
                                                                     : TT_EIO;
    return tt_fail(err, code, "%s: cannot %s: %s", path, verb, text);
}

const char *tt_status_name(tt_status s)
{
    switch (s) {
#define NAME(name, value, text)                                                                    \
    case name:                                                                                     \
        return #name;
        TT_STATUS_LIST(NAME)
#undef NAME
    }
    return "TT_UNKNOWN";
}

const char *tt_status_text(tt_status s)
{
    switch (s) {
#define TEXT(name, value, text)                                                                    \
    case name:                                                                                     \
        return text;
        TT_STATUS_LIST(TEXT)
#undef TEXT
    }
    return "unknown status";
}
