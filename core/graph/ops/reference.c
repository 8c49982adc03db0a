/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/op.h"
#include <string.h>

/* Writes docs/ops.md and the table in include/ttrun/ops.h from the definitions of the core's ops. */

#define RULE_COLUMN 22

/* The i-th operand's name in "ids i[T], w f[V,D] → [T,D]"; "" where there is none. */
static void operand_name(const char *operands, int i, char *name, size_t size)
{
    int depth = 0;
    const char *s = operands, *end = strstr(operands, "→");
    name[0] = 0;
    for (; i > 0 && s < end; s++) {
        depth += *s == '[' ? 1 : *s == ']' ? -1 : 0;
        i -= *s == ',' && depth == 0;
    }
    s += strspn(s, " ");
    if (s < end)
        snprintf(name, size, "%.*s", (int)strcspn(s, " ,["), s);
}

/* The other properties that passes and the placer read from the definition, in words. */
static void add_properties(const tt_op_def *op, tt_str *out)
{
    static const struct {
        uint32_t flag;
        const char *text;
    } rows[] = {
        {TT_OP_POINTWISE,    "pointwise"            },
        {TT_OP_MIXES_TOKENS, "mixes tokens"         },
        {TT_OP_ORDERED,      "needs tokens in order"},
        {TT_OP_VIEW,         "may alias its input"  },
        {TT_OP_UPDATES,      "updates inputs"       },
        {TT_OP_ADDS_ROWS,    "adds rows"            },
    };
    const char *comma = "";
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (op->flags & rows[i].flag) {
            tt_str_printf(out, "%s%s", comma, rows[i].text);
            comma = ", ";
        }
    if (op->reduce_max) {
        tt_str_printf(out, "%spartial(max)", comma);
        comma = ", ";
    }
    if (op->n_memory) {
        tt_str_printf(out, "%sdecodes with %d states", comma, op->n_memory);
        comma = ", ";
    }
    if (op->linear_inputs == TT_LINEAR_JOINT)
        tt_str_printf(out, "%slinear in all operands together", comma);
    else if (op->linear_inputs) {
        const char *between = "linear in ";
        for (int i = 0; i < TT_MAX_INS; i++) {
            char name[32];
            if (!(op->linear_inputs >> i & 1))
                continue;
            operand_name(op->operands, i, name, sizeof name);
            tt_str_printf(out, "%s%s%s", comma, between, name);
            comma = "";
            between = ", ";
        }
    }
}

/* `text` in a cell of a Markdown table. */
static void add_cell(tt_str *out, const char *text)
{
    for (const char *s = text; *s; s++) {
        if (*s == '|')
            tt_str_addc(out, '\\');
        tt_str_addc(out, *s);
    }
}

static const char *rule_text(const tt_op_def *op)
{
    return op->rule ? op->rule : "by shape";
}

static void page_row(const tt_op_def *op, tt_str *out)
{
    tt_str_printf(out, "| `%s` | ", op->name);
    add_cell(out, op->doc);
    tt_str_add(out, " | ");
    add_cell(out, op->operands);
    if (op->attributes)
        tt_str_printf(out, "<br>`%s`", op->attributes);
    tt_str_printf(out, op->rule ? " | `%s` | " : " | %s | ", rule_text(op));
    tt_str_add(out, op->vjp ? "yes" : op->flags & TT_OP_NO_GRADIENT ? "zero" : "no");
    tt_str_printf(out, " | %s | ", op->decompose ? "yes" : "no");
    add_properties(op, out);
    tt_str_add(out, " |\n");
}

