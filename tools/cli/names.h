/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_CLI_NAMES_H
#define TT_CLI_NAMES_H
#include "cli/cli.h"

/* What there is to choose from: components, flavors, machines, kinds. `config --explain` and the
 * shells' completion print it. */

typedef struct tt_cli_name {
    const char *name, *doc;
} tt_cli_name;

typedef TT_VEC(tt_cli_name) tt_cli_names;

/* What the names are of: the plugins, and the spec and model of the job at hand. */
typedef struct tt_cli_catalog {
    tt_arena *arena;
    tt_registry *registry;
    const char *spec, *model;
    tt_section_doc *docs; /* of every component, model.args of every model */
    size_t n_docs;
} tt_cli_catalog;

/* Opens the plugins of the command line. job: its file, or NULL; one that cannot be read counts as
 * none. The caller frees c->registry, also after a failure. */
tt_status tt_cli_catalog_open(const tt_cli *cli, const char *job, tt_cli_catalog *c, tt_error *err);
/* The tables without those of other models than the catalog's. */
void tt_cli_catalog_own(const tt_cli_catalog *c, tt_section_doc **out, size_t *n);

/* A thing that has names: a key of the job ("optimizer.name"), or a word for --explain. */
typedef struct tt_cli_topic {
    const char *key, *doc;
    tt_kind kind; /* names of this kind of component; or */
    void (*list)(const tt_cli_catalog *c, tt_cli_names *out); /* these, then those of the kind */
} tt_cli_topic;
extern const tt_cli_topic tt_cli_topics[];
extern const size_t tt_cli_n_topics;

/* Appends the names of a topic. Faulty plugins are left out. */
void tt_cli_topic_names(const tt_cli_topic *t, const tt_cli_catalog *c, tt_cli_names *out);
const tt_cli_topic *tt_cli_topic_of(const char *key); /* NULL = this key has no list of names */

#endif
