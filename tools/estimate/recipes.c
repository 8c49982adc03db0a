/* SPDX-License-Identifier: Apache-2.0 */
#include "estimate/recipes.h"
#include "base/wrapped.h"
#include "estimate/estimate.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Which matrix products of a job a recipe of low precision would make faster on a machine. Products of
 * equal local shape are one row: y = x wᵀ, dx and dw with M rows, N outputs and K inputs. Their time is
 * the roofline of core/cost in bf16, and at the machine's peak of 8 or 4 bits, plus kernels that read the
 * bf16 operands and write the low ones, which move memory:
 *   an operand with one scale    amax: reads 2 bytes a number; cast: reads 2, writes it twice (once
 *                                transposed, because these products read both operands along the sum)
 *   one scale per row, each way  amax: reads 2; cast: reads 2, writes 1
 *   blocks, each way             one kernel: reads 2, writes the numbers and scales
 *   square blocks                one kernel for both ways: reads 2, writes the numbers twice
 * Products of blockwise are those of 8 bits whose sums over 128 numbers are scaled in f32 registers, as
 * DeepGEMM has them on h100 with the speed of cuBLAS (1550 TFLOP/s on H800); no unit for scaled blocks is needed.
 * At 4096 rows on h100 this agrees with the limits that torchao measured (auto_filter_small_kn; docs/
 * numerics.md). What a gather in 8 bits saves is in the plan's network, not here. */

#define BYTES_HIGH 2.0 /* of bf16 */

typedef struct operand_cost { /* per number of an operand */
    double bytes;             /* of memory */
    int kernels;
} operand_cost;

typedef struct low_recipe {
    const char *name, *title;
    tt_dtype dtype[3]; /* of y, dx, dw */
    double width;      /* bytes per number of a product's operand */
    bool blocks;       /* needs products of scaled blocks */
    double part;       /* of the peak of 8 bits */
    operand_cost x, w, dy;
} low_recipe;

#define F8 TT_F8E4M3
static const low_recipe recipes[TT_N_RECIPES] = {
    {"tensorwise",         "tensor", {F8, F8, F8},      1,     false, 1, {6, 2},     {6, 2},     {6, 2}    },
    {"rowwise",            "row",    {F8, F8, F8},      1,     false, 1, {10, 4},    {10, 4},    {10, 4}   },
    {"rowwise_with_gw_hp", "row_hp", {F8, F8, TT_BF16}, 1,     false, 1, {5, 2},     {10, 4},    {5, 2}    },
    {"mxfp8",              "mxfp8",  {F8, F8, F8},      1.031, true,  1, {6.06, 2},  {6.06, 2},  {6.06, 2} },
    {"blockwise",          "block",  {F8, F8, F8},      1.031, false, 1, {6.06, 2},  {4, 1},     {6.06, 2} },
    {"nvfp4",              "nvfp4",  {F8, F8, F8},      0.563, true,  2, {7.125, 4}, {5.125, 3}, {7.125, 4}},
};
#undef F8

const char *tt_recipe_name(int recipe)
{
    return recipes[recipe].name;
}

bool tt_recipe_runs(int recipe, const tt_machine *m)
{
    return recipes[recipe].blocks ? m->flops_f4 > 0 : m->flops_f8 > 0;
}

/* ---- the time of a layer's three products ---- */

static double product_seconds(const tt_machine *m, double rows, double cols, double depth,
                              tt_dtype dtype, double width, double part)
{
    tt_work w = {.flops = 2 * rows * cols * depth / part,
                 .bytes = width * (rows + cols) * depth + BYTES_HIGH * rows * cols,
                 .depth = depth,
                 .cls = TT_CLASS_MATMUL,
                 .dtype = dtype};
    return tt_work_seconds(&w, m);
}

static double cast_seconds(const tt_machine *m, const operand_cost *c, double numbers)
{
    const tt_work w = {.bytes = c->bytes * numbers, .cls = TT_CLASS_POINTWISE, .dtype = TT_BF16};
    return tt_work_seconds(&w, m) + (c->kernels - 1) * m->op_latency;
}

