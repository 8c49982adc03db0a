/* SPDX-License-Identifier: Apache-2.0 */
/* mutate_tool TABLE N SEED ROOT <FILES: puts faults into the C files of the tree ROOT, in place, each behind a switch of its own (mutant.h): the
 * rows of TABLE, and N drawn with SEED from all that FILES have, one name a line. Prints what each is, in columns:
 * number, file:line, the tests that are to find it or -, what it is. `mutate_tool TABLE check` only says which rows do not fit the files.
 *
 * What is drawn is of five kinds, each as often: a condition of `if` turned, one clause of && or || taken for settled, a bound one
 * further, a statement left out, two arguments of one type swapped. All are text put in, nothing is taken away, so that they nest. */
#include "source.h"

enum { TURNED, CLAUSE, BOUND, LEFT_OUT, SWAPPED, N_KINDS, ROW };
static const char *const kind_names[] = {"a condition turned", "a clause taken for settled",
                                         "a bound one further", "a statement left out",
                                         "arguments swapped"};

/* What goes in before `at` and at `end`; "%d" in it is the number of the fault. */
typedef struct fault {
    source *file;
    size_t at, end;
    const char *before, *after;
    const char *tests, *what;
    int kind, number;
} fault;

typedef struct prototype {
    int n;
    const char **types;
} prototype;

static TT_VEC(source *) sources;
static TT_VEC(fault) sites[N_KINDS];
static TT_VEC(fault) faults;
static tt_map *prototypes; /* of name, and of "file:name" */

/* ---- prototypes: what a function's parameters are ---- */

static void learn_prototype(const source *f, int name)
{
    int starts[32], n = parts_of(f, name + 1, starts);
    prototype *p = tt_arena_alloc(arena, sizeof *p);
    p->n = n;
    p->types = tt_arena_array(arena, (size_t)n + 1, sizeof *p->types);
    for (int i = 0; i < n; i++) {
        tt_str type = {0};
        for (int k = starts[i]; k < starts[i + 1] - 1; k++) {
            bool last = f->tokens[k].kind == 'i' && (k + 2 == starts[i + 1] || is(f, k + 1, "["));
            if (!last && !is(f, k, "const")) {
                tt_str_addn(&type, f->text + f->tokens[k].at, f->tokens[k].end - f->tokens[k].at);
                tt_str_addc(&type, ' ');
            }
        }
        p->types[i] = tt_arena_str(arena, tt_str_get(&type));
        tt_str_free(&type);
    }
    const char *word = text_of(f, name, name + 1);
    tt_map_set(prototypes, tt_arena_printf(arena, "%s:%s", f->name, word), p);
    if (!is(f, name - 2, "static") && !tt_map_get(prototypes, word))
        tt_map_set(prototypes, word, p);
}

static void learn_prototypes(const source *f)
{
    for (int i = 1; i + 1 < f->n_tokens; i++) {
        int around = f->tokens[i].enclosing;
        bool outside = around < 0 || f->tokens[around - 1].kind == 's'; /* extern "C" { */
        if (outside && identifier(f, i) && is(f, i + 1, "(") &&
            (f->tokens[i - 1].kind == 'i' || is(f, i - 1, "*")))
            learn_prototype(f, i);
    }
}

/* ---- where a fault may be ---- */

static void add_site(int kind, source *f, size_t at, size_t end, const char *before,
                     const char *after)
{
    fault site = {f, at, end, before, after, "-", kind_names[kind], kind, 0};
    tt_vec_push(arena, &sites[kind], site);
}

static void find_clause(source *f, int i)
{
    static const char *const after_and[] = {"&&", "||", "?", ":", ",", ";", NULL};
    bool both = is(f, i, "&&");
    int end = operand_end(f, i + 1, both ? after_and : after_and + 1);
    add_site(CLAUSE, f, f->tokens[i + 1].at, f->tokens[end - 1].end,
             both ? "(tt_mutant(%d) || (" : "(!tt_mutant(%d) && (", "))");
}

static bool is_value(const source *f, int i)
{
    return f->tokens[i].kind == 'n' || identifier(f, i) || is(f, i, ")") || is(f, i, "]");
}

