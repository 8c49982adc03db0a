/* SPDX-License-Identifier: Apache-2.0 */
#include "site.h"

#include <cmark-gfm-core-extensions.h>
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

/* Opens a file of the site for writing; makes the folders above it. */
FILE *site_open(site *s, const char *out)
{
    char *path = site_format("%s/%s", s->out, out);
    for (char *c = strchr(path + 1, '/'); c; c = strchr(c + 1, '/')) {
        *c = 0;
        mkdir(path, 0777); /* if it fails, so does fopen */
        *c = '/';
    }
    FILE *f = fopen(path, "wb");
    if (!f)
        site_error(s, "%s: cannot be written: %s", path, strerror(errno));
    return f;
}

static void write_up(FILE *f, const site_page *p)
{
    for (const char *c = p->out; *c; c++)
        if (*c == '/')
            fputs("../", f);
}

static void write_link(FILE *f, const site_page *from, const site_page *to, const char *attributes,
                       const char *text)
{
    fprintf(f, "<a%s href=\"", attributes);
    write_up(f, from);
    fprintf(f, "%s\">", to->out);
    site_escape(f, text);
    fputs("</a>", f);
}

/* The theme is set before anything is painted. Without a script there is no search and no switch. */
static void write_head(FILE *f, const site_page *p)
{
    fputs("<!doctype html>\n<html lang=\"en\" data-root=\"", f);
    write_up(f, p);
    fputs("\">\n<head>\n<meta charset=\"utf-8\">\n"
          "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>",
          f);
    site_escape(f, p->title);
    fputs(strcmp(p->out, "index.html") == 0 ? "" : " - ttrun", f);
    fputs("</title>\n<link rel=\"stylesheet\" href=\"", f);
    write_up(f, p);
    fputs("style.css\">\n<script>try{document.documentElement.dataset.theme="
          "localStorage.getItem(\"theme\")||\"\"}catch(e){}</script>\n<script defer src=\"",
          f);
    write_up(f, p);
    fputs("page.js\"></script>\n</head>\n", f);
}

static void write_header(FILE *f, const site *s, const site_page *p)
{
    fputs("<body>\n<a class=\"skip\" href=\"#content\">Skip to the text</a>\n<header>\n", f);
    write_link(f, p, &s->pages[0], " class=\"home\"", "ttrun");
    fputs("\n<a class=\"menu\" href=\"#pages\">Pages</a>\n"
          "<form id=\"search\" role=\"search\" hidden>\n"
          "<input type=\"search\" id=\"query\" placeholder=\"Search  ( / )\" autocomplete=\"off\" "
          "spellcheck=\"false\" role=\"combobox\" aria-label=\"Search all pages\" "
          "aria-expanded=\"false\" aria-controls=\"results\" aria-autocomplete=\"list\">\n"
          "<div id=\"results\" role=\"listbox\" aria-label=\"Sections found\" hidden></div>\n"
          "<p id=\"found\" class=\"hear\" role=\"status\"></p>\n</form>\n"
          "<button id=\"theme\" type=\"button\" hidden>Theme</button>\n</header>\n",
          f);
}

static void write_nav(FILE *f, const site *s, const site_page *p)
{
    const char *group = "";
    fputs("<nav id=\"pages\" aria-label=\"Pages\">\n", f);
    for (size_t i = 0; i < s->n_pages; i++) {
        const site_page *to = &s->pages[i];
        if (strcmp(group, to->group) != 0) {
            fputs(i ? "</ul>\n<p>" : "<p>", f);
            site_escape(f, to->group);
            fputs("</p>\n<ul>\n", f);
            group = to->group;
        }
        fputs("<li>", f);
        write_link(f, p, to, to == p ? " aria-current=\"page\"" : "", to->label);
        fputs("</li>\n", f);
    }
    fputs("</ul>\n</nav>\n", f);
}

/* The page's sections of the second and the third level. */
static void write_toc(FILE *f, const site_page *p)
{
    size_t n = 0;
    for (size_t i = 0; i < p->n_sections; i++)
        n += p->sections[i].level == 2 || p->sections[i].level == 3;
    if (n < 2)
        return;
    fputs("<aside>\n<details id=\"toc\">\n<summary>On this page</summary>\n<ul>\n", f);
    for (size_t i = 0; i < p->n_sections; i++) {
        const site_section *section = &p->sections[i];
        if (section->level != 2 && section->level != 3)
            continue;
        fprintf(f, "<li class=\"level%d\"><a href=\"#%s\">", section->level, section->id);
        site_escape(f, section->title);
        fputs("</a></li>\n", f);
    }
    fputs("</ul>\n</details>\n</aside>\n", f);
}

static void write_neighbours(FILE *f, const site *s, const site_page *p)
{
    size_t i = (size_t)(p - s->pages);
    fputs("<nav class=\"neighbours\" aria-label=\"Neighbouring pages\">\n", f);
    if (i > 0)
        write_link(f, p, p - 1, " rel=\"prev\"", p[-1].label);
    if (i + 1 < s->n_pages)
        write_link(f, p, p + 1, " rel=\"next\"", p[1].label);
    fputs("\n</nav>\n", f);
}

static int finish(site *s, FILE *f, const char *out)
{
    bool bad = ferror(f) != 0;
    if (fclose(f) == 0 && !bad)
        return 0;
    site_error(s, "%s/%s: cannot be written: is the disk full?", s->out, out);
    return -1;
}

int site_write_page(site *s, const site_page *p)
{
    FILE *f = site_open(s, p->out);
    if (!f)
        return -1;
    write_head(f, p);
    write_header(f, s, p);
    fputs("<div class=\"columns\">\n", f);
    write_nav(f, s, p);
    write_toc(f, p);
    fputs("<main id=\"content\">\n", f);
    fputs(cmark_render_html(p->root, CMARK_OPT_UNSAFE, NULL), f);
    write_neighbours(f, s, p);
    fputs("</main>\n</div>\n</body>\n</html>\n", f);
    return finish(s, f, p->out);
}

/* ttrunIndex({pages: [[file, label]], sections: [[page, id, title, parent, text]]}) */
int site_write_index(site *s)
{
    FILE *f = site_open(s, "search-index.js");
    if (!f)
        return -1;
    fputs("ttrunIndex({pages:[\n", f);
    for (size_t i = 0; i < s->n_pages; i++) {
        fputs(i ? ",\n[" : "[", f);
        site_quote(f, s->pages[i].out);
        fputc(',', f);
        site_quote(f, s->pages[i].label);
        fputc(']', f);
    }
    fputs("\n],sections:[\n", f);
    for (size_t i = 0, n = 0; i < s->n_pages; i++) {
        for (size_t j = 0; j < s->pages[i].n_sections; j++) {
            const site_section *section = &s->pages[i].sections[j];
            fprintf(f, "%s[%zu,", n++ ? ",\n" : "", i);
            site_quote(f, section->id);
            fputc(',', f);
            site_quote(f, section->title);
            fputc(',', f);
            site_quote(f, section->parent);
            fputc(',', f);
            site_quote(f, section->text);
            fputc(']', f);
        }
    }
    fputs("\n]})\n", f);
    return finish(s, f, "search-index.js");
}
