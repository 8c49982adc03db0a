/* SPDX-License-Identifier: Apache-2.0 */
#include "setup/setup_impl.h"
#include <math.h>
#include <string.h>
#include <ttrun/op.h>

/* setup: chooses the ops that run on kernels of plugins (ttrun/kernels.h defines the order). They
 * are chosen one by one while graphs are compiled, and not changed afterwards. */

tt_status tt_setup_kernels(tt_setup *s, const tt_strings *named, tt_error *err)
{
    const char *backend = s->backend.name;
    s->kernels.backend = s->backend.component->vtable;
    s->kernels_asked = tt_map_new(s->arena);
    if (named->n > TT_MAX_PARTS)
        return tt_job_fail(s->job, "backend.kernels", err, "%zu names, at most %d", named->n,
                           TT_MAX_PARTS);
    for (size_t i = 0; i < named->n; i++) {
        const char *key = tt_arena_printf(s->arena, "backend.kernels[%zu]", i);
        const tt_component *c;
        tt_error why = {0};
        if (tt_registry_find(s->registry, TT_KIND_KERNELS, named->items[i], &c, &why) != TT_OK)
            return tt_job_fail(s->job, key, err, "%s", why.text);
        const tt_kernels_vt *vt = c->vtable;
        if (strcmp(vt->backend, backend) != 0)
            return tt_job_fail(s->job, key, err, "kernels \"%s\" are for backend %s, not %s",
                               c->name, vt->backend, backend);
        s->kernel_parts[i] = (tt_part){c, NULL, c->name, tt_registry_file(s->registry, c)};
    }
    s->n_kernels_named = s->n_kernel_parts = (int)named->n;
    return TT_OK;
}

void tt_setup_expert_opts(const tt_setup *s, tt_compile_opts *o)
{
    const tt_parallelism_config *p = &s->core.parallelism;
    const tt_axis *ep = tt_mesh_axis(&s->mesh, "ep");
    const bool recomputes = o->recompute.mode == TT_RECOMPUTE_FULL;
    o->expert_room = isnan(p->expert_buffer_factor) ? 0 : p->expert_buffer_factor;
    if (!ep)
        return;
    o->replicas = (tt_replica_opts){
        .n = p->expert_replicas,
        .ranks = tt_mesh_degree(&s->mesh, &ep->atoms),
        .parts = s->mesh.world / TT_MAXV(p->pipeline_parallel_degree, 1),
        .stages = p->pipeline_parallel_degree,
        .micro_batches = s->early_step ? 1 : s->micro_batches,
        .most_bytes = (int64_t)(p->expert_replicas_gb * 1e9),
        .skew = p->expert_replicas_skew,
        .again = o->recompute.fetches || recomputes,
        .compute = o->precision.compute,
    };
}

tt_status tt_setup_kernels_check(tt_setup *s, tt_error *err)
{
    if (s->core.metrics.attention_max_logits && !tt_setup_kernel(s, "attention_max"))
        return tt_job_fail(s->job, "metrics.attention_max_logits", err,
                           "backend %s has no kernel attention_max", s->backend.name);
    return TT_OK;
}

static void use_kernel(tt_setup *s, const tt_plugin_kernel *k)
{
    tt_vec_push(s->arena, &s->kernels.plugins, k->kernel);
    for (int i = 0; i < s->n_kernel_parts; i++)
        if (s->kernel_parts[i].component == k->component)
            return;
    if (s->n_kernel_parts < TT_MAX_KERNEL_PARTS)
        s->kernel_parts[s->n_kernel_parts++] = (tt_part){
            k->component, NULL, k->component->name, tt_registry_file(s->registry, k->component)};
}

/* The component of an op that is not the core's; NULL = it is the core's. */
static const tt_component *op_component(const tt_setup *s, const char *op)
{
    const tt_component *c = NULL;
    for (size_t i = 0; i < s->ops.n_core; i++)
        if (strcmp(s->ops.core[i]->name, op) == 0)
            return NULL;
    return tt_registry_find(s->registry, TT_KIND_OP, op, &c, NULL) == TT_OK ? c : NULL;
}