static void find_bound(source *f, int i)
{
    if (is(f, i, "1")) {
        if ((is(f, i - 1, "+") || is(f, i - 1, "-")) && is_value(f, i - 2))
            add_site(BOUND, f, f->tokens[i].at, f->tokens[i].end, "(!tt_mutant(%d) && ", ")");
        return;
    }
    bool up = is(f, i, "<") || is(f, i, ">=");
    size_t at = f->tokens[i + 1].at;
    add_site(BOUND, f, at, at, up ? "tt_mutant(%d) + " : "-tt_mutant(%d) + ", "");
}

/* Where statement i begins after a statement, a block or a head. */
static bool begins_statement(const source *f, int i)
{
    static const char *const before[] = {";", "{", "}", "else", "do", NULL};
    static const char *const heads[] = {"if", "for", "while", "switch", NULL};
    if (!is(f, f->tokens[i].enclosing, "{")) /* within the head of a for */
        return false;
    return is_one_of(f, i - 1, before) ||
           (is(f, i - 1, ")") && is_one_of(f, f->tokens[i - 1].partner - 1, heads));
}

/* The end of the statement at i, if it is an expression that does something; else -1. Freeing does nothing that a test without a
 * sanitizer could see. */
static int expression_end(const source *f, int i)
{
    if (!(identifier(f, i) || is(f, i, "*")) ||
        (identifier(f, i) && (identifier(f, i + 1) || is(f, i + 1, "*") || is(f, i + 1, ":"))))
        return -1;
    const char *word = text_of(f, i, i + 1);
    size_t n = strlen(word);
    if (strncmp(word, "TT_ASSERT", 9) == 0 || strcmp(word, "free") == 0 ||
        strcmp(word, "va_end") == 0 || (n > 5 && strcmp(word + n - 5, "_free") == 0))
        return -1;
    bool does = false;
    int k = i;
    while (k < f->n_tokens && !is(f, k, ";")) {
        if (strchr("]})", f->tokens[k].kind) || (f->tokens[k].kind == '{'))
            return -1;
        size_t length = f->tokens[k].end - f->tokens[k].at;
        char last = f->text[f->tokens[k].end - 1];
        does = does ||
               (last == '=' && !is(f, k, "==") && !is(f, k, "!=") && !is(f, k, "<=") &&
                !is(f, k, ">=")) ||
               (length == 2 && (is(f, k, "++") || is(f, k, "--"))) || is(f, k, "(");
        bool opens = is(f, k, "(") || is(f, k, "[");
        k = opens ? f->tokens[k].partner + 1 : k + 1;
    }
    return does ? k : -1;
}

/* Functions of which two arguments may change places: a swap would have no effect. */
static const char *const symmetric[] = {"tt_arena_array", "tt_add",       "tt_mul",
                                        "tt_min",         "tt_max",       "tt_maximum",
                                        "tt_minimum",     "cpu_min",      "cpu_max",
                                        "tt_mul_i64",     "tt_add_i64",   "tt_equal",
                                        "tt_not_equal",   "same_number",  "tt_placement_equal",
                                        "equal_within",   "logits_alike", NULL};

static void find_swaps(source *f, int name)
{
    const char *word = text_of(f, name, name + 1);
    const prototype *p = tt_map_get(prototypes, tt_arena_printf(arena, "%s:%s", f->name, word));
    if (!p)
        p = tt_map_get(prototypes, word);
    int starts[32], n = parts_of(f, name + 1, starts);
    if (!p || p->n != n || is_one_of(f, name, symmetric) || is(f, name - 1, ".") ||
        is(f, name - 1, "->"))
        return;
    for (int i = 0; i + 1 < n; i++) {
        const char *a = text_of(f, starts[i], starts[i + 1] - 1),
                   *b = text_of(f, starts[i + 1], starts[i + 2] - 1);
        if (strcmp(p->types[i], p->types[i + 1]) != 0 || strcmp(a, b) == 0 ||
            strstr(p->types[i], "..."))
            continue;
        const char *head = text_of(f, name, starts[i]);
        int rest = starts[i + 2] - 1, close = f->tokens[name + 1].partner;
        const char *tail = text_of(f, rest, close + 1);
        add_site(SWAPPED, f, f->tokens[name].at, f->tokens[close].end,
                 tt_arena_printf(arena, "(tt_mutant(%%d) ? %s%s, %s%s : ", head, b, a, tail), ")");
    }
}

