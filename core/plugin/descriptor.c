/* SPDX-License-Identifier: Apache-2.0 */
#include "internal.h"
#include <string.h>

/* The basic checks of a plugin's descriptor: sizes, pointers, texts and arrays. */

const tt_component *tt_component_at(const tt_plugin *p, size_t i)
{
    return (const void *)((const char *)p->components + i * p->component_size);
}

tt_status tt_check_size(const tt_check *c, const char *what, size_t got, size_t v1_0, size_t ours,
                        tt_error *err)
{
    const int ours_minor = TT_ABI_MINOR, minor = c->plugin->abi_minor;
    const size_t least = minor < ours_minor ? v1_0 : ours;
    const size_t most = minor > ours_minor ? TT_STRUCT_MAX : ours;
    if (got >= least && got <= most)
        return TT_OK;
    return TT_FAIL(
        err, TT_EABI,
        "%s: it claims %zu bytes, but ABI %u.%d has %s%zu: rebuild it against this ttrun's headers",
        what, got, (unsigned)c->plugin->abi_major, minor, minor > ours_minor ? "at least " : "",
        ours);
}

tt_status tt_check_array(const tt_check *c, const char *what, const void *p, size_t n, size_t size,
                         tt_error *err)
{
    if (n == 0 ||
        (n <= SIZE_MAX / size && tt_image_readable(&c->image, p, n * size, TT_CHECK_ALIGN)))
        return TT_OK;
    return TT_FAIL(err, TT_EABI, "%s: %zu of %zu bytes at %p lie outside the plugin's data", what,
                   n, size, p);
}

tt_status tt_check_text(const tt_check *c, const char *what, const char *s, bool required,
                        tt_error *err)
{
    if (!s)
        return required ? TT_FAIL(err, TT_EABI, "%s is NULL", what) : TT_OK;
    if (!tt_image_text(&c->image, s, TT_TEXT_MAX))
        return TT_FAIL(err, TT_EABI, "%s points to no text of the plugin", what);
    if (required && !*s)
        return TT_FAIL(err, TT_EABI, "%s is empty", what);
    if (tt_utf8_valid(s, strlen(s)) != strlen(s))
        return TT_FAIL(err, TT_EABI, "%s is not UTF-8", what);
    return TT_OK;
}

const tt_option *tt_option_at(const tt_component *k, size_t i)
{
    return (const void *)((const char *)k->options + i * k->option_size);
}