static tt_status choose(tt_setup *s, const char *op, tt_error *err)
{
    tt_plugin_kernel k = {0};
    if (tt_op_is_structural(op)) /* the core's own: a search would open every plugin */
        return TT_OK;
    for (int i = 0; i < s->n_kernels_named && !k.kernel; i++)
        k = (tt_plugin_kernel){tt_component_kernel(s->kernel_parts[i].component, op),
                               s->kernel_parts[i].component};
    const tt_component *own = k.kernel ? NULL : op_component(s, op);
    if (own)
        TT_TRY(tt_registry_kernel(s->registry, s->backend.name, op, own, &k, err));
    if (!k.kernel && !s->kernels.backend->kernel(s->target, op))
        TT_TRY(tt_registry_kernel(s->registry, s->backend.name, op, NULL, &k, err));
    if (k.kernel)
        use_kernel(s, &k);
    return TT_OK;
}

static tt_kernel no_kernel; /* in the map of answers: there is none */

const tt_kernel *tt_setup_kernel(tt_setup *s, const char *op)
{
    const tt_kernel *k = tt_map_get(s->kernels_asked, op);
    if (k)
        return k == &no_kernel ? NULL : k;
    tt_error why = {0};
    if (!s->backend_alone && choose(s, op, &why) != TT_OK && s->kernels_error.code == TT_OK)
        s->kernels_error = why;
    k = tt_find_kernel(&s->kernels, s->target, op);
    tt_map_set(s->kernels_asked, op, k ? (void *)(uintptr_t)k : &no_kernel);
    return k;
}

const tt_kernel *tt_setup_kernel_settled(const tt_setup *s, const char *op)
{
    const tt_kernel *k = tt_map_get(s->kernels_asked, op);
    if (!k)
        return tt_find_kernel(&s->kernels, s->target, op);
    return k == &no_kernel ? NULL : k;
}

static int nodes_of(const tt_graph *g, const char *name)
{
    const tt_op_def *op = tt_op_find(g->ops, name);
    int n = 0;
    for (size_t i = 0; i < g->nodes.n; i++)
        n += g->nodes.items[i]->role != TT_NODE_EXPANDED && g->nodes.items[i]->op == op;
    return n;
}

/* Warns if no op of the graph runs on the kernels of a component that the job names. The reason may
 * be that a pointwise op is part of a fused one. */
static void warn_unused(const tt_setup *s, const tt_graph *g)
{
    for (int i = 0; i < s->n_kernels_named; i++) {
        const tt_kernels_vt *vt = s->kernel_parts[i].component->vtable;
        int n = 0;
        for (size_t k = 0; k < vt->n_kernels; k++)
            n += nodes_of(g, ((const tt_kernel *)(const void *)((const char *)vt->kernels +
                                                                k * vt->kernel_size))
                                 ->op);
        if (n == 0)
            tt_log(
                TT_WARN, "train",
                "backend.kernels: no op of this program runs on the kernels \"%s\"; pointwise ops "
                "are part of \"fused\" (debug.disable_fusion runs them one by one)",
                s->kernel_parts[i].name);
    }
}

tt_status tt_setup_kernels_settle(tt_setup *s, const tt_graph *g, bool quiet, tt_error *err)
{
    for (size_t i = 0; i < g->nodes.n; i++)
        (void)tt_setup_kernel(s, g->nodes.items[i]->op->name);
    if (s->kernels_error.code != TT_OK)
        return TT_FAIL(err, s->kernels_error.code, "%s", s->kernels_error.text);
    for (size_t i = 0; !quiet && i < s->kernels.plugins.n; i++) {
        const int n = nodes_of(g, s->kernels.plugins.items[i]->op);
        if (n)
            tt_log(TT_DEBUG, "train", "op %s: %d node%s run%s on a kernel of a plugin",
                   s->kernels.plugins.items[i]->op, n, n == 1 ? "" : "s", n == 1 ? "s" : "");
    }
    if (!s->backend_alone && !quiet)
        warn_unused(s, g);
    return TT_OK;
}