/* What runs when a function is called, but for what must be a constant. */
static int skip_constant(const source *f, int i)
{
    static const char *const whole[] = {"static", "enum", "_Static_assert", NULL};
    static const char *const stops[] = {";", NULL}, *const labels[] = {":", NULL};
    if (is(f, i, "sizeof") && is(f, i + 1, "("))
        return f->tokens[i + 1].partner;
    if (is_one_of(f, i, whole))
        return operand_end(f, i, stops);
    if (is(f, i, "case"))
        return operand_end(f, i, labels);
    /* the size of an array, where it is declared */
    if (is(f, i, "[") && identifier(f, i - 1) &&
        (f->tokens[i - 2].kind == 'i' || is(f, i - 2, "*")) && !is(f, i - 2, "return"))
        return f->tokens[i].partner;
    return i;
}

static void find_in_body(source *f, int open)
{
    for (int i = open + 1; i < f->tokens[open].partner; i++) {
        int past = skip_constant(f, i);
        if (past > i) {
            i = past;
            continue;
        }
        if (is(f, i, "if") && is(f, i + 1, "(")) {
            int close = f->tokens[i + 1].partner;
            add_site(TURNED, f, f->tokens[i + 2].at, f->tokens[close - 1].end,
                     "tt_mutant(%d) != !!(", ")");
        } else if (is(f, i, "&&") || is(f, i, "||")) {
            find_clause(f, i);
        } else if (is(f, i, "<") || is(f, i, ">") || is(f, i, "<=") || is(f, i, ">=") ||
                   is(f, i, "1")) {
            find_bound(f, i);
        } else if (identifier(f, i) && is(f, i + 1, "(") && !identifier(f, i - 1)) {
            find_swaps(f, i);
        }
        int end = begins_statement(f, i) ? expression_end(f, i) : -1;
        if (end > i)
            add_site(LEFT_OUT, f, f->tokens[i].at, f->tokens[end].end, "{ if (!tt_mutant(%d)) ",
                     " }");
    }
}

static void find_sites(source *f)
{
    size_t n = strlen(f->name);
    bool is_header = n > 2 && strcmp(f->name + n - 2, ".h") == 0; /* others compile headers too */
    for (int i = 1; i < f->n_tokens && !is_header; i++) {
        if (is(f, i, "{") && f->tokens[i].enclosing < 0 && is(f, i - 1, ")")) {
            find_in_body(f, i);
            i = f->tokens[i].partner;
        }
    }
}

/* ---- which of them ---- */

static bool crosses(const fault *a, const fault *b)
{
    return a->file == b->file && ((a->at < b->at && b->at < a->end && a->end < b->end) ||
                                  (b->at < a->at && a->at < b->end && b->end < a->end));
}

static bool take(const fault *f)
{
    for (size_t i = 0; i < faults.n; i++)
        if (crosses(f, &faults.items[i]))
            return false;
    fault with = *f;
    with.number = (int)faults.n + 1;
    tt_vec_push(arena, &faults, with);
    return true;
}

static void draw(int n, uint64_t seed)
{
    for (int kind = 0; kind < N_KINDS; kind++) {
        tt_rng_key key = tt_rng_key_make(seed, "mutants", (uint64_t)kind);
        int wanted = (n + kind) / N_KINDS;
        for (size_t i = 0; i < sites[kind].n && wanted > 0; i++)
            wanted -= take(&sites[kind].items[tt_rng_permute(key, sites[kind].n, i)]);
    }
}

/* ---- the table ---- */

static source *open_source(const char *root, const char *name)
{
    for (size_t i = 0; i < sources.n; i++)
        if (strcmp(sources.items[i]->name, name) == 0)
            return sources.items[i];
    tt_error err = {0};
    source *f = tt_arena_alloc(arena, sizeof *f);
    f->name = tt_arena_str(arena, name);
    if (tt_read_file(tt_arena_printf(arena, "%s/%s", root, name), 0, &f->text, &f->n, &err) !=
        TT_OK)
        die(err.text, name);
    tt_vec_push(arena, &sources, f);
    return f;
}

