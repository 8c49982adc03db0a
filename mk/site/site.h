/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SITE_H
#define SITE_H

#include <cmark-gfm.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* The tool of `make site`: Markdown pages, as cmark-gfm parses them, to HTML files with navigation
 * and the data of the search. It runs for a moment, so it never frees what it reads. */

/* What the search can find: a section, or a table's row whose first cell is one word. */
typedef struct site_section {
    char *id;     /* of the element on the page; "" = the page's begin */
    char *title;  /* plain text */
    char *parent; /* the section around a row, else "" */
    char *text;   /* plain text, one line */
    int level;    /* of its heading; 0 = a row */
} site_section;

typedef struct site_page {
    char *path;  /* in the tree: docs/design/rules.md */
    char *out;   /* in the site: docs/design/rules.html; README.md becomes index.html */
    char *label; /* in the navigation */
    char *group; /* the navigation's group */
    char *title; /* its first heading */
    cmark_node *root;
    site_section *sections;
    size_t n_sections;
} site_page;

typedef struct site {
    const char *root, *out; /* folders */
    site_page *pages;
    size_t n_pages;
    char **files; /* pictures that pages show, as paths in the tree; copied along */
    size_t n_files;
    int errors;
} site;

/* text.c */
void *site_grow(void *array, size_t n, size_t size);
char *site_format(const char *format, ...) __attribute__((format(printf, 1, 2)));
char *site_read(const char *path);
void site_escape(FILE *f, const char *text);
void site_quote(FILE *f, const char *text);
char *site_slug(const char *text);
char *site_text(cmark_node *node);
char *site_one_line(char *text);
void site_error(site *s, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* man.c: a manual page as Markdown. */
char *site_man(site *s, const char *path, char *text);

/* parse.c: reads and parses a page; finds its title and its sections. */
int site_parse(site *s, site_page *p);
/* links.c: turns links to pages and files of the tree into links within the site. */
void site_link(site *s, site_page *p);
/* write.c: a page with its frame; the data of the search. Both return 0, or -1 after a message. */
int site_write_page(site *s, const site_page *p);
int site_write_index(site *s);
FILE *site_open(site *s, const char *out);

#endif
