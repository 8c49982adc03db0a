/* SPDX-License-Identifier: Apache-2.0 */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

/* sqlite_tool FILE SQL: prints the rows of a query, a line each, with a blank between the columns. Ends 77 if this machine
 * has no SQLite. */

static int print_row(void *unused, int n, char **values, char **names)
{
    (void)unused;
    (void)names;
    for (int i = 0; i < n; i++)
        printf("%s%s", i ? " " : "", values[i] ? values[i] : "null");
    putchar('\n');
    return 0;
}

static void load(void *library, const char *name, void *to)
{
    void *f = library ? dlsym(library, name) : NULL;
    memcpy(to, &f, sizeof f);
}

int main(int argc, char **argv)
{
    int (*open)(const char *, void **);
    int (*exec)(void *, const char *, int (*)(void *, int, char **, char **), void *, char **);
    const char *(*errmsg)(void *);
    int (*close)(void *);
    void *library = dlopen("libsqlite3.so.0", RTLD_NOW), *db = NULL;
    load(library, "sqlite3_open", &open);
    load(library, "sqlite3_exec", &exec);
    load(library, "sqlite3_errmsg", &errmsg);
    load(library, "sqlite3_close", &close);
    if (!open || !exec || !errmsg || !close)
        return 77;
    if (argc != 3 || open(argv[1], &db) || exec(db, argv[2], print_row, NULL, NULL)) {
        fprintf(stderr, "sqlite_tool: %s\n", db ? errmsg(db) : "FILE SQL");
        return 1;
    }
    return close(db);
}