double tt_recipe_seconds(int recipe, const tt_machine *m, double rows, double out, double in)
{
    const double sizes[3][3] = {
        {rows, out, in  }, /* y */
        {rows, in,  out }, /* dx */
        {out,  in,  rows}  /* dw */
    };
    const low_recipe *r = recipe < 0 ? NULL : &recipes[recipe];
    double sum = 0;
    for (int i = 0; i < 3; i++) {
        const tt_dtype dtype = r ? r->dtype[i] : TT_BF16;
        const bool low = dtype != TT_BF16;
        sum += product_seconds(m, sizes[i][0], sizes[i][1], sizes[i][2], dtype,
                               low ? r->width : BYTES_HIGH, low ? r->part : 1);
    }
    if (r)
        sum += cast_seconds(m, &r->x, rows * in) + cast_seconds(m, &r->w, out * in) +
               cast_seconds(m, &r->dy, rows * out);
    return sum;
}

/* ---- the products of a job ---- */

/* The parameter by which node n multiplies, as its operand; NULL: none. */
static const tt_param_info *weight_of(const tt_node *n, const tt_value **weight)
{
    for (int j = 0; j < n->n_in; j++) {
        const tt_value *v = n->in[j];
        while (!v->node->param && v->node->n_in == 1)
            v = v->node->in[0];
        const tt_node *from = v->node;
        const tt_param_info *p = from->op == &tt_op_state && from->state->kind == TT_STATE_GATHERED
                                     ? from->state->gathered
                                     : from->param;
        if (!p || v->type.n_dims < 2)
            continue;
        *weight = n->in[j];
        return p;
    }
    return NULL;
}

static void add_name(tt_product_shape *s, const char *full)
{
    char name[64];
    const char *end = strrchr(full, '.'), *begin = end;
    if (!end || strcmp(end, ".weight") != 0)
        end = full + strlen(full), begin = end;
    while (begin > full && begin[-1] != '.')
        begin--;
    snprintf(name, sizeof name, "%.*s", (int)(end - begin), begin);
    const char *at = strstr(s->names, name);
    const size_t n = strlen(s->names);
    if (at && (at == s->names || at[-1] == ' ') && strchr(", ", at[strlen(name)]))
        return; /* the last one ends with NUL, which strchr finds */
    if (n + strlen(name) + 3 < sizeof s->names)
        snprintf(s->names + n, sizeof s->names - n, "%s%s", n ? ", " : "", name);
}

static double local_numel(const tt_graph *g, const tt_value *v)
{
    return (double)tt_max_local_numel(g->mesh, v->type.dims, v->type.n_dims, &v->place);
}

/* The part of a value's dim d that the rank with the most has. */
static double local_size(const tt_graph *g, const tt_value *v, int d)
{
    tt_placement one = {0};
    one.n[0] = v->place.n[d];
    memcpy(one.atom[0], v->place.atom[d], sizeof one.atom[0]);
    return (double)tt_max_local_numel(g->mesh, &v->type.dims[d], 1, &one);
}

/* n multiplies x [rows,in], its first operand, by a weight [out,in], or [experts,out,in]. */
static void add_product(const tt_graph *g, const tt_node *n, tt_product_shapes *all)
{
    const tt_value *w = NULL;
    const tt_param_info *p = weight_of(n, &w);
    if (!p || w == n->in[0])
        return;
    const double in = local_size(g, w, w->type.n_dims - 1),
                 out = local_size(g, w, w->type.n_dims - 2),
                 experts = local_numel(g, w) / (out * in);
    const tt_product_shape s = {.rows = round(local_numel(g, n->in[0]) / in / experts),
                                .out = out,
                                .in = in,
                                .count = experts};
    int i = 0;
    while (i < all->n &&
           (all->items[i].rows != s.rows || all->items[i].out != s.out || all->items[i].in != s.in))
        i++;
    if (i == (int)TT_COUNT(all->items))
        return;
    if (i == all->n) {
        all->items[all->n++] = s;
        all->items[i].count = 0;
    }
    all->items[i].count += s.count;
    add_name(&all->items[i], p->name);
}

static int longest_first(const void *x, const void *y)
{
    const tt_product_shape *a = x, *b = y;
    const double s = a->count * a->rows * a->out * a->in, t = b->count * b->rows * b->out * b->in;
    return s != t ? (s < t ? 1 : -1) : (a->out < b->out) - (a->out > b->out);
}

