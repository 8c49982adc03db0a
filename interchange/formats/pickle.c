/* SPDX-License-Identifier: Apache-2.0 */
#include "interchange/formats/pickle.h"
#include <string.h>
#include <ttrun/option.h>

/* Opcodes beyond these are refused, also those that only read. A memo's indices must be given in order, as
 * all picklers do, so that no index makes a large memo. */
#define MOST_BYTES ((size_t)64 << 20) /* a model of 300,000 tensors has less */

typedef struct machine {
    const char *path;
    const uint8_t *bytes;
    size_t n, at, op_at; /* at: the next byte; op_at: the opcode that is being run */
    const tt_pickle_global *globals;
    tt_arena *arena;
    TT_VEC(tt_pickle_value *) stack;
    TT_VEC(tt_pickle_value *) memo;
    TT_VEC(size_t) marks; /* heights of the stack */
    bool stopped;
    tt_error *err;
} machine;

enum {
    OP_MARK = '(',
    OP_STOP = '.',
    OP_POP = '0',
    OP_BINFLOAT = 'G',
    OP_BININT = 'J',
    OP_BININT1 = 'K',
    OP_BININT2 = 'M',
    OP_NONE = 'N',
    OP_BINPERSID = 'Q',
    OP_REDUCE = 'R',
    OP_BINUNICODE = 'X',
    OP_BINBYTES = 'B',
    OP_SHORT_BINBYTES = 'C',
    OP_APPEND = 'a',
    OP_BUILD = 'b',
    OP_GLOBAL = 'c',
    OP_APPENDS = 'e',
    OP_BINGET = 'h',
    OP_LONG_BINGET = 'j',
    OP_BINPUT = 'q',
    OP_LONG_BINPUT = 'r',
    OP_SETITEM = 's',
    OP_TUPLE = 't',
    OP_SETITEMS = 'u',
    OP_EMPTY_TUPLE = ')',
    OP_EMPTY_LIST = ']',
    OP_EMPTY_DICT = '}',
    OP_PROTO = 0x80,
    OP_NEWOBJ = 0x81,
    OP_TUPLE1 = 0x85,
    OP_TUPLE2 = 0x86,
    OP_TUPLE3 = 0x87,
    OP_NEWTRUE = 0x88,
    OP_NEWFALSE = 0x89,
    OP_LONG1 = 0x8a,
    OP_SHORT_BINUNICODE = 0x8c,
    OP_STACK_GLOBAL = 0x93,
    OP_MEMOIZE = 0x94,
    OP_FRAME = 0x95
};

/* The names of the opcodes that are refused. */
static const struct {
    uint8_t op;
    const char *name;
} refused[] = {
    {'1',  "POP_MARK"       },
    {'2',  "DUP"            },
    {'F',  "FLOAT"          },
    {'I',  "INT"            },
    {'L',  "LONG"           },
    {'P',  "PERSID"         },
    {'S',  "STRING"         },
    {'T',  "BINSTRING"      },
    {'U',  "SHORT_BINSTRING"},
    {'V',  "UNICODE"        },
    {'d',  "DICT"           },
    {'g',  "GET"            },
    {'i',  "INST"           },
    {'l',  "LIST"           },
    {'o',  "OBJ"            },
    {'p',  "PUT"            },
    {0x82, "EXT1"           },
    {0x83, "EXT2"           },
    {0x84, "EXT4"           },
    {0x8b, "LONG4"          },
    {0x8d, "BINUNICODE8"    },
    {0x8e, "BINBYTES8"      },
    {0x8f, "EMPTY_SET"      },
    {0x90, "ADDITEMS"       },
    {0x91, "FROZENSET"      },
    {0x92, "NEWOBJ_EX"      },
    {0x96, "BYTEARRAY8"     },
    {0x97, "NEXT_BUFFER"    },
    {0x98, "READONLY_BUFFER"},
};

const char *tt_pickle_kind_name(const tt_pickle_value *v)
{
    static const char *const names[TT_N_PICKLE_KINDS] = {
        "None",    "a bool", "an int", "a float",  "a str",  "bytes",
        "a tuple", "a list", "a dict", "a global", "a call", "a persistent id"};
    return v ? names[v->kind] : "nothing";
}

