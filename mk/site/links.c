/* SPDX-License-Identifier: Apache-2.0 */
#include "site.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* A path as seen from the file `from`, seen from the root. NULL: it leaves the tree. */
static char *resolve(const char *from, const char *path)
{
    const char *end = strrchr(from, '/');
    char *joined = site_format("%.*s%s", end ? (int)(end + 1 - from) : 0, from, path);
    char *out = calloc(1, strlen(joined) + 1);
    size_t n = 0;
    if (!out)
        exit(1);
    for (char *state, *part = strtok_r(joined, "/", &state); part;
         part = strtok_r(NULL, "/", &state)) {
        if (strcmp(part, ".") == 0)
            continue;
        if (strcmp(part, "..") == 0) {
            if (n == 0)
                return NULL;
            while (n > 0 && out[--n] != '/')
                continue;
        } else {
            n += (size_t)sprintf(out + n, "%s%s", n ? "/" : "", part);
        }
        out[n] = 0;
    }
    return out;
}

/* The page that is made of a file, or of the README.md of a folder. */
static const site_page *find_page(const site *s, const char *path)
{
    for (size_t i = 0; i < s->n_pages; i++) {
        const char *own = s->pages[i].path;
        size_t n = strlen(path);
        if (strcmp(own, path) == 0)
            return &s->pages[i];
        if (strncmp(own, path, n) == 0 && strcmp(own + n, "/README.md") == 0)
            return &s->pages[i];
    }
    return NULL;
}

static bool has_id(const site_page *p, const char *id)
{
    for (size_t i = 0; i < p->n_sections; i++)
        if (strcmp(p->sections[i].id, id) == 0)
            return true;
    return false;
}

static char *relative(const site_page *from, const char *to)
{
    char *up = site_format("%s", "");
    for (const char *c = from->out; *c; c++)
        if (*c == '/')
            up = site_format("%s../", up);
    return site_format("%s%s", up, to);
}

static void carry(site *s, const char *path)
{
    for (size_t i = 0; i < s->n_files; i++)
        if (strcmp(s->files[i], path) == 0)
            return;
    s->files = site_grow(s->files, s->n_files, sizeof *s->files);
    s->files[s->n_files++] = site_format("%s", path);
}

static bool is_picture(const char *path)
{
    const char *dot = strrchr(path, '.');
    return dot && (strcmp(dot, ".svg") == 0 || strcmp(dot, ".png") == 0);
}

/* The same target seen from the page's file in the site. NULL: a file that the site does not have,
 * whose path in the tree is then in *source, or an error. */
static char *turn(site *s, const site_page *p, const char *url, char **source)
{
    size_t scheme = strcspn(url, ":/#");
    *source = NULL;
    if (url[scheme] == ':' || strncmp(url, "//", 2) == 0)
        return site_format("%s", url);
    size_t n = strcspn(url, "#");
    const char *fragment = url + n;
    char *path = n ? resolve(p->path, site_format("%.*s", (int)n, url)) : NULL;
    const site_page *to = n ? (path ? find_page(s, path) : NULL) : p;
    if (to) {
        if (*fragment && !has_id(to, fragment + 1))
            site_error(s, "%s: the link %s: %s has no heading with this anchor", p->path, url,
                       to->path);
        return n ? site_format("%s%s", relative(p, to->out), fragment) : site_format("%s", url);
    }
    struct stat info;
    if (!path || stat(site_format("%s/%s", s->root, path), &info) != 0) {
        site_error(s, "%s: the link %s leads to no file", p->path, url);
    } else if (is_picture(path)) {
        carry(s, path);
        return relative(p, path);
    } else {
        *source = path;
    }
    return NULL;
}

/* Text instead of a link to a file that only the source tree has. */
static void replace_link(cmark_node *link, const char *source)
{
    cmark_node *span = cmark_node_new(CMARK_NODE_CUSTOM_INLINE);
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    fputs("<span class=\"source\" title=\"in the source tree: ", f);
    site_escape(f, source);
    fputs("\">", f);
    fclose(f);
    cmark_node_set_on_enter(span, text);
    cmark_node_set_on_exit(span, "</span>");
    cmark_node_insert_before(link, span);
    for (cmark_node *child; (child = cmark_node_first_child(link));)
        cmark_node_append_child(span, child);
    cmark_node_unlink(link);
}

static void turn_link(site *s, const site_page *p, cmark_node *node)
{
    char *source, *url = turn(s, p, cmark_node_get_url(node), &source);
    if (url)
        cmark_node_set_url(node, url);
    else if (source && cmark_node_get_type(node) == CMARK_NODE_LINK)
        replace_link(node, source);
    else if (source)
        site_error(s, "%s: %s is no picture; use SVG or PNG", p->path, source);
}

/* src="…" and href="…" of HTML within Markdown. */
static void turn_html(site *s, const site_page *p, cmark_node *node)
{
    const char *html = cmark_node_get_literal(node);
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    while (*html) {
        size_t name = strncmp(html, " src=\"", 6) == 0    ? 6
                      : strncmp(html, " href=\"", 7) == 0 ? 7
                                                          : 0;
        if (!name) {
            fputc(*html++, f);
            continue;
        }
        size_t n = strcspn(html + name, "\"");
        char *source, *old = site_format("%.*s", (int)n, html + name);
        char *url = turn(s, p, old, &source);
        if (!url && source)
            site_error(s, "%s: the site has no %s", p->path, old);
        fprintf(f, "%.*s", (int)name, html);
        fputs(url ? url : old, f);
        html += name + n;
    }
    fclose(f);
    cmark_node_set_literal(node, text);
}

/* `docs/numerics.md` in a text leads to the page. */
static void link_code(const site *s, const site_page *p, cmark_node *node)
{
    const char *literal = cmark_node_get_literal(node);
    for (cmark_node *at = node; at; at = cmark_node_parent(at))
        if (cmark_node_get_type(at) == CMARK_NODE_LINK)
            return;
    size_t n = strlen(literal);
    while (n > 0 && literal[n - 1] == '/')
        n--;
    const site_page *to = find_page(s, site_format("%.*s", (int)n, literal));
    if (!to || to == p)
        return;
    cmark_node *link = cmark_node_new(CMARK_NODE_LINK);
    cmark_node_set_url(link, relative(p, to->out));
    cmark_node_insert_before(node, link);
    cmark_node_append_child(link, node);
}

void site_link(site *s, site_page *p)
{
    cmark_node **nodes = NULL; /* all first: the tree changes below */
    size_t n = 0;
    cmark_iter *iter = cmark_iter_new(p->root);
    cmark_event_type event;
    while ((event = cmark_iter_next(iter)) != CMARK_EVENT_DONE) {
        if (event != CMARK_EVENT_ENTER)
            continue;
        nodes = site_grow(nodes, n, sizeof *nodes);
        nodes[n++] = cmark_iter_get_node(iter);
    }
    cmark_iter_free(iter);
    for (size_t i = 0; i < n; i++) {
        cmark_node_type type = cmark_node_get_type(nodes[i]);
        if (type == CMARK_NODE_LINK || type == CMARK_NODE_IMAGE)
            turn_link(s, p, nodes[i]);
        else if (type == CMARK_NODE_HTML_BLOCK || type == CMARK_NODE_HTML_INLINE)
            turn_html(s, p, nodes[i]);
        else if (type == CMARK_NODE_CODE)
            link_code(s, p, nodes[i]);
    }
    free(nodes);
}
