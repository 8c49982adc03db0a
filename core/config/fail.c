/* SPDX-License-Identifier: Apache-2.0 */
#include "config/internal.h"
#include <string.h>

/* Error messages about a job: where the error is, what is wrong, and what the user may have
 * meant. */

static void fail_describe(const tt_json *v, tt_str *out)
{
    if (v->type == TT_JSON_STRING)
        tt_config_quote(v->string, out);
    else if (v->type == TT_JSON_ARRAY)
        tt_str_add(out, "a list");
    else if (v->type == TT_JSON_OBJECT)
        tt_str_add(out, "an object");
    else
        tt_json_write(v, out);
}

const char *tt_config_origin(tt_arena *a, const tt_json *v)
{
    if (!v->origin)
        return "default";
    if (v->origin->command_line || v->origin->layer < 0)
        return v->origin->name;
    return tt_arena_printf(a, "%s:%d:%d", v->origin->name, v->line, v->column);
}

static void where(const tt_json *v, const tt_json_pos *pos, const char *path, tt_str *out)
{
    const tt_json_origin *o = v->origin;
    if (o && o->command_line) {
        tt_str_add(out, o->name);
        if (strcmp(o->name + 2, path) == 0)
            path = "";
    } else if (o) {
        tt_str_printf(out, "%s:%d:%d", o->name, pos ? pos->line : v->line,
                      pos ? pos->column : v->column);
    }
    tt_str_printf(out, "%s%s", out->n && *path ? ": " : "", path);
}

tt_status tt_config_fail(const tt_json *v, const tt_json_pos *pos, const char *path, tt_error *err,
                         const char *fmt, ...)
{
    tt_str text = {0}, at = {0};
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, again);
    va_end(again);
    TT_ASSERT(n >= 0);
    tt_str_printf(&text, "%*s", n, "");
    vsnprintf(text.s, (size_t)n + 1, fmt, ap);
    va_end(ap);
    where(v, pos, path, &at);
    tt_status s = TT_FAIL(err, TT_EINVAL, "%s%s%s", tt_str_get(&at), at.n ? ": " : "", text.s);
    tt_str_free(&text);
    tt_str_free(&at);
    return s;
}

tt_status tt_config_fail_type(const tt_json *v, const char *path, const char *what, tt_error *err)
{
    const char *raw = v->origin ? v->origin->raw : NULL;
    tt_str got = {0};
    tt_error why = {0};
    tt_arena *a = tt_arena_new();
    tt_json_origin origin = {.name = "value"};
    tt_json *ignored;
    fail_describe(v, &got);
    if (raw && v->type == TT_JSON_STRING && (*raw == '{' || *raw == '[') &&
        tt_config_parse(a, &origin, raw, strlen(raw), &ignored, &why) != TT_OK)
        tt_str_printf(&got, " (as JSON: %s)", why.text);
    tt_status s = tt_config_fail(v, NULL, path, err, "expected %s, got %s", what, got.s);
    tt_arena_free(a);
    tt_str_free(&got);
    return s;
}

/* ---- did you mean …? */

/* The sections of a job, to suggest one for a misspelt section before its tables are known. */
static const char *const sections[] = {
    "spec",       "dump_folder", "extends",  "model",        "tokenizer",   "dataloader",
    "loss",       "optimizer",   "training", "lr_scheduler", "parallelism", "activation_checkpoint",
    "converters", "checkpoint",  "metrics",  "validation",   "profiling",   "comm",
    "backend",    "hooks",       "debug",    "log",
};

/* The key of another section with exactly this spelling. */
static const char *elsewhere(const tt_job *job, const char *key)
{
    for (size_t t = 0; t < job->book->tables.n; t++) {
        const tt_section_doc *d = &job->book->tables.items[t];
        for (size_t i = 0; i < d->n_options; i++) {
            tt_option o = tt_config_row(d->options, d->option_size, i);
            if (o.name && (strcmp(o.name, key) == 0 || tt_config_spelling(o.aliases, key)))
                return tt_config_join(job->arena, d->key, o.name);
        }
    }
    return NULL;
}

/* A name that begins with the key, or the other way round: seq_len, seq_length. */
static const char *same_start(const char *key, const char *const *names, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        size_t k = TT_MIN(strlen(key), strlen(names[i]));
        if (k >= 4 && strncmp(key, names[i], k) == 0)
            return names[i];
    }
    return NULL;
}

static const char *nearest(const char *key, const char *const *names, size_t n)
{
    const char *near = same_start(key, names, n);
    return near ? near : tt_nearest(key, names, n);
}

/* The key of another section with a similar name. */
static const char *near_elsewhere(const tt_job *job, const char *key)
{
    TT_VEC(const char *) names = {0};
    for (size_t t = 0; t < job->book->tables.n; t++) {
        const tt_section_doc *d = &job->book->tables.items[t];
        for (size_t i = 0; i < d->n_options; i++) {
            tt_option o = tt_config_row(d->options, d->option_size, i);
            if (o.name)
                tt_vec_push(job->arena, &names, o.name);
        }
    }
    const char *name = tt_nearest(key, names.items, names.n);
    return name ? elsewhere(job, name) : NULL;
}