void tt_plain_text(char *text)
{
    for (unsigned char *p = (unsigned char *)text; *p; p++)
        if (*p < ' ' || *p == 127)
            *p = '?';
}

static tt_status pickle_bad(const machine *m, const char *fmt, ...) TT_PRINTF(2, 3);
static tt_status pickle_bad(const machine *m, const char *fmt, ...)
{
    char text[400];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    tt_plain_text(text);
    return tt_fail(m->err, TT_EFORMAT, "%s: byte %zu of the pickle: %s", m->path, m->op_at, text);
}

/* ---- bytes ---- */

static tt_status pickle_take(machine *m, size_t n, const uint8_t **out)
{
    if (n > m->n - m->at)
        return pickle_bad(m, "the pickle is cut short; copy the file again");
    *out = m->bytes + m->at;
    m->at += n;
    return TT_OK;
}

/* A little-endian number of 1, 2, 4 or 8 bytes. */
static tt_status number(machine *m, size_t width, uint64_t *out)
{
    const uint8_t *p = NULL;
    TT_TRY(pickle_take(m, width, &p));
    *out = 0;
    for (size_t i = width; i-- > 0;)
        *out = *out << 8 | p[i];
    return TT_OK;
}

/* ---- values ---- */

static tt_pickle_value *push(machine *m, tt_pickle_kind kind)
{
    tt_pickle_value *v = tt_arena_alloc(m->arena, sizeof *v);
    v->kind = kind;
    v->at = m->op_at;
    tt_vec_push(m->arena, &m->stack, v);
    return v;
}

/* The height that the current mark leaves. */
static size_t floor_of(const machine *m)
{
    return m->marks.n ? m->marks.items[m->marks.n - 1] : 0;
}

static tt_status pop(machine *m, tt_pickle_value **out)
{
    if (m->stack.n <= floor_of(m))
        return pickle_bad(m, "the stack is empty: not a pickle, or a damaged one");
    *out = m->stack.items[--m->stack.n];
    return TT_OK;
}

static tt_status top(machine *m, tt_pickle_value **out)
{
    TT_TRY(pop(m, out));
    m->stack.n++;
    return TT_OK;
}

/* Takes what lies above the last mark off the stack; it stays valid until the next push. */
static tt_status pop_mark(machine *m, tt_pickle_value ***items, size_t *n)
{
    if (!m->marks.n)
        return pickle_bad(m, "there is no mark on the stack: not a pickle, or a damaged one");
    const size_t from = m->marks.items[--m->marks.n];
    *items = m->stack.items + from;
    *n = m->stack.n - from;
    m->stack.n = from;
    return TT_OK;
}

static void add_items(machine *m, tt_pickle_value *v, tt_pickle_value *const *items, size_t n)
{
    if (v->n + n > v->capacity) {
        v->capacity = TT_MAXV(v->n + n, 2 * v->capacity);
        tt_pickle_value **more = tt_arena_array(m->arena, v->capacity, sizeof *more);
        if (v->n)
            memcpy(more, v->items, v->n * sizeof *more);
        v->items = more;
    }
    if (n)
        memcpy(v->items + v->n, items, n * sizeof *items);
    v->n += n;
}

/* The items come from the stack, which a push may move: they are copied first. */
static void push_tuple(machine *m, tt_pickle_value *const *items, size_t n)
{
    tt_pickle_value *v = tt_arena_alloc(m->arena, sizeof *v);
    v->kind = TT_PICKLE_TUPLE;
    v->at = m->op_at;
    add_items(m, v, items, n);
    tt_vec_push(m->arena, &m->stack, v);
}

static tt_status small_tuple(machine *m, size_t n)
{
    if (m->stack.n < floor_of(m) + n)
        return pickle_bad(m, "a tuple of %zu items of a shorter stack", n);
    m->stack.n -= n;
    push_tuple(m, m->stack.items + m->stack.n, n);
    return TT_OK;
}