typedef struct row {
    int line;
    const char *head, *why; /* it has no effect; NULL: it has one */
    tt_str old, new;
} row;

/* Whether brackets within a text are closed there, and, of an expression, no comma or semicolon is outside of them: otherwise
 * what is put around it is no C. */
static bool is_whole(const char *text, bool statement)
{
    static const char brackets[] = "()[]{}";
    char open[64];
    int n = 0;
    for (const char *p = text; *p; p++) {
        const char *pair = strchr(brackets, *p), quote = *p;
        if (quote == '"' || quote == '\'') {
            for (p++; *p && *p != quote; p++)
                p += *p == '\\' && p[1];
            if (!*p)
                return false;
        } else if (pair && (pair - brackets) % 2 == 0) {
            if (n == (int)sizeof open)
                return false;
            open[n++] = pair[1];
        } else if (pair) {
            if (n == 0 || open[--n] != *p)
                return false;
        } else if (!statement && n == 0 && strchr(",;", *p)) {
            return false;
        }
    }
    return n == 0;
}

static bool add_row(const char *root, row *r)
{
    char name[256], tests[256];
    int rest = 0;
    if (sscanf(r->head, "%255s %255s %n", name, tests, &rest) < 2 || r->old.n == 0)
        die("a row is FILE TESTS WHAT, then lines that begin with - and +", r->head);
    source *f = open_source(root, name);
    const char *at = strstr(f->text, r->old.s);
    const char *how = !at ? "is not in" : strstr(at + 1, r->old.s) ? "is more than once in" : NULL;
    if (how) {
        printf("line %d of the table: the old text %s %s\n", r->line, how, name);
        return false;
    }
    const bool statement = r->old.s[r->old.n - 1] == ';' || r->old.s[r->old.n - 1] == '}';
    if ((!statement && !r->new.n) || !is_whole(r->old.s, statement) ||
        !is_whole(tt_str_get(&r->new), statement)) {
        printf("line %d of the table: not a whole %s\n", r->line,
               statement ? "statement" : "expression");
        return false;
    }
    for (size_t i = 0; i < r->new.n; i++) /* the lines keep their numbers */
        r->new.s[i] = r->new.s[i] == '\n' ? ' ' : r->new.s[i];
    const char *form =
        statement ? "{ if (tt_mutant(%%d)) { %s } else { " : "(tt_mutant(%%d) ? (%s) : (";
    size_t from = (size_t)(at - f->text);
    from += strspn(at, " ");
    fault made = {f,
                  from,
                  (size_t)(at - f->text) + r->old.n,
                  tt_arena_printf(arena, form, tt_str_get(&r->new)),
                  statement ? " } }" : "))",
                  r->why ? "=" : tt_arena_str(arena, tests),
                  tt_arena_printf(arena, r->why ? "%s: %s" : "%s", r->head + rest, r->why),
                  ROW,
                  0};
    if (take(&made))
        return true;
    printf("line %d of the table: its text begins or ends within another row's\n", r->line);
    return false;
}

static bool end_row(const char *root, row *r)
{
    const bool fits = !r->head || add_row(root, r);
    tt_str_free(&r->old);
    tt_str_free(&r->new);
    *r = (row){0};
    return fits;
}

static bool read_table(const char *path, const char *root)
{
    tt_error err = {0};
    char *text;
    size_t size;
    if (tt_read_file(path, 0, &text, &size, &err) != TT_OK)
        die(err.text, path);
    row r = {0};
    int n = 0;
    bool fits = true;
    for (char *line = text, *next; line; line = next) {
        next = strchr(line, '\n');
        if (next)
            *next++ = '\0';
        n++;
        tt_str *part = *line == '-' ? &r.old : *line == '+' ? &r.new : NULL;
        if (part && r.head) {
            if (part->n > 0)
                tt_str_addc(part, '\n');
            tt_str_add(part, line[1] ? line + 2 : "");
        } else if (*line == '=') {
            r.why = line + 1 + strspn(line + 1, " ");
        } else if (*line != '#' && *line != '\0') {
            fits = end_row(root, &r) && fits;
            r.head = line;
            r.line = n;
        }
    }
    fits = end_row(root, &r) && fits;
    free(text);
    return fits;
}

