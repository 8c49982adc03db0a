/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_JINJA_PARSE_H
#define TT_JINJA_PARSE_H
#include "chat/jinja.h"

/* What parse.c (statements), expression.c and tokens.c share. An error sticks: failed is set, and
 * the rest of the text is skipped. */

#define TT_J_DEPTH 100 /* nested statements, and nested expressions */
#define TT_J_TREE 1000 /* the depth of a tree: a chain of operators is as deep as it is long */

typedef enum tt_jtoken_kind {
    TT_JT_END,
    TT_JT_NAME,
    TT_JT_STRING,
    TT_JT_INT,
    TT_JT_FLOAT,
    TT_JT_SIGN,       /* an operator, or a parenthesis */
    TT_JT_BLOCK_END,  /* %} */
    TT_JT_OUTPUT_END, /* }} */
} tt_jtoken_kind;

typedef struct tt_jtoken {
    tt_jtoken_kind kind;
    const char *s; /* of a string: what it means */
    size_t n;
    int64_t integer;
    double real;
    bool trims, keeps; /* of an end: -%}, +%} */
} tt_jtoken;

typedef struct tt_jparser {
    tt_arena *arena;
    const char *name, *begin, *at, *end;
    int line, depth, loops;
    bool trim, after_block; /* the tag before takes all whitespace, or a newline, after it */
    bool in_tag, failed;
    int brackets; /* open ones: "}}" may close two mappings */
    tt_jtoken token;
    tt_error *err;
} tt_jparser;

/* parse.c */
tt_jnode *tt_jparse_node(tt_jparser *p, tt_jkind kind);
/* Adds a tree that is complete; a tree that is too deep to be evaluated is a fault. */
void tt_jparse_add(tt_jparser *p, tt_jnode *to, tt_jnode *sub);
void tt_jparse_deepen(tt_jparser *p, tt_jnode *n, const tt_jnode *sub);
void tt_jparse_fail(tt_jparser *p, const char *what);
/* tokens.c */
void tt_jparse_open(tt_jparser *p); /* skips {% or {{ with its mark */
void tt_jparse_next(tt_jparser *p);
bool tt_jparse_is(const tt_jparser *p, const char *sign);
bool tt_jparse_take(tt_jparser *p, const char *sign);
/* expression.c */
void tt_jparse_close_output(tt_jparser *p);
void tt_jparse_keyword(tt_jparser *p, tt_jnode *n, const char *name);
const char *tt_jparse_name(tt_jparser *p); /* takes a name */
tt_jnode *tt_jparse_expression(tt_jparser *p);
tt_jnode *tt_jparse_without_if(tt_jparser *p); /* a loop's list: its `if` is the loop's */
tt_jnode *tt_jparse_tuple(tt_jparser *p);      /* expressions with commas */
tt_jnode *tt_jparse_filters(tt_jparser *p,
                            tt_jnode *on); /* name(…)|name(…), without the first bar */

#endif