static tt_status text(machine *m, tt_pickle_kind kind, size_t width)
{
    uint64_t n = 0;
    const uint8_t *p = NULL;
    TT_TRY(number(m, width, &n));
    TT_TRY(pickle_take(m, (size_t)n, &p));
    if (kind == TT_PICKLE_TEXT && tt_utf8_valid((const char *)p, (size_t)n) != n)
        return pickle_bad(m, "a str is not UTF-8");
    tt_pickle_value *v = push(m, kind);
    char *copy = tt_arena_alloc(m->arena, (size_t)n + 1);
    if (n)
        memcpy(copy, p, (size_t)n);
    copy[n] = '\0';
    v->text = copy;
    v->n = (size_t)n;
    return TT_OK;
}

static tt_status integer(machine *m, size_t width)
{
    uint64_t x = 0;
    TT_TRY(number(m, width, &x));
    push(m, TT_PICKLE_INT)->integer = width == 4 ? (int32_t)(uint32_t)x : (int64_t)x;
    return TT_OK;
}

/* LONG1: n bytes, little-endian, two's complement. */
static tt_status long_integer(machine *m)
{
    uint64_t n = 0, x = 0;
    const uint8_t *p = NULL;
    TT_TRY(number(m, 1, &n));
    TT_TRY(pickle_take(m, (size_t)n, &p));
    if (n > 8)
        return pickle_bad(m, "an int of %d bytes; 8 are the most", (int)n);
    if (n && p[n - 1] & 0x80)
        x = UINT64_MAX;
    for (size_t i = (size_t)n; i-- > 0;)
        x = x << 8 | p[i];
    push(m, TT_PICKLE_INT)->integer = (int64_t)x;
    return TT_OK;
}

static tt_status real(machine *m) /* big-endian */
{
    const uint8_t *p = NULL;
    uint64_t bits = 0;
    TT_TRY(pickle_take(m, 8, &p));
    for (int i = 0; i < 8; i++)
        bits = bits << 8 | p[i];
    memcpy(&push(m, TT_PICKLE_FLOAT)->real, &bits, sizeof bits);
    return TT_OK;
}

/* ---- globals, calls ---- */

static tt_status push_global(machine *m, const char *module, size_t n_module, const char *name,
                             size_t n_name)
{
    for (const tt_pickle_global *g = m->globals; g->module; g++)
        if (strlen(g->module) == n_module && !memcmp(g->module, module, n_module) &&
            strlen(g->name) == n_name && !memcmp(g->name, name, n_name)) {
            push(m, TT_PICKLE_GLOBAL)->global = g;
            return TT_OK;
        }
    return pickle_bad(
        m, "it names the global %.*s.%.*s, which weights do not need; nothing was run",
        (int)TT_MIN(n_module, (size_t)100), module, (int)TT_MIN(n_name, (size_t)100), name);
}

static tt_status line(machine *m, const char **out, size_t *n)
{
    const uint8_t *end = m->at < m->n ? memchr(m->bytes + m->at, '\n', m->n - m->at) : NULL;
    if (!end)
        return pickle_bad(m, "the pickle is cut short; copy the file again");
    *out = (const char *)m->bytes + m->at;
    *n = (size_t)(end - (m->bytes + m->at));
    m->at += *n + 1;
    return TT_OK;
}

static tt_status global(machine *m)
{
    const char *module = NULL, *name = NULL;
    size_t n_module = 0, n_name = 0;
    TT_TRY(line(m, &module, &n_module));
    TT_TRY(line(m, &name, &n_name));
    return push_global(m, module, n_module, name, n_name);
}

static tt_status stack_global(machine *m)
{
    tt_pickle_value *name = NULL, *module = NULL;
    TT_TRY(pop(m, &name));
    TT_TRY(pop(m, &module));
    if (name->kind != TT_PICKLE_TEXT || module->kind != TT_PICKLE_TEXT)
        return pickle_bad(m, "a global is named by %s and %s, not by two strs",
                          tt_pickle_kind_name(module), tt_pickle_kind_name(name));
    return push_global(m, module->text, module->n, name->text, name->n);
}

static tt_status call(machine *m)
{
    tt_pickle_value *args = NULL, *f = NULL;
    TT_TRY(pop(m, &args));
    TT_TRY(pop(m, &f));
    if (f->kind != TT_PICKLE_GLOBAL || args->kind != TT_PICKLE_TUPLE)
        return pickle_bad(m, "%s is called with %s; only globals are called, with a tuple",
                          tt_pickle_kind_name(f), tt_pickle_kind_name(args));
    if (f->global->is_dict && args->n == 0) {
        push(m, TT_PICKLE_DICT)->global = f->global;
        return TT_OK;
    }
    tt_pickle_value *v = push(m, TT_PICKLE_CALL);
    v->global = f->global;
    add_items(m, v, &args, 1);
    return TT_OK;
}

