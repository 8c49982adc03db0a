/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/cli.h"
#include "cli/plugin_new.h"
#include "conformance/plugin_check.h"
#include <stdio.h>
#include <string.h>

static void print_result(const tt_str *s)
{
    fputs(tt_str_get(s), stdout);
    fflush(stdout);
}

/* ---- list ---- */

typedef struct row {
    const char *kind, *name, *version, *file, *doc;
} row;
typedef TT_VEC(row) rows;

static tt_status collect_kind(tt_arena *a, tt_registry *r, tt_kind kind, rows *out, tt_str *faults,
                              tt_error *err)
{
    const tt_component **list = NULL;
    size_t n = 0;
    TT_TRY(tt_registry_all(r, kind, a, &list, &n, faults, err));
    for (size_t i = 0; i < n; i++) {
        row w = {tt_kind_name(kind), list[i]->name, tt_registry_version(r, list[i]),
                 tt_registry_file(r, list[i]), list[i]->doc};
        tt_vec_push(a, out, w);
    }
    return TT_OK;
}

static void print_table(const rows *t, tt_str *out)
{
    static const row head = {"KIND", "NAME", "VERSION", "FILE", "WHAT IT IS"};
    size_t kind = strlen(head.kind), name = strlen(head.name), version = strlen(head.version),
           doc = strlen(head.doc);
    for (size_t i = 0; i < t->n; i++) {
        kind = TT_MAXV(kind, strlen(t->items[i].kind));
        name = TT_MAXV(name, strlen(t->items[i].name));
        version = TT_MAXV(version, strlen(t->items[i].version));
        doc = TT_MAXV(doc, strlen(t->items[i].doc));
    }
    for (size_t i = 0; i <= t->n; i++) {
        const row *w = i ? &t->items[i - 1] : &head;
        tt_str_printf(out, "%-*s  %-*s  %-*s  %-*s  %s\n", (int)kind, w->kind, (int)name, w->name,
                      (int)version, w->version, (int)doc, w->doc, w->file);
    }
}

static void print_member(tt_str *out, const char *key, const char *value, char before)
{
    tt_str_printf(out, "%c\"%s\":", before, key);
    tt_str_json(out, value);
}

static void print_json(const rows *t, char *const *faults, size_t n_faults, tt_str *out)
{
    tt_str_add(out, "{\"plugins\":[");
    for (size_t i = 0; i < t->n; i++) {
        const row *w = &t->items[i];
        tt_str_add(out, i ? ",\n" : "\n");
        print_member(out, "kind", w->kind, '{');
        print_member(out, "name", w->name, ',');
        print_member(out, "version", w->version, ',');
        print_member(out, "file", w->file, ',');
        print_member(out, "doc", w->doc, ',');
        tt_str_addc(out, '}');
    }
    tt_str_add(out, "],\n\"faults\":[");
    for (size_t i = 0; i < n_faults; i++) {
        tt_str_add(out, i ? ",\n" : "\n");
        tt_str_json(out, faults[i]);
    }
    tt_str_add(out, "]}\n");
}

typedef TT_VEC(char *) lines;

/* Prints each line once, since every requested kind reports the same files. */
static void distinct_lines(tt_arena *a, const tt_str *text, lines *out)
{
    for (const char *p = tt_str_get(text); *p;) {
        size_t n = strcspn(p, "\n"), i = 0;
        while (i < out->n && (strncmp(out->items[i], p, n) != 0 || out->items[i][n] != '\0'))
            i++;
        if (i == out->n)
            tt_vec_push(a, out, tt_arena_strn(a, p, n));
        p += n + (p[n] == '\n');
    }
}

static tt_status list(const tt_cli *cli, tt_registry *r, tt_kind only, tt_error *err)
{
    tt_arena *a = tt_arena_new();
    tt_str faults = {0}, out = {0};
    tt_status status = TT_OK;
    rows table = {0};
    lines bad = {0};
    for (int k = 1; k < (int)TT_KIND_END && status == TT_OK; k++)
        if (only == TT_KIND_END || k == (int)only)
            status = collect_kind(a, r, (tt_kind)k, &table, &faults, err);
    if (status == TT_OK) {
        distinct_lines(a, &faults, &bad);
        if (cli->json)
            print_json(&table, bad.items, bad.n, &out);
        else
            print_table(&table, &out);
        print_result(&out);
        for (size_t i = 0; i < bad.n; i++)
            tt_log(TT_WARN, "plugin", "%s", bad.items[i]);
    }
    tt_str_free(&faults);
    tt_str_free(&out);
    tt_arena_free(a);
    return status;
}

static tt_status cmd_list(const tt_cli *cli, const char *kind_name, tt_error *err)
{
    tt_kind only = TT_KIND_END;
    tt_registry *r = NULL;
    tt_registry_opts o = {
        .dirs = cli->plugin_dirs, .n_dirs = cli->n_plugin_dirs, .only_dirs = cli->only_plugin_dirs};
    if (kind_name)
        TT_TRY(tt_kind_parse(kind_name, &only, err));
    TT_TRY(tt_registry_new(&o, &r, err));
    tt_status status = list(cli, r, only, err);
    tt_registry_free(r);
    return status;
}

static tt_status cmd_check(const tt_cli *cli, const char *file, tt_error *err)
{
    const tt_check_opts o = {.plugin_dirs = cli->plugin_dirs,
                             .n_plugin_dirs = cli->n_plugin_dirs,
                             .only_plugin_dirs = cli->only_plugin_dirs,
                             .overrides = cli->overrides,
                             .n_overrides = cli->n_overrides,
                             .json = cli->json,
                             .verbose = cli->verbose > 0};
    tt_str out = {0};
    tt_status status = tt_plugin_check(&o, file, &out, err);
    print_result(&out);
    tt_str_free(&out);
    return status;
}

static tt_status cmd_new(const char *kind, const char *name, tt_error *err)
{
    tt_str out = {0};
    TT_TRY(tt_plugin_new(kind, name, err));
    tt_str_printf(&out, "%s/%s.c %s/Makefile %s/README.md: try make -C %s check\n", name, name,
                  name, name, name);
    print_result(&out);
    tt_str_free(&out);
    return TT_OK;
}

tt_status tt_cmd_plugins(const tt_cli *cli, int argc, char **argv, tt_error *err)
{
    const char *verb = argc > 0 ? argv[0] : "list";
    if (strcmp(verb, "list") == 0 && argc <= 2)
        return cmd_list(cli, argc > 1 ? argv[1] : NULL, err);
    if (strcmp(verb, "check") == 0 && argc == 2)
        return cmd_check(cli, argv[1], err);
    if (strcmp(verb, "new") == 0 && argc == 3)
        return cmd_new(argv[1], argv[2], err);
    return tt_cli_wrong_words(cli, &tt_cmd_plugins_, err);
}

static tt_status run_plugins(tt_cli *cli, tt_error *err)
{
    return tt_cmd_plugins(cli, cli->n_words, cli->words, err);
}

const tt_command tt_cmd_plugins_ = {.name = "plugins",
                                    .forms = "list [KIND]\ncheck FILE.so\nnew KIND NAME",
                                    .doc = "list plugins; check one; create one",
                                    .run = run_plugins,
                                    .words = 4};
