/* SPDX-License-Identifier: Apache-2.0 */
#include "site.h"

#include <cmark-gfm-core-extensions.h>
#include <stdlib.h>
#include <string.h>

static bool is_type(cmark_node *node, const char *name)
{
    return node && strcmp(cmark_node_get_type_string(node), name) == 0;
}

/* An id that the page does not have yet: GitHub appends -1, -2 and so on. */
static char *unique_id(const site_page *p, char *wanted)
{
    char *id = wanted;
    for (int n = 0;; id = site_format("%s-%d", wanted, ++n)) {
        bool taken = false;
        for (size_t i = 0; i < p->n_sections && !taken; i++)
            taken = strcmp(p->sections[i].id, id) == 0;
        if (!taken)
            return id;
    }
}

static site_section *add_section(site_page *p, int level, char *id, char *title, char *parent)
{
    p->sections = site_grow(p->sections, p->n_sections, sizeof *p->sections);
    site_section *section = &p->sections[p->n_sections++];
    *section = (site_section){.id = id, .title = title, .parent = parent, .level = level};
    section->text = site_format("%s", "");
    return section;
}

static void add_html(cmark_node *before, const char *html)
{
    cmark_node *node = cmark_node_new(CMARK_NODE_HTML_INLINE);
    cmark_node_set_literal(node, html);
    cmark_node_insert_before(before, node);
}

/* A heading with its anchor takes the place of Markdown's, which has none. */
static void add_anchor(cmark_node *heading, const site_section *section)
{
    cmark_node *block = cmark_node_new(CMARK_NODE_CUSTOM_BLOCK);
    char *enter = site_format("<h%d id=\"%s\">", section->level, section->id);
    char *leave = site_format("<a class=\"anchor\" href=\"#%s\" "
                              "aria-label=\"link to this section\">#</a></h%d>",
                              section->id, section->level);
    cmark_node_set_on_enter(block, enter);
    cmark_node_set_on_exit(block, leave);
    cmark_node_insert_before(heading, block);
    for (cmark_node *child; (child = cmark_node_first_child(heading));)
        cmark_node_append_child(block, child);
    cmark_node_unlink(heading);
}

/* The word of a row that the search finds by itself: its first cell is one code span or bold text. */
static cmark_node *row_key(cmark_node *row)
{
    cmark_node *cell = cmark_node_first_child(row);
    cmark_node *key = cell ? cmark_node_first_child(cell) : NULL;
    if (!is_type(row, "table_row") || !key || cmark_node_next(key))
        return NULL;
    cmark_node_type type = cmark_node_get_type(key);
    return type == CMARK_NODE_CODE || type == CMARK_NODE_STRONG ? key : NULL;
}

static char *append(char *text, char *more)
{
    char *both = site_format("%s%s%s", text, *text && *more ? " " : "", more);
    free(text);
    free(more);
    return both;
}

/* Rows with a key become entries of their own; the others belong to the section. A wide table
 * scrolls in a box that the keyboard reaches. */
static void take_table(site_page *p, cmark_node *table, size_t section)
{
    for (cmark_node *row = cmark_node_first_child(table); row; row = cmark_node_next(row)) {
        cmark_node *key = row_key(row);
        char *text = site_text(row);
        if (key) {
            const site_section *within = &p->sections[section];
            char *title = site_text(key), *slug = site_slug(title);
            char *id = unique_id(p, site_format("%s.%s", within->id, slug));
            add_html(key, site_format("<span id=\"%s\"></span>", id));
            add_section(p, 0, id, title, within->title)->text = text;
        } else {
            p->sections[section].text = append(p->sections[section].text, text);
        }
    }
    cmark_node *box = cmark_node_new(CMARK_NODE_CUSTOM_BLOCK);
    cmark_node_set_on_enter(box, "<div class=\"table\" tabindex=\"0\" role=\"group\" "
                                 "aria-label=\"table\">");
    cmark_node_set_on_exit(box, "</div>");
    cmark_node_insert_before(table, box);
    cmark_node_append_child(box, table);
}

static void take_blocks(site_page *p)
{
    size_t section = 0;
    add_section(p, 1, site_format("%s", ""), NULL, "");
    for (cmark_node *node = cmark_node_first_child(p->root), *next; node; node = next) {
        next = cmark_node_next(node);
        if (cmark_node_get_type(node) == CMARK_NODE_HEADING) {
            char *title = site_text(node);
            int level = cmark_node_get_heading_level(node);
            char *id = unique_id(p, site_slug(title));
            if (!p->title && level == 1) { /* the page's title: its section is the page's begin */
                p->title = p->sections[0].title = title;
                p->sections[0].id = id;
                section = 0;
            } else {
                add_section(p, level, id, title, "");
                section = p->n_sections - 1;
            }
            add_anchor(node, &p->sections[section]);
        } else if (is_type(node, "table")) {
            take_table(p, node, section);
        } else {
            p->sections[section].text = append(p->sections[section].text, site_text(node));
        }
    }
}

int site_parse(site *s, site_page *p)
{
    const char *const extensions[] = {"table", "strikethrough", "autolink", "tasklist"};
    char *path = site_format("%s/%s", s->root, p->path);
    char *text = site_read(path);
    if (!text) {
        site_error(s, "%s: cannot be read; correct the table of pages", path);
        return -1;
    }
    const size_t n = strlen(path);
    if (n > 2 && path[n - 2] == '.' && path[n - 1] >= '1' && path[n - 1] <= '9')
        text = site_man(s, p->path, text);
    cmark_parser *parser = cmark_parser_new(CMARK_OPT_UNSAFE | CMARK_OPT_FOOTNOTES);
    for (size_t i = 0; i < sizeof extensions / sizeof *extensions; i++)
        cmark_parser_attach_syntax_extension(parser, cmark_find_syntax_extension(extensions[i]));
    cmark_parser_feed(parser, text, strlen(text));
    p->root = cmark_parser_finish(parser);
    take_blocks(p);
    if (p->title)
        return 0;
    site_error(s, "%s: has no heading of level 1; begin it with one", p->path);
    return -1;
}