static tt_status pickle_build(machine *m)
{
    tt_pickle_value *state = NULL, *v = NULL;
    TT_TRY(pop(m, &state));
    TT_TRY(top(m, &v));
    if (v->kind != TT_PICKLE_CALL && !(v->kind == TT_PICKLE_DICT && v->global))
        return pickle_bad(m, "%s gets a state, which only objects have", tt_pickle_kind_name(v));
    v->state = state;
    return TT_OK;
}

/* ---- containers ---- */

static tt_status pickle_add(machine *m, tt_pickle_kind kind, tt_pickle_value *const *items,
                            size_t n)
{
    tt_pickle_value *v = NULL;
    TT_TRY(top(m, &v));
    if (v->kind != kind)
        return pickle_bad(m, "items are added to %s", tt_pickle_kind_name(v));
    if (kind == TT_PICKLE_DICT && n % 2)
        return pickle_bad(m, "a dict gets a key without a value");
    add_items(m, v, items, n);
    return TT_OK;
}

static tt_status add_marked(machine *m, tt_pickle_kind kind)
{
    tt_pickle_value **items = NULL;
    size_t n = 0;
    TT_TRY(pop_mark(m, &items, &n));
    return pickle_add(m, kind, items, n);
}

static tt_status add_last(machine *m, tt_pickle_kind kind, size_t n)
{
    if (m->stack.n < floor_of(m) + n)
        return pickle_bad(m, "the stack is too short: not a pickle, or a damaged one");
    m->stack.n -= n;
    return pickle_add(m, kind, m->stack.items + m->stack.n, n);
}

/* ---- the memo ---- */

static tt_status put(machine *m, size_t width)
{
    uint64_t i = m->memo.n;
    tt_pickle_value *v = NULL;
    if (width)
        TT_TRY(number(m, width, &i));
    TT_TRY(top(m, &v));
    if (i > m->memo.n)
        return pickle_bad(m, "memo %llu follows %zu others: no pickler writes that",
                          (unsigned long long)i, m->memo.n);
    if (i == m->memo.n)
        tt_vec_push(m->arena, &m->memo, v);
    m->memo.items[i] = v;
    return TT_OK;
}

static tt_status get(machine *m, size_t width)
{
    uint64_t i = 0;
    TT_TRY(number(m, width, &i));
    if (i >= m->memo.n)
        return pickle_bad(m, "memo %llu of %zu", (unsigned long long)i, m->memo.n);
    tt_vec_push(m->arena, &m->stack, m->memo.items[i]);
    return TT_OK;
}

/* ---- the machine ---- */

static tt_status no_such_opcode(const machine *m, uint8_t op)
{
    for (size_t i = 0; i < TT_COUNT(refused); i++)
        if (refused[i].op == op)
            return pickle_bad(m, "opcode %s, which weights do not need; nothing was run",
                              refused[i].name);
    return pickle_bad(m, "0x%02x is no opcode: not a pickle, or a damaged one", op);
}

static tt_status frame_or_proto(machine *m, uint8_t op)
{
    uint64_t x = 0;
    TT_TRY(number(m, op == OP_PROTO ? 1 : 8, &x));
    if (op == OP_PROTO && (x < 2 || x > 5))
        return pickle_bad(m, "protocol %d; 2 to 5 are read", (int)x);
    return TT_OK; /* a frame's length tells only how much to read at a time */
}

static tt_status run_memo(machine *m, uint8_t op)
{
    switch (op) {
    case OP_BINPUT:
        return put(m, 1);
    case OP_LONG_BINPUT:
        return put(m, 4);
    case OP_MEMOIZE:
        return put(m, 0);
    case OP_BINGET:
        return get(m, 1);
    case OP_LONG_BINGET:
        return get(m, 4);
    default:
        return no_such_opcode(m, op);
    }
}

