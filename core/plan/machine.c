/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/machine.h"
#include "plan/plan.h"
#include <string.h>

/* Peaks are the vendors' dense numbers (data sheets: NVIDIA H100 SXM, H200 SXM, HGX B200; AMD
 * Instinct MI300X), networks one 400 Gb/s card a device. Efficiencies are what tuned libraries
 * reach: 0.75 of a large bf16 matmul, 0.5 to 0.6 of attention, 0.85 of the memory's bandwidth. */
#define GPU_EFFICIENCY                                                                             \
    .op_latency = 3e-6, .matmul_efficiency = 0.75, .attention_efficiency = 0.55,                   \
    .memory_efficiency = 0.85, .network_efficiency = 0.8, .link_latency = 8e-6,                    \
    .net_latency = 15e-6, .net_bandwidth = 50e9, .ranks_per_node = 8

static const tt_machine machines[] = {
    {.name = "h100",
     .flops_f32 = 67e12,
     .flops_bf16 = 989e12,
     .flops_f16 = 989e12,
     .memory_bytes = 80e9,
     .memory_bandwidth = 3.35e12,
     .link_bandwidth = 450e9,
     GPU_EFFICIENCY},
    {.name = "h200",
     .flops_f32 = 67e12,
     .flops_bf16 = 989e12,
     .flops_f16 = 989e12,
     .memory_bytes = 141e9,
     .memory_bandwidth = 4.8e12,
     .link_bandwidth = 450e9,
     GPU_EFFICIENCY},
    {.name = "b200",
     .flops_f32 = 80e12,
     .flops_bf16 = 2250e12,
     .flops_f16 = 2250e12,
     .memory_bytes = 180e9,
     .memory_bandwidth = 8e12,
     .link_bandwidth = 900e9,
     GPU_EFFICIENCY},
    {.name = "mi300x",
     .flops_f32 = 163.4e12,
     .flops_bf16 = 1307e12,
     .flops_f16 = 1307e12,
     .memory_bytes = 192e9,
     .memory_bandwidth = 5.3e12,
     .link_bandwidth = 448e9,
     GPU_EFFICIENCY},
};

const tt_machine *tt_machine_find(const char *name)
{
    for (size_t i = 0; i < TT_COUNT(machines); i++)
        if (!strcmp(machines[i].name, name))
            return &machines[i];
    return NULL;
}

void tt_machine_names(tt_str *out)
{
    for (size_t i = 0; i < TT_COUNT(machines); i++)
        tt_str_printf(out, "%s%s", i ? ", " : "", machines[i].name);
}

double tt_machine_flops(const tt_machine *m, tt_dtype t)
{
    return t == TT_BF16 ? m->flops_bf16 : t == TT_F16 ? m->flops_f16 : m->flops_f32;
}

/* ---- ops ---- */

/* Lines of the token dim a rank holds: the atoms in front cut between lines. */
static int64_t local_lines(const tt_graph *g, const tt_value *v, int d)
{
    int64_t lines = v->type.dims[d].lines;
    for (int i = 0; i < v->place.n[d]; i++) {
        const int32_t n = g->mesh->atom_size[TT_ATOM(v->place.atom[d][i])];
        if (lines % n)
            break;
        lines /= n;
    }
    return lines;
}

tt_type tt_local_type(const tt_graph *g, const tt_value *v, const int64_t *shape)
{
    tt_type out = v->type;
    for (int d = 0; d < out.n_dims; d++) {
        out.dims[d].size = shape[d];
        if (out.dims[d].lines > 1)
            out.dims[d].lines = local_lines(g, v, d);
    }
    return out;
}

static tt_type largest_type(const tt_graph *g, const tt_value *v)
{
    tt_tensor t;
    tt_plan_tensor(g, v, NULL, &t);
    return tt_local_type(g, v, t.shape);
}

tt_cost tt_node_cost(const tt_graph *g, const tt_node *n)
{
    tt_type in[TT_MAX_INS], out[TT_MAX_OUTS];
    const tt_type *ins[TT_MAX_INS];
    if (n->virtual_ || !n->op->cost || (n->op->flags & TT_OP_VIEW))
        return (tt_cost){0};
    for (int i = 0; i < n->n_in; i++) {
        in[i] = largest_type(g, n->in[i]);
        ins[i] = &in[i];
    }
    for (int i = 0; i < n->n_out; i++)
        out[i] = largest_type(g, n->out[i]);
    const tt_shape_query q = {
        .struct_size = sizeof q, .n_in = n->n_in, .in = ins, .attrs = n->attrs, .op = n->op->name};
    return n->op->cost(&q, out);
}

