/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_JINJA_EVAL_H
#define TT_JINJA_EVAL_H
#include "chat/jinja.h"

/* What eval.c, calls.c, filters.c, tests.c, methods.c, operators.c, format.c and json.c share. An error sticks: failed is set, and what is evaluated
 * then has no meaning. */

#define TT_J_MOST_MEMORY ((size_t)512 << 20) /* of a render */
#define TT_J_MOST_RANGE 100000
#define TT_J_MOST_CALLS 100   /* macros in macros */
#define TT_J_MOST_NESTED 4000 /* nodes within nodes, through macros, too */

typedef struct tt_jframe {
    tt_jvalue *vars; /* a dict */
    struct tt_jframe *outer;
} tt_jframe;

typedef struct tt_jenv {
    tt_arena *arena;
    const char *name;
    tt_jframe *frame;
    tt_jtext *out;
    tt_error *err;
    bool failed;
    int64_t steps;
    int line, calls, depth;
    enum { TT_JF_NONE, TT_JF_BREAK, TT_JF_CONTINUE } flow;
    double now;
} tt_jenv;

typedef struct tt_jargs { /* args[0]: what a filter, test or method is applied to */
    tt_jvalue **v;
    size_t n; /* with names: the last n_names */
    const char *const *names;
    size_t n_names;
} tt_jargs;

tt_jvalue *tt_jfail(tt_jenv *e, const char *fmt, ...) TT_PRINTF(2, 3);
tt_jvalue *tt_jeval(tt_jenv *e, const tt_jnode *n);
void tt_jbody(tt_jenv *e, const tt_jnode *n);
void tt_jset(tt_jenv *e, const char *name, tt_jvalue *v); /* a variable of the innermost frame */
void tt_jframe_push(tt_jenv *e);
/* Counts work: each node, item, comparison and TT_J_BYTES_OF_STEP bytes are a step of one count. False: it was too
 * much, and the render has failed. */
bool tt_jsteps(tt_jenv *e, size_t n);
bool tt_jlook(tt_jenv *e, size_t bytes);
/* What value.c has, with its steps counted. */
bool tt_jequal(tt_jenv *e, const tt_jvalue *a, const tt_jvalue *b);
tt_jvalue *tt_jfind(tt_jenv *e, const tt_jvalue *dict, const tt_jvalue *key);
void tt_jput(tt_jenv *e, tt_jvalue *dict, tt_jvalue *key, tt_jvalue *value);
/* calls.c: the arguments of a node from part `from` on. first: what goes before them; NULL: nothing. caller: an
 * argument of that name more, or NULL. */
tt_jargs tt_jargs_of(tt_jenv *e, const tt_jnode *n, size_t from, tt_jvalue *first,
                     tt_jvalue *caller);
tt_jvalue *tt_jcall_of(tt_jenv *e, const tt_jnode *n, tt_jvalue *caller);
/* Argument i, or that of this name; NULL: not given. */
tt_jvalue *tt_jarg(const tt_jargs *a, size_t i, const char *name);
/* The same as a C string or a number; fallback: not given, or of another type. */
const char *tt_jarg_text(tt_jenv *e, const tt_jargs *a, size_t i, const char *name,
                         const char *fallback);
int64_t tt_jarg_int(const tt_jargs *a, size_t i, const char *name, int64_t fallback);
/* The items that a loop goes over: of a list, the keys of a mapping, the characters of a string. */
tt_jvalue *tt_jitems(tt_jenv *e, const tt_jvalue *v);
tt_jvalue *tt_jattribute(tt_jenv *e, tt_jvalue *of, const char *name);
tt_jvalue *tt_jitem(tt_jenv *e, tt_jvalue *of, const tt_jvalue *key);
/* The text as a value; an error if it is too long. */
tt_jvalue *tt_jtaken(tt_jenv *e, const tt_jtext *text);
/* v as text with its tags. */
tt_jvalue *tt_jstring_of(tt_jenv *e, tt_jvalue *v);

/* n characters of a text from `begin` on. */
tt_jvalue *tt_jpart(tt_jenv *e, const tt_jvalue *v, int64_t begin, int64_t n);
/* operators.c: of a node that is a slice, or an operator with two operands. */
tt_jvalue *tt_jslice(tt_jenv *e, const tt_jnode *n);
tt_jvalue *tt_jbinary(tt_jenv *e, const tt_jnode *n);
tt_jvalue *tt_jnegative(tt_jenv *e, const tt_jvalue *v);
bool tt_jcontains(tt_jenv *e, const tt_jvalue *in, const tt_jvalue *what);
/* format.c: '{}'.format(…), '%s'|format(…) and '%s' % …; json.c: |tojson. */
tt_jvalue *tt_jformat(tt_jenv *e, const tt_jargs *a);
tt_jvalue *tt_jfilter_format(tt_jenv *e, const tt_jargs *a);
tt_jvalue *tt_jformat_old(tt_jenv *e, const tt_jvalue *format, tt_jvalue *with);
tt_jvalue *tt_jfilter_json(tt_jenv *e, const tt_jargs *a);

tt_jvalue *tt_jfilter(tt_jenv *e, const char *name, const tt_jargs *a); /* filters.c */
bool tt_jtest(tt_jenv *e, const char *name, const tt_jargs *a);         /* tests.c */
/* methods.c: of strings, lists and mappings; NULL: there is none of this name. */
tt_jvalue *tt_jmethod(tt_jenv *e, const char *name, const tt_jargs *a);
bool tt_jhas_method(const tt_jvalue *of, const char *name);
/* What strings share: filters.c and methods.c. */
tt_jvalue *tt_jstrip(tt_jenv *e, const tt_jvalue *v, const char *set,
                     int sides); /* 1 left, 2 right */
tt_jvalue *tt_jcase(tt_jenv *e, const tt_jvalue *v,
                    char how); /* u upper, l lower, c capitalize, t title */
tt_jvalue *tt_jreplace(tt_jenv *e, const tt_jvalue *v, const tt_jvalue *from, const tt_jvalue *to,
                       int64_t most);
int64_t tt_jlength(tt_jenv *e, const tt_jvalue *v); /* characters of a string */

#endif