static tt_status run_container(machine *m, uint8_t op)
{
    tt_pickle_value **items = NULL;
    size_t n = 0;
    switch (op) {
    case OP_TUPLE:
        TT_TRY(pop_mark(m, &items, &n));
        push_tuple(m, items, n);
        return TT_OK;
    case OP_EMPTY_TUPLE:
        return small_tuple(m, 0);
    case OP_TUPLE1:
    case OP_TUPLE2:
    case OP_TUPLE3:
        return small_tuple(m, (size_t)(op - OP_TUPLE1) + 1);
    case OP_EMPTY_LIST:
        push(m, TT_PICKLE_LIST);
        return TT_OK;
    case OP_EMPTY_DICT:
        push(m, TT_PICKLE_DICT);
        return TT_OK;
    case OP_APPEND:
        return add_last(m, TT_PICKLE_LIST, 1);
    case OP_APPENDS:
        return add_marked(m, TT_PICKLE_LIST);
    case OP_SETITEM:
        return add_last(m, TT_PICKLE_DICT, 2);
    case OP_SETITEMS:
        return add_marked(m, TT_PICKLE_DICT);
    default:
        return run_memo(m, op);
    }
}

static tt_status run_object(machine *m, uint8_t op)
{
    tt_pickle_value *id = NULL;
    switch (op) {
    case OP_GLOBAL:
        return global(m);
    case OP_STACK_GLOBAL:
        return stack_global(m);
    case OP_REDUCE:
    case OP_NEWOBJ:
        return call(m);
    case OP_BUILD:
        return pickle_build(m);
    case OP_BINPERSID:
        TT_TRY(pop(m, &id));
        add_items(m, push(m, TT_PICKLE_PERSISTENT), &id, 1);
        return TT_OK;
    default:
        return run_container(m, op);
    }
}

static tt_status run(machine *m, uint8_t op)
{
    tt_pickle_value *v = NULL;
    switch (op) {
    case OP_PROTO:
    case OP_FRAME:
        return frame_or_proto(m, op);
    case OP_STOP:
        m->stopped = true;
        return TT_OK;
    case OP_MARK:
        tt_vec_push(m->arena, &m->marks, m->stack.n);
        return TT_OK;
    case OP_POP:
        return pop(m, &v);
    case OP_NONE:
        push(m, TT_PICKLE_NONE);
        return TT_OK;
    case OP_NEWTRUE:
    case OP_NEWFALSE:
        push(m, TT_PICKLE_BOOL)->integer = op == OP_NEWTRUE;
        return TT_OK;
    case OP_BININT:
        return integer(m, 4);
    case OP_BININT1:
        return integer(m, 1);
    case OP_BININT2:
        return integer(m, 2);
    case OP_LONG1:
        return long_integer(m);
    case OP_BINFLOAT:
        return real(m);
    case OP_BINUNICODE:
        return text(m, TT_PICKLE_TEXT, 4);
    case OP_SHORT_BINUNICODE:
        return text(m, TT_PICKLE_TEXT, 1);
    case OP_BINBYTES:
        return text(m, TT_PICKLE_BYTES, 4);
    case OP_SHORT_BINBYTES:
        return text(m, TT_PICKLE_BYTES, 1);
    default:
        return run_object(m, op);
    }
}

tt_status tt_pickle_read(const char *path, const uint8_t *bytes, size_t n,
                         const tt_pickle_global *globals, tt_arena *a, const tt_pickle_value **out,
                         tt_error *err)
{
    machine m = {.path = path, .bytes = bytes, .n = n, .globals = globals, .arena = a, .err = err};
    if (n > MOST_BYTES)
        return pickle_bad(&m, "%zu bytes; %zu are the most", n, MOST_BYTES);
    while (!m.stopped) {
        const uint8_t *op = NULL;
        m.op_at = m.at;
        TT_TRY(pickle_take(&m, 1, &op));
        TT_TRY(run(&m, *op));
    }
    if (m.stack.n != 1 || m.marks.n)
        return pickle_bad(&m, "it ends with %zu values on the stack, not one", m.stack.n);
    if (m.at != n)
        return pickle_bad(&m, "%zu bytes follow its end", n - m.at);
    *out = m.stack.items[0];
    return TT_OK;
}