static double op_seconds(const tt_graph *g, const tt_node *n, const tt_machine *m)
{
    const tt_cost c = tt_node_cost(g, n);
    if (c.flops <= 0 && c.bytes <= 0)
        return 0;
    const bool attention = tt_op_class_of(n->op) == TT_CLASS_ATTENTION;
    const double reach = attention ? m->attention_efficiency : m->matmul_efficiency;
    const double peak = tt_machine_flops(m, n->n_in ? n->in[0]->type.dtype : TT_F32) * reach;
    const double math = peak > 0 ? c.flops / peak : 0;
    const double memory = c.bytes / (m->memory_bandwidth * m->memory_efficiency);
    return m->op_latency + TT_MAXV(math, memory);
}

/* ---- communication ---- */

/* What a rank of a group over these atoms sends per second, and how long a message to one other is
 * under way. A ring over nodes leaves a node through the cards of all members it has there. */
static void link_of(const tt_graph *g, const tt_atom_list *atoms, const tt_machine *m,
                    double *bandwidth, double *latency)
{
    int ranks[64];
    const int n = tt_mesh_degree(g->mesh, atoms), seen = TT_MIN(n, (int)TT_COUNT(ranks));
    const int64_t per_node = TT_MAXV(m->ranks_per_node, 1);
    tt_atom_list few = *atoms; /* the first members tell how they are spread */
    while (few.n > 0 && tt_mesh_degree(g->mesh, &few) > seen)
        memmove(few.atom, few.atom + 1, --few.n * sizeof few.atom[0]);
    const int k = few.n ? tt_mesh_group(g->mesh, 0, &few, ranks) : 1;
    int here = 0;
    for (int i = 0; i < k; i++)
        here += few.n ? ranks[i] < per_node : 1;
    const bool one_node = few.n == atoms->n && here == k;
    *bandwidth = m->link_bandwidth;
    if (!one_node)
        *bandwidth = TT_MIN(m->link_bandwidth, m->net_bandwidth * TT_MAXV(here, 1));
    *bandwidth *= m->network_efficiency;
    *latency = one_node ? m->link_latency : m->net_latency;
}

static int tree_depth(int n)
{
    int hops = 0;
    while (1 << hops < n)
        hops++;
    return hops;
}

static double collective_seconds(const tt_graph *g, const tt_node *n, const tt_machine *m)
{
    double bandwidth, latency;
    const tt_lower_step *s = n->step;
    if (tt_step_is_local(s->kind))
        return 0;
    link_of(g, &s->atoms, m, &bandwidth, &latency);
    if (s->kind != TT_STEP_SHIFT)
        latency *= tree_depth(tt_mesh_degree(g->mesh, &s->atoms));
    return latency + s->cost * (double)tt_dtype_size(n->out[0]->type.dtype) / bandwidth;
}

static double pipeline_link(const tt_graph *g, const tt_machine *m, double *latency)
{
    double bandwidth;
    const tt_axis *pp = tt_mesh_axis(g->mesh, "pp");
    const tt_atom_list none = {0};
    link_of(g, pp ? &pp->atoms : &none, m, &bandwidth, latency);
    *latency *= tree_depth(pp ? tt_mesh_degree(g->mesh, &pp->atoms) : 1);
    return bandwidth;
}

/* Joins and sums: what they copy or add passes through memory. */
static double pieces_seconds(const tt_graph *g, const tt_node *n, const tt_machine *m)
{
    double bytes = n->step->kind == TT_STEP_SUM ? (double)tt_plan_value_bytes(g, n->out[0]) : 0;
    for (int i = 0; i < n->n_in; i++)
        if (n->in[i]->within != n->out[0])
            bytes +=
                (n->step->kind == TT_STEP_SUM ? 1 : 2) * (double)tt_plan_value_bytes(g, n->in[i]);
    return bytes > 0 ? m->op_latency + bytes / (m->memory_bandwidth * m->memory_efficiency) : 0;
}

double tt_transfer_seconds(const tt_graph *g, const tt_value *v, const tt_machine *m)
{
    double latency;
    const double bandwidth = pipeline_link(g, m, &latency);
    return latency + (double)tt_plan_value_bytes(g, v) / bandwidth;
}

tt_seconds tt_node_seconds(const tt_graph *g, const tt_node *n, const tt_machine *m)
{
    if (n->op == &tt_op_transfer)
        return (tt_seconds){0};
    if (n->step && n->step->kind >= TT_STEP_JOIN)
        return (tt_seconds){.compute = pieces_seconds(g, n, m)};
    if (n->step)
        return (tt_seconds){.comm = collective_seconds(g, n, m)};
    return (tt_seconds){.compute = op_seconds(g, n, m)};
}
