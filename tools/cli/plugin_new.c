/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin_new.h"
#include "plugin/registry.h"
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

/* Fills in the placeholders of a template. */
typedef struct field {
    const char *mark, *value;
} field;

static void template_fill(const char *template, const field *fields, size_t n, tt_str *out)
{
    for (const char *p = template; *p;) {
        size_t i = 0;
        while (i < n && strncmp(p, fields[i].mark, strlen(fields[i].mark)) != 0)
            i++;
        if (i < n) {
            template_fill(fields[i].value, fields, n, out); /* @USE@ holds @NAME@ */
            p += strlen(fields[i].mark);
        } else {
            tt_str_addc(out, *p++);
        }
    }
}

static tt_status check_name(const char *name, tt_error *err)
{
    if (!*name || strlen(name) > 64 ||
        strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_") != strlen(name))
        return TT_FAIL(err, TT_EINVAL,
                       "\"%.80s\" cannot be the name of a plugin: use at most 64 of a-z, 0-9 and _",
                       name);
    return TT_OK;
}

static tt_status write_filled(tt_arena *a, const char *folder, const char *name,
                              const char *template, const field *fields, size_t n, tt_error *err)
{
    tt_str text = {0};
    template_fill(template, fields, n, &text);
    tt_status status =
        tt_write_file_atomic(tt_path_join(a, folder, name), tt_str_get(&text), text.n, err);
    tt_str_free(&text);
    return status;
}

static tt_status write_all(tt_arena *a, const tt_template *t, const char *name, tt_error *err)
{
    const char *kind = tt_kind_name(t->kind);
    const field fields[] = {
        {"@NAME@",   name             },
        {"@KIND@",   kind             },
        {"@HEADER@", tt_arena_printf(a, "%s.h", kind)},
        {"@USE@",     t->use                     },
    };
    const size_t n = TT_COUNT(fields);
    if (mkdir(name, 0777) != 0)
        return errno == EEXIST
                   ? TT_FAIL(err, TT_EEXIST, "%s: exists already; remove it or choose another name",
                             name)
                   : TT_FAIL(err, TT_EIO, "%s: cannot be created: %s", name, strerror(errno));
    TT_TRY(write_filled(a, name, tt_arena_printf(a, "%s.c", name), t->source, fields, n, err));
    TT_TRY(write_filled(a, name, "Makefile", tt_plugin_template_makefile(), fields, n, err));
    return write_filled(a, name, "README.md", tt_plugin_template_readme(), fields, n, err);
}

tt_status tt_plugin_new(const char *kind_name, const char *name, tt_error *err)
{
    tt_kind kind = TT_KIND_END;
    TT_TRY(tt_kind_parse(kind_name, &kind, err));
    const tt_template *t = tt_plugin_template(kind);
    if (!t)
        return TT_FAIL(
            err, TT_EUNSUPPORTED,
            "there is no scaffold of kind %s: see <ttrun/%s.h> and plugins/%s of ttrun's "
            "sources",
            tt_kind_name(kind), tt_kind_name(kind), tt_kind_folder(kind));
    TT_TRY(check_name(name, err));
    tt_arena *a = tt_arena_new();
    tt_status status = write_all(a, t, name, err);
    tt_arena_free(a);
    return status;
}
