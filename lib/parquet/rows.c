/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "parquet/impl.h"
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Opens a file, and prints its rows: the schema's tree is walked, and each leaf gives its entries in turn. */

enum { TAIL = 8 /* the footer's length, and PAR1 */, SMALLEST = 12 };
static const int64_t longest_footer = (int64_t)256 << 20;
size_t tt_pq_longest_row = (size_t)256 << 20; /* as of a line of JSON lines */

struct tt_parquet {
    tt_arena *a;
    const char *file;
    int fd;
    int64_t bytes, row; /* of the file; rows that were given */
    tt_pq_footer footer;
    tt_pq_column *columns; /* the leaves that are read */
    size_t n_columns;
    size_t group; /* the row group after the one that is read */
    int64_t in_group;
    tt_str text;
};

static tt_status refuse_file(const tt_parquet *p, tt_error *err, const char *why)
{
    return tt_fail(err, TT_EINVAL, "%s: not a Parquet file that can be read: %s", p->file, why);
}

/* ---- a value ---- */

static void print_string(tt_str *to, const uint8_t *s, size_t n)
{
    static const char hex[] = "0123456789abcdef";
    size_t from = 0;
    tt_str_addc(to, '"');
    for (size_t i = 0; i < n; i++) {
        if (s[i] >= 0x20 && s[i] != '"' && s[i] != '\\')
            continue;
        tt_str_addn(to, (const char *)s + from, i - from);
        from = i + 1;
        if (s[i] == '"' || s[i] == '\\') {
            tt_str_addc(to, '\\');
            tt_str_addc(to, (char)s[i]);
        } else if (s[i] == '\n') {
            tt_str_add(to, "\\n");
        } else {
            const char escape[] = {'\\', 'u', '0', '0', hex[s[i] >> 4], hex[s[i] & 15], 0};
            tt_str_add(to, escape);
        }
    }
    tt_str_addn(to, (const char *)s + from, n - from);
    tt_str_addc(to, '"');
}

enum { DECIMAL_BYTES = 32, DECIMAL_SCALE = 76 };

/* A big-endian integer of n bytes, in two's complement, with its last `scale` digits behind a point. */
static void print_decimal(tt_str *to, const uint8_t *p, size_t n, int scale)
{
    uint8_t size[DECIMAL_BYTES] = {0};
    char digits[3 * DECIMAL_BYTES];
    const bool minus = n > 0 && p[0] & 0x80;
    bool more = minus;
    int count = 0;
    for (size_t i = n; i-- > 0;) { /* more: the 1 that is added to the complement */
        size[i] = (uint8_t)((minus ? 0xff ^ p[i] : p[i]) + more);
        more = more && size[i] == 0;
    }
    do {
        int rest = 0;
        more = false;
        for (size_t i = 0; i < n; i++) {
            const int v = rest * 256 + size[i];
            size[i] = (uint8_t)(v / 10);
            rest = v % 10;
            more = more || size[i] != 0;
        }
        digits[count++] = (char)('0' + rest);
    } while (more || count <= scale);
    if (minus)
        tt_str_addc(to, '-');
    while (count-- > 0) {
        tt_str_addc(to, digits[count]);
        if (count == scale && count > 0)
            tt_str_addc(to, '.');
    }
}

static void print_integer(tt_str *to, const tt_pq_node *node, uint64_t bits)
{
    uint8_t big[8];
    if (node->meaning == TT_PQ_DECIMAL) {
        for (int i = 0; i < 8; i++)
            big[i] = (uint8_t)(bits >> (56 - 8 * i));
        print_decimal(to, big, sizeof big, node->scale);
    } else if (node->meaning == TT_PQ_UNSIGNED) {
        tt_str_printf(to, "%llu",
                      (unsigned long long)(node->type == TT_PQ_INT32 ? (uint32_t)bits : bits));
    } else {
        tt_str_printf(to, "%lld", (long long)bits);
    }
}

static void print_float(tt_str *to, const tt_pq_node *node, uint64_t bits)
{
    uint32_t low = (uint32_t)bits;
    float f;
    double d;
    memcpy(&f, &low, sizeof f);
    memcpy(&d, &bits, sizeof d);
    tt_str_json_number(to, node->type == TT_PQ_FLOAT ? (double)f : d);
}