static const char *suggest(const tt_job *job, const char *section, const char *key,
                           const char *path, const char *const *own, size_t n_own)
{
    if (!*section) {
        const char *name = nearest(key, sections, TT_COUNT(sections));
        if (name)
            return name;
    }
    const char *found = elsewhere(job, key);
    if (found && strcmp(found, path) != 0)
        return found;
    found = n_own ? nearest(key, own, n_own) : NULL;
    if (found)
        return tt_config_join(job->arena, section, found);
    return near_elsewhere(job, key);
}

/* A table that is known so far has the key. */
static bool has_row(const tt_job *job, const char *section, const char *key)
{
    for (size_t t = 0; t < job->book->tables.n; t++) {
        const tt_section_doc *d = &job->book->tables.items[t];
        for (size_t i = 0; i < d->n_options && !strcmp(d->key, section); i++) {
            tt_option o = tt_config_row(d->options, d->option_size, i);
            if (o.name && (!strcmp(o.name, key) || tt_config_spelling(o.aliases, key)))
                return true;
        }
    }
    return false;
}

/* Further keys of other trainers in the job, each with the key that it is here, so that a job of
 * theirs need not be tried once per key. */
typedef struct foreign_keys {
    const tt_job *job;
    const tt_reserved *told[16]; /* the key of the error first */
    size_t n;
    tt_str text;
} foreign_keys;

static void foreign_key(foreign_keys *f, const char *section, const char *key, const tt_json *v)
{
    const char *path = tt_config_join(f->job->arena, section, key);
    const tt_reserved *r = tt_reserved_find(path);
    if (!r || f->n == TT_COUNT(f->told) || r->kind == TT_RESERVED_ALIAS ||
        tt_config_idle(f->job, v, path) || has_row(f->job, section, key))
        return;
    for (size_t i = 0; i < f->n; i++)
        if (f->told[i] == r)
            return;
    f->told[f->n++] = r;
    tt_str_printf(&f->text, "%s%s", f->text.n ? ", " : "", path);
    if (r->kind == TT_RESERVED_MOVED || r->kind == TT_RESERVED_SAME)
        tt_str_printf(&f->text, " (here %.*s)", (int)strcspn(r->text, " ,:;("), r->text);
}

static const char *find_foreign(const tt_job *job, const tt_reserved *first)
{
    foreign_keys f = {.job = job, .told = {first}, .n = 1};
    const tt_json *root = job->root;
    for (size_t i = 0; i < root->n; i++) {
        const tt_json *v = root->items[i];
        if (v->type != TT_JSON_OBJECT) /* sections may have the name of another trainer's option */
            foreign_key(&f, "", root->keys[i], v);
        for (size_t m = 0; v->type == TT_JSON_OBJECT && m < v->n; m++)
            foreign_key(&f, root->keys[i], v->keys[m], v->items[m]);
    }
    const char *text =
        f.text.n ? tt_arena_printf(job->arena, "; other keys to change: %s%s", tt_str_get(&f.text),
                                   f.n == TT_COUNT(f.told) ? ", …" : "")
                 : "";
    tt_str_free(&f.text);
    return text;
}

/* The keys of a section that has few: " of sgd; there are lr, momentum", with the part's name if the
 * job names it; else the command that lists them. */
static const char *keys_there(const tt_job *job, const char *section, const char *const *own,
                              size_t n)
{
    const tt_json *name = tt_config_find(job, tt_config_join(job->arena, section, "name"));
    bool named = false;
    tt_str list = {0};
    if (!*section || !n)
        return "";
    for (size_t i = 0; i < n && name && name->type == TT_JSON_STRING; i++)
        named = named || !strcmp(own[i], "name");
    if (n > 16)
        return tt_arena_printf(job->arena, "; `ttrun config --explain %s` lists them", section);
    if (named)
        tt_str_printf(&list, " of %s", name->string);
    for (size_t i = 0, listed = 0; i < n; i++)
        if (!named || strcmp(own[i], "name") != 0)
            tt_str_printf(&list, "%s%s", listed++ ? ", " : "; there are ", own[i]);
    const char *text = tt_arena_str(job->arena, tt_str_get(&list));
    tt_str_free(&list);
    return text;
}

tt_status tt_config_fail_unknown(const tt_job *job, const tt_json *object, size_t i,
                                 const char *section, const char *const *own, size_t n_own,
                                 tt_error *err)
{
    const char *key = object->keys[i];
    const char *path = tt_config_join(job->arena, section, key);
    const tt_reserved *known = tt_reserved_find(path);
    const char *meant = known ? NULL : suggest(job, section, key, path, own, n_own);
    const char *shown = tt_config_join(job->arena, section, tt_config_key(job->arena, key));
    const tt_json *v = object->items[i];
    const tt_json_pos *pos = &object->key_pos[i];
    if (known)
        return tt_config_fail(v, pos, shown, err, "%s%s", tt_reserved_answer(job->arena, known),
                              find_foreign(job, known));
    if (!meant && !strcmp(section, "model") && strcmp(key, "args") != 0)
        return tt_config_fail(v, pos, shown, err,
                              "unknown key; sizes of a model are in model.args, "
                              "as in model.args.%s",
                              key);
    if (!meant)
        return tt_config_fail(v, pos, shown, err, "unknown key%s",
                              keys_there(job, section, own, n_own));
    return tt_config_fail(v, pos, shown, err, "unknown key (did you mean %s?)", meant);
}
