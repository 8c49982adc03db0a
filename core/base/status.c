/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "internal.h"
#include <errno.h>
#include <stdlib.h>
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

/* Moves *at to the beginning of a UTF-8 sequence, forwards or backwards. */
static size_t at_sequence(const char *text, size_t at, int step)
{
    for (int i = 0; i < 3 && at > 0 && ((unsigned char)text[at] & 0xc0) == 0x80; i++)
        at = step > 0 ? at + 1 : at - 1;
    return at;
}

/* Copies a text of n bytes; of a longer one than fits, its beginning and its end: a long path is in
 * the middle, and the reason at the end. */
static void put_text(char *out, size_t size, const char *text, size_t n)
{
    static const char gap[] = " … ";
    const size_t most = size - 1, part = (most - (sizeof gap - 1)) / 2;
    if (n <= most) {
        memcpy(out, text, n + 1);
    } else {
        const size_t head = at_sequence(text, part, -1), tail = at_sequence(text, n - part, 1);
        snprintf(out, size, "%.*s%s%s", (int)head, text, gap, text + tail);
    }
    one_line(out);
}

/* Formats into *out: `room`, or memory for the caller to free. The arguments may point into the
 * error that will get the text. */
static size_t format(char *room, size_t size, char **out, const char *fmt, va_list ap)
{
    va_list again;
    va_copy(again, ap);
    const int n = vsnprintf(room, size, fmt, ap);
    *out = room;
    if (n >= 0 && (size_t)n >= size) {
        char *whole = malloc((size_t)n + 1);
        if (whole) {
            vsnprintf(whole, (size_t)n + 1, fmt, again);
            *out = whole;
        }
    }
    va_end(again);
    return strlen(*out);
}

tt_status tt_fail(tt_error *err, tt_status code, const char *fmt, ...)
{
    if (!err)
        return code;
    char room[sizeof err->text], *text;
    va_list ap;
    va_start(ap, fmt);
    const size_t n = format(room, sizeof room, &text, fmt, ap);
    va_end(ap);
    put_text(err->text, sizeof err->text, text, n);
    if (text != room)
        free(text);
    err->code = code;
    return code;
}

tt_status tt_error_context(tt_error *err, const char *fmt, ...)
{
    if (!err)
        return TT_EINTERNAL; /* without err the code is not known, but it is still a failure */
    char room[sizeof err->text], both[2 * sizeof err->text + 2], *text;
    va_list ap;
    va_start(ap, fmt);
    const size_t n = format(room, sizeof room, &text, fmt, ap);
    va_end(ap);
    put_text(both, sizeof err->text, text, n);
    if (text != room)
        free(text);
    const size_t used = strlen(both);
    const int more = snprintf(both + used, sizeof both - used, ": %s", err->text);
    put_text(err->text, sizeof err->text, both, used + (size_t)more);
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