static double half(int bits)
{
    const int exponent = bits >> 10 & 31, low = bits & 1023;
    const double size = exponent == 31  ? (low ? (double)NAN : (double)INFINITY)
                        : exponent == 0 ? ldexp(low, -24)
                                        : ldexp(low + 1024, exponent - 25);
    return bits & 0x8000 ? -size : size;
}

static void print_uuid(tt_str *to, const uint8_t *p)
{
    tt_str_addc(to, '"');
    for (int i = 0; i < 16; i++)
        tt_str_printf(to, "%s%02x", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", p[i]);
    tt_str_addc(to, '"');
}

static tt_status print_value(tt_parquet *p, const tt_pq_column *c, const tt_pq_value *v,
                             tt_error *err)
{
    const tt_pq_node *node = c->node;
    tt_str *to = &p->text;
    switch (node->type) {
    case TT_PQ_BOOLEAN:
        tt_str_add(to, v->bits ? "true" : "false");
        break;
    case TT_PQ_INT32:
    case TT_PQ_INT64:
        print_integer(to, node, v->bits);
        break;
    case TT_PQ_FLOAT:
    case TT_PQ_DOUBLE_TYPE:
        print_float(to, node, v->bits);
        break;
    default:
        if (node->meaning == TT_PQ_UUID) {
            print_uuid(to, v->p);
        } else if (node->meaning == TT_PQ_FLOAT16) {
            tt_str_json_number(to, half(v->p[0] | v->p[1] << 8));
        } else if (node->meaning == TT_PQ_DECIMAL) {
            if (v->n > DECIMAL_BYTES)
                return tt_pq_bad(c, err, "a DECIMAL of more than 76 digits");
            print_decimal(to, v->p, v->n, node->scale);
        } else {
            if (tt_utf8_valid((const char *)v->p, v->n) != v->n)
                return tt_pq_bad(c, err, "a value is not UTF-8");
            print_string(to, v->p, v->n);
        }
    }
    return TT_OK;
}

/* ---- the tree ---- */

static const tt_pq_node *first_leaf(const tt_pq_node *node)
{
    while (node->leaf < 0)
        node = node->children;
    return node;
}

/* Looks at the next entry below a node. Every column has one as long as a row is not whole. */
static tt_status look_at(const tt_pq_node *node, tt_pq_column **out, tt_error *err)
{
    bool more;
    *out = first_leaf(node)->column;
    TT_TRY(tt_pq_look(*out, &more, err));
    return more ? TT_OK : tt_pq_bad(*out, err, "its values end within a row");
}

/* Takes an entry of each leaf below a node that is not there: they must agree on that. */
static tt_status take_absent(const tt_pq_node *node, int def, uint32_t rep, tt_error *err)
{
    bool more;
    tt_pq_value none;
    if (node->leaf < 0) {
        for (size_t i = 0; i < node->n; i++)
            TT_TRY(take_absent(&node->children[i], def, rep, err));
        return TT_OK;
    }
    TT_TRY(tt_pq_look(node->column, &more, err));
    if (!more || node->column->def >= (uint32_t)def || node->column->rep != rep)
        return tt_pq_bad(node->column, err, "its levels do not fit those of its neighbours");
    return tt_pq_take(node->column, &none, err);
}

/* The leaves below a list have as many elements as its first leaf, c. */
static tt_status check_agreed(const tt_pq_node *node, const tt_pq_column *c, bool c_more,
                              tt_error *err)
{
    bool more;
    for (size_t i = 0; i < node->n; i++)
        TT_TRY(check_agreed(&node->children[i], c, c_more, err));
    if (node->leaf < 0 || node->column == c)
        return TT_OK;
    TT_TRY(tt_pq_look(node->column, &more, err));
    if (more != c_more || (more && node->column->rep != c->rep))
        return tt_pq_bad(node->column, err, "its levels do not fit those of its neighbours");
    return TT_OK;
}

static tt_status print_node(tt_parquet *p, const tt_pq_node *node, tt_error *err);

/* LIST annotates a group around a repeated one, which is the element itself in some older files (LogicalTypes.md, "backward
 * compatibility rules"), and otherwise has the element as its one child. */
static bool is_element(const tt_pq_node *list, const tt_pq_node *repeated)
{
    const size_t n = strlen(list->name);
    return repeated->leaf >= 0 || repeated->n != 1 ||
           repeated->children[0].repetition == TT_PQ_REPEATED || !strcmp(repeated->name, "array") ||
           (!strncmp(repeated->name, list->name, n) && !strcmp(repeated->name + n, "_tuple"));
}

static bool is_wrapper(const tt_pq_node *node, tt_pq_meaning meaning)
{
    return node->meaning == meaning && node->leaf < 0 && node->n == 1 &&
           node->children[0].repetition == TT_PQ_REPEATED;
}

static bool is_map(const tt_pq_node *node)
{
    return is_wrapper(node, TT_PQ_MAP_OF) && node->children[0].leaf < 0 &&
           node->children[0].n == 2 && node->children[0].children[0].leaf >= 0;
}

/* A few bytes can stand for very many nulls or empty lists. */
static tt_status check_length(const tt_parquet *p, size_t n, tt_error *err)
{
    return p->text.n <= tt_pq_longest_row && n <= tt_pq_longest_row - p->text.n
               ? TT_OK
               : tt_fail(err, TT_EINVAL, "%s: a row of more than 256 MiB", p->file);
}

/* The value of a node that is there. */
static tt_status print_there(tt_parquet *p, const tt_pq_node *node, tt_error *err)
{
    tt_pq_value v = {0};
    if (node->leaf >= 0) {
        TT_TRY(tt_pq_take(node->column, &v, err));
        TT_TRY(check_length(p, v.n, err));
        return print_value(p, node->column, &v, err);
    }
    if (is_wrapper(node, TT_PQ_LIST_OF) || is_map(node))
        return print_node(p, &node->children[0], err);
    tt_str_addc(&p->text, '{');
    for (size_t i = 0; i < node->n; i++) {
        tt_str_add(&p->text, i ? "," : "");
        print_string(&p->text, (const uint8_t *)node->children[i].name,
                     strlen(node->children[i].name));
        tt_str_addc(&p->text, ':');
        TT_TRY(print_node(p, &node->children[i], err));
    }
    tt_str_addc(&p->text, '}');
    return TT_OK;
}

/* "key": value; a key that is no string stands in quotes. */
static tt_status print_entry(tt_parquet *p, const tt_pq_node *entry, tt_error *err)
{
    const size_t at = p->text.n;
    TT_TRY(print_node(p, &entry->children[0], err));
    if (p->text.s[at] != '"') {
        tt_str key = {0};
        tt_str_addn(&key, p->text.s + at, p->text.n - at);
        p->text.n = at;
        tt_str_printf(&p->text, "\"%s\"", tt_str_get(&key));
        tt_str_free(&key);
    }
    tt_str_addc(&p->text, ':');
    return print_node(p, &entry->children[1], err);
}

static tt_status print_element(tt_parquet *p, const tt_pq_node *node, tt_error *err)
{
    if (is_map(node->parent))
        return print_entry(p, node, err);
    if (is_wrapper(node->parent, TT_PQ_LIST_OF) && !is_element(node->parent, node))
        return print_node(p, &node->children[0], err);
    return print_there(p, node, err);
}

static tt_status print_repeated(tt_parquet *p, const tt_pq_node *node, tt_error *err)
{
    const bool map = is_map(node->parent);
    tt_pq_column *c;
    bool more;
    TT_TRY(look_at(node, &c, err));
    tt_str_addc(&p->text, map ? '{' : '[');
    if (c->def < (uint32_t)node->def) {
        TT_TRY(take_absent(node, node->def, c->rep, err));
    } else {
        for (bool first = true;; first = false) {
            tt_str_add(&p->text, first ? "" : ",");
            TT_TRY(print_element(p, node, err));
            TT_TRY(tt_pq_look(c, &more, err));
            TT_TRY(check_agreed(node, c, more, err));
            if (!more || c->rep < (uint32_t)node->rep)
                break;
            if (c->rep > (uint32_t)node->rep || c->def < (uint32_t)node->def)
                return tt_pq_bad(c, err, "its levels are damaged");
        }
    }
    tt_str_addc(&p->text, map ? '}' : ']');
    return TT_OK;
}

static tt_status print_node(tt_parquet *p, const tt_pq_node *node, tt_error *err)
{
    tt_pq_column *c;
    TT_TRY(check_length(p, 0, err));
    if (node->repetition == TT_PQ_REPEATED)
        return print_repeated(p, node, err);
    TT_TRY(look_at(node, &c, err));
    if (c->def < (uint32_t)node->def) {
        if (node->repetition == TT_PQ_REQUIRED)
            return tt_pq_bad(c, err, "its levels do not fit those of its neighbours");
        tt_str_add(&p->text, "null");
        return take_absent(node, node->def, c->rep, err);
    }
    return print_there(p, node, err);
}

/* ---- the file ---- */

int tt_parquet_is(const char *path)
{
    char magic[4] = "";
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    const bool read = fd >= 0 && pread(fd, magic, sizeof magic, 0) == sizeof magic;
    if (fd >= 0)
        close(fd);
    return read && (!memcmp(magic, "PAR1", 4) || !memcmp(magic, "PARE", 4));
}

static tt_status read_footer(tt_parquet *p, tt_error *err)
{
    uint8_t tail[TAIL], *bytes;
    const char *fault = NULL;
    if (p->bytes < SMALLEST)
        return refuse_file(p, err, "it is too short");
    TT_TRY(tt_pq_read_at(p->fd, p->file, tail, TAIL, p->bytes - TAIL, err));
    const int64_t n =
        (int64_t)((uint32_t)(tail[0] | tail[1] << 8 | tail[2] << 16) | (uint32_t)tail[3] << 24);
    if (!memcmp(tail + 4, "PARE", 4))
        return refuse_file(p, err, "it is encrypted");
    if (memcmp(tail + 4, "PAR1", 4) != 0)
        return refuse_file(p, err,
                           "it does not end with PAR1, so it was cut off or is something else");
    if (n > p->bytes - SMALLEST || n > longest_footer)
        return refuse_file(p, err, "its footer would be longer than it is");
    bytes = malloc((size_t)n + 1);
    if (!bytes)
        return tt_fail(err, TT_ENOMEM, "%s: there is no memory for a footer of %lld bytes", p->file,
                       (long long)n);
    tt_status s = tt_pq_read_at(p->fd, p->file, bytes, (size_t)n, p->bytes - TAIL - n, err);
    if (s == TT_OK && !tt_pq_read_footer(bytes, (size_t)n, p->bytes, p->a, &p->footer, &fault))
        s = refuse_file(p, err, fault);
    free(bytes);
    return s;
}

static bool is_wanted(const char *name, const char *const *columns, size_t n)
{
    for (size_t i = 0; columns && i < n; i++)
        if (!strcmp(columns[i], name))
            return true;
    return !columns;
}

static const char *refused_type(const tt_pq_node *node)
{
    if (node->type == TT_PQ_INT96)
        return "INT96";
    if (node->meaning == TT_PQ_INTERVAL)
        return "INTERVAL";
    if (node->meaning == TT_PQ_DECIMAL &&
        (node->scale < 0 || node->scale > DECIMAL_SCALE ||
         (node->type == TT_PQ_FIXED && node->width > DECIMAL_BYTES)))
        return "a DECIMAL of more than 76 digits";
    if (node->meaning == TT_PQ_UUID && node->width != 16)
        return "a UUID that has not 16 bytes";
    if (node->meaning == TT_PQ_FLOAT16 && node->width != 2)
        return "a FLOAT16 that has not 2 bytes";
    return NULL;
}

/* The columns below a node are read. */
static tt_status choose_leaves(tt_parquet *p, tt_pq_node *node, tt_error *err)
{
    for (size_t i = 0; i < node->n; i++)
        TT_TRY(choose_leaves(p, &node->children[i], err));
    if (node->leaf < 0)
        return TT_OK;
    node->column = &p->columns[p->n_columns++];
    *node->column = (tt_pq_column){.node = node, .file = p->file, .fd = p->fd};
    const char *type = refused_type(node);
    if (type)
        return tt_pq_bad(node->column, err, "its type is %s, which is not read", type);
    for (size_t g = 0; g < p->footer.n_groups; g++) {
        const char *codec = tt_pq_codec_refused(p->footer.groups[g].chunks[node->leaf].codec);
        if (codec)
            return tt_pq_bad(node->column, err,
                             "it is compressed by %s, which is not read; write the file with zstd "
                             "or snappy",
                             codec);
    }
    return TT_OK;
}

static tt_status open_parquet(tt_parquet *p, const char *const *columns, size_t n_columns,
                              tt_error *err)
{
    struct stat st;
    p->fd = open(p->file, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (p->fd < 0 || fstat(p->fd, &st) != 0)
        return tt_fail(err, TT_EIO, "cannot read %s: %s", p->file, strerror(errno));
    if (!S_ISREG(st.st_mode))
        return refuse_file(p, err, "it is not a regular file");
    p->bytes = st.st_size;
    TT_TRY(read_footer(p, err));
    p->columns = tt_arena_array(p->a, (size_t)p->footer.n_leaves + 1, sizeof *p->columns);
    for (size_t i = 0; i < p->footer.root.n; i++) {
        tt_pq_node *node = &p->footer.root.children[i];
        node->chosen = is_wanted(node->name, columns, n_columns);
        if (node->chosen)
            TT_TRY(choose_leaves(p, node, err));
    }
    return TT_OK;
}

tt_status tt_parquet_open(const char *path, const char *const *columns, size_t n_columns,
                          tt_parquet **out, tt_error *err)
{
    tt_parquet *p = calloc(1, sizeof *p);
    if (!p)
        return TT_FAIL(err, TT_ENOMEM, "there is no memory to open %s", path);
    p->a = tt_arena_new();
    p->file = tt_arena_str(p->a, path);
    p->fd = -1;
    const tt_status s = open_parquet(p, columns, n_columns, err);
    if (s == TT_OK)
        *out = p;
    else
        tt_parquet_close(p);
    return s;
}

void tt_parquet_close(tt_parquet *p)
{
    if (!p)
        return;
    for (size_t i = 0; i < p->n_columns; i++)
        tt_pq_column_free(&p->columns[i]);
    if (p->fd >= 0)
        close(p->fd);
    tt_str_free(&p->text);
    tt_arena_free(p->a);
    free(p);
}

int64_t tt_parquet_rows(const tt_parquet *p)
{
    return p->footer.rows;
}

int64_t tt_parquet_taken(const tt_parquet *p)
{
    return p->footer.rows ? (int64_t)((double)p->bytes * ((double)p->row / (double)p->footer.rows))
                          : p->bytes;
}

/* Each column begins a row, or, at the end of a row group, has nothing left. */
static tt_status check_edges(const tt_parquet *p, bool begins, tt_error *err)
{
    bool more;
    for (size_t i = 0; i < p->n_columns; i++) {
        tt_pq_column *c = &p->columns[i];
        TT_TRY(tt_pq_look(c, &more, err));
        if (more != begins || (more && c->rep != 0))
            return tt_pq_bad(c, err, "it has other rows than its row group");
    }
    return TT_OK;
}

static tt_status begin_group(tt_parquet *p, tt_error *err)
{
    if (p->group > 0)
        TT_TRY(check_edges(p, false, err));
    while (p->in_group == 0 && p->group < p->footer.n_groups) {
        const tt_pq_group *g = &p->footer.groups[p->group++];
        p->in_group = g->rows;
        for (size_t i = 0; i < p->n_columns; i++)
            tt_pq_column_begin(&p->columns[i], &g->chunks[p->columns[i].node->leaf]);
    }
    return TT_OK;
}

static tt_status print_row(tt_parquet *p, tt_error *err)
{
    bool first = true;
    tt_str_clear(&p->text);
    tt_str_addc(&p->text, '{');
    TT_TRY(check_edges(p, true, err));
    for (size_t i = 0; i < p->footer.root.n; i++) {
        const tt_pq_node *node = &p->footer.root.children[i];
        if (!node->chosen)
            continue;
        tt_str_add(&p->text, first ? "" : ",");
        print_string(&p->text, (const uint8_t *)node->name, strlen(node->name));
        tt_str_addc(&p->text, ':');
        TT_TRY(print_node(p, node, err));
        first = false;
    }
    tt_str_addc(&p->text, '}');
    return TT_OK;
}

tt_status tt_parquet_next(tt_parquet *p, const char **json, size_t *n, tt_error *err)
{
    *json = NULL;
    *n = 0;
    if (p->in_group == 0)
        TT_TRY(begin_group(p, err));
    if (p->in_group == 0)
        return TT_OK;
    p->in_group--;
    p->row++;
    const tt_status s = print_row(p, err);
    if (s != TT_OK)
        return tt_error_context(err, "row %lld", (long long)p->row);
    *json = tt_str_get(&p->text);
    *n = p->text.n;
    return TT_OK;
}
