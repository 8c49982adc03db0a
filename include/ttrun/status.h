/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TTRUN_STATUS_H
#define TTRUN_STATUS_H

/* Status codes, and the error object that every function that can fail writes to.
 *   A function that can fail returns tt_status (0 or negative), takes `tt_error *err` last, and
 *   leaves its out-parameters untouched on failure. tt_fail() is the only way to raise an error;
 *   tt_error_context() adds where it happened. An error is one line: what is wrong, where, what to
 *   do.   Owner: the caller owns the tt_error; one thread at a time uses it. */

#ifdef __cplusplus
extern "C" {
#endif

#define TT_EXPORT __attribute__((visibility("default")))
#if defined(__GNUC__)
#define TT_PRINTF(fmt, first) __attribute__((format(printf, fmt, first)))
#else
#define TT_PRINTF(fmt, first)
#endif

/* `tt_rope_opts o = TT_ZERO;`, then set the fields that differ from the defaults. Neither C11 nor
 * C++20 warns about this spelling. */
#ifdef __cplusplus
/* clang-format off */
#define TT_ZERO {}
#else
#define TT_ZERO {0}
#endif
/* clang-format on */

/* X(name, value, text for people) */
#define TT_STATUS_LIST(X)                                                                          \
    X(TT_OK, 0, "success")                                                                         \
    X(TT_EINVAL, -1, "invalid argument, job or data")                                              \
    X(TT_ENOMEM, -2, "out of memory")                                                              \
    X(TT_EIO, -3, "input/output error")                                                            \
    X(TT_EFORMAT, -4, "malformed file")                                                            \
    X(TT_ENOTFOUND, -5, "not found")                                                               \
    X(TT_EEXIST, -6, "exists already")                                                             \
    X(TT_EABI, -7, "incompatible plugin")                                                          \
    X(TT_ENUMERIC, -8, "non-finite number")                                                        \
    X(TT_ECOMM, -9, "communication failed")                                                        \
    X(TT_ETIMEOUT, -10, "timed out")                                                               \
    X(TT_ESIGNAL, -11, "stopped by a signal")                                                      \
    X(TT_EUNSUPPORTED, -12, "not supported")                                                       \
    X(TT_EBUSY, -13, "in use")                                                                     \
    X(TT_EINTERNAL, -14, "internal error")

typedef enum tt_status {
#define TT_STATUS_ENUM(name, value, text) name = value,
    TT_STATUS_LIST(TT_STATUS_ENUM)
#undef TT_STATUS_ENUM
} tt_status;

typedef struct tt_error {
    tt_status code;
    char text[1020]; /* NUL-terminated, no newline */
} tt_error;

/* Raises an error: formats into *err (may be NULL) and returns code. A newline in the text becomes
 * a blank. [any-thread] */
TT_EXPORT tt_status tt_fail(tt_error *err, tt_status code, const char *fmt, ...) TT_PRINTF(3, 4);

/* Prefixes err's text with "<context>: ". Returns err->code, so that `return tt_error_context(err,
 * …)` works. It is called after a failure only: it returns TT_EINTERNAL if err holds no error or is
 * NULL. [any-thread] */
TT_EXPORT tt_status tt_error_context(tt_error *err, const char *fmt, ...) TT_PRINTF(2, 3);

/* Static strings; an unknown code gives a text that says so, never NULL. [any-thread] */
TT_EXPORT const char *tt_status_name(tt_status s); /* "TT_EINVAL"                       */
TT_EXPORT const char *tt_status_text(tt_status s); /* "invalid argument, job or data"   */

#define TT_FAIL(err, code, ...) tt_fail((err), (code), __VA_ARGS__)
#define TT_TRY(expr)                                                                               \
    do {                                                                                           \
        tt_status tt_try_ = (expr);                                                                \
        if (tt_try_ != TT_OK)                                                                      \
            return tt_try_;                                                                        \
    } while (0)

#ifdef __cplusplus
}
#endif
#endif
