/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_JINJA_H
#define TT_JINJA_H
#include "base/base.h"
#include <ttrun/plugin.h>

/* Jinja's language as far as chat templates use it: that of jinja2 with the settings of transformers
 * (trim_blocks, lstrip_blocks, loop controls, the block `generation`, the functions raise_exception and
 * strftime_now). Each byte of the output knows where it comes from: the template, or a value of the input.
 * A render is bounded in depth, steps and output, so that a hostile template is an error. */

#define TT_J_MOST_STEPS 20000000
#define TT_J_BYTES_OF_STEP 32 /* so many bytes of a text, read once, are a step */

/* Where a byte comes from: the template's own text and constants are TT_TAG_TEMPLATE; bytes of an input value
 * have the tag that the value was made with. */
typedef int16_t tt_tag;
#define TT_TAG_TEMPLATE ((tt_tag)0)
#define TT_TAG_INPUT ((tt_tag)-1) /* of an input that is no message's */

/* ---- values (value.c); they live in the arena of the render ---- */
typedef enum tt_jtype {
    TT_J_UNDEFINED,
    TT_J_NONE,
    TT_J_BOOL,
    TT_J_INT,
    TT_J_FLOAT,
    TT_J_STRING,
    TT_J_LIST,
    TT_J_DICT,
    TT_J_CALL /* a macro, a function or a method with its object */
} tt_jtype;

typedef struct tt_jvalue tt_jvalue;
typedef struct tt_jstring {
    const char *s;
    const tt_tag *tags; /* [n]; NULL: all TT_TAG_TEMPLATE */
    size_t n;
} tt_jstring;
typedef struct tt_jlist {
    tt_jvalue **items;
    size_t n, cap;
    bool is_tuple;
} tt_jlist;
typedef struct tt_jdict { /* in the order of insertion; keys are strings or numbers */
    tt_jvalue **keys, **values;
    size_t n, cap;
    bool is_namespace; /* {% set ns.x = … %} may change it */
} tt_jdict;
typedef struct tt_jcall {
    const struct tt_jnode *macro; /* or NULL */
    struct tt_jframe *frame;      /* the names where the macro is defined */
    const char *name;             /* of a function or method */
    tt_jvalue *self;              /* of a method; else NULL */
} tt_jcall;
struct tt_jvalue {
    tt_jtype type;
    union {
        bool boolean;
        int64_t integer;
        double real;
        tt_jstring string;
        tt_jlist list;
        tt_jdict dict;
        tt_jcall call;
        const char *undefined; /* the name that is not defined */
    } u;
    const char *digits; /* of a FLOAT that is an integer beyond 64 bits: its text; else NULL */
};

tt_jvalue *tt_j_new(tt_arena *a, tt_jtype type);
tt_jvalue *tt_j_bool(tt_arena *a, bool v);
tt_jvalue *tt_j_int(tt_arena *a, int64_t v);
tt_jvalue *tt_j_float(tt_arena *a, double v);
tt_jvalue *tt_j_text(tt_arena *a, const char *s, size_t n, tt_tag tag);           /* copies */
tt_jvalue *tt_j_part(tt_arena *a, const tt_jstring *s, size_t begin, size_t end); /* shares */
tt_jvalue *tt_j_undefined(tt_arena *a, const char *name);
void tt_j_push(tt_arena *a, tt_jvalue *list, tt_jvalue *item);
/* steps: counts what is compared, up to TT_J_MOST_STEPS, behind which nothing is equal; NULL: it does not count. */
void tt_j_put(tt_arena *a, tt_jvalue *dict, tt_jvalue *key, tt_jvalue *value, int64_t *steps);
void tt_j_append(tt_arena *a, tt_jvalue *dict, tt_jvalue *key, tt_jvalue *value); /* a new key */
/* NULL: no such key. */
tt_jvalue *tt_j_get(const tt_jvalue *dict, const char *key, size_t n);
tt_jvalue *tt_j_find(const tt_jvalue *dict, const tt_jvalue *key, int64_t *steps);
bool tt_j_truth(const tt_jvalue *v);
bool tt_j_equal(const tt_jvalue *a, const tt_jvalue *b, int64_t *steps);
/* -1, 0, 1; false: they have no order. */
bool tt_j_compare(const tt_jvalue *a, const tt_jvalue *b, int *order);
tt_jvalue *tt_j_json(tt_arena *a, const tt_jvalue *v); /* its text as JSON, on one line (json.c) */
const char *tt_j_type_name(const tt_jvalue *v);        /* "a string" */