void tt_product_shapes_find(const tt_graph *g, tt_product_shapes *out)
{
    out->n = 0;
    for (size_t i = 0; i < g->nodes.n; i++) {
        const tt_node *n = g->nodes.items[i];
        if (n->when->region == TT_FORWARD && n->role != TT_NODE_EXPANDED && !n->derivative_of &&
            n->op->cls == TT_CLASS_MATMUL)
            add_product(g, n, out);
    }
    qsort(out->items, (size_t)out->n, sizeof *out->items, longest_first);
}

/* ---- the table ---- */

static void recipes_totals(const tt_product_shapes *all, const tt_machine *m, int recipe,
                           double *before, double *after)
{
    *before = *after = 0;
    for (int i = 0; i < all->n; i++) {
        const tt_product_shape *s = &all->items[i];
        const double high = tt_recipe_seconds(-1, m, s->rows, s->out, s->in),
                     low = tt_recipe_seconds(recipe, m, s->rows, s->out, s->in);
        *before += s->count * high;
        *after += s->count * TT_MIN(high, low);
    }
}

static void recipes_head(const tt_machine *m, tt_str *o)
{
    tt_str_add(o, "    rows    out     in layers  bf16 ms");
    for (int r = 0; r < TT_N_RECIPES; r++)
        if (tt_recipe_runs(r, m))
            tt_str_printf(o, "%7s", recipes[r].title);
    tt_str_addc(o, '\n');
}

static void recipes_line(const tt_product_shape *s, const tt_machine *m, tt_str *o)
{
    const double high = tt_recipe_seconds(-1, m, s->rows, s->out, s->in);
    tt_str_printf(o, "%8.0f%7.0f%7.0f%7.0f%9.3f", s->rows, s->out, s->in, s->count, 1e3 * high);
    for (int r = 0; r < TT_N_RECIPES; r++)
        if (tt_recipe_runs(r, m))
            tt_str_printf(o, "%7.2f", high / tt_recipe_seconds(r, m, s->rows, s->out, s->in));
    tt_str_printf(o, "\n%12s", "");
    tt_wrapped_text(o, 12, s->names);
}

void tt_recipes_text(const tt_graph *g, const tt_machine *m, tt_str *o)
{
    tt_product_shapes all;
    tt_product_shapes_find(g, &all);
    bool any = false;
    for (int r = 0; r < TT_N_RECIPES; r++)
        any = any || tt_recipe_runs(r, m);
    if (!any || !all.n) {
        tt_str_printf(o, "recipes     %s\n",
                      !all.n ? "no product by a weight"
                             : "none: the machine has no products of 8 bits");
        return;
    }
    tt_str_printf(o,
                  "recipes     y, dx and dw of a layer per micro-batch on %s: ms in bf16, and\n"
                  "            how many times as fast, with the casts (below 1: it does not\n"
                  "            pay). float8: tensorwise, rowwise, rowwise_with_gw_hp\n",
                  m->name);
    recipes_head(m, o);
    for (int i = 0; i < all.n; i++)
        recipes_line(&all.items[i], m, o);
    tt_str_printf(o, "%38s", "all, each layer as is faster");
    for (int r = 0; r < TT_N_RECIPES; r++) {
        double before, after;
        recipes_totals(&all, m, r, &before, &after);
        if (tt_recipe_runs(r, m))
            tt_str_printf(o, "%7.2f", before / after);
    }
    tt_str_addc(o, '\n');
}

void tt_recipes_json(const tt_graph *g, const tt_machine *m, tt_str *o)
{
    tt_product_shapes all;
    tt_product_shapes_find(g, &all);
    tt_str_addc(o, '[');
    for (int i = 0; i < all.n; i++) {
        const tt_product_shape *s = &all.items[i];
        const double high = tt_recipe_seconds(-1, m, s->rows, s->out, s->in);
        tt_str_printf(o, "%s{\"rows\":%.0f,\"out\":%.0f,\"in\":%.0f,\"layers\":%.0f,\"names\":",
                      i ? "," : "", s->rows, s->out, s->in, s->count);
        tt_str_json(o, s->names);
        tt_str_add(o, ",\"bf16_s\":");
        tt_str_json_number(o, high);
        for (int r = 0; r < TT_N_RECIPES; r++) {
            tt_str_printf(o, ",\"%s\":", recipes[r].name);
            tt_str_json_number(o, tt_recipe_runs(r, m)
                                      ? high / tt_recipe_seconds(r, m, s->rows, s->out, s->in)
                                      : (double)NAN);
        }
        tt_str_addc(o, '}');
    }
    tt_str_addc(o, ']');
}