void tt_op_reference_page(tt_str *out)
{
    size_t n;
    const tt_op_def *const *ops = tt_core_ops(&n);
    tt_str_add(
        out,
        "# Ops\n\nMade from the definitions in core/graph/ops by `make docs`; do not edit. "
        "`include/ttrun/builder.h` has the\nfunctions that put these ops into a graph, "
        "`include/ttrun/ops.h` their attributes, and `include/ttrun/op.h` the\nlanguage of "
        "sharding rules.\n\n"
        "- **what it computes**: [..] are dims, T tokens, S keys, D width, V vocabulary, H query "
        "heads, K kv heads (of conv1d taps), hd head_dim,\n  dv v_head_dim, E experts, R rows; a "
        "rank's *box* is its part of a sharded value. Operands of pointwise ops broadcast: dims "
        "are "
        "aligned at the\n  right, and a dim that is missing or has size 1 is repeated.\n"
        "- **operands → results**: `f` is f32 (bf16 after a cast to it), `i` is i32, `[, sinks]` "
        "is "
        "an operand that may be missing, and *as x* is the\n  shape and dtype of x (*as both*: "
        "broadcast and promoted). Below them: the C type of the op's attributes, if it has any.\n"
        "- **sharding rule**: *by shape* if the op writes its rule from its operands' shapes.\n"
        "- **gradient**: *yes*: the op declares its derivative, in other ops; *zero*: the "
        "derivative is zero by definition;\n  *no*: an error where a gradient must pass.\n"
        "- **decomposes**: the op runs on a backend that has no kernel for it, as other ops.\n\n"
        "Every op declares its shape rule and its cost (floating-point operations, bytes moved) "
        "too.\n\n"
        "| op | what it computes | operands → results | sharding rule | gradient | decomposes | "
        "properties |\n|---|---|---|---|---|---|---|\n");
    for (size_t i = 0; i < n; i++)
        page_row(ops[i], out);
}

/* Pointwise ops without attributes share one shape: the header lists them by operands alone. */
static bool in_list(const tt_op_def *op)
{
    return (op->flags & TT_OP_POINTWISE) && !op->attributes;
}

static void header_row(const tt_op_def *op, tt_str *out)
{
    const char *rule = rule_text(op);
    const bool fits = strlen(rule) < RULE_COLUMN;
    tt_str_printf(out, " * %-19s%-*s%s%s%s\n", op->name, RULE_COLUMN, fits ? rule : "(below)",
                  op->operands, op->attributes ? " · " : "", op->attributes ? op->attributes : "");
    if (!fits)
        tt_str_printf(out, " * %-19s%s\n", "", rule);
}

static void header_list(const tt_op_def *const *ops, size_t n, tt_str *out)
{
    tt_str line = {0}, item = {0};
    tt_str_add(&line, " * pointwise:");
    for (size_t i = 0; i < n; i++) {
        if (!in_list(ops[i]))
            continue;
        const char *end = strstr(ops[i]->operands, " →");
        tt_str_clear(&item);
        tt_str_printf(&item, " %s(%.*s)", ops[i]->name, end ? (int)(end - ops[i]->operands) : 0,
                      ops[i]->operands);
        if (line.n + item.n > 98) {
            tt_str_printf(out, "%s\n", tt_str_get(&line));
            tt_str_clear(&line);
            tt_str_add(&line, " *   ");
        }
        tt_str_add(&line, tt_str_get(&item));
    }
    tt_str_add(out, tt_str_get(&line));
    tt_str_free(&line);
    tt_str_free(&item);
}

/* The functions of ops of one operand, their comments in one column. */
static void header_functions(const tt_op_def *const *ops, size_t n, tt_str *out)
{
    tt_str line = {0};
    for (int pass = 0, widest = 0; pass < 2; pass++)
        for (size_t i = 0; i < n; i++) {
            if (!ops[i]->function)
                continue;
            tt_str_clear(&line);
            tt_str_printf(&line, "TT_EXPORT tt_value *%s(tt_builder *b, tt_value *x);",
                          ops[i]->function);
            widest = TT_MAXV(widest, (int)line.n);
            if (pass)
                tt_str_printf(out, "%-*s /* %s */\n", widest, tt_str_get(&line), ops[i]->doc);
        }
    tt_str_free(&line);
}

/* Ops that tt_experts() and its expansions alone build: docs/ops.md has them, for those who write
 * kernels. */
static bool of_expert_layers(const tt_op_def *op)
{
    return (op->flags & TT_OP_PLACES_OPERANDS) || !strncmp(op->name, "dispatch_", 9);
}

void tt_op_reference_header(tt_str *out)
{
    size_t n;
    const tt_op_def *const *ops = tt_core_ops(&n);
    tt_str_printf(out, "/* %-19s%-*soperands → results · attributes\n", "name", RULE_COLUMN,
                  "rule");
    for (size_t i = 0; i < n; i++)
        if (!in_list(ops[i]) && !of_expert_layers(ops[i]))
            header_row(ops[i], out);
    header_list(ops, n, out);
    tt_str_add(out, " */\n\n");
    header_functions(ops, n, out);
}