/* ---- text with tags ---- */
typedef struct tt_jtext {
    char *s;
    tt_tag *tags;
    uint8_t *generated; /* 1: within {% generation %} */
    size_t n, cap;
    uint8_t generating;
    bool full; /* it would have more than TT_J_MOST_TEXT bytes: the rest is left out */
    int depth; /* of the value that is being printed; deeper than TT_J_MOST_DEPTH "..." takes its place */
} tt_jtext;
#define TT_J_MOST_TEXT ((size_t)16 << 20)
#define TT_J_MOST_DEPTH 100
void tt_jtext_add(tt_arena *a, tt_jtext *t, const char *s, size_t n, const tt_tag *tags,
                  tt_tag tag);
void tt_jtext_constant(tt_arena *a, tt_jtext *t, const char *s); /* of the template's */
/* Before the parts of a value are printed; false: it is too deep or full. t->depth-- is after them. */
bool tt_jtext_deeper(tt_arena *a, tt_jtext *t);
void tt_jtext_value(tt_arena *a, tt_jtext *t, const tt_jvalue *v); /* as Python's str() */
void tt_jtext_repr(tt_arena *a, tt_jtext *t, const tt_jvalue *v);  /* as Python's repr() */
tt_jvalue *tt_jtext_string(tt_arena *a, const tt_jtext *t);

/* ---- the tree of a template (parse.c) ---- */
typedef enum tt_jkind {
    /* statements */
    TT_JN_TEXT,
    TT_JN_OUTPUT,
    TT_JN_IF,  /* [condition, then, condition, then, …, else or NULL] */
    TT_JN_FOR, /* [target, list, condition or NULL, body, else] */
    TT_JN_SET, /* [target, value] */
    TT_JN_BLOCK_SET,
    TT_JN_MACRO, /* name, parameters: [defaults, body] */
    TT_JN_CALL_BLOCK, /* {% call(…) f(…) %}: as a macro `caller`, and the call: [defaults, body, call] */
    TT_JN_GENERATION,
    TT_JN_FILTER, /* {% filter f %}: [body, expression on the text] */
    TT_JN_BREAK,
    TT_JN_CONTINUE,
    TT_JN_BODY,
    /* expressions */
    TT_JN_CONST,
    TT_JN_NAME,
    TT_JN_LIST,
    TT_JN_TUPLE,
    TT_JN_DICT,
    TT_JN_ATTRIBUTE,
    TT_JN_ITEM,
    TT_JN_SLICE, /* [object, begin, end, step] */
    TT_JN_CALL,
    TT_JN_APPLY, /* a filter: name, [value, arguments] */
    TT_JN_TEST,
    TT_JN_NOT,
    TT_JN_NEGATE,
    TT_JN_BINARY,
    TT_JN_TERNARY /* [then, condition, else or NULL] */
} tt_jkind;

typedef enum tt_joperator {
    TT_JO_OR,
    TT_JO_AND,
    TT_JO_EQ,
    TT_JO_NE,
    TT_JO_LT,
    TT_JO_LE,
    TT_JO_GT,
    TT_JO_GE,
    TT_JO_IN,
    TT_JO_NOT_IN,
    TT_JO_CONCAT,
    TT_JO_ADD,
    TT_JO_SUB,
    TT_JO_MUL,
    TT_JO_DIV,
    TT_JO_FLOOR_DIV,
    TT_JO_MOD,
    TT_JO_POWER
} tt_joperator;

typedef struct tt_jnode {
    tt_jkind kind;
    int line;
    tt_joperator op;
    bool negated;          /* of a test */
    const char *name;      /* of a name, attribute, filter, test, macro */
    tt_jvalue *value;      /* of a constant; of TEXT a string */
    struct tt_jnode **sub; /* [n] */
    size_t n, cap;
    const char **names; /* [n_names] keywords of the last arguments, or parameters */
    size_t n_names, cap_names;
    struct tt_jnode *spread, *spread_named; /* of arguments: *list and **mapping, or NULL */
    int depth;                              /* of the tree below: 0 for a leaf */
} tt_jnode;

/* name: of the template, in messages. The tree lies in a. */
tt_status tt_jinja_parse(tt_arena *a, const char *name, const char *text, size_t n,
                         const tt_jnode **out, tt_error *err);

/* ---- rendering (eval.c) ---- */
/* vars: a dict of the variables. out lies in a. now: unix time, of strftime_now. */
tt_status tt_jinja_render(tt_arena *a, const char *name, const tt_jnode *tree,
                          const tt_jvalue *vars, double now, tt_jtext *out, tt_error *err);

#endif