/* ---- what comes out ---- */

typedef struct piece {
    size_t at;
    bool begins;      /* before what is at `at`, else behind what ends there */
    size_t other_end; /* of the text around which it stands */
    int number;
    const char *text;
} piece;

/* Of what begins at one place the outer comes first, of what ends there the inner. */
static int by_place(const void *pa, const void *pb)
{
    const piece *a = pa, *b = pb;
    if (a->at != b->at)
        return a->at < b->at ? -1 : 1;
    if (a->begins != b->begins)
        return a->begins ? 1 : -1;
    if (a->other_end != b->other_end)
        return a->other_end > b->other_end ? -1 : 1;
    return a->begins ? a->number - b->number : b->number - a->number;
}

static void write_source(const char *root, const source *f)
{
    TT_VEC(piece) pieces = {0};
    for (size_t i = 0; i < faults.n; i++) {
        const fault *x = &faults.items[i];
        if (x->file != f)
            continue;
        /* a place without text is before what begins there, whatever that is */
        piece before = {x->at, true, x->at == x->end ? SIZE_MAX : x->end, x->number, x->before};
        piece after = {x->end, false, x->at, x->number, x->after};
        tt_vec_push(arena, &pieces, before);
        if (x->at != x->end)
            tt_vec_push(arena, &pieces, after);
    }
    if (pieces.n == 0)
        return;
    qsort(pieces.items, pieces.n, sizeof *pieces.items, by_place);
    tt_str out = {0};
    size_t done = 0;
    for (size_t i = 0; i < pieces.n; i++) {
        const piece *p = &pieces.items[i];
        tt_str_addn(&out, f->text + done, p->at - done);
        done = p->at;
        const char *number = strstr(p->text, "tt_mutant(%d)");
        if (number)
            tt_str_printf(&out, "%.*stt_mutant(%d)%s", (int)(number - p->text), p->text, p->number,
                          number + strlen("tt_mutant(%d)"));
        else
            tt_str_add(&out, p->text);
    }
    tt_str_addn(&out, f->text + done, f->n - done);
    tt_error err = {0};
    if (tt_write_file_atomic(tt_arena_printf(arena, "%s/%s", root, f->name), out.s, out.n, &err) !=
        TT_OK)
        die(err.text, f->name);
    tt_str_free(&out);
}

static void print_fault(const fault *f)
{
    int line = 1;
    for (size_t i = 0; i < f->at; i++)
        line += f->file->text[i] == '\n';
    printf("%d\t%s:%d\t%s\t%s", f->number, f->file->name, line, f->tests, f->what);
    if (f->kind != ROW) {
        size_t end = f->end > f->at ? f->end : f->at + strcspn(f->file->text + f->at, ";,)\n");
        printf(": ");
        for (size_t i = f->at; i < end && i < f->at + 80; i++)
            putchar(isspace((unsigned char)f->file->text[i]) ? ' ' : f->file->text[i]);
    }
    printf("\n");
}

int main(int argc, char **argv)
{
    bool check = argc == 3 && strcmp(argv[2], "check") == 0;
    if (argc != 5 && !check) {
        fprintf(stderr,
                "usage: mutate_tool TABLE N SEED ROOT <FILES, or mutate_tool TABLE check\n");
        return 2;
    }
    arena = tt_arena_new();
    prototypes = tt_map_new(arena);
    const char *root = check ? "." : argv[4];
    bool fits = read_table(argv[1], root);
    if (!check) {
        char name[256];
        while (scanf("%255s", name) == 1)
            open_source(root, name);
        for (size_t i = 0; i < sources.n; i++) {
            tokenize(sources.items[i]);
            learn_prototypes(sources.items[i]);
        }
        for (size_t i = 0; i < sources.n; i++)
            find_sites(sources.items[i]);
        draw(atoi(argv[2]), strtoull(argv[3], NULL, 10));
        for (size_t i = 0; i < sources.n; i++)
            write_source(root, sources.items[i]);
        for (size_t i = 0; i < faults.n; i++)
            print_fault(&faults.items[i]);
    }
    for (size_t i = 0; i < sources.n; i++)
        free(sources.items[i]->text);
    tt_arena_free(arena);
    return fits ? 0 : 1;
}
