/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_SETUP_PARAM_MATCH_H
#define TT_SETUP_PARAM_MATCH_H
#include "config/pattern.h"
#include "graph/graph.h"

/* A pattern of the job that parameters match: "tag:norm" the parameters with that tag, any other
 * text is a regular expression on full names. optimizer.param_groups and training.trainable. */
typedef struct tt_param_match {
    const char *text;
    const char *tag; /* "tag:norm" → "norm" */
    tt_pattern *pattern;
    const char *fault; /* why the match failed, and on which name; NULL: it did not fail */
} tt_param_match;

/* The error quotes the pattern. */
tt_status tt_param_match_make(tt_arena *a, const char *text, tt_param_match *out, tt_error *err);
/* Whether the parameter matches. false also if the match failed, which sets m->fault. tags:
 * comma-separated, or NULL. */
bool tt_param_match_test(tt_param_match *m, const char *name, const char *tags, tt_arena *a);
/* Whether the rows of a parameter are tokens of the vocabulary, and are stored as numbers. */
bool tt_param_has_tokens(const tt_param_info *p);
/* Whether a comma-separated list has the tag. */
bool tt_has_tag(const char *tags, const char *tag);
/* Shortens a pattern so that it fits the line of an error. */
const char *tt_param_match_shown(tt_arena *a, const char *text);

#endif
