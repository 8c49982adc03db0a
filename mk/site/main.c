/* SPDX-License-Identifier: Apache-2.0 */
#include "site.h"

#include <cmark-gfm-core-extensions.h>
#include <ctype.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>

/* site ROOT OUT PAGES: the pages that the table PAGES names, of the tree ROOT, as HTML in OUT. */

/* docs/x.md → docs/x.html, README.md → index.html */
static char *out_of(const char *path)
{
    size_t n = strlen(path);
    const char *readme = "README.md";
    size_t r = strlen(readme);
    if (n >= r && strcmp(path + n - r, readme) == 0 && (n == r || path[n - r - 1] == '/'))
        return site_format("%.*sindex.html", (int)(n - r), path);
    if (n > 3 && strcmp(path + n - 3, ".md") == 0)
        n -= 3;
    return site_format("%.*s.html", (int)n, path);
}

static int read_table(site *s, const char *file)
{
    char *text = site_read(file), *state = NULL, *group = NULL;
    if (!text) {
        site_error(s, "%s: cannot be read", file);
        return -1;
    }
    for (char *line = strtok_r(text, "\n", &state); line; line = strtok_r(NULL, "\n", &state)) {
        if (*line == '#')
            continue;
        if (!isspace((unsigned char)*line)) {
            group = line;
            continue;
        }
        line += strspn(line, " \t");
        size_t n = strcspn(line, " \t");
        char *label = line + n + strspn(line + n, " \t");
        if (!group || !n || !*label) {
            site_error(s, "%s: \"%s\": a page needs a group above it, a file and a name", file,
                       line);
            return -1;
        }
        s->pages = site_grow(s->pages, s->n_pages, sizeof *s->pages);
        site_page *p = &s->pages[s->n_pages++];
        p->path = site_format("%.*s", (int)n, line);
        p->out = out_of(p->path);
        p->label = label;
        p->group = group;
    }
    if (s->n_pages > 0)
        return 0;
    site_error(s, "%s: names no page", file);
    return -1;
}

static void copy_files(site *s)
{
    for (size_t i = 0; i < s->n_files; i++) {
        FILE *from = fopen(site_format("%s/%s", s->root, s->files[i]), "rb");
        FILE *to = from ? site_open(s, s->files[i]) : NULL;
        char block[65536];
        size_t n;
        bool ok = to != NULL;
        while (ok && (n = fread(block, 1, sizeof block, from)) > 0)
            ok = fwrite(block, 1, n, to) == n;
        if (from)
            fclose(from);
        if (to && fclose(to) != 0)
            ok = false;
        if (!ok)
            site_error(s, "%s: cannot be copied", s->files[i]);
    }
}

int main(int argc, char **argv)
{
    site s = {0};
    if (argc != 4) {
        fprintf(stderr, "usage: site ROOT OUT PAGES\n");
        return 2;
    }
    s.root = argv[1];
    s.out = argv[2];
    if (!setlocale(LC_CTYPE, "C.UTF-8"))
        site_error(&s, "the locale C.UTF-8 is missing");
    cmark_gfm_core_extensions_ensure_registered();
    if (read_table(&s, argv[3]))
        return 1;
    for (size_t i = 0; i < s.n_pages; i++)
        site_parse(&s, &s.pages[i]);
    if (s.errors)
        return 1;
    for (size_t i = 0; i < s.n_pages; i++)
        site_link(&s, &s.pages[i]);
    for (size_t i = 0; i < s.n_pages; i++)
        if (site_write_page(&s, &s.pages[i]))
            return 1;
    if (site_write_index(&s))
        return 1;
    copy_files(&s);
    size_t n = 0;
    for (size_t i = 0; i < s.n_pages; i++)
        n += s.pages[i].n_sections;
    if (!s.errors)
        printf("%zu pages, %zu pictures, %zu sections and keys to search\n", s.n_pages, s.n_files,
               n);
    return s.errors ? 1 : 0;
}
