/* SPDX-License-Identifier: Apache-2.0 */
#include "chat/eval.h"
#include <math.h>
#include <string.h>

/* Tests: value is name(arguments). */

typedef enum test_kind {
    T_DEFINED,
    T_UNDEFINED,
    T_NONE,
    T_STRING,
    T_MAPPING,
    T_ITERABLE,
    T_SEQUENCE,
    T_NUMBER,
    T_BOOLEAN,
    T_TRUE,
    T_FALSE,
    T_INTEGER,
    T_FLOAT,
    T_ODD,
    T_EVEN,
    T_DIVISIBLE,
    T_EQUAL,
    T_NOT_EQUAL,
    T_LESS,
    T_LESS_EQUAL,
    T_GREATER,
    T_GREATER_EQUAL,
    T_IN,
    T_CALLABLE,
    T_LOWER,
    T_UPPER
} test_kind;

static const struct {
    const char *name;
    test_kind kind;
} tests[] = {
    {"defined",     T_DEFINED      },
    {"undefined",   T_UNDEFINED    },
    {"none",        T_NONE         },
    {"string",      T_STRING       },
    {"mapping",     T_MAPPING      },
    {"iterable",    T_ITERABLE     },
    {"sequence",    T_SEQUENCE     },
    {"number",      T_NUMBER       },
    {"boolean",     T_BOOLEAN      },
    {"true",        T_TRUE         },
    {"false",       T_FALSE        },
    {"integer",     T_INTEGER      },
    {"float",       T_FLOAT        },
    {"odd",         T_ODD          },
    {"even",        T_EVEN         },
    {"divisibleby", T_DIVISIBLE    },
    {"equalto",     T_EQUAL        },
    {"eq",          T_EQUAL        },
    {"==",          T_EQUAL        },
    {"ne",          T_NOT_EQUAL    },
    {"!=",          T_NOT_EQUAL    },
    {"lt",          T_LESS         },
    {"<",           T_LESS         },
    {"lessthan",    T_LESS         },
    {"le",          T_LESS_EQUAL   },
    {"<=",          T_LESS_EQUAL   },
    {"gt",          T_GREATER      },
    {">",           T_GREATER      },
    {"greaterthan", T_GREATER      },
    {"ge",          T_GREATER_EQUAL},
    {">=",          T_GREATER_EQUAL},
    {"in",          T_IN           },
    {"callable",    T_CALLABLE     },
    {"lower",       T_LOWER        },
    {"upper",       T_UPPER        },
};

static bool by_type(test_kind k, const tt_jvalue *v)
{
    switch (k) {
    case T_DEFINED:
        return v->type != TT_J_UNDEFINED;
    case T_UNDEFINED:
        return v->type == TT_J_UNDEFINED;
    case T_NONE:
        return v->type == TT_J_NONE;
    case T_STRING:
        return v->type == TT_J_STRING;
    case T_MAPPING:
        return v->type == TT_J_DICT;
    case T_ITERABLE:
    case T_SEQUENCE: /* as jinja2: a text and a mapping are sequences, too */
        return v->type == TT_J_LIST || v->type == TT_J_STRING || v->type == TT_J_DICT ||
               v->type == TT_J_UNDEFINED;
    case T_NUMBER:
        return v->type == TT_J_INT || v->type == TT_J_FLOAT || v->type == TT_J_BOOL;
    case T_BOOLEAN:
        return v->type == TT_J_BOOL;
    case T_TRUE:
        return v->type == TT_J_BOOL && v->u.boolean;
    case T_FALSE:
        return v->type == TT_J_BOOL && !v->u.boolean;
    case T_INTEGER:
        return v->type == TT_J_INT;
    case T_FLOAT:
        return v->type == TT_J_FLOAT;
    default:
        return v->type == TT_J_CALL;
    }
}

static bool by_number(tt_jenv *e, test_kind k, const tt_jvalue *v, const tt_jvalue *by)
{
    const int64_t d = k != T_DIVISIBLE ? 2 : by && by->type == TT_J_INT ? by->u.integer : 0;
    if (v->type != TT_J_INT || d == 0) {
        tt_jfail(e, "odd, even and divisibleby need integers");
        return false;
    }
    const bool divides = d == -1 || v->u.integer % d == 0;
    return k == T_ODD ? !divides : divides;
}

static bool by_order(tt_jenv *e, test_kind k, const tt_jvalue *v, const tt_jvalue *other)
{
    int order = 0;
    if (!other || !tt_j_compare(v, other, &order)) {
        tt_jfail(e, "a comparison needs two numbers or two texts");
        return false;
    }
    return k == T_LESS         ? order < 0
           : k == T_LESS_EQUAL ? order <= 0
           : k == T_GREATER    ? order > 0
                               : order >= 0;
}

static bool contained(tt_jenv *e, const tt_jvalue *v, const tt_jvalue *in)
{
    if (in && (in->type == TT_J_LIST || in->type == TT_J_DICT ||
               (in->type == TT_J_STRING && v->type == TT_J_STRING)))
        return tt_jcontains(e, in, v);
    return false;
}

static bool has_case(tt_jenv *e, const tt_jvalue *v, char how)
{
    return v->type == TT_J_STRING && tt_jequal(e, v, tt_jcase(e, v, how));
}

bool tt_jtest(tt_jenv *e, const char *name, const tt_jargs *a)
{
    size_t i = 0;
    while (i < TT_COUNT(tests) && strcmp(tests[i].name, name) != 0)
        i++;
    if (i == TT_COUNT(tests)) {
        tt_jfail(e, "there is no test \"%s\" in chat templates", name);
        return false;
    }
    const tt_jvalue *v = a->v[0], *other = tt_jarg(a, 1, NULL);
    const test_kind k = tests[i].kind;
    switch (k) {
    case T_ODD:
    case T_EVEN:
    case T_DIVISIBLE:
        return by_number(e, k, v, other);
    case T_EQUAL:
    case T_NOT_EQUAL:
        return (other && tt_jequal(e, v, other)) == (k == T_EQUAL);
    case T_LESS:
    case T_LESS_EQUAL:
    case T_GREATER:
    case T_GREATER_EQUAL:
        return by_order(e, k, v, other);
    case T_IN:
        return contained(e, v, other);
    case T_LOWER:
    case T_UPPER:
        return has_case(e, v, k == T_LOWER ? 'l' : 'u');
    default:
        return by_type(k, v);
    }
}
